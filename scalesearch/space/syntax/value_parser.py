"""Reads the value of a key: the upper half of the grammar, above expressions."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from scalesearch.space.syntax.choices import Alternatives, Computed, Conditional, PerLayer
from scalesearch.space.syntax.domains import Between, CallOf, Indexed, Items, Literal, Spec
from scalesearch.space.syntax.expression_parser import (
    TRUTH,
    Cursor,
    deeper,
    disjunction,
    finish,
    listed,
    parse_expression,
    ternary,
)
from scalesearch.space.syntax.expressions import RESERVED, write
from scalesearch.space.syntax.lexer import Span, SyntaxProblem
from scalesearch.space.syntax.parameters import FloatRange, IntRange, say
from scalesearch.space.syntax.schedules import Call, Reference, Schedule

MOST_STEPS = 1_000_000

__all__ = ["parse_expression", "parse_value"]


@lru_cache(maxsize=4096)  # defaults, and the few texts that a search reads again and again
def parse_value(text: str) -> Spec:
    """The domain that ``text`` describes. Raises SyntaxProblem."""
    cursor = Cursor(text)
    if cursor.token.kind == "end":
        raise SyntaxProblem("no value is given here", (0, 1), code="bad-syntax")
    spec = _value(cursor)
    finish(cursor)
    return spec


def parse_schedule(text: str) -> Schedule:
    """The schedule that a canonical text such as ``cycle(4)`` stands for.

    Raises:
        ValueError: it is none, or leaves something to choose.
    """
    match parse_value(text):
        case Literal(str() as name):
            return Call(name)
        case Items(values):
            return tuple(int(value) for value in values)
        case Indexed(path, index):
            return Reference(path, write(index))
        case CallOf(name, arguments):
            numbers = [argument.value for argument in arguments if isinstance(argument, Literal)]
            if len(numbers) == len(arguments):
                return Call(name, tuple(int(number) for number in numbers))
    raise ValueError(f"not a schedule: {text}")


def _value(cursor: Cursor) -> Spec:
    start = cursor.token.span
    then = _alternatives(cursor)
    if not cursor.take("if"):
        return then
    condition = disjunction(cursor)
    if not cursor.take("else"):
        raise cursor.wrong("expected `else` after the condition", "`2 | 3 if length > 1 else 1`")
    return Conditional(then, condition, deeper(cursor, _value), span=cursor.since(start))


def _alternatives(cursor: Cursor) -> Spec:
    start = cursor.token.span
    options = [_item(cursor)]
    while cursor.take("|"):
        options.append(_item(cursor))
    unique = tuple({str(option): option for option in options}.values())  # by text: 1 and yes are not the same
    return unique[0] if len(unique) == 1 else Alternatives(unique, span=cursor.since(start))


def _item(cursor: Cursor) -> Spec:
    start = cursor.token
    if cursor.take("="):
        expression = ternary(cursor) if start.span[0] == cursor.tokens[0].span[0] else disjunction(cursor)
        return Computed(expression, span=cursor.since(start.span))
    if cursor.sees("["):
        return _list(cursor)
    if start.kind == "number" or cursor.sees("-"):
        return _numbers(cursor)
    if start.kind == "string":
        return Literal(cursor.next().value, quoted=True, span=start.span)
    if start.kind != "word" or start.text in RESERVED:
        raise cursor.wrong("expected a value", "for example `512`, `2 | 4`, `1..8 step 2` or `= 4 * width`")
    return _word(cursor)


def _word(cursor: Cursor) -> Spec:
    word = cursor.next()
    if cursor.take("["):
        index = ternary(cursor)
        cursor.expect("]", "to close the index")
        return Indexed(word.text, index, span=cursor.since(word.span))
    if not cursor.take("("):
        return Literal(TRUTH.get(word.text, word.text), span=word.span)
    arguments = listed(cursor, ")", _alternatives)
    cursor.expect(")", "to close the call")
    return CallOf(word.text, tuple(arguments), span=cursor.since(word.span))


def _list(cursor: Cursor) -> Spec:
    start = cursor.next().span
    items = listed(cursor, "]", lambda inner: deeper(inner, _alternatives))
    cursor.expect("]", "to close the list")
    return replace(list_of(items), span=cursor.since(start))


def list_of(items: Sequence[Spec]) -> Items | PerLayer:
    """A list of constants, or of such lists; where there is something to choose, of each layer's sizes."""
    constants = [item for item in items if isinstance(item, Literal | Items)]
    if len(constants) < len(items):
        return PerLayer(tuple(items))
    values = tuple(item.value if isinstance(item, Literal) else item.values for item in constants)
    return Items(values, tuple(item.span for item in constants))


def _numbers(cursor: Cursor) -> Spec:
    start = cursor.token.span
    low = _number(cursor)
    if cursor.take(".."):
        return _range(cursor, low, start)
    groups: list[Spec] = [Literal(low, span=start)]
    while cursor.sees("-") and cursor.ahead().kind == "number" and isinstance(low, int):
        cursor.next()
        groups.append(Literal(cursor.token.value, span=cursor.next().span))
    if len(groups) == 1:
        return Literal(low, span=cursor.since(start))
    return CallOf("load", tuple(groups), bare=True, span=cursor.since(start))


def _number(cursor: Cursor) -> int | float:
    sign = -1 if cursor.take("-") else 1
    if cursor.token.kind != "number":
        word = cursor.token.kind == "word"
        help = "for a limit that depends on other answers, add a line to `where:`" if word else None
        raise cursor.wrong("expected a number", help)
    value: int | float = sign * cursor.next().value
    return value


def _range(cursor: Cursor, low: int | float, start: Span) -> Spec:
    high = _number(cursor)
    bounds = step_span = log_span = cursor.since(start)
    step: int | float | None = None
    log = False
    while cursor.sees("step", "log"):
        word = cursor.next()
        if word.text == "log":
            log, log_span = True, word.span
        else:
            step_start = cursor.token.span
            step = _number(cursor)
            step_span = cursor.since(step_start)
    if low > high:
        help = f"write `{say(high)}..{say(low)}`"
        raise SyntaxProblem("this range is empty: its start is above its end", bounds, help, code="bad-range")
    if low == high:
        raise SyntaxProblem("this range holds a single number", bounds, f"write `{say(low)}`", code="bad-range")
    if log and low <= 0:
        raise SyntaxProblem("a log range must begin above 0", bounds, "raise its lower end, or leave out `log`",
                            code="bad-range")
    if log and step is not None:
        raise SyntaxProblem("a range has either a step or log", log_span, "for powers of two, write `64 | 128 | 256`",
                            code="bad-range")
    if step is not None:
        _check_step(low, high, step, step_span)
    span = cursor.since(start)
    if all(isinstance(number, int) for number in (low, high, step or 0)):
        return Between(IntRange(int(low), int(high), int(step or 1), log), span=span)
    return Between(FloatRange(float(low), float(high), None if step is None else float(step), log), span=span)


def _check_step(low: int | float, high: int | float, step: int | float, span: Span) -> None:
    if step <= 0:
        raise SyntaxProblem("a step must be above 0", span, code="bad-range")
    count = (high - low) / step
    if count > MOST_STEPS:
        raise SyntaxProblem("this step is too small", span, f"at most {MOST_STEPS:,} steps; without a step, any number",
                            code="bad-range")
    if count < 1 - 1e-9:
        smaller = f"`{say(low)}..{say(high)} step {say(_part(high - low))}`"
        raise SyntaxProblem(f"a step of {say(step)} is wider than the range", span, f"take a smaller step: {smaller}",
                            code="bad-range")
    if abs(count - round(count)) > 1e-9 * max(1.0, count):
        whole = math.floor(count)
        ends = [_tidy(low + steps * step) for steps in (whole, whole + 1)]
        legal = " or ".join(f"`{say(_tidy(low))}..{say(end)} step {say(_tidy(step))}`" for end in ends)
        raise SyntaxProblem(f"steps of {say(step)} from {say(low)} do not reach {say(high)}", span, f"write {legal}",
                            code="bad-range")


def _part(width: int | float) -> int | float:
    """A step that divides a range of ``width``: a quarter, or the next larger whole part."""
    if isinstance(width, float):
        return _tidy(width / 4)
    return next((width // parts for parts in (4, 3, 2) if width % parts == 0), 1)


def _tidy(number: int | float) -> int | float:
    return number if isinstance(number, int) else float(f"{number:.12g}")
