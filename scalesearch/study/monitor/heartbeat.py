"""Heartbeat of a study: the process that runs it, and how it ended. Nothing is decided by it.

::

    runs/edge/owner.json   who runs it, since when, with how many workers; how it ended. While it runs, the file's time
                           of change is its sign of life
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from scalesearch.errors import UserError
from scalesearch.files import try_read_json
from scalesearch.study.executors.lease import HEARTBEAT_TIMING, HeartbeatFile, machine_id, seconds_since_heartbeat

OWNER_FILE = "owner.json"
RUNNING = "running"
FINISHED = "finished"
STOPPED = "stopped"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Owner:
    """Process that runs a study, or ran it last.

    Attributes:
        state: running, finished, stopped; unknown where nothing is noted, as by an earlier version.
        reason: why it ended; of a running one, what is wrong with it.
        started_at, ended_at: seconds since the epoch.
        heartbeat_age: seconds since the last sign of life of a running one.
        workers: candidates in training at a time.
        executor: in words, what they run on.
        candidates, references: how many it is to train; since a resumed study may be given more,
            not always as many as
            ``study.json`` says. None where unknown.
    """

    state: str
    reason: str = ""
    host: str | None = None
    machine: str | None = None
    pid: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    heartbeat_age: float | None = None
    workers: int | None = None
    executor: str = ""
    candidates: int | None = None
    references: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come of it."""
        return self.state != RUNNING


class Heartbeat(HeartbeatFile):
    """Keeps ``owner.json`` of the study in ``folder``.

    Where that cannot be written, the study goes on.

    Args:
        content: what else it says of this run: ``workers``, ``where``, ``candidates``,
            ``references``.
        interval: seconds between two signs of life.
    """

    def __init__(self, folder: Path, content: Mapping[str, object],
                 interval: float = HEARTBEAT_TIMING.interval) -> None:
        super().__init__(folder / OWNER_FILE, {**content, "state": RUNNING, "reason": ""}, interval)

    @contextmanager
    def running_study(self) -> Iterator["Heartbeat"]:
        """A stretch in which the study runs; however it is left, why is noted."""
        try:
            with self.running():
                yield self
        except BaseException as error:
            self._write_end(STOPPED, _error_summary(error))
            raise

    def finish(self, reason: str) -> str:
        """Notes that the study has come to its end, and ``reason``, which is returned."""
        self._write_end(FINISHED, reason)
        return reason

    def write(self) -> None:
        """Writes the file, where that is possible."""
        with suppress(OSError, UserError):  # a full disk has the last word elsewhere
            super().write()

    def _write_end(self, state: str, reason: str) -> None:
        self.content |= {"state": state, "reason": reason, "ended_at": time.time()}
        self.write()


def _error_summary(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return (str(error).splitlines() or [""])[0] or type(error).__name__


def read_owner(folder: Path, clock: Callable[[], float] = time.time) -> Owner:
    """Reads the owner of the study in ``folder``.

    A running one whose process is gone from this machine, and that gave no sign of life since, has
    stopped. Of one on another machine that is silent, nobody knows: its state stays running, and
    the reason says so.
    """
    owner = try_read_json(folder / OWNER_FILE, Owner) or Owner(UNKNOWN, "nothing says who runs it")
    if owner.is_over:
        return owner
    silent = seconds_since_heartbeat(folder / OWNER_FILE, clock)
    if silent >= 2 * HEARTBEAT_TIMING.interval and owner.machine == machine_id(
            ) and _is_process_gone(owner.pid):
        return replace(owner, state=STOPPED, reason=f"its process {owner.pid} has died",
                       ended_at=clock() - silent)
    words = f"no sign of life for {silent:,.0f} s" if silent >= HEARTBEAT_TIMING.timeout else ""
    return replace(owner, reason=words, heartbeat_age=silent)


def _is_process_gone(process: int | None) -> bool:
    """Whether there is no such process on this machine."""
    try:
        os.kill(process or 0, 0)
    except ProcessLookupError:
        return True
    except OSError:  # somebody else's
        pass
    return False
