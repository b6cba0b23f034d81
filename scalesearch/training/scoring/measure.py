"""Latency per sentence and peak memory of training, with their protocols."""

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
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.training.hardware import Hardware

MAX_SENTENCES = 32
WARM_UP_SENTENCES = 3
MIB = 1 << 20
_STATUS_FILE = Path("/proc/self/status")
_CLEAR_FILE = Path("/proc/self/clear_refs")


def measure_latency(model: Seq2SeqModel, split: Split, hardware: Hardware,
                    check: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Measure the median latency in ms per sentence: batch size 1, greedy.

    32 sentences from all parts of the split are decoded; the first few run once before, as a
    warm-up. For a language model it is the latency per window, of which all tokens are scored in
    one pass; for a classifier, that of one pass over a text.

    Returns:
        ``latency``, and ``latency_protocol``, which describes the measurement.
    """
    spread = np.linspace(0, len(split) - 1, min(MAX_SENTENCES, len(split))).astype(np.int64)
    batches = [make_batch(split, np.array([index])) for index in np.unique(spread)]
    has_windows = split.window_overlap is not None
    has_one_pass = has_windows or split.has_classes
    pass_name = f"one pass over a {'window' if has_windows else 'text'}"
    model.eval()
    times = []
    for batch in batches[:WARM_UP_SENTENCES] + batches:
        check()
        start = time.perf_counter()
        with torch.inference_mode(), hardware.autocast():
            source = hardware.to_device(batch.source)
            if has_one_pass:
                model(source, hardware.to_device(batch.target_in))
            else:
                greedy_search(model, source)
        if hardware.device.type == "cuda":
            torch.cuda.synchronize(hardware.device)
        times.append(1e3 * (time.perf_counter() - start))
    protocol = {"batch": 1, "decode": pass_name if has_one_pass else "greedy",
                "statistic": "median", "sentences": len(batches), "device": hardware.name,
                "dtype": hardware.dtype, "threads": torch.get_num_threads(), "compiled": False}
    return {"latency": statistics.median(times[-len(batches) :]), "latency_protocol": protocol}


class PeakMemory:
    """Peak memory of this process or its GPU since the object was created."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self.is_peak_reset = device.type == "cuda" or reset_peak_memory()

    def read(self) -> dict[str, Any]:
        """Return the peak as ``memory`` (MiB) and its description as ``memory_protocol``."""
        if self.device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self.device)
            description = "peak of tensors allocated on the GPU while training and validating"
            return {"memory": peak / MIB, "memory_protocol": description}
        peak, counter = read_peak_resident()
        is_training_only = self.is_peak_reset and counter == "VmHWM"
        period = "while training and validating" if is_training_only else "of the process so far"
        description = (f"peak resident memory {period} ({counter}), interpreter and libraries "
                       "included")
        return {"memory": peak / MIB, "memory_protocol": description}


def reset_peak_memory() -> bool:
    """Return free memory to the system and reset the peak; False if impossible.

    Otherwise, blocks that earlier training runs of this process freed would count too.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
    try:
        _CLEAR_FILE.write_text("5", "utf-8")
    except OSError:
        return False
    return True


def read_peak_resident() -> tuple[int, str]:
    """Read the peak resident memory in bytes, and the system's name of this counter."""
    if _STATUS_FILE.exists():
        for line in _STATUS_FILE.read_text("utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024, "VmHWM"
    import resource  # not on every system

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (peak if platform.system() == "Darwin" else peak * 1024), "ru_maxrss"
