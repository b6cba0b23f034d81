"""Reads the value of a key: the upper half of the grammar, above expressions."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from scalesearch.spaces.syntax.composite_domains import (
    AlternativesDomain,
    ComputedDomain,
    ConditionalDomain,
    PerLayerDomain,
)
from scalesearch.spaces.syntax.domains import (
    CallDomain,
    ConstantDomain,
    Domain,
    LayerReferenceDomain,
    ListDomain,
    RangeDomain,
    Schedule,
    ScheduleCall,
)
from scalesearch.spaces.syntax.expression_parser import (
    BOOLEAN_WORDS,
    Cursor,
    expect_end,
    parse_expression,
    parse_list,
    parse_nested,
    parse_or,
    parse_ternary,
)
from scalesearch.spaces.syntax.expressions import RESERVED
from scalesearch.spaces.syntax.lexer import Span, ValueSyntaxError
from scalesearch.spaces.syntax.parameters import FloatRange, IntRange, format_constant

MAX_STEPS = 1_000_000

__all__ = ["parse_expression", "parse_value"]


@lru_cache(maxsize=4096)  # defaults, and the few texts that a search reads again and again
def parse_value(text: str) -> Domain:
    """The domain that ``text`` describes. Raises SyntaxProblem."""
    cursor = Cursor(text)
    if cursor.token.type == "end":
        raise ValueSyntaxError("no value is given here", (0, 1), code="bad-syntax")
    spec = _value(cursor)
    expect_end(cursor)
    return spec


def parse_schedule(value: str | list[int]) -> Schedule:
    """Parse a schedule from a canonical text such as ``cycle(4)``, or from a list.

    A schedule that is parsed is returned unchanged.

    Raises:
        ValueError: it is not a schedule, or has alternatives.
    """
    if isinstance(value, Schedule):
        return value
    if isinstance(value, list):
        return Schedule.of(tuple(value))
    match parse_value(value):
        case ConstantDomain(str() as name):
            return Schedule.of(ScheduleCall(name))
        case ListDomain(values):
            return Schedule.of(tuple(int(value) for value in values))
        case CallDomain() | LayerReferenceDomain() as domain if domain.constants:
            schedule: Schedule = domain.constants[0]
            return schedule
    raise ValueError(f"not a schedule: {value}")


def _value(cursor: Cursor) -> Domain:
    start = cursor.token.span
    then = _alternatives(cursor)
    if not cursor.accept("if"):
        return then
    condition = parse_or(cursor)
    if not cursor.accept("else"):
        raise cursor.make_error("expected `else` after the condition",
                                "`2 | 3 if length > 1 else 1`")
    return ConditionalDomain(then, condition, parse_nested(cursor, _value),
                             span=cursor.span_from(start))


def _alternatives(cursor: Cursor) -> Domain:
    start = cursor.token.span
    options = [_item(cursor)]
    while cursor.accept("|"):
        options.append(_item(cursor))
    # by text: 1 and yes are not the same
    unique = tuple({str(option): option for option in options}.values())
    return unique[0] if len(unique) == 1 else AlternativesDomain(
        unique, span=cursor.span_from(start))


def _item(cursor: Cursor) -> Domain:
    start = cursor.token
    if cursor.accept("="):
        expression = parse_ternary(cursor) if start.span[0] == cursor.tokens[0].span[
            0] else parse_or(cursor)
        return ComputedDomain(expression, span=cursor.span_from(start.span))
    if cursor.is_next("["):
        cursor.next()
        items = parse_list(cursor, "]", lambda inner: parse_nested(inner, _alternatives))
        cursor.expect("]", "to close the list")
        return replace(list_domain(items), span=cursor.span_from(start.span))
    if start.type == "number" or cursor.is_next("-"):
        return _numbers(cursor)
    if start.type == "string":
        return ConstantDomain(cursor.next().value, quoted=True, span=start.span)
    if start.type != "word" or start.text in RESERVED:
        raise cursor.make_error("expected a value",
                                "for example `512`, `2 | 4`, `1..8 step 2` or `= 4 * width`")
    return _word(cursor)


def _word(cursor: Cursor) -> Domain:
    word = cursor.next()
    if cursor.accept("["):
        index = parse_ternary(cursor)
        cursor.expect("]", "to close the index")
        return LayerReferenceDomain(word.text, index, span=cursor.span_from(word.span))
    if not cursor.accept("("):
        return ConstantDomain(BOOLEAN_WORDS.get(word.text, word.text), span=word.span)
    arguments = parse_list(cursor, ")", _alternatives)
    cursor.expect(")", "to close the call")
    return CallDomain(word.text, tuple(arguments), span=cursor.span_from(word.span))


def list_domain(items: Sequence[Domain]) -> ListDomain | PerLayerDomain:
    """A list of constants or of lists, or a list of per-layer sizes.

    A list with alternatives inside is a list of per-layer sizes.
    """
    constants = [item for item in items if isinstance(item, ConstantDomain | ListDomain)]
    if len(constants) < len(items):
        return PerLayerDomain(tuple(items))
    values = tuple(item.value if isinstance(item, ConstantDomain) else item.values
                   for item in constants)
    return ListDomain(values, tuple(item.span for item in constants))


def _numbers(cursor: Cursor) -> Domain:
    start = cursor.token.span
    low = _number(cursor)
    if cursor.accept(".."):
        return _range(cursor, low, start)
    groups: list[Domain] = [ConstantDomain(low, span=start)]
    while cursor.is_next("-") and cursor.peek().type == "number" and isinstance(low, int):
        cursor.next()
        groups.append(ConstantDomain(cursor.token.value, span=cursor.next().span))
    if len(groups) == 1:
        return ConstantDomain(low, span=cursor.span_from(start))
    return CallDomain("load", tuple(groups), is_load=True, span=cursor.span_from(start))


def _number(cursor: Cursor) -> int | float:
    sign = -1 if cursor.accept("-") else 1
    if cursor.token.type != "number":
        word = cursor.token.type == "word"
        help = "for a limit that depends on other keys, add a line to `where:`" if word else None
        raise cursor.make_error("expected a number", help)
    value: int | float = sign * cursor.next().value
    return value


def _range(cursor: Cursor, low: int | float, start: Span) -> Domain:
    high = _number(cursor)
    bounds = step_span = log_span = cursor.span_from(start)
    step: int | float | None = None
    log = False
    while cursor.is_next("step", "log"):
        word = cursor.next()
        if word.text == "log":
            log = True
            log_span = word.span
        else:
            step_start = cursor.token.span
            step = _number(cursor)
            step_span = cursor.span_from(step_start)
    if low > high:
        help = f"write `{format_constant(high)}..{format_constant(low)}`"
        raise ValueSyntaxError("this range is empty: its start is above its end", bounds, help,
                               code="bad-range")
    if low == high:
        raise ValueSyntaxError("this range holds a single number", bounds,
                               f"write `{format_constant(low)}`", code="bad-range")
    if log and low <= 0:
        raise ValueSyntaxError("a log range must begin above 0", bounds,
                               "raise its lower end, or leave out `log`", code="bad-range")
    if log and step is not None:
        raise ValueSyntaxError("a range has either a step or log", log_span,
                               "for powers of two, write `64 | 128 | 256`", code="bad-range")
    if step is not None:
        _check_step(low, high, step, step_span)
    span = cursor.span_from(start)
    if all(isinstance(number, int) for number in (low, high, step or 0)):
        return RangeDomain(IntRange(int(low), int(high), int(step or 1), log), span=span)
    return RangeDomain(FloatRange(float(low), float(high), None if step is None else float(step),
                                  log), span=span)


def _check_step(low: int | float, high: int | float, step: int | float, span: Span) -> None:
    if step <= 0:
        raise ValueSyntaxError("a step must be above 0", span, code="bad-range")
    count = (high - low) / step
    if count > MAX_STEPS:
        raise ValueSyntaxError("this step is too small", span,
                               f"at most {MAX_STEPS:,} steps; without a step, any number",
                               code="bad-range")
    if count < 1 - 1e-9:
        smaller = (f"`{format_constant(low)}..{format_constant(high)} step "
                   f"{format_constant(_part(high - low))}`")
        raise ValueSyntaxError(f"a step of {format_constant(step)} is wider than the range", span,
                               f"take a smaller step: {smaller}", code="bad-range")
    if abs(count - round(count)) > 1e-9 * max(1.0, count):
        whole = math.floor(count)
        ends = [_tidy(low + steps * step) for steps in (whole, whole + 1)]
        legal = " or ".join(f"`{format_constant(_tidy(low))}..{format_constant(end)} step "
                            f"{format_constant(_tidy(step))}`" for end in ends)
        raise ValueSyntaxError(f"steps of {format_constant(step)} from {format_constant(low)} do "
                               f"not reach {format_constant(high)}", span, f"write {legal}",
                               code="bad-range")


def _part(width: int | float) -> int | float:
    """A step that divides a range of ``width``: a quarter, or the next larger part."""
    if isinstance(width, float):
        return _tidy(width / 4)
    return next((width // parts for parts in (4, 3, 2) if width % parts == 0), 1)


def _tidy(number: int | float) -> int | float:
    return number if isinstance(number, int) else float(f"{number:.12g}")
