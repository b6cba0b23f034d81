"""Constraints and budgets: whether they hold, and by how much they are missed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.space.syntax.diagnostics import Place
from scalesearch.space.syntax.evaluator import ABSENT, EvaluationError, Lookup, compare, evaluate
from scalesearch.space.syntax.expressions import Compare, Expr, IfElse, Logic, Not, keys_of, write

LEAST = 1e-9  # the slack of what is missed by nothing that a float can tell
FAILED = 1.0  # the slack of what cannot be computed, or of a yes/no that is wrong
OPPOSITE = {"<=": ">", ">": "<=", "<": ">=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True)
class Constraint:
    """A condition over the answers and costs of a candidate.

    Args:
        expression: resolved; every name in it is an answer's key or a cost.
        place: where it stands, for messages.
    """

    expression: Expr
    place: Place = field(compare=False, repr=False)

    @property
    def text(self) -> str:
        """The constraint in canonical words."""
        return write(self.expression)

    def names(self) -> set[str]:
        """Every answer and cost that ``slack`` may look up."""
        return keys_of(self.expression)

    @property
    def costs(self) -> set[str]:
        """The costs among the names."""
        return self.names() & set(COST_NAMES)

    def holds(self, lookup: Lookup) -> bool:
        """True if satisfied; also where it names keys that do not exist in this candidate."""
        try:
            return evaluate(self.expression, lookup) is not False
        except EvaluationError:
            return False

    def slack(self, lookup: Lookup) -> float:
        """The amount by which it is violated: <= 0 exactly where it holds.

        ``a <= b`` gives log(a / b) for positive numbers, so that a miss by 10 % weighs the same on every scale, and
        the difference, relative to the larger, for others; ``and`` gives the largest slack, ``or`` the smallest.

        Args:
            lookup: name to answer or cost; may raise KeyError for a key that does not exist.
        """
        try:
            slack = _slack(self.expression, lookup)
        except EvaluationError:
            return FAILED
        if self.holds(lookup):
            return min(slack, 0.0) if slack is not None else 0.0
        return max(slack, LEAST) if slack is not None else FAILED


def _slack(expr: Expr, lookup: Lookup) -> float | None:
    """The slack of ``expr``, or ``None`` where it does not apply."""
    match expr:
        case Compare(first, rest):
            return _worst(_pairs(first, rest, lookup))
        case Logic("and", operands):
            return _worst(_slack(operand, lookup) for operand in operands)
        case Logic(_, operands):
            slacks = (_slack(operand, lookup) for operand in operands)
            return min((slack for slack in slacks if slack is not None), default=None)
        case Not(operand):
            return _slack_of_opposite(operand, lookup)
        case IfElse(then, condition, other):
            return _slack(then if evaluate(condition, lookup) is True else other, lookup)
    value = evaluate(expr, lookup)
    return None if value is ABSENT else -FAILED if value is True else FAILED


def _pairs(first: Expr, rest: tuple[tuple[str, Expr], ...], lookup: Lookup) -> Iterator[float | None]:
    left = evaluate(first, lookup)
    for op, operand in rest:
        right = evaluate(operand, lookup)
        yield _gap(op, left, right)
        left = right


def _worst(slacks: Iterator[float | None]) -> float | None:
    return max((slack for slack in slacks if slack is not None), default=None)


def _slack_of_opposite(expr: Expr, lookup: Lookup) -> float | None:
    match expr:
        case Compare(first, ((op, other),)):
            return _slack(Compare(first, ((OPPOSITE[op], other),)), lookup)
        case Compare(first, rest):
            operands = [first, *(other for _, other in rest)]
            pairs = tuple(Compare(operands[n], (rest[n],)) for n in range(len(rest)))
            return _slack_of_opposite(Logic("and", pairs), lookup)
        case Logic(op, operands):
            negated = tuple(Not(operand) for operand in operands)
            return _slack(Logic("or" if op == "and" else "and", negated), lookup)
        case Not(operand):
            return _slack(operand, lookup)
    value = evaluate(expr, lookup)
    return None if value is ABSENT else FAILED if value is True else -FAILED


def _gap(op: str, left: Any, right: Any) -> float | None:
    """The slack of ``left op right``."""
    truth = compare(op, left, right)
    if truth is ABSENT:
        return None
    if isinstance(left, bool | str | list) or isinstance(right, bool | str | list):
        return -FAILED if truth else FAILED
    gap = _distance(left, right)
    if op in (">", ">="):
        gap = -gap
    if op == "==":
        return abs(gap)
    if op == "!=":
        return -abs(gap) if truth else FAILED
    return gap


def _distance(left: int | float, right: int | float) -> float:
    if left > 0 and right > 0:
        return math.log(left) - math.log(right)  # ints of any size have a logarithm; their quotient may overflow
    return float((left - right) / max(abs(left), abs(right), 1))
