"""Domains that depend on something: computed values, alternatives, conditions; and walks over all domains."""

from __future__ import annotations

import math
import re
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from scalesearch.blocks.sizes import is_array, require_single_value
from scalesearch.space.syntax.domains import ConstantDomain, Domain, InfeasibleValueError, RangeDomain, ValueSource
from scalesearch.space.syntax.evaluator import EvaluationError, Lookup, evaluate
from scalesearch.space.syntax.expressions import Expr, KeyRef, format_expr
from scalesearch.space.syntax.parameters import Choice, Parameter


@dataclass(frozen=True)
class ComputedDomain(Domain):
    """``= expression``; ``settle(value, self)`` converts its value to the key's type, or raises Fault."""

    expression: Expr
    coerce: Callable[[Any, ComputedDomain], Any] = field(
        default=lambda value, _: value, compare=False, repr=False)

    def resolve(self, assignment: ValueSource) -> Any:
        try:
            value = evaluate(self.expression, assignment.value_of)
        except EvaluationError as error:
            raise InfeasibleValueError(f"{self}: {error}") from None
        return self.coerce(value, self)

    def infer_params(self, value: Any, value_of: Lookup) -> dict[str, Any] | None:
        try:
            comes_to = self.coerce(evaluate(self.expression, value_of), self)
        except (EvaluationError, InfeasibleValueError):
            return {}  # of something that is not given
        return {} if comes_to == value else None

    def __str__(self) -> str:
        return f"= {format_expr(self.expression)}"


@dataclass(frozen=True)
class AlternativesDomain(Domain):
    """One of two or more: first which of them, then what that one asks itself."""

    options: tuple[Domain, ...]

    @property
    def parts(self) -> tuple[Domain, ...]:
        return self.options

    @cached_property
    def constants(self) -> tuple[Any, ...] | None:
        each = [option.constants for option in self.options]
        return tuple(constant[0] for constant in each if constant) if None not in each else None

    @cached_property
    def selector(self) -> Choice:
        """The parameter that selects an option: constants by value, others by their text."""
        return Choice(tuple(map(_label, self.options)))

    def with_parameter_name(self, name: str) -> Domain:
        return replace(self, parameter_name=name,
                       options=tuple(option.with_parameter_name(f"{name} ({option})")
                                     for option in self.options))

    def resolve(self, assignment: ValueSource) -> Any:
        given = assignment.request(self.parameter_name, self.selector)
        if is_array(given):
            return given
        at = self.selector.options.index(given)
        return self.options[at].resolve(assignment) if self.constants is None else self.constants[
            at]

    def parameters(self) -> Iterator[tuple[str, Parameter]]:
        yield self.parameter_name, self.selector
        yield from super().parameters()

    def count_values(self, assignment: ValueSource) -> int:
        return sum(option.count_values(assignment) for option in self.options)

    def infer_params(self, value: Any, value_of: Lookup) -> dict[str, Any] | None:
        # A computed alternative of what is not given may have any value, so it comes after the
        # others.
        pairs = zip(self.selector.options, self.options, strict=True)
        for label, option in sorted(pairs, key=lambda pair: isinstance(pair[1], ComputedDomain)):
            if (inner := option.infer_params(value, value_of)) is not None:
                return {self.parameter_name: label, **inner}
        return None

    def __str__(self) -> str:
        return " | ".join(map(_inside, self.options))


@dataclass(frozen=True)
class ConditionalDomain(Domain):
    """``if_true`` where ``condition`` holds, ``if_false`` elsewhere; a condition that is ABSENT does not hold."""

    if_true: Domain
    condition: Expr
    if_false: Domain

    @property
    def parts(self) -> tuple[Domain, ...]:
        return self.if_true, self.if_false

    def with_parameter_name(self, name: str) -> Domain:
        then = self.if_true.with_parameter_name(name)
        asks = any(True for _ in then.parameters())
        return replace(
            self, parameter_name=name, if_true=then,
            if_false=self.if_false.with_parameter_name(f"{name} (else)" if asks else name))

    def active_branch(self, sheet: ValueSource) -> Domain:
        """The domain that counts."""
        try:
            return self.if_true if evaluate(self.condition,
                                            sheet.value_of) is True else self.if_false
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

    def infer_params(self, value: Any, value_of: Lookup) -> dict[str, Any] | None:
        inner = [own
                 for side in self.parts if (own := side.infer_params(value, value_of)) is not None]
        return dict(ChainMap(*inner)) if inner else None

    def __str__(self) -> str:
        return (f"{_inside(self.if_true)} if {format_expr(self.condition, 1)} else "
                f"{_inside(self.if_false)}")


@dataclass(frozen=True)
class PerLayerDomain(Domain):
    """A size of each layer: a list of domains, or ``ramp(a, b)``, from the first layer to the last.

    Attributes:
        depth_key: the key of the number of layers; items beyond it are not asked.
        is_integer: False where values are no whole numbers.
    """

    items: tuple[Domain, ...]
    is_ramp: bool = False
    depth_key: str = field(default="", compare=False)
    is_integer: bool = field(default=True, compare=False)

    @property
    def parts(self) -> tuple[Domain, ...]:
        return self.items

    def with_parameter_name(self, name: str) -> Domain:
        items = tuple(item.with_parameter_name(f"{name} #{at}")
                      for at, item in enumerate(self.items, 1))
        return replace(self, parameter_name=name, items=items)

    def resolve(self, assignment: ValueSource) -> Any:
        depth = assignment.value_of(self.depth_key)
        if not (isinstance(depth, int) or is_array(depth)):
            raise InfeasibleValueError(f"{self} needs {self.depth_key}, which has no value")
        layers = require_single_value(depth)
        if self.is_ramp:
            low, high = (item.resolve(assignment) for item in self.items)
            values = [self._between(low, high, at, max(layers - 1, 1)) for at in range(layers)]
        elif len(self.items) < layers:
            raise InfeasibleValueError(f"{self} lists {len(self.items)} layers, and "
                                       f"{self.depth_key} is {layers}")
        else:
            values = [item.resolve(assignment) for item in self.items[:layers]]
        alike = not any(map(is_array, values)) and len(set(values)) == 1
        return values[0] if alike else values

    def _between(self, low: Any, high: Any, at: int, steps: int) -> Any:
        """The value after ``at`` of ``steps`` steps: cut to a whole number, or rounded to three decimals."""
        sum = low * (steps - at) + high * at
        if self.is_integer:
            return sum // steps
        return (sum / steps).round(3) if is_array(sum) else round(sum / steps, 3)

    def count_values(self, assignment: ValueSource) -> int:
        depth = assignment.value_of(self.depth_key)
        asked = self.items if self.is_ramp or not isinstance(depth, int) else self.items[:depth]
        return math.prod(item.count_values(assignment) for item in asked)

    def infer_params(self, value: Any, value_of: Lookup) -> dict[str, Any] | None:
        values = value if isinstance(value, list) else [value] * len(self.items)
        ends = [values[0], values[-1]] if self.is_ramp else values
        if len(ends) > len(self.items):
            return None
        inner = [item.infer_params(one, value_of) for item, one in zip(self.items, ends)]
        return None if None in inner else dict(ChainMap(*inner))  # type: ignore[arg-type]

    def __str__(self) -> str:
        items = ", ".join(map(str, self.items))
        return f"ramp({items})" if self.is_ramp else f"[{items}]"


def _inside(spec: Domain) -> str:
    """The text of ``spec`` beside others; a ternary keeps its parentheses, or its `if` would be theirs."""
    return f"= {format_expr(spec.expression, 1)}" if isinstance(spec, ComputedDomain) else str(spec)


def _label(option: Domain) -> Any:
    value = option.constants[0] if option.constants else None
    return value if isinstance(value, int | float | str) else re.sub(r"\s+", " ", str(option))


def iter_expressions(spec: Domain) -> Iterator[Expr]:
    """Every expression over answers inside ``spec``."""
    if isinstance(spec, ComputedDomain):
        yield spec.expression
    if isinstance(spec, ConditionalDomain):
        yield spec.condition
    if isinstance(spec, PerLayerDomain):
        yield KeyRef(spec.depth_key, spec.depth_key, span=spec.span)
    for part in spec.parts:
        yield from iter_expressions(part)


def map_options(spec: Domain, change: Callable[[Domain], Domain],
                test: Callable[[Expr], Expr] = lambda expr: expr) -> Domain:
    """``spec`` with ``change`` done to its alternatives on every side of its conditions, and ``test`` to these."""
    match spec:
        case AlternativesDomain(inner):
            return replace(spec,
                           options=tuple(map_options(option, change, test) for option in inner))
        case ConditionalDomain(then, condition, other):
            then = map_options(then, change, test)
            condition = test(condition)
            return replace(spec, if_true=then, condition=condition,
                           if_false=map_options(other, change, test))
    return change(spec)


def iter_options(spec: Domain) -> Iterator[Domain]:
    """The alternatives of ``spec`` on every side of its conditions."""
    if isinstance(spec, AlternativesDomain | ConditionalDomain):
        for part in spec.parts:
            yield from iter_options(part)
    else:
        yield spec


def whole_numbers(spec: Domain) -> Iterator[int]:
    """Every whole number that ``spec`` may be.

    Raises TypeError where it may be something else, or is computed.
    """
    for option in iter_options(spec):
        match option:
            case ConstantDomain(int(value)) if not isinstance(value, bool):
                yield value
            case RangeDomain(parameter) if isinstance(parameter.low, int) and isinstance(
                parameter.values(), range):
                yield from parameter.values()  # type: ignore[misc]
            case _:
                raise TypeError(option)
