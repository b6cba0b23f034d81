"""Callbacks: what a driver tells of a study's progress."""

from functools import partial

from scalesearch.study.trials.trial import Trial


class Callback:
    """Base class of study callbacks; every hook is a no-op.

    Hooks run in the driver's thread and must be quick.
    """

    def message(self, text: str) -> None:
        """A line for people."""

    def proposed(self, trial: Trial) -> None:
        """A trial was evaluated and announced."""

    def started(self, trial: Trial) -> None:
        """Training of a trial begins, or begins again."""

    def paused(self, trial: Trial) -> None:
        """A trial has come to a rung, where it waits."""

    def ended(self, trial: Trial) -> None:
        """A trial is complete or failed, and on disk."""

    def update(self) -> None:
        """Something may have changed; called about twice a second."""

    def close(self) -> None:
        """The study has ended, or was stopped."""


class Callbacks(Callback):
    """Passes every hook on to several callbacks, in their order."""

    def __init__(self, *callbacks: Callback) -> None:
        self._callbacks = callbacks
        for hook in ("message", "proposed", "started", "paused", "ended", "update", "close"):
            setattr(self, hook, partial(self._each, hook))

    def _each(self, hook: str, *given: str | Trial) -> None:
        for callback in self._callbacks:
            getattr(callback, hook)(*given)
