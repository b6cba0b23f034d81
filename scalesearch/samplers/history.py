"""What a sampler and a scheduler read of Optuna's trials.

COMPLETE was trained to its end. RUNNING is in training, or paused at a rung. PRUNED with a constraint above 0 was
infeasible and cost nothing. FAIL failed, or repeated another trial; Optuna's samplers ignore it, ours do not propose
it again. Every attribute may be absent, as it is in a plain Optuna study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from scalesearch.pareto.objective import Objective

if TYPE_CHECKING:  # importing Optuna takes a second, and rungs are read by commands that do without
    from optuna.trial import FrozenTrial

ARCHITECTURE = "architecture"  # identity of what was trained
COSTS = "costs"  # objective to value, of objectives known before training
RUNGS = "rungs"  # validation loss at each rung reached, smaller being better
PAUSED = "paused"  # whether it waits at its last rung


def exact_values(trial: FrozenTrial, objectives: Sequence[Objective]) -> Mapping[str, float]:
    """Objective to value where it is exact: the costs noted, and everything of a trial that ended."""
    ended = {objective.name: value for objective, value in zip(objectives, trial.values or ())}
    return {**ended, **(trial.user_attrs.get(COSTS) or {})}


def rungs_of(trial: FrozenTrial) -> Sequence[float]:
    """The loss at each rung that ``trial`` has reached."""
    return trial.user_attrs.get(RUNGS) or ()


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
