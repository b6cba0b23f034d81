"""The value of an expression.

A key that does not exist in a candidate (its variant was not chosen) has the value ABSENT. Arithmetic with it is
ABSENT; so is a comparison, or an order between a word and a number (``off <= 0.1``): neither true nor false. ``and``,
``or`` and ``not`` follow Kleene, as in SQL. A condition that comes out ABSENT does not hold; a constraint that comes
out ABSENT does not apply, so it is met.

Numbers may be arrays, one for each candidate of a population; where a comparison holds for some of them only, the
population has to be split (:class:`scalesearch.blocks.sizes.Split`).
"""

import functools
import math
import operator
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from scalesearch.blocks.sizes import is_array, truth
from scalesearch.space.syntax.expressions import Binary, Compare, Expr, Function, IfElse, Logic, Minus, Not, Ref, Value


class Missing(Enum):
    """The type of ABSENT."""

    ABSENT = "absent"


ABSENT = Missing.ABSENT
Lookup = Callable[[str], Any]
LARGEST = 1000  # bits of a whole number, so that every number fits a float
MOST_OF_MANY = 2.0**62  # what a population's numbers stay below


class EvaluationError(ArithmeticError):
    """An expression without a value, such as a division by zero."""


def evaluate(expr: Expr, lookup: Lookup) -> Any:
    """The value of ``expr``, or ABSENT; ``lookup`` may return ABSENT or raise KeyError.

    Raises:
        EvaluationError: it has none (division by zero, logarithm of a negative number, too large).
    """
    match expr:
        case Value(value):
            return value
        case Ref(_, key, guards):
            return follow(key, guards, lookup)
        case Minus(operand):
            value = evaluate(operand, lookup)
            return -value if _number(value) else ABSENT
        case Binary(op, left, right):
            return arithmetic(op, evaluate(left, lookup), evaluate(right, lookup))
        case Compare(first, rest):
            values = [evaluate(operand, lookup) for operand in (first, *(other for _, other in rest))]
            return both([compare(op, values[n], values[n + 1]) for n, (op, _) in enumerate(rest)])
        case Logic(op, operands):
            truths = [evaluate(operand, lookup) for operand in operands]
            return both(truths) if op == "and" else opposite(both([opposite(truth) for truth in truths]))
        case Not(operand):
            return opposite(evaluate(operand, lookup))
        case IfElse(then, condition, other):
            return evaluate(then if evaluate(condition, lookup) is True else other, lookup)
        case Function(name, arguments):
            return call(name, [evaluate(argument, lookup) for argument in arguments])
    raise TypeError(f"not resolved: {expr}")


def follow(key: str, guards: tuple[tuple[str, str], ...], lookup: Lookup) -> Any:
    """The answer ``key`` where every guard holds, else ABSENT."""
    try:
        return lookup(key) if all(lookup(group) == variant for group, variant in guards) else ABSENT
    except KeyError:
        return ABSENT


def both(truths: list[Any]) -> Any:
    """Kleene's ``and``."""
    if any(truth is False for truth in truths):
        return False
    return True if all(truth is True for truth in truths) else ABSENT


def opposite(truth: Any) -> Any:
    """Kleene's ``not``."""
    return not truth if isinstance(truth, bool) else ABSENT


def _number(value: Any) -> bool:
    return is_array(value) or (isinstance(value, int | float) and not isinstance(value, bool))


ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def compare(op: str, left: Any, right: Any) -> Any:
    """``left op right``, or ABSENT."""
    if left is ABSENT or right is ABSENT:
        return ABSENT
    if op in ("==", "!="):
        same = isinstance(left, bool) == isinstance(right, bool) and _comparable(left, right) and truth(left == right)
        return same == (op == "==")
    return truth(ORDER[op](left, right)) if _number(left) and _number(right) else ABSENT


def _comparable(left: Any, right: Any) -> bool:
    """True if ``==`` compares number with number, or no arrays."""
    return not (is_array(left) or is_array(right)) or (_number(left) and _number(right))


ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow,
}  # fmt: skip


def arithmetic(op: str, left: Any, right: Any) -> Any:
    """``left op right``, or ABSENT; a whole quotient is an int (``width / 4``)."""
    if not (_number(left) and _number(right)):
        return ABSENT
    if is_array(left) or is_array(right):
        return _arithmetic_of_many(op, left, right)
    if op == "**" and isinstance(left, int) and abs(right) * left.bit_length() > LARGEST:
        raise EvaluationError(f"{left} ** {right} is too large")
    try:
        if op == "/" and isinstance(left, int) and isinstance(right, int) and left % right == 0:
            return left // right
        value = ARITHMETIC[op](left, right)
    except ZeroDivisionError:
        raise EvaluationError(f"{left} {op} {right} divides by zero") from None
    except OverflowError:
        raise EvaluationError(f"{left} {op} {right} is too large") from None
    return _real(value, f"{left:.6g} {op} {right:.6g}")


def _arithmetic_of_many(op: str, left: Any, right: Any) -> Any:
    """Arithmetic on arrays of a population, whose numbers 64 bits must hold."""
    if op in ("/", "//", "%") and truth(right == 0):
        raise EvaluationError(f"a number {op} 0 divides by zero")
    if op == "/" and truth(left % right == 0):
        op = "//"
    if op in ("*", "**") and truth(abs(ARITHMETIC[op](left * 1.0, right * 1.0)) >= MOST_OF_MANY):
        raise EvaluationError(f"a number {op} another is too large for a population")
    return ARITHMETIC[op](left, right)


def _real(value: Any, text: str) -> Any:
    if isinstance(value, int):
        if value.bit_length() > LARGEST:
            raise EvaluationError(f"{text} is too large")
        return value
    if isinstance(value, complex) or not math.isfinite(value):
        raise EvaluationError(f"{text} is not a number")
    return value


FUNCTION: Mapping[str, Callable[..., Any]] = {
    "min": min, "max": max, "log": math.log, "sqrt": math.sqrt,
    "floor": math.floor, "ceil": math.ceil, "round": round,
}  # fmt: skip


def call(name: str, arguments: list[Any]) -> Any:
    """The function ``name`` of its arguments, or ABSENT."""
    if not all(map(_number, arguments)):
        return ABSENT
    if any(map(is_array, arguments)):
        return _call_of_many(name, arguments)
    text = f"{name}({', '.join(map(str, arguments))})"
    try:
        return _real(
            arguments[0] if len(arguments) == 1 and name in ("min", "max") else FUNCTION[name](*arguments), text
        )
    except (ValueError, OverflowError):
        raise EvaluationError(f"{text} is not a number") from None


def _call_of_many(name: str, arguments: list[Any]) -> Any:
    """The same for a population."""
    import numpy as np

    if name in ("min", "max"):
        return functools.reduce(np.minimum if name == "min" else np.maximum, arguments)
    (x,) = arguments
    if name in ("log", "sqrt") and truth(x <= 0 if name == "log" else x < 0):
        raise EvaluationError(f"{name} of a number below zero is not a number")
    if name in ("log", "sqrt"):
        return np.log(x) if name == "log" else np.sqrt(x)
    rounding: Mapping[str, Callable[..., Any]] = {"floor": np.floor, "ceil": np.ceil, "round": np.round}
    return rounding[name](x).astype(np.int64)
