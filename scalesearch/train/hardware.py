"""Hardware of a run: device, number type, the PyTorch settings that pay there, and when memory runs out."""

import contextlib
import ctypes
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.errors import UserError
from scalesearch.train.recipe import Recipe

# torch.compile took 61 s of 8 updates on a CPU and was slower afterwards; on a GPU it pays back
# over a longer run.
COMPILE_MIN_MINUTES = 20.0
COMPILE_MIN_STEPS = 20_000
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3  # names of malloc.h
_FAST_BF16_FLAGS = ("amx_bf16", "avx512_bf16")
_OUT_OF_MEMORY_MESSAGES = ("can't allocate memory", "not enough memory", "out of memory",
                           "CUBLAS_STATUS_ALLOC_FAILED")


class TrainingFailedError(Exception):
    """Error: this candidate cannot be trained; the message is the reason in its result."""


@dataclass(frozen=True)
class Hardware:
    """Device, precision and compilation of a run.

    Attributes:
        device: of weights and batches.
        uses_bf16: products in bf16 under autocast; weights, sums and optimizer stay fp32.
        is_compiled: the model's forward goes through ``torch.compile``.
    """

    device: torch.device
    uses_bf16: bool
    is_compiled: bool

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "Hardware":
        """Chooses the hardware for ``recipe`` on this machine; sets threads and TF32.

        Raises:
            UserError: a GPU is asked for and there is none.
        """
        if recipe.threads is not None:
            torch.set_num_threads(recipe.threads)
        if recipe.device == "cuda" and not torch.cuda.is_available():
            raise UserError("recipe: device: cuda is asked for, but PyTorch finds no GPU here; use "
                            "auto or cpu", key="recipe.device", code="no-gpu")
        cuda = recipe.device != "cpu" and torch.cuda.is_available()
        device = torch.device("cuda" if cuda else "cpu")
        if cuda:
            torch.set_float32_matmul_precision("high")  # TF32 for the products that stay fp32
            # It plans anew for each shape, tens of milliseconds, and batches of text and steps of
            # decoding have many.
            torch.backends.cuda.enable_cudnn_sdp(False)
        else:
            _keep_freed_memory()
        bf16 = has_fast_bf16(device) if recipe.precision == "auto" else recipe.precision == "bf16"
        long = (recipe.steps or 0) >= COMPILE_MIN_STEPS or (
            recipe.minutes or 0) >= COMPILE_MIN_MINUTES
        return cls(device, bf16,
                   (cuda and long) if recipe.compile == "auto" else recipe.compile == "yes")

    @property
    def dtype(self) -> str:
        """Name of the type of matrix products, for records."""
        return "bf16" if self.uses_bf16 else "fp32"

    @property
    def name(self) -> str:
        """Name of the device: a GPU's model, or the processor and its threads."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return (f"cpu, {torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)}, "
                f"{processor_name()}")

    @property
    def attention_kernel(self) -> str:
        """Faster attention kernel, forward and backward at the lengths of sentences.

        On a CPU the fused one is 2-6 % faster in fp32, and much slower in bf16.
        """
        return "products" if self.device.type == "cpu" and self.uses_bf16 else "fused"

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Context manager for forward passes."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.uses_bf16)

    def to_device(self, array: np.ndarray) -> Tensor:
        """Copies ``array`` to the device; to a GPU from pinned memory, without waiting."""
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return (tensor.pin_memory() if self.device.type == "cuda" else tensor).to(
            self.device, non_blocking=True)


def has_fast_bf16(device: torch.device) -> bool:
    """Whether bf16 products beat fp32: AMX or AVX512-BF16 CPUs, GPUs from Ampere on."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    flags = read_cpuinfo().get("flags", "").split()
    return any(flag in flags for flag in _FAST_BF16_FLAGS)


def check_memory(block: Any, vocab: int) -> int:
    """Number of weights of a model, which is one that this machine could hold.

    Raises:
        TrainingFailed: weights and activations of a single token take more memory than there is.
    """
    found = evaluate_cost(block, find_protocol("forward", 1, 1, vocab))
    needed = found["memory.weights"] + found["memory.activations"]
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise TrainingFailedError(f"out of memory: the model alone takes {needed / 2**30:,.0f} "
                                  f"GiB, and this machine has {there / 2**30:,.0f}")
    return found["params.total"]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` means that memory ran out, on a GPU or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error,
                      RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY_MESSAGES)


def _keep_freed_memory() -> None:
    """Tells glibc to keep freed large blocks for the next update, which reuses them.

    Handing them back and having them zeroed page by page took 2,000 to 15,000 page faults an
    update, 1-7 % of its time.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def processor_name() -> str:
    """Name of the processor's model, as the system gives it."""
    return read_cpuinfo().get("model name", "unknown processor")


def read_cpuinfo() -> dict[str, str]:
    """Entries of /proc/cpuinfo for the first processor; empty on systems without it."""
    facts = Path("/proc/cpuinfo")
    if not facts.exists():
        return {}
    first = facts.read_text().split("\n\n")[0]
    return {key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in first.splitlines())}
