"""Expressions: what they are made of, how they are written, which names they mention."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from scalesearch.space.syntax.lexer import NO_SPAN, Span
from scalesearch.space.syntax.parameters import say

FUNCTIONS = {
    "min": (1, None),
    "max": (1, None),
    "log": (1, 1),
    "sqrt": (1, 1),
    "floor": (1, 1),
    "ceil": (1, 1),
    "round": (1, 1),
}

POWER, SIGN, PRODUCT, SUM, COMPARISON, NOT, AND, OR, IF = 8, 7, 6, 5, 4, 3, 2, 1, 0
LEVEL = {"**": POWER, "*": PRODUCT, "/": PRODUCT, "//": PRODUCT, "%": PRODUCT, "+": SUM, "-": SUM, "and": AND, "or": OR}


@dataclass(frozen=True)
class Expr:
    """A node of an expression; ``span`` is its place in the text, not compared."""

    span: Span = field(default=NO_SPAN, compare=False, kw_only=True)


@dataclass(frozen=True)
class Value(Expr):
    """A constant: a number, a truth value, or a word."""

    value: Any
    quoted: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Name(Expr):
    """A dotted name as written, not yet resolved."""

    text: str


@dataclass(frozen=True)
class Ref(Expr):
    """A resolved name: an answer or a cost, present while all ``guards`` (key, variant) hold."""

    text: str
    key: str
    guards: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Minus(Expr):
    """The negative of a number."""

    operand: Expr


@dataclass(frozen=True)
class Binary(Expr):
    """Arithmetic between two numbers."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Compare(Expr):
    """``first op other``, or a chain ``a <= b <= c``."""

    first: Expr
    rest: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True)
class Logic(Expr):
    """``and`` or ``or`` between two or more."""

    op: str
    operands: tuple[Expr, ...]


@dataclass(frozen=True)
class Not(Expr):
    """The opposite."""

    operand: Expr


@dataclass(frozen=True)
class IfElse(Expr):
    """``then if condition else other``."""

    then: Expr
    condition: Expr
    other: Expr


@dataclass(frozen=True)
class Function(Expr):
    """A function of FUNCTIONS with its arguments."""

    name: str
    arguments: tuple[Expr, ...]


def children(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside ``expr``."""
    match expr:
        case Minus(operand) | Not(operand):
            return (operand,)
        case Binary(_, left, right):
            return (left, right)
        case Compare(first, rest):
            return (first, *(other for _, other in rest))
        case Logic(_, operands) | Function(_, operands):
            return operands
        case IfElse(then, condition, other):
            return (then, condition, other)
    return ()


def references(expr: Expr) -> Iterator[Ref]:
    """Every reference in ``expr``, from left to right."""
    if isinstance(expr, Ref):
        yield expr
    for child in children(expr):
        yield from references(child)


def keys_of(expr: Expr) -> set[str]:
    """Every key whose value ``expr`` may need, guards included."""
    return {key for ref in references(expr) for key in (ref.key, *(guard for guard, _ in ref.guards))}


def write(expr: Expr, outer: int = IF) -> str:
    """The canonical text of ``expr``, with parentheses only where something of level ``outer`` needs them."""
    text, level = _written(expr)
    return f"({text})" if level < outer else text


def _written(expr: Expr) -> tuple[str, int]:
    match expr:
        case Value(value):
            return (_constant(value), SIGN if isinstance(value, int | float) and value < 0 else 9)
        case Name(text) | Ref(text):
            return text, 9
        case Minus(operand):
            return f"-{write(operand, SIGN)}", SIGN
        case Binary(op, left, right):
            level = LEVEL[op]
            first, second = (POWER + 1, SIGN) if op == "**" else (level, level + 1)  # 2 ** -1 needs no parentheses
            gap = "" if level > SUM and Name("i") in (left, right) else " "  # the index 2*i + 1
            return f"{write(left, first)}{gap}{op}{gap}{write(right, second)}", level
        case Compare(first_, rest):
            parts = [write(first_, SUM), *(f"{op} {write(other, SUM)}" for op, other in rest)]
            return " ".join(parts), COMPARISON
        case Not(operand):
            return f"not {write(operand, NOT)}", NOT
        case Logic(op, operands):
            return f" {op} ".join(write(operand, LEVEL[op] + 1) for operand in operands), LEVEL[op]
        case IfElse(then, condition, other):
            return f"{write(then, OR)} if {write(condition, OR)} else {write(other)}", IF
        case Function(name, arguments):
            return f"{name}({', '.join(write(argument) for argument in arguments)})", 9
    raise TypeError(expr)


def _constant(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return _scaled(value)
    if isinstance(value, str) and not plain_word(value):
        return f"'{value}'" if "'" not in value else f'"{value}"'
    return say(value)


def _scaled(value: int) -> str:
    """A whole number, in millions or thousands of millions where that is exact and short."""
    for scale, letter in ((10**9, "G"), (10**6, "M")):
        if scale <= value < 10**15 and value % (scale // 10) == 0:
            whole, tenth = divmod(value // (scale // 10), 10)
            return f"{whole}{f'.{tenth}' if tenth else ''}{letter}"
    return str(value)


def plain_word(text: str) -> bool:
    """True if ``text`` is a word of an expression without quotes."""
    from scalesearch.space.syntax.lexer import PATH

    return bool(PATH.fullmatch(text)) and text not in {*RESERVED, "yes", "no", "true", "false"}


RESERVED = ("if", "else", "and", "or", "not", "step")
