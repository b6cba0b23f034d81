"""What the value of a key may be, as read from its text: constants, ranges, calls, computed values, alternatives."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from scalesearch.space.syntax.expressions import Expr, plain_word, write
from scalesearch.space.syntax.lexer import NO_SPAN, Span
from scalesearch.space.syntax.parameters import Constant, FloatRange, IntRange, say


@dataclass(frozen=True)
class Spec:
    """Anything a key may be given; ``span`` says where it stands in the text and does not count for equality."""

    span: Span = field(default=NO_SPAN, compare=False, kw_only=True)


@dataclass(frozen=True)
class Literal(Spec):
    """A constant."""

    value: Constant
    quoted: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        if isinstance(self.value, str) and not plain_word(self.value):
            return f"'{self.value}'" if "'" not in self.value else f'"{self.value}"'
        return say(self.value)


@dataclass(frozen=True)
class Between(Spec):
    """A range of numbers."""

    range: IntRange | FloatRange

    def __str__(self) -> str:
        return str(self.range)


@dataclass(frozen=True)
class Items(Spec):
    """A list: always a value, never a choice."""

    values: tuple[Constant, ...]
    spans: tuple[Span, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"[{', '.join(str(Literal(value)) for value in self.values)}]"


@dataclass(frozen=True)
class CallOf(Spec):
    """A call whose arguments may be chosen; ``bare`` marks ``6-6`` or ``4-4-4``."""

    name: str
    arguments: tuple["Spec", ...] = ()
    bare: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return self.name + (f"({', '.join(map(str, self.arguments))})" if self.arguments else "")


@dataclass(frozen=True)
class Indexed(Spec):
    """A layer of another schedule: ``encoder.attention[2*i + 1]``."""

    path: str
    index: Expr

    def __str__(self) -> str:
        return f"{self.path}[{write(self.index)}]"


@dataclass(frozen=True)
class Computed(Spec):
    """``= expression``."""

    expression: Expr

    def __str__(self) -> str:
        return f"= {write(self.expression)}"


@dataclass(frozen=True)
class Alternatives(Spec):
    """One of two or more."""

    options: tuple[Spec, ...]

    def __str__(self) -> str:
        return " | ".join(map(_inside, self.options))


@dataclass(frozen=True)
class Conditional(Spec):
    """``then`` is asked only where ``condition`` holds, ``other`` elsewhere."""

    then: Spec
    condition: Expr
    other: Spec

    def __str__(self) -> str:
        return f"{_inside(self.then)} if {write(self.condition, 1)} else {_inside(self.other)}"


def _inside(spec: Spec) -> str:
    """The text of ``spec`` beside others: a ternary keeps its parentheses, or its `if` would be taken for theirs."""
    return f"= {write(spec.expression, 1)}" if isinstance(spec, Computed) else str(spec)


@dataclass(frozen=True)
class Broken(Spec):
    """Stands where the text could not be read, so that the rest of the file is still checked."""

    def __str__(self) -> str:
        return "?"


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
