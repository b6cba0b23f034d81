"""Keeps a binarised corpus in a folder: written whole or not at all, checked on every load, mapped into memory."""

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
from scalesearch.data.split import Rows, Split
from scalesearch.data.tokenizer import Tokenizer

# Raise it when what the files hold or mean changes; folders of another format are then left alone.
FORMAT = 1
_META = "corpus.json"
_MODEL = "tokenizer.model"
_SIDES = ("source", "target")


class Damaged(Exception):
    """A folder that is not what was written there; the message says how."""


def key_of(description: dict[str, Any]) -> str:
    """The folder's name: a hash of what the corpus is made from."""
    text = json.dumps({"format": FORMAT, **description}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def store(folder: Path, prepared: Prepared) -> None:
    """Writes ``folder``, replacing what stands there. Others see the old or the new one, never a part.

    No file is synced: should the machine stop half-way, the checksums tell, and the corpus is made again.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        _write(scratch, prepared)
        scratch.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(scratch, folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _write(folder: Path, prepared: Prepared) -> None:
    (folder / _MODEL).write_bytes(prepared.tokenizer.bytes)
    for name, split in prepared.splits.items():
        for side, rows, text in zip(_SIDES, (split.source_ids, split.target_ids), (split.source_text, split.target_text)):
            np.save(folder / f"{name}.{side}.ids.npy", rows.flat)
            np.save(folder / f"{name}.{side}.offsets.npy", rows.offsets)
            (folder / f"{name}.{side}.txt").write_bytes("".join(line + "\n" for line in text).encode())
    sums = {path.name: _sum(path) for path in sorted(folder.iterdir())}
    meta = {"format": FORMAT, "hash": _content_hash(sums), "counts": prepared.counts, "files": sums}
    (folder / _META).write_text(json.dumps(meta, indent=1))


def _content_hash(sums: dict[str, str]) -> str:
    """One hash of the vocabulary, ids and text: equal hashes are equal corpora, whatever made them."""
    return hashlib.blake2b(json.dumps(sums, sort_keys=True).encode(), digest_size=8).hexdigest()


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def fetch(folder: Path) -> tuple[dict[str, Any], Tokenizer, dict[str, Split]] | None:
    """The corpus in ``folder`` as (meta data, tokenizer, splits), its ids mapped read-only; None where there is none.

    Raises:
        Damaged: a file is missing or is not what was written.
    """
    if not folder.exists():
        return None
    meta = _checked(folder)
    splits = {name: Split(*(_rows(folder, name, side) for side in _SIDES), _StoredText(folder, name))
              for name in SPLITS}
    return meta, Tokenizer((folder / _MODEL).read_bytes(), folder / _MODEL), splits


def _checked(folder: Path) -> dict[str, Any]:
    try:
        meta = json.loads((folder / _META).read_text())
        sums = meta["files"]
        wrong = [name for name, expected in sums.items() if _sum(folder / name) != expected]
        whole = not wrong and meta["hash"] == _content_hash(sums) and meta["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{folder}: {error!r}") from None
    if not whole:
        raise Damaged(f"{folder}: {', '.join(wrong) or _META} is not what was written")
    return meta


def _rows(folder: Path, split: str, side: str) -> Rows:
    load = [np.load(folder / f"{split}.{side}.{part}.npy", mmap_mode="r") for part in ("ids", "offsets")]
    return Rows(*load)


class _StoredText:
    """Reads a split's text from its folder when asked; a class, so that it pickles."""

    def __init__(self, folder: Path, split: str) -> None:
        self.folder = folder
        self.split = split

    def __call__(self) -> tuple[list[str], list[str]]:
        source, target = (self._lines(side) for side in _SIDES)
        return source, target

    def _lines(self, side: str) -> list[str]:
        return (self.folder / f"{self.split}.{side}.txt").read_bytes().decode().split("\n")[:-1]
