"""Schedules as values: a call, a list, or a layer of another schedule."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scalesearch.space.syntax.evaluator import evaluate
from scalesearch.space.syntax.expression_parser import parse_expression


@dataclass(frozen=True)
class ScheduleCall:
    """``cycle(4)``; ``own`` is a call without arguments."""

    name: str
    arguments: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name + (f"({', '.join(map(str, self.arguments))})" if self.arguments else "")


@dataclass(frozen=True)
class LayerReference:
    """A tie to another schedule: layer ``i`` uses the weights of layer ``index`` of ``path``."""

    path: str
    index: str

    def layer_index(self, i: int) -> int | None:
        """The index for layer ``i``, or ``None`` if the expression is not a whole number."""
        try:
            value = evaluate(_index(self.index), lambda key: i)
        except ArithmeticError:
            return None
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def __str__(self) -> str:
        return f"{self.path}[{self.index}]"


ScheduleValue = ScheduleCall | LayerReference | tuple[int, ...]


_index = lru_cache(maxsize=256)(parse_expression)  # evaluated for every layer at every depth


def schedule_to_json(value: Any) -> Any:
    """A value as JSON: schedules as canonical text, lists as lists."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value) if isinstance(value, ScheduleCall | LayerReference) else value
