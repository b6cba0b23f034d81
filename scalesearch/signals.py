"""Ctrl-C and SIGTERM, whatever this process has inherited.

A background job of a script is born with SIGINT ignored, and so is everything that it starts;
Python then installs no handler, and neither a signal nor ``_thread.interrupt_main`` has any effect.
So handlers are installed explicitly.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], object]


class SignalInterrupt(KeyboardInterrupt):
    """A stop by Ctrl-C or SIGTERM; the message says what was saved and how to go on.

    Attributes:
        signal_number: of the signal.
    """

    def __init__(self, message: str, signal_number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.signal_number = signal_number

    @property
    def status(self) -> int:
        """The exit status of a process that it ends, as shells say it: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.signal_number


class StopRequest:
    """A request to stop, set by the first signal and looked at where everything can be saved.

    A second Ctrl-C stops at once; Ctrl-C after SIGTERM does not, since a group of processes may get
    both.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal."""
        if self.signal_number == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = self.signal_number or number

    def raise_if_requested(self) -> None:
        """Leave the work in hand.

        Raises:
            Interrupted: someone wants it to stop.
        """
        if self.signal_number is not None:
            raise SignalInterrupt(signal.Signals(self.signal_number).name, self.signal_number)


@contextmanager
def deferred_signals() -> Iterator[StopRequest]:
    """A stretch in which signals wait for :meth:`StopRequest.raise_if_requested`; outside the main thread they never come."""
    stop = StopRequest()
    with restored_handlers():
        _install_handler(stop)
        yield stop


@contextmanager
def interrupt_on_signal() -> Iterator[None]:
    """A stretch that signals end at once, whatever it calls makes of them; inside the main thread.

    Raises:
        Interrupted: by a signal, or in place of a KeyboardInterrupt.
    """
    last: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        last.append(number)
        raise SignalInterrupt(signal.Signals(number).name, number)

    with restored_handlers():
        _install_handler(interrupt)
        try:
            yield
        except SignalInterrupt:
            raise
        except KeyboardInterrupt as error:  # what Ray makes of a signal that comes while it waits
            raise SignalInterrupt(str(error), *last[-1:]) from error


@contextmanager
def restored_handlers() -> Iterator[None]:
    """A stretch that may install handlers, such as ``ray.init``; afterwards the former ones are back."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _install_handler(handler: Handler) -> None:
    if threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            signal.signal(number, handler)
