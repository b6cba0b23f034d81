"""Cache of binarised corpora: written whole or not at all, checked at each load, memory-mapped."""

import hashlib
import json
import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scalesearch.data.prepare import PreparedCorpus
from scalesearch.data.spec import SPLIT_NAMES
from scalesearch.data.split import IntArray, RaggedArray, Split
from scalesearch.data.tokenizer import Tokenizer
from scalesearch.files import read_regular, regular_size
from scalesearch.tasks import Texts
from scalesearch.tasks.edits import edits_from_json, edits_to_json

# Raise it when what the files hold or mean changes; folders of another format are then left alone.
CACHE_FORMAT_VERSION = 3
_METADATA_FILE = "corpus.json"
_TOKENIZER_FILE = "tokenizer.model"
_SIDES = ("source", "target")
# Plain arrays without a header, so that their hash is the hash of the numbers on every machine.
_IDS = np.dtype("<i4")
_OFFSETS = np.dtype("<i8")
StoredCorpus = tuple[dict[str, Any], Tokenizer, dict[str, Split]]  # meta data, tokenizer, splits


class DamagedCacheError(Exception):
    """Error: a folder does not hold what was written there."""


def cache_key(description: dict[str, Any]) -> str:
    """Name of the folder: a hash of what the corpus is made from."""
    text = json.dumps({"format": CACHE_FORMAT_VERSION, **description}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def write_cache(folder: Path, prepared: PreparedCorpus) -> None:
    """Writes ``folder`` atomically, replacing what is there.

    No file is synced: should the machine stop half-way, the checksums tell, and the corpus is made
    again.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        _write(scratch, prepared)
        scratch.chmod(0o755)
        # who reads it meanwhile finds it damaged, and waits for the lock
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(scratch, folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _write(folder: Path, prepared: PreparedCorpus) -> None:
    (folder / _TOKENIZER_FILE).write_bytes(prepared.tokenizer.model_bytes)
    for name, split in prepared.splits.items():
        both = (split.source_ids, split.source_text), (split.target_ids, split.target_text)
        for side, (rows, text) in zip(_SIDES, both):
            (folder / f"{name}.{side}.ids").write_bytes(rows.flat.astype(_IDS).tobytes())
            (folder / f"{name}.{side}.offsets").write_bytes(rows.offsets.astype(_OFFSETS).tobytes())
            (folder
             / f"{name}.{side}.txt").write_bytes("".join(line + "\n" for line in text).encode())
        if split.texts.gold_edits is not None:
            lines = [json.dumps(edits_to_json(annotators)) + "\n"
                     for annotators in split.texts.gold_edits]
            (folder / f"{name}.gold.jsonl").write_text("".join(lines))
    sums = {path.name: _file_checksum(path) for path in sorted(folder.iterdir())}
    # Equal hashes of the files are equal corpora, whatever they were made from.
    meta = {"format": CACHE_FORMAT_VERSION, "hash": hash_json(sums), "counts": prepared.counts,
            "files": sums,
            "overlaps": {name: split.window_overlap for name, split in prepared.splits.items()}}
    (folder / _METADATA_FILE).write_text(json.dumps({**meta, "sum": hash_json(meta)}, indent=1))


def hash_json(value: Any) -> str:
    """Hash of a JSON value, 16 hex digits."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def _file_checksum(path: Path) -> str:
    regular_size(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def read_cache(folder: Path) -> StoredCorpus:
    """Reads ``folder``, ids memory-mapped.

    Raises:
        Damaged: a file, or all of them, is missing or is not what was written.
    """
    try:
        meta: dict[str, Any] = json.loads(read_regular(folder / _METADATA_FILE))
        wrong = [name
                 for name, expected in meta["files"].items()
                 if _file_checksum(folder / name) != expected]
        if wrong or meta.pop("sum") != hash_json(meta):
            raise DamagedCacheError(f"{folder}: {', '.join(wrong) or _METADATA_FILE} is not what "
                                    "was written")
        splits = {name: Split(_read_ids(folder, name, "source"), _read_ids(folder, name, "target"),
                              partial(_read_texts, folder, name), meta["overlaps"][name])
                  for name in SPLIT_NAMES}
        return meta, Tokenizer((folder / _TOKENIZER_FILE).read_bytes(),
                               folder / _TOKENIZER_FILE), splits
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCacheError(f"{folder}: {error!r}") from None


def _read_ids(folder: Path, split: str, side: str) -> RaggedArray:
    return RaggedArray(_memory_map(folder / f"{split}.{side}.ids", _IDS),
                       _memory_map(folder / f"{split}.{side}.offsets", _OFFSETS))


def _memory_map(path: Path, dtype: np.dtype[Any]) -> IntArray:
    """Maps a file as a read-only array; a plain one, since slices of a ``memmap`` are slow."""
    return np.asarray(np.memmap(path, dtype, "r")) if path.stat().st_size else np.zeros(0, dtype)


def _read_texts(folder: Path, split: str) -> Texts:
    source, target = (_lines(folder / f"{split}.{side}.txt") for side in _SIDES)
    gold = folder / f"{split}.gold.jsonl"
    return Texts(source, target,
                 [edits_from_json(json.loads(line)) for line in _lines(gold)] if gold.exists()
                 else None)


def _lines(file: Path) -> list[str]:
    return file.read_bytes().decode().split("\n")[:-1]
