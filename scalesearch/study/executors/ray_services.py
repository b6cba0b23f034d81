"""Ray's own services: to start them or connect to them, and whether they are still there.

A driver whose raylet or control service was killed waits for ever, submits into the void, and after
a minute Ray ends the driver's own process. So their ports are probed once a second.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import ray
from ray.exceptions import RayError

from scalesearch.errors import UserError
from scalesearch.signals import restored_handlers
from scalesearch.study.executors.ray_local import patient_start, private_ray_folder
from scalesearch.study.trials.study_dir import RESUME_HINT

CHECK_INTERVAL = 1.0  # seconds between two probes
# seconds that a cluster may be silent; Ray ends the driver's process after 60
CLUSTER_TIMEOUT = 20.0
STORE_BYTES = 80 * 2**20  # the object store; jobs exchange nothing but a folder's name
QUIET_OPTIONS = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": True}
MAX_STARTS = 3  # times that a Ray of its own is tried to be started

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # 15 unless told; `resources: {nice: …}` says it
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the runner hides GPUs itself


_own_ray = ExitStack()  # what a Ray of this process's own leaves to be undone


@restored_handlers()  # Ray installs a handler of SIGTERM that exits with 15
def connect(address: str | None) -> None:
    """Connects this process to the cluster at ``address``, or starts a Ray of its own.

    Raises UserError.

    A cluster's token is the user's to give, as Ray has it: ``RAY_AUTH_MODE`` and
    ``RAY_AUTH_TOKEN_PATH``.
    """
    if address is None:
        _start()
        return
    check_cluster(address)
    try:
        ray.init(address=address, **QUIET_OPTIONS)
    except (ImportError, OSError, RuntimeError, ValueError, RayError) as error:
        raise _no_cluster(address, error) from None


def _start() -> None:
    """Starts a Ray of this process's own, beside any cluster.

    On a busy machine that may take several tries.
    """
    for left in reversed(range(MAX_STARTS)):
        try:
            folder = _own_ray.enter_context(private_ray_folder())
            with patient_start():
                ray.init("local", include_dashboard=False, object_store_memory=STORE_BYTES,
                         _temp_dir=folder, **QUIET_OPTIONS)
            return
        except Exception as error:  # Ray raises no class of its own here
            disconnect()
            if not left:
                raise UserError("resources: Ray cannot be started on this machine: "
                                f"{first_line(error)}. {RESUME_HINT}, or train one at a time with "
                                "--backend inprocess", key="resources",
                                code="ray-not-started") from error


def disconnect() -> None:
    """Leaves Ray, and ends one of this process's own."""
    ray.shutdown()
    _own_ray.close()


def check_cluster(address: str) -> None:
    """Refuses an ``address``, host and port, where nothing listens; Ray would try for minutes.

    Raises UserError.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise _no_cluster(address, error) from None


def _no_cluster(address: str, error: BaseException) -> UserError:
    return UserError(f"ray: no cluster answers at {address}: {first_line(error)}. The address is "
                     "HOST:PORT of the cluster's head, as `ray start --head` prints it, or `auto` "
                     "on a machine that belongs to it", key="ray", code="cluster-unreachable")


def first_line(error: BaseException) -> str:
    """The first line of an error that says anything, or its class."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__


class ClusterHealth:
    """Probes Ray's control service and this node's raylet.

    Args:
        timeout: seconds of silence after which they count as gone.
        services: name to address of each; None asks Ray.
        clock: seconds.
    """

    def __init__(self, timeout: float, services: Mapping[str, tuple[str, int]] | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.services = _services() if services is None else services
        self._timeout = timeout
        self._clock = clock
        self._last_check = self._last_answer = clock()
        self._silent = ""

    def lost_service(self) -> str:
        """Name of a service that is gone; empty while all answer, or may again."""
        if self._clock() - self._last_check >= CHECK_INTERVAL:
            self.silent_service()
        return (self._silent
                if self._silent and self._last_check - self._last_answer >= self._timeout else "")

    def silent_service(self) -> str:
        """Name of a service that does not answer now; empty where all do."""
        self._last_check = self._clock()
        self._silent = next((name for name, at in self.services.items() if not is_listening(*at)),
                            "")
        if not self._silent:
            self._last_answer = self._last_check
        return self._silent


def is_listening(host: str, port: int, timeout: float = 5.0) -> bool:
    """Whether anybody listens there."""
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError:
        return False
    return True


def _services() -> dict[str, tuple[str, int]]:
    """Addresses of the services that every task needs, by name.

    Empty where Ray does not tell (a client's connection).
    """
    if not ray.is_initialized():  # to ask would start a Ray
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
