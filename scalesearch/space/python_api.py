"""Python forms of a space. They stand for texts of the language, so there is one meaning and one set of errors.

Space.of({"width": Range(256, 512, step=64), "norm": OneOf("post", "pre"), "encoder": {"depth": Range(2, 12)}})
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scalesearch.errors import UserError
from scalesearch.space.schema.yaml_writer import scalar
from scalesearch.space.syntax.parameters import say


@dataclass(frozen=True)
class Range:
    """A number from ``low`` to ``high``, both included."""

    low: int | float
    high: int | float
    step: int | float | None = None
    log: bool = False

    def __str__(self) -> str:
        step = f" step {say(self.step)}" if self.step is not None else ""
        return f"{say(self.low)}..{say(self.high)}{step}" + " log" * self.log


class OneOf:
    """One of several constants, ranges or calls."""

    def __init__(self, *options: Any) -> None:
        self.options = options

    def __str__(self) -> str:
        return " | ".join(write(option) for option in self.options)


class Variants:
    """One of several kinds, each with keys of its own: ``Variants(relu={"hidden": "= 4 * width"}, none={})``."""

    def __init__(self, variants: Mapping[str, Mapping[str, Any]] | None = None, /, **more: Mapping[str, Any]) -> None:
        self.variants = {**(variants or {}), **more}


@dataclass(frozen=True)
class Computed:
    """The value of an expression over other answers."""

    expression: str

    def __str__(self) -> str:
        return f"= {self.expression}"


@dataclass(frozen=True)
class When:
    """``then`` where ``condition`` holds, ``otherwise`` elsewhere."""

    condition: str
    then: Any
    otherwise: Any

    def __str__(self) -> str:
        return f"{write(self.then)} if {self.condition} else {write(self.otherwise)}"


def write(value: Any) -> str:
    """The text of the language that a Python form stands for. Raises UserError for what stands for nothing."""
    if isinstance(value, bool | int | float | Range | OneOf | Computed | When):
        return say(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(write, value))}]"
    if isinstance(value, str):
        return value
    raise UserError(
        f"{value!r} has no meaning in a space; use a number, a text, Range, OneOf, Variants, Computed, When"
    )


def to_yaml(forms: Mapping[str, Any]) -> str:
    """The space file that Python forms stand for."""
    return "\n".join(_lines(forms, "")) + "\n"


def _lines(forms: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in forms.items():
        name = scalar(str(key))
        if isinstance(value, Variants):
            yield from _nested(name, {"one of": value.variants}, indent)
        elif isinstance(value, Mapping):
            yield from _nested(name, value, indent)
        elif key == "where" and isinstance(value, list | tuple):
            yield f"{indent}{name}:" if value else f"{indent}{name}: []"
            yield from (f"{indent}  - {scalar(write(item))}" for item in value)
        elif isinstance(value, list | tuple):
            yield f"{indent}{name}: [{', '.join(scalar(write(item)) for item in value)}]"
        else:
            yield f"{indent}{name}: {scalar(write(value))}"


def _nested(name: str, inside: Mapping[str, Any], indent: str) -> Iterator[str]:
    lines = list(_lines(inside, f"{indent}  "))
    yield from [f"{indent}{name}:", *lines] if lines else [f"{indent}{name}: {{}}"]
