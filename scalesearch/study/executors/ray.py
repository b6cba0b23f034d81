"""Executor with Ray tasks, on this machine or on a cluster.

Each attempt runs in a new process (``max_calls=1``), so no memory is left over. Ray does not retry
(its default silently repeats a dying task): the study counts and records attempts. On several
machines, the study's folder must be on a shared file system; this is checked before training
starts. Nodes may differ, leave and join. A task that does not fit waits in Ray, so it is not a
straggler.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.exceptions import (
    GetTimeoutError,
    LocalRayletDiedError,
    NodeDiedError,
    RayError,
    RayTaskError,
)

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
from scalesearch.study.executors.ray_services import (
    CLUSTER_TIMEOUT,
    ClusterHealth,
    connect,
    disconnect,
    first_line,
)
from scalesearch.study.executors.shared_fs import NotSharedError
from scalesearch.study.trials.study_dir import RESUME_HINT

MAX_RESTARTS = 5  # of a private Ray, between two jobs that end


class RayRunner(Runner):
    """Runs up to ``workers`` tasks at a time.

    If a private Ray dies, it is restarted and its jobs are reported as lost. If a cluster dies, the
    study stops with an error.

    Args:
        work: trains the job in a folder. With ``reserves_resources``, it reserves the resources of
            its processes itself.
        workers: number of tasks at a time.
        resources: of one process. A fraction of a GPU shares it without isolating its memory.
            Without an address, Ray is started on this machine.

    Raises:
        UserError: no cluster responds at the address, or no node has the resources of one task.
    """

    def __init__(self, work: Work, workers: int, resources: Resources) -> None:
        self.slots = workers
        self._work = work
        self._resources = resources
        self._restarts = 0
        address = resources.address or os.environ.get("RAY_ADDRESS") or None  # as in Ray itself
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
        """Submit ``job`` to Ray, which starts it when its resources are free."""
        task = self._task.options(name=job.folder.name).remote(str(job.folder.absolute()))
        self._running[task] = job

    def poll(self, timeout: float) -> list[JobEvent]:
        """Return the events of ended jobs. Wait up to ``timeout`` seconds for the first."""
        if not self._running:
            return []
        service = self._health.lost_service()
        if service:
            return self._report_lost(service)
        done, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout)
        more, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [self._event_of_task(task) for task in dict.fromkeys([*done, *more])]

    def stop(self, grace: float = 10.0) -> None:
        """Interrupt all tasks, wait ``grace`` seconds, then kill the remaining tasks."""
        if self._running and not self._health.silent_service():
            for task in self._running:
                ray.cancel(task, force=False)
            _, remaining = ray.wait(list(self._running), num_returns=len(self._running),
                                    timeout=grace)
            for task in remaining:
                ray.cancel(task, force=True)
        self._running.clear()
        self._disconnect()

    def check(self, inspect_machine: Callable[[], Mapping[str, str]]) -> None:
        """Compare all nodes of a cluster with this machine.

        Raises:
            UserError: ``inspect_machine`` returns something else on a node.
        """
        if self._address:
            check_nodes(inspect_machine, self._request)

    def describe(self) -> str:
        """Describe in one line where jobs run."""
        where = f"the cluster at {self._address}" if self._address else "this machine"
        processes = self._resources.processes_per_trial
        capacity = self._request.worker_capacity()
        cpus = self._resources.cpus_per_trial * processes
        gpus = self._resources.gpus_per_trial * processes
        amounts = f"{cpus:g} CPU" + f" and {gpus:g} GPU" * bool(gpus) + " each"
        shared = f" for {processes} processes" if processes > 1 else ""
        limit = (f"; {capacity} fit at a time now" if capacity is not None and capacity < self.slots
                 else "")
        return f"{self.slots} Ray workers on {where}, {amounts}{shared}{limit}"

    def _event_of_task(self, task: Any) -> JobEvent:
        job = self._running.pop(task)
        try:
            ray.get(task, timeout=60)
        except RayTaskError as error:
            if isinstance(error.cause, NotSharedError):
                raise error.cause from None
            return crash_of_error(job, error.cause)
        except RayError as error:  # its process died, perhaps because its node or Ray died
            is_lost = (isinstance(error, LocalRayletDiedError | NodeDiedError | GetTimeoutError)
                       or self._health.silent_service())
            return JobCrashed(job, first_line(error),
                              cause=CRASH_LOST if is_lost else CRASH_FAULT)
        self._restarts = 0
        return JobDone(job)

    def _report_lost(self, service: str) -> list[JobEvent]:
        """Restart Ray after a service died; return the events of all jobs, which are lost.

        Raises:
            UserError: Ray is a cluster, or was restarted too often.
        """
        events: list[JobEvent] = [JobCrashed(job, f"{service} died", cause=CRASH_LOST)
                                  for job in self._running.values()]
        self._running.clear()
        self._restarts += 1
        if not self._owns_ray or self._address is not None:
            raise UserError(f"resources: {service} does not respond any more. {RESUME_HINT} when "
                            "the cluster is back", key="resources", code="cluster-lost")
        if self._restarts > MAX_RESTARTS:
            raise UserError(f"resources: {service} died {self._restarts} times and no training "
                            f"run ended in between. {RESUME_HINT}", key="resources",
                            code="cluster-lost")
        disconnect()
        connect(None)
        self._start()
        return events

    def _remote_task(self, work: Work) -> Any:
        threads = str(self._resources.threads_per_trial)
        environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        amounts = {} if self._work_reserves_resources else self._request.per_node()
        cpus = amounts.pop("CPU", 0.0)
        gpus = amounts.pop("GPU", 0.0)
        # Without GPUs, Ray would show the task all GPUs. A task that reserves GPUs for its
        # processes must not hide them, because the processes inherit its environment.
        if not self._resources.gpus_per_trial:
            environment["CUDA_VISIBLE_DEVICES"] = ""

        @ray.remote(max_retries=0, max_calls=1, num_cpus=cpus, num_gpus=gpus, resources=amounts,
                    runtime_env={"env_vars": environment})
        def train(folder: str) -> None:
            work(folder)

        return train

    def _disconnect(self) -> None:
        if self._owns_ray:
            disconnect()
