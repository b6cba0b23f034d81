"""Cuts the text of one scalar into tokens that know their columns."""

import math
import re
from dataclasses import dataclass
from typing import Any

Span = tuple[int, int]  # first character, and the one after the last
NO_SPAN: Span = (0, 0)

SCALE = {"k": 10**3, "M": 10**6, "G": 10**9}
LOOKALIKES = {"…": "..", "–": "-", "—": "-", "−": "-", "×": "*", "·": "*", "≤": "<=", "≥": ">=", "≠": "!=", "÷": "/"}
OPERATORS = ("..", "//", "**", "<=", ">=", "==", "!=", *"|+-*/%()<>[],=")
NAME = r"[^\W\d]\w*(?:-[^\W\d]\w*)*"
NUMBER = re.compile(r"((?:\d[\d_]*)?(?:\.\d+)?(?:[eE][+-]?\d+)?)([kMG]?)(?!\w)")
PATH = re.compile(rf"{NAME}(?:\.{NAME})*")
STRING = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")
SPACE = re.compile(r"\s*")
LONGEST_NUMBER = 40


class SyntaxProblem(Exception):
    """A scalar that cannot be read; ``span`` are the offending characters, ``code`` as in ``UserError``."""

    def __init__(self, message: str, span: Span, help: str | None = None, code: str = "bad-value") -> None:
        self.message, self.span, self.help, self.code = message, span, help, code
        super().__init__(message)


@dataclass(frozen=True)
class Token:
    """``kind`` is number, word, string, op or end; ``value`` is the number or the string itself."""

    kind: str
    text: str
    span: Span
    value: Any = None


def tokenize(text: str) -> list[Token]:
    """The tokens of ``text``, closed by one of kind ``end``. Raises SyntaxProblem."""
    tokens: list[Token] = []
    at = _after_space(text, 0)
    while at < len(text):
        tokens.append(_token(text, at))
        at = _after_space(text, tokens[-1].span[1])
    return [*tokens, Token("end", "", (len(text.rstrip()), len(text.rstrip()) + 1))]


def _after_space(text: str, at: int) -> int:
    match = SPACE.match(text, at)
    return match.end() if match else at


def _token(text: str, at: int) -> Token:
    if text[at].isdigit() or (text[at] == "." and text[at + 1 : at + 2].isdigit()):
        return _number(text, at)
    if match := PATH.match(text, at):
        return Token("word", match[0], match.span())
    if match := STRING.match(text, at):
        return Token("string", match[0], match.span(), match[1] if match[1] is not None else match[2])
    for operator in OPERATORS:
        if text.startswith(operator, at):
            return Token("op", operator, (at, at + len(operator)))
    raise _unreadable(text, at)


def _number(text: str, at: int) -> Token:
    match = NUMBER.match(text, at)
    if not match or not match[1]:
        end = re.compile(r"[\w.]+").match(text, at)
        span = (at, end.end() if end else at + 1)
        help = "numbers are written 12, 0.5, 1e-3, 2k, 10M or 1.5G"
        raise SyntaxProblem(f"`{text[slice(*span)]}` is not a number", span, help, code="bad-syntax")
    return Token("number", match[0], match.span(), _value(match[1].replace("_", ""), match[2], match.span()))


def _value(digits: str, scale: str, span: Span) -> int | float:
    if len(digits) > LONGEST_NUMBER:
        raise SyntaxProblem("this number is too long", span, f"at most {LONGEST_NUMBER} digits", code="bad-syntax")
    whole = digits.isdecimal()
    value: int | float = int(digits) if whole else float(digits)
    if not math.isfinite(value):
        raise SyntaxProblem("this number is too large", span, code="bad-syntax")
    if not scale:
        return value
    scaled = value * SCALE[scale]
    return round(scaled) if abs(scaled - round(scaled)) < 1e-6 else scaled


def _unreadable(text: str, at: int) -> SyntaxProblem:
    character = text[at]
    if character in LOOKALIKES:
        return SyntaxProblem(f"unexpected character `{character}`", (at, at + 1), f"write `{LOOKALIKES[character]}`",
                             code="bad-syntax")
    if character in "\"'":
        return SyntaxProblem("this quote is not closed", (at, len(text)), code="bad-syntax")
    helps = {
        "&": "write `and`",
        "!": "write `not`, or `!=`",
        "^": "a power is written `**`",
        "?": "write `x if c else y`",
    }
    return SyntaxProblem(f"unexpected character `{character}`", (at, at + 1), helps.get(character), code="bad-syntax")
