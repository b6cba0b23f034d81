"""Cuts the text of one scalar into tokens that know their columns."""

import math
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

Span = tuple[int, int]  # first character, and the one after the last
NO_SPAN: Span = (0, 0)

UNIT_SCALES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "Ki": 2**10,
               "Mi": 2**20, "Gi": 2**30}
COMPARISON_SIGNS = {"≤": "<=", "≥": ">=", "≠": "!="}
LOOKALIKES = {"…": "..", "–": "-", "—": "-", "‐": "-", "‑": "-", "−": "-", "×": "*", "·": "*",
              "÷": "/", "“": '"', "”": '"', "‘": "'", "’": "'"}
OPERATOR = re.compile(r"\.\.|//|\*\*|[<>=!]=|[|+\-*/%()<>\[\],=]")
OPERATOR_HINTS = {"&": "write `and`", "!": "write `not`, or `!=`", "^": "a power is written `**`",
                  "?": "write `x if c else y`"}
NAME = r"[^\W\d]\w*(?:-[^\W\d]\w*)*"
# 16MB are 16M bytes, also written 16 MB; 16 MiB are 16 * 2**20
UNITS = "|".join(f"{unit}(?=B)" if unit.endswith("i") else unit for unit in UNIT_SCALES)
NUMBER = re.compile(
    rf"((?:\d[\d_]*)?(?:\.\d+)?(?:[eE][+-]?\d+)?)(?:\s*({UNITS}))?B?(?!\w)")
# 1,000 or 1.000.000, but not 0,500
GROUPED_NUMBER = re.compile(r"[1-9]\d{0,2}(?:(?:,\d{3})+|(?:\.\d{3}){2,})(?![.,]?\d)")
DECIMAL_COMMA = re.compile(r"\d+,\d")
EXAMPLES_OF_UNITS = ", ".join(f"2{unit}" for unit in UNIT_SCALES if not unit.endswith("i"))
NUMBER_FORMS = f"numbers are written 12, 0.5, 1e-3, {EXAMPLES_OF_UNITS}, 16MB or 16MiB"
PATH = re.compile(rf"{NAME}(?:\.{NAME})*")
LAYER = re.compile(r"(.*?)\s*\[\s*(first|last|[1-9]\d*)\s*\]", re.DOTALL)
LAST_LAYER = -1
# a key, and the name of a parameter inside its value: `[2]`, ` (32..64)` or ` (else)`
PARAMETER_NAME = re.compile(r"([^\[( ]*)(.*)", re.DOTALL)
STRING = re.compile(r"'[^'\\]*'|\"[^\"\\]*\"")
MAX_NUMBER_DIGITS = 40


def split_layer(name: str) -> tuple[str, int | None]:
    """The key and the layer of a name such as ``encoder.ffn.hidden[2]``.

    Layers count from 1; the layer is None without brackets. ``[first]`` is the first layer, and
    ``[last]`` is ``LAST_LAYER``.
    """
    match = LAYER.fullmatch(name)
    if not match:
        return name, None
    return match[1], {"first": 1, "last": LAST_LAYER}.get(match[2]) or int(match[2])


def split_parameter_name(name: str) -> tuple[str, str]:
    """The key of a parameter, and the rest of its name: ``[2]``, `` (32..64)`` or `` (else)``."""
    match = PARAMETER_NAME.fullmatch(name)
    assert match
    return match[1], match[2]


class ValueSyntaxError(Exception):
    """A scalar that cannot be read.

    ``span`` are the offending characters; ``code`` is that of ``UserError``.
    """

    def __init__(self, message: str, span: Span, help: str | None = None,
                 code: str = "bad-value") -> None:
        self.message = message
        self.span = span
        self.help = help
        self.code = code
        super().__init__(message)


@dataclass(frozen=True)
class Token:
    """Token of type number, word, string, op or end.

    ``value`` is the number or the string itself.
    """

    type: str
    text: str
    span: Span
    value: Any = None


def tokenize(text: str) -> list[Token]:
    """The tokens of ``text`` and a last one of type ``end``. Raises ValueSyntaxError."""
    tokens: list[Token] = []
    start = len(text) - len(text.lstrip())
    end = len(text.rstrip())
    while start < end:
        character = text[start]
        if text.startswith("...", start):
            raise ValueSyntaxError("a range has two points", (start, start + 3),
                                   f"write `{re.sub('[.]{3,}', '..', text.strip())}`",
                                   code="bad-syntax")
        if character.isdigit() or (character == "." and text[start + 1 : start + 2].isdigit()):
            token = _number(text, start)
        elif match := PATH.match(text, start):
            token = Token("word", match[0], match.span())
        elif match := STRING.match(text, start):
            token = Token("string", match[0], match.span(), match[0][1:-1])
        elif match := OPERATOR.match(text, start):
            token = Token("op", match[0], match.span())
        elif character in COMPARISON_SIGNS:
            token = Token("op", COMPARISON_SIGNS[character], (start, start + 1))
        elif character in "\"'":
            raise ValueSyntaxError("this quote is not closed", (start, len(text)),
                                   code="bad-syntax")
        else:
            help = OPERATOR_HINTS.get(character)
            if character in LOOKALIKES:
                help = f"write `{LOOKALIKES[character]}`"
            if character in "–—":
                help = "write `-`, or `..` for a range"
            name = "" if character.isascii() else unicodedata.name(character, "").lower()
            description = f"`{character}` ({name})" if name else f"`{character}`"
            raise ValueSyntaxError(f"unexpected character {description}", (start, start + 1), help,
                                   code="bad-syntax")
        tokens.append(token)
        start = token.span[1]
        while start < end and text[start].isspace():
            start += 1
    return [*tokens, Token("end", "", (end, end + 1))]


def _number(text: str, start: int) -> Token:
    match = NUMBER.match(text, start)
    if not match or not match[1]:
        word = re.compile(r"[\w.]+").match(text, start)
        span = word.span() if word else (start, start + 1)
        raise ValueSyntaxError(f"`{text[slice(*span)]}` is not a number", span, NUMBER_FORMS,
                               code="bad-syntax")
    digits = match[1].replace("_", "")
    scale = UNIT_SCALES.get(match[2] or "", 1)
    if len(digits) > MAX_NUMBER_DIGITS:
        raise ValueSyntaxError("this number is too long", match.span(),
                               f"at most {MAX_NUMBER_DIGITS} digits", code="bad-syntax")
    value: int | float = int(digits) * scale if digits.isdecimal() else float(digits) * scale
    if not math.isfinite(value):
        raise ValueSyntaxError("this number is too large", match.span(), code="bad-syntax")
    if scale > 1 and abs(value - round(value)) < 1e-6:
        value = round(value)
    if "e" in digits.lower() and value == round(value) and abs(value) < 2**53:
        value = round(value)  # 1e3 is the size 1,000
    return Token("number", match[0], match.span(), value)
