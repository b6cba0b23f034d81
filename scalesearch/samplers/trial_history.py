"""States and attributes of Optuna trials, and predicted final values.

States of trials:

- COMPLETE: trained to the end.
- RUNNING: in training, or paused at a rung.
- PRUNED with a constraint above 0: infeasible, not trained.
- FAIL: failed, or a repetition of another trial. Optuna's samplers ignore it; the samplers of this
  package do not propose it again.

Every attribute is optional, so that plain Optuna studies can be read.

Few trials are trained to the end. The final value of a paused trial is therefore predicted from its
loss at its last rung, by a line through the trials that have both values. The slope is the median
of all pairwise slopes (Theil-Sen), which is robust against diverged runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from scalesearch.pareto import Objective

if TYPE_CHECKING:  # importing Optuna takes a second; some commands that read rungs do without
    from optuna.trial import FrozenTrial

# Attributes of trials.
ARCHITECTURE = "architecture"  # id of the trained architecture
COSTS = "costs"  # values of the exact objectives by name
RUNGS = "rungs"  # validation loss at each rung that was reached
# unit of the losses, such as nats per character; only losses of the same unit are comparable
LOSS_UNIT = "loss_unit"
# compute of a full-budget run, extrapolated from the run so far; set if compute is limited
COMPUTE = "compute"
PAUSED = "paused"  # whether the trial is paused at its last rung
REPLICATES = "replicates"  # final values of training runs with other seeds

MIN_TRIALS = 3  # trials for a linear fit
ExactValuesFunction = Callable[["FrozenTrial", Sequence[Objective]], Mapping[str, float]]


def exact_values(trial: FrozenTrial, objectives: Sequence[Objective]) -> Mapping[str, float]:
    """Return the exact values by objective: costs, and all values of a complete trial."""
    final = {objective.name: value for objective, value in zip(objectives, trial.values or ())}
    return {**final, **(trial.user_attrs.get(COSTS) or {})}


def rung_losses(trial: FrozenTrial) -> Sequence[float]:
    """Return the loss at each rung that ``trial`` has reached."""
    return trial.user_attrs.get(RUNGS) or ()


def values_by_seed(trial: FrozenTrial) -> Sequence[Sequence[float]]:
    """Return the final values of a complete trial by seed, its own seed first."""
    return [trial.values, *(trial.user_attrs.get(REPLICATES) or ())]


def is_paused(trial: FrozenTrial) -> bool:
    """Return whether ``trial`` is paused at a rung."""
    return trial.state.name == "RUNNING" and bool(trial.user_attrs.get(PAUSED))


def is_complete(trial: FrozenTrial) -> bool:
    """Return whether ``trial`` was trained to the end."""
    return trial.state.name == "COMPLETE"


def is_in_training(trial: FrozenTrial) -> bool:
    """Return whether ``trial`` is in training, not paused."""
    return trial.state.name == "RUNNING" and not is_paused(trial)


def is_infeasible(trial: FrozenTrial) -> bool:
    """Return whether ``trial`` violates a constraint."""
    return any(value > 0 for value in trial.constraints.values())


def predict_final_values(trials: Sequence[FrozenTrial], objectives: Sequence[Objective],
                         exact: ExactValuesFunction = exact_values) -> dict[int, list[float]]:
    """Return the final values of complete trials and predicted ones of paused trials.

    While fewer than ``MIN_TRIALS`` trials with rungs are complete, the measured objectives of all
    trials are replaced by their loss at the first rung, so that all are on one scale.

    Args:
        trials: all trials.
        objectives: the objectives of the study.
        exact: returns the values of the exact objectives of a trial by name.

    Returns:
        Values in the order of ``objectives``, by trial number.
    """
    complete = [trial for trial in trials if is_complete(trial)]
    paused = [trial for trial in trials if is_paused(trial) and rung_losses(trial)]
    if not paused:
        return {trial.number: list(trial.values) for trial in complete}
    # a reference has no rungs
    is_early = sum(bool(rung_losses(trial)) for trial in complete) < MIN_TRIALS

    @cache
    def fit_line(index: int, rung: int) -> tuple[float, float]:
        """Return intercept and slope of an objective over the log loss at a rung."""
        if is_early:
            return 0.0, float(objectives[index].sign)
        return _theil_sen_fit(complete, index, objectives[index], rung)

    def predict(trial: FrozenTrial) -> list[float]:
        rung = 0 if is_early else len(rung_losses(trial)) - 1
        costs = exact(trial, objectives)
        values = []
        for index, objective in enumerate(objectives):
            if objective.is_measured:
                intercept, slope = fit_line(index, rung)
                values.append(intercept + slope * log_loss(trial, rung))
            else:
                values.append(costs[objective.name])
        return values

    values_by_number: dict[int, list[float]] = {}
    for trial in trials:
        if is_complete(trial) and not is_early:
            values_by_number[trial.number] = list(trial.values)
        elif rung_losses(trial) and (is_complete(trial) or is_paused(trial)):
            values_by_number[trial.number] = predict(trial)
    return values_by_number


def log_loss(trial: FrozenTrial, rung: int) -> float:
    """Return the logarithm of the loss at ``rung``."""
    return math.log(max(rung_losses(trial)[rung], 1e-12))


def _theil_sen_fit(complete: Sequence[FrozenTrial], index: int, objective: Objective,
                   rung: int) -> tuple[float, float]:
    """Return intercept and slope of an objective over the log loss at ``rung``.

    The slope is 0 if the fitted one has the wrong sign: a lower loss cannot be worse.
    """
    points = [(log_loss(trial, rung), trial.values[index])
              for trial in complete if len(rung_losses(trial)) > rung]
    x, y = np.array(points, float).reshape(-1, 2).T
    first, second = np.triu_indices(len(x), 1)
    is_distinct = np.abs(x[first] - x[second]) > 1e-9
    slopes = (y[first] - y[second])[is_distinct] / (x[first] - x[second])[is_distinct]
    slope = float(np.median(slopes)) if len(slopes) else 0.0
    slope = slope if slope * objective.sign > 0 else 0.0
    return float(np.median(y - slope * x)) if len(x) else 0.0, slope
