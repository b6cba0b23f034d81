"""Trials of a study, folded from its events. The same fold runs live and after a crash."""

from collections.abc import Iterator

from scalesearch.schedule.rungs import Rungs
from scalesearch.study.trials.trial import Origin, State, Trial, TrialEvent
from scalesearch.train.effort import Effort, sum_efforts


class Trials:
    """The trials of a study by number; knows what has been seen.

    Attributes:
        events: how many were applied.
    """

    def __init__(self) -> None:
        self.events = 0
        self._trials: dict[int, Trial] = {}
        self._first: dict[str, int] = {}

    def apply(self, event: TrialEvent) -> Trial:
        """Takes in one event and returns the trial as it now is.

        Raises:
            ValueError: it is about a trial that was never proposed, or proposes one again.
        """
        known = self._trials.get(event.trial)
        if (known is None) != (event.proposed_trial is not None):
            raise ValueError(f"trial {event.trial} was {'never' if known is None else 'already'} "
                             "proposed")
        trial = known.apply(event) if known else event.proposed_trial
        assert trial is not None, "one of both"
        if event.proposed_trial and trial.identity and trial.origin != Origin.REPLICATE \
                and trial.state in (State.PENDING, State.COMPLETE, State.FAILED):
            self._first.setdefault(trial.identity, trial.number)
        self._trials[trial.number] = trial
        self.events += 1
        return trial

    def __getitem__(self, number: int) -> Trial:
        return self._trials[number]

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[Trial]:
        """Goes over a copy, since a screen reads while the driver adds."""
        return iter(list(self._trials.values()))

    @property
    def next_number(self) -> int:
        """Number of the next trial; a repaired study may lack some of the earlier ones."""
        return max(self._trials, default=-1) + 1

    def get(self, number: int | None) -> Trial | None:
        """Trial ``number``, or None where there is none."""
        return None if number is None else self._trials.get(number)

    def first_with_identity(self, identity: str | None) -> Trial | None:
        """The trial that trains, or trained, what has this identity."""
        return self.get(self._first.get(identity)) if identity else None

    def with_state(self, *states: State) -> list[Trial]:
        """The trials in any of ``states``, in order."""
        return [trial for trial in self if trial.state in states]

    def with_origin(self, *origins: Origin) -> list[Trial]:
        """The trials of any of ``origins``, in order."""
        return [trial for trial in self if trial.origin in origins]

    def candidates(self) -> list[Trial]:
        """All trials but replicates, in order."""
        return [trial for trial in self if trial.origin != Origin.REPLICATE]

    def replicates(self) -> list[Trial]:
        """The trainings with further seeds, in order."""
        return self.with_origin(Origin.REPLICATE)

    def resolve_duplicate(self, trial: Trial) -> Trial:
        """The trial whose result counts for ``trial``: itself, or the one that it repeats."""
        return (self.get(trial.original) if trial.state == State.DUPLICATE else None) or trial

    def paused_reference(self) -> Trial | None:
        """A candidate that waits at a rung and is a reference, too: trained to the end whatever it promises."""
        outcomes = (self.resolve_duplicate(trial) for trial in self.with_origin(Origin.REFERENCE))
        return next((trial for trial in outcomes if trial.state == State.PAUSED), None)

    def full_runs_spent(self, rungs: Rungs) -> float:
        """Full trainings' worth of compute that the search's trials have taken, or are taking."""
        return sum(allocated_full_runs(trial, rungs) for trial in self if trial.origin.charged)

    def full_runs_allowed(self, rungs: Rungs, max_full_runs: float, compute: float | None) -> float:
        """Full trainings' worth that the search may have, of ``max_full_runs`` and of ``compute`` in CPU-seconds.

        What is left of the compute goes at the mean pace so far; before anything has been trained
        nobody knows that.
        """
        own = [trial
               for trial in self if trial.origin.charged and trial.source is None and trial.efforts]
        worth = sum(completed_full_runs(trial, rungs) for trial in own)
        if compute is None or not worth:
            return max_full_runs
        spent = sum(one.cpu_seconds
                    for one in sum_efforts(*(trial.efforts for trial in own)).values())
        return min(max_full_runs, worth * compute / spent) if spent else max_full_runs

    def efforts(self) -> dict[str, Effort]:
        """What all trainings of this study have taken up to their last rung or their end."""
        return sum_efforts(*(trial.efforts for trial in self if trial.source is None))


def completed_full_runs(trial: Trial, rungs: Rungs) -> float:
    """Full trainings' worth that the efforts of ``trial`` are of: up to its last rung, or its end."""
    return 1.0 if trial.state == State.COMPLETE else rungs.shares[
        len(trial.rungs) - 1] if trial.rungs else 0.0


def full_run_cpu_seconds(trial: Trial) -> float | None:
    """CPU-seconds of a full training of ``trial``, by what it took here so far; None where nothing says that."""
    share = 1.0 if trial.state == State.COMPLETE else trial.rungs[-1].share if trial.rungs else None
    took = sum(one.cpu_seconds for one in trial.efforts.values())
    return took / share if share and took and trial.source is None else None


def allocated_full_runs(trial: Trial, rungs: Rungs) -> float:
    """Full trainings' worth of compute that ``trial`` has taken, or is taking."""
    reached = len(trial.rungs)
    if trial.state == State.COMPLETE:
        return 1.0
    if trial.state == State.PENDING:
        return rungs.shares[min(reached, rungs.n_pauses)]
    # What failed between rungs is not counted: it takes no one's place.
    return rungs.shares[reached - 1] if reached and trial.state in (
        State.PAUSED, State.FAILED) else 0.0
