"""Executor of Ray tasks: on this machine, or on a cluster by address.

A fresh process for every attempt (``max_calls=1``: no memory left over, no model beside another's) and no retries
by Ray (it silently re-runs a dying task four times): retries belong to the study, which counts and records them.
Several machines need the study's folder on a file system that all of them see; they are asked before anything starts.
A cluster's nodes may differ, leave and join: what finds no room waits in Ray, and is no worker that hangs.
"""

import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, LocalRayletDiedError, NodeDiedError, RayError, RayTaskError

from scalesearch.errors import UserError
from scalesearch.signals import restored
from scalesearch.study.executors.base import FAULT, LOST, Crashed, Done, Event, Job, Runner, Work, raised
from scalesearch.study.executors.ray_cluster import Need, compare, refuse_the_impossible
from scalesearch.study.executors.ray_health import PATIENCE, Pulse
from scalesearch.study.executors.shared_fs import NotShared
from scalesearch.study.trials.interruptions import AGAIN

STORE_BYTES = 80 * 2**20  # the object store; jobs exchange nothing but a folder's name
STARTS = 3  # times that a Ray of its own is tried to be started
RESTARTS = 5  # of a Ray that this process started, before a job ends again

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # this runner hides GPUs itself


class RayRunner(Runner):
    """Keeps up to ``workers`` tasks at work.

    Args:
        work: trains the job in a folder.
        workers: tasks at a time.
        cpus, gpus: of one process; ``gpus`` may be a fraction, which shares a device without isolating its memory.
        threads: of torch and OpenMP in one process.
        address: of a running cluster, or None to start one on this machine. Its nodes may differ, leave and join.
        processes: that one task starts. Where ``work.reserves``, it asks Ray for their CPUs and GPUs itself.
        custom: other resources of one process, by Ray's names, which nodes state when they start.

    A Ray of its own that dies is started again, and the jobs that it had are reported as lost; where a cluster dies,
    there is nothing to go on with.

    Raises:
        UserError: no cluster answers at ``address``, or none of its nodes has what one task asks for.
    """

    def __init__(
        self, work: Work, workers: int, cpus: float = 1, gpus: float = 0, threads: int = 1,
        address: str | None = None, processes: int = 1, custom: Mapping[str, float] | None = None,
    ) -> None:
        address = address or os.environ.get("RAY_ADDRESS") or None  # as Ray itself has it
        self.slots, self._address, self._processes = workers, None if address == "local" else address, processes
        self._cpus, self._gpus = cpus * processes, gpus * processes
        self._custom = dict(custom or {})
        self._need = Need({"CPU": cpus, "GPU": gpus, **self._custom}, processes, getattr(work, "reserves", False))
        self._running: dict[Any, Job] = {}
        self._owns = not ray.is_initialized()
        if self._owns:
            _connect(self._address)
        try:
            refuse_the_impossible(self._need)
        except UserError:
            self._disconnect()
            raise
        self._threads, self._work, self._restarts = threads, work, 0
        self._begin()

    def _begin(self) -> None:
        self._task = self._remote(self._work)
        self._pulse = Pulse(0.0 if self._owns and self._address is None else PATIENCE)

    def submit(self, job: Job) -> None:
        """Hands ``job`` to Ray, which starts it as soon as its resources are free."""
        self._running[self._task.options(name=job.folder.name).remote(str(job.folder.absolute()))] = job

    def poll(self, timeout: float) -> list[Event]:
        """Returns the jobs that ended. Waits up to ``timeout`` seconds for the first."""
        if not self._running:
            return []
        if gone := self._pulse.gone():
            return self._lose(gone)
        done, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout)
        more, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [self._end(task) for task in dict.fromkeys([*done, *more])]

    def stop(self, grace: float = 10.0) -> None:
        """Interrupts all tasks, waits for them, then ends by force what is left."""
        if self._running and not self._pulse.look():
            for task in self._running:
                ray.cancel(task, force=False)
            _, left = ray.wait(list(self._running), num_returns=len(self._running), timeout=grace)
            for task in left:
                ray.cancel(task, force=True)
        self._running.clear()
        self._disconnect()

    def check(self, look: Callable[[], Mapping[str, str]]) -> None:
        """Refuses a node that does not see what ``look`` finds on this machine. Raises UserError."""
        if self._address:
            compare(look, self._need)

    def describe(self) -> str:
        """Describes in a line where jobs run."""
        where = f"the cluster at {self._address}" if self._address else "this machine"
        gpus = f" and {self._gpus:g} GPU" if self._gpus else ""
        shared = f" for {self._processes} processes" if self._processes > 1 else ""
        room = self._need.room()
        later = f"; {room} at a time have room now" if room is not None and room < self.slots else ""
        return f"{self.slots} Ray workers on {where}, {self._cpus:g} CPU{gpus} each{shared}{later}"

    def _end(self, task: Any) -> Event:
        job = self._running.pop(task)
        try:
            ray.get(task, timeout=60)
        except RayTaskError as error:
            if isinstance(error.cause, NotShared):
                raise error.cause from None
            return raised(job, error.cause)
        except RayError as error:  # its process died, and perhaps because what it ran on did
            away = isinstance(error, LocalRayletDiedError | NodeDiedError | GetTimeoutError) or self._pulse.look()
            return Crashed(job, _first_line(error), kind=LOST if away else FAULT)
        self._restarts = 0
        return Done(job)

    def _lose(self, gone: str) -> list[Event]:
        """Every job's end, after Ray has died and was started again.

        Raises:
            UserError: it is not ours to start, or that does not help.
        """
        lost = [Crashed(job, f"{gone} died", kind=LOST) for job in self._running.values()]
        self._running.clear()
        self._restarts += 1
        if not self._owns or self._address is not None:
            raise UserError(f"resources: {gone} does not answer any more. {AGAIN} once the cluster is back",
                            key="resources", code="cluster-lost")
        if self._restarts > RESTARTS:
            raise UserError(f"resources: {gone} died {self._restarts} times and no training ended between. {AGAIN}",
                            key="resources", code="cluster-lost")
        ray.shutdown()
        _connect(None)
        self._begin()
        return lost

    def _remote(self, work: Work) -> Any:
        reserves = getattr(work, "reserves", False)
        cpus, gpus = (0.0, 0.0) if reserves else (self._cpus, self._gpus)
        environment = {name: str(self._threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        if not gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ""  # Ray shows a task without GPUs every GPU there is

        custom = {} if reserves else {name: amount * self._processes for name, amount in self._custom.items()}

        @ray.remote(max_retries=0, max_calls=1, num_cpus=cpus, num_gpus=gpus, resources=custom,
                    runtime_env={"env_vars": environment})
        def train(folder: str) -> None:
            work(folder)

        return train

    def _disconnect(self) -> None:
        if self._owns:
            ray.shutdown()


@restored()  # Ray installs a handler of SIGTERM that exits with 15
def _connect(address: str | None) -> None:
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": True}
    if address is None:
        _start(quiet)
        return
    knock(address)
    try:
        ray.init(address=address, **quiet)
    except (ImportError, OSError, RuntimeError, ValueError, RayError) as error:
        raise _no_cluster(address, error) from None


def _start(quiet: dict[str, Any]) -> None:
    """Starts a Ray of this process's own, beside any cluster. On a busy machine that may take several tries."""
    for left in reversed(range(STARTS)):
        try:
            ray.init("local", include_dashboard=False, object_store_memory=STORE_BYTES, **quiet)
            return
        except Exception as error:  # Ray raises no class of its own here
            ray.shutdown()
            if not left:
                raise UserError(f"resources: Ray cannot be started on this machine: {_first_line(error)}. {AGAIN}, or "
                                "train one at a time with --backend inprocess", key="resources",
                                code="ray-not-started") from error


def knock(address: str) -> None:
    """Refuses an ``address``, host and port, where nothing listens. Raises UserError. Ray itself would try for minutes.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise _no_cluster(address, error) from None


def _no_cluster(address: str, error: BaseException) -> UserError:
    return UserError(f"ray: no cluster answers at {address}: {_first_line(error)}. The address is HOST:PORT of the "
                     "cluster's head, as `ray start --head` prints it, or `auto` on a machine that belongs to it",
                     key="ray", code="cluster-unreachable")


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__
