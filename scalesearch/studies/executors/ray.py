"""Executor with Ray tasks, on this machine or on a cluster.

Each attempt runs in a new process (``max_calls=1``), so no memory is left over. Ray does not retry
(its default silently repeats a dying task): the study counts and records attempts. On several
machines, the study's folder must be on a shared file system; this is checked before training
starts. Nodes may differ, leave and join. A task that does not fit waits in Ray, so it is not a
straggler.

If the raylet or the control service was killed, a driver waits indefinitely and its tasks are lost.
After a minute, Ray kills the driver, too. So the ports of both services are probed every second.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import (
    GetTimeoutError,
    LocalRayletDiedError,
    NodeDiedError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from scalesearch.errors import UserError, first_line, option
from scalesearch.signals import restored_handlers
from scalesearch.studies.config.sections import AUTO, Resources
from scalesearch.studies.executors.base import (
    CRASH_LOST,
    ORPHAN_SECONDS,
    JobCrashed,
    JobDone,
    JobEvent,
    NotSharedError,
    Runner,
    TrainingJob,
    Work,
    describe_error,
    run_job,
)
from scalesearch.studies.executors.lease import read_holder
from scalesearch.studies.executors.ray_cluster import (
    check_nodes,
    check_resources,
    cluster_capacity,
    find_cluster_gpus,
)
from scalesearch.studies.executors.ray_environment import (
    check_cluster,
    is_listening,
    last_error_line,
    no_cluster_error,
    private_folder,
)
from scalesearch.studies.executors.saturation import SaturationPoint
from scalesearch.studies.trials.study_dir import resume_hint
from scalesearch.terminal import format_count
from scalesearch.training.gpus import (
    Gpu,
    gpu_share,
    multi_process_service,
    predict_memory,
    split_cores,
)

MAX_RESTARTS = 5  # of a private Ray, between two jobs that end
MAX_STARTS = 3  # attempts to start Ray on this machine
CHECK_INTERVAL = 1.0  # seconds between two probes
# Seconds that a cluster may be silent; Ray kills the driver's process after 60 seconds.
CLUSTER_TIMEOUT = 20.0
STORE_BYTES = 80 * 2**20  # object store; jobs only exchange the name of a folder
QUIET_OPTIONS: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False,
                                 "configure_logging": True}


class RayRunner(Runner):
    """Runs up to ``workers`` tasks at a time.

    If a private Ray dies, it is restarted and its jobs are reported as lost. If a cluster dies, the
    study stops with an error.

    Args:
        work: trains the job in a folder.
        workers: number of tasks at a time.
        resources: of one worker. A fraction of a GPU shares it without isolating its memory. With
            ``gpus_per_trial: auto``, the fraction of each trial follows from its predicted memory.
        address: of a cluster; None starts Ray on this machine.
        folder: of the study, for the measured speeds of its GPUs.

    Raises:
        UserError: no cluster responds at the address, or no node has the resources of one task.
    """

    def __init__(self, work: Work, workers: int, resources: Resources,
                 address: str | None = None, folder: Path | None = None) -> None:
        self.slots = workers
        self._work = work
        self._threads = str(resources.threads_per_trial)
        self._amounts = {"CPU": resources.cpus_per_trial, "GPU": resources.fixed_gpus_per_trial,
                         **resources.custom}  # of one worker
        self._address = address
        self._restarts = 0
        self._running: dict[Any, TrainingJob] = {}
        self._gpus: list[Gpu] = []  # which trials share by their predicted memory
        self._mps: dict[str, str] = {}  # environment of its clients
        self._cores = split_cores(workers)  # of the slots that are free, on this machine
        self._cores_of: dict[Any, frozenset[int]] = {}
        self._owns_ray = not ray.is_initialized()
        self._folder = ExitStack()  # of the Ray that this runner started
        self._service = ExitStack()  # MPS
        if self._owns_ray:
            self._connect()
        try:
            if resources.gpus_per_trial == AUTO:
                self._gpus = find_cluster_gpus()
            if self._gpus:
                self._saturation = SaturationPoint(self._gpus, workers, folder)
                self._amounts["GPU"] = gpu_share(0, 1, self._saturation.limit)
            check_resources(self._amounts)
        except UserError:
            self._disconnect()
            raise
        self.shares_gpus = bool(self._gpus)
        if self._gpus and self._is_on_this_machine:
            self._mps = self._service.enter_context(multi_process_service(ORPHAN_SECONDS))
        self._prepare()

    @property
    def _is_on_this_machine(self) -> bool:
        return self._owns_ray and self._address is None

    @restored_handlers()  # Ray installs a handler of SIGTERM that exits with 15
    def _connect(self) -> None:
        """Connect to the cluster, or start Ray; a busy machine may need several attempts.

        Raises:
            UserError: no cluster responds, or Ray cannot be started.
        """
        if self._address is not None:
            check_cluster(self._address)
            try:
                ray.init(address=self._address, **QUIET_OPTIONS)
            except (ImportError, OSError, RuntimeError, ValueError, RayError) as error:
                raise no_cluster_error(self._address, error) from None
            return
        for attempts_left in reversed(range(MAX_STARTS)):
            try:
                self._folder.enter_context(private_folder())
                ray.init("local", include_dashboard=False, object_store_memory=STORE_BYTES,
                         **QUIET_OPTIONS)
                return
            except UserError:
                raise
            except Exception as error:  # Ray has no own class of errors here
                self._disconnect()
                if not attempts_left:
                    raise UserError("resources: Ray cannot be started on this machine: "
                                    f"{first_line(error)}. {resume_hint()}, or train with "
                                    f"{option('backend', 'pool')}", key="resources",
                                    code="ray-not-started") from error

    def _disconnect(self) -> None:
        if self._owns_ray:
            ray.shutdown()
            self._folder.close()

    def _prepare(self) -> None:
        """Prepare the task for the Ray that is connected now."""
        environment = {"OMP_NUM_THREADS": self._threads, "MKL_NUM_THREADS": self._threads}
        if not self._amounts["GPU"]:  # else Ray would show the task all GPUs
            environment["CUDA_VISIBLE_DEVICES"] = ""
        environment |= self._mps
        others = {name: amount for name, amount in self._amounts.items()
                  if name not in ("CPU", "GPU")}
        work = self._work

        @ray.remote(max_retries=0, max_calls=1, num_cpus=self._amounts["CPU"],
                    num_gpus=self._amounts["GPU"], resources=others,
                    runtime_env={"env_vars": environment})
        def train(job: TrainingJob, cores: frozenset[int]) -> JobEvent:
            if cores:
                os.sched_setaffinity(0, cores)
            return run_job(work, job)

        self._task = train
        self._health = ClusterHealth(0.0 if self._is_on_this_machine else CLUSTER_TIMEOUT)

    def submit(self, job: TrainingJob) -> None:
        """Submit ``job`` to Ray, which starts it when its resources are free."""
        absolute_job = replace(job, folder=job.folder.absolute())
        options: dict[str, Any] = {"name": job.folder.name}
        cores: frozenset[int] = frozenset()
        if self._gpus:
            memory = min(gpu.memory for gpu in self._gpus)
            options["num_gpus"] = gpu_share(predict_memory(job.folder), memory,
                                            self._saturation.limit)
            if self._is_on_this_machine and self._cores:
                cores = self._cores.pop()
        task = self._task.options(**options).remote(absolute_job, cores)
        self._running[task] = job
        if cores:
            self._cores_of[task] = cores

    def poll(self, timeout: float) -> list[JobEvent]:
        if not self._running:
            return []
        if self._gpus:
            self._saturation.observe([job.folder for job in self._running.values()])
        service = self._health.lost_service()
        if service:
            return self._report_lost(service)
        done, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout)
        more, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [self._event_of_task(task) for task in dict.fromkeys([*done, *more])]

    def stop(self, grace: float = 10.0) -> None:
        if self._running and not self._health.silent_service():
            for task in self._running:
                ray.cancel(task, force=False)
            _, remaining = ray.wait(list(self._running), num_returns=len(self._running),
                                    timeout=grace)
            for task in remaining:
                ray.cancel(task, force=True)
        self._running.clear()
        self._disconnect()
        self._service.close()

    def check(self, inspect_machine: Callable[[], Mapping[str, str]]) -> None:
        if self._address:
            check_nodes(inspect_machine, self._amounts)

    def describe(self) -> str:
        where = f"the cluster at {self._address}" if self._address else "this machine"
        gpus = f" and {self._amounts['GPU']:g} GPU" if self._amounts["GPU"] else ""
        if self._gpus:
            service = "MPS" if self._mps else "without MPS"
            gpus = f" and the share of a GPU that its memory needs ({service})"
        capacity = cluster_capacity(self._amounts)
        limit = f"; {capacity} fit at a time now" if capacity < self.slots else ""
        return (f"{format_count(self.slots, 'Ray worker')} on {where}, "
                f"{self._amounts['CPU']:g} CPU{gpus} each{limit}")

    def _event_of_task(self, task: Any) -> JobEvent:
        job = self._running.pop(task)
        if task in self._cores_of:
            self._cores.append(self._cores_of.pop(task))
        try:
            event: JobEvent = replace(ray.get(task, timeout=60), job=job)
        except RayTaskError as error:
            if isinstance(error.cause, NotSharedError):
                raise error.cause from None
            return JobCrashed(job, describe_error(error.cause))
        except RayError as error:  # its process died, perhaps because its node or Ray died
            is_lost = (isinstance(error, LocalRayletDiedError | NodeDiedError | GetTimeoutError)
                       or self._health.silent_service())
            if is_lost:
                return JobCrashed(job, first_line(error), cause=CRASH_LOST)
            return JobCrashed(job, self._describe_dead_worker(job, error))
        if isinstance(event, JobDone):
            self._restarts = 0
        return event

    def _describe_dead_worker(self, job: TrainingJob, error: RayError) -> str:
        """Return why the process of a job may have died, and its last error line."""
        if isinstance(error, OutOfMemoryError):
            return ("the worker was killed because the memory of its machine ran out; set fewer "
                    "workers or smaller batches")
        reason = first_line(error)
        if isinstance(error, WorkerCrashedError):
            reason = ("the worker was killed, as the system does if memory runs out, or crashed; "
                      "if memory is short, set fewer workers or smaller batches")
        holder = read_holder(job.folder)
        last_line = last_error_line(holder.pid) if holder and self._is_on_this_machine else ""
        return f"{reason}. Last error line: {last_line}" if last_line else reason

    def _report_lost(self, service: str) -> list[JobEvent]:
        """Restart Ray after a service died; return the events of all jobs, which are lost.

        Raises:
            UserError: Ray is a cluster, or was restarted too often.
        """
        events: list[JobEvent] = [JobCrashed(job, f"{service} died", cause=CRASH_LOST)
                                  for job in self._running.values()]
        self._running.clear()
        self._cores += self._cores_of.values()
        self._cores_of.clear()
        self._restarts += 1
        if not self._is_on_this_machine:
            raise UserError(f"resources: {service} does not respond any more. {resume_hint()} when "
                            "the cluster is back", key="resources", code="cluster-lost")
        if self._restarts > MAX_RESTARTS:
            raise UserError(f"resources: {service} died {self._restarts} times and no training "
                            f"run ended in between. {resume_hint()}", key="resources",
                            code="cluster-lost")
        self._disconnect()
        self._connect()
        self._prepare()
        return events


class ClusterHealth:
    """Health of Ray's control service and this node's raylet, by probing ports.

    Args:
        timeout: seconds without a response after which a service counts as gone.
        services: addresses by name; None reads them from Ray.
        clock: returns seconds.
    """

    def __init__(self, timeout: float, services: Mapping[str, tuple[str, int]] | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.services = _services() if services is None else services
        self._timeout = timeout
        self._clock = clock
        self._last_check = self._last_response = clock()
        self._silent = ""

    def lost_service(self) -> str:
        """Return the name of a service that is gone; empty before the timeout."""
        if self._clock() - self._last_check >= CHECK_INTERVAL:
            self.silent_service()
        return (self._silent
                if self._silent and self._last_check - self._last_response >= self._timeout else "")

    def silent_service(self) -> str:
        """Return the name of a service that does not respond now; empty if all respond."""
        self._last_check = self._clock()
        self._silent = next((name for name, address in self.services.items()
                             if not is_listening(*address)), "")
        if not self._silent:
            self._last_response = self._last_check
        return self._silent


def _services() -> dict[str, tuple[str, int]]:
    """Addresses, by name, of the services that every task needs.

    Empty if Ray does not provide them (a client's connection).
    """
    if not ray.is_initialized():  # the calls below would start Ray
        return {}
    try:
        context: Any = ray.get_runtime_context()
        host, _, port = context.gcs_address.rpartition(":")
        listing: Any = ray.nodes  # untyped in Ray
        own = next(node for node in listing() if node["NodeID"] == context.get_node_id())
        return {"Ray's control service (gcs_server)": (host, int(port)),
                "the raylet of this machine": (own["NodeManagerAddress"], own["NodeManagerPort"])}
    except (AttributeError, AssertionError, KeyError, RuntimeError, StopIteration, ValueError):
        return {}
