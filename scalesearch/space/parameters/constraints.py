"""Constraints and budgets: whether they hold, and by how much they are missed."""

import math
from dataclasses import dataclass, field
from typing import Any

from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.space.syntax.diagnostics import SourcePosition
from scalesearch.space.syntax.evaluator import ABSENT, EvaluationError, Lookup, compare, evaluate
from scalesearch.space.syntax.expressions import Compare, Expr, Operation, format_expr, keys_of

MIN_VIOLATION = 1e-9  # the slack of what is missed by nothing that a float can tell
FAILED_SLACK = 1.0  # the slack of what cannot be computed, or of a yes/no that is wrong
NEGATED_OPERATOR = {"<=": ">", ">": "<=", "<": ">=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True)
class Constraint:
    """A condition over the answers and costs of a candidate.

    Args:
        expression: resolved; every name in it is an answer's key or a cost.
        position: where it stands, for messages.
    """

    expression: Expr
    position: SourcePosition = field(compare=False, repr=False)

    @property
    def text(self) -> str:
        """The constraint in canonical words."""
        return format_expr(self.expression)

    def referenced_names(self) -> set[str]:
        """Every answer and cost that ``slack`` may look up."""
        return keys_of(self.expression)

    @property
    def costs(self) -> set[str]:
        """The costs among the names."""
        return self.referenced_names() & set(COST_NAMES)

    def is_satisfied(self, lookup: Lookup) -> bool:
        """True if satisfied; also where it names keys that do not exist in this candidate."""
        try:
            return evaluate(self.expression, lookup) is not False
        except EvaluationError:
            return False

    def violation(self, lookup: Lookup) -> float:
        """The amount by which it is violated: <= 0 exactly where it holds.

        ``a <= b`` gives log(a / b) for positive numbers, so that a miss by 10 % weighs the same on
        every scale, and the difference, relative to the larger, for others; ``and`` gives the
        largest slack, ``or`` the smallest.

        Args:
            lookup: name to answer or cost; may raise KeyError for a key that does not exist.
        """
        try:
            slack = _violation(self.expression, lookup)
        except EvaluationError:
            return FAILED_SLACK
        if self.is_satisfied(lookup):
            return min(slack, 0.0) if slack is not None else 0.0
        return max(slack, MIN_VIOLATION) if slack is not None else FAILED_SLACK


def _violation(expr: Expr, lookup: Lookup, negated: bool = False) -> float | None:
    """The slack of ``expr``, or of its opposite; ``None`` where it does not apply."""
    match expr:
        case Compare(_, rest):
            values = [evaluate(operand, lookup) for operand in expr.operands]
            gaps = [_comparison_violation(NEGATED_OPERATOR[op] if negated else op, values[n],
                                          values[n + 1]) for n, (op, _) in enumerate(rest)]
            return _combined_violation(gaps, any_of=negated)
        case Operation("and" | "or" as op, operands):
            return _combined_violation([_violation(operand, lookup, negated)
                                        for operand in operands], any_of=(op == "or") != negated)
        case Operation("not", (operand,)):
            return _violation(operand, lookup, not negated)
        case Operation("if", (then, condition, other)):
            return _violation(then if evaluate(condition, lookup) is True else other, lookup,
                              negated)
    value = evaluate(expr, lookup)
    return None if value is ABSENT else FAILED_SLACK if (
        value is True) == negated else -FAILED_SLACK


def _combined_violation(slacks: list[float | None], any_of: bool) -> float | None:
    """The slack of all together, or of any of them; ``None`` where none applies."""
    applying = [slack for slack in slacks if slack is not None]
    return (min if any_of else max)(applying, default=None)


def _comparison_violation(op: str, left: Any, right: Any) -> float | None:
    """The slack of ``left op right``."""
    truth = compare(op, left, right)
    if truth is ABSENT:
        return None
    if isinstance(left, bool | str | list) or isinstance(right, bool | str | list):
        return -FAILED_SLACK if truth else FAILED_SLACK
    gap = _relative_difference(left, right)
    if op in (">", ">="):
        gap = -gap
    if op == "==":
        return abs(gap)
    if op == "!=":
        return -abs(gap) if truth else FAILED_SLACK
    return gap


def _relative_difference(left: int | float, right: int | float) -> float:
    if left > 0 and right > 0:
        # ints of any size have a logarithm; their quotient may overflow
        return math.log(left) - math.log(right)
    return float((left - right) / max(abs(left), abs(right), 1))
