"""Hardware of a run: device, precision, PyTorch settings, memory checks."""

import contextlib
import ctypes
import math
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scalesearch.blocks.core import Block
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.errors import UserError
from scalesearch.terminal import format_bytes
from scalesearch.training.recipe import Recipe

# From this time on, a run compiles its layers and measures its precision. On an H100, compiled
# updates came after 25 s and were 1.4 times as fast.
LONG_RUN_SECONDS = 600.0
# A captured update on an H100 takes 2.5 ms, and 1 s more per 137 TFLOP (25 to 1,280 GFLOP).
UPDATE_SECONDS = 2.5e-3
FLOPS_PER_SECOND = 137e12
# H100: TF32 is 4 % faster than bf16 for updates of 25 GFLOP, and 8 % slower for 93.
MIN_BF16_FLOPS = 40e9
BUSY_INTERVAL = 0.2  # seconds
LARGE_BATCH_FACTOR = 8  # of decoding on a GPU, which is idle for most of a step of a small batch
_M_TRIM_THRESHOLD = -1  # of malloc.h
_M_MMAP_THRESHOLD = -3
_FAST_BF16_FLAGS = ("amx_bf16", "avx512_bf16")
_OUT_OF_MEMORY_MESSAGES = ("can't allocate memory", "not enough memory", "out of memory",
                           "CUBLAS_STATUS_ALLOC_FAILED")


class TrainingFailedError(Exception):
    """Error: this candidate cannot be trained; its result holds the message."""


@dataclass(frozen=True)
class Hardware:
    """Device, precision and compilation of a run.

    Attributes:
        device: device of weights and batches.
        uses_bf16: matrix products use bf16 under autocast; weights, sums and optimizer stay in
            fp32.
        is_compiled: the layers of the model, and passes over logits, are compiled for training.
        has_fixed_shapes: batches have few shapes, and a GPU runs updates as CUDA graphs.
        measures_precision: the run is long enough to measure which precision is faster.
    """

    device: torch.device
    uses_bf16: bool
    is_compiled: bool
    has_fixed_shapes: bool = False
    measures_precision: bool = False

    @classmethod
    def from_recipe(cls, recipe: Recipe, update_flops: float = math.inf,
                    run_seconds: float = 0.0) -> "Hardware":
        """Choose the hardware for ``recipe`` on this machine; set threads and TF32.

        Args:
            update_flops: see :func:`estimate_update_flops`. In small updates on a GPU, the casts
                of bf16 take longer than it saves.
            run_seconds: expected time of training, see :func:`estimate_run_seconds`.

        Raises:
            UserError: the recipe needs a GPU and PyTorch finds none.
        """
        if recipe.threads is not None:
            torch.set_num_threads(recipe.threads)
        check_device(recipe)
        cuda = recipe.device != "cpu" and torch.cuda.is_available()
        device = torch.device("cuda" if cuda else "cpu")
        if cuda:
            torch.set_float32_matmul_precision("high")  # TF32 for products that stay in fp32
            # cuDNN plans for each new shape, which takes tens of milliseconds. Batches of text and
            # decoding steps have many shapes.
            torch.backends.cuda.enable_cudnn_sdp(False)
        else:
            _keep_freed_memory()
        uses_bf16 = recipe.precision == "bf16"
        if recipe.precision == "auto":
            uses_bf16 = has_fast_bf16(device) and (not cuda or update_flops >= MIN_BF16_FLOPS)
        is_long = cuda and run_seconds >= LONG_RUN_SECONDS
        is_compiled = is_long if recipe.compile == "auto" else recipe.compile == "yes"
        measures_precision = is_long and recipe.precision == "auto" and has_fast_bf16(device)
        has_fixed_shapes = cuda if recipe.bucketing == "auto" else recipe.bucketing == "yes"
        return cls(device, uses_bf16, is_compiled, has_fixed_shapes, measures_precision)

    @property
    def dtype(self) -> str:
        """Name of the number type of matrix products, for records."""
        return "bf16" if self.uses_bf16 else "fp32"

    @property
    def name(self) -> str:
        """Name of the device: the GPU model, or the processor and its threads."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        threads = torch.get_num_threads()
        return f"cpu, {threads} thread{'s' * (threads > 1)}, {processor_name()}"

    @property
    def attention_kernel(self) -> str:
        """Faster attention kernel, forward and backward, for sentence lengths.

        On a CPU the fused kernel is 2-6 % faster in fp32, and much slower in bf16.
        """
        return "products" if self.device.type == "cpu" and self.uses_bf16 else "fused"

    @property
    def decode_batch_factor(self) -> int:
        """Factor on the size of the batches of decoding."""
        return LARGE_BATCH_FACTOR if self.device.type == "cuda" else 1

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Context manager for forward passes."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.uses_bf16)

    def to_device(self, array: np.ndarray) -> Tensor:
        """Copy ``array`` to the device; to a GPU from pinned memory, without waiting."""
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if self.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)


def estimate_update_flops(block: Block, vocab: int, recipe: Recipe) -> float:
    """Estimate the FLOPs of forward and backward pass of an update."""
    length = min(32, recipe.max_tokens)
    macs = evaluate_cost(block, find_protocol("forward", length, length, vocab))["macs.total"]
    passes = 2 if recipe.rdrop else 1
    return 3 * 2 * float(macs) * passes * recipe.max_tokens / length


def estimate_run_seconds(recipe: Recipe, update_flops: float, epoch_tokens: int) -> float:
    """Estimate the seconds of training on an H100.

    Args:
        update_flops: see :func:`estimate_update_flops`.
        epoch_tokens: target tokens of the training split.
    """
    batch_seconds = UPDATE_SECONDS + update_flops / FLOPS_PER_SECOND
    token_seconds = batch_seconds / recipe.max_tokens
    seconds_per_unit = {"steps": recipe.accumulate * batch_seconds, "tokens": token_seconds,
                        "epochs": epoch_tokens * token_seconds, "cpu_minutes": 60, "minutes": 60}
    return min(float(seconds * getattr(recipe, budget))
               for budget, seconds in seconds_per_unit.items()
               if getattr(recipe, budget) is not None)


def check_device(recipe: Recipe) -> None:
    """Check that this machine has the device of ``recipe``.

    Raises:
        UserError: the recipe needs a GPU and PyTorch finds none.
    """
    if recipe.device == "cuda" and not torch.cuda.is_available():
        raise UserError("recipe: device: cuda is set, but PyTorch finds no GPU; use auto or cpu",
                        key="recipe.device", code="no-gpu")


def has_fast_bf16(device: torch.device) -> bool:
    """Whether bf16 products are faster than fp32.

    They are on CPUs with AMX or AVX512-BF16, and on Ampere or newer GPUs.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    flags = read_cpuinfo().get("flags", "").split()
    return any(flag in flags for flag in _FAST_BF16_FLAGS)


def check_memory(block: Block, vocab: int) -> int:
    """Check that this machine has memory for a model; return its weight count.

    Raises:
        TrainingFailedError: weights and activations of a single token need more memory.
    """
    costs = evaluate_cost(block, find_protocol("forward", 1, 1, vocab))
    needed = costs["memory.weights"] + costs["memory.activations"]
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > available:
        raise TrainingFailedError(f"out of memory: the model alone needs "
                                  f"{format_bytes(needed)}, and this machine has "
                                  f"{format_bytes(available)}")
    return int(costs["params.total"])


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` means that memory ran out, on a GPU or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error,
                      RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY_MESSAGES)


def _keep_freed_memory() -> None:
    """Make glibc keep freed large blocks for the next update, which reuses them.

    Returning them to the system caused 2,000 to 15,000 page faults per update, 1-7 % of its time.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def processor_name() -> str:
    """Return the model name of the processor, as the system reports it."""
    return read_cpuinfo().get("model name", "unknown processor")


def read_cpuinfo() -> dict[str, str]:
    """Read /proc/cpuinfo for the first processor; empty on systems without this file."""
    file = Path("/proc/cpuinfo")
    if not file.exists():
        return {}
    lines = file.read_text("utf-8").split("\n\n")[0].splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def describe_busy_cores(recipe: Recipe) -> str:
    """Return a warning if other processes use the cores of several threads; else an empty text.

    Threads of PyTorch wait for each other in loops. If a core is not free for each of them, updates
    can take a hundred times longer.
    """
    threads = recipe.threads or torch.get_num_threads()
    cores = os.cpu_count() or 1
    if threads < 2 or (recipe.device != "cpu" and torch.cuda.is_available()):
        return ""
    busy = measure_busy_cores()
    if busy is None or busy + threads < cores + 0.5:
        return ""
    return (f"warning: other processes use {busy:.1f} of {cores} cores: {threads} threads, which "
            "wait for each other, can take many times longer; use one thread (threads: 1 in the "
            "recipe, or OMP_NUM_THREADS=1)")


def measure_busy_cores() -> float | None:
    """Measure how many cores are in use, while this process waits; None if this is unknown."""
    samples: list[list[int]] = []
    for _ in range(2):
        if samples:
            time.sleep(BUSY_INTERVAL)
        try:
            line = Path("/proc/stat").read_text("utf-8").partition("\n")[0]
        except OSError:
            return None
        samples.append([int(ticks) for ticks in line.split()[1:]])
    before, after = samples
    ticks = [end - start for start, end in zip(before, after)]
    idle = sum(ticks[3:5])  # idle, and idle while waiting for a disk
    return (1 - idle / max(1, sum(ticks))) * float(os.cpu_count() or 1)
