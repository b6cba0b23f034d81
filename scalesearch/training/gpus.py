"""GPUs of this machine: trials that fit together, and NVIDIA's MPS.

A small model cannot use a whole GPU, so several trials share one. How many fit follows from the
memory that each of them needs, which is known before it starts.
"""

import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scalesearch.errors import UserError
from scalesearch.files import socket_root

# Captured updates of small models, H100: 8 processes 690 updates per second, 16 processes 687.
MAX_TRIALS_PER_GPU = 8
USABLE_SHARE = 0.9  # of the memory; the rest is for fragments and other programs
WHOLE_GPU = 2**63  # more bytes than any GPU has
MPS_CONTROL = "nvidia-cuda-mps-control"
MPS_SOCKET = "scalesearch-mps-12345678/control_privileged"  # its longest path of a socket
MPS_TIMEOUT = 30.0


@dataclass
class Gpu:
    """A GPU: name in ``CUDA_VISIBLE_DEVICES``, bytes, and the bytes of its trials."""

    name: str
    memory: int
    reserved: list[int]

    def has_place(self, needed: int) -> bool:
        """Whether a trial that needs ``needed`` bytes fits; an idle GPU takes any trial."""
        if not self.reserved:
            return True
        return (len(self.reserved) < MAX_TRIALS_PER_GPU
                and sum(self.reserved) + needed <= USABLE_SHARE * self.memory)


def find_gpus() -> list[Gpu]:
    """Return the visible GPUs of this machine.

    CUDA is not initialized in this process.
    """
    query = ["nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in output.stdout.splitlines()]
    gpus = {name: Gpu(uuid, int(mib) * 2**20, [])
            for index, uuid, mib in rows for name in (index, uuid)}
    if "CUDA_VISIBLE_DEVICES" not in os.environ:
        return [gpus[index] for index, _, _ in rows]
    names = [name.strip() for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name.strip()]
    return [gpus[name] for name in names if name in gpus]


def count_places(gpus: list[Gpu]) -> int:
    """Return how many small trials train at a time: each also needs a core."""
    return max(1, min(MAX_TRIALS_PER_GPU * len(gpus), len(os.sched_getaffinity(0))))


@functools.lru_cache(maxsize=1024)
def predict_memory(folder: Path) -> int:
    """Predict the bytes on a GPU that the job in ``folder`` needs.

    Other jobs than training runs, such as a teacher's, need a whole GPU.
    """
    job = json.loads((folder / "job.json").read_text("utf-8"))
    if "teachers" in job:
        return WHOLE_GPU
    from scalesearch.training.memory import predict_job_bytes  # imports PyTorch

    try:
        return predict_job_bytes(folder, job)
    except UserError:  # the worker reports it
        return WHOLE_GPU


@contextmanager
def multi_process_service() -> Iterator[dict[str, str]]:
    """Context with an MPS of this study; yields the environment of its clients.

    MPS runs kernels of several processes at the same time. Its pipe is in a private folder, so no
    other service is used or stopped. Where MPS cannot start, the environment is empty.
    """
    with tempfile.TemporaryDirectory(prefix="scalesearch-mps-", dir=socket_root(MPS_SOCKET),
                                     ignore_cleanup_errors=True) as folder:
        environment = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        is_running = _control_mps(environment, "-d")
        try:
            yield environment if is_running else {}
        finally:
            if is_running:
                _control_mps(environment, text="quit\n")


def _control_mps(environment: dict[str, str], *arguments: str, text: str = "") -> bool:
    """Start or control MPS; return whether that worked."""
    try:
        subprocess.run([MPS_CONTROL, *arguments], env=os.environ | environment, input=text, text=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
                       timeout=MPS_TIMEOUT)
    except (OSError, subprocess.SubprocessError):
        return False
    return True
