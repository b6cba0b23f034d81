"""What no random candidate meets: where the constraint stands, and how near the nearest one came."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.syntax.diagnostics import Problem
from scalesearch.space.syntax.evaluator import evaluate
from scalesearch.space.syntax.expressions import Compare, Expr, keys_of, write

if TYPE_CHECKING:
    from scalesearch.space.syntax.evaluator import Lookup


class Nearest:
    """The candidate that missed a constraint by the least."""

    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint
        self.slack = math.inf
        self.found: tuple[int | float, int | float] | None = None

    def see(self, lookup: Lookup) -> None:
        """Remembers a candidate if it is nearer than those before."""
        slack = self.constraint.slack(lookup)
        if slack < self.slack:
            self.slack, self.found = slack, _sides(self.constraint.expression, lookup)

    def problem(self, tried: int) -> Problem:
        """The complaint that none of the ``tried`` candidates meets the constraint; that is no proof."""
        several = f"none of the {tried:,} random candidates satisfies"
        subject = several if tried > 1 else "the only candidate does not satisfy"
        return Problem(self.constraint.place, f"{subject} this constraint", self._help(), code="never-true")

    def _help(self) -> str | None:
        """By how much the nearest candidate misses, where something is compared with a number."""
        side = _variable_side(self.constraint.expression)
        if side is None or self.found is None:
            return None
        value, limit = self.found
        away = abs(value - limit)
        share = f" ({away / abs(limit):,.1%})" if limit else ""
        side_of = "above" if value > limit else "below"
        miss = f"{_say(away)}{share} {side_of} {_say(limit)}" if away else "just not enough"
        return f"the nearest candidate has {write(side)} = {_say(value)}: {miss}"


def _variable_side(expr: Expr) -> Expr | None:
    """The side of a comparison that names costs or answers, where the other is a number."""
    match expr:
        case Compare(first, ((_, other),)):
            for side, number in ((first, other), (other, first)):
                if keys_of(side) and not keys_of(number):
                    return side
    return None


def _sides(expr: Expr, lookup: Lookup) -> tuple[int | float, int | float] | None:
    """The value of that side, and the number that it is compared with."""
    side = _variable_side(expr)
    if side is None or not isinstance(expr, Compare):
        return None
    other = expr.rest[0][1] if side is expr.first else expr.first
    value, limit = evaluate(side, lookup), evaluate(other, lookup)
    return (value, limit) if isinstance(value, int | float) and isinstance(limit, int | float) else None


def _say(number: int | float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.6g}"
