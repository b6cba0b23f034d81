"""Leases of trials: one worker at a time, with a sign of life.

::

    .worker.lock   held for the worker by the operating system, which lets go of it however the worker dies
    lease.json     who it is; the file's time of change is its sign of life, removed when it has done

The lock decides on one machine, and on file systems that pass locks on to other machines. Not all do, so a lease of
another machine is watched as well: while its time of change moves, that worker lives. Nothing is concluded from the
clocks of two machines. A worker that was silent for so long that another took over stops when it next notes its
progress, and leaves no result.
"""

import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from scalesearch.files import write_json

FILE, LOCK = "lease.json", ".worker.lock"


@dataclass(frozen=True)
class Timing:
    """Seconds of a sign of life.

    Attributes:
        renew: between two of them.
        silent: without one, after which whoever gave it counts as dead.
        held: to wait for an orphan of a dead driver to let go of the folder.
        now, sleep: the clock, and how to let it go on.
    """

    renew: float = 5.0
    silent: float = 30.0
    held: float = 90.0
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


class Lease:
    """Lease of a trial's folder, for its holder. A thread renews it, so that a long step of training is no silence."""

    def __init__(self, folder: Path, renew: float = TIMING.renew) -> None:
        self._file, self._over, self.lost, self._every = folder / FILE, threading.Event(), False, renew
        self.owner = {"host": platform.node(), "machine": machine(), "process": os.getpid(),
                      "attempt": json.loads((folder / "job.json").read_text()).get("attempt", 1), "since": time.time()}

    def mine(self) -> bool:
        """Whether it still is this worker's."""
        self.lost = self.lost or read(self._file.parent) not in (self.owner, None)
        return not self.lost

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """A stretch in which it is kept, unless another worker takes it."""
        write_json(self._file, self.owner)
        threading.Thread(target=self._renew, daemon=True).start()
        try:
            yield
        finally:
            self._over.set()
            if self.mine():
                self._file.unlink(missing_ok=True)

    def _renew(self) -> None:
        while not self._over.wait(self._every):
            with suppress(OSError):  # a storage that is away for a while: the next time will do
                if not self.mine():
                    return
                os.utime(self._file)


def read(folder: Path) -> dict[str, Any] | None:
    """Holder of the lease of ``folder``, dead or alive; None where there is none."""
    try:
        lease = json.loads((folder / FILE).read_text())
    except (OSError, ValueError):
        return None
    return lease if isinstance(lease, dict) else None


def refuse_taken(folder: Path) -> None:
    """Raises Taken where another worker has the candidate in ``folder`` by now."""
    owner = read(folder)
    if owner is not None and (owner.get("machine"), owner.get("process")) != (machine(), os.getpid()):
        raise Taken(folder.name, over=True)


def silence(folder: Path) -> float:
    """Seconds since the last sign of life; inf without one. Clocks are this machine's and the file system's."""
    try:
        return max(0.0, time.time() - (folder / FILE).stat().st_mtime)
    except OSError:
        return float("inf")


def describe_silence(folder: Path) -> str:
    """Describes the silence of a worker that seems dead; empty where it lives."""
    owner, since = read(folder), silence(folder)
    if owner is None or since < TIMING.silent:
        return ""
    return f"no sign of life for {since:,.0f} s (process {owner.get('process')} on {owner.get('host')})"


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
            with lease.renewed():
                yield lease
    except Timeout:
        raise Taken(folder.name, over=False) from None


def outlive(folder: Path, timing: Timing = TIMING) -> None:
    """Waits until no worker of another machine shows signs of life. Raises Timeout where one goes on doing so."""
    seen, moved = None, timing.now()
    until = moved + timing.held
    while (owner := read(folder)) is not None and owner.get("machine") != machine():
        now, sign = timing.now(), _sign(folder)
        if sign != seen:
            seen, moved = sign, now
        if now - moved >= timing.silent:
            return
        if now >= until:
            raise Timeout(str(folder / FILE))
        timing.sleep(min(1.0, timing.renew))


def _sign(folder: Path) -> int:
    try:
        return (folder / FILE).stat().st_mtime_ns
    except OSError:
        return 0
