"""Problems of a file: place, message, and help; all of them shown together."""

import difflib
import math
import re
import sys
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property

from scalesearch.errors import UserError

LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # what YAML 1.1 calls a line break
PYTHON_VALUES = "<python>"  # name of the YAML that is written from Python values
FIRST_KEY = re.compile(r"(?P<indent>[ -]*)(?P<key>[^\s:]+):(\s|$)")  # of a line of this YAML
MAX_LINE_WIDTH = 150  # characters of a source line that are shown at most
MAX_PROBLEMS_SHOWN = 100  # problems of a file that are shown at most


@dataclass(frozen=True)
class SourceText:
    """A text and its name in errors; ``has_lines`` is False without lines (``--set``)."""

    name: str
    text: str = field(repr=False)
    has_lines: bool = True

    @cached_property
    def lines(self) -> list[str]:
        """The lines, split where YAML splits them."""
        return LINE_BREAK.split(self.text)

    def key_path(self, line: int) -> str:
        """Dotted path of the key in ``line`` of block-style YAML, or of the key above it."""
        keys: list[str] = []
        indent = math.inf
        for text in reversed(self.lines[: line + 1]):
            match = FIRST_KEY.match(text)
            if match and len(match["indent"]) < indent:
                indent = len(match["indent"])
                keys.insert(0, match["key"])
        return ".".join(keys)


@dataclass(frozen=True)
class SourcePosition:
    """The characters ``column`` to ``end`` (excluded) of ``line``; all count from 0."""

    source: SourceText
    line: int
    column: int
    end: int

    @property
    def sort_key(self) -> tuple[bool, int, int]:
        """Sorts places from top to bottom, overrides after files."""
        return (not self.source.has_lines, self.line, self.column)

    def __str__(self) -> str:
        if not self.source.has_lines:
            return self.source.name
        if self.source.name == PYTHON_VALUES:  # the user did not write its lines
            is_whole = (self.line, self.column) == (0, 0)
            return "" if is_whole else self.source.key_path(self.line)
        return f"{self.source.name}:{self.line + 1}:{self.column + 1}"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, ready to print; ``code`` as in ``UserError``."""

    position: SourcePosition
    message: str
    help: str | None = None
    code: str = "bad-value"  # most are; the others say

    def __str__(self) -> str:
        position = self.position
        prefix = f"{position}: " if str(position) else ""
        key, separator, message = self.message.partition(": ")
        path = str(position).partition("=")[0].rpartition(": ")[2]
        if not separator or not f"{path}.".startswith(f"{key}."):
            message = self.message  # otherwise the position is the key, or inside it
        # the source line with carets under the place; tabs and wide characters count as displayed
        line = "".join(position.source.lines[position.line : position.line + 1])
        end = max(position.column + 1, min(position.end, len(line)))
        cut = max(0, position.column - MAX_LINE_WIDTH // 2) if len(line) > MAX_LINE_WIDTH else 0
        shown = ("…" if cut else "") + _visible(line[cut : cut + MAX_LINE_WIDTH]) + (
            "…" if len(line) > cut + MAX_LINE_WIDTH else "")
        before = _width(_visible(line[cut : position.column])) + (1 if cut else 0)
        under = max(1, _width(_visible(line[position.column : min(end, cut + MAX_LINE_WIDTH)])))
        has_numbers = position.source.has_lines and position.source.name != PYTHON_VALUES
        number = str(position.line + 1) if has_numbers else ""
        bar = " | " if number else "  "
        return "\n".join([f"{prefix}{message}", f"{number}{bar}{shown}",
                          f"{' ' * len(number)}{bar}{' ' * before}{'^' * under}",
                          *([f"  = help: {self.help}"] if self.help else [])])


class ConfigError(UserError):
    """All problems of a file, in its order; ``code`` is that of the first.

    Attributes:
        problems: tuple of Problem, sorted by position; empty for an error without a text, such as
            a missing file.
    """

    def __init__(self, problems: Iterable[Problem] = (), message: str = "", code: str = "") -> None:
        self.problems = tuple(
            dict.fromkeys(sorted(problems, key=lambda problem: problem.position.sort_key)))
        paragraphs = [str(problem) for problem in self.problems[:MAX_PROBLEMS_SHOWN]]
        if len(self.problems) > MAX_PROBLEMS_SHOWN:
            paragraphs.append(f"{len(self.problems)} problems, of which the first "
                              f"{MAX_PROBLEMS_SHOWN} are shown")
        elif len(self.problems) > 1:
            paragraphs.append(f"{len(self.problems)} problems")
        super().__init__(message or "\n\n".join(paragraphs),
                         code=code or (self.problems[0].code if self.problems else ""))

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[tuple[Problem, ...], str, str]]:
        return ConfigError, (self.problems, str(self), self.code)


class UnbuildableError(UserError):
    """A candidate that is legal in the language but cannot be built as a network.

    Attributes:
        key: the key with the infeasible value.
        reason: the reason.
    """

    key: str

    code = "unbuildable"

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"{key}: {reason}", key=key)

    def __reduce__(self) -> tuple[type["UnbuildableError"], tuple[str, str]]:
        # the error must be picklable, to return from worker processes
        return UnbuildableError, (self.key, self.reason)


def _visible(text: str) -> str:
    """``text`` with tabs as four spaces, and printable characters only.

    Other spaces become plain ones, and other characters are replaced.
    """
    text = "".join(" " if unicodedata.category(c) == "Zs" else c for c in text)
    return "".join("    " if c == "\t" else c if c.isprintable() else "\ufffd" for c in text)


def _width(text: str) -> int:
    """The number of terminal columns of ``text``."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF"
               else 1 for c in text)


def closest_match(word: str, candidates: Iterable[str], min_similarity: float = 0.6) -> str | None:
    """The candidate that is most similar to ``word``.

    Its ratio of difflib must be at least ``min_similarity``, also without common groups
    (``encoder.``) of dotted names.
    """
    candidates = list(candidates)
    matches = difflib.get_close_matches(word, candidates, n=3, cutoff=min_similarity)
    last_word = word.rpartition(".")[2]
    matches = [match for match in matches if difflib.get_close_matches(
        last_word, [match.rpartition(".")[2]] if "." in word else [last_word],
        cutoff=min_similarity)]
    same_letters = {candidate.lower(): candidate for candidate in candidates}
    return matches[0] if matches else same_letters.get(word.lower())


def suggest_match(word: str, candidates: Iterable[str], otherwise: str = "") -> str:
    """A help line: the likely meaning, or ``otherwise`` or what there is to choose from."""
    legal = list(dict.fromkeys(candidates))
    if match := closest_match(word, legal):
        return f"did you mean `{match}`?"
    return otherwise or f"use {format_alternatives(legal)}"


def format_alternatives(words: Iterable[str]) -> str:
    """``a, b or c``, each in backticks."""
    quoted = [f"`{word}`" for word in words]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"


@cache
def print_note(position: SourcePosition, message: str, type_: str = "note") -> None:
    """Print a note or a warning on a part of a file, once for each position."""
    print(f"{position}: {type_}: {message}", file=sys.stderr)


def warn_deprecated(position: SourcePosition, message: str) -> None:
    """Print a warning about a deprecated key or value, once for each position."""
    print_note(position, message, "warning")
