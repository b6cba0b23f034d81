"""What a candidate must meet: budgets as limits, each with the room that is left or the miss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scalesearch.errors import UserError
from scalesearch.space import Constraint, Space
from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.space.syntax.evaluator import EvaluationError, Lookup, evaluate
from scalesearch.space.syntax.expressions import Compare, Expr, Ref, Value, keys_of, write
from scalesearch.space.syntax.nodes import from_text
from scalesearch.study.config.constraints import budget_of, parts
from scalesearch.study.config.constraints import limits as split

UP, DOWN = ("<=", "<"), (">=", ">")


@dataclass(frozen=True)
class Standing:
    """One limit at one candidate.

    Attributes:
        text: the limit in canonical words.
        name: the cost that it bounds, or an empty text where it is no such bound.
        op, value, bound: ``value op bound`` of that cost.
        holds: whether the limit is met.
    """

    text: str
    holds: bool
    name: str = ""
    op: str = "<="
    value: Any = None
    bound: Any = None

    @property
    def slack(self) -> Any:
        """The room that is left, in the cost's own unit; negative where the limit is missed; None where unknown."""
        if not self.name:
            return None
        room = self.bound - self.value
        return room if self.op in UP else -room

    def to_json(self) -> dict[str, Any]:
        """For ``--json`` and for frames."""
        return {"limit": self.text, "holds": self.holds, "value": self.value, "bound": self.bound, "slack": self.slack}


def read_limits(space: Space, budgets: Sequence[str], option: str = "--budget") -> tuple[Constraint, ...]:
    """The space's constraints and these budgets (names of the space's, or expressions), part by part.

    Raises:
        SpaceErrors: an unknown cost, a number that is none, an unknown budget. UserError: they contradict each other.
    """
    found = list(split(space, None))
    for budget in budgets:
        found += parts(budget_of(space, from_text(option, f"{option} ", budget)))
    _contradictions(found)
    return tuple(found)


def costs_of(limits: Sequence[Constraint]) -> tuple[str, ...]:
    """The costs that the limits speak of, in the order of the ledger."""
    named = set().union(*(limit.costs for limit in limits)) if limits else set()
    return tuple(name for name in COST_NAMES if name in named)


def standings(limits: Sequence[Constraint], lookup: Lookup) -> tuple[Standing, ...]:
    """Every limit at one candidate."""
    return tuple(_standing(limit, lookup) for limit in limits)


def _standing(limit: Constraint, lookup: Lookup) -> Standing:
    holds, sides = limit.holds(lookup), _bound(limit.expression)
    if sides is None:
        return Standing(limit.text, holds)
    name, op, other = sides
    try:
        value, bound = lookup(name), evaluate(other, lookup)
    except (EvaluationError, KeyError):
        return Standing(limit.text, holds)
    text = f"{name} {op} {write(other)}"
    return Standing(text, holds, name, op, value, bound) if isinstance(bound, int | float) else Standing(text, holds)


FLIPPED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<"}


def _bound(expr: Expr) -> tuple[str, str, Expr] | None:
    """Cost, comparison and what it is compared with, for a limit of that form; sides may be swapped."""
    match expr:
        case Compare(Ref(_, name), ((op, other),)) if op in FLIPPED and name in COST_NAMES:
            return name, op, other
        case Compare(other, ((op, Ref(_, name)),)) if op in FLIPPED and name in COST_NAMES and not keys_of(other):
            return name, FLIPPED[op], other
    return None


def _contradictions(limits: Sequence[Constraint]) -> None:
    """Complains of two limits that no number can meet together."""
    bounds = [(limit, *sides) for limit in limits if (sides := _bound(limit.expression)) is not None]
    numbers = [(limit, name, op, other.value) for limit, name, op, other in bounds if isinstance(other, Value)]
    for above, name, op, low in numbers:
        for below, same, other, high in numbers:
            if op in DOWN and other in UP and name == same and _empty(low, high, (op, other)):
                raise UserError(f"the budget contradicts itself: `{above.text}` and `{below.text}` cannot both hold")


def _empty(low: Any, high: Any, ops: tuple[str, str]) -> bool:
    return bool(low > high or (low == high and ops != (">=", "<=")))
