"""GPUs of this machine: trials that fit together, and NVIDIA's MPS.

A small model cannot use a whole GPU, so several trials share one. How many fit follows from the
memory that each of them needs, which is known before it starts.
"""

import functools
import json
import math
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalesearch.errors import UserError
from scalesearch.files import socket_root

# Captured updates of small models, H100: 8 processes 690 updates per second, 16 processes 687.
MAX_TRIALS_PER_GPU = 8
USABLE_SHARE = 0.9  # of the memory; the rest is for fragments and other programs
WHOLE_GPU = 2**63  # more bytes than any GPU has
MPS_CONTROL = "nvidia-cuda-mps-control"
MPS_SOCKET = "scalesearch-mps-12345678/control_privileged"  # its longest path of a socket
MPS_TIMEOUT = 30.0
# Waits for a line, or for the end of the process that would write it.
STOP_MPS = f"""read line || sleep "$1"
echo quit | timeout {MPS_TIMEOUT:.0f} {MPS_CONTROL}
rm -rf "$CUDA_MPS_PIPE_DIRECTORY"
"""
SHARE_UNIT = 1e-4  # Ray counts multiples of it


@dataclass
class Gpu:
    """A GPU of this machine or of a cluster.

    Attributes:
        name: its name in ``CUDA_VISIBLE_DEVICES``.
        memory: bytes.
        model: such as ``NVIDIA H100 80GB HBM3``.
        reserved: predicted bytes of each of its trials.
    """

    name: str
    memory: int
    model: str = ""
    reserved: list[int] = field(default_factory=list)

    def has_place(self, needed: int, limit: int = MAX_TRIALS_PER_GPU) -> bool:
        """Whether a trial that needs ``needed`` bytes fits; an idle GPU takes any trial."""
        if not self.reserved:
            return True
        return (len(self.reserved) < limit
                and sum(self.reserved) + needed <= USABLE_SHARE * self.memory)


def gpu_share(needed: int, memory: int, limit: int) -> float:
    """Return the share of a GPU of ``memory`` bytes for a trial that needs ``needed`` bytes.

    It is a multiple of ``SHARE_UNIT``, so that trials whose shares fit also fit into the memory.
    """
    by_memory = math.ceil(needed / (USABLE_SHARE * memory) / SHARE_UNIT)
    by_limit = math.floor(1 / limit / SHARE_UNIT)
    return min(1.0, max(by_memory, by_limit) * SHARE_UNIT)


def find_gpus() -> list[Gpu]:
    """Return the visible GPUs of this machine.

    CUDA is not initialized in this process.
    """
    query = ["nvidia-smi", "--query-gpu=index,uuid,memory.total,name",
             "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in output.stdout.splitlines()]
    # A GPU without memory of its own uses that of the system; for it, the number is [N/A].
    system_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gpus = {name: Gpu(uuid, int(mib) * 2**20 if mib.isdecimal() else system_memory, model)
            for index, uuid, mib, model in rows for name in (index, uuid)}
    if "CUDA_VISIBLE_DEVICES" not in os.environ:
        return [gpus[index] for index, *_ in rows]
    names = [name.strip() for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name.strip()]
    return [gpus[name] for name in names if name in gpus]


def count_places(gpus: list[Gpu]) -> int:
    """Return how many small trials train at a time: each also needs a core."""
    return max(1, min(MAX_TRIALS_PER_GPU * len(gpus), len(os.sched_getaffinity(0))))


def split_cores(workers: int) -> list[frozenset[int]]:
    """Return the cores of each worker, in equal parts.

    The sets are empty if there are too few cores. Processes under MPS that shared cores were
    reported to be slower than one process.
    """
    cores = sorted(os.sched_getaffinity(0))
    size = len(cores) // workers
    return [frozenset(cores[index * size:(index + 1) * size]) for index in range(workers)]


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
    except (UserError, RuntimeError):  # the worker reports what is invalid
        return WHOLE_GPU


@contextmanager
def multi_process_service(orphan_seconds: float = 0.0) -> Iterator[dict[str, str]]:
    """Context with an MPS of this study; yields the environment of its clients.

    MPS runs kernels of several processes at the same time. Its pipe is in a private folder, so no
    other service is used or stopped. If MPS cannot start, the environment is empty. A process that
    waits for the end of this one stops MPS, so nothing is left if this process is killed.

    Args:
        orphan_seconds: time for the clients to end if this process is killed.
    """
    folder = tempfile.mkdtemp(prefix="scalesearch-mps-", dir=socket_root(MPS_SOCKET))
    environment = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    quiet: Any = {"env": os.environ | environment, "stdout": subprocess.DEVNULL,
                  "stderr": subprocess.DEVNULL}
    # In a session of its own, because Ctrl-C must not end it.
    with subprocess.Popen(["sh", "-c", STOP_MPS, "sh", str(orphan_seconds)], text=True,
                          stdin=subprocess.PIPE, start_new_session=True, **quiet) as watcher:
        try:
            is_running = subprocess.run([MPS_CONTROL, "-d"], timeout=MPS_TIMEOUT,
                                        **quiet).returncode == 0
        except (OSError, subprocess.SubprocessError):
            is_running = False
        try:
            yield environment if is_running else {}
        finally:
            watcher.communicate("stop\n")
