"""Processes that train models of equal size on one device, as trials of a study do."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from gpu_kit.kit import Kit, Wrong, batch, plain_transformer
from scalesearch.studies.executors.local import split_cores
from scalesearch.training.hardware import Hardware, estimate_update_flops
from scalesearch.training.updates.captured import build_engine

COLUMNS = 32
START_SECONDS = 120  # for all processes of a group
DELAY = 0.05  # seconds from a request until all processes begin


@dataclass(frozen=True)
class Load:
    """Model and batch that a process trains: ``rows`` rows of 32 tokens per side."""

    width: int = 128
    rows: int = 64

    @property
    def vocab(self) -> int:
        """Entries of the vocabulary, as in earlier measurements."""
        return 1000 if self.width <= 128 else 8000


def build_load(kit: Kit, load: Load, **changes: Any) -> tuple[Any, Any, float]:
    """Build engine and batch of ``load``.

    Args:
        changes: other attributes of the hardware.

    Returns:
        The engine, its batch, and the FLOPs of an update.
    """
    recipe = kit.recipe(precision="auto", max_tokens=load.rows * COLUMNS)
    model = plain_transformer(load.width, load.vocab)
    flops = estimate_update_flops(model.block, load.vocab, recipe)
    hardware = replace(Hardware.from_recipe(recipe, flops), **changes)
    engine = build_engine(model.to(kit.device).train(), recipe, hardware)
    return engine, batch(load.rows, COLUMNS, load.vocab), flops


def count_updates(kit: Kit, engine: Any, sample: Any, seconds: float) -> float:
    """Measure the updates per second of one process."""
    start = time.perf_counter()
    count = 0
    while not count or time.perf_counter() - start < seconds:
        loss = engine.update([sample], 1e-4)
        count += 1
        if count % 20 == 0:  # as the trainer does
            loss.item()
    kit.wait()
    return count / (time.perf_counter() - start)


def serve_requests(load: Load, device_type: str, environment: Mapping[str, str], cores: set[int],
                   connection: Any) -> None:
    """Measure updates per second for each request (is captured, seconds, start), until None."""
    os.environ.update(environment)
    if cores:
        os.sched_setaffinity(0, cores)
    import torch

    torch.set_num_threads(1)
    kit = Kit(folder=None, device=torch.device(device_type))
    engines = {}
    for is_captured in (False, True):
        engine, sample, _ = build_load(kit, load, has_fixed_shapes=is_captured)
        for _ in range(4):
            engine.update([sample], 1e-4)
        engines[is_captured] = engine
    kit.wait()
    connection.send("ready")
    while (request := connection.recv()) is not None:
        is_captured, seconds, start = request
        time.sleep(max(0.0, start - time.time()))
        connection.send(count_updates(kit, engines[is_captured], sample, seconds))


class Processes:
    """Processes of one load, which all wait for the first request.

    Args:
        count: number of processes.
        environment: additional environment variables, such as those of MPS.
    """

    def __init__(self, kit: Kit, count: int, load: Load, environment: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "torch._dynamo", "gpu_kit.candidate"])
        self.exit_stack = ExitStack()
        self.connections = []
        for cores in split_cores(count):
            connection, other_end = context.Pipe()
            process = context.Process(
                target=serve_requests,
                args=(load, kit.device.type, environment, cores, other_end), daemon=True)
            process.start()
            other_end.close()
            self.exit_stack.callback(process.join, 10)
            self.exit_stack.callback(process.kill)
            self.connections.append(connection)

    def __enter__(self) -> Processes:
        """Wait until all processes have prepared their updates."""
        try:
            for connection in self.connections:
                self._receive(connection, START_SECONDS)
        except BaseException:
            self.exit_stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.exit_stack.close()

    def rate(self, count: int, is_captured: bool, seconds: float) -> float:
        """Measure the updates per second, in all, of ``count`` processes at the same time."""
        start = time.time() + DELAY
        connections = self.connections[:count]
        for connection in connections:
            connection.send((is_captured, seconds, start))
        return sum(self._receive(connection, 60 + seconds) for connection in connections)

    def _receive(self, connection: Any, seconds: float) -> Any:
        if not connection.poll(seconds):
            raise Wrong(f"{len(self.connections)} processes: no figure after {seconds:.0f} s")
        try:
            return connection.recv()
        except EOFError:
            raise Wrong(f"{len(self.connections)} processes: one has ended") from None
