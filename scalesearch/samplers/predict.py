"""What a trial that was paused early would have come to: a line through those that were not.

A sampler must hear of every trial that cost something, or it learns only from the few that were trained to the end. So
the final value of a paused one is read off its loss at the last rung, by a line (Theil and Sen: the median of all
slopes, which a diverged run cannot bend) through the trials of which both are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from scalesearch.pareto.objective import Objective
from scalesearch.samplers.history import exact_values, is_complete, is_paused, rungs_of

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

FEWEST = 3  # trials through which a line is drawn
Exact = Callable[["FrozenTrial", Sequence[Objective]], Mapping[str, float]]


def predict_final_values(trials: Sequence[FrozenTrial], objectives: Sequence[Objective],
                         exact: Exact = exact_values) -> dict[int, list[float]]:
    """Trial number to values in the order of ``objectives``: real ones where there are any, predicted for the paused.

    As long as too few were trained to the end, every measured objective of every trial is told by its loss at the first
    rung, so that all are on one scale.

    Args:
        exact: gives, of a trial, objective to value for those that are not measured.
    """
    ended = [trial for trial in trials if is_complete(trial)]
    paused = [trial for trial in trials if is_paused(trial) and rungs_of(trial)]
    if not paused:
        return {trial.number: list(trial.values) for trial in ended}
    if sum(bool(rungs_of(trial)) for trial in ended) < FEWEST:  # a reference passes no rung
        return {trial.number: _early(trial, objectives, exact) for trial in trials
                if rungs_of(trial) and (is_complete(trial) or is_paused(trial))}
    lines = {(at, rung): _line(ended, at, objective, rung) for at, objective in enumerate(objectives)
             if objective.measured for rung in range(max(len(rungs_of(trial)) for trial in paused))}
    return {trial.number: list(trial.values) if is_complete(trial) else _late(trial, objectives, lines, exact)
            for trial in trials if is_complete(trial) or (is_paused(trial) and rungs_of(trial))}


def _early(trial: FrozenTrial, objectives: Sequence[Objective], exact: Exact) -> list[float]:
    loss, costs = log_loss(trial, 0), exact(trial, objectives)
    return [objective.sign * loss if objective.measured else costs[objective.name] for objective in objectives]


def _late(trial: FrozenTrial, objectives: Sequence[Objective], lines: Mapping[tuple[int, int], tuple[float, float]],
          exact: Exact) -> list[float]:
    costs, rung = exact(trial, objectives), len(rungs_of(trial)) - 1
    found = []
    for at, objective in enumerate(objectives):
        if objective.measured:
            start, slope = lines[at, rung]
            found.append(start + slope * log_loss(trial, rung))
        else:
            found.append(costs[objective.name])
    return found


def log_loss(trial: FrozenTrial, rung: int) -> float:
    """The logarithm of the loss at ``rung``."""
    return math.log(max(rungs_of(trial)[rung], 1e-12))


def _line(ended: Sequence[FrozenTrial], at: int, objective: Objective, rung: int) -> tuple[float, float]:
    """Start and slope of an objective over the log of the loss; a slope that says worse is better is none."""
    there = [(log_loss(trial, rung), trial.values[at]) for trial in ended if len(rungs_of(trial)) > rung]
    x, y = np.array(there, float).reshape(-1, 2).T
    one, other = np.triu_indices(len(x), 1)
    apart = np.abs(x[one] - x[other]) > 1e-9
    slopes = (y[one] - y[other])[apart] / (x[one] - x[other])[apart]
    slope = float(np.median(slopes)) if len(slopes) else 0.0
    slope = slope if slope * objective.sign > 0 else 0.0
    return float(np.median(y - slope * x)) if len(x) else 0.0, slope
