"""Compute that a study's trials have taken, in full trainings."""

from scalesearch.schedule.rungs import Rungs
from scalesearch.study.trials.trial import State, Trial
from scalesearch.study.trials.trials import Trials


def spent(trials: Trials, rungs: Rungs) -> float:
    """Full trainings' worth of compute that the search's trials have taken, or are taking."""
    return sum(share_of(trial, rungs) for trial in trials if trial.origin.charged)


def share_of(trial: Trial, rungs: Rungs) -> float:
    """Full trainings' worth of compute that ``trial`` has taken, or is taking."""
    reached = len(trial.rungs)
    if trial.state == State.COMPLETE:
        return 1.0
    if trial.state == State.PENDING:
        return rungs.shares[min(reached, rungs.pauses)]
    # What failed between rungs is not counted: it takes no one's place.
    return rungs.shares[reached - 1] if reached and trial.state in (State.PAUSED, State.FAILED) else 0.0
