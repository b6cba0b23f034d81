"""Expressions: their nodes, their text, and the names in them."""

import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from scalesearch.blocks.sizes import decide, is_array, is_number
from scalesearch.spaces.syntax.lexer import NO_SPAN, PATH, UNIT_SCALES, Span
from scalesearch.spaces.syntax.parameters import format_constant

# Each function, and how many arguments it takes at most.
FUNCTIONS = {"min": None, "max": None, "log": 1, "sqrt": 1, "floor": 1, "ceil": 1, "round": 1}
RESERVED = ("if", "else", "and", "or", "not", "step")
ATOM = 9
POWER = 8
SIGN = 7
PRODUCT = 6
SUM = 5
COMPARISON = 4
NOT = 3
AND = 2
OR = 1
IF = 0
PRECEDENCE = {"**": POWER, "*": PRODUCT, "/": PRODUCT, "//": PRODUCT, "%": PRODUCT, "+": SUM,
              "-": SUM, "and": AND, "or": OR}


@dataclass(frozen=True)
class Expr:
    """A node of an expression; ``span`` is its place in the text, not compared."""

    span: Span = field(default=NO_SPAN, compare=False, kw_only=True)


@dataclass(frozen=True)
class Value(Expr):
    """A constant: a number, a truth value, or a word.

    ``has_byte_unit`` is True for a number that was written in bytes, such as ``2MB``.
    """

    value: Any
    has_byte_unit: bool = field(default=False, compare=False, kw_only=True)


@dataclass(frozen=True)
class Name(Expr):
    """A dotted name as written, not yet resolved."""

    text: str


@dataclass(frozen=True)
class KeyRef(Expr):
    """A resolved name: a key or a cost, present if all ``guards`` (key, variant) hold.

    With ``layer`` (from 1; -1 is the last one), it is the size of this layer, which is present if
    the number of layers, ``depth_key``, is large enough.
    """

    text: str
    key: str
    guards: tuple[tuple[str, str], ...] = ()
    layer: int | None = None
    depth_key: str = ""


@dataclass(frozen=True)
class Operation(Expr):
    """An operator or function and its operands.

    ``op`` is one of LEVEL, one of FUNCTIONS, ``not``, ``-`` of a single operand, or ``if``, whose
    operands are (then, condition, other).
    """

    op: str
    operands: tuple[Expr, ...]


@dataclass(frozen=True)
class Compare(Expr):
    """``first op other``, or a chain ``a <= b <= c``."""

    first: Expr
    comparisons: tuple[tuple[str, Expr], ...]

    @property
    def operands(self) -> tuple[Expr, ...]:
        """All that are compared, from left to right."""
        return (self.first, *(other for _, other in self.comparisons))


def iter_subexpressions(expr: Expr) -> Iterator[Expr]:
    """``expr`` and everything in it, from left to right."""
    yield expr
    for operand in expr.operands if isinstance(expr, Operation | Compare) else ():
        yield from iter_subexpressions(operand)


def keys_of(expr: Expr) -> set[str]:
    """Every key whose value ``expr`` may need, guards included."""
    refs = [node for node in iter_subexpressions(expr) if isinstance(node, KeyRef)]
    return {key for ref in refs for key in (ref.key, ref.depth_key,
                                            *(guard for guard, _ in ref.guards)) if key}


def format_expr(expr: Expr, outer: int = IF) -> str:
    """The canonical text of ``expr``.

    It has parentheses only if the level ``outer`` needs them.
    """
    level = ATOM
    match expr:
        case Value(value):
            text = format_word(value) if isinstance(value, str) else format_constant(value)
            if isinstance(value, int | float) and value < 0:
                level = SIGN
            for unit in ("P", "T", "G", "M", "k"):  # if exact and short
                scale = UNIT_SCALES[unit]
                if (isinstance(value, int) and max(scale, 10**4) <= value < 10**21
                        and value % (scale // 10) == 0):
                    text = f"{value // (scale // 10) / 10:.12g}{unit}"
                    break
        case Name(text) | KeyRef(text):
            pass
        case Compare(first, comparisons):
            level = COMPARISON
            text = " ".join([format_expr(first, SUM), *(f"{op} {format_expr(other, SUM)}"
                                                        for op, other in comparisons)])
        case Operation("if", (then, condition, other)):
            level = IF
            text = (f"{format_expr(then, OR)} if {format_expr(condition, OR)} else "
                    f"{format_expr(other)}")
        case Operation("not", (operand,)):
            level = NOT
            text = f"not {format_expr(operand, NOT)}"
        case Operation("-", (operand,)):
            level = SIGN
            text = f"-{format_expr(operand, SIGN)}"
        case Operation("and" | "or" as op, operands):
            level = PRECEDENCE[op]
            text = f" {op} ".join(format_expr(operand, level + 1) for operand in operands)
        case Operation(op, operands) if op in FUNCTIONS:
            text = f"{op}({', '.join(map(format_expr, operands))})"
        case Operation(op, (left, right)):
            level = PRECEDENCE[op]
            # 2 ** -1 needs no parentheses
            left_level, right_level = (ATOM, SIGN) if op == "**" else (level, level + 1)
            gap = "" if level > SUM and Name("i") in (left, right) else " "  # the index 2*i + 1
            text = f"{format_expr(left, left_level)}{gap}{op}{gap}{format_expr(right, right_level)}"
        case _:
            raise TypeError(expr)
    return f"({text})" if level < outer else text


def format_byte_limit(value: int) -> str:
    """A limit in bytes, in KiB, MiB or GiB if that is exact; otherwise ``1,234``.

    Limits such as 512k, which are shorter in decimal units, are not converted.
    """
    for unit in ("Gi", "Mi", "Ki"):
        if value >= UNIT_SCALES[unit] and 10 * value % UNIT_SCALES[unit] == 0:
            text = f"{value / UNIT_SCALES[unit]:.12g}{unit}B"
            if len(text) <= len(format_expr(Value(value))):
                return text
    return f"{value:,}"


def format_word(text: str) -> str:
    """``text`` as a word of the language, in quotes where it needs them."""
    if PATH.fullmatch(text) and text not in {*RESERVED, "yes", "no", "true", "false"}:
        return text
    return f"'{text}'" if "'" not in text else f'"{text}"'


class AbsentType(Enum):
    """The type of ABSENT."""

    ABSENT = "absent"


ABSENT = AbsentType.ABSENT
Lookup = Callable[[str], Any]
MAX_BITS = 1000  # bits of a whole number, so that every number fits a float
MAX_POPULATION_VALUE = 2.0**62  # what a population's numbers stay below


class EvaluationError(ArithmeticError):
    """An expression without a value, such as a division by zero."""


def evaluate(expr: Expr, lookup: Lookup) -> Any:
    """The value of ``expr``, or ABSENT.

    ``lookup`` may return ABSENT or raise KeyError.

    Raises:
        EvaluationError: it has none (division by zero, logarithm of a negative number, too large).
    """
    match expr:
        case Value(value):
            return value
        case KeyRef(_, key, guards, layer, depth_key):
            try:
                exists = all(lookup(group) == variant for group, variant in guards)
                value = lookup(key) if exists else ABSENT
                if layer is None:
                    return value
                depth = lookup(depth_key)
            except KeyError:
                return ABSENT
            if not _number(depth) or decide(depth < layer):
                return ABSENT  # the stack has fewer layers
            # a single size is that of every layer
            return value[layer - 1 if layer > 0 else -1] if isinstance(value, list) else value
        case Operation("if", (then, condition, other)):
            return evaluate(then if evaluate(condition, lookup) is True else other, lookup)
        case Operation(op, operands):
            return _apply(op, [evaluate(operand, lookup) for operand in operands])
        case Compare(_, rest):
            values = [evaluate(operand, lookup) for operand in expr.operands]
            return kleene_and([compare(op, values[n], values[n + 1])
                               for n, (op, _) in enumerate(rest)])
        case Name(text):
            return lookup(text)
    raise TypeError(expr)


def kleene_and(truths: list[Any]) -> Any:
    """Kleene's ``and``."""
    if any(truth is False for truth in truths):
        return False
    return True if all(truth is True for truth in truths) else ABSENT


def kleene_not(truth: object) -> Any:
    """Kleene's ``not``."""
    return not truth if isinstance(truth, bool) else ABSENT


def _number(value: object) -> bool:
    return is_array(value) or is_number(value)


def _has_layer_lists(*operands: Any) -> bool:
    """True if an operand is a list of per-layer sizes and no operand is another list."""
    lists = [operand for operand in operands if isinstance(operand, list)]
    return bool(lists) and all(operand and all(map(_number, operand)) for operand in lists)


def _per_layer_operands(operands: list[Any]) -> list[tuple[Any, ...]]:
    """The operands of each layer; a number is used for every layer.

    Raises:
        EvaluationError: lists differ in length.
    """
    lengths = {len(operand) for operand in operands if isinstance(operand, list)}
    if len(lengths) > 1:
        raise EvaluationError(f"lists of {' and '.join(map(str, sorted(lengths)))} layers have no "
                              "common layers")
    n_layers = max(lengths)
    return list(zip(*(operand if isinstance(operand, list) else [operand] * n_layers
                      for operand in operands)))


ORDER_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def compare(op: str, left: object, right: object) -> Any:
    """``left op right``, or ABSENT."""
    if left is ABSENT or right is ABSENT:
        return ABSENT
    if _has_layer_lists(left, right):
        return kleene_and([compare(op, *pair) for pair in _per_layer_operands([left, right])])
    if op in ("==", "!="):
        # An array is only compared with a number or an array of numbers.
        is_comparable = (not (is_array(left) or is_array(right))
                         or (_number(left) and _number(right)))
        same = (isinstance(left, bool) == isinstance(right, bool) and is_comparable
                and decide(left == right))
        return same == (op == "==")
    return decide(ORDER_OPERATORS[op](left, right)) if _number(left) and _number(right) else ABSENT


OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow,
    "min": lambda *numbers: min(numbers), "max": lambda *numbers: max(numbers),
    "log": math.log, "sqrt": math.sqrt, "floor": math.floor, "ceil": math.ceil, "round": round,
}  # fmt: skip


def _apply(op: str, operands: list[Any]) -> Any:
    """``op`` of its operands, or ABSENT; a whole quotient is an int (``width / 4``)."""
    if op == "and":
        return kleene_and(operands)
    if op in ("or", "not"):  # of which `not` has a single operand
        return (kleene_not(kleene_and([kleene_not(truth) for truth in operands])) if op == "or"
                else kleene_not(operands[0]))
    if _has_layer_lists(*operands):
        return [_apply(op, list(operand)) for operand in _per_layer_operands(operands)]
    if not all(map(_number, operands)):
        return ABSENT
    if len(operands) == 1 and op == "-":
        return -operands[0]
    if any(map(is_array, operands)):
        return _apply_to_many(op, operands)
    left = operands[0]
    right = operands[-1]
    if op == "**" and isinstance(left, int) and abs(right) * left.bit_length() > MAX_BITS:
        raise EvaluationError(f"{_shown(op, operands)} is too large")
    try:
        if op == "/" and isinstance(left, int) and isinstance(right, int) and left % right == 0:
            return left // right
        value = OPERATIONS[op](*operands)
    except ZeroDivisionError:
        raise EvaluationError(f"{_shown(op, operands)} divides by zero") from None
    except (ValueError, OverflowError) as error:
        reason = "is too large" if op in PRECEDENCE and isinstance(
            error, OverflowError) else "is not a number"
        raise EvaluationError(f"{_shown(op, operands)} {reason}") from None
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise EvaluationError(f"{_shown(op, operands)} is too large")
    elif isinstance(value, complex) or not math.isfinite(value):
        raise EvaluationError(f"{_shown(op, operands)} is not a number")
    return value


def _shown(op: str, operands: list[Any]) -> str:
    texts = [f"{number:.6g}" for number in operands]
    return f" {op} ".join(texts) if op in PRECEDENCE else f"{op}({', '.join(texts)})"


def _apply_to_many(op: str, operands: list[Any]) -> Any:
    """``op`` on arrays of a population, whose numbers 64 bits must hold."""
    import numpy as np

    left = operands[0]
    right = operands[-1]
    if op in ("min", "max"):
        return functools.reduce(np.minimum if op == "min" else np.maximum, operands)
    if op in ("log", "sqrt"):
        if decide(left <= 0 if op == "log" else left < 0):
            raise EvaluationError(f"{op} of a number below zero is not a number")
        return np.log(left) if op == "log" else np.sqrt(left)
    if op not in PRECEDENCE:
        return getattr(np, op)(left).astype(np.int64)
    if op in ("/", "//", "%") and decide(right == 0):
        raise EvaluationError(f"a number {op} 0 divides by zero")
    if op == "/" and decide(left % right == 0):
        op = "//"
    if op in ("*", "**") and decide(
            abs(OPERATIONS[op](left * 1.0, right * 1.0)) >= MAX_POPULATION_VALUE):
        raise EvaluationError(f"a number {op} another is too large for a population")
    return OPERATIONS[op](left, right)
