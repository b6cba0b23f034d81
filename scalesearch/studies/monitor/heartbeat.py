"""Heartbeat of a study: the process that runs it, and how it ended.

The file is for users only; no decision depends on it.

::

    runs/edge/owner.json   process that runs the study, its start, its number of workers; how the
                           study ended. While the study runs, the file's modification time is its
                           heartbeat
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from scalesearch.errors import UserError, first_line
from scalesearch.files import try_read_json, write_json
from scalesearch.studies.executors.lease import (
    HEARTBEAT_TIMING,
    heartbeat,
    machine_id,
    process_facts,
    seconds_since_heartbeat,
)

OWNER_FILE = "owner.json"
RUNNING = "running"
FINISHED = "finished"
STOPPED = "stopped"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Owner:
    """Process that runs a study, or the last process that ran it.

    Attributes:
        state: running, finished, stopped; unknown without an ``owner.json``.
        reason: why the study ended; if it runs, a problem of it.
        started_at, ended_at: seconds since the epoch.
        heartbeat_age: seconds since the last heartbeat of a running study.
        workers: number of candidates that are trained at the same time.
        executor: description of the executor.
        candidates, references: planned numbers; None if unknown. A resumed study may plan more
            than ``study.json`` contains.
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
        """Whether the study does not run."""
        return self.state != RUNNING


class Heartbeat:
    """Writer of ``owner.json`` of the study in ``folder``.

    The study continues if that fails.

    Args:
        content: further keys of the file: ``workers``, ``executor``, ``candidates``,
            ``references``.
        interval: seconds between two heartbeats.
    """

    def __init__(self, folder: Path, content: Mapping[str, object],
                 interval: float = HEARTBEAT_TIMING.interval) -> None:
        self._file = folder / OWNER_FILE
        self._interval = interval
        self._content = {**process_facts(), **content, "state": RUNNING, "reason": ""}

    @contextmanager
    def running_study(self) -> Iterator["Heartbeat"]:
        """Context in which the study runs; an error is stored as the reason of its end."""
        self._write()
        try:
            with heartbeat(self._file, self._interval):
                yield self
        except BaseException as error:
            self._write(STOPPED, "interrupted" if isinstance(error, KeyboardInterrupt)
                        else first_line(error))
            raise

    def update(self, **content: object) -> None:
        """Change keys of the file."""
        self._content |= content
        self._write()

    def finish(self, reason: str) -> str:
        """Store that the study has finished, and why; returns ``reason``."""
        self._write(FINISHED, reason)
        return reason

    def _write(self, end_state: str = "", reason: str = "") -> None:
        """Write the file, with the end of the study if it has ended; errors are ignored."""
        if end_state:
            self._content |= {"state": end_state, "reason": reason, "ended_at": time.time()}
        with suppress(OSError, UserError):  # a full disk is reported by the writers of results
            write_json(self._file, self._content)


def read_owner(folder: Path, clock: Callable[[], float] = time.time) -> Owner:
    """Read the owner of the study in ``folder``.

    If the process ran on this machine, does not exist any more and has no recent heartbeat, the
    state is stopped. If the process runs on another machine and its heartbeat is missing, the state
    stays running, and the reason names the time without a heartbeat.
    """
    owner = try_read_json(folder / OWNER_FILE, Owner) or Owner(UNKNOWN, "owner.json is missing")
    if owner.is_over:
        return owner
    age = seconds_since_heartbeat(folder / OWNER_FILE, clock)
    if (age >= 2 * HEARTBEAT_TIMING.interval and owner.machine == machine_id()
            and _is_process_gone(owner.pid)):
        return replace(owner, state=STOPPED, reason=f"its process {owner.pid} has died",
                       ended_at=clock() - age)
    problem = f"no heartbeat for {age:,.0f} s" if age >= HEARTBEAT_TIMING.timeout else ""
    return replace(owner, reason=problem, heartbeat_age=age)


def _is_process_gone(pid: int | None) -> bool:
    """Whether this machine has no process with this number."""
    try:
        os.kill(pid or 0, 0)
    except ProcessLookupError:
        return True
    except OSError:  # the process of another user
        pass
    return False
