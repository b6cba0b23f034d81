"""Sentences of a corpus, read from text files or from the built-in corpus."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalesearch.data.builtin import SHA256, read_builtin
from scalesearch.data.files import digest, read_lines, text_file
from scalesearch.data.parts import Part, is_m2
from scalesearch.data.spec import SPLITS, DataSpec
from scalesearch.errors import UserError
from scalesearch.tasks.edits import Edits, apply, edits_between, parse_m2

DISTILLED = "distilled"
_TRAINING = ("train", DISTILLED)
_MAX_LISTED = 8
MAX_WORDS = 2000


@dataclass
class Pairs:
    """Sentence pairs of a split, with counts of those read and left out.

    Of text alone, ``target`` holds the lines and ``source`` none. ``gold``: the edits of each annotator of each
    sentence, to score corrections against.
    """

    source: list[str]
    target: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    gold: list[tuple[Edits, ...]] | None = None

    def first(self, limit: int) -> "Pairs":
        """The first pairs, and in the counts how many there are beyond."""
        counts = self.counts | {"beyond_limit": max(0, len(self.target) - limit)}
        return Pairs(self.source[:limit], self.target[:limit], counts)


def fingerprint(spec: DataSpec) -> dict[str, Any]:
    """Fingerprint of the text: hashes of the files' content.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    files = {split: [list(map(digest, files)) for files in find_files(spec, split)] for split in _of_files(spec)}
    return ({"builtin": SHA256, "pairs": spec.pairs} if spec.builtin else {}) | files


def _of_files(spec: DataSpec) -> tuple[str, ...]:
    """Names of the splits that are text files, a teacher's translations (``distilled``) among them."""
    return (() if spec.builtin else SPLITS) + ((DISTILLED,) if spec.distilled else ())


def read(spec: DataSpec) -> dict[str, Pairs]:
    """Reads the non-empty sentence pairs of each split, and a teacher's under ``distilled``.

    Raises:
        UserError: files that are missing, not UTF-8, of unequal length, or without any pair; an empty line in
            the validation or test text, which would shift or falsify the score.
    """
    return (_builtin(spec) if spec.builtin else {}) | {split: _read_split(spec, split) for split in _of_files(spec)}


def find_files(spec: DataSpec, split: str) -> list[tuple[Path, ...]]:
    """Files of each part of a split: source, target and further references, or a single one.

    Raises:
        UserError: one is missing.
    """
    def files(part: Part) -> tuple[str, ...]:
        if not isinstance(part, str):
            return part.source, part.target, *part.references
        if spec.form == "text" or (spec.form == "corrections" and is_m2(part)):
            return (part,)
        return f"{part}.{spec.suffixes[0]}", f"{part}.{spec.suffixes[1]}"

    return [tuple(text_file(path, split) for path in files(part)) for part in getattr(spec, split)]


def _read_split(spec: DataSpec, split: str) -> Pairs:
    with_gold = spec.form == "corrections" and split not in _TRAINING
    whole = Pairs([], [], {"read": 0, "empty": 0}, [] if with_gold else None)
    for files in find_files(spec, split):
        part = _read_text(files[0]) if spec.form == "text" else read_pairs(files, split, with_gold)
        if split == DISTILLED and spec.limit is not None:  # of every teacher's
            part = part.first(spec.limit)
        whole.source += part.source
        whole.target += part.target
        if whole.gold is not None:
            whole.gold += part.gold or []
        for key, count in part.counts.items():
            whole.counts[key] = whole.counts.get(key, 0) + count
    if not whole.target:
        what = "line of text" if spec.form == "text" else "sentence pair"
        names = ", ".join(str(path) for files in find_files(spec, split) for path in files)
        raise UserError(f"data: {split}: no {what} in {names}", key=f"data.{split}", code="no-sentences")
    return whole


def _read_text(file: Path) -> Pairs:
    """Reads the lines that are not blank."""
    lines = read_lines(file)
    kept = [line for line in lines if line.strip()]
    return Pairs([], kept, {"read": len(lines), "empty": len(lines) - len(kept)})


def read_pairs(files: tuple[Path, ...], split: str, edits: bool) -> Pairs:
    """Reads the pairs of one part, without empty ones; ``edits``: with gold edits.

    Raises:
        UserError: as :func:`read`.
    """
    if len(files) == 1:
        sentences = parse_m2(read_lines(files[0]), str(files[0]))
        source = [sentence.source for sentence in sentences]
        target = [apply(sentence.source, sentence.annotators[0]) for sentence in sentences]
        gold = [sentence.annotators for sentence in sentences]
        places = [sentence.line for sentence in sentences]
    else:
        source, *sides = _same_length(files, split)
        target, places = sides[0], list(range(1, len(source) + 1))
        for place, lines in zip(places, zip(source, *sides) if edits else ()):
            if max(len(line.split()) for line in lines) > MAX_WORDS:
                raise UserError(f"{files[0]}:{place}: a sentence to be scored by its edits has more than {MAX_WORDS:,} "
                                "words: they are compared in pairs", key=f"data.{split}", code="line-too-long")
        gold = [tuple(edits_between(line, side[i]) for side in sides) for i, line in enumerate(source)] if edits else []
    scored = split not in _TRAINING
    columns = [source, *sides] if scored and len(files) > 1 else [source, target]
    empty = [i for i, row in enumerate(zip(*columns)) if not all(line.strip() for line in row)]
    if empty and scored:
        raise UserError(_empty_lines(split, empty, columns, places, files), key=f"data.{split}", code="empty-lines")
    dropped = set(empty)
    keep = [i for i in range(len(source)) if i not in dropped]
    return Pairs([source[i] for i in keep], [target[i] for i in keep], {"read": len(source), "empty": len(empty)},
                 [gold[i] for i in keep] if edits else None)


def _same_length(files: tuple[Path, ...], split: str) -> list[list[str]]:
    sides = [read_lines(file) for file in files]
    for file, side in zip(files, sides):
        if len(side) != len(sides[0]):
            raise UserError(f"data: {split}: line i of one side translates line i of the other, but {files[0]} "
                            f"has {len(sides[0])} lines and {file} has {len(side)}", key=f"data.{split}",
                            code="unequal-lines")
    return sides


def _empty_lines(split: str, lines: list[int], columns: list[list[str]], places: list[int], files: tuple[Path, ...]
                 ) -> str:
    blank = ([not column[i].strip() for column in columns].index(True) for i in lines[:_MAX_LISTED])
    listed = [f"{files[at if len(files) > 1 else 0]}:{places[i]}" for i, at in zip(lines, blank)]
    more = f" and {len(lines) - _MAX_LISTED} more" if len(lines) > _MAX_LISTED else ""
    return (f"data: {split}: {len(lines)} empty line(s), which cannot be scored: {', '.join(listed)}{more}. "
            "Remove these lines on both sides (only training pairs are dropped by themselves)")


def _builtin(spec: DataSpec) -> dict[str, Pairs]:
    assert spec.pairs is not None, "a spec of the built-in corpus has a number of pairs"
    return {split: Pairs([source for source, _ in pairs], [target for _, target in pairs],
                         {"read": len(pairs), "empty": 0}) for split, pairs in read_builtin(spec.pairs).items()}
