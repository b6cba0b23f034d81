"""Services of Ray: start them or connect to them, and check the health of the cluster.

If the raylet or the control service was killed, a driver waits indefinitely and its tasks are lost.
After a minute, Ray kills the driver, too. So the ports of both services are probed every second.
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
# Seconds that a cluster may be silent; Ray kills the driver's process after 60 seconds.
CLUSTER_TIMEOUT = 20.0
STORE_BYTES = 80 * 2**20  # object store; jobs only exchange the name of a folder
QUIET_OPTIONS = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": True}
MAX_STARTS = 3  # attempts to start Ray on this machine

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # default 15; `resources: {nice: …}` sets it
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the runner hides GPUs itself


_own_ray = ExitStack()  # cleanup of the Ray that this process started


@restored_handlers()  # Ray installs a handler of SIGTERM that exits with 15
def connect(address: str | None) -> None:
    """Connect to the cluster at ``address``; start Ray on this machine if it is None.

    The token of a cluster is set by the user in Ray's environment variables ``RAY_AUTH_MODE`` and
    ``RAY_AUTH_TOKEN_PATH``.

    Raises:
        UserError: no cluster responds, or Ray cannot be started.
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
    """Start a private Ray, independent of any cluster; a busy machine may need several attempts."""
    for attempts_left in reversed(range(MAX_STARTS)):
        try:
            folder = _own_ray.enter_context(private_ray_folder())
            with patient_start():
                ray.init("local", include_dashboard=False, object_store_memory=STORE_BYTES,
                         _temp_dir=folder, **QUIET_OPTIONS)
            return
        except Exception as error:  # Ray has no own class of errors here
            disconnect()
            if not attempts_left:
                raise UserError("resources: Ray cannot be started on this machine: "
                                f"{first_line(error)}. {RESUME_HINT}, or train one at a time with "
                                "--backend inprocess", key="resources",
                                code="ray-not-started") from error


def disconnect() -> None:
    """Disconnect from Ray, and stop the Ray that this process started."""
    ray.shutdown()
    _own_ray.close()


def check_cluster(address: str) -> None:
    """Check that a service listens at ``address``; Ray itself would retry for minutes.

    Raises:
        UserError: no service listens at this host and port.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise _no_cluster(address, error) from None


def _no_cluster(address: str, error: BaseException) -> UserError:
    return UserError(f"ray: no cluster responds at {address}: {first_line(error)}. The address is "
                     "HOST:PORT of the cluster's head, as `ray start --head` prints it, or `auto` "
                     "on a machine that belongs to it", key="ray", code="cluster-unreachable")


def first_line(error: BaseException) -> str:
    """Return the first line of an error that is not empty, or the name of its class."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__


class ClusterHealth:
    """Health of Ray's control service and of this node's raylet, by probing their ports.

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


def is_listening(host: str, port: int, timeout: float = 5.0) -> bool:
    """Whether a service listens at this address."""
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError:
        return False
    return True


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
