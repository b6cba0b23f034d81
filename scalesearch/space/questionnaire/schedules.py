"""Schedules as values: a call, a list, or a layer of another schedule."""

from dataclasses import dataclass
from functools import lru_cache

from scalesearch.space.questionnaire.evaluator import evaluate
from scalesearch.space.schema.types import Field
from scalesearch.space.syntax.domains import CallOf, Indexed, Items, Literal
from scalesearch.space.syntax.expressions import Binary, Expr, Function, Minus, Name, Ref, write
from scalesearch.space.syntax.value_parser import parse_expression, parse_value


@dataclass(frozen=True)
class Call:
    """``cycle(4)``; ``own`` is a call without arguments."""

    name: str
    arguments: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name + (f"({', '.join(map(str, self.arguments))})" if self.arguments else "")


@dataclass(frozen=True)
class Reference:
    """Layer ``i`` uses the weights of layer ``at(i)`` of the schedule ``path``; ``index`` is canonical text."""

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


def parse_schedule(text: str) -> Schedule:
    """The schedule that a canonical text such as ``cycle(4)`` stands for.

    Raises:
        ValueError: it is none, or leaves something to choose.
    """
    match parse_value(text):
        case Literal(str() as name):
            return Call(name)
        case Items(values):
            return tuple(int(value) for value in values)
        case Indexed(path, index):
            return Reference(path, write(index))
        case CallOf(name, arguments):
            numbers = [argument.value for argument in arguments if isinstance(argument, Literal)]
            if len(numbers) == len(arguments):
                return Call(name, tuple(int(number) for number in numbers))
    raise ValueError(f"not a schedule: {text}")


def misfit(schedule: Schedule, field: Field, depth: int, other_depth: int | None) -> str | None:
    """Why ``schedule`` does not fit a stack of ``depth`` layers, or ``None``.

    Args:
        other_depth: for a Reference, the depth of the stack it points to, if known.
    """
    if isinstance(schedule, Call):
        return field.calls[schedule.name].fits(schedule.arguments, depth)
    if isinstance(schedule, Reference):
        return _outside(schedule, depth, other_depth)
    if len(schedule) != depth:
        return f"the list names {len(schedule)} layers, and the stack has {depth}"
    return None


def _outside(schedule: Reference, depth: int, other_depth: int | None) -> str | None:
    for layer in range(depth):
        index = schedule.at(layer)
        if index is None:
            return f"layer {layer} has no whole number as its index"
        if index < 0 or (other_depth is not None and index >= other_depth):
            layers = f"0 to {other_depth - 1}" if other_depth is not None else "from 0"
            return f"layer {layer} points to layer {index} of {schedule.path}, which has layers {layers}"
    return None
