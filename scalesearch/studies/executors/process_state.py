"""State of a worker process that trains several trials, one after the other.

A process is kept for what is expensive to start: the CUDA context, the kernels that are loaded, and
the corpus. Everything else is reset after each trial, so that the next one gives the same numbers
as in a new process. A process ends after any failure, and if its memory grows.
"""

import ctypes
import gc
import os
import platform
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scalesearch.files import try_read_json
from scalesearch.nn.graphs import reset_compiled_functions
from scalesearch.studies.executors.base import JobDone, JobEvent
from scalesearch.studies.trials.record import JobResult

MIB = 2**20
# Bytes by which a process may grow after its first trial. Larger trials leave fragments behind.
MAX_HOST_GROWTH = 1024 * MIB
MAX_DEVICE_GROWTH = 256 * MIB


class ProcessState:
    """Settings and random numbers of this process, as they are now."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._folder = Path.cwd()
        self._python_state = random.getstate()
        self._numpy_state = np.random.get_state()  # noqa: NPY002, libraries use it
        self._torch_state = torch.get_rng_state()
        cudnn: Any = torch.backends.cudnn
        cuda: Any = torch.backends.cuda
        # Settings of PyTorch that change numbers: setters and present values.
        self._settings: dict[Callable[..., Any], Any] = {
            torch.set_default_dtype: torch.get_default_dtype(),
            torch.set_num_threads: torch.get_num_threads(),
            torch.set_grad_enabled: torch.is_grad_enabled(),
            torch.set_deterministic_debug_mode: torch.get_deterministic_debug_mode(),
            torch.set_float32_matmul_precision: torch.get_float32_matmul_precision(),
            partial(setattr, cudnn, "benchmark"): cudnn.benchmark,
            partial(setattr, cudnn, "deterministic"): cudnn.deterministic,
            partial(setattr, cudnn, "allow_tf32"): cudnn.allow_tf32,
            cuda.enable_flash_sdp: cuda.flash_sdp_enabled(),
            cuda.enable_mem_efficient_sdp: cuda.mem_efficient_sdp_enabled(),
            cuda.enable_math_sdp: cuda.math_sdp_enabled(),
            cuda.enable_cudnn_sdp: cuda.cudnn_sdp_enabled()}
        self._cuda: Any = torch.cuda
        self._bytes: tuple[int, int] | None = None  # on host and device, after the first trial

    def restore(self) -> None:
        """Restore the state, and free the memory of a trial that has ended."""
        gc.collect()
        reset_compiled_functions()
        os.environ.clear()
        os.environ.update(self._environment)
        os.chdir(self._folder)
        random.setstate(self._python_state)
        np.random.set_state(self._numpy_state)  # noqa: NPY002
        torch.set_rng_state(self._torch_state)
        for change, value in self._settings.items():
            change(value)
        if platform.libc_ver()[0] == "glibc":
            ctypes.CDLL(None).malloc_trim(0)
        if self._cuda.is_initialized():
            torch.cuda.empty_cache()

    def is_reusable_after(self, event: JobEvent) -> bool:
        """Whether a process may train another trial after ``event``.

        It may not after a failure, lack of memory on a GPU, or if its memory grows.
        """
        if not isinstance(event, JobDone):
            return False
        result = try_read_json(event.job.folder / "result.json", JobResult)
        if result is not None and result.state == "failed":
            return False
        device_bytes = 0
        if self._cuda.is_initialized():
            if torch.cuda.memory_stats().get("num_ooms", 0):
                return False
            device_bytes = torch.cuda.memory_reserved()
        host_bytes = resident_bytes()
        if self._bytes is None:
            self._bytes = host_bytes, device_bytes
        first_host_bytes, first_device_bytes = self._bytes
        return (host_bytes <= first_host_bytes + MAX_HOST_GROWTH
                and device_bytes <= first_device_bytes + MAX_DEVICE_GROWTH)


def resident_bytes() -> int:
    """Bytes of this process in memory; 0 on systems without /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
