"""Expressions: their nodes, their text, and the names in them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from scalesearch.spaces.syntax.lexer import NO_SPAN, PATH, Span
from scalesearch.spaces.syntax.parameters import format_constant

# Each function, and how many arguments it takes at most.
FUNCTIONS = {"min": None, "max": None, "log": 1, "sqrt": 1, "floor": 1, "ceil": 1, "round": 1}
RESERVED = ("if", "else", "and", "or", "not", "step")
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
    """A constant: a number, a truth value, or a word."""

    value: Any


@dataclass(frozen=True)
class Name(Expr):
    """A dotted name as written, not yet resolved."""

    text: str


@dataclass(frozen=True)
class KeyRef(Expr):
    """A resolved name: a key or a cost, present if all ``guards`` (key, variant) hold."""

    text: str
    key: str
    guards: tuple[tuple[str, str], ...] = ()


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
    return {key for ref in refs for key in (ref.key, *(guard for guard, _ in ref.guards))}


def format_expr(expr: Expr, outer: int = IF) -> str:
    """The canonical text of ``expr``.

    It has parentheses only if the level ``outer`` needs them.
    """
    text, level = _written(expr)
    return f"({text})" if level < outer else text


def _written(expr: Expr) -> tuple[str, int]:
    match expr:
        case Value(value):
            if isinstance(value, str):
                return format_word(value), 9
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            text = _scaled(value) if is_whole else format_constant(value)
            return text, SIGN if isinstance(value, int | float) and value < 0 else 9
        case Name(text) | KeyRef(text):
            return text, 9
        case Compare(first_, rest):
            return " ".join([format_expr(first_, SUM),
                             *(f"{op} {format_expr(other, SUM)}"
                               for op, other in rest)]), COMPARISON
        case Operation("if", (then, condition, other)):
            return (f"{format_expr(then, OR)} if {format_expr(condition, OR)} else "
                    f"{format_expr(other)}", IF)
        case Operation("not", (operand,)):
            return f"not {format_expr(operand, NOT)}", NOT
        case Operation("-", (operand,)):
            return f"-{format_expr(operand, SIGN)}", SIGN
        case Operation("and" | "or" as op, operands):
            return f" {op} ".join(format_expr(operand, PRECEDENCE[op] + 1)
                                  for operand in operands), PRECEDENCE[op]
        case Operation(op, operands) if op in FUNCTIONS:
            return f"{op}({', '.join(map(format_expr, operands))})", 9
        case Operation(op, (left, right)):
            level = PRECEDENCE[op]
            # 2 ** -1 needs no parentheses
            first, second = (POWER + 1, SIGN) if op == "**" else (level, level + 1)
            gap = "" if level > SUM and Name("i") in (left, right) else " "  # the index 2*i + 1
            return f"{format_expr(left, first)}{gap}{op}{gap}{format_expr(right, second)}", level
    raise TypeError(expr)


def _scaled(value: int) -> str:
    """A whole number with the unit k (from 10k), M or G if that is exact and short."""
    for scale, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if max(scale, 10**4) <= value < 10**15 and value % (scale // 10) == 0:
            whole, tenth = divmod(value // (scale // 10), 10)
            return f"{whole}{f'.{tenth}' if tenth else ''}{letter}"
    return str(value)


def format_word(text: str) -> str:
    """``text`` as a word of the language, in quotes where it needs them."""
    if PATH.fullmatch(text) and text not in {*RESERVED, "yes", "no", "true", "false"}:
        return text
    return f"'{text}'" if "'" not in text else f'"{text}"'
