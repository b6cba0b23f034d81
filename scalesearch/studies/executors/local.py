"""Executors on this machine, and the choice of a study's executor.

The pool is the default. The executor in this process is for debugging: breakpoints work in it.
"""

import os
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import ensure_running, set_forkserver_preload
from pathlib import Path
from types import ModuleType

from scalesearch.errors import UserError, error_context
from scalesearch.files import socket_root
from scalesearch.studies.config.sections import AUTO, Resources
from scalesearch.studies.executors.base import (
    ORPHAN_SECONDS,
    JobCrashed,
    JobEvent,
    NotSharedError,
    Runner,
    TrainingJob,
    Work,
    describe_error,
    run_job,
)
from scalesearch.studies.executors.ray_environment import prepare_environment
from scalesearch.studies.executors.saturation import SaturationPoint
from scalesearch.studies.executors.worker import train_job
from scalesearch.training.gpus import (
    Gpu,
    find_gpus,
    multi_process_service,
    predict_memory,
    split_cores,
)

# Imported once, before any process is forked; importing them must not initialize CUDA.
PRELOADED_MODULES = ("torch", "torch._dynamo", "scalesearch.data", "scalesearch.export.base",
                     "scalesearch.spaces", "scalesearch.training", "scalesearch.studies.executors.local")
FORKSERVER_SOCKET = "pymp-12345678/listener-12345678"  # in the folder of temporary files
END_SECONDS = 10.0  # for a worker to end after its last message


def make_runner(backend: str, workers: int, resources: Resources,
                work: Work | None = None, folder: Path | None = None) -> Runner:
    """Make the executor of a study.

    Args:
        work: replaced in tests.
        folder: of the study, for the measured speeds of its GPUs.

    Raises:
        UserError: resources are missing, or Ray cannot be used.
    """
    work = work or train_job
    if backend == "inprocess":
        return InProcessRunner(work)
    if backend == "pool":
        return PoolRunner(work, workers, resources, folder)
    address = resources.address or os.environ.get("RAY_ADDRESS")  # as in Ray itself
    address = None if address in (None, "", "local") else address
    prepare_environment(address)  # before Ray is imported
    from scalesearch.studies.executors.ray import RayRunner

    return RayRunner(work, workers, resources, address, folder)


def start_forkserver() -> None:
    """Start the server that imports PyTorch for all workers, without waiting for it."""
    set_forkserver_preload(list(PRELOADED_MODULES))
    with _worker_start():
        ensure_running()


class InProcessRunner(Runner):
    """Runs one job in each :meth:`poll`. A keyboard interrupt reaches the caller."""

    slots = 1

    def __init__(self, work: Work) -> None:
        self._work = work
        self._waiting: deque[TrainingJob] = deque()

    def submit(self, job: TrainingJob) -> None:
        """Queue ``job``."""
        self._waiting.append(job)

    def poll(self, timeout: float) -> list[JobEvent]:
        """Train the oldest job to its end; the timeout is ignored."""
        if not self._waiting:
            return []
        return [run_job(self._work, self._waiting.popleft())]

    def stop(self, grace: float = 10.0) -> None:
        """Drop the queued jobs; no job runs between polls."""
        self._waiting.clear()

    def describe(self) -> str:
        """Describe in one line where jobs run."""
        return "in this process, one at a time"


@dataclass(frozen=True)
class PoolWorker:
    """A process of the pool and the place that it takes."""

    job: TrainingJob
    process: ForkServerProcess
    place: "Place"


@dataclass(frozen=True)
class Place:
    """Place of a worker.

    Attributes:
        devices: its ``CUDA_VISIBLE_DEVICES``; None leaves the variable as it is.
        cores: the cores that it is pinned to; all if empty.
        gpu: the GPU that it shares by its predicted memory, if any.
        memory: predicted bytes on that GPU.
    """

    devices: str | None
    cores: frozenset[int] = frozenset()
    gpu: Gpu | None = None
    memory: int = 0


class PoolRunner(Runner):
    """Runs up to ``workers`` jobs at a time on this machine, each in a new process.

    Processes are forked from a server that has imported PyTorch and this package and runs nothing.
    So they start at once and share no state, such as CUDA, with this process. If this process dies,
    they save their training runs and end.

    Args:
        work: an importable function that trains the job in a folder.
        workers: maximum number of jobs at a time.
        resources: with ``gpus_per_trial: auto``, jobs share the GPUs as their predicted memory
            allows. With a number, only the devices of a worker are visible to it.

    Raises:
        UserError: this machine has too few GPUs for one worker.
    """

    def __init__(self, work: Work, workers: int, resources: Resources,
                 folder: Path | None = None) -> None:
        self._work = work
        self._exit = ExitStack()
        self._environment: dict[str, str] = {}
        self._gpus = find_gpus() if resources.gpus_per_trial == AUTO else []
        if self._gpus:
            self._free = [Place(None, cores) for cores in split_cores(workers)]
            self._environment = self._exit.enter_context(multi_process_service(ORPHAN_SECONDS))
            self._saturation = SaturationPoint(self._gpus, workers, folder)
        else:
            self._free = [Place(devices)
                          for devices in assign_devices(workers, resources.fixed_gpus_per_trial)]
        self.slots = len(self._free)
        self.shares_gpus = bool(self._gpus)
        self._context = get_context("forkserver")
        start_forkserver()
        self._waiting: deque[TrainingJob] = deque()
        self._running: dict[Connection, PoolWorker] = {}

    def submit(self, job: TrainingJob) -> None:
        """Start ``job``, or queue it until a worker is free."""
        self._waiting.append(job)
        self._start_waiting()

    def poll(self, timeout: float) -> list[JobEvent]:
        """Return the events of ended jobs. Wait up to ``timeout`` seconds for the first."""
        # A connection is ready after a message, and when the process at its other end has ended.
        if self._gpus:
            self._saturation.observe([worker.job.folder for worker in self._running.values()])
        ready = wait(list(self._running), timeout) if self._running else []
        events = [self._end(receiver) for receiver in ready if isinstance(receiver, Connection)]
        self._start_waiting()
        return events

    def stop(self, grace: float = 10.0) -> None:
        """Interrupt all jobs.

        Wait ``grace`` seconds for their checkpoints, then kill them.
        """
        self._waiting.clear()
        for worker in self._running.values():
            worker.process.terminate()
        deadline = time.monotonic() + grace
        for receiver, worker in self._running.items():
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()
            worker.process.join(END_SECONDS)
            receiver.close()
            self._release(worker.place)
        self._running.clear()
        self._exit.close()

    def describe(self) -> str:
        """Describe in one line where jobs run."""
        text = f"{self.slots} worker process{'es' * (self.slots > 1)} on this machine"
        if not self._gpus:
            return text
        n_gpus = len(self._gpus)
        service = "MPS" if self._environment else "without MPS, which is not available"
        return f"{text}, which share {n_gpus} GPU{'s' * (n_gpus > 1)} ({service})"

    def _take_place(self, job: TrainingJob) -> Place | None:
        """Take a place for ``job``; None if it must wait."""
        if not self._free:
            return None
        if not self._gpus:
            return self._free.pop(0)
        memory = predict_memory(job.folder)
        free_gpus = [gpu for gpu in self._gpus if gpu.has_place(memory, self._saturation.limit)]
        if not free_gpus:
            return None
        gpu = min(free_gpus, key=lambda gpu: sum(gpu.reserved) / gpu.memory)
        gpu.reserved.append(memory)
        return replace(self._free.pop(0), devices=gpu.name, gpu=gpu, memory=memory)

    def _release(self, place: Place) -> None:
        if place.gpu is not None:
            place.gpu.reserved.remove(place.memory)
        self._free.append(place)

    def _start_waiting(self) -> None:
        while self._waiting and (place := self._take_place(self._waiting[0])) is not None:
            job = self._waiting.popleft()
            receiver, sender = self._context.Pipe(duplex=False)
            absolute_job = replace(job, folder=job.folder.absolute())
            process = self._context.Process(
                target=run_worker,
                args=(self._work, absolute_job, place.devices, sender, self._environment,
                      place.cores),
                name=job.folder.name)
            with _worker_start():
                process.start()
            sender.close()
            self._running[receiver] = PoolWorker(job, process, place)

    def _end(self, receiver: Connection) -> JobEvent:
        worker = self._running.pop(receiver)
        self._release(worker.place)
        try:
            event: JobEvent | None = receiver.recv()
        except EOFError:
            event = None
        receiver.close()
        worker.process.join(END_SECONDS)
        if event is not None:
            return replace(event, job=worker.job)
        status = worker.process.exitcode
        if status is None or status >= 0:
            return JobCrashed(worker.job, f"the worker ended with status {status}")
        hint = ", which the system sends if memory runs out" * (status == -signal.SIGKILL)
        return JobCrashed(worker.job,
                          f"the worker was ended by {signal.Signals(-status).name}{hint}")


def assign_devices(workers: int, gpus_per_worker: float) -> list[str | None]:
    """Return ``CUDA_VISIBLE_DEVICES`` of each worker that fits, at most ``workers``.

    Without ``gpus_per_worker`` all workers see all devices. A fraction shares a device.

    Raises:
        UserError: not even one worker fits.
    """
    if not gpus_per_worker:
        return [None] * workers
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        names = [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]
    else:
        import torch

        names = [str(index) for index in range(torch.cuda.device_count())]
    size = max(1, int(gpus_per_worker))
    groups: list[str | None] = [",".join(names[i:i + size])
                                for i in range(0, len(names) - size + 1, size)]
    if not groups:
        raise UserError(f"resources: one worker needs {gpus_per_worker:g} GPU, and this machine "
                        f"has {len(names)}", key="resources", code="too-few-resources")
    workers_per_group = int(1 / gpus_per_worker + 1e-9) if gpus_per_worker < 1 else 1
    return (groups * workers_per_group)[:workers]


def run_worker(work: Work, job: TrainingJob, devices: str | None, sender: Connection,
               environment: Mapping[str, str], cores: frozenset[int]) -> None:
    """Run one job in a new process, and send its event.

    Args:
        devices: ``CUDA_VISIBLE_DEVICES``, or None.
        environment: further variables.
        cores: the cores to use; all if empty.
    """
    # Ctrl-C in a terminal reaches only the driver's group; the driver stops its workers.
    os.setpgid(0, 0)
    # Messages of libraries would disturb the driver's screen.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    threading.Thread(target=_end_with_driver, daemon=True).start()
    if devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices
    os.environ.update(environment)
    if cores:
        os.sched_setaffinity(0, cores)
    try:
        event = run_job(work, job)
    except (NotSharedError, KeyboardInterrupt) as error:
        event = JobCrashed(job, describe_error(error))
    sender.send(event)


def _end_with_driver() -> None:
    """End this process after the driver has died; its training run is saved."""
    driver = parent_process()
    assert driver is not None, "only workers call this function"
    driver.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_SECONDS)
    os._exit(1)


@contextmanager
def _worker_start() -> Iterator[None]:
    """Context in which new processes do not import the user's script.

    Scripts without ``if __name__ == "__main__"`` would run again in each worker. The socket of the
    server of processes is in a folder with a short path.
    """
    main = sys.modules["__main__"]
    temporary_folder = tempfile.tempdir
    with error_context("resources"):
        root = socket_root(FORKSERVER_SOCKET)
    sys.modules["__main__"] = ModuleType("__main__")
    tempfile.tempdir = root
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        tempfile.tempdir = temporary_folder
