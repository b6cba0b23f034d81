"""Signs of life of processes, and leases of trials: one worker at a time.

::

    .worker.lock   held for the worker by the operating system, which lets go of it however the worker dies
    lease.json     who it is; the file's time of change is its sign of life, removed when it has done

The lock decides on one machine, and on file systems that pass locks on to others. Not all do, so a
lease of another machine is watched as well: while its time of change moves, that worker lives; two
machines' clocks are never compared. A worker that was silent for so long that another took over
stops when it next notes its progress, and leaves no result.
"""

import math
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from scalesearch.files import remove_partial_files, try_read_json, write_json
from scalesearch.study.trials.record import JobFile
from scalesearch.study.trials.study_dir import DRIVER_FILES

LEASE_FILE = "lease.json"
LOCK_FILE = ".worker.lock"


@dataclass(frozen=True)
class HeartbeatTiming:
    """Seconds of a sign of life.

    ``now`` is the clock, ``sleep`` lets it go on.
    """

    interval: float = 5.0  # between two of them
    timeout: float = 30.0  # without one, after which a process counts as dead
    lock_timeout: float = 90.0  # to wait for an orphan of a dead driver to let go of the folder
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


HEARTBEAT_TIMING = HeartbeatTiming()


class LeaseHeldError(RuntimeError):
    """Another worker has the candidate, or has taken it ``was_taken_over`` from this one."""

    def __init__(self, name: str, was_taken_over: bool) -> None:
        super().__init__(f"{name} {'was taken over' if was_taken_over else 'is held'} by another "
                         "worker")
        self.was_taken_over = was_taken_over

    def __reduce__(self) -> tuple[type, tuple[str, bool]]:
        return type(self), (str(self).partition(" ")[0], self.was_taken_over)


@cache
def machine_id() -> str:
    """Identity of this machine since it was started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


@dataclass(frozen=True)
class LeaseHolder:
    """Process that holds a lease; ``started_at`` in seconds since the epoch."""

    pid: int
    host: str | None = None
    machine: str | None = None
    started_at: float | None = None
    attempt: int = 1


class HeartbeatFile:
    """A file that says which process is at work.

    A thread renews its time of change, so that a long step is no silence.

    Args:
        content: what else it says.
        interval: seconds between two signs of life.
    """

    def __init__(self, file: Path, content: Mapping[str, object], interval: float) -> None:
        self.file = file
        self._interval = interval
        self._stopped = threading.Event()
        self.content: dict[str, object] = {"host": platform.node(), "machine": machine_id(),
                                           "pid": os.getpid(), "started_at": time.time(), **content}

    @contextmanager
    def running(self) -> Iterator[None]:
        """A stretch in which the file is kept."""
        self.write()
        thread = threading.Thread(target=self._renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join(self._interval)

    def write(self) -> None:
        """Writes the file, whole or not at all."""
        write_json(self.file, self.content)

    def is_owned(self) -> bool:
        """Whether no other process has taken it over."""
        return True

    def _renew(self) -> None:
        while not self._stopped.wait(self._interval):
            with suppress(OSError):  # a storage that is away for a while: the next time will do
                if not self.is_owned():
                    return
                os.utime(self.file)


class Lease(HeartbeatFile):
    """Lease of a trial's folder, for its holder."""

    def __init__(self, folder: Path, interval: float = HEARTBEAT_TIMING.interval) -> None:
        job = try_read_json(folder / "job.json", JobFile) or {}
        super().__init__(folder / LEASE_FILE, {"attempt": job.get("attempt", 1)}, interval)
        self._lost = False

    def is_owned(self) -> bool:
        """Whether it still is this worker's."""
        self._lost = self._lost or read_holder(self.file.parent) not in (
            msgspec.convert(self.content, LeaseHolder), None)
        return not self._lost


def read_holder(folder: Path) -> LeaseHolder | None:
    """Holder of the lease of ``folder``, dead or alive; None where there is none."""
    return try_read_json(folder / LEASE_FILE, LeaseHolder)


def check_lease(folder: Path) -> None:
    """Raises Taken where another worker has the candidate in ``folder`` by now."""
    owner = read_holder(folder)
    if owner is not None and (owner.machine, owner.pid) != (machine_id(), os.getpid()):
        raise LeaseHeldError(folder.name, was_taken_over=True)


def seconds_since_heartbeat(file: Path, clock: Callable[[], float] = time.time) -> float:
    """Seconds since the last sign of life; inf without one.

    Clocks are this machine's and the file system's.
    """
    try:
        return max(0.0, clock() - file.stat().st_mtime)
    except OSError:
        return math.inf


def describe_silence(folder: Path) -> str:
    """Describes the silence of a worker that seems dead; empty where it lives."""
    owner = read_holder(folder)
    since = seconds_since_heartbeat(folder / LEASE_FILE)
    if owner is None or since < HEARTBEAT_TIMING.timeout:
        return ""
    return f"no sign of life for {since:,.0f} s (process {owner.pid} on {owner.host})"


@contextmanager
def hold_lease(folder: Path, timing: HeartbeatTiming = HEARTBEAT_TIMING) -> Iterator[Lease]:
    """A stretch in which ``folder`` is this worker's.

    Raises:
        Taken: another worker has it, or has taken it over.
    """
    lease = Lease(folder, timing.interval)
    try:
        with FileLock(folder / LOCK_FILE, timeout=timing.lock_timeout):
            wait_for_other_machine(folder, timing)
            remove_partial_files(folder, lambda name: name not in DRIVER_FILES)
            try:
                with lease.running():
                    yield lease
            finally:
                if lease.is_owned():
                    lease.file.unlink(missing_ok=True)
    except Timeout:
        raise LeaseHeldError(folder.name, was_taken_over=False) from None


def wait_for_other_machine(folder: Path, timing: HeartbeatTiming = HEARTBEAT_TIMING) -> None:
    """Waits until no worker of another machine shows signs of life.

    Raises Timeout where one goes on doing so.
    """
    seen = None
    moved = timing.now()
    until = moved + timing.lock_timeout
    while (owner := read_holder(folder)) is not None and owner.machine != machine_id():
        now = timing.now()
        sign = 0
        with suppress(OSError):
            sign = (folder / LEASE_FILE).stat().st_mtime_ns
        if sign != seen:
            seen = sign
            moved = now
        if now - moved >= timing.timeout:
            return
        if now >= until:
            raise Timeout(str(folder / LEASE_FILE))
        timing.sleep(min(1.0, timing.interval))
