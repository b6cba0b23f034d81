"""Objectives of a study: metrics of a trained model, what running it takes, costs."""

import math
from collections.abc import Mapping
from typing import Any

from scalesearch.data.spec import DataSpec
from scalesearch.errors import UserError
from scalesearch.pareto import Objective
from scalesearch.spaces.schema.cost_names import COST_NAMES, DEPRECATED_COST_NAMES
from scalesearch.spaces.syntax.diagnostics import suggest_match
from scalesearch.tasks import EFFICIENCY_METRICS, METRICS, TASKS

DEPRECATED_OBJECTIVES = {**DEPRECATED_COST_NAMES, "tokenised_bleu": "tokenized_bleu"}
DATA_SETTING_OF_METRIC = {
    "tokenized_bleu": "`tokenized: true` in `data:`",
    "comet": "`comet: MODEL` in `data:`, such as Unbabel/wmt22-comet-da"}
# Refusal counts serve only as limits of a budget.
OBJECTIVE_NAMES = (*METRICS, *(name for name in COST_NAMES if not name.startswith("refusals.")))


def parse_objective(name: str, direction: str) -> Objective:
    """The objective that ``name: direction`` writes.

    Raises:
        UserError: no such metric or cost, or another direction than ``min`` and ``max``.
    """
    if name not in OBJECTIVE_NAMES:
        raise UserError(f"unknown metric or cost `{name}`",
                        help=suggest_match(name, OBJECTIVE_NAMES), code="unknown-metric")
    if direction not in ("min", "max"):
        meant = next((f"write `{way}`"
                      for way in ("min", "max") if direction.lower().startswith(way)), None)
        raise UserError(f"{name}: the direction is `min` or `max`, not `{direction}`", help=meant,
                        code="bad-direction")
    if name in METRICS and direction != METRICS[name].direction:
        better = "higher" if METRICS[name].direction == "max" else "lower"
        raise UserError(f"{name}: {better} is better", help=f"write `{METRICS[name].direction}`",
                        code="bad-direction")
    if name in COST_NAMES and direction == "max":
        raise UserError(f"{name}: a lower cost is better",
                        help=f"write `min`, or set a lower limit: `budget: {name} >= 1M`",
                        code="bad-direction")
    checked: Any = direction
    return Objective(name, checked, name in METRICS)


def check_objective_of_task(objective: Objective, spec: DataSpec) -> None:
    """Raise a UserError if training on such data does not measure the objective."""
    task = TASKS[spec.task]
    available = [*task.metrics_for(spec), *EFFICIENCY_METRICS]
    if not objective.is_measured or objective.name in available:
        return
    other = next((other.name for other in TASKS.values() if objective.name in other.metrics), None)
    if other:
        why = f"`{objective.name}` is a metric of {other}, and the data's task is {task.name}"
    else:
        setting = DATA_SETTING_OF_METRIC[objective.name]
        why = (f"the data does not set {setting}, which the metric `{objective.name}` needs")
    raise UserError(why, help=f"its metrics are {', '.join(available)}", code="metric-unavailable")


def required_measurements(objectives: tuple[Objective, ...], recipe_value: str) -> str:
    """Value of a recipe's ``measure`` that the objectives need."""
    required = {objective.name for objective in objectives if objective.name in EFFICIENCY_METRICS}
    required |= set(EFFICIENCY_METRICS) if recipe_value == "both" else {recipe_value} - {"none"}
    return "both" if len(required) > 1 else next(iter(required), "none")


def objective_values(objectives: tuple[Objective, ...], metrics: Mapping[str, object],
                     costs: Mapping[str, float]) -> dict[str, float]:
    """Name to value of every objective of one trained candidate.

    Raises:
        UserError: training gave no number, or none that is finite, for one of them.
    """
    numbers: dict[str, float] = {}
    for objective in objectives:
        value = metrics.get(objective.name) if objective.is_measured else costs.get(objective.name)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise UserError(f"training gave no usable {objective.name}: {value}",
                            code="no-usable-score")
        numbers[objective.name] = float(value)
    return numbers
