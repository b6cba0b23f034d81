"""Handlers of Ctrl-C and SIGTERM.

Shells start the background jobs of scripts with SIGINT ignored, also for their child processes.
Python then does not install its handler, so neither SIGINT nor ``_thread.interrupt_main`` has an
effect. Therefore handlers are installed explicitly.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], object]


class SignalInterrupt(KeyboardInterrupt):
    """A stop by Ctrl-C or SIGTERM.

    The message names the saved state and how to resume.

    Attributes:
        signal_number: number of the signal.
    """

    def __init__(self, message: str, signal_number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.signal_number = signal_number

    @property
    def status(self) -> int:
        """The exit status of the process, as in shells: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.signal_number


class StopRequest:
    """A request to stop, set by the first signal.

    It is checked when the state can be saved. A second Ctrl-C stops immediately. Ctrl-C after
    SIGTERM does not, because a process group may receive both.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.signal_number == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = self.signal_number or number

    def raise_if_requested(self) -> None:
        """Stop if a signal has arrived.

        Raises:
            SignalInterrupt: a signal has arrived.
        """
        if self.signal_number is not None:
            raise SignalInterrupt(signal.Signals(self.signal_number).name, self.signal_number)


@contextmanager
def deferred_signals() -> Iterator[StopRequest]:
    """Context in which signals wait for :meth:`StopRequest.raise_if_requested`.

    Only for the main thread.
    """
    stop = StopRequest()
    with restored_handlers():
        _install_handler(stop)
        yield stop


@contextmanager
def interrupt_on_signal() -> Iterator[None]:
    """Context that signals end immediately, even if a library replaces the exception.

    Only for the main thread. Python ignores an exception in a destructor or in a callback of a weak
    reference; then the process ends without cleaning up.

    Raises:
        SignalInterrupt: a signal arrived, or a KeyboardInterrupt was raised.
    """
    last: list[int] = []
    print_unraisable = sys.unraisablehook

    def interrupt(number: int, frame: FrameType | None) -> None:
        last.append(number)
        raise SignalInterrupt(signal.Signals(number).name, number)

    def end_if_interrupted(unraisable: "sys.UnraisableHookArgs") -> None:
        if isinstance(unraisable.exc_value, SignalInterrupt):
            os._exit(unraisable.exc_value.status)
        print_unraisable(unraisable)

    with restored_handlers():
        _install_handler(interrupt)
        sys.unraisablehook = end_if_interrupted
        try:
            yield
        except SignalInterrupt:
            raise
        except (KeyboardInterrupt, Exception) as error:
            # raised by Ray while it waits, or by Python 3.11 for an error in a class definition
            if last or isinstance(error, KeyboardInterrupt):
                raise SignalInterrupt(str(error), *last[-1:]) from error
            raise
        finally:
            sys.unraisablehook = print_unraisable


@contextmanager
def restored_handlers() -> Iterator[None]:
    """Context that restores the signal handlers at its end.

    Code such as ``ray.init`` may install handlers inside it.
    """
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
