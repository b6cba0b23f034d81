"""Callbacks that report the progress of a study."""

from functools import partial

from scalesearch.studies.trials.trial import Trial


class Callback:
    """Base class of study callbacks; every hook is a no-op.

    Hooks run in the driver's thread and must be quick.
    """

    def message(self, text: str) -> None:
        """Print a line of text."""

    def proposed(self, trial: Trial) -> None:
        """A trial was proposed, and its costs were evaluated."""

    def started(self, trial: Trial) -> None:
        """Training of a trial starts or continues."""

    def paused(self, trial: Trial) -> None:
        """A trial is paused at a rung."""

    def ended(self, trial: Trial) -> None:
        """A trial is complete or failed; its result is on disk."""

    def update(self) -> None:
        """Refresh displays; called about twice per second."""

    def close(self) -> None:
        """The study has ended, or was stopped."""


class Callbacks(Callback):
    """Call the hooks of several callbacks, in their order."""

    def __init__(self, *callbacks: Callback) -> None:
        self._callbacks = callbacks
        for hook in ("message", "proposed", "started", "paused", "ended", "update", "close"):
            setattr(self, hook, partial(self._each, hook))

    def _each(self, hook: str, *arguments: str | Trial) -> None:
        for callback in self._callbacks:
            getattr(callback, hook)(*arguments)
