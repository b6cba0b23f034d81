"""Budgets as bounds on sums: what lets candidates be counted part by part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.space.syntax.expressions import Compare, Expr, Logic, Minus, Ref, Value

ADDITIVE = tuple(name for name in COST_NAMES if not name.startswith("load."))


@dataclass(frozen=True)
class Bound:
    """``sign`` · ``name`` <= ``most``; ``text`` as it was written."""

    name: str
    sign: int
    most: int
    text: str


def bounds_of(constraints: Iterable[Constraint]) -> list[Bound] | None:
    """The constraints as bounds on costs that add up over a model's sections; None where one is no such bound."""
    found: list[Bound] = []
    for constraint in constraints:
        for part in _conjuncts(constraint.expression):
            bounds = _bounds(part, constraint)
            if bounds is None:
                return None
            found += bounds
    return found


def _conjuncts(expr: Expr) -> list[Expr]:
    if isinstance(expr, Logic) and expr.op == "and":
        return [inner for operand in expr.operands for inner in _conjuncts(operand)]
    return [expr]


def _bounds(expr: Expr, constraint: Constraint) -> list[Bound] | None:
    """``a <= cost <= b`` as two."""
    if not isinstance(expr, Compare):
        return None
    found, left = [], expr.first
    for op, right in expr.rest:
        bound = _bound(left, op, right, constraint)
        if bound is None:
            return None
        found.append(bound)
        left = right
    return found


def _bound(left: Expr, op: str, right: Expr, constraint: Constraint) -> Bound | None:
    if op in (">", ">="):
        left, right, op = right, left, "<" if op == ">" else "<="
    text = constraint.text
    if op not in ("<", "<="):
        return None
    if isinstance(left, Ref) and left.key in ADDITIVE and (limit := _number(right)) is not None:
        return Bound(left.key, 1, _whole(limit, op), text)
    if isinstance(right, Ref) and right.key in ADDITIVE and (limit := _number(left)) is not None:
        return Bound(right.key, -1, _whole(-limit, op), text)
    return None


def _number(expr: Expr) -> float | int | None:
    if isinstance(expr, Minus):
        inner = _number(expr.operand)
        return None if inner is None else -inner
    is_number = isinstance(expr, Value) and isinstance(expr.value, int | float) and not isinstance(expr.value, bool)
    return expr.value if is_number else None  # type: ignore[attr-defined]


def _whole(limit: float | int, op: str) -> int:
    """The largest whole number that is ``op`` the limit."""
    floor = int(limit // 1)
    return floor - 1 if op == "<" and floor == limit else floor
