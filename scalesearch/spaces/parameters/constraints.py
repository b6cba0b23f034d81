"""Constraints and budgets: whether they hold, and by how much they are violated."""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from scalesearch.blocks.sizes import is_number
from scalesearch.spaces.schema.cost_names import BYTE_COSTS, COST_NAMES
from scalesearch.spaces.syntax.diagnostics import SourcePosition
from scalesearch.spaces.syntax.expressions import (
    ABSENT,
    Compare,
    EvaluationError,
    Expr,
    KeyRef,
    Lookup,
    Name,
    Operation,
    Value,
    compare,
    evaluate,
    format_byte_limit,
    format_expr,
    keys_of,
)

FLIPPED_OPERATORS = {"<=": ">=", "<": ">", ">=": "<=", ">": "<"}
UPPER_BOUND_OPERATORS = ("<=", "<")
MIN_VIOLATION = 1e-9  # of a constraint that is violated by less than the resolution of floats
MAX_VIOLATION = 1.0  # of a value that cannot be computed, or of a wrong yes or no
NEGATED_OPERATOR = {"<=": ">", ">": "<=", "<": ">=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True)
class Constraint:
    """A condition over the values and costs of a candidate.

    Args:
        expression: resolved; every name in it is a key or a cost.
        position: its place in the file, for messages.
    """

    expression: Expr
    position: SourcePosition = field(compare=False, repr=False)

    @property
    def text(self) -> str:
        """The constraint in canonical words."""
        return format_expr(self.expression)

    @property
    def label(self) -> str:
        """The text for tables, in which exact limits in bytes have binary units."""
        return format_expr(_with_byte_units(self.expression))

    def referenced_names(self) -> set[str]:
        """Every key and cost that ``violation`` may look up."""
        return keys_of(self.expression)

    @property
    def costs(self) -> set[str]:
        """The costs among the names."""
        return self.referenced_names() & set(COST_NAMES)

    def is_satisfied(self, lookup: Lookup) -> bool:
        """True if it holds, or if it names keys that do not exist in this candidate."""
        try:
            return evaluate(self.expression, lookup) is not False
        except EvaluationError:
            return False

    def violation(self, lookup: Lookup) -> float:
        """The amount of violation, as in Optuna: <= 0 if the constraint holds.

        ``a <= b`` gives log(a / b) for positive numbers, so that an excess of 10 % counts the same
        on every scale. For other numbers it gives the difference relative to the larger one.
        ``and`` gives the largest violation, ``or`` the smallest.

        Args:
            lookup: name to value or cost; may raise KeyError for a key that does not exist.
        """
        try:
            violation = _violation(self.expression, lookup)
        except EvaluationError:
            return MAX_VIOLATION
        if self.is_satisfied(lookup):
            return min(violation, 0.0) if violation is not None else 0.0
        return max(violation, MIN_VIOLATION) if violation is not None else MAX_VIOLATION


def _violation(expr: Expr, lookup: Lookup, negated: bool = False) -> float | None:
    """The violation of ``expr``, or of its negation; None if a key is missing."""
    match expr:
        case Compare(_, comparisons):
            values = [evaluate(operand, lookup) for operand in expr.operands]
            gaps = [_comparison_violation(NEGATED_OPERATOR[op] if negated else op, values[n],
                                          values[n + 1]) for n, (op, _) in enumerate(comparisons)]
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
    return None if value is ABSENT else MAX_VIOLATION if (
        value is True) == negated else -MAX_VIOLATION


def _combined_violation(violations: list[float | None], any_of: bool) -> float | None:
    """The violation of a conjunction, or with ``any_of`` of a disjunction.

    None if all violations are None.
    """
    present = [violation for violation in violations if violation is not None]
    return (min if any_of else max)(present, default=None)


def _comparison_violation(op: str, left: Any, right: Any) -> float | None:
    """The violation of ``left op right``."""
    truth = compare(op, left, right)
    if truth is ABSENT:
        return None
    if isinstance(left, bool | str | list) or isinstance(right, bool | str | list):
        return -MAX_VIOLATION if truth else MAX_VIOLATION
    if left > 0 and right > 0:
        # ints of any size have a logarithm; their quotient may overflow
        gap = math.log(left) - math.log(right)
    else:
        gap = float((left - right) / max(abs(left), abs(right), 1))
    if op in (">", ">="):
        gap = -gap
    if op == "==":
        return abs(gap)
    if op == "!=":
        return -abs(gap) if truth else MAX_VIOLATION
    return gap


def _with_byte_units(expression: Expr) -> Expr:
    match expression:
        case Operation(name, operands):
            return Operation(name, tuple(map(_with_byte_units, operands)))
        case Compare(first, comparisons) if keys_of(expression) & {*BYTE_COSTS}:
            return Compare(byte_limit(first),
                           tuple((name, byte_limit(other)) for name, other in comparisons))
    return expression


def byte_limit(operand: Expr) -> Expr:
    """A number of bytes that has an exact binary unit, as the name ``10MiB``."""
    if isinstance(operand, Value) and isinstance(operand.value, int):
        text = format_byte_limit(operand.value)
        return Name(text) if text.endswith("B") else operand
    return operand


# -- limits


def split_constraint(constraint: Constraint) -> tuple[Constraint, ...]:
    """Split ``a and b``, or ``a <= b <= c``, into limits that are checked separately.

    ``not a > b`` becomes ``a <= b``.
    """
    match constraint.expression:
        case Operation("and", operands):
            return tuple(limit for operand in operands
                         for limit in split_constraint(replace(constraint, expression=operand)))
        case Compare(first, comparisons) if len(comparisons) > 1:
            pairs = pairwise((("", first), *comparisons))
            return tuple(replace(constraint, expression=Compare(left, (right,)))
                         for (_, left), right in pairs)
        case Operation("not", (Compare(left, ((op, right),)),)):
            negated = Compare(left, ((NEGATED_OPERATOR[op], right),))
            return (replace(constraint, expression=negated),)
        case Operation("not", (Operation("not", (operand,)),)):
            return split_constraint(replace(constraint, expression=operand))
    return (constraint,)


def parse_comparison(constraint: Constraint) -> tuple[str, str, Expr] | None:
    """Cost, operator and other side, if a constraint compares a cost with something."""
    match constraint.expression:
        case Compare(KeyRef(_, name),
                     ((op, other),)) if name in COST_NAMES and op in FLIPPED_OPERATORS:
            return name, op, other
        case Compare(other,
                     ((op, KeyRef(_, name)),)) if name in COST_NAMES and op in FLIPPED_OPERATORS:
            return name, FLIPPED_OPERATORS[op], other
    return None


def parse_numeric_bound(constraint: Constraint) -> tuple[str, str, int | float] | None:
    """Cost, operator and number, if a constraint compares a cost with a number."""
    sides = parse_comparison(constraint)
    if sides is None or keys_of(sides[2]):
        return None
    try:
        number = evaluate(sides[2], dict[str, Any]().__getitem__)
    except EvaluationError:
        return None
    return (*sides[:2], number) if is_number(number) else None
