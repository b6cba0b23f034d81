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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import ensure_running, set_forkserver_preload
from pathlib import Path
from types import ModuleType

from scalesearch.errors import UserError, error_context
from scalesearch.files import socket_root
from scalesearch.signals import deferred_signals
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
from scalesearch.studies.executors.process_state import ProcessState
from scalesearch.studies.executors.ray_environment import prepare_environment
from scalesearch.studies.executors.saturation import SaturationPoint
from scalesearch.studies.executors.worker import train_job
from scalesearch.training.gpus import (
    USABLE_SHARE,
    Gpu,
    find_gpus,
    multi_process_service,
    predict_memory,
    split_cores,
)

# Imported once, before any process is forked; importing them must not initialize CUDA.
PRELOADED_MODULES = ("torch", "torch._dynamo", "sacrebleu", "scalesearch.data",
                     "scalesearch.export.base", "scalesearch.spaces", "scalesearch.training",
                     "scalesearch.studies.executors.local")
FORKSERVER_SOCKET = "pymp-12345678/listener-12345678"  # in the folder of temporary files
END_SECONDS = 10.0  # for a worker to end after its last message
MAX_JOBS_ON_GPU = 32  # of one process, one after the other
IDLE_BYTES = 2**30  # on a GPU, of a process that waits for a job: CUDA context and workspaces


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
        return "in this process, one at a time"


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


@dataclass(frozen=True)
class PoolWorker:
    """A process of the pool.

    Attributes:
        connection: receives jobs, and sends an event and whether the process is kept.
        place: its place; ``memory`` is that of the job that it trains.
        job: the job that it trains; None if it waits for one.
    """

    process: ForkServerProcess
    connection: Connection
    place: Place
    job: TrainingJob | None = None


class PoolRunner(Runner):
    """Runs up to ``workers`` jobs at a time on this machine.

    Processes are forked from a server that has imported PyTorch and this package and runs nothing.
    So they start at once and share no state, such as CUDA, with this process. If this process dies,
    they save their training runs and end.

    On a CPU, each job has a new process. On a GPU, a process that has trained a job without any
    failure waits for another job on the same GPU; see :mod:`.process_state`.

    Args:
        work: an importable function that trains the job in a folder.
        workers: maximum number of jobs at a time.
        resources: with ``gpus_per_trial: auto``, jobs share the GPUs as their predicted memory
            allows. With a number, only the devices of a worker are visible to it.
            ``trials_per_process`` limits the jobs of a process.

    Raises:
        UserError: this machine has too few GPUs for one worker.
    """

    def __init__(self, work: Work, workers: int, resources: Resources,
                 folder: Path | None = None) -> None:
        self._exit = ExitStack()
        self._environment: dict[str, str] = {}
        self._gpus = find_gpus() if resources.gpus_per_trial == AUTO else []
        has_gpu = bool(self._gpus) or resources.fixed_gpus_per_trial > 0
        self._max_jobs = (resources.trials_per_process
                          if isinstance(resources.trials_per_process, int)
                          else MAX_JOBS_ON_GPU if has_gpu else 1)
        keeps_corpora = self._max_jobs > 1 and work is train_job
        self._work = partial(train_job, keeps_corpora=True) if keeps_corpora else work
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
        self._idle: list[PoolWorker] = []

    def submit(self, job: TrainingJob) -> None:
        self._waiting.append(job)
        self._start_waiting()

    def poll(self, timeout: float) -> list[JobEvent]:
        # A connection is ready after a message, and when the process at its other end has ended.
        if self._gpus:
            self._saturation.observe([worker.job.folder for worker in self._running.values()
                                      if worker.job is not None])
        ready = wait(list(self._running), timeout) if self._running else []
        events = [self._end(connection) for connection in ready
                  if isinstance(connection, Connection)]
        self._start_waiting()
        return events

    def stop(self, grace: float = 10.0) -> None:
        self._waiting.clear()
        workers = [*self._running.values(), *self._idle]
        for worker in workers:
            worker.process.terminate()
        deadline = time.monotonic() + grace
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()
            worker.process.join(END_SECONDS)
            self._discard(worker)
        self._running.clear()
        self._idle.clear()
        self._exit.close()

    def describe(self) -> str:
        text = f"{self.slots} worker process{'es' * (self.slots > 1)} on this machine"
        if not self._gpus:
            return text
        n_gpus = len(self._gpus)
        service = "MPS" if self._environment else "without MPS, which is not available"
        return f"{text}, which share {n_gpus} GPU{'s' * (n_gpus > 1)} ({service})"

    def _start_waiting(self) -> None:
        while self._waiting and (worker := self._take_worker(self._waiting[0])) is not None:
            job = self._waiting.popleft()
            with suppress(ConnectionError):  # the process has just died, which poll() reports
                worker.connection.send(replace(job, folder=job.folder.absolute()))
            self._running[worker.connection] = replace(worker, job=job)

    def _take_worker(self, job: TrainingJob) -> PoolWorker | None:
        """Take a place and a process for ``job``; None if it must wait."""
        for worker in [worker for worker in self._idle if not worker.process.is_alive()]:
            self._idle.remove(worker)
            self._discard(worker)  # its place is free again
        if not (self._free or self._idle):
            return None
        if not self._gpus:
            return self._idle.pop() if self._idle else self._start_process(self._free.pop(0))
        memory = predict_memory(job.folder)
        free_gpus = [gpu for gpu in self._gpus if gpu.has_place(memory, self._saturation.limit)]
        if not free_gpus:
            return None
        gpu = min(free_gpus, key=lambda gpu: sum(gpu.reserved) / gpu.memory)
        kept = next((worker for worker in self._idle if worker.place.gpu is gpu), None)
        if kept is not None:
            self._idle.remove(kept)
        # End idle processes if their memory or place is needed.
        idle_on_gpu = [worker for worker in self._idle if worker.place.gpu is gpu]
        used = sum(gpu.reserved) + memory + IDLE_BYTES * len(idle_on_gpu)
        ended = idle_on_gpu if used > USABLE_SHARE * gpu.memory else []
        if kept is None and not self._free and not ended:
            ended = self._idle[:1]
        for worker in ended:
            self._idle.remove(worker)
            worker.process.terminate()
            worker.process.join(END_SECONDS)
            self._discard(worker)
        gpu.reserved.append(memory)
        if kept is not None:
            return replace(kept, place=replace(kept.place, memory=memory))
        place = replace(self._free.pop(0), devices=gpu.name, gpu=gpu, memory=memory)
        return self._start_process(place)

    def _start_process(self, place: Place) -> PoolWorker:
        connection, worker_connection = self._context.Pipe()
        process = self._context.Process(
            target=run_worker,
            args=(self._work, place.devices, worker_connection, self._environment, place.cores,
                  self._max_jobs))
        # A process that is started by halves would print a traceback.
        with deferred_signals() as stop, _worker_start():
            process.start()
        worker_connection.close()
        stop.raise_if_requested()
        return PoolWorker(process, connection, place)

    def _discard(self, worker: PoolWorker) -> None:
        """Free what belongs to a process that has ended, or will end on its own."""
        worker.connection.close()
        place = worker.place
        if worker.job is not None and place.gpu is not None:
            place.gpu.reserved.remove(place.memory)
        is_shared = place.gpu is not None
        self._free.append(Place(None if is_shared else place.devices, place.cores))

    def _end(self, connection: Connection) -> JobEvent:
        """Receive the event of a job; its process is kept, or ends."""
        worker = self._running.pop(connection)
        assert worker.job is not None, "a running worker has a job"
        event: JobEvent | None = None
        is_kept = False
        with suppress(EOFError, ConnectionError):
            event, is_kept = connection.recv()
        if event is not None and is_kept:
            if worker.place.gpu is not None:
                worker.place.gpu.reserved.remove(worker.place.memory)
            self._idle.append(replace(worker, job=None))
            return replace(event, job=worker.job)
        self._discard(worker)
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


def run_worker(work: Work, devices: str | None, connection: Connection,
               environment: Mapping[str, str], cores: frozenset[int], max_jobs: int) -> None:
    """Run jobs in a new process, one after the other, and send their events.

    Args:
        devices: ``CUDA_VISIBLE_DEVICES``, or None.
        environment: further variables.
        cores: the cores to use; all if empty.
        max_jobs: number of jobs after which the process ends. It also ends after any failure.
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
    state = ProcessState() if max_jobs > 1 else None
    is_kept = True
    while is_kept:
        try:
            job = connection.recv()
        except EOFError:  # the driver needs this process no longer
            return
        try:
            event = run_job(work, job)
        except (NotSharedError, KeyboardInterrupt) as error:
            event = JobCrashed(job, describe_error(error))
        max_jobs -= 1
        is_kept = False
        if state is not None and max_jobs:
            state.restore()
            is_kept = state.is_reusable_after(event)
        connection.send((event, is_kept))


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
