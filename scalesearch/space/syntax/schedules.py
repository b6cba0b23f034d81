"""Schedules as values: a call, a list, or a layer of another schedule."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scalesearch.space.syntax.evaluator import evaluate
from scalesearch.space.syntax.expression_parser import parse_expression
from scalesearch.space.syntax.expressions import Binary, Expr, Function, Minus, Name, Ref


@dataclass(frozen=True)
class Call:
    """``cycle(4)``; ``own`` is a call without arguments."""

    name: str
    arguments: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name + (f"({', '.join(map(str, self.arguments))})" if self.arguments else "")


@dataclass(frozen=True)
class Reference:
    """A loan: layer ``i`` uses the weights of layer ``at(i)`` of the schedule ``path``."""

    path: str
    index: str

    def at(self, i: int) -> int | None:
        """The index for layer ``i``, or ``None`` where the expression has no whole value there."""
        try:
            value = evaluate(_index(self.index), lambda key: i)
        except ArithmeticError:
            return None
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def __str__(self) -> str:
        return f"{self.path}[{self.index}]"


Schedule = Call | Reference | tuple[int, ...]


@lru_cache(maxsize=256)
def _index(text: str) -> Expr:
    """The expression ``text``, read once: a check asks for every layer at every depth."""
    return _bind(parse_expression(text))


def _bind(expr: Expr) -> Expr:
    """``expr`` with its only variable made a reference."""
    match expr:
        case Name(text):
            return Ref(text, text)
        case Minus(operand):
            return Minus(_bind(operand))
        case Binary(op, left, right):
            return Binary(op, _bind(left), _bind(right))
        case Function(name, arguments):
            return Function(name, tuple(map(_bind, arguments)))
    return expr


def to_json(value: Any) -> Any:
    """A value as an answer holds it: schedules as canonical text, lists as lists."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value) if isinstance(value, Call | Reference) else value
