"""Measurement of the latency of exported models, and of their peak memory.

All artifacts are decoded in turn, round by round, and every second round in reverse order. A
temporary slowdown of the machine then affects all of them. Sources and translations have fixed
lengths, independent of the model. Peak memory is measured in a separate process, by
``python -m scalesearch.export.latency FOLDER SETUP``.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import EOS, FIRST_WORD
from scalesearch.cost.latency_model import DecodingSetup
from scalesearch.errors import UserError, option
from scalesearch.export.base import ArtifactDecoder
from scalesearch.tasks import TASKS

if TYPE_CHECKING:
    from scalesearch.training.checkpoint import Checkpoint

WARM_UP_ROUNDS = 2  # rounds that are not recorded
MAX_HALF_DIFFERENCE = 0.03  # allowed relative difference between two halves of the rounds
INSTRUCTION_SETS = ("sse4_2", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni",
                    "amx_int8", "asimd", "asimddp", "i8mm")
ReadSeconds = Callable[[], float]
WallAndCpuTime = tuple[float, float]  # of one decoding, in ms per sentence


@dataclass(frozen=True)
class LatencyStatistics:
    """Latency of one artifact, in ms per sentence.

    Attributes:
        p50, p90: percentiles of the wall time of the rounds.
        cpu: median CPU time of the process, over all its threads.
        is_unstable: whether the medians of two interleaved halves of the rounds differ by over 3 %,
            of the time on one of the clocks.
    """

    p50: float
    p90: float
    cpu: float
    n_rounds: int
    is_unstable: bool

    @classmethod
    def from_times(cls, times: Sequence[WallAndCpuTime], clock: str = "wall") -> LatencyStatistics:
        """Compute the statistics of at least three rounds; ``clock`` is that of ``is_unstable``."""
        wall, cpu = zip(*times)
        # Each half takes every second pair of rounds: a pair has one round in each direction.
        halves: tuple[list[float], list[float]] = ([], [])
        for index, milliseconds in enumerate(cpu if clock == "cpu" else wall):
            halves[index // 2 % 2].append(milliseconds)
        first, second = map(statistics.median, halves)
        p90 = statistics.quantiles(wall, n=10, method="inclusive")[-1]
        return cls(statistics.median(wall), p90, statistics.median(cpu), len(wall),
                   abs(first - second) > MAX_HALF_DIFFERENCE * min(first, second))


@contextmanager
def pinned_threads(threads: int) -> Iterator[list[int]]:
    """Pin this thread and those that it starts to ``threads`` cores; yield the cores.

    Raises:
        UserError: this process may use fewer cores.
    """
    import torch

    allowed_cores = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
    if allowed_cores and threads > len(allowed_cores):
        raise UserError(f"{option('threads', threads)}: each thread needs its own core, and this "
                        f"process may use {len(allowed_cores)}", code="too-few-cores")
    cores = sorted(allowed_cores)[-threads:]  # the first core does most of the system's own work
    previous_threads = torch.get_num_threads()
    torch.set_num_threads(threads)
    if allowed_cores:
        os.sched_setaffinity(0, cores)
    try:
        yield cores
    finally:
        torch.set_num_threads(previous_threads)
        if allowed_cores:
            os.sched_setaffinity(0, allowed_cores)


def random_sources(setup: DecodingSetup, vocab_size: int) -> list[list[int]]:
    """Sample token ids of ``setup.batch`` source sentences, with EOS at the end."""
    rng = Random(1)
    return [[*(rng.randrange(FIRST_WORD, vocab_size) for _ in range(setup.source - 1)), EOS]
            for _ in range(setup.batch)]


def check_decoding(name: str, trained: Checkpoint, setup: DecodingSetup) -> None:
    """Check that a model generates tokens, and has learned positions for those of ``setup``.

    Raises:
        UserError: it does not.
    """
    if not TASKS[trained.task].generates_text:
        raise UserError(f"{name}: trained for the task {trained.task}, but only models that "
                        "generate text are measured", help="the objective `latency` of a study "
                        "measures one pass over a text", code="other-task")
    model = trained.model
    for side, tokens, limit in (
            ("source", setup.source, model.max_length),
            ("target", setup.target, model.max_target_length(setup.source))):
        if limit is not None and tokens > limit:
            raise UserError(f"{name}: {tokens} {side} tokens, but the model has learned positions "
                            f"for {limit}; set a smaller {option(side)}", code="too-long")


def measure_rounds(decoders: Mapping[str, ArtifactDecoder], vocab_sizes: Mapping[str, int],
                   setup: DecodingSetup, n_rounds: int, n_done: int = 0,
                   clocks: tuple[ReadSeconds, ReadSeconds] = (time.perf_counter,
                                                              time.process_time)) -> Iterator[
        dict[str, WallAndCpuTime]]:
    """Yield the times of each round by decoder.

    Decoders must be opened within :func:`pinned_threads`.

    Args:
        vocab_sizes: size of the vocabulary of each decoder.
        n_done: rounds of an earlier run, which this run continues.
    """
    sources = {name: random_sources(setup, vocab_sizes[name]) for name in decoders}
    wall, cpu = clocks
    for index in range(-WARM_UP_ROUNDS, n_rounds - n_done):
        times: dict[str, WallAndCpuTime] = {}
        names = list(decoders)
        for name in reversed(names) if (index + n_done) % 2 else names:
            wall_start = wall()
            cpu_start = cpu()
            decoders[name].decode_fixed_length(sources[name], setup.target, setup.beam)
            wall_seconds = wall() - wall_start
            cpu_seconds = cpu() - cpu_start
            times[name] = 1e3 * wall_seconds / setup.batch, 1e3 * cpu_seconds / setup.batch
        if index >= 0:
            yield times


def describe_device(threads: int) -> dict[str, Any]:
    """Describe the machine: processor, instruction sets and cores."""
    from scalesearch.training.hardware import processor_name, read_cpuinfo

    facts = read_cpuinfo()
    flags = facts.get("flags", facts.get("Features", "")).split()
    return {"processor": processor_name(), "architecture": platform.machine(),
            "sets": [name for name in INSTRUCTION_SETS if name in flags], "cores": os.cpu_count(),
            "threads": threads, "system": platform.system()}


def measure_peak_memory(folder: Path, setup: DecodingSetup) -> dict[str, int]:
    """Measure the peak resident bytes of decoding a batch in a new process.

    Returns:
        ``peak``: peak of the process; ``own``: the peak minus the memory after imports.

    Raises:
        UserError: the process failed.
    """
    process = subprocess.run([sys.executable, "-m", "scalesearch.export.latency", str(folder),
                              json.dumps(asdict(setup))],
                             capture_output=True, text=True, check=False)
    if process.returncode:
        reason = process.stderr.strip().rpartition("\n")[2]
        raise UserError(f"{folder}: peak memory could not be measured: {reason}",
                        code="not-measured")
    measured: dict[str, int] = json.loads(process.stdout)
    return measured


def main() -> None:
    """Measure and print the peak memory of decoding with the artifact in a folder."""
    from scalesearch.export.base import get_format
    from scalesearch.export.export import ARTIFACT_FILE, Artifact, open_artifact
    from scalesearch.files import read_json
    from scalesearch.training.scoring.measure import read_peak_resident, reset_peak_memory

    folder = Path(sys.argv[1])
    setup = DecodingSetup(**json.loads(sys.argv[2]))
    for package in get_format(read_json(folder / ARTIFACT_FILE, Artifact).format).packages:
        importlib.import_module(package)
    reset_peak_memory()
    before = read_peak_resident()[0]
    with pinned_threads(setup.threads):
        described, decoder = open_artifact(folder, setup.threads)
        decoder.decode_fixed_length(random_sources(setup, described.tokenizer.vocab_size),
                                    setup.target, setup.beam)
    print(json.dumps({"peak": read_peak_resident()[0], "own": read_peak_resident()[0] - before}))


if __name__ == "__main__":
    main()
