"""Sentences of a corpus, read from text files or from the built-in corpus."""

import hashlib
import io
import lzma
import re
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

from scalesearch.data.files import (
    find_text_file,
    hash_content,
    read_lines,
    select_column,
    table_format,
)
from scalesearch.data.spec import HASHED_SPLIT_NAMES, SPLIT_NAMES, DataSpec
from scalesearch.data.split_files import SplitPart, is_m2, is_prefix
from scalesearch.errors import UserError
from scalesearch.tasks.edits import Edits, apply_edits, extract_edits, parse_m2
from scalesearch.terminal import format_count

GRAMMAR_FILE = Path(__file__).with_name("grammar.tsv.xz")
GRAMMAR_SHA256 = "6f782d5a91f7736d47fec2246c4556c718d53b4c827ab973579f1e8f3ce13fd4"
HELD_OUT_PAIRS = 500
SentencePairs = list[tuple[str, str]]

DISTILLED_SPLIT = "distilled"
_TRAINING_SPLITS = ("train", DISTILLED_SPLIT)
_MAX_LISTED = 8
MAX_EDITED_WORDS = 2000


@dataclass
class ParallelText:
    """Sentence pairs of a split, with counts of pairs read and left out.

    For a language model, ``target`` holds the lines and ``source`` is empty. ``gold_edits`` holds,
    for each sentence, the edits of each annotator, which corrections are scored against.
    ``more_references`` holds the lines of each reference next to ``target``.
    """

    source: list[str]
    target: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    gold_edits: list[tuple[Edits, ...]] | None = None
    more_references: list[list[str]] = field(default_factory=list)

    def append(self, other: "ParallelText") -> "ParallelText":
        """Return the pairs of both; the counts are added."""
        counts = {key: self.counts.get(key, 0) + other.counts.get(key, 0)
                  for key in self.counts | other.counts}
        gold_edits = (None if self.gold_edits is None or other.gold_edits is None
                      else self.gold_edits + other.gold_edits)
        references = [lines + more for lines, more
                      in zip(self.more_references, other.more_references, strict=True)]
        return ParallelText(self.source + other.source, self.target + other.target, counts,
                            gold_edits, references)

    def truncate(self, limit: int) -> "ParallelText":
        """Return the first ``limit`` pairs; the counts hold the number of the others."""
        counts = self.counts | {"beyond_limit": max(0, len(self.target) - limit)}
        return ParallelText(self.source[:limit], self.target[:limit], counts)


def fingerprint_text(spec: DataSpec) -> dict[str, Any]:
    """Return hashes of the content of all text files.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    fingerprint: dict[str, Any] = {"builtin": GRAMMAR_SHA256,
                                   "pairs": spec.pairs} if spec.builtin else {}
    for split in _file_splits(spec):
        hashes = [list(map(hash_content, files)) for files in find_files(spec, split)]
        fingerprint[HASHED_SPLIT_NAMES.get(split, split)] = hashes
    return fingerprint


def _file_splits(spec: DataSpec) -> tuple[str, ...]:
    """Return the splits that are read from text files, with ``distilled``."""
    return (() if spec.builtin else SPLIT_NAMES) + ((DISTILLED_SPLIT,) if spec.distilled else ())


def read_sentences(spec: DataSpec) -> dict[str, ParallelText]:
    """Read the non-empty sentence pairs of each split.

    A teacher's translations are the split ``distilled``.

    Raises:
        UserError: a file is missing, not UTF-8, or without any pair; files have different numbers
        of lines; the
            validation or test text has an empty line, which would shift or falsify the score.
    """
    splits = {}
    if spec.builtin:
        assert spec.pairs is not None, "a spec of the built-in corpus has a number of pairs"
        for split, pairs in read_builtin(spec.pairs).items():
            english = [source for source, _ in pairs]
            german = [target for _, target in pairs]
            sides = ([], english) if spec.file_format == "text" else (english, german)
            splits[split] = ParallelText(*sides, {"read": len(pairs), "empty": 0})
    for split in _file_splits(spec):
        with_gold = spec.file_format == "corrections" and split not in _TRAINING_SPLITS
        if split == "test" and not spec.test:
            splits[split] = ParallelText([], [], {"read": 0, "empty": 0}, [] if with_gold else None)
            continue
        parts: list[ParallelText] = []
        file_lists = list(find_files(spec, split))
        for files in file_lists:
            if spec.file_format == "text":
                lines = select_column(read_lines(files[0]), files[0], "text")
                kept = [line for line in lines if line.strip()]
                part = ParallelText([], kept, {"read": len(lines), "empty": len(lines) - len(kept)})
            else:
                part = read_pairs(files, split, with_gold)
            if split == DISTILLED_SPLIT and spec.max_pairs is not None:  # applies to each teacher
                part = part.truncate(spec.max_pairs)
            if parts and len(part.more_references) != len(parts[0].more_references):
                names = ", ".join(dict.fromkeys(map(str, files)))
                raise UserError(f"data: {split}: all parts need as many references, but "
                                f"{names} has {len(part.more_references) + 1} "
                                f"and the parts before have {len(parts[0].more_references) + 1}",
                                key=f"data.{split}", code="unequal-lines")
            parts.append(part)
        if not any(part.target for part in parts):
            unit = "line of text" if spec.file_format == "text" else "sentence pair"
            names = ", ".join(dict.fromkeys(str(path) for files in file_lists for path in files))
            raise UserError(f"data: {split}: no {unit} in {names}", key=f"data.{split}",
                            code="no-sentences")
        splits[split] = reduce(ParallelText.append, parts)
    return splits


def find_files(spec: DataSpec, split: str) -> list[tuple[Path, ...]]:
    """Find the files of each part of a split.

    A part has files for source, target and further references, or a single file of M2 or text.
    A table is listed for each of its columns.

    Raises:
        UserError: a file is missing.
    """
    def paths_of(part: SplitPart) -> tuple[str, ...]:
        if not isinstance(part, str):
            return part.source, part.target, *part.references
        if spec.file_format == "text" or (spec.file_format == "corrections" and is_m2(part)):
            return (part,)
        if table_format(part):
            return part, part
        return f"{part}.{spec.suffixes[0]}", f"{part}.{spec.suffixes[1]}"

    def help_of(part: SplitPart) -> str | None:
        if is_prefix(part) and Path(str(part)).is_dir():
            return f"{part} is a folder: write the names of the files in it, without their endings"
        endings = "|".join(map(re.escape, spec.suffixes))
        pattern = rf"(.+)\.({endings})(\.gz|\.xz|\.zst)?"
        match = re.fullmatch(pattern, str(part)) if is_prefix(part) else None
        return match and f"write `{match[1]}`; the endings come from `source` and `target`"

    return [tuple(find_text_file(path, split, help_of(part)) for path in paths_of(part))
            for part in getattr(spec, split)]


def read_pairs(files: tuple[Path, ...], split: str, edits: bool) -> ParallelText:
    """Read the non-empty pairs of one part of a split.

    Args:
        files: one M2 file, or source, target and further references.
        edits: return gold edits instead of further references.

    Raises:
        UserError: see :func:`read_sentences`.
    """
    if len(files) == 1:
        sentences = parse_m2(read_lines(files[0]), str(files[0]))
        source = [sentence.source for sentence in sentences]
        target = [apply_edits(sentence.source, sentence.annotators[0]) for sentence in sentences]
        gold_edits = [sentence.annotators for sentence in sentences]
        line_numbers = [sentence.line for sentence in sentences]
        more_references: list[list[str]] = []
        columns = [source, target]
    else:
        source_lines = read_lines(files[0])
        source = select_column(source_lines, files[0], "source")
        sides = [select_column(read_lines(file), file, "target") for file in files[1:]]
        for file, side in zip(files[1:], sides):
            if len(side) != len(source):
                raise UserError(f"data: {split}: line i of one side belongs to line i of the "
                                f"other, but {files[0]} has {format_count(len(source), 'line')} "
                                f"and {file} has {len(side):,}", key=f"data.{split}",
                                code="unequal-lines")
        target = sides[0]
        first_line = 1 + len(source_lines) - len(source)  # 2 after a header
        line_numbers = list(range(first_line, first_line + len(source)))
        for number, lines in zip(line_numbers, zip(source, *sides) if edits else ()):
            if max(len(line.split()) for line in lines) > MAX_EDITED_WORDS:
                raise UserError(f"{files[0]}:{number}: a sentence that is scored by its edits has "
                                f"more than {MAX_EDITED_WORDS:,} words; the memory grows with the "
                                "square of the number of words", key=f"data.{split}",
                                code="line-too-long")
        gold_edits = []
        if edits:
            gold_edits = [tuple(extract_edits(line, side[i]) for side in sides)
                          for i, line in enumerate(source)]
        more_references = [] if edits else sides[1:]
        columns = [source, target] if split in _TRAINING_SPLITS else [source, *sides]
    empty = [i for i, row in enumerate(zip(*columns)) if not all(line.strip() for line in row)]
    if empty and split not in _TRAINING_SPLITS:
        raise UserError(_empty_lines_error(split, empty, columns, line_numbers, files),
                        key=f"data.{split}", code="empty-lines")
    dropped = set(empty)
    kept = [i for i in range(len(source)) if i not in dropped]
    return ParallelText([source[i] for i in kept], [target[i] for i in kept],
                        {"read": len(source), "empty": len(empty)},
                        [gold_edits[i] for i in kept] if edits else None,
                        [[lines[i] for i in kept] for lines in more_references])


def _empty_lines_error(split: str, empty: list[int], columns: list[list[str]],
                       line_numbers: list[int], files: tuple[Path, ...]) -> str:
    """Format the error message about empty lines at the indices ``empty``."""
    places = []
    for index in empty[:_MAX_LISTED]:
        column = [not lines[index].strip() for lines in columns].index(True)
        places.append(f"{files[column if len(files) > 1 else 0]}:{line_numbers[index]}")
    more = f" and {len(empty) - _MAX_LISTED:,} more" if len(empty) > _MAX_LISTED else ""
    return (f"data: {split}: {format_count(len(empty), 'empty line')}, which cannot be scored: "
            f"{', '.join(places)}{more}. Remove these lines on both sides (only training pairs are "
            "dropped automatically)")


def read_builtin(pairs: int) -> dict[str, SentencePairs]:
    """Read the first ``pairs`` training pairs, and all validation and test pairs.

    The corpus has 50,000 synthetic English-German-like training pairs; validation and test have 500
    pairs each. The history of the repository has the generator (``tools/grammar``). Its
    grammar has features that make translation into German hard: case and agreement, verb-second and
    verb-final order, separable verbs, compounds, and words that only their context disambiguates.
    Scores compare architectures; they do not predict scores on real text.

    A line of the file is a source and its target, separated by a tab. The validation pairs come
    first, then the test pairs, then the training pairs. Only the part that is needed is unpacked.

    Raises:
        UserError: the file is missing, or differs from the file of this version.
    """
    packed = GRAMMAR_FILE.read_bytes() if GRAMMAR_FILE.is_file() else b""
    if hashlib.sha256(packed).hexdigest() != GRAMMAR_SHA256:
        raise UserError(
            f"data: builtin: {GRAMMAR_FILE} is missing or is not the file of this version of "
            "scalesearch; reinstall scalesearch",
            key="data.builtin",
            code="builtin-data-damaged",
        )
    with io.TextIOWrapper(lzma.open(io.BytesIO(packed)), encoding="utf-8", newline="\n") as lines:
        rows = (tuple(line.rstrip("\n").split("\t")) for line in lines)
        validation = list(islice(rows, HELD_OUT_PAIRS))
        test = list(islice(rows, HELD_OUT_PAIRS))
        return {"train": list(islice(rows, pairs)), "validation": validation, "test": test}
