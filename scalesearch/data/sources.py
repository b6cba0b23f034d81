"""Where a corpus's sentences come from: parallel files or the built-in grammar."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from scalesearch.data.files import digest, read_lines
from scalesearch.data.paths import text_file
from scalesearch.data.spec import SPLITS, DataSpec, Part
from scalesearch.errors import UserError

DISTILLED = "distilled"
_SHOWN = 8


@dataclass
class Pairs:
    """The sentence pairs of a split, side by side, and how many were read and left out."""

    source: list[str]
    target: list[str]
    counts: dict[str, int] = field(default_factory=dict)


def fingerprint(spec: DataSpec) -> dict[str, Any]:
    """What the text is, in short: hashes of the files' content, or of the generator's code.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    if spec.builtin:
        text = {"builtin": spec.builtin, "pairs": spec.pairs, "seed": spec.seed, "code": _builtin_code()}
        return text | _digests(spec, _translated(spec))
    return _digests(spec, (*SPLITS, *_translated(spec)))


def _digests(spec: DataSpec, splits: Iterable[str]) -> dict[str, Any]:
    return {split: [[digest(source), digest(target)] for source, target in find_files(spec, split)]
            for split in splits}


def _translated(spec: DataSpec) -> tuple[str, ...]:
    """``distilled``, where the spec names a teacher's translations."""
    return () if spec.distilled is None else (DISTILLED,)


def read(spec: DataSpec) -> dict[str, Pairs]:
    """The sentence pairs of each split, none of them empty; and under ``distilled`` a teacher's, where there are any.

    Raises:
        UserError: files that are missing, not UTF-8, of unequal length, or without any pair; an empty line in
            the validation or test text, which would shift or falsify the score.
    """
    translated = {split: _read_split(spec, split) for split in _translated(spec)}
    if spec.builtin:
        return _generate(spec) | translated
    return {split: _read_split(spec, split) for split in SPLITS} | translated


def find_files(spec: DataSpec, split: str) -> list[tuple[Path, Path]]:
    """The source and target file of each part of a split.

    Raises:
        UserError: one is missing.
    """
    def both(part: Part) -> tuple[str, str]:
        if isinstance(part, str):
            return f"{part}.{spec.suffixes[0]}", f"{part}.{spec.suffixes[1]}"
        return part.source, part.target

    parts = (spec.distilled,) if split == DISTILLED else getattr(spec, split)
    return [(text_file(source, split), text_file(target, split)) for source, target in map(both, parts)]


def _read_split(spec: DataSpec, split: str) -> Pairs:
    whole = Pairs([], [], {"read": 0, "empty": 0})
    for source_file, target_file in find_files(spec, split):
        source, target = read_lines(source_file), read_lines(target_file)
        if len(source) != len(target):
            raise UserError(f"data: {split}: line i of one side translates line i of the other, but {source_file} "
                            f"has {len(source)} lines and {target_file} has {len(target)}")
        empty = [i for i, pair in enumerate(zip(source, target)) if not (pair[0].strip() and pair[1].strip())]
        if empty and split not in ("train", DISTILLED):
            raise UserError(_empty_lines(split, empty, source, source_file, target_file))
        gone = set(empty)
        whole.source += [line for i, line in enumerate(source) if i not in gone]
        whole.target += [line for i, line in enumerate(target) if i not in gone]
        whole.counts["read"] += len(source)
        whole.counts["empty"] += len(empty)
    if not whole.source:
        raise UserError(f"data: {split}: no sentence pair in {', '.join(_file_names(spec, split))}")
    return whole


def _file_names(spec: DataSpec, split: str) -> list[str]:
    return [str(path) for pair in find_files(spec, split) for path in pair]


def _empty_lines(split: str, lines: list[int], source: list[str], *files: Path) -> str:
    shown = [f"{files[1] if source[i].strip() else files[0]}:{i + 1}" for i in lines[:_SHOWN]]
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return (f"data: {split}: {len(lines)} empty line(s), which cannot be scored: {', '.join(shown)}{more}. "
            "Remove these lines on both sides (only training pairs are dropped by themselves)")


def _generate(spec: DataSpec) -> dict[str, Pairs]:
    grammar = import_module("scalesearch.data.builtin")
    made = grammar.generate(seed=spec.seed, pairs=spec.pairs)
    return {split: Pairs([source for source, _ in made[split]], [target for _, target in made[split]],
                         {"read": len(made[split]), "empty": 0}) for split in SPLITS}


def _builtin_code() -> str:
    """The hash of the generator's files: a changed grammar is another corpus."""
    state = hashlib.blake2b(digest_size=16)
    folder = Path(__file__).parent / "builtin"
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        state.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return state.hexdigest()
