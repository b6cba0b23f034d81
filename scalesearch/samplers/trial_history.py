"""What a sampler and a scheduler read of Optuna's trials, and final values that they predict for paused ones.

COMPLETE was trained to its end. RUNNING is in training, or paused at a rung. PRUNED with a
constraint above 0 was infeasible and cost nothing. FAIL failed, or repeated another trial; Optuna's
samplers ignore it, ours do not propose it again. Every attribute may be absent, as it is in a plain
Optuna study.

A sampler that learned only from trials trained to the end would learn from few. So the final value
of a paused one is read off its loss at its last rung, by a line (Theil and Sen: the median of all
slopes, which a diverged run cannot bend) through the trials of which both are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from scalesearch.pareto.objective import Objective

if TYPE_CHECKING:  # importing Optuna takes a second, and rungs are read by commands that do without
    from optuna.trial import FrozenTrial

ARCHITECTURE = "architecture"  # identity of what was trained
COSTS = "costs"  # objective to value, of objectives known before training
RUNGS = "rungs"  # validation loss at each rung reached, smaller being better
# of its losses; only losses of one unit, such as nats a character, say who dominates whom
LOSS_UNIT = "loss_unit"
# of a full training, by what was trained so far, in any unit; given where compute is what is short
COMPUTE = "compute"
PAUSED = "paused"  # whether it waits at its last rung
# final values of further trainings, which differ in nothing but their seed
REPLICATES = "replicates"
MIN_TRIALS = 3  # trials through which a line is drawn
ExactValuesFunction = Callable[["FrozenTrial", Sequence[Objective]], Mapping[str, float]]


def exact_values(trial: FrozenTrial, objectives: Sequence[Objective]) -> Mapping[str, float]:
    """Objective to value where it is exact: the costs noted, and everything of a trial that ended."""
    ended = {objective.name: value for objective, value in zip(objectives, trial.values or ())}
    return {**ended, **(trial.user_attrs.get(COSTS) or {})}


def rung_losses(trial: FrozenTrial) -> Sequence[float]:
    """The loss at each rung that ``trial`` has reached."""
    return trial.user_attrs.get(RUNGS) or ()


def values_by_seed(trial: FrozenTrial) -> Sequence[Sequence[float]]:
    """Final values of every seed of a complete ``trial``, its own first."""
    return [trial.values, *(trial.user_attrs.get(REPLICATES) or ())]


def is_paused(trial: FrozenTrial) -> bool:
    """Whether ``trial`` waits at a rung."""
    return trial.state.name == "RUNNING" and bool(trial.user_attrs.get(PAUSED))


def is_complete(trial: FrozenTrial) -> bool:
    """Whether ``trial`` has its final values."""
    return trial.state.name == "COMPLETE"


def is_in_training(trial: FrozenTrial) -> bool:
    """Whether ``trial`` is being trained."""
    return trial.state.name == "RUNNING" and not is_paused(trial)


def is_infeasible(trial: FrozenTrial) -> bool:
    """Whether ``trial`` misses a constraint."""
    return any(value > 0 for value in trial.constraints.values())


def predict_final_values(trials: Sequence[FrozenTrial], objectives: Sequence[Objective],
                         exact: ExactValuesFunction = exact_values) -> dict[int, list[float]]:
    """Trial number to values in the order of ``objectives``: real ones where there are any, predicted for the paused.

    As long as too few were trained to the end, every measured objective of every trial is its loss
    at the first rung, so that all are on one scale.

    Args:
        exact: gives, of a trial, objective to value for those that are not measured.
    """
    ended = [trial for trial in trials if is_complete(trial)]
    paused = [trial for trial in trials if is_paused(trial) and rung_losses(trial)]
    if not paused:
        return {trial.number: list(trial.values) for trial in ended}
    # a reference passes no rung
    early = sum(bool(rung_losses(trial)) for trial in ended) < MIN_TRIALS

    @cache
    def line(at: int, rung: int) -> tuple[float, float]:
        return (0.0, float(objectives[at].sign)) if early else _theil_sen_fit(
            ended, at, objectives[at], rung)

    def predicted(trial: FrozenTrial) -> list[float]:
        rung = 0 if early else len(rung_losses(trial)) - 1
        costs = exact(trial, objectives)
        lines = [line(at, rung) if one.is_measured else None for at, one in enumerate(objectives)]
        return [costs[objective.name] if its is None else its[0] + its[1] * log_loss(trial, rung)
                for objective, its in zip(objectives, lines)]

    return {trial.number: list(trial.values) if is_complete(trial) and not early
            else predicted(trial)
            for trial in trials
            if (is_complete(trial) and not early)
            or (rung_losses(trial) and (is_complete(trial) or is_paused(trial)))}


def log_loss(trial: FrozenTrial, rung: int) -> float:
    """The logarithm of the loss at ``rung``."""
    return math.log(max(rung_losses(trial)[rung], 1e-12))


def _theil_sen_fit(ended: Sequence[FrozenTrial], at: int, objective: Objective,
                   rung: int) -> tuple[float, float]:
    """Start and slope of an objective over the log of the loss; a slope that says worse is better is none."""
    there = [(log_loss(trial, rung), trial.values[at])
             for trial in ended if len(rung_losses(trial)) > rung]
    x, y = np.array(there, float).reshape(-1, 2).T
    one, other = np.triu_indices(len(x), 1)
    apart = np.abs(x[one] - x[other]) > 1e-9
    slopes = (y[one] - y[other])[apart] / (x[one] - x[other])[apart]
    slope = float(np.median(slopes)) if len(slopes) else 0.0
    slope = slope if slope * objective.sign > 0 else 0.0
    return float(np.median(y - slope * x)) if len(x) else 0.0, slope
