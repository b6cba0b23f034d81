"""What a study optimises: metrics of a trained model and costs of its bill, each with a direction."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scalesearch.errors import UserError
from scalesearch.space.names import COST_NAMES
from scalesearch.space.problems import suggest
from scalesearch.train.recipe import Recipe

METRICS = {"bleu": "max", "chrf": "max", "loss": "min", "perplexity": "min"}
NAMES = (*METRICS, *COST_NAMES)


@dataclass(frozen=True)
class Objective:
    """One axis of the front: a name of ``NAMES`` and ``min`` or ``max``."""

    name: str
    direction: str

    @property
    def measured(self) -> bool:
        """Whether it takes training to know it; otherwise the bill says it."""
        return self.name in METRICS

    def __str__(self) -> str:
        return f"{self.name}: {self.direction}"


def objective(name: str, direction: str) -> Objective:
    """The objective that ``name: direction`` writes.

    Raises:
        UserError: no such metric or cost, or another direction than ``min`` and ``max``.
    """
    if name not in NAMES:
        raise UserError(f"there is no metric or cost `{name}`; {suggest(name, NAMES)}")
    if direction not in ("min", "max"):
        raise UserError(f"{name}: the direction is `min` or `max`, not `{direction}`")
    return Objective(name, direction)


def values(
    objectives: tuple[Objective, ...], metrics: Mapping[str, Any], cost: Callable[[str], float]
) -> dict[str, float]:
    """Name to value of every objective of one trained candidate.

    Raises:
        UserError: training gave no number, or none that is finite, for one of them.
    """
    found: dict[str, float] = {}
    for objective in objectives:
        value = metrics.get(objective.name) if objective.measured else cost(objective.name)
        if value is None or not math.isfinite(value):
            raise UserError(f"training gave no usable {objective.name}: {value}")
        found[objective.name] = float(value)
    return found


def directions(objectives: tuple[Objective, ...]) -> list[str]:
    """``min`` or ``max`` of each, in order."""
    return [objective.direction for objective in objectives]


def unseen(recipe: Recipe) -> Recipe:
    """``recipe``, unless it would let the search see the split on which its results are reported."""
    if recipe.score_on == "test":
        raise UserError("recipe: a study chooses by its scores, so score_on is `both` (choose on valid, report test) "
                        "or `valid`, not `test`")
    return recipe
