"""Trains in Ray tasks: on this machine's cores and GPUs, or on a cluster by address.

A fresh process for every attempt (``max_calls=1``: no memory left over, no model beside another's) and no retries
by Ray (it silently re-runs a dying task four times): retries belong to the study, which counts and records them.
Several machines need the study's folder on a file system that all of them see.
"""

import logging
import os
import socket
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError, TaskCancelledError

from scalesearch.errors import UserError
from scalesearch.files import DiskFull
from scalesearch.study.runners.base import Crashed, Done, Event, Job, Runner, Work

STORE_BYTES = 80 * 2**20  # the object store; jobs exchange nothing but a folder's name

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # this runner hides GPUs itself


class RayRunner(Runner):
    """Keeps up to ``workers`` tasks at work.

    Args:
        work: trains the job in a folder.
        workers: tasks at a time.
        cpus, gpus: of one process; ``gpus`` may be a fraction, which shares a device without isolating its memory.
        threads: of torch and OpenMP in one process.
        address: of a running cluster, or None to start one on this machine.
        processes: that one task starts. Where ``work.reserves``, it asks Ray for their CPUs and GPUs itself.

    Raises:
        UserError: no cluster answers at ``address``, or none of its nodes has what one task asks for.
    """

    def __init__(
        self, work: Work, workers: int, cpus: float = 1, gpus: float = 0, threads: int = 1,
        address: str | None = None, processes: int = 1,
    ) -> None:
        self.slots, self._address, self._processes = workers, address, processes
        self._cpus, self._gpus = cpus * processes, gpus * processes
        self._running: dict[Any, Job] = {}
        self._owns = not ray.is_initialized()
        if self._owns:
            _connect(address)
        try:
            self._refuse_the_impossible()
        except UserError:
            self._disconnect()
            raise
        self._threads = threads
        self._task = self._remote(work)

    def submit(self, job: Job) -> None:
        """Hands ``job`` to Ray, which starts it as soon as its resources are free."""
        self._running[self._task.options(name=job.folder.name).remote(str(job.folder))] = job

    def poll(self, timeout: float) -> list[Event]:
        """What has ended; waits up to ``timeout`` seconds for the first."""
        if not self._running:
            return []
        done, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout)
        more, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [self._end(task) for task in dict.fromkeys([*done, *more])]

    def stop(self, grace: float = 10.0) -> None:
        """Interrupts all tasks, waits for them, then ends by force what is left."""
        for task in self._running:
            ray.cancel(task, force=False)
        if self._running:
            _, left = ray.wait(list(self._running), num_returns=len(self._running), timeout=grace)
            for task in left:
                ray.cancel(task, force=True)
        self._running.clear()
        self._disconnect()

    def describe(self) -> str:
        """One line about where jobs run."""
        where = f"the cluster at {self._address}" if self._address else "this machine"
        gpus = f" and {self._gpus:g} GPU" if self._gpus else ""
        shared = f" for {self._processes} processes" if self._processes > 1 else ""
        return f"{self.slots} Ray workers on {where}, {self._cpus:g} CPU{gpus} each{shared}"

    def _end(self, task: Any) -> Event:
        job = self._running.pop(task)
        try:
            ray.get(task, timeout=60)
        except RayTaskError as error:
            cause = error.cause
            again = isinstance(cause, DiskFull) or not isinstance(cause, UserError)
            return Crashed(job, f"{type(cause).__name__}: {cause}", again)
        except (TaskCancelledError, GetTimeoutError, RayError) as error:
            return Crashed(job, _first_line(error))
        return Done(job)

    def _refuse_the_impossible(self) -> None:
        """A request that no node can satisfy would wait for ever without a word."""
        listing: Any = ray.nodes  # untyped in Ray
        nodes = [node["Resources"] for node in listing() if node["Alive"]]
        if not any(n.get("CPU", 0) >= self._cpus and n.get("GPU", 0) >= self._gpus for n in nodes):
            have = "; ".join(f"{n.get('CPU', 0):g} CPU, {n.get('GPU', 0):g} GPU" for n in nodes)
            raise UserError(f"resources: one worker asks for {self._cpus:g} CPU and {self._gpus:g} GPU, and no node "
                            f"has that (nodes: {have})")

    def _remote(self, work: Work) -> Any:
        reserves = getattr(work, "reserves", False)
        cpus, gpus = (0.0, 0.0) if reserves else (self._cpus, self._gpus)
        environment = {name: str(self._threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        if not gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ""  # Ray shows a task without GPUs every GPU there is

        @ray.remote(max_retries=0, max_calls=1, num_cpus=cpus, num_gpus=gpus,
                    runtime_env={"env_vars": environment})
        def train(folder: str) -> None:
            work(folder)

        return train

    def _disconnect(self) -> None:
        if self._owns:
            ray.shutdown()


def _connect(address: str | None) -> None:
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": True}
    if address is None:
        ray.init(include_dashboard=False, object_store_memory=STORE_BYTES, **quiet)
        return
    try:
        _knock(address)
        ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise UserError(f"resources: no Ray cluster answers at {address}: {_first_line(error)}") from None


def _knock(address: str) -> None:
    """Raises OSError where nobody listens; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__
