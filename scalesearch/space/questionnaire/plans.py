"""How the value of a leaf comes about: fixed, asked, computed, or a mixture; made once from what was read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scalesearch.blocks.sizes import many, truth
from scalesearch.errors import UserError
from scalesearch.space.questionnaire.context import Asker, Fault
from scalesearch.space.questionnaire.evaluator import ABSENT, EvaluationError, evaluate
from scalesearch.space.questionnaire.schedules import Call, Reference, parse_schedule
from scalesearch.space.schema.type_check import describe, out_of_bounds
from scalesearch.space.schema.types import Field
from scalesearch.space.syntax.expressions import Expr, write
from scalesearch.space.syntax.parameters import Choice, Question, say


def to_json(value: Any) -> Any:
    """A value as an answer holds it: schedules as canonical text, lists as lists."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value) if isinstance(value, Call | Reference) else value


@dataclass(frozen=True)
class Plan:
    """Where a value comes from."""

    def decide(self, sheet: Asker) -> Any:
        """The value, asking whatever is needed. Raises Fault where it has none."""
        raise NotImplementedError

    def dimensions(self) -> Iterator[tuple[str, Question]]:
        """Everything that could be asked."""
        yield from ()

    def count(self, sheet: Asker) -> int:
        """How many ways there are to decide, given answers to all that conditions need."""
        return 1

    def retrace(self, value: Any) -> dict[str, Any] | None:
        """The answers that lead to the JSON ``value``; ``None`` where nothing does."""
        return {}


@dataclass(frozen=True)
class Fixed(Plan):
    """A constant."""

    value: Any

    def decide(self, sheet: Asker) -> Any:
        return self.value

    def retrace(self, value: Any) -> dict[str, Any] | None:
        return {} if to_json(self.value) == value else None


@dataclass(frozen=True)
class Pick(Plan):
    """One of several constants; ``values`` belong to the options one by one."""

    name: str
    question: Choice
    values: tuple[Any, ...]

    def decide(self, sheet: Asker) -> Any:
        given = sheet.ask(self.name, self.question)
        return given if many(given) else self.values[self.question.options.index(given)]

    def dimensions(self) -> Iterator[tuple[str, Question]]:
        yield self.name, self.question

    def count(self, sheet: Asker) -> int:
        return self.question.count()

    def retrace(self, value: Any) -> dict[str, Any] | None:
        for option, own in zip(self.question.options, self.values, strict=True):
            if to_json(own) == value and isinstance(own, bool) == isinstance(value, bool):
                return {self.name: option}
        return None


@dataclass(frozen=True)
class Ask(Plan):
    """A number of a range."""

    name: str
    question: Question

    def decide(self, sheet: Asker) -> Any:
        return sheet.ask(self.name, self.question)

    def dimensions(self) -> Iterator[tuple[str, Question]]:
        yield self.name, self.question

    def count(self, sheet: Asker) -> int:
        count = self.question.count()
        assert count is not None, "a continuous range has no count"
        return count

    def retrace(self, value: Any) -> dict[str, Any] | None:
        try:
            return {self.name: self.question.settle(value)} if not isinstance(value, str) else None
        except (UserError, ValueError, TypeError):
            return None


@dataclass(frozen=True)
class Fork(Plan):
    """First which alternative, then what it asks itself."""

    name: str
    question: Choice
    plans: tuple[Plan, ...]

    def decide(self, sheet: Asker) -> Any:
        return self.plans[self.question.options.index(sheet.ask(self.name, self.question))].decide(sheet)

    def dimensions(self) -> Iterator[tuple[str, Question]]:
        yield self.name, self.question
        for plan in self.plans:
            yield from plan.dimensions()

    def count(self, sheet: Asker) -> int:
        return sum(plan.count(sheet) for plan in self.plans)

    def retrace(self, value: Any) -> dict[str, Any] | None:
        # A computed alternative might be any value, so it is the answer only where no other alternative is.
        pairs = list(zip(self.question.options, self.plans, strict=True))
        for option, plan in sorted(pairs, key=lambda pair: isinstance(pair[1], Compute)):
            if (inner := plan.retrace(value)) is not None:
                return {self.name: option, **inner}
        return None


@dataclass(frozen=True)
class CallPlan(Plan):
    """A call with arguments to choose."""

    name: str
    arguments: tuple[Plan, ...]

    def decide(self, sheet: Asker) -> Any:
        return Call(self.name, tuple(plan.decide(sheet) for plan in self.arguments))

    def dimensions(self) -> Iterator[tuple[str, Question]]:
        for plan in self.arguments:
            yield from plan.dimensions()

    def count(self, sheet: Asker) -> int:
        product = 1
        for plan in self.arguments:
            product *= plan.count(sheet)
        return product

    def retrace(self, value: Any) -> dict[str, Any] | None:
        call = parse_schedule(value) if isinstance(value, str) else None
        if not isinstance(call, Call) or call.name != self.name or len(call.arguments) != len(self.arguments):
            return None
        found: dict[str, Any] = {}
        for plan, argument in zip(self.arguments, call.arguments, strict=True):
            inner = plan.retrace(argument)
            if inner is None:
                return None
            found |= inner
        return found


@dataclass(frozen=True)
class Compute(Plan):
    """The value of an expression, as the field takes it."""

    expression: Expr
    field: Field

    def decide(self, sheet: Asker) -> Any:
        try:
            value = evaluate(self.expression, sheet.lookup)
        except EvaluationError as error:
            raise Fault(f"= {write(self.expression)}: {error}") from None
        return self.settle(value)

    def settle(self, value: Any) -> Any:
        """``value`` in the type of the field. Raises Fault where it does not fit."""
        text = f"= {write(self.expression)}"
        if value is ABSENT:
            raise Fault(f"{text} needs a key that does not exist here")
        if isinstance(value, str) and value in self.field.also:
            return value
        if self.field.kind in ("size", "number"):
            return self._number(value, text)
        if self.field.kind == "schedule":
            return parse_schedule(value)
        if self.field.kind == "flag" and isinstance(value, bool):
            return value
        if self.field.kind == "word" and say(value) in self.field.words:
            return say(value)
        if self.field.kind in ("list", "text"):
            return value
        raise Fault(f"{text} is {say(value)}, where {describe(self.field)} is due")

    def _number(self, value: Any, text: str) -> Any:
        if isinstance(value, str | bool):
            raise Fault(f"{text} is {say(value)}, where {describe(self.field)} is due")
        if many(value):
            return self._numbers(value, text)
        if self.field.kind == "size" and value != int(value):
            raise Fault(f"{text} is {say(value)}, which is not a whole number")
        number: int | float = int(value) if self.field.kind == "size" else float(value)
        reason = out_of_bounds(number, self.field)
        if reason:
            raise Fault(f"{text}: {reason}")
        return number


    def _numbers(self, value: Any, text: str) -> Any:
        """The same for a population, of which all have a fault or none."""
        whole = self.field.kind == "size"
        if whole and truth(value != value.astype("int64")):
            raise Fault(f"{text} is not a whole number")
        low, high = self.field.low, self.field.high
        low = 1 if low is None and whole else low
        if (low is not None and truth(value < low)) or (high is not None and truth(value > high)):
            raise Fault(f"{text}: out of bounds")
        if self.field.among and not truth(sum(value == legal for legal in self.field.among)):
            raise Fault(f"{text}: not legal")
        return value.astype("int64" if whole else "float64")


@dataclass(frozen=True)
class Switch(Plan):
    """One plan where a condition holds, another elsewhere."""

    condition: Expr
    then: Plan
    other: Plan

    def chosen(self, sheet: Asker) -> Plan:
        """The plan that counts. A condition that is ABSENT or has no value does not hold."""
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
        found = [inner for plan in (self.then, self.other) if (inner := plan.retrace(value)) is not None]
        return {name: answer for inner in found for name, answer in inner.items()} if found else None


@dataclass(frozen=True)
class Nothing(Plan):
    """What could not be read; such a space is never asked."""
