"""The grammar of scalars (values, calls, conditions) and of expressions.

value       := alternatives [ "if" condition "else" value ]
alternatives:= item ( "|" item )*
item        := constant | range | call | list | path "[" index "]" | "=" expression
range       := number ".." number [ "step" number ] [ "log" ]
call        := word "(" alternatives ( "," alternatives )* ")"  |  number ( "-" number )+
"""

from collections.abc import Callable
from typing import TypeVar

from scalesearch.spaces.syntax.diagnostics import suggest_match
from scalesearch.spaces.syntax.expressions import (
    FUNCTIONS,
    RESERVED,
    Compare,
    Expr,
    Name,
    Operation,
    Value,
)
from scalesearch.spaces.syntax.lexer import Span, Token, ValueSyntaxError, tokenize

# parentheses in parentheses; both limits keep a hostile file from exhausting the stack
MAX_NESTING = 25
MAX_OPERATORS = 100  # in one expression
BOOLEAN_WORDS = {"yes": True, "no": False, "true": True, "false": False}
ParsedT = TypeVar("ParsedT")
COMPARISONS = ("<=", ">=", "==", "!=", "<", ">")


class Cursor:
    """Walks over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.index = 0
        self.depth = 0
        self.operators = 0

    @property
    def token(self) -> Token:
        """The token in front."""
        return self.tokens[self.index]

    def peek(self) -> Token:
        """The token after the one in front."""
        return self.tokens[min(self.index + 1, len(self.tokens) - 1)]

    def next(self) -> Token:
        """Steps over the token in front."""
        token = self.token
        self.index += token.type != "end"
        return token

    def is_next(self, *texts: str) -> bool:
        """True if the next token is one of these operators or keywords."""
        return self.token.type in ("op", "word") and self.token.text in texts

    def accept(self, text: str) -> bool:
        """Steps over ``text`` if it is in front."""
        return self.is_next(text) and bool(self.next())

    def expect(self, text: str, why: str) -> None:
        """Steps over ``text``, or complains."""
        if not self.accept(text):
            raise self.make_error(f"expected `{text}` {why}")

    def make_error(self, message: str, help: str | None = None) -> ValueSyntaxError:
        """A complaint about the token in front."""
        token = f", found `{self.token.text}`" if self.token.type != "end" else ", found the end"
        return ValueSyntaxError(message + (token if message.startswith("expected") else ""),
                                self.token.span, help, code="bad-syntax")

    def span_from(self, start: Span) -> Span:
        """From ``start`` to the token before the one in front."""
        return (start[0], self.tokens[max(self.index - 1, 0)].span[1])


def expect_end(cursor: Cursor) -> None:
    """Complains about anything left."""
    if cursor.token.type == "end":
        return
    if cursor.is_next("="):
        raise cursor.make_error("`=` belongs at the beginning of a computed value",
                                "to compare, write `==`")
    if cursor.is_next("+", "*", "/", "//", "**", "%", *COMPARISONS, "and", "or"):
        help = f"a computed value begins with `=`: `= {cursor.text.strip()}`"
        raise cursor.make_error(f"`{cursor.token.text}` does not belong in a constant", help)
    raise cursor.make_error(f"unexpected `{cursor.token.text}`",
                            "alternatives are separated by `|`")


def parse_expression(text: str) -> Expr:
    """The expression that ``text`` is. Raises SyntaxProblem."""
    cursor = Cursor(text)
    if cursor.token.type == "end":
        raise cursor.make_error("expected an expression")
    expr = parse_ternary(cursor)
    if cursor.token.type == "end":
        return expr
    if cursor.is_next("="):
        raise cursor.make_error("`=` does not compare", "write `==`")
    if cursor.is_next("|"):
        raise cursor.make_error("`|` does not belong in an expression", "write `or`")
    raise cursor.make_error(f"unexpected `{cursor.token.text}`")


def parse_ternary(cursor: Cursor) -> Expr:
    """``x if condition else y``."""
    start = cursor.token.span
    expr = parse_or(cursor)
    if not cursor.accept("if"):
        return expr
    condition = parse_or(cursor)
    cursor.expect("else", "after the condition")
    other = parse_nested(cursor, parse_ternary)
    return Operation("if", (expr, condition, other), span=cursor.span_from(start))


def parse_nested(cursor: Cursor, parse: Callable[[Cursor], ParsedT]) -> ParsedT:
    """``parse(cursor)`` one level further down, up to a limit."""
    cursor.depth += 1
    if cursor.depth > MAX_NESTING:
        raise cursor.make_error("this is nested too deeply", f"at most {MAX_NESTING} levels")
    parsed = parse(cursor)
    cursor.depth -= 1
    return parsed


def parse_or(cursor: Cursor) -> Expr:
    """``a or b``."""
    return _logic(cursor, "or", lambda: _logic(cursor, "and", lambda: _negation(cursor)))


def _logic(cursor: Cursor, op: str, operand: Callable[[], Expr]) -> Expr:
    start = cursor.token.span
    operands = [operand()]
    while cursor.accept(op):
        operands.append(operand())
    return operands[0] if len(operands) == 1 else Operation(
        op, tuple(operands), span=cursor.span_from(start))


def _negation(cursor: Cursor) -> Expr:
    start = cursor.token.span
    if not cursor.accept("not"):
        return _comparison(cursor)
    return Operation("not", (parse_nested(cursor, _negation),), span=cursor.span_from(start))


def _comparison(cursor: Cursor) -> Expr:
    start = cursor.token.span
    first = _arithmetic(cursor)
    comparisons: list[tuple[str, Expr]] = []
    while cursor.is_next(*COMPARISONS):
        op = cursor.next().text
        comparisons.append((op, _arithmetic(cursor)))
    if not comparisons:
        return first
    return Compare(first, tuple(comparisons), span=cursor.span_from(start))


def _arithmetic(cursor: Cursor) -> Expr:
    return _binary(cursor, ("+", "-"),
                   lambda: _binary(cursor, ("*", "/", "//", "%"), lambda: _signed(cursor)))


def _binary(cursor: Cursor, ops: tuple[str, ...], operand: Callable[[], Expr]) -> Expr:
    start = cursor.token.span
    expr = operand()
    while cursor.is_next(*ops):
        cursor.operators += 1
        if cursor.operators > MAX_OPERATORS:
            raise cursor.make_error("this expression is too long",
                                    f"at most {MAX_OPERATORS} operators")
        op = cursor.next().text
        expr = Operation(op, (expr, operand()), span=cursor.span_from(start))
    return expr


def _signed(cursor: Cursor) -> Expr:
    start = cursor.token.span
    if cursor.accept("-"):
        operand = parse_nested(cursor, _signed)
        if isinstance(operand, Value) and not isinstance(
                operand.value, bool | str) and operand.value > 0:
            # -2 is a number, so that it reads back as written
            return Value(-operand.value, span=cursor.span_from(start))
        return Operation("-", (operand,), span=cursor.span_from(start))
    expr = _atom(cursor)
    if cursor.accept("**"):
        expr = Operation("**", (expr, parse_nested(cursor, _signed)), span=cursor.span_from(start))
    return expr


def _atom(cursor: Cursor) -> Expr:
    token = cursor.token
    if cursor.accept("("):
        inner = parse_nested(cursor, parse_ternary)
        cursor.expect(")", "to close the parenthesis")
        return inner
    if token.type in ("number", "string"):
        cursor.next()
        return Value(token.value, span=token.span)
    if token.type != "word" or token.text in RESERVED:
        raise cursor.make_error("expected a number, a name or `(`")
    cursor.next()
    if cursor.is_next("("):
        return _function(cursor, token)
    if token.text in BOOLEAN_WORDS:
        return Value(BOOLEAN_WORDS[token.text], span=token.span)
    return Name(token.text, span=token.span)


def _function(cursor: Cursor, name: Token) -> Expr:
    if name.text not in FUNCTIONS:
        raise ValueSyntaxError(f"the function `{name.text}` does not exist", name.span,
                               suggest_match(name.text, FUNCTIONS), code="unknown-function")
    cursor.expect("(", "")
    arguments = [parse_nested(cursor, parse_ternary)]
    while cursor.accept(","):
        arguments.append(parse_nested(cursor, parse_ternary))
    cursor.expect(")", "to close the call")
    most = FUNCTIONS[name.text]
    if most is not None and len(arguments) > most:
        raise ValueSyntaxError(f"`{name.text}` takes {most} argument", cursor.span_from(name.span),
                               code="bad-syntax")
    return Operation(name.text, tuple(arguments), span=cursor.span_from(name.span))


def parse_list(cursor: Cursor, end: str, parse: Callable[[Cursor], ParsedT]) -> list[ParsedT]:
    """Parse items between commas, up to ``end``."""
    items: list[ParsedT] = []
    while not cursor.is_next(end):
        items.append(parse(cursor))
        if not cursor.accept(","):
            break
    return items
