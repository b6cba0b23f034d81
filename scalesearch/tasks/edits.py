"""Edits of a sentence's words, read from M2 files or aligned from source and reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from scalesearch.errors import UserError

NO_CORRECTION = "-NONE-"


@dataclass(frozen=True)
class Edit:
    """Replacement of words ``start`` to ``end`` (exclusive) by one of ``corrections``, which may be empty."""

    start: int
    end: int
    corrections: tuple[str, ...]


Edits = tuple[Edit, ...]


@dataclass(frozen=True)
class AnnotatedSentence:
    """Sentence with the edits of each annotator; an annotator without objection has none."""

    source: str
    annotators: tuple[Edits, ...]
    line: int


def parse_m2(lines: Sequence[str], name: str) -> list[AnnotatedSentence]:
    """Sentences of an M2 file with their edits.

    Each is ``S`` and its words, then for each edit ``A start
    end|||type|||correction||another|||required|||comment|||annotator``, then an empty line.

    Type ``noop``, or offsets of -1, is an annotator without any edit. Types and comments do not
    count. A sentence without ``A`` lines is right.

    Raises:
        UserError: a line that is none of these, with its place.
    """
    return [_sentence(block, name) for block in _blocks(lines)]


def _blocks(lines: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    block: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            block.append((number, line))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _sentence(block: list[tuple[int, str]], name: str) -> AnnotatedSentence:
    (number, first), *rest = block
    if first != "S" and not first.startswith("S "):
        raise UserError(f"{name}:{number}: an M2 file's sentence begins with `S ` and its words, "
                        f"not with {first!r}", code="bad-m2")
    words = first[1:].split()
    annotators: dict[str, list[Edit]] = {}
    for place, line in rest:
        annotator, edit = _edit(line, len(words), f"{name}:{place}")
        theirs = annotators.setdefault(annotator, [])
        if edit:
            theirs.append(edit)
    edits = [tuple(sorted(theirs, key=lambda edit: (edit.start, edit.end)))
             for theirs in annotators.values()]
    return AnnotatedSentence(" ".join(words), tuple(edits) or ((),), number)


def _edit(line: str, length: int, place: str) -> tuple[str, Edit | None]:
    """Annotator and edit of an ``A`` line, of a sentence of ``length`` words."""
    fields = line[2:].split("|||")
    offsets = fields[0].split()
    if not line.startswith("A ") or len(fields) != 6 or len(offsets) != 2 or not all(
            map(_parse_integer, offsets)):
        raise UserError(f"{place}: an edit is `A START "
                        f"END|||TYPE|||CORRECTION|||REQUIRED|||COMMENT|||ANNOTATOR`, not {line!r}",
                        code="bad-m2")
    start, end = map(int, offsets)
    if fields[1] == "noop" or (start, end) == (-1, -1):
        return fields[5], None
    if not 0 <= start <= end <= length:
        raise UserError(f"{place}: the edit is of words {start} to {end}, but its sentence has "
                        f"{length}", code="bad-m2")
    corrections = ["" if text.strip() == NO_CORRECTION else " ".join(text.split())
                   for text in fields[2].split("||")]
    return fields[5], Edit(start, end, tuple(corrections))


def _parse_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def apply_edits(source: str, edits: Edits) -> str:
    """Applies the first correction of each edit to ``source``; of overlapping edits, the first."""
    words = source.split()
    corrected = []
    done = 0
    for edit in edits:
        if edit.start >= done:
            corrected += [*words[done : edit.start], *edit.corrections[0].split()]
            done = edit.end
    return " ".join(corrected + words[done:])


def extract_edits(source: str, reference: str) -> Edits:
    """Edits that turn ``source`` into ``reference``, by a word alignment with the fewest changes.

    A word inserted, deleted or replaced is one change; changes that touch are one edit. Words are
    apart by blanks.
    """
    old = source.split()
    new = reference.split()
    runs: list[list[int]] = []
    for i, j, width, height in _changes(old, new):
        if runs and runs[-1][1] == i and runs[-1][3] == j:
            runs[-1][1], runs[-1][3] = i + width, j + height
        else:
            runs.append([i, i + width, j, j + height])
    return tuple(Edit(start, end, (" ".join(new[first:last]),)) for start, end, first, last in runs)


def _changes(old: list[str], new: list[str]) -> list[tuple[int, int, int, int]]:
    """Changes from left to right: places in ``old`` and ``new``, words on either side (0 or 1)."""
    distance = edit_distances(old, new, 1)
    i = len(old)
    j = len(new)
    changes = []
    while i or j:
        same = i and j and old[i - 1] == new[j - 1] and distance[i][j] == distance[i - 1][j - 1]
        replaced = i and j and distance[i][j] == distance[i - 1][j - 1] + 1
        deleted = i and distance[i][j] == distance[i - 1][j] + 1
        width, height = (1, 1) if same or replaced else (1, 0) if deleted else (0, 1)
        i = i - width
        j = j - height
        if not same:
            changes.append((i, j, width, height))
    return changes[::-1]


def edit_distances(old: Sequence[str], new: Sequence[str], replacing: int) -> list[list[int]]:
    """Edit distances of all prefixes: row i, column j is that of ``old[:i]`` and ``new[:j]``.

    A word inserted or deleted costs 1, one replaced ``replacing``.
    """
    rows = [list(range(len(new) + 1))]
    for i, word in enumerate(old, 1):
        above = rows[-1]
        row = [i]
        for j, other in enumerate(new, 1):
            diagonal = above[j - 1] + (0 if word == other else replacing)
            row.append(min(diagonal, above[j] + 1, row[-1] + 1))
        rows.append(row)
    return rows


def lowercase_edits(edits: Edits, source: str) -> Edits:
    """Edits of the lower-cased sentence, without those that only change case."""
    words = source.lower().split()
    low = [Edit(edit.start, edit.end, tuple(text.lower() for text in edit.corrections))
           for edit in edits]
    return tuple(
        edit for edit in low if set(edit.corrections) != {" ".join(words[edit.start : edit.end])})


def edits_to_json(annotators: Sequence[Edits]) -> list[Any]:
    """Edits of a sentence's annotators as plain lists; :func:`edits_from_json` reads them back."""
    return [[[edit.start, edit.end, list(edit.corrections)] for edit in edits]
            for edits in annotators]


def edits_from_json(value: list[Any]) -> tuple[Edits, ...]:
    """Edits of each annotator that :func:`edits_to_json` wrote."""
    return tuple(tuple(Edit(start, end, tuple(texts)) for start, end, texts in edits)
                 for edits in value)
