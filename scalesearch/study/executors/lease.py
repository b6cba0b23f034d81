"""Signs of life of processes, and leases of trials: one worker at a time.

::

    .worker.lock   held for the worker by the operating system, which lets go of it however the worker dies
    lease.json     who it is; the file's time of change is its sign of life, removed when it has done

The lock decides on one machine, and on file systems that pass locks on to others. Not all do, so a lease of another
machine is watched as well: while its time of change moves, that worker lives; two machines' clocks are never compared.
A worker that was silent for so long that another took over stops when it next notes its progress, and leaves no result.
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
from scalesearch.study.trials.study_dir import OF_THE_DRIVER

FILE, LOCK = "lease.json", ".worker.lock"


@dataclass(frozen=True)
class Timing:
    """Seconds of a sign of life.

    ``now`` is the clock, ``sleep`` lets it go on.
    """

    renew: float = 5.0  # between two of them
    silent: float = 30.0  # without one, after which a process counts as dead
    held: float = 90.0  # to wait for an orphan of a dead driver to let go of the folder
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


TIMING = Timing()


class Taken(RuntimeError):
    """Another worker has the candidate, or has taken it ``over`` from this one."""

    def __init__(self, name: str, over: bool) -> None:
        super().__init__(f"{name} {'was taken over' if over else 'is held'} by another worker")
        self.over = over

    def __reduce__(self) -> tuple[type, tuple[str, bool]]:
        return type(self), (str(self).partition(" ")[0], self.over)


@cache
def machine() -> str:
    """Identity of this machine since it was started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


@dataclass(frozen=True)
class Holder:
    """Process that holds a lease; ``since`` in seconds since the epoch."""

    process: int
    host: str | None = None
    machine: str | None = None
    since: float | None = None
    attempt: int = 1


class SignOfLife:
    """A file that says which process is at work. A thread renews its time of change, so that a long step is no silence.

    Args:
        facts: what else it says.
        renew: seconds between two signs of life.
    """

    def __init__(self, file: Path, facts: Mapping[str, object], renew: float) -> None:
        self.file, self._every, self._over = file, renew, threading.Event()
        self.facts: dict[str, object] = {"host": platform.node(), "machine": machine(), "process": os.getpid(),
                                         "since": time.time(), **facts}

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """A stretch in which the file is kept."""
        self.write()
        thread = threading.Thread(target=self._renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(self._every)

    def write(self) -> None:
        """Writes the file, whole or not at all."""
        write_json(self.file, self.facts)

    def mine(self) -> bool:
        """Whether no other process has taken it over."""
        return True

    def _renew(self) -> None:
        while not self._over.wait(self._every):
            with suppress(OSError):  # a storage that is away for a while: the next time will do
                if not self.mine():
                    return
                os.utime(self.file)


class Lease(SignOfLife):
    """Lease of a trial's folder, for its holder."""

    def __init__(self, folder: Path, renew: float = TIMING.renew) -> None:
        job = try_read_json(folder / "job.json", JobFile) or {}
        super().__init__(folder / FILE, {"attempt": job.get("attempt", 1)}, renew)
        self._lost = False

    def mine(self) -> bool:
        """Whether it still is this worker's."""
        self._lost = self._lost or read(self.file.parent) not in (msgspec.convert(self.facts, Holder), None)
        return not self._lost


def read(folder: Path) -> Holder | None:
    """Holder of the lease of ``folder``, dead or alive; None where there is none."""
    return try_read_json(folder / FILE, Holder)


def refuse_taken(folder: Path) -> None:
    """Raises Taken where another worker has the candidate in ``folder`` by now."""
    owner = read(folder)
    if owner is not None and (owner.machine, owner.process) != (machine(), os.getpid()):
        raise Taken(folder.name, over=True)


def silence(file: Path, clock: Callable[[], float] = time.time) -> float:
    """Seconds since the last sign of life; inf without one. Clocks are this machine's and the file system's."""
    try:
        return max(0.0, clock() - file.stat().st_mtime)
    except OSError:
        return math.inf


def describe_silence(folder: Path) -> str:
    """Describes the silence of a worker that seems dead; empty where it lives."""
    owner, since = read(folder), silence(folder / FILE)
    if owner is None or since < TIMING.silent:
        return ""
    return f"no sign of life for {since:,.0f} s (process {owner.process} on {owner.host})"


@contextmanager
def held(folder: Path, timing: Timing = TIMING) -> Iterator[Lease]:
    """A stretch in which ``folder`` is this worker's.

    Raises:
        Taken: another worker has it, or has taken it over.
    """
    lease = Lease(folder, timing.renew)
    try:
        with FileLock(folder / LOCK, timeout=timing.held):
            outlive(folder, timing)
            remove_partial_files(folder, lambda name: name not in OF_THE_DRIVER)
            try:
                with lease.renewed():
                    yield lease
            finally:
                if lease.mine():
                    lease.file.unlink(missing_ok=True)
    except Timeout:
        raise Taken(folder.name, over=False) from None


def outlive(folder: Path, timing: Timing = TIMING) -> None:
    """Waits until no worker of another machine shows signs of life. Raises Timeout where one goes on doing so."""
    seen, moved = None, timing.now()
    until = moved + timing.held
    while (owner := read(folder)) is not None and owner.machine != machine():
        now, sign = timing.now(), 0
        with suppress(OSError):
            sign = (folder / FILE).stat().st_mtime_ns
        if sign != seen:
            seen, moved = sign, now
        if now - moved >= timing.silent:
            return
        if now >= until:
            raise Timeout(str(folder / FILE))
        timing.sleep(min(1.0, timing.renew))
