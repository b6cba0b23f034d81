"""Word edits of a sentence, from M2 files or from source and reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from scalesearch.errors import UserError

NO_CORRECTION = "-NONE-"


@dataclass(frozen=True)
class Edit:
    """Replacement of words ``start`` to ``end`` (exclusive) by one of ``corrections``.

    A correction may be empty.
    """

    start: int
    end: int
    corrections: tuple[str, ...]


Edits = tuple[Edit, ...]


@dataclass(frozen=True)
class AnnotatedSentence:
    """Sentence with the edits of each annotator, which may be empty.

    ``line`` is its line number in the file.
    """

    source: str
    annotators: tuple[Edits, ...]
    line: int


def parse_m2(lines: Sequence[str], name: str) -> list[AnnotatedSentence]:
    """Parse the sentences of an M2 file with their edits.

    A sentence is a line ``S`` with its words, then for each edit a line ``A start
    end|||type|||correction||another|||required|||comment|||annotator``, then an empty line.

    Type ``noop``, or offsets of -1, mean that an annotator has no edits. Types and comments are
    ignored. A sentence without ``A`` lines is correct.

    Args:
        name: of the file, for error messages.

    Raises:
        UserError: a line has another form; the message gives its position.
    """
    numbered = enumerate(lines, 1)
    blocks = groupby(numbered, key=lambda numbered_line: bool(numbered_line[1].strip()))
    sentences = []
    for has_text, block in blocks:
        if not has_text:
            continue
        number, sentence = next(block)
        if sentence != "S" and not sentence.startswith("S "):
            raise UserError(f"{name}:{number}: a sentence of an M2 file begins with `S ` and its "
                            f"words, not with {sentence!r}", code="bad-m2")
        words = sentence[1:].split()
        edits_by_annotator: dict[str, list[Edit]] = {}
        for edit_number, line in block:
            annotator, edit = _parse_edit(line, len(words), f"{name}:{edit_number}")
            edits = edits_by_annotator.setdefault(annotator, [])
            if edit:
                edits.append(edit)
        annotators = [tuple(sorted(edits, key=lambda edit: (edit.start, edit.end)))
                      for edits in edits_by_annotator.values()]
        sentences.append(AnnotatedSentence(" ".join(words), tuple(annotators) or ((),), number))
    return sentences


def _parse_edit(line: str, length: int, place: str) -> tuple[str, Edit | None]:
    """Return annotator and edit of an ``A`` line, for a sentence of ``length`` words."""
    fields = line[2:].split("|||")
    offsets = fields[0].split()
    are_integers = all(offset.removeprefix("-").isdecimal() for offset in offsets)
    if not line.startswith("A ") or len(fields) != 6 or len(offsets) != 2 or not are_integers:
        raise UserError(f"{place}: an edit is `A START "
                        f"END|||TYPE|||CORRECTION|||REQUIRED|||COMMENT|||ANNOTATOR`, not {line!r}",
                        code="bad-m2")
    start, end = map(int, offsets)
    if fields[1] == "noop" or (start, end) == (-1, -1):
        return fields[5], None
    if not 0 <= start <= end <= length:
        raise UserError(f"{place}: the edit covers words {start} to {end}, but its sentence has "
                        f"{length}", code="bad-m2")
    corrections = ["" if text.strip() == NO_CORRECTION else " ".join(text.split())
                   for text in fields[2].split("||")]
    return fields[5], Edit(start, end, tuple(corrections))


def apply_edits(source: str, edits: Edits) -> str:
    """Apply the first correction of each edit; of overlapping edits, the first."""
    words = source.split()
    corrected: list[str] = []
    end = 0
    for edit in edits:
        if edit.start >= end:
            corrected += [*words[end : edit.start], *edit.corrections[0].split()]
            end = edit.end
    return " ".join(corrected + words[end:])


def extract_edits(source: str, reference: str) -> Edits:
    """Extract the edits that turn ``source`` into ``reference``.

    They follow an alignment with the fewest changes. An inserted, deleted or replaced word is one
    change; adjacent changes are one edit. Words are separated by blanks.
    """
    old = source.split()
    new = reference.split()
    spans: list[list[int]] = []  # start and end in old, start and end in new
    distance = edit_distances(old, new, 1)
    changes = []  # positions in old and new, and words on each side (0 or 1)
    i = len(old)
    j = len(new)
    while i or j:
        same = i and j and old[i - 1] == new[j - 1] and distance[i][j] == distance[i - 1][j - 1]
        replaced = i and j and distance[i][j] == distance[i - 1][j - 1] + 1
        deleted = i and distance[i][j] == distance[i - 1][j] + 1
        width, height = (1, 1) if same or replaced else (1, 0) if deleted else (0, 1)
        i -= width
        j -= height
        if not same:
            changes.append((i, j, width, height))
    for i, j, width, height in changes[::-1]:
        if spans and spans[-1][1] == i and spans[-1][3] == j:
            spans[-1][1] = i + width
            spans[-1][3] = j + height
        else:
            spans.append([i, i + width, j, j + height])
    return tuple(Edit(start, end, (" ".join(new[new_start:new_end]),))
                 for start, end, new_start, new_end in spans)


def edit_distances(old: Sequence[str], new: Sequence[str],
                   replacement_cost: int) -> list[list[int]]:
    """Compute edit distances of all prefixes.

    Row i, column j is the distance of ``old[:i]`` and ``new[:j]``. An inserted or deleted word
    costs 1.
    """
    rows = [list(range(len(new) + 1))]
    for i, word in enumerate(old, 1):
        above = rows[-1]
        row = [i]
        for j, other in enumerate(new, 1):
            diagonal = above[j - 1] + (0 if word == other else replacement_cost)
            row.append(min(diagonal, above[j] + 1, row[-1] + 1))
        rows.append(row)
    return rows


def lowercase_edits(edits: Edits, source: str) -> Edits:
    """Lower-case edits, and drop those that only change case."""
    words = source.lower().split()
    lowercased = [Edit(edit.start, edit.end, tuple(text.lower() for text in edit.corrections))
                  for edit in edits]
    return tuple(edit
                 for edit in lowercased
                 if set(edit.corrections) != {" ".join(words[edit.start : edit.end])})


def edits_to_json(annotators: Sequence[Edits]) -> list[Any]:
    """Convert the edits of a sentence to lists; see :func:`edits_from_json`."""
    return [[[edit.start, edit.end, list(edit.corrections)] for edit in edits]
            for edits in annotators]


def edits_from_json(value: list[Any]) -> tuple[Edits, ...]:
    """Read the edits of each annotator that :func:`edits_to_json` wrote."""
    return tuple(tuple(Edit(start, end, tuple(texts)) for start, end, texts in edits)
                 for edits in value)
