"""Domains: the legal values of a key; schedules."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from scalesearch.errors import UserError
from scalesearch.spaces.syntax.evaluator import Lookup, evaluate
from scalesearch.spaces.syntax.expressions import Expr, format_expr, format_word
from scalesearch.spaces.syntax.lexer import NO_SPAN, Span
from scalesearch.spaces.syntax.parameters import (
    Constant,
    FloatRange,
    IntRange,
    Parameter,
    format_constant,
)


@dataclass(frozen=True)
class ScheduleCall:
    """``cycle(4)``; ``own`` is a call without arguments."""

    name: str
    arguments: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name + (f"({', '.join(map(str, self.arguments))})" if self.arguments else "")


@dataclass(frozen=True)
class LayerReference:
    """A tie to another schedule.

    Layer ``i`` uses the weights of layer ``index`` of ``path``.
    """

    path: str
    index: Expr

    def layer_index(self, i: int) -> int | None:
        """The index for layer ``i``, or ``None`` if the expression is not a whole number."""
        try:
            value = evaluate(self.index, lambda key: i)
        except ArithmeticError:
            return None
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def __str__(self) -> str:
        return f"{self.path}[{format_expr(self.index)}]"


class Schedule(str):
    """A sharing schedule: its canonical text, together with what the text means.

    Attributes:
        form: a call, a reference, or for a list the layer whose weights each layer uses.
    """

    form: ScheduleCall | LayerReference | tuple[int, ...]

    @classmethod
    def of(cls, form: ScheduleCall | LayerReference | tuple[int, ...]) -> Schedule:
        """The schedule with this form."""
        schedule = cls(f"[{', '.join(map(str, form))}]" if isinstance(form, tuple) else form)
        schedule.form = form
        return schedule


OWN_WEIGHTS = Schedule.of(ScheduleCall("own"))


class InfeasibleValueError(Exception):
    """Raised if a key has no legal value; the candidate is infeasible."""


class ValueSource(Protocol):
    """The values so far, and the source of further ones."""

    def request(self, name: str, parameter: Parameter) -> Any:
        """A legal value of a parameter."""

    def value_of(self, key: str) -> Any:
        """The value of ``key``, or ABSENT."""


@dataclass(frozen=True)
class Domain:
    """Base class of domains; the defaults are those of a constant.

    Attributes:
        span: its characters in the text; not compared.
        parameter_name: the name of its parameter, set by ``with_parameter_name``; not compared.
    """

    span: Span = field(default=NO_SPAN, compare=False, kw_only=True)
    parameter_name: str = field(default="", compare=False, kw_only=True)

    @property
    def parts(self) -> tuple[Domain, ...]:
        """The domains inside this one."""
        return ()

    @property
    def constants(self) -> tuple[Any, ...] | None:
        """All values if they are constants, else ``None``; a single value for a constant."""
        return None

    def with_parameter_name(self, name: str) -> Domain:
        """This domain with the parameter name ``name``."""
        return replace(self, parameter_name=name)

    def resolve(self, assignment: ValueSource) -> Any:
        """The value, from requested parameters.

        Raises InfeasibleValueError if no value exists.
        """
        assert self.constants is not None, f"{self} is not a constant"
        return self.constants[0]

    def parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield every parameter that may be requested, with its name."""
        for part in self.parts:
            yield from part.parameters()

    def count_values(self, assignment: ValueSource) -> int:
        """The number of values, if all values that conditions depend on are known."""
        return 1

    def infer_params(self, value: Any, value_of: Lookup) -> dict[str, Any] | None:
        """The params that result in ``value``, or None.

        ``value_of`` returns the values of other keys.
        """
        constant = self.constants[0] if self.constants else None
        if constant is None or constant != value:
            return None
        return {} if isinstance(value, bool) == isinstance(constant, bool) else None


@dataclass(frozen=True)
class ConstantDomain(Domain):
    """A constant."""

    value: Constant
    quoted: bool = field(default=False, compare=False)

    @property
    def constants(self) -> tuple[Any, ...]:
        return (self.value,)

    def __str__(self) -> str:
        return format_word(self.value) if isinstance(
            self.value, str) else format_constant(self.value)


@dataclass(frozen=True)
class RangeDomain(Domain):
    """A range of numbers."""

    parameter: IntRange | FloatRange

    def resolve(self, assignment: ValueSource) -> Any:
        return assignment.request(self.parameter_name, self.parameter)

    def parameters(self) -> Iterator[tuple[str, Parameter]]:
        yield self.parameter_name, self.parameter

    def count_values(self, assignment: ValueSource) -> int:
        count = self.parameter.count()
        assert count is not None, "a continuous range has no count"
        return count

    def infer_params(self, value: Any, value_of: Lookup) -> dict[str, Any] | None:
        try:
            return {self.parameter_name: self.parameter.coerce(value)} if not isinstance(
                value, str) else None
        except (UserError, ValueError, TypeError):
            return None

    def __str__(self) -> str:
        return str(self.parameter)


@dataclass(frozen=True)
class ListDomain(Domain):
    """A list of constants or of lists, which is a single value.

    ``is_schedule``: the list groups the layers of a schedule.
    """

    values: tuple[Any, ...]
    spans: tuple[Span, ...] = field(default=(), compare=False)
    is_schedule: bool = field(default=False, compare=False)

    @property
    def constants(self) -> tuple[Any, ...]:
        return (Schedule.of(self.values) if self.is_schedule
                else [list(x) if isinstance(x, tuple) else x for x in self.values],)

    def __str__(self) -> str:
        items = (ListDomain(item) if isinstance(item, tuple) else ConstantDomain(item)
                 for item in self.values)
        return f"[{', '.join(map(str, items))}]"


@dataclass(frozen=True)
class CallDomain(Domain):
    """A call with domains as arguments; ``is_load`` marks ``6-6`` or ``4-4-4``."""

    name: str
    arguments: tuple[Domain, ...] = ()
    is_load: bool = field(default=False, compare=False)

    @property
    def parts(self) -> tuple[Domain, ...]:
        return self.arguments

    @property
    def constants(self) -> tuple[Any, ...] | None:
        numbers = [int(argument.value)
                   for argument in self.arguments if isinstance(argument, ConstantDomain)]
        return (Schedule.of(ScheduleCall(self.name, tuple(numbers))),
                ) if len(numbers) == len(self.arguments) else None

    def with_parameter_name(self, name: str) -> Domain:
        names = [name] if len(self.arguments) == 1 else [
            f"{name} #{number}" for number in range(1, len(self.arguments) + 1)]
        pairs = zip(self.arguments, names, strict=True)
        return replace(self, parameter_name=name,
                       arguments=tuple(argument.with_parameter_name(own)
                                       for argument, own in pairs))

    def resolve(self, assignment: ValueSource) -> Any:
        arguments = tuple(argument.resolve(assignment) for argument in self.arguments)
        return Schedule.of(ScheduleCall(self.name, arguments))

    def count_values(self, assignment: ValueSource) -> int:
        return math.prod(argument.count_values(assignment) for argument in self.arguments)

    def infer_params(self, value: Any, value_of: Lookup) -> dict[str, Any] | None:
        call = value.form if isinstance(value, Schedule) else None
        if not isinstance(call, ScheduleCall) or (call.name, len(call.arguments)) != (
                self.name, len(self.arguments)):
            return None
        inner = [own.infer_params(number, value_of)
                 for own, number in zip(self.arguments, call.arguments, strict=True)]
        possible = [params for params in inner if params is not None]
        return dict(ChainMap(*possible)) if len(possible) == len(inner) else None

    def __str__(self) -> str:
        return self.name + (f"({', '.join(map(str, self.arguments))})" if self.arguments else "")


@dataclass(frozen=True)
class LayerReferenceDomain(Domain):
    """A layer of another schedule: ``encoder.attention[2*i + 1]``."""

    path: str
    index: Expr

    @property
    def constants(self) -> tuple[Any, ...]:
        return (Schedule.of(LayerReference(self.path, self.index)),)

    def __str__(self) -> str:
        return f"{self.path}[{format_expr(self.index)}]"


@dataclass(frozen=True)
class InvalidDomain(Domain):
    """Placeholder for a text that could not be read; the rest is still checked."""

    def __str__(self) -> str:
        return "?"
