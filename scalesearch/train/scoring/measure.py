"""Latency of a sentence and peak memory of training, each with its protocol."""

import ctypes
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scalesearch.data import Split, make_batch
from scalesearch.nn.decode import greedy_search
from scalesearch.train.hardware import Hardware

MAX_SENTENCES = 32
WARM_UP_SENTENCES = 3
MIB = 1 << 20
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def measure_latency(model: Any, split: Split, hardware: Hardware,
                    check: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Median latency in milliseconds per sentence: batch 1, greedy, 32 sentences spread over the split.

    Of text alone it is per window, all tokens of which are scored in one pass. ``latency_protocol``
    describes the measurement. The first few sentences run once before, as a warm-up.
    """
    spread = np.linspace(0, len(split) - 1, min(MAX_SENTENCES, len(split))).astype(np.int64)
    batches = [make_batch(split, np.array([place])) for place in np.unique(spread)]
    windows = split.window_overlap is not None
    model.eval()
    times = []
    for batch in batches[:WARM_UP_SENTENCES] + batches:
        check()
        start = time.perf_counter()
        with torch.inference_mode(), hardware.autocast():
            source = hardware.to_device(batch.source)
            model(source, hardware.to_device(batch.target_in)) if windows else greedy_search(
                model, source)
        if hardware.device.type == "cuda":
            torch.cuda.synchronize(hardware.device)
        times.append(1e3 * (time.perf_counter() - start))
    protocol = {"batch": 1, "decode": "one pass over a window" if windows else "greedy",
                "statistic": "median", "sentences": len(batches), "device": hardware.name,
                "dtype": hardware.dtype, "threads": torch.get_num_threads(), "compiled": False}
    return {"latency": statistics.median(times[-len(batches) :]), "latency_protocol": protocol}


class PeakMemory:
    """Peak memory since it was created, of this process or its GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self.is_peak_reset = device.type == "cuda" or reset_peak_memory()

    def read(self) -> dict[str, Any]:
        """Peak as ``memory`` (MiB) and how it was measured as ``memory_protocol``."""
        if self.device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self.device)
            words = "peak of tensors allocated on the GPU while training and validating"
            return {"memory": peak / MIB, "memory_protocol": words}
        peak, of = read_peak_resident()
        since = ("while training and validating" if self.is_peak_reset and of == "VmHWM"
                 else "of the process so far")
        words = f"peak resident memory {since} ({of}), interpreter and libraries included"
        return {"memory": peak / MIB, "memory_protocol": words}


def reset_peak_memory() -> bool:
    """Returns free memory to the system and resets Linux's peak; False where impossible.

    Earlier trainings in the same process leave freed blocks behind, which would count as this
    one's.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def read_peak_resident() -> tuple[int, str]:
    """Peak resident memory in bytes, and the system's name of that number."""
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024, "VmHWM"
    import resource  # not on every system

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (peak if platform.system() == "Darwin" else peak * 1024), "ru_maxrss"
