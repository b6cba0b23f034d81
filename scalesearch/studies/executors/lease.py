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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from scalesearch.files import remove_partial_files, try_read_json, write_json
from scalesearch.studies.trials.study_dir import DRIVER_FILES

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


@dataclass(frozen=True)
class LeaseHolder:
    """Process that holds a lease; ``started_at`` is in seconds since the epoch."""

    pid: int
    host: str | None = None
    machine: str | None = None
    started_at: float | None = None


@cache
def machine_id() -> str:
    """Identity of this machine since its last boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    except OSError:
        return platform.node()


def process_facts() -> dict[str, object]:
    """Return the fields that name this process in a file with a heartbeat."""
    return {"host": platform.node(), "machine": machine_id(), "pid": os.getpid(),
            "started_at": time.time()}


@contextmanager
def heartbeat(file: Path, interval: float,
              is_owned: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Renew the modification time of ``file`` while it is owned and the block runs.

    A thread does it, so a long training step does not stop the heartbeat.
    """
    stopped = threading.Event()

    def renew() -> None:
        while not stopped.wait(interval):
            with suppress(OSError):  # storage may be away for a while; the next heartbeat follows
                if not is_owned():
                    return
                os.utime(file)

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(interval)


def seconds_since_heartbeat(file: Path, clock: Callable[[], float] = time.time) -> float:
    """Seconds since the last heartbeat by this machine's clock.

    The result is infinite without a file.
    """
    try:
        return max(0.0, clock() - file.stat().st_mtime)
    except OSError:
        return math.inf


def read_holder(folder: Path) -> LeaseHolder | None:
    """Return the holder of the lease of ``folder``, dead or alive; None if it is free."""
    return try_read_json(folder / LEASE_FILE, LeaseHolder)


def owns_lease(folder: Path) -> bool:
    """Whether this process holds the lease of ``folder``."""
    holder = read_holder(folder)
    return holder is not None and (holder.machine, holder.pid) == (machine_id(), os.getpid())


def check_lease(folder: Path) -> None:
    """Check that no other worker has taken over the trial in ``folder``.

    Raises:
        LeaseHeldError: another worker holds the lease.
    """
    if read_holder(folder) is not None and not owns_lease(folder):
        raise LeaseHeldError(f"{folder.name} was taken over by another worker")


def describe_silence(folder: Path) -> str:
    """Describe the silence of a straggler or dead worker.

    The result is empty if its heartbeat is recent.
    """
    holder = read_holder(folder)
    seconds = seconds_since_heartbeat(folder / LEASE_FILE)
    if holder is None or seconds < HEARTBEAT_TIMING.timeout:
        return ""
    return f"no heartbeat for {seconds:,.0f} s (process {holder.pid} on {holder.host})"


@contextmanager
def hold_lease(folder: Path, timing: HeartbeatTiming = HEARTBEAT_TIMING) -> Iterator[None]:
    """Hold the lease of ``folder`` until the block ends.

    Raises:
        LeaseHeldError: another worker holds the lease.
    """
    try:
        with FileLock(folder / LOCK_FILE, timeout=timing.lock_timeout):
            wait_for_other_machine(folder, timing)
            remove_partial_files(folder, lambda name: name not in DRIVER_FILES)
            write_json(folder / LEASE_FILE, process_facts())
            try:
                with heartbeat(folder / LEASE_FILE, timing.interval, lambda: owns_lease(folder)):
                    yield
            finally:
                if owns_lease(folder):
                    (folder / LEASE_FILE).unlink(missing_ok=True)
    except Timeout:
        raise LeaseHeldError(f"{folder.name} is held by another worker") from None


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
        heartbeat_time = 0
        with suppress(OSError):
            heartbeat_time = (folder / LEASE_FILE).stat().st_mtime_ns
        if heartbeat_time != last_heartbeat:
            last_heartbeat = heartbeat_time
            changed_at = now
        if now - changed_at >= timing.timeout:
            return
        if now >= until:
            raise Timeout(str(folder / LEASE_FILE))
        timing.sleep(min(1.0, timing.interval))
