"""Domains: the legal values of a key; schedules."""

from __future__ import annotations

import math
import re
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from scalesearch.blocks.sizes import is_array, require_single_value
from scalesearch.errors import UserError
from scalesearch.spaces.syntax.expressions import (
    EvaluationError,
    Expr,
    KeyRef,
    Lookup,
    evaluate,
    format_expr,
    format_word,
)
from scalesearch.spaces.syntax.lexer import NO_SPAN, Span
from scalesearch.spaces.syntax.parameters import (
    Choice,
    Constant,
    FloatRange,
    IntRange,
    Parameter,
    format_constant,
)
from scalesearch.terminal import format_count


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


class AbsentValueError(InfeasibleValueError):
    """A value is computed from a key that the candidate does not have."""


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

    def infer_params(self, value: object, value_of: Lookup) -> dict[str, Any] | None:
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

    def infer_params(self, value: object, value_of: Lookup) -> dict[str, Any] | None:
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
            f"{name}[{number}]" for number in range(1, len(self.arguments) + 1)]
        pairs = zip(self.arguments, names, strict=True)
        return replace(self, parameter_name=name,
                       arguments=tuple(argument.with_parameter_name(own)
                                       for argument, own in pairs))

    def resolve(self, assignment: ValueSource) -> Any:
        arguments = tuple(argument.resolve(assignment) for argument in self.arguments)
        return Schedule.of(ScheduleCall(self.name, arguments))

    def count_values(self, assignment: ValueSource) -> int:
        return math.prod(argument.count_values(assignment) for argument in self.arguments)

    def infer_params(self, value: object, value_of: Lookup) -> dict[str, Any] | None:
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

    reference: LayerReference

    @property
    def constants(self) -> tuple[Any, ...]:
        return (Schedule.of(self.reference),)

    def __str__(self) -> str:
        return str(self.reference)


@dataclass(frozen=True)
class InvalidDomain(Domain):
    """Placeholder for a text that could not be read; the rest is still checked."""

    def __str__(self) -> str:
        return "?"


@dataclass(frozen=True)
class ComputedDomain(Domain):
    """``= expression``.

    ``coerce(value, self)`` converts the value to the key's type or raises InfeasibleValueError.
    """

    expression: Expr
    coerce: Callable[[Any, ComputedDomain], Any] = field(
        default=lambda value, _: value, compare=False, repr=False)

    def resolve(self, assignment: ValueSource) -> Any:
        try:
            value = evaluate(self.expression, assignment.value_of)
        except EvaluationError as error:
            raise InfeasibleValueError(f"{self}: {error}") from None
        return self.coerce(value, self)

    def infer_params(self, value: object, value_of: Lookup) -> dict[str, Any] | None:
        try:
            computed = self.coerce(evaluate(self.expression, value_of), self)
        except (EvaluationError, InfeasibleValueError):
            return {}  # depends on a key that is not set
        return {} if computed == value else None

    def __str__(self) -> str:
        return f"= {format_expr(self.expression)}"


@dataclass(frozen=True)
class AlternativesDomain(Domain):
    """Two or more alternatives.

    A parameter selects one, which may have more parameters.
    """

    options: tuple[Domain, ...]

    @property
    def parts(self) -> tuple[Domain, ...]:
        return self.options

    @cached_property
    def constants(self) -> tuple[Any, ...] | None:
        constants = [option.constants for option in self.options]
        return None if None in constants else tuple(
            constant[0] for constant in constants if constant)

    @cached_property
    def selector(self) -> Choice:
        """The parameter that selects an option: constants by value, others by their text."""
        values: list[Any] = [option.constants[0] if option.constants else None
                             for option in self.options]
        return Choice(tuple(
            value if type(value) in (bool, int, float, str) else re.sub(r"\s+", " ", str(option))
            for value, option in zip(values, self.options)))

    def with_parameter_name(self, name: str) -> Domain:
        return replace(self, parameter_name=name,
                       options=tuple(option.with_parameter_name(f"{name} ({option})")
                                     for option in self.options))

    def resolve(self, assignment: ValueSource) -> Any:
        label = assignment.request(self.parameter_name, self.selector)
        if is_array(label):
            return label
        index = self.selector.options.index(label)
        if self.constants is None:
            return self.options[index].resolve(assignment)
        return self.constants[index]

    def parameters(self) -> Iterator[tuple[str, Parameter]]:
        yield self.parameter_name, self.selector
        yield from super().parameters()

    def count_values(self, assignment: ValueSource) -> int:
        return sum(option.count_values(assignment) for option in self.options)

    def infer_params(self, value: object, value_of: Lookup) -> dict[str, Any] | None:
        # Computed alternatives last: with missing keys they match any value.
        pairs = zip(self.selector.options, self.options, strict=True)
        for label, option in sorted(pairs, key=lambda pair: isinstance(pair[1], ComputedDomain)):
            params = option.infer_params(value, value_of)
            if params is not None:
                return {self.parameter_name: label, **params}
        return None

    def __str__(self) -> str:
        return " | ".join(map(_inside, self.options))


@dataclass(frozen=True)
class ConditionalDomain(Domain):
    """``if_true`` if ``condition`` holds, else ``if_false``.

    An ABSENT condition does not hold.
    """

    if_true: Domain
    condition: Expr
    if_false: Domain

    @property
    def parts(self) -> tuple[Domain, ...]:
        return self.if_true, self.if_false

    def with_parameter_name(self, name: str) -> Domain:
        then = self.if_true.with_parameter_name(name)
        has_parameters = any(True for _ in then.parameters())
        else_name = f"{name} (else)" if has_parameters else name
        return replace(self, parameter_name=name, if_true=then,
                       if_false=self.if_false.with_parameter_name(else_name))

    def active_branch(self, assignment: ValueSource) -> Domain:
        """The branch that the condition selects."""
        try:
            holds = evaluate(self.condition, assignment.value_of) is True
            return self.if_true if holds else self.if_false
        except EvaluationError as error:
            raise InfeasibleValueError(
                f"the condition {format_expr(self.condition)}: {error}") from None

    def resolve(self, assignment: ValueSource) -> Any:
        return self.active_branch(assignment).resolve(assignment)

    def count_values(self, assignment: ValueSource) -> int:
        try:
            return self.active_branch(assignment).count_values(assignment)
        except InfeasibleValueError:
            return 1

    def infer_params(self, value: object, value_of: Lookup) -> dict[str, Any] | None:
        params = [branch.infer_params(value, value_of) for branch in self.parts]
        possible = [branch_params for branch_params in params if branch_params is not None]
        return dict(ChainMap(*possible)) if possible else None

    def __str__(self) -> str:
        return (f"{_inside(self.if_true)} if {format_expr(self.condition, 1)} else "
                f"{_inside(self.if_false)}")


@dataclass(frozen=True)
class PerLayerDomain(Domain):
    """A size per layer: a list of domains, or ``ramp(a, b)``.

    Values of a ramp are rounded down to whole numbers, or to three decimals.

    Attributes:
        depth_key: the key of the number of layers; parameters of items beyond it are not requested.
        is_integer: whether values are whole numbers.
    """

    items: tuple[Domain, ...]
    is_ramp: bool = False
    depth_key: str = field(default="", compare=False)
    is_integer: bool = field(default=True, compare=False)

    @property
    def parts(self) -> tuple[Domain, ...]:
        return self.items

    def with_parameter_name(self, name: str) -> Domain:
        layers = ("first", "last") if self.is_ramp else range(1, len(self.items) + 1)
        items = tuple(item.with_parameter_name(f"{name}[{layer}]")
                      for layer, item in zip(layers, self.items))
        return replace(self, parameter_name=name, items=items)

    def resolve(self, assignment: ValueSource) -> Any:
        depth = assignment.value_of(self.depth_key)
        if not (isinstance(depth, int) or is_array(depth)):
            raise InfeasibleValueError(f"{self} needs {self.depth_key}, which has no value")
        layers = require_single_value(depth)
        if self.is_ramp:
            low, high = (item.resolve(assignment) for item in self.items)
            n_steps = max(layers - 1, 1)
            totals = [low * (n_steps - step) + high * step for step in range(layers)]
            values = [total // n_steps if self.is_integer
                      else (total / n_steps).round(3) if is_array(total)
                      else round(total / n_steps, 3) for total in totals]
        elif len(self.items) < layers:
            listed = format_count(len(self.items), "layer")
            raise InfeasibleValueError(f"{self} lists {listed}, and {self.depth_key} is {layers}")
        else:
            values = [item.resolve(assignment) for item in self.items[:layers]]
        are_equal = not any(map(is_array, values)) and len(set(values)) == 1
        return values[0] if are_equal else values

    def count_values(self, assignment: ValueSource) -> int:
        depth = assignment.value_of(self.depth_key)
        uses_all = self.is_ramp or not isinstance(depth, int)
        items = self.items if uses_all else self.items[:depth]
        return math.prod(item.count_values(assignment) for item in items)

    def infer_params(self, value: object, value_of: Lookup) -> dict[str, Any] | None:
        values = value if isinstance(value, list) else [value] * len(self.items)
        ends = [values[0], values[-1]] if self.is_ramp else values
        if len(ends) > len(self.items):
            return None
        params = [item.infer_params(end, value_of) for item, end in zip(self.items, ends)]
        return None if None in params else dict(ChainMap(*params))  # type: ignore[arg-type]

    def __str__(self) -> str:
        items = ", ".join(map(str, self.items))
        return f"ramp({items})" if self.is_ramp else f"[{items}]"


def _inside(domain: Domain) -> str:
    """The text of ``domain`` inside another one.

    A ternary expression has parentheses.
    """
    if isinstance(domain, ComputedDomain):
        return f"= {format_expr(domain.expression, 1)}"
    return str(domain)


def iter_expressions(domain: Domain) -> Iterator[Expr]:
    """Yield every expression over keys inside ``domain``."""
    if isinstance(domain, ComputedDomain):
        yield domain.expression
    if isinstance(domain, ConditionalDomain):
        yield domain.condition
    if isinstance(domain, PerLayerDomain):
        yield KeyRef(domain.depth_key, domain.depth_key, span=domain.span)
    for part in domain.parts:
        yield from iter_expressions(part)


def map_options(domain: Domain, change: Callable[[Domain], Domain],
                test: Callable[[Expr], Expr] = lambda expr: expr) -> Domain:
    """Apply ``change`` to all alternatives, and ``test`` to the conditions."""
    match domain:
        case AlternativesDomain(options):
            return replace(domain,
                           options=tuple(map_options(option, change, test) for option in options))
        case ConditionalDomain(then, condition, other):
            then = map_options(then, change, test)
            condition = test(condition)
            return replace(domain, if_true=then, condition=condition,
                           if_false=map_options(other, change, test))
    return change(domain)


def part_names(domain: Domain) -> list[str]:
    """The names of ``domain`` and of its parts that are sizes of layers or parameters."""
    items = [item.parameter_name for option in iter_options(domain)
             if isinstance(option, PerLayerDomain) for item in option.items]
    return list(dict.fromkeys([*(name for name, _ in domain.parameters()), *items]))


def iter_parts(domain: Domain) -> Iterator[Domain]:
    """Yield ``domain`` and all domains inside it."""
    yield domain
    for part in domain.parts:
        yield from iter_parts(part)


def replace_part(domain: Domain, name: str, part: Domain) -> Domain:
    """``domain`` with ``part`` in the place of its part with the parameter name ``name``.

    If ``part`` is one of the alternatives of this part, the names inside it are kept.
    """
    if domain.parameter_name == name and not any(
            name in part_names(inner) for inner in domain.parts):
        return next((option for option in domain.parts if str(option) == str(part)), part)
    inner = tuple(replace_part(inner, name, part) for inner in domain.parts)
    match domain:
        case AlternativesDomain():
            return replace(domain, options=inner)
        case ConditionalDomain():
            return replace(domain, if_true=inner[0], if_false=inner[1])
        case CallDomain():
            return replace(domain, arguments=inner)
        case PerLayerDomain():
            return replace(domain, items=inner)
    return domain


def iter_options(domain: Domain) -> Iterator[Domain]:
    """Yield the alternatives of ``domain`` in all branches of its conditions."""
    if isinstance(domain, AlternativesDomain | ConditionalDomain):
        for part in domain.parts:
            yield from iter_options(part)
    else:
        yield domain


def whole_numbers(domain: Domain) -> Iterator[int]:
    """Yield every whole number that ``domain`` may be.

    Raises:
        TypeError: it has other values, or is computed.
    """
    for option in iter_options(domain):
        match option:
            case ConstantDomain(int(value)) if not isinstance(value, bool):
                yield value
            case RangeDomain(parameter) if isinstance(parameter.low, int) and isinstance(
                parameter.values(), range):
                yield from parameter.values()  # type: ignore[misc]
            case _:
                raise TypeError(option)
