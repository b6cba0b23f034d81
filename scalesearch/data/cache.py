"""Cache of binarised corpora: written whole or not at all, checked at each load, memory-mapped."""

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from scalesearch.data.prepare import Prepared
from scalesearch.data.spec import SPLITS
from scalesearch.data.split import Ints, Rows, Split
from scalesearch.data.tokenizer import Tokenizer
from scalesearch.tasks import Texts
from scalesearch.tasks.edits import from_json, to_json

# Raise it when what the files hold or mean changes; folders of another format are then left alone.
FORMAT = 2
_META = "corpus.json"
_MODEL = "tokenizer.model"
_SIDES = ("source", "target")
# Plain arrays without a header, so that their hash is the hash of the numbers on every machine.
_IDS, _OFFSETS = np.dtype("<i4"), np.dtype("<i8")


class Damaged(Exception):
    """Error: a folder does not hold what was written there."""


def key_of(description: dict[str, Any]) -> str:
    """Name of the folder: a hash of what the corpus is made from."""
    text = json.dumps({"format": FORMAT, **description}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def store(folder: Path, prepared: Prepared) -> None:
    """Writes ``folder`` atomically, replacing what is there.

    No file is synced: should the machine stop half-way, the checksums tell, and the corpus is made again.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        _write(scratch, prepared)
        scratch.chmod(0o755)
        _discard(folder)
        os.replace(scratch, folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _discard(folder: Path) -> None:
    """Removes a folder; it is renamed first, so that nobody sees a part of it."""
    if folder.exists():
        trash = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.old."))
        os.replace(folder, trash / folder.name)
        shutil.rmtree(trash, ignore_errors=True)


def _write(folder: Path, prepared: Prepared) -> None:
    (folder / _MODEL).write_bytes(prepared.tokenizer.bytes)
    for name, split in prepared.splits.items():
        both = (split.source_ids, split.source_text), (split.target_ids, split.target_text)
        for side, (rows, text) in zip(_SIDES, both):
            (folder / f"{name}.{side}.ids").write_bytes(rows.flat.astype(_IDS).tobytes())
            (folder / f"{name}.{side}.offsets").write_bytes(rows.offsets.astype(_OFFSETS).tobytes())
            (folder / f"{name}.{side}.txt").write_bytes("".join(line + "\n" for line in text).encode())
        if split.texts.gold is not None:
            lines = [json.dumps(to_json(annotators)) + "\n" for annotators in split.texts.gold]
            (folder / f"{name}.gold.jsonl").write_text("".join(lines))
    sums = {path.name: _sum(path) for path in sorted(folder.iterdir())}
    meta = {"format": FORMAT, "hash": _content_hash(sums), "counts": prepared.counts, "files": sums,
            "overlaps": {name: split.overlap for name, split in prepared.splits.items()}}
    (folder / _META).write_text(json.dumps(meta, indent=1))


def _content_hash(sums: dict[str, str]) -> str:
    """Hash of vocabulary, ids and text: equal hashes are equal corpora, whatever they were made from."""
    return hashlib.blake2b(json.dumps(sums, sort_keys=True).encode(), digest_size=8).hexdigest()


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def fetch(folder: Path) -> tuple[dict[str, Any], Tokenizer, dict[str, Split]] | None:
    """Reads ``folder`` as (meta data, tokenizer, splits), ids memory-mapped; None if there is none.

    Raises:
        Damaged: a file is missing or is not what was written.
    """
    if not folder.exists():
        return None
    try:
        meta = _checked(folder)
        splits = {name: Split(_rows(folder, name, "source"), _rows(folder, name, "target"),
                              _StoredText(folder, name), meta["overlaps"][name]) for name in SPLITS}
        return meta, Tokenizer((folder / _MODEL).read_bytes(), folder / _MODEL), splits
    except OSError as error:
        raise Damaged(f"{folder}: {error}") from None


def _checked(folder: Path) -> dict[str, Any]:
    try:
        meta: dict[str, Any] = json.loads((folder / _META).read_text())
        sums = meta["files"]
        wrong = [name for name, expected in sums.items() if _sum(folder / name) != expected]
        whole = not wrong and meta["hash"] == _content_hash(sums) and meta["format"] == FORMAT
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{folder}: {error!r}") from None
    if not whole:
        raise Damaged(f"{folder}: {', '.join(wrong) or _META} is not what was written")
    return meta


def _rows(folder: Path, split: str, side: str) -> Rows:
    return Rows(_mapped(folder / f"{split}.{side}.ids", _IDS), _mapped(folder / f"{split}.{side}.offsets", _OFFSETS))


def _mapped(path: Path, dtype: np.dtype[Any]) -> Ints:
    """Maps a file as a read-only array; a plain one, since slices of a ``memmap`` are slow."""
    return np.asarray(np.memmap(path, dtype, "r")) if path.stat().st_size else np.zeros(0, dtype)


class _StoredText:
    """Callable that reads a split's text from its folder; a class, so that it pickles."""

    def __init__(self, folder: Path, split: str) -> None:
        self.folder = folder
        self.split = split

    def __call__(self) -> Texts:
        source, target = (self._lines(f"{side}.txt") for side in _SIDES)
        if not (self.folder / f"{self.split}.gold.jsonl").exists():
            return Texts(source, target)
        return Texts(source, target, [from_json(json.loads(line)) for line in self._lines("gold.jsonl")])

    def _lines(self, name: str) -> list[str]:
        return (self.folder / f"{self.split}.{name}").read_bytes().decode().split("\n")[:-1]
