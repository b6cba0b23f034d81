"""Sentences of a corpus, read from text files or from the built-in corpus."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalesearch.data.builtin import GRAMMAR_SHA256, read_builtin
from scalesearch.data.files import find_text_file, hash_content, read_lines
from scalesearch.data.spec import SPLIT_NAMES, DataSpec
from scalesearch.data.split_files import SplitPart, is_m2
from scalesearch.errors import UserError
from scalesearch.tasks.edits import Edits, apply_edits, extract_edits, parse_m2

DISTILLED_SPLIT = "distilled"
_TRAINING_SPLITS = ("train", DISTILLED_SPLIT)
_MAX_LISTED = 8
MAX_EDITED_WORDS = 2000


@dataclass
class ParallelText:
    """Sentence pairs of a split, with counts of those read and left out.

    Of text alone, ``target`` holds the lines and ``source`` none. ``gold_edits``: the edits of each
    annotator of each sentence, to score corrections against.
    """

    source: list[str]
    target: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    gold_edits: list[tuple[Edits, ...]] | None = None

    def truncate(self, limit: int) -> "ParallelText":
        """The first pairs, and in the counts how many there are beyond."""
        counts = self.counts | {"beyond_limit": max(0, len(self.target) - limit)}
        return ParallelText(self.source[:limit], self.target[:limit], counts)


def fingerprint_text(spec: DataSpec) -> dict[str, Any]:
    """Fingerprint of the text: hashes of the files' content.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    files = {split: [list(map(hash_content, files)) for files in find_files(spec, split)]
             for split in _file_splits(spec)}
    return ({"builtin": GRAMMAR_SHA256, "pairs": spec.pairs} if spec.builtin else {}) | files


def _file_splits(spec: DataSpec) -> tuple[str, ...]:
    """Names of the splits that are text files, a teacher's translations (``distilled``) among them."""
    return (() if spec.builtin else SPLIT_NAMES) + ((DISTILLED_SPLIT,) if spec.distilled else ())


def read_sentences(spec: DataSpec) -> dict[str, ParallelText]:
    """Reads the non-empty sentence pairs of each split, and a teacher's under ``distilled``.

    Raises:
        UserError: files that are missing, not UTF-8, of unequal length, or without any pair; an
            empty line in
            the validation or test text, which would shift or falsify the score.
    """
    return (_read_builtin_splits(spec) if spec.builtin else {}) | {
        split: _read_split(spec, split) for split in _file_splits(spec)}


def find_files(spec: DataSpec, split: str) -> list[tuple[Path, ...]]:
    """Files of each part of a split: source, target and further references, or a single one.

    Raises:
        UserError: one is missing.
    """
    def files(part: SplitPart) -> tuple[str, ...]:
        if not isinstance(part, str):
            return part.source, part.target, *part.references
        if spec.file_format == "text" or (spec.file_format == "corrections" and is_m2(part)):
            return (part,)
        return f"{part}.{spec.suffixes[0]}", f"{part}.{spec.suffixes[1]}"

    return [tuple(find_text_file(path, split) for path in files(part))
            for part in getattr(spec, split)]


def _read_split(spec: DataSpec, split: str) -> ParallelText:
    with_gold = spec.file_format == "corrections" and split not in _TRAINING_SPLITS
    whole = ParallelText([], [], {"read": 0, "empty": 0}, [] if with_gold else None)
    for files in find_files(spec, split):
        part = _read_text(files[0]) if spec.file_format == "text" else read_pairs(
            files, split, with_gold)
        if split == DISTILLED_SPLIT and spec.max_pairs is not None:  # of every teacher's
            part = part.truncate(spec.max_pairs)
        whole.source += part.source
        whole.target += part.target
        if whole.gold_edits is not None:
            whole.gold_edits += part.gold_edits or []
        for key, count in part.counts.items():
            whole.counts[key] = whole.counts.get(key, 0) + count
    if not whole.target:
        what = "line of text" if spec.file_format == "text" else "sentence pair"
        names = ", ".join(str(path) for files in find_files(spec, split) for path in files)
        raise UserError(f"data: {split}: no {what} in {names}", key=f"data.{split}",
                        code="no-sentences")
    return whole


def _read_text(file: Path) -> ParallelText:
    """Reads the lines that are not blank."""
    lines = read_lines(file)
    kept = [line for line in lines if line.strip()]
    return ParallelText([], kept, {"read": len(lines), "empty": len(lines) - len(kept)})


def read_pairs(files: tuple[Path, ...], split: str, edits: bool) -> ParallelText:
    """Reads the pairs of one part, without empty ones; ``edits``: with gold edits.

    Raises:
        UserError: as :func:`read_sentences`.
    """
    if len(files) == 1:
        sentences = parse_m2(read_lines(files[0]), str(files[0]))
        source = [sentence.source for sentence in sentences]
        target = [apply_edits(sentence.source, sentence.annotators[0]) for sentence in sentences]
        gold = [sentence.annotators for sentence in sentences]
        places = [sentence.line for sentence in sentences]
    else:
        source, *sides = _check_equal_lengths(files, split)
        target = sides[0]
        places = list(range(1, len(source) + 1))
        for place, lines in zip(places, zip(source, *sides) if edits else ()):
            if max(len(line.split()) for line in lines) > MAX_EDITED_WORDS:
                raise UserError(f"{files[0]}:{place}: a sentence to be scored by its edits has "
                                f"more than {MAX_EDITED_WORDS:,} words: they are compared in pairs",
                                key=f"data.{split}", code="line-too-long")
        gold = [tuple(extract_edits(line, side[i]) for side in sides)
                for i, line in enumerate(source)] if edits else []
    scored = split not in _TRAINING_SPLITS
    columns = [source, *sides] if scored and len(files) > 1 else [source, target]
    empty = [i for i, row in enumerate(zip(*columns)) if not all(line.strip() for line in row)]
    if empty and scored:
        raise UserError(_check_empty_lines(split, empty, columns, places, files),
                        key=f"data.{split}", code="empty-lines")
    dropped = set(empty)
    keep = [i for i in range(len(source)) if i not in dropped]
    return ParallelText([source[i] for i in keep], [target[i] for i in keep],
                        {"read": len(source), "empty": len(empty)},
                        [gold[i] for i in keep] if edits else None)


def _check_equal_lengths(files: tuple[Path, ...], split: str) -> list[list[str]]:
    sides = [read_lines(file) for file in files]
    for file, side in zip(files, sides):
        if len(side) != len(sides[0]):
            raise UserError(f"data: {split}: line i of one side translates line i of the other, "
                            f"but {files[0]} has {len(sides[0])} lines and {file} has {len(side)}",
                            key=f"data.{split}", code="unequal-lines")
    return sides


def _check_empty_lines(split: str, lines: list[int], columns: list[list[str]], places: list[int],
                       files: tuple[Path, ...]) -> str:
    blank = ([not column[i].strip() for column in columns].index(True) for i in lines[:_MAX_LISTED])
    listed = [f"{files[at if len(files) > 1 else 0]}:{places[i]}" for i, at in zip(lines, blank)]
    more = f" and {len(lines) - _MAX_LISTED} more" if len(lines) > _MAX_LISTED else ""
    return (f"data: {split}: {len(lines)} empty line(s), which cannot be scored: "
            f"{', '.join(listed)}{more}. Remove these lines on both sides (only training pairs are "
            "dropped by themselves)")


def _read_builtin_splits(spec: DataSpec) -> dict[str, ParallelText]:
    assert spec.pairs is not None, "a spec of the built-in corpus has a number of pairs"
    return {split: ParallelText([source for source, _ in pairs], [target for _, target in pairs],
                                {"read": len(pairs), "empty": 0})
            for split, pairs in read_builtin(spec.pairs).items()}
