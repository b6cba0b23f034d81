"""The grammar of scalars (values, calls, conditions) and of expressions.

value       := alternatives [ "if" condition "else" value ]
alternatives:= item ( "|" item )*
item        := constant | range | call | list | path "[" index "]" | "=" expression
range       := number ".." number [ "step" number ] [ "log" ]
call        := word "(" alternatives ( "," alternatives )* ")"  |  number ( "-" number )+
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from scalesearch.spaces.syntax.diagnostics import format_alternatives, suggest_match
from scalesearch.spaces.syntax.domains import (
    AlternativesDomain,
    CallDomain,
    ComputedDomain,
    ConditionalDomain,
    ConstantDomain,
    Domain,
    LayerReference,
    LayerReferenceDomain,
    ListDomain,
    PerLayerDomain,
    RangeDomain,
    Schedule,
    ScheduleCall,
)
from scalesearch.spaces.syntax.expressions import (
    FUNCTIONS,
    RESERVED,
    Compare,
    Expr,
    Name,
    Operation,
    Value,
)
from scalesearch.spaces.syntax.lexer import (
    DECIMAL_COMMA,
    GROUPED_NUMBER,
    NUMBER_FORMS,
    Span,
    Token,
    ValueSyntaxError,
    split_layer,
    tokenize,
)
from scalesearch.spaces.syntax.parameters import FloatRange, IntRange, format_constant

COMMA_HELP = 'inside { } and [ ], quote a value that contains a comma: `"runs(1, 11)"`'
# parentheses in parentheses; both limits keep a hostile file from exhausting the stack
MAX_NESTING = 25
MAX_OPERATORS = 100  # in one expression
MAX_STEPS = 1_000_000
BOOLEAN_WORDS = {"yes": True, "no": False, "true": True, "false": False}
EXAMPLE_VALUES = "for example `512`, `2 | 4`, `1..8 step 2` or `= 4 * width`"
COMPARISONS = ("<=", ">=", "==", "!=", "<", ">")
ParsedT = TypeVar("ParsedT")


class Cursor:
    """Walks over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.index = 0
        self.depth = 0
        self.n_operators = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.index]

    def next(self) -> Token:
        """Return the next token, and step over it."""
        token = self.token
        self.index += token.type != "end"
        return token

    def is_next(self, *texts: str) -> bool:
        """Whether the next token is one of these operators or keywords."""
        return self.token.type in ("op", "word") and self.token.text in texts

    def accept(self, text: str) -> bool:
        """Step over ``text`` if it is the next token."""
        return self.is_next(text) and bool(self.next())

    def expect(self, text: str, why: str) -> None:
        """Step over ``text``. Raises ValueSyntaxError if it is not the next token."""
        if not self.accept(text):
            is_split = text == ")" and self.token.type == "end"
            raise self.make_error(f"expected `{text}` {why}",
                                  COMMA_HELP if is_split else self.missing_and_help())

    def make_error(self, message: str, help: str | None = None) -> ValueSyntaxError:
        """An error at the next token."""
        token = f", found `{self.token.text}`" if self.token.type != "end" else ", found the end"
        return ValueSyntaxError(message + (token if message.startswith("expected") else ""),
                                self.token.span, help, code="bad-syntax")

    def missing_and_help(self) -> str | None:
        """A help line if the next token begins another comparison."""
        if self.token.type == "word" and self.token.text not in RESERVED and (
                self.tokens[self.index + 1].text in COMPARISONS):
            return f"write `and` before `{self.token.text}`"
        return None

    def grouped_number_help(self, has_alternatives: bool = False) -> str | None:
        """How the number before the next token is written, if its digits are in groups."""
        start = self.tokens[self.index - 1].span[0]
        if not self.index or not (match := GROUPED_NUMBER.match(self.text, start)):
            return None
        number = re.sub("[,.]", "_", match[0])
        short = re.sub("(?:_000){1,5}$", lambda zeros: "kMGTP"[len(zeros[0]) // 4 - 1], number)
        forms = dict.fromkeys([short, number])
        if has_alternatives and "," in match[0]:
            forms[match[0].replace(",", " | ")] = None
        return f"write {format_alternatives(forms)}"

    def decimal_comma_help(self, has_alternatives: bool = False) -> str | None:
        """How the number around the next token is written, if that is a decimal comma."""
        if not self.index or self.token.text != ",":
            return None
        text = self.text[self.tokens[self.index - 1].span[0]:self.tokens[self.index + 1].span[1]]
        separators = (".", " | ") if has_alternatives else (".",)
        forms = format_alternatives(text.replace(",", separator) for separator in separators)
        return (f"numbers have a decimal point: write {forms}" if DECIMAL_COMMA.match(text)
                else None)

    def number_help(self) -> str | None:
        """How a number is written, if the next token looks like a part of one."""
        previous = self.tokens[self.index - 1]
        if not self.index or previous.type != "number":
            return None
        if self.is_next("to", "until", "through"):
            return f"a range is written `{previous.text}..{self.tokens[self.index + 1].text}`"
        return NUMBER_FORMS if self.token.type == "word" else None

    def percent_help(self, index: int) -> str | None:
        """How a percentage is written, if the token ``index`` is the sign of one."""
        if index < 1 or self.tokens[index].text != "%":
            return None
        number, _, following = self.tokens[index - 1:index + 2]
        is_percentage = number.type == "number" and following.type in ("op", "end") and (
            following.text != "(")
        return f"write `{format_constant(_rounded(number.value / 100))}`" if is_percentage else None

    def span_from(self, start: Span) -> Span:
        """The characters from ``start`` to the last token that was read."""
        return (start[0], self.tokens[max(self.index - 1, 0)].span[1])


@lru_cache(maxsize=4096)  # defaults, and the few texts that a search reads again and again
def parse_value(text: str) -> Domain:
    """The domain that ``text`` describes. Raises ValueSyntaxError."""
    cursor = Cursor(text)
    if cursor.token.type == "end":
        raise ValueSyntaxError("no value is given here", (0, 1), EXAMPLE_VALUES, code="bad-syntax")
    domain = _value(cursor)
    if cursor.token.type == "end":
        return domain
    if cursor.is_next("="):
        raise cursor.make_error("`=` belongs at the beginning of a computed value",
                                "to compare, write `==`")
    if cursor.is_next("+", "*", "/", "//", "**", "%", *COMPARISONS, "and", "or"):
        help = cursor.percent_help(cursor.index) or (
            f"a computed value begins with `=`: `= {cursor.text.strip()}`")
        raise cursor.make_error(f"`{cursor.token.text}` does not belong in a constant", help)
    if "=" in text[cursor.token.span[0]:]:
        help = "changes of several keys are separated by `;`"
    else:
        help = (cursor.grouped_number_help(has_alternatives=True) or cursor.number_help()
                or cursor.decimal_comma_help(has_alternatives=True)
                or "alternatives are separated by `|`")
    raise cursor.make_error(f"unexpected `{cursor.token.text}`", help)


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
            return Schedule.of(tuple(int(layer) for layer in values))
        case CallDomain() | LayerReferenceDomain() as domain if domain.constants:
            schedule: Schedule = domain.constants[0]
            return schedule
    raise ValueError(f"not a schedule: {value}")


def parse_expression(text: str) -> Expr:
    """The expression that ``text`` is. Raises ValueSyntaxError."""
    cursor = Cursor(text)
    if cursor.token.type == "end":
        raise cursor.make_error("expected an expression")
    expr = _ternary(cursor)
    if cursor.token.type == "end":
        return expr
    if cursor.is_next("="):
        operator = {"=<": "<=", "=>": ">="}.get(text[cursor.token.span[0] :][:2], "==")
        raise cursor.make_error("`=` does not compare", f"write `{operator}`")
    if cursor.is_next("|"):
        raise cursor.make_error("`|` does not belong in an expression", "write `or`")
    operator = {",": "and"}.get(cursor.token.text, cursor.token.text.lower())
    help = cursor.grouped_number_help() or cursor.decimal_comma_help() or (
        f"write `{operator}`" if operator in ("and", "or", "not")
        else cursor.missing_and_help() or cursor.number_help())
    raise cursor.make_error(f"unexpected `{cursor.token.text}`", help)


# -- expressions


def _nested(cursor: Cursor, parse: Callable[[Cursor], ParsedT]) -> ParsedT:
    """``parse(cursor)`` one level further down, up to a limit."""
    cursor.depth += 1
    if cursor.depth > MAX_NESTING:
        raise cursor.make_error("this is nested too deeply", f"at most {MAX_NESTING} levels")
    parsed = parse(cursor)
    cursor.depth -= 1
    return parsed


def _ternary(cursor: Cursor) -> Expr:
    """``x if condition else y``."""
    start = cursor.token.span
    expr = _or(cursor)
    if not cursor.accept("if"):
        return expr
    condition = _or(cursor)
    cursor.expect("else", "after the condition")
    other = _nested(cursor, _ternary)
    return Operation("if", (expr, condition, other), span=cursor.span_from(start))


def _or(cursor: Cursor) -> Expr:
    return _logic(cursor, "or", lambda inner: _logic(inner, "and", _negation))


def _logic(cursor: Cursor, op: str, operand: Callable[[Cursor], Expr]) -> Expr:
    start = cursor.token.span
    operands = [operand(cursor)]
    while cursor.accept(op):
        operands.append(operand(cursor))
    return operands[0] if len(operands) == 1 else Operation(
        op, tuple(operands), span=cursor.span_from(start))


def _negation(cursor: Cursor) -> Expr:
    """``not a``, or a comparison, or the value of an arithmetic expression."""
    start = cursor.token.span
    if cursor.accept("not"):
        return Operation("not", (_nested(cursor, _negation),), span=cursor.span_from(start))
    first = _sum(cursor)
    comparisons: list[tuple[str, Expr]] = []
    while cursor.is_next(*COMPARISONS):
        comparisons.append((cursor.next().text, _sum(cursor)))
    return Compare(first, tuple(comparisons),
                   span=cursor.span_from(start)) if comparisons else first


def _sum(cursor: Cursor) -> Expr:
    return _binary(cursor, ("+", "-"), lambda inner: _binary(inner, ("*", "/", "//", "%"), _signed))


def _binary(cursor: Cursor, ops: tuple[str, ...], operand: Callable[[Cursor], Expr]) -> Expr:
    start = cursor.token.span
    expr = operand(cursor)
    while cursor.is_next(*ops):
        cursor.n_operators += 1
        if cursor.n_operators > MAX_OPERATORS:
            raise cursor.make_error("this expression is too long",
                                    f"at most {MAX_OPERATORS} operators")
        expr = Operation(cursor.next().text, (expr, operand(cursor)), span=cursor.span_from(start))
    return expr


def _signed(cursor: Cursor) -> Expr:
    start = cursor.token.span
    if not cursor.accept("-"):
        expr = _atom(cursor)
        if cursor.accept("**"):
            operands = (expr, _nested(cursor, _signed))
            expr = Operation("**", operands, span=cursor.span_from(start))
        return expr
    operand = _nested(cursor, _signed)
    if isinstance(operand, Value) and not isinstance(
            operand.value, bool | str) and operand.value > 0:
        # -2 is a number, so that it reads back as written
        return Value(-operand.value, span=cursor.span_from(start))
    return Operation("-", (operand,), span=cursor.span_from(start))


def _atom(cursor: Cursor) -> Expr:
    if cursor.accept("("):
        inner = _nested(cursor, _ternary)
        cursor.expect(")", "to close the parenthesis")
        return inner
    token = cursor.token
    if token.type in ("number", "string"):
        return Value(cursor.next().value, span=token.span,
                     has_byte_unit=token.type == "number" and token.text.endswith("B"))
    if token.type != "word" or token.text in RESERVED:
        raise cursor.make_error("expected a number, a name or `(`",
                                cursor.percent_help(cursor.index - 1))
    cursor.next()
    if cursor.accept("["):
        layer = cursor.next().text
        cursor.expect("]", "to close the index")
        name = f"{token.text}[{layer}]"
        span = cursor.span_from(token.span)
        if split_layer(name)[1] is None:
            raise ValueSyntaxError(f"`{layer}` is not a layer", span,
                                   "write the number of a layer, from 1, or `first` or `last`",
                                   code="bad-syntax")
        return Name(name, span=span)
    if not cursor.is_next("("):
        return (Value(BOOLEAN_WORDS[token.text], span=token.span)
                if token.text in BOOLEAN_WORDS else Name(token.text, span=token.span))
    if token.text not in FUNCTIONS:
        raise ValueSyntaxError(f"the function `{token.text}` does not exist", token.span,
                               suggest_match(token.text, FUNCTIONS), code="unknown-function")
    cursor.next()
    arguments = [_nested(cursor, _ternary)]
    while cursor.accept(","):
        arguments.append(_nested(cursor, _ternary))
    cursor.expect(")", "to close the call")
    span = cursor.span_from(token.span)
    max_arguments = FUNCTIONS[token.text]
    if max_arguments is not None and len(arguments) > max_arguments:
        raise ValueSyntaxError(f"`{token.text}` takes {max_arguments} argument", span,
                               code="bad-syntax")
    return Operation(token.text, tuple(arguments), span=span)


# -- values


def _value(cursor: Cursor) -> Domain:
    start = cursor.token.span
    then = _alternatives(cursor)
    if not cursor.accept("if"):
        return then
    condition = _or(cursor)
    if not cursor.accept("else"):
        raise cursor.make_error("expected `else` after the condition",
                                "`2 | 3 if length > 1 else 1`")
    return ConditionalDomain(then, condition, _nested(cursor, _value), span=cursor.span_from(start))


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
        is_first = start.span[0] == cursor.tokens[0].span[0]
        expression = _ternary(cursor) if is_first else _or(cursor)
        return ComputedDomain(expression, span=cursor.span_from(start.span))
    if cursor.accept("["):
        items = _list(cursor, "]", lambda inner: _nested(inner, _alternatives))
        cursor.expect("]", "to close the list")
        return replace(list_domain(items), span=cursor.span_from(start.span))
    if start.type == "number" or cursor.is_next("-"):
        low = _number(cursor)
        if cursor.accept(".."):
            return _range(cursor, low, start.span)
        groups: list[Domain] = [ConstantDomain(low, span=cursor.span_from(start.span))]
        # a load, such as 6-6
        while isinstance(low, int) and cursor.is_next("-") and (
                cursor.tokens[cursor.index + 1].type == "number"):
            cursor.next()
            groups.append(ConstantDomain(cursor.token.value, span=cursor.next().span))
        return groups[0] if len(groups) == 1 else CallDomain(
            "load", tuple(groups), is_load=True, span=cursor.span_from(start.span))
    if start.type == "string":
        return ConstantDomain(cursor.next().value, quoted=True, span=start.span)
    if start.type != "word" or start.text in RESERVED:
        raise cursor.make_error("expected a value", EXAMPLE_VALUES)
    cursor.next()
    if cursor.accept("["):
        index = _ternary(cursor)
        cursor.expect("]", "to close the index")
        return LayerReferenceDomain(LayerReference(start.text, index),
                                    span=cursor.span_from(start.span))
    if cursor.accept("("):
        arguments = _list(cursor, ")", _alternatives)
        if cursor.is_next("=") and arguments:
            name = arguments[-1]
            raise cursor.make_error("expected `)`, because arguments have no names",
                                    f"write `{start.text}(…)`, or `{start.text}: {{ {name}: … }}`")
        cursor.expect(")", "to close the call")
        return CallDomain(start.text, tuple(arguments), span=cursor.span_from(start.span))
    return ConstantDomain(BOOLEAN_WORDS.get(start.text, start.text), span=start.span)


def _list(cursor: Cursor, end: str, parse: Callable[[Cursor], ParsedT]) -> list[ParsedT]:
    """Parse items between commas, up to ``end``."""
    items: list[ParsedT] = []
    while not cursor.is_next(end):
        items.append(parse(cursor))
        if not cursor.accept(","):
            break
    return items


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


def _number(cursor: Cursor) -> int | float:
    sign = -1 if cursor.accept("-") else 1
    if cursor.token.type != "number":
        is_word = cursor.token.type == "word"
        raise cursor.make_error(
            "expected a number",
            "for a limit that depends on other keys, add a line to `where:`" if is_word else None)
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
    low_text = format_constant(low)
    high_text = format_constant(high)

    def check(is_valid: bool, message: str, span: Span, help: str | None = None) -> None:
        if not is_valid:
            raise ValueSyntaxError(message, span, help, code="bad-range")

    check(low <= high, "this range is empty: its start is above its end", bounds,
          f"write `{high_text}..{low_text}`")
    check(low != high, "this range holds a single number", bounds, f"write `{low_text}`")
    check(not log or low > 0, "a log range must begin above 0", bounds,
          "raise its lower end, or leave out `log`")
    check(not log or step is None, "a range has either a step or log", log_span,
          "for powers of two, write `64 | 128 | 256`")
    if step is not None:
        check(step > 0, "a step must be above 0", step_span)
        count = (high - low) / step
        check(count <= MAX_STEPS, "this step is too small", step_span,
              f"at most {MAX_STEPS:,} steps; without a step, any number")
        width = high - low
        part = _rounded(width / 4) if isinstance(width, float) else next(
            (width // parts for parts in (4, 3, 2) if width % parts == 0), 1)
        check(count >= 1 - 1e-9, f"a step of {format_constant(step)} is wider than the range",
              step_span,
              f"take a smaller step: `{low_text}..{high_text} step {format_constant(part)}`")
        ends = [_rounded(low + steps * step)
                for steps in (math.floor(count), math.floor(count) + 1)]
        legal = " or ".join(f"`{format_constant(_rounded(low))}..{format_constant(end)} step "
                            f"{format_constant(_rounded(step))}`" for end in ends)
        check(abs(count - round(count)) <= 1e-9 * max(1.0, count),
              f"steps of {format_constant(step)} from {low_text} do not reach {high_text}",
              step_span, f"write {legal}")
    span = cursor.span_from(start)
    if all(isinstance(number, int) for number in (low, high, step or 0)):
        return RangeDomain(IntRange(int(low), int(high), int(step or 1), log), span=span)
    return RangeDomain(FloatRange(float(low), float(high), None if step is None else float(step),
                                  log), span=span)


def _rounded(number: int | float) -> int | float:
    return number if isinstance(number, int) else float(f"{number:.12g}")
