"""Executor of Ray tasks: on this machine, or on a cluster by address.

A fresh process for every attempt (``max_calls=1``: no memory left over, no model beside another's)
and no retries by Ray (it silently re-runs a dying task four times): retries belong to the study,
which counts and records them. Several machines need the study's folder on a file system that all of
them see; they are asked before anything starts. A cluster's nodes may differ, leave and join: what
finds no room waits in Ray, and is no worker that hangs.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, LocalRayletDiedError, NodeDiedError, RayError, RayTaskError

from scalesearch.errors import UserError
from scalesearch.study.config.sections import Resources
from scalesearch.study.executors.base import (
    CRASH_FAULT,
    CRASH_LOST,
    JobCrashed,
    JobDone,
    JobEvent,
    Runner,
    TrainingJob,
    Work,
    crash_of_error,
)
from scalesearch.study.executors.ray_cluster import ResourceRequest, check_nodes, check_resources
from scalesearch.study.executors.ray_services import CLUSTER_TIMEOUT, ClusterHealth, connect, disconnect, first_line
from scalesearch.study.executors.shared_fs import NotSharedError
from scalesearch.study.trials.study_dir import RESUME_HINT

MAX_RESTARTS = 5  # of a Ray that this process started, before a job ends again


class RayRunner(Runner):
    """Keeps up to ``workers`` tasks at work.

    A Ray of its own that dies is started again, and the jobs that it had are reported as lost;
    where a cluster dies, there is nothing to go on with.

    Args:
        work: trains the job in a folder. Where it ``reserves``, it asks Ray for its processes'
            resources itself.
        workers: tasks at a time.
        resources: of one process; a fraction of a GPU shares one without isolating its memory.
            Without an address,
            Ray is started on this machine.

    Raises:
        UserError: no cluster answers at the address, or none of its nodes has what one task asks
            for.
    """

    def __init__(self, work: Work, workers: int, resources: Resources) -> None:
        self.slots = workers
        self._work = work
        self._resources = resources
        self._restarts = 0
        address = resources.address or os.environ.get("RAY_ADDRESS") or None  # as Ray itself has it
        self._address = None if address == "local" else address
        self._work_reserves_resources = getattr(work, "reserves_resources", False)
        self._request = ResourceRequest.of(resources, self._work_reserves_resources)
        self._running: dict[Any, TrainingJob] = {}
        self._owns_ray = not ray.is_initialized()
        if self._owns_ray:
            connect(self._address)
        try:
            check_resources(self._request)
        except UserError:
            self._disconnect()
            raise
        self._start()

    def _start(self) -> None:
        self._task = self._remote_task(self._work)
        self._health = ClusterHealth(0.0 if self._owns_ray and self._address is None
                                     else CLUSTER_TIMEOUT)

    def submit(self, job: TrainingJob) -> None:
        """Hands ``job`` to Ray, which starts it as soon as its resources are free."""
        self._running[
            self._task.options(name=job.folder.name).remote(str(job.folder.absolute()))] = job

    def poll(self, timeout: float) -> list[JobEvent]:
        """Returns the jobs that ended. Waits up to ``timeout`` seconds for the first."""
        if not self._running:
            return []
        if gone := self._health.lost_service():
            return self._report_lost(gone)
        done, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout)
        more, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [self._event_of_task(task) for task in dict.fromkeys([*done, *more])]

    def stop(self, grace: float = 10.0) -> None:
        """Interrupts all tasks, waits for them, then ends by force what is left."""
        if self._running and not self._health.silent_service():
            for task in self._running:
                ray.cancel(task, force=False)
            _, left = ray.wait(list(self._running), num_returns=len(self._running), timeout=grace)
            for task in left:
                ray.cancel(task, force=True)
        self._running.clear()
        self._disconnect()

    def check(self, inspect_machine: Callable[[], Mapping[str, str]]) -> None:
        """Refuses a node that does not see what ``inspect_machine`` finds on this machine.

        Raises UserError.
        """
        if self._address:
            check_nodes(inspect_machine, self._request)

    def describe(self) -> str:
        """Describes in a line where jobs run."""
        where = f"the cluster at {self._address}" if self._address else "this machine"
        processes = self._resources.processes_per_trial
        room = self._request.worker_capacity()
        cpus, gpus = (amount * processes
                      for amount in (self._resources.cpus_per_trial,
                                     self._resources.gpus_per_trial))
        each = f"{cpus:g} CPU" + f" and {gpus:g} GPU" * bool(gpus) + " each"
        shared = f" for {processes} processes" if processes > 1 else ""
        later = (f"; {room} at a time have room now" if room is not None and room < self.slots
                 else "")
        return f"{self.slots} Ray workers on {where}, {each}{shared}{later}"

    def _event_of_task(self, task: Any) -> JobEvent:
        job = self._running.pop(task)
        try:
            ray.get(task, timeout=60)
        except RayTaskError as error:
            if isinstance(error.cause, NotSharedError):
                raise error.cause from None
            return crash_of_error(job, error.cause)
        except RayError as error:  # its process died, and perhaps because what it ran on did
            away = (isinstance(error, LocalRayletDiedError | NodeDiedError | GetTimeoutError)
                    or self._health.silent_service())
            return JobCrashed(job, first_line(error), cause=CRASH_LOST if away else CRASH_FAULT)
        self._restarts = 0
        return JobDone(job)

    def _report_lost(self, gone: str) -> list[JobEvent]:
        """Every job's end, after Ray has died and was started again.

        Raises:
            UserError: it is not ours to start, or that does not help.
        """
        lost = [JobCrashed(job, f"{gone} died", cause=CRASH_LOST) for job in self._running.values()]
        self._running.clear()
        self._restarts += 1
        if not self._owns_ray or self._address is not None:
            raise UserError(f"resources: {gone} does not answer any more. {RESUME_HINT} once the "
                            "cluster is back", key="resources", code="cluster-lost")
        if self._restarts > MAX_RESTARTS:
            raise UserError(f"resources: {gone} died {self._restarts} times and no training ended "
                            f"between. {RESUME_HINT}", key="resources", code="cluster-lost")
        disconnect()
        connect(None)
        self._start()
        return lost

    def _remote_task(self, work: Work) -> Any:
        threads = str(self._resources.threads_per_trial)
        environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        wanted = {} if self._work_reserves_resources else self._request.per_node()
        cpus = wanted.pop("CPU", 0.0)
        gpus = wanted.pop("GPU", 0.0)
        # Ray shows a task without GPUs every GPU there is. One that starts processes with some must
        # not hide them from
        # these, which inherit its environment.
        if not self._resources.gpus_per_trial:
            environment["CUDA_VISIBLE_DEVICES"] = ""

        @ray.remote(max_retries=0, max_calls=1, num_cpus=cpus, num_gpus=gpus, resources=wanted,
                    runtime_env={"env_vars": environment})
        def train(folder: str) -> None:
            work(folder)

        return train

    def _disconnect(self) -> None:
        if self._owns_ray:
            disconnect()
