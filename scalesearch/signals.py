"""Ctrl-C and SIGTERM, whatever this process has inherited.

A background job of a script is born with SIGINT ignored, and so is everything that it starts; Python then installs no
handler, and neither a signal nor ``_thread.interrupt_main`` has any effect. So handlers are installed explicitly.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPS = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], object]


class Interrupted(KeyboardInterrupt):
    """A stop by Ctrl-C or SIGTERM; the message says what was saved and how to go on.

    Attributes:
        number: of the signal.
    """

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.number = number

    @property
    def status(self) -> int:
        """The exit status of a process that it ends, as shells say it: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.number


class Stop:
    """A request to stop, set by the first signal and looked at where everything can be saved.

    A second Ctrl-C stops at once; Ctrl-C after SIGTERM does not, since a group of processes may get both.
    """

    def __init__(self) -> None:
        self.number: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal."""
        if self.number == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = self.number or number

    def check(self) -> None:
        """Leave the work in hand.

        Raises:
            Interrupted: someone wants it to stop.
        """
        if self.number is not None:
            raise Interrupted(signal.Signals(self.number).name, self.number)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """A stretch in which signals wait for :meth:`Stop.check`; outside the main thread they never come."""
    stop = Stop()
    with restored():
        _install(stop)
        yield stop


@contextmanager
def interruptible() -> Iterator[None]:
    """A stretch that signals end at once, whatever it calls makes of them; inside the main thread.

    Raises:
        Interrupted: by a signal, or in place of a KeyboardInterrupt.
    """
    last: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        last.append(number)
        raise Interrupted(signal.Signals(number).name, number)

    with restored():
        _install(interrupt)
        try:
            yield
        except Interrupted:
            raise
        except KeyboardInterrupt as error:  # what Ray makes of a signal that comes while it waits
            raise Interrupted(str(error), *last[-1:]) from error


@contextmanager
def restored() -> Iterator[None]:
    """A stretch that may install handlers, such as ``ray.init``; afterwards the former ones are back."""
    before = {number: signal.getsignal(number) for number in STOPS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _install(handler: Handler) -> None:
    if threading.current_thread() is threading.main_thread():
        for number in STOPS:
            signal.signal(number, handler)
