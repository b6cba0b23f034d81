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
from scalesearch.space.syntax.domains import Asker, Between, Fault, Literal, Spec
from scalesearch.space.syntax.evaluator import EvaluationError, Lookup, evaluate
from scalesearch.space.syntax.expressions import Expr, Ref, write
from scalesearch.space.syntax.parameters import Choice, Parameter


@dataclass(frozen=True)
class Computed(Spec):
    """``= expression``; ``settle(value, self)`` converts its value to the key's type, or raises Fault."""

    expression: Expr
    settle: Callable[[Any, Computed], Any] = field(default=lambda value, _: value, compare=False, repr=False)

    def decide(self, sheet: Asker) -> Any:
        try:
            value = evaluate(self.expression, sheet.lookup)
        except EvaluationError as error:
            raise Fault(f"{self}: {error}") from None
        return self.settle(value, self)

    def retrace(self, value: Any, lookup: Lookup) -> dict[str, Any] | None:
        try:
            comes_to = self.settle(evaluate(self.expression, lookup), self)
        except (EvaluationError, Fault):
            return {}  # of something that is not given
        return {} if comes_to == value else None

    def __str__(self) -> str:
        return f"= {write(self.expression)}"


@dataclass(frozen=True)
class Alternatives(Spec):
    """One of two or more: first which of them, then what that one asks itself."""

    options: tuple[Spec, ...]

    @property
    def parts(self) -> tuple[Spec, ...]:
        return self.options

    @cached_property
    def constants(self) -> tuple[Any, ...] | None:
        each = [option.constants for option in self.options]
        return tuple(constant[0] for constant in each if constant) if None not in each else None

    @cached_property
    def choice(self) -> Choice:
        """The parameter that selects an option: constants by value, others by their text."""
        return Choice(tuple(map(_label, self.options)))

    def named(self, name: str) -> Spec:
        return replace(self, key=name, options=tuple(option.named(f"{name} ({option})") for option in self.options))

    def decide(self, sheet: Asker) -> Any:
        given = sheet.ask(self.key, self.choice)
        if is_array(given):
            return given
        at = self.choice.options.index(given)
        return self.options[at].decide(sheet) if self.constants is None else self.constants[at]

    def dimensions(self) -> Iterator[tuple[str, Parameter]]:
        yield self.key, self.choice
        yield from super().dimensions()

    def count(self, sheet: Asker) -> int:
        return sum(option.count(sheet) for option in self.options)

    def retrace(self, value: Any, lookup: Lookup) -> dict[str, Any] | None:
        # A computed alternative of what is not given may have any value, so it comes after the others.
        pairs = zip(self.choice.options, self.options, strict=True)
        for label, option in sorted(pairs, key=lambda pair: isinstance(pair[1], Computed)):
            if (inner := option.retrace(value, lookup)) is not None:
                return {self.key: label, **inner}
        return None

    def __str__(self) -> str:
        return " | ".join(map(_inside, self.options))


@dataclass(frozen=True)
class Conditional(Spec):
    """``then`` where ``condition`` holds, ``other`` elsewhere; a condition that is ABSENT does not hold."""

    then: Spec
    condition: Expr
    other: Spec

    @property
    def parts(self) -> tuple[Spec, ...]:
        return self.then, self.other

    def named(self, name: str) -> Spec:
        then = self.then.named(name)
        asks = any(True for _ in then.dimensions())
        return replace(self, key=name, then=then, other=self.other.named(f"{name} (else)" if asks else name))

    def chosen(self, sheet: Asker) -> Spec:
        """The domain that counts."""
        try:
            return self.then if evaluate(self.condition, sheet.lookup) is True else self.other
        except EvaluationError as error:
            raise Fault(f"the condition {write(self.condition)}: {error}") from None

    def decide(self, sheet: Asker) -> Any:
        return self.chosen(sheet).decide(sheet)

    def count(self, sheet: Asker) -> int:
        try:
            return self.chosen(sheet).count(sheet)
        except Fault:
            return 1

    def retrace(self, value: Any, lookup: Lookup) -> dict[str, Any] | None:
        inner = [own for side in self.parts if (own := side.retrace(value, lookup)) is not None]
        return dict(ChainMap(*inner)) if inner else None

    def __str__(self) -> str:
        return f"{_inside(self.then)} if {write(self.condition, 1)} else {_inside(self.other)}"


@dataclass(frozen=True)
class PerLayer(Spec):
    """A size of each layer: a list of domains, or ``ramp(a, b)``, from the first layer to the last.

    Attributes:
        depth: the key of the number of layers; items beyond it are not asked.
        whole: False where values are no whole numbers.
    """

    items: tuple[Spec, ...]
    ramp: bool = False
    depth: str = field(default="", compare=False)
    whole: bool = field(default=True, compare=False)

    @property
    def parts(self) -> tuple[Spec, ...]:
        return self.items

    def named(self, name: str) -> Spec:
        items = tuple(item.named(f"{name} #{at}") for at, item in enumerate(self.items, 1))
        return replace(self, key=name, items=items)

    def decide(self, sheet: Asker) -> Any:
        depth = sheet.lookup(self.depth)
        if not (isinstance(depth, int) or is_array(depth)):
            raise Fault(f"{self} needs {self.depth}, which has no value")
        layers = require_single_value(depth)
        if self.ramp:
            low, high = (item.decide(sheet) for item in self.items)
            values = [self._between(low, high, at, max(layers - 1, 1)) for at in range(layers)]
        elif len(self.items) < layers:
            raise Fault(f"{self} lists {len(self.items)} layers, and {self.depth} is {layers}")
        else:
            values = [item.decide(sheet) for item in self.items[:layers]]
        alike = not any(map(is_array, values)) and len(set(values)) == 1
        return values[0] if alike else values

    def _between(self, low: Any, high: Any, at: int, steps: int) -> Any:
        """The value after ``at`` of ``steps`` steps: cut to a whole number, or rounded to three decimals."""
        sum = low * (steps - at) + high * at
        if self.whole:
            return sum // steps
        return (sum / steps).round(3) if is_array(sum) else round(sum / steps, 3)

    def count(self, sheet: Asker) -> int:
        depth = sheet.lookup(self.depth)
        asked = self.items if self.ramp or not isinstance(depth, int) else self.items[:depth]
        return math.prod(item.count(sheet) for item in asked)

    def retrace(self, value: Any, lookup: Lookup) -> dict[str, Any] | None:
        values = value if isinstance(value, list) else [value] * len(self.items)
        ends = [values[0], values[-1]] if self.ramp else values
        if len(ends) > len(self.items):
            return None
        inner = [item.retrace(one, lookup) for item, one in zip(self.items, ends)]
        return None if None in inner else dict(ChainMap(*inner))  # type: ignore[arg-type]

    def __str__(self) -> str:
        items = ", ".join(map(str, self.items))
        return f"ramp({items})" if self.ramp else f"[{items}]"


def _inside(spec: Spec) -> str:
    """The text of ``spec`` beside others; a ternary keeps its parentheses, or its `if` would be theirs."""
    return f"= {write(spec.expression, 1)}" if isinstance(spec, Computed) else str(spec)


def _label(option: Spec) -> Any:
    value = option.constants[0] if option.constants else None
    return value if isinstance(value, int | float | str) else re.sub(r"\s+", " ", str(option))


def expressions(spec: Spec) -> Iterator[Expr]:
    """Every expression over answers inside ``spec``."""
    if isinstance(spec, Computed):
        yield spec.expression
    if isinstance(spec, Conditional):
        yield spec.condition
    if isinstance(spec, PerLayer):
        yield Ref(spec.depth, spec.depth, span=spec.span)
    for part in spec.parts:
        yield from expressions(part)


def each_option(spec: Spec, change: Callable[[Spec], Spec], test: Callable[[Expr], Expr] = lambda expr: expr) -> Spec:
    """``spec`` with ``change`` done to its alternatives on every side of its conditions, and ``test`` to these."""
    match spec:
        case Alternatives(inner):
            return replace(spec, options=tuple(each_option(option, change, test) for option in inner))
        case Conditional(then, condition, other):
            then, condition = each_option(then, change, test), test(condition)
            return replace(spec, then=then, condition=condition, other=each_option(other, change, test))
    return change(spec)


def options(spec: Spec) -> Iterator[Spec]:
    """The alternatives of ``spec`` on every side of its conditions."""
    if isinstance(spec, Alternatives | Conditional):
        for part in spec.parts:
            yield from options(part)
    else:
        yield spec


def whole_numbers(spec: Spec) -> Iterator[int]:
    """Every whole number that ``spec`` may be. Raises TypeError where it may be something else, or is computed."""
    for option in options(spec):
        match option:
            case Literal(int(value)) if not isinstance(value, bool):
                yield value
            case Between(parameter) if isinstance(parameter.low, int) and isinstance(parameter.values(), range):
                yield from parameter.values()  # type: ignore[misc]
            case _:
                raise TypeError(option)
