"""The grammar of one scalar: values with ``|``, ``..``, ``=``, calls and conditions; and expressions.

value       := alternatives [ "if" condition "else" value ]
alternatives:= item ( "|" item )*
item        := constant | range | call | list | path "[" index "]" | "=" expression
range       := number ".." number [ "step" number ] [ "log" ]
call        := word "(" alternatives ( "," alternatives )* ")"  |  number ( "-" number )+
"""

from collections.abc import Callable
from typing import TypeVar

from scalesearch.space.syntax.diagnostics import suggest
from scalesearch.space.syntax.expressions import FUNCTIONS, RESERVED, Compare, Expr, Name, Operation, Value
from scalesearch.space.syntax.lexer import Span, SyntaxProblem, Token, tokenize

DEEPEST = 25  # parentheses in parentheses; both limits keep a hostile file from exhausting the stack
MOST_OPERATORS = 100  # in one expression
TRUTH = {"yes": True, "no": False, "true": True, "false": False}
Parsed = TypeVar("Parsed")
COMPARISONS = ("<=", ">=", "==", "!=", "<", ">")


class Cursor:
    """Walks over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.at = 0
        self.depth = 0
        self.operators = 0

    @property
    def token(self) -> Token:
        """The token in front."""
        return self.tokens[self.at]

    def ahead(self) -> Token:
        """The token after the one in front."""
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)]

    def next(self) -> Token:
        """Steps over the token in front."""
        token = self.token
        self.at += token.kind != "end"
        return token

    def sees(self, *texts: str) -> bool:
        """True if the next token is one of these operators or keywords."""
        return self.token.kind in ("op", "word") and self.token.text in texts

    def take(self, text: str) -> bool:
        """Steps over ``text`` if it is in front."""
        return self.sees(text) and bool(self.next())

    def expect(self, text: str, why: str) -> None:
        """Steps over ``text``, or complains."""
        if not self.take(text):
            raise self.wrong(f"expected `{text}` {why}")

    def wrong(self, message: str, help: str | None = None) -> SyntaxProblem:
        """A complaint about the token in front."""
        token = f", found `{self.token.text}`" if self.token.kind != "end" else ", found the end"
        return SyntaxProblem(message + (token if message.startswith("expected") else ""), self.token.span, help,
                             code="bad-syntax")

    def since(self, start: Span) -> Span:
        """From ``start`` to the token before the one in front."""
        return (start[0], self.tokens[max(self.at - 1, 0)].span[1])


def finish(cursor: Cursor) -> None:
    """Complains about anything left."""
    if cursor.token.kind == "end":
        return
    if cursor.sees("="):
        raise cursor.wrong("`=` belongs at the beginning of a computed value", "to compare, write `==`")
    if cursor.sees("+", "*", "/", "//", "**", "%", *COMPARISONS, "and", "or"):
        help = f"a computed value begins with `=`: `= {cursor.text.strip()}`"
        raise cursor.wrong(f"`{cursor.token.text}` does not belong in a constant", help)
    raise cursor.wrong(f"unexpected `{cursor.token.text}`", "alternatives are separated by `|`")


def parse_expression(text: str) -> Expr:
    """The expression that ``text`` is. Raises SyntaxProblem."""
    cursor = Cursor(text)
    if cursor.token.kind == "end":
        raise cursor.wrong("expected an expression")
    expr = ternary(cursor)
    if cursor.token.kind == "end":
        return expr
    if cursor.sees("="):
        raise cursor.wrong("`=` does not compare", "write `==`")
    if cursor.sees("|"):
        raise cursor.wrong("`|` does not belong in an expression", "write `or`")
    raise cursor.wrong(f"unexpected `{cursor.token.text}`")


def ternary(cursor: Cursor) -> Expr:
    """``x if condition else y``."""
    start = cursor.token.span
    expr = disjunction(cursor)
    if not cursor.take("if"):
        return expr
    condition = disjunction(cursor)
    cursor.expect("else", "after the condition")
    other = deeper(cursor, ternary)
    return Operation("if", (expr, condition, other), span=cursor.since(start))


def deeper(cursor: Cursor, parse: Callable[[Cursor], Parsed]) -> Parsed:
    """``parse(cursor)`` one level further down, up to a limit."""
    cursor.depth += 1
    if cursor.depth > DEEPEST:
        raise cursor.wrong("this is nested too deeply", f"at most {DEEPEST} levels")
    parsed = parse(cursor)
    cursor.depth -= 1
    return parsed


def disjunction(cursor: Cursor) -> Expr:
    """``a or b``."""
    return _logic(cursor, "or", lambda: _logic(cursor, "and", lambda: _negation(cursor)))


def _logic(cursor: Cursor, op: str, operand: Callable[[], Expr]) -> Expr:
    start = cursor.token.span
    operands = [operand()]
    while cursor.take(op):
        operands.append(operand())
    return operands[0] if len(operands) == 1 else Operation(op, tuple(operands), span=cursor.since(start))


def _negation(cursor: Cursor) -> Expr:
    start = cursor.token.span
    if not cursor.take("not"):
        return _comparison(cursor)
    return Operation("not", (deeper(cursor, _negation),), span=cursor.since(start))


def _comparison(cursor: Cursor) -> Expr:
    start = cursor.token.span
    first = _arithmetic(cursor)
    rest: list[tuple[str, Expr]] = []
    while cursor.sees(*COMPARISONS):
        op = cursor.next().text
        rest.append((op, _arithmetic(cursor)))
    return Compare(first, tuple(rest), span=cursor.since(start)) if rest else first


def _arithmetic(cursor: Cursor) -> Expr:
    return _binary(cursor, ("+", "-"), lambda: _binary(cursor, ("*", "/", "//", "%"), lambda: _signed(cursor)))


def _binary(cursor: Cursor, ops: tuple[str, ...], operand: Callable[[], Expr]) -> Expr:
    start = cursor.token.span
    expr = operand()
    while cursor.sees(*ops):
        cursor.operators += 1
        if cursor.operators > MOST_OPERATORS:
            raise cursor.wrong("this expression is too long", f"at most {MOST_OPERATORS} operators")
        op = cursor.next().text
        expr = Operation(op, (expr, operand()), span=cursor.since(start))
    return expr


def _signed(cursor: Cursor) -> Expr:
    start = cursor.token.span
    if cursor.take("-"):
        operand = deeper(cursor, _signed)
        if isinstance(operand, Value) and not isinstance(operand.value, bool | str) and operand.value > 0:
            return Value(-operand.value, span=cursor.since(start))  # -2 is a number, so that it reads back as written
        return Operation("-", (operand,), span=cursor.since(start))
    expr = _atom(cursor)
    if cursor.take("**"):
        expr = Operation("**", (expr, deeper(cursor, _signed)), span=cursor.since(start))
    return expr


def _atom(cursor: Cursor) -> Expr:
    token = cursor.token
    if cursor.take("("):
        inner = deeper(cursor, ternary)
        cursor.expect(")", "to close the parenthesis")
        return inner
    if token.kind in ("number", "string"):
        cursor.next()
        return Value(token.value, span=token.span)
    if token.kind != "word" or token.text in RESERVED:
        raise cursor.wrong("expected a number, a name or `(`")
    cursor.next()
    if cursor.sees("("):
        return _function(cursor, token)
    if token.text in TRUTH:
        return Value(TRUTH[token.text], span=token.span)
    return Name(token.text, span=token.span)


def _function(cursor: Cursor, name: Token) -> Expr:
    if name.text not in FUNCTIONS:
        raise SyntaxProblem(f"there is no function `{name.text}`", name.span, suggest(name.text, FUNCTIONS),
                            code="unknown-function")
    cursor.expect("(", "")
    arguments = [deeper(cursor, ternary)]
    while cursor.take(","):
        arguments.append(deeper(cursor, ternary))
    cursor.expect(")", "to close the call")
    most = FUNCTIONS[name.text]
    if most is not None and len(arguments) > most:
        raise SyntaxProblem(f"`{name.text}` takes {most} argument", cursor.since(name.span), code="bad-syntax")
    return Operation(name.text, tuple(arguments), span=cursor.since(name.span))


def listed(cursor: Cursor, end: str, parse: Callable[[Cursor], Parsed]) -> list[Parsed]:
    """What stands between commas, up to ``end``."""
    items: list[Parsed] = []
    while not cursor.sees(end):
        items.append(parse(cursor))
        if not cursor.take(","):
            break
    return items
