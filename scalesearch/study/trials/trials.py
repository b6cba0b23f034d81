"""Trials of a study, folded from its events. The same fold runs live and after a crash."""

from collections.abc import Iterator, Mapping
from typing import Any

from scalesearch.study.trials.trial import Kind, Origin, State, Trial


class Trials:
    """The trials of a study by number; knows which architectures have been seen.

    Attributes:
        events: how many were applied.
    """

    def __init__(self) -> None:
        self.events = 0
        self._trials: dict[int, Trial] = {}
        self._first: dict[str, int] = {}

    def apply(self, event: Mapping[str, Any]) -> Trial:
        """Takes in one event and returns the trial as it now is.

        Raises:
            KeyError: an event about a trial that was never proposed.
        """
        number = event["trial"]
        if event["event"] == Kind.PROPOSED:
            trial = Trial.from_json(event)
            if trial.state in (State.PENDING, State.COMPLETE, State.FAILED) and trial.architecture and \
                    trial.origin != Origin.REPLICATE:
                self._first.setdefault(trial.architecture, number)
        else:
            trial = self._trials[number].after(event)
        self._trials[number] = trial
        self.events += 1
        return trial

    def __getitem__(self, number: int) -> Trial:
        return self._trials[number]

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[Trial]:
        """Goes over a copy, since a screen reads while the driver adds."""
        return iter(list(self._trials.values()))

    def get(self, number: int | None) -> Trial | None:
        """Trial ``number``, or None where there is none."""
        return None if number is None else self._trials.get(number)

    def first(self, architecture: str | None) -> Trial | None:
        """The trial that trains, or trained, the architecture of this id."""
        return self.get(self._first.get(architecture)) if architecture else None

    def having(self, *states: State) -> list[Trial]:
        """The trials in any of ``states``, in order."""
        return [trial for trial in self if trial.state in states]

    def of(self, *origins: Origin) -> list[Trial]:
        """The trials of any of ``origins``, in order."""
        return [trial for trial in self if trial.origin in origins]

    def candidates(self) -> list[Trial]:
        """All trials but replicates, in order."""
        return [trial for trial in self if trial.origin != Origin.REPLICATE]

    def replicates(self) -> list[Trial]:
        """The trainings with further seeds, in order."""
        return self.of(Origin.REPLICATE)

    def duplicates(self, number: int) -> list[Trial]:
        """The duplicates of trial ``number``."""
        return [trial for trial in self.having(State.DUPLICATE) if trial.of == number]

    def outcome(self, trial: Trial) -> Trial:
        """The trial whose result counts for ``trial``: itself, or the one that it repeats."""
        return self._trials[trial.of] if trial.state == State.DUPLICATE and trial.of is not None else trial
