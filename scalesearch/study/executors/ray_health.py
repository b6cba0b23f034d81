"""Whether the Ray that this process belongs to is still there.

Ray itself does not say so: a driver whose raylet or control service was killed waits for ever, submits into the void,
and after a minute Ray ends the driver's own process. So somebody knocks at their doors.
"""

import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

import ray

EVERY = 1.0  # seconds between two looks
PATIENCE = 20.0  # seconds that a cluster may be silent; Ray ends the driver's process after 60


class Pulse:
    """Knocks at Ray's control service and at this node's raylet.

    Args:
        patience: seconds of silence after which they count as gone.
        doors: name to address of each; None asks Ray.
        clock: seconds.
    """

    def __init__(self, patience: float, doors: Mapping[str, tuple[str, int]] | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.doors, self._patience, self._clock = _doors() if doors is None else doors, patience, clock
        self._looked = self._heard = clock()
        self._silent = ""

    def gone(self) -> str:
        """Name of a service that is gone; empty while all answer, or may again."""
        if self._clock() - self._looked >= EVERY:
            self.look()
        return self._silent if self._silent and self._looked - self._heard >= self._patience else ""

    def look(self) -> str:
        """Name of a service that does not answer now; empty where all do."""
        self._looked = self._clock()
        self._silent = next((name for name, door in self.doors.items() if not answers(*door)), "")
        if not self._silent:
            self._heard = self._looked
        return self._silent


def answers(host: str, port: int, timeout: float = 5.0) -> bool:
    """Whether anybody listens there."""
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError:
        return False
    return True


def _doors() -> dict[str, tuple[str, int]]:
    """Addresses of the services that every task needs, by name. Empty where Ray does not tell (a client's connection).
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
