"""What can go wrong while training, told apart: no memory, no number, or someone who wants it to stop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch

_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


class TrainingFailed(Exception):
    """This candidate cannot be trained; the message is the reason that its result gives."""


class Diverged(TrainingFailed):
    """The loss is no number any more."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM, after all that was learned has been saved; the message says how to go on."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out, on a GPU or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)


class Stop:
    """Set by the first Ctrl-C or SIGTERM; looked at where everything can be saved. A second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self.number: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number

    def check(self) -> None:
        """Leave the work in hand.

        Raises:
            Interrupted: someone wants it to stop.
        """
        if self.number is not None:
            raise Interrupted(signal.Signals(self.number).name, self.number)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """A stretch in which Ctrl-C and SIGTERM wait for :meth:`Stop.check`; outside the main thread they never come."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
