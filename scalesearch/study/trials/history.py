"""A study's ledger as a search sees it."""

from __future__ import annotations

from collections.abc import Sequence

from scalesearch.samplers.history import Goal, Seen
from scalesearch.schedule.rungs import Rungs
from scalesearch.study.config.objectives import Objective
from scalesearch.study.trials.evaluator import Candidate
from scalesearch.study.trials.trials import (
    CHARGED,
    COMPLETE,
    DUPLICATE,
    FAILED,
    INFEASIBLE,
    PAUSED,
    PENDING,
    Ledger,
    Trial,
)


def goals_of(objectives: Sequence[Objective]) -> tuple[Goal, ...]:
    """The axes of the front."""
    return tuple(Goal(objective.name, objective.direction, objective.measured) for objective in objectives)


def history_of(ledger: Ledger, goals: Sequence[Goal]) -> list[Seen]:
    """Every candidate in its order; a repetition has the values of what it repeats.

    Further seeds are not in it, neither as candidates nor in the values, and the numbers leave them out: what is
    proposed does not depend on whether anything was trained again in between.
    """
    return [_seen(number, trial, ledger.outcome(trial), goals) for number, trial in enumerate(ledger.searched())]


def seen_of(number: int, candidate: Candidate, goals: Sequence[Goal]) -> Seen:
    """What a proposer learns of ``candidate`` before it is trained."""
    identity = candidate.architecture.id if candidate.architecture else f"none {number}"
    known = {goal.name: float(candidate.cost[goal.name]) for goal in goals if candidate.cost and not goal.measured}
    state = PENDING if candidate.feasible else INFEASIBLE
    return Seen(number, state, candidate.params, identity, candidate.slacks, known)


def _seen(number: int, trial: Trial, outcome: Trial, goals: Sequence[Goal]) -> Seen:
    costs = {goal.name: _cost(trial, goal.name) for goal in goals if not goal.measured and trial.cost}
    state = DUPLICATE if trial.state == DUPLICATE else outcome.state
    return Seen(number, state, trial.params if trial.in_space else {}, trial.id or f"none {number}",
                trial.slacks, costs, tuple(outcome.rungs), outcome.values)


def _cost(trial: Trial, name: str) -> float:
    value: object = trial.cost
    for part in name.split("."):
        value = value[part]  # type: ignore[index]
    return float(value)  # type: ignore[arg-type]


def spent(ledger: Ledger, rungs: Rungs) -> float:
    """Full trainings' worth of compute that the proposer's candidates have taken, or are taking."""
    return sum(share_of(trial, rungs) for trial in ledger.trials.values() if trial.origin in CHARGED)


def share_of(trial: Trial, rungs: Rungs) -> float:
    """Full trainings' worth of compute that ``trial`` has taken, or is taking."""
    reached = len(trial.rungs)
    if trial.state == COMPLETE:
        return 1.0
    if trial.state == PENDING:
        return rungs.shares[min(reached, rungs.pauses)]
    # What failed between rungs is not counted: it takes no one's place.
    return rungs.shares[reached - 1] if reached and trial.state in (PAUSED, FAILED) else 0.0
