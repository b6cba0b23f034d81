"""Latency of artifacts, measured side by side; and the peak memory of one, in a process of its own.

All are decoded in turn, round by round and every other round backwards, so that what slows the
machine down for a while slows down all of them. Sources have one length and translations another,
whatever a model would say.
"""

from __future__ import annotations

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
from typing import Any

from scalesearch.blocks.core import PAD
from scalesearch.cost.latency_model import DecodingSetup
from scalesearch.data.split import BOS, EOS, UNK
from scalesearch.errors import UserError
from scalesearch.export.base import ArtifactDecoder

WARM_UP_ROUNDS = 2  # rounds that do not count
MAX_HALF_DIFFERENCE = 0.03  # by how much two halves of the rounds may differ
INSTRUCTION_SETS = ("sse4_2", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni",
                    "amx_int8", "asimd", "asimddp", "i8mm")
ReadSeconds = Callable[[], float]
WallAndCpuTime = tuple[float, float]  # wall and CPU time of one decoding, in ms a sentence


@dataclass(frozen=True)
class LatencyStatistics:
    """Latency of one artifact, in ms a sentence.

    Attributes:
        p50, p90: of the rounds, by the wall clock.
        cpu: median CPU time of the process, of all its threads.
        is_unstable: whether the medians of two interleaved halves of the rounds differ by over 3 %.
    """

    p50: float
    p90: float
    cpu: float
    n_rounds: int
    is_unstable: bool

    @classmethod
    def from_times(cls, times: Sequence[WallAndCpuTime]) -> LatencyStatistics:
        """The latency that three or more rounds say."""
        wall, cpu = zip(*times)
        # Pairs of rounds: in both halves as many went forwards as backwards.
        one, other = (statistics.median(wall[at] for at in range(len(wall)) if at // 2 % 2 == half)
                      for half in (0, 1))
        p90 = statistics.quantiles(wall, n=10, method="inclusive")[-1]
        return cls(statistics.median(wall), p90, statistics.median(cpu), len(wall),
                   abs(one - other) > MAX_HALF_DIFFERENCE * min(one, other))


@contextmanager
def pinned_threads(threads: int) -> Iterator[list[int]]:
    """A stretch in which this thread, and those it starts, have as many cores as ``threads``; yields which."""
    import torch

    before = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
    cores = sorted(before)[-threads:]
    others = torch.get_num_threads()  # the first has most of the system's own work
    torch.set_num_threads(threads)
    if before:
        os.sched_setaffinity(0, cores)
    try:
        yield cores
    finally:
        torch.set_num_threads(others)
        if before:
            os.sched_setaffinity(0, before)


def random_sources(setup: DecodingSetup, vocab_size: int, seed: int = 1) -> list[list[int]]:
    """Random source rows, EOS last."""
    rng = Random(seed)
    first = max(PAD, UNK, BOS, EOS) + 1
    return [[*(rng.randrange(first, vocab_size) for _ in range(setup.source - 1)), EOS]
            for _ in range(setup.batch)]


def check_target_length(name: str, model: Any, setup: DecodingSetup) -> None:
    """Raises UserError where ``model`` has learned positions, and fewer than what is to be decoded."""
    model.check_length(setup.source)
    room = model.max_target_length(setup.source)
    if room is not None and setup.target > room:
        raise UserError(f"{name}: {setup.target} target tokens, but it has learned positions for "
                        f"{room}; ask for fewer (--target)", code="too-long")


def measure_rounds(decoders: Mapping[str, ArtifactDecoder], vocab_sizes: Mapping[str, int],
                   setup: DecodingSetup, n_rounds: int, n_done: int = 0,
                   clocks: tuple[ReadSeconds, ReadSeconds] = (time.perf_counter,
                                                              time.process_time)) -> Iterator[
        dict[str, WallAndCpuTime]]:
    """Yields the times of each round of all ``decoders``, which were opened in :func:`pinned_threads`.

    Args:
        vocab_sizes: entries of each one's vocabulary.
        n_done: rounds that were measured before, to go on after them.
    """
    rows = {name: random_sources(setup, vocab_sizes[name]) for name in decoders}
    wall, cpu = clocks
    for at in range(-WARM_UP_ROUNDS, n_rounds - n_done):
        found: dict[str, WallAndCpuTime] = {}
        names = list(decoders)
        for name in reversed(names) if (at + n_done) % 2 else names:
            start = wall(), cpu()
            decoders[name].decode_fixed_length(rows[name], setup.target, setup.beam)
            found[name] = tuple(1e3 * (now() - since) / setup.batch for now, since in zip(clocks, start))  # type: ignore[assignment]
        if at >= 0:
            yield found


def describe_device(threads: int) -> dict[str, Any]:
    """The machine that is measured: processor, its instruction sets, cores."""
    from scalesearch.train.hardware import processor_name, read_cpuinfo

    facts = read_cpuinfo()
    there = facts.get("flags", facts.get("Features", "")).split()
    return {"processor": processor_name(), "architecture": platform.machine(),
            "sets": [one for one in INSTRUCTION_SETS if one in there], "cores": os.cpu_count(),
            "threads": threads, "system": platform.system()}


def measure_peak_memory(folder: Path, setup: DecodingSetup) -> dict[str, int]:
    """Peak resident bytes of a process that opens the artifact and decodes a batch.

    Returns:
        ``peak`` of the process, and ``own``: how much more that is than after its imports.

    Raises:
        UserError: the process failed.
    """
    made = subprocess.run([sys.executable, "-m", "scalesearch.export.peak_memory", str(folder),
                           json.dumps(asdict(setup))], capture_output=True, text=True, check=False)
    if made.returncode:
        raise UserError(f"{folder}: its memory could not be measured: "
                        f"{made.stderr.strip().splitlines()[-1:]}", code="not-measured")
    found: dict[str, int] = json.loads(made.stdout)
    return found
