"""Domains: the legal values of a key, as read from its text, and their choice."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from scalesearch.blocks.sizes import many
from scalesearch.errors import UserError
from scalesearch.space.syntax.evaluator import EvaluationError, evaluate
from scalesearch.space.syntax.expressions import Expr, plain_word, write
from scalesearch.space.syntax.lexer import NO_SPAN, Span
from scalesearch.space.syntax.parameters import Choice, Constant, FloatRange, IntRange, Question, say
from scalesearch.space.syntax.schedules import Call, Reference


class Fault(Exception):
    """Raised where a key has no legal value; the candidate is infeasible."""


class Asker(Protocol):
    """Values decided so far, and the source of the next one."""

    def ask(self, name: str, question: Question) -> Any:
        """A legal value of a parameter."""

    def lookup(self, key: str) -> Any:
        """The value of ``key`` as JSON, or ABSENT."""


@dataclass(frozen=True)
class Spec:
    """Base class of domains; the defaults are those of a constant.

    Attributes:
        span: its characters in the text; not compared.
        key: the name of its parameter, given by ``named``; not compared.
    """

    span: Span = field(default=NO_SPAN, compare=False, kw_only=True)
    key: str = field(default="", compare=False, kw_only=True)

    @property
    def constants(self) -> tuple[Any, ...] | None:
        """Every value, where all are constants; one for a constant itself."""
        return None

    def named(self, name: str) -> Spec:
        """This domain with ``name`` for its parameter."""
        return replace(self, key=name)

    def decide(self, sheet: Asker) -> Any:
        """The value, asking for parameters as needed. Raises Fault where there is none."""
        assert self.constants is not None, f"{self} is not a constant"
        return self.constants[0]

    def dimensions(self) -> Iterator[tuple[str, Question]]:
        """Every parameter that may be asked, with its name."""
        yield from ()

    def count(self, sheet: Asker) -> int:
        """The number of ways to decide, given all values that conditions need."""
        return 1

    def retrace(self, value: Any) -> dict[str, Any] | None:
        """The parameters that lead to ``value``; None where nothing does."""
        same = self.constants is not None and self.constants[0] == value
        return {} if same and isinstance(value, bool) == isinstance(self.constants[0], bool) else None  # type: ignore[index]


@dataclass(frozen=True)
class Literal(Spec):
    """A constant."""

    value: Constant
    quoted: bool = field(default=False, compare=False)

    @property
    def constants(self) -> tuple[Any, ...]:
        return (self.value,)

    def __str__(self) -> str:
        if isinstance(self.value, str) and not plain_word(self.value):
            return f"'{self.value}'" if "'" not in self.value else f'"{self.value}"'
        return say(self.value)


@dataclass(frozen=True)
class Between(Spec):
    """A range of numbers."""

    range: IntRange | FloatRange

    def decide(self, sheet: Asker) -> Any:
        return sheet.ask(self.key, self.range)

    def dimensions(self) -> Iterator[tuple[str, Question]]:
        yield self.key, self.range

    def count(self, sheet: Asker) -> int:
        count = self.range.count()
        assert count is not None, "a continuous range has no count"
        return count

    def retrace(self, value: Any) -> dict[str, Any] | None:
        try:
            return {self.key: self.range.settle(value)} if not isinstance(value, str) else None
        except (UserError, ValueError, TypeError):
            return None

    def __str__(self) -> str:
        return str(self.range)


@dataclass(frozen=True)
class Items(Spec):
    """A list, always one value; ``schedule``: it groups the layers of a schedule."""

    values: tuple[Constant, ...]
    spans: tuple[Span, ...] = field(default=(), compare=False)
    schedule: bool = field(default=False, compare=False)

    @property
    def constants(self) -> tuple[Any, ...]:
        return (self.values if self.schedule else list(self.values),)

    def __str__(self) -> str:
        return f"[{', '.join(str(Literal(value)) for value in self.values)}]"


@dataclass(frozen=True)
class CallOf(Spec):
    """A call whose arguments may be chosen; ``bare`` marks ``6-6`` or ``4-4-4``."""

    name: str
    arguments: tuple[Spec, ...] = ()
    bare: bool = field(default=False, compare=False)

    @property
    def constants(self) -> tuple[Any, ...] | None:
        numbers = [int(argument.value) for argument in self.arguments if isinstance(argument, Literal)]
        return (Call(self.name, tuple(numbers)),) if len(numbers) == len(self.arguments) else None

    def named(self, name: str) -> Spec:
        names = [name] if len(self.arguments) == 1 else [f"{name} #{at + 1}" for at in range(len(self.arguments))]
        pairs = zip(self.arguments, names, strict=True)
        return replace(self, key=name, arguments=tuple(argument.named(own) for argument, own in pairs))

    def decide(self, sheet: Asker) -> Any:
        return Call(self.name, tuple(argument.decide(sheet) for argument in self.arguments))

    def dimensions(self) -> Iterator[tuple[str, Question]]:
        for argument in self.arguments:
            yield from argument.dimensions()

    def count(self, sheet: Asker) -> int:
        return math.prod(argument.count(sheet) for argument in self.arguments)

    def retrace(self, value: Any) -> dict[str, Any] | None:
        if not isinstance(value, Call) or (value.name, len(value.arguments)) != (self.name, len(self.arguments)):
            return None
        inner = [own.retrace(number) for own, number in zip(self.arguments, value.arguments, strict=True)]
        return _merged(inner) if None not in inner else None

    def __str__(self) -> str:
        return self.name + (f"({', '.join(map(str, self.arguments))})" if self.arguments else "")


@dataclass(frozen=True)
class Indexed(Spec):
    """A layer of another schedule: ``encoder.attention[2*i + 1]``."""

    path: str
    index: Expr

    @property
    def constants(self) -> tuple[Any, ...]:
        return (Reference(self.path, write(self.index)),)

    def __str__(self) -> str:
        return f"{self.path}[{write(self.index)}]"


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

    def retrace(self, value: Any) -> dict[str, Any] | None:
        return {}

    def __str__(self) -> str:
        return f"= {write(self.expression)}"


@dataclass(frozen=True)
class Alternatives(Spec):
    """One of two or more: first which of them, then what that one asks itself."""

    options: tuple[Spec, ...]

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
        if many(given):
            return given
        at = self.choice.options.index(given)
        return self.options[at].decide(sheet) if self.constants is None else self.constants[at]

    def dimensions(self) -> Iterator[tuple[str, Question]]:
        yield self.key, self.choice
        for option in self.options:
            yield from option.dimensions()

    def count(self, sheet: Asker) -> int:
        return sum(option.count(sheet) for option in self.options)

    def retrace(self, value: Any) -> dict[str, Any] | None:
        # A computed alternative may have any value, so it is taken only where no other alternative is.
        pairs = zip(self.choice.options, self.options, strict=True)
        for label, option in sorted(pairs, key=lambda pair: isinstance(pair[1], Computed)):
            if (inner := option.retrace(value)) is not None:
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

    def dimensions(self) -> Iterator[tuple[str, Question]]:
        yield from self.then.dimensions()
        yield from self.other.dimensions()

    def count(self, sheet: Asker) -> int:
        try:
            return self.chosen(sheet).count(sheet)
        except Fault:
            return 1

    def retrace(self, value: Any) -> dict[str, Any] | None:
        inner = [own for side in (self.then, self.other) if (own := side.retrace(value)) is not None]
        return _merged(inner) if inner else None

    def __str__(self) -> str:
        return f"{_inside(self.then)} if {write(self.condition, 1)} else {_inside(self.other)}"


@dataclass(frozen=True)
class Broken(Spec):
    """Placeholder for a text that could not be read; the rest is still checked."""

    def __str__(self) -> str:
        return "?"


def _inside(spec: Spec) -> str:
    """The text of ``spec`` beside others; a ternary keeps its parentheses, or its `if` would be theirs."""
    return f"= {write(spec.expression, 1)}" if isinstance(spec, Computed) else str(spec)


def _label(option: Spec) -> Any:
    value = option.constants[0] if option.constants else None
    return value if isinstance(value, int | float | str) else re.sub(r"\s+", " ", str(option))


def _merged(parts: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    return {name: value for part in parts if part for name, value in part.items()}


def expressions(spec: Spec) -> Iterator[Expr]:
    """Every expression over answers inside ``spec``."""
    match spec:
        case Computed(expression):
            yield expression
        case Alternatives(options) | CallOf(_, options):
            for option in options:
                yield from expressions(option)
        case Conditional(then, condition, other):
            yield from expressions(then)
            yield condition
            yield from expressions(other)


def rewrite(spec: Spec, change: Callable[[Expr, bool], Expr]) -> Spec:
    """``spec`` with ``change(expression, is_condition)`` done to every expression over answers."""
    match spec:
        case Computed(expression):
            return replace(spec, expression=change(expression, False))
        case Alternatives(options):
            return replace(spec, options=tuple(rewrite(option, change) for option in options))
        case Conditional(then, condition, other):
            return replace(
                spec, then=rewrite(then, change), condition=change(condition, True), other=rewrite(other, change)
            )
    return spec


def options(spec: Spec) -> Iterator[Spec]:
    """The alternatives of ``spec`` on every side of its conditions."""
    match spec:
        case Alternatives(inner):
            for option in inner:
                yield from options(option)
        case Conditional(then, _, other):
            yield from options(then)
            yield from options(other)
        case _:
            yield spec
