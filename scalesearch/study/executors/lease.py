"""Heartbeats of processes, and leases of trials: one worker per trial at a time.

::

    .worker.lock   lock of the operating system, which releases it however the worker dies
    lease.json     the worker that holds the trial; removed at the end. Its heartbeat is the file's
                   modification time

The lock decides on one machine, and on file systems that share locks between machines. Not all file
systems do. So the heartbeat of another machine's lease is watched, too: while the modification time
changes, that worker is alive. Clocks of two machines are never compared. If a worker was silent
until another one took over, it stops at its next progress report and writes no result.
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
    """Times of heartbeats in seconds; ``now`` and ``sleep`` are replaced in tests."""

    interval: float = 5.0  # between two heartbeats
    timeout: float = 30.0  # without a heartbeat, after which a process counts as dead
    lock_timeout: float = 90.0  # to wait until an orphan of a dead driver releases the folder
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


HEARTBEAT_TIMING = HeartbeatTiming()


class LeaseHeldError(RuntimeError):
    """Another worker holds the trial, or has taken it over from this worker."""

    def __init__(self, name: str, was_taken_over: bool) -> None:
        super().__init__(f"{name} {'was taken over' if was_taken_over else 'is held'} by another "
                         "worker")
        self.was_taken_over = was_taken_over

    def __reduce__(self) -> tuple[type, tuple[str, bool]]:
        return type(self), (str(self).partition(" ")[0], self.was_taken_over)


@cache
def machine_id() -> str:
    """Identity of this machine since its last boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


@dataclass(frozen=True)
class LeaseHolder:
    """Process that holds a lease; ``started_at`` is in seconds since the epoch."""

    pid: int
    host: str | None = None
    machine: str | None = None
    started_at: float | None = None
    attempt: int = 1


class HeartbeatFile:
    """A file that names the process that is at work, with its heartbeat.

    A thread renews the modification time, so a long training step does not stop the heartbeat.

    Args:
        file: to write.
        content: further fields of the file.
        interval: seconds between two heartbeats.
    """

    def __init__(self, file: Path, content: Mapping[str, object], interval: float) -> None:
        self.file = file
        self._interval = interval
        self._stopped = threading.Event()
        self.content: dict[str, object] = {"host": platform.node(), "machine": machine_id(),
                                           "pid": os.getpid(), "started_at": time.time(), **content}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write the file and renew it until the block ends."""
        self.write()
        thread = threading.Thread(target=self._renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join(self._interval)

    def write(self) -> None:
        """Write the file atomically."""
        write_json(self.file, self.content)

    def is_owned(self) -> bool:
        """Whether no other process has taken the file over."""
        return True

    def _renew(self) -> None:
        while not self._stopped.wait(self._interval):
            with suppress(OSError):  # storage may be away for a while; the next heartbeat follows
                if not self.is_owned():
                    return
                os.utime(self.file)


class Lease(HeartbeatFile):
    """Lease of a trial's folder, for the worker that holds it."""

    def __init__(self, folder: Path, interval: float = HEARTBEAT_TIMING.interval) -> None:
        job = try_read_json(folder / "job.json", JobFile) or {}
        super().__init__(folder / LEASE_FILE, {"attempt": job.get("attempt", 1)}, interval)
        self._lost = False

    def is_owned(self) -> bool:
        """Whether this worker still holds the lease."""
        self._lost = self._lost or read_holder(self.file.parent) not in (
            msgspec.convert(self.content, LeaseHolder), None)
        return not self._lost


def read_holder(folder: Path) -> LeaseHolder | None:
    """Return the holder of the lease of ``folder``, dead or alive; None if it is free."""
    return try_read_json(folder / LEASE_FILE, LeaseHolder)


def check_lease(folder: Path) -> None:
    """Check that no other worker has taken over the trial in ``folder``.

    Raises:
        LeaseHeldError: another worker holds the lease.
    """
    holder = read_holder(folder)
    if holder is not None and (holder.machine, holder.pid) != (machine_id(), os.getpid()):
        raise LeaseHeldError(folder.name, was_taken_over=True)


def seconds_since_heartbeat(file: Path, clock: Callable[[], float] = time.time) -> float:
    """Seconds since the last heartbeat; infinite without a file.

    The clocks are those of this machine and of the file system.
    """
    try:
        return max(0.0, clock() - file.stat().st_mtime)
    except OSError:
        return math.inf


def describe_silence(folder: Path) -> str:
    """Describe the silence of a straggler or dead worker; empty if its heartbeat is recent."""
    holder = read_holder(folder)
    seconds = seconds_since_heartbeat(folder / LEASE_FILE)
    if holder is None or seconds < HEARTBEAT_TIMING.timeout:
        return ""
    return f"no heartbeat for {seconds:,.0f} s (process {holder.pid} on {holder.host})"


@contextmanager
def hold_lease(folder: Path, timing: HeartbeatTiming = HEARTBEAT_TIMING) -> Iterator[Lease]:
    """Hold the lease of ``folder`` until the block ends.

    Raises:
        LeaseHeldError: another worker holds the lease.
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
    """Wait until no worker of another machine has a heartbeat.

    Raises:
        Timeout: a worker of another machine is alive.
    """
    last_heartbeat = None
    changed_at = timing.now()
    until = changed_at + timing.lock_timeout
    while (holder := read_holder(folder)) is not None and holder.machine != machine_id():
        now = timing.now()
        heartbeat = 0
        with suppress(OSError):
            heartbeat = (folder / LEASE_FILE).stat().st_mtime_ns
        if heartbeat != last_heartbeat:
            last_heartbeat = heartbeat
            changed_at = now
        if now - changed_at >= timing.timeout:
            return
        if now >= until:
            raise Timeout(str(folder / LEASE_FILE))
        timing.sleep(min(1.0, timing.interval))
