"""Domains: the legal values of a key, as read from its text, and their choice."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from scalesearch.errors import UserError
from scalesearch.space.syntax.evaluator import Lookup
from scalesearch.space.syntax.expressions import Expr, as_word, write
from scalesearch.space.syntax.lexer import NO_SPAN, Span
from scalesearch.space.syntax.parameters import Constant, FloatRange, IntRange, Parameter, say
from scalesearch.space.syntax.schedules import Call, Reference


class Fault(Exception):
    """Raised where a key has no legal value; the candidate is infeasible."""


class Asker(Protocol):
    """Values decided so far, and the source of the next one."""

    def ask(self, name: str, parameter: Parameter) -> Any:
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
    def parts(self) -> tuple[Spec, ...]:
        """The domains inside this one."""
        return ()

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

    def dimensions(self) -> Iterator[tuple[str, Parameter]]:
        """Every parameter that may be asked, with its name."""
        for part in self.parts:
            yield from part.dimensions()

    def count(self, sheet: Asker) -> int:
        """The number of ways to decide, given all values that conditions need."""
        return 1

    def retrace(self, value: Any, lookup: Lookup) -> dict[str, Any] | None:
        """The parameters that lead to ``value`` beside the values that ``lookup`` gives; None where nothing does."""
        own = self.constants[0] if self.constants else None
        return {} if own is not None and own == value and isinstance(value, bool) == isinstance(own, bool) else None


@dataclass(frozen=True)
class Literal(Spec):
    """A constant."""

    value: Constant
    quoted: bool = field(default=False, compare=False)

    @property
    def constants(self) -> tuple[Any, ...]:
        return (self.value,)

    def __str__(self) -> str:
        return as_word(self.value) if isinstance(self.value, str) else say(self.value)


@dataclass(frozen=True)
class Between(Spec):
    """A range of numbers."""

    range: IntRange | FloatRange

    def decide(self, sheet: Asker) -> Any:
        return sheet.ask(self.key, self.range)

    def dimensions(self) -> Iterator[tuple[str, Parameter]]:
        yield self.key, self.range

    def count(self, sheet: Asker) -> int:
        count = self.range.count()
        assert count is not None, "a continuous range has no count"
        return count

    def retrace(self, value: Any, lookup: Lookup) -> dict[str, Any] | None:
        try:
            return {self.key: self.range.settle(value)} if not isinstance(value, str) else None
        except (UserError, ValueError, TypeError):
            return None

    def __str__(self) -> str:
        return str(self.range)


@dataclass(frozen=True)
class Items(Spec):
    """A list, always one value, of constants or of lists; ``schedule``: it groups the layers of a schedule."""

    values: tuple[Any, ...]
    spans: tuple[Span, ...] = field(default=(), compare=False)
    schedule: bool = field(default=False, compare=False)

    @property
    def constants(self) -> tuple[Any, ...]:
        return (self.values if self.schedule else [list(x) if isinstance(x, tuple) else x for x in self.values],)

    def __str__(self) -> str:
        return f"[{', '.join(str(Items(one) if isinstance(one, tuple) else Literal(one)) for one in self.values)}]"


@dataclass(frozen=True)
class CallOf(Spec):
    """A call whose arguments may be chosen; ``bare`` marks ``6-6`` or ``4-4-4``."""

    name: str
    arguments: tuple[Spec, ...] = ()
    bare: bool = field(default=False, compare=False)

    @property
    def parts(self) -> tuple[Spec, ...]:
        return self.arguments

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

    def count(self, sheet: Asker) -> int:
        return math.prod(argument.count(sheet) for argument in self.arguments)

    def retrace(self, value: Any, lookup: Lookup) -> dict[str, Any] | None:
        if not isinstance(value, Call) or (value.name, len(value.arguments)) != (self.name, len(self.arguments)):
            return None
        inner = [own.retrace(number, lookup) for own, number in zip(self.arguments, value.arguments, strict=True)]
        known = [params for params in inner if params is not None]
        return dict(ChainMap(*known)) if len(known) == len(inner) else None

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
class Broken(Spec):
    """Placeholder for a text that could not be read; the rest is still checked."""

    def __str__(self) -> str:
        return "?"
