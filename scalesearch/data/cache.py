"""Cache of tokenized corpora: atomic writes, verified reads, memory-mapped ids."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from scalesearch.data.prepare import PreparedCorpus, SplitCounts
from scalesearch.data.spec import HASHED_SPLIT_NAMES, SPLIT_NAMES
from scalesearch.data.split import IntArray, RaggedArray, Split
from scalesearch.data.tokenizer import Tokenizer
from scalesearch.files import read_regular, regular_size
from scalesearch.tasks import Texts
from scalesearch.tasks.edits import edits_from_json, edits_to_json

# Increase it if the content or the meaning of the files changes. Folders of another version are
# not read.
CACHE_FORMAT_VERSION = 5
_METADATA_FILE = "corpus.json"
_TOKENIZER_FILE = "tokenizer.model"
_SIDES = ("source", "target")
# Plain arrays without a header: the hash of a file is the hash of its numbers on every machine.
_IDS = np.dtype("<i4")
_OFFSETS = np.dtype("<i8")
StoredCorpus = tuple[dict[str, Any], Tokenizer, dict[str, Split]]  # metadata, tokenizer, splits


class DamagedCacheError(Exception):
    """Error: a cache folder is missing or does not hold what was written."""


def cache_key(description: dict[str, Any]) -> str:
    """Hash everything that determines a corpus; the name of its cache folder."""
    text = json.dumps({"format": CACHE_FORMAT_VERSION, **description}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def write_cache(folder: Path, prepared: PreparedCorpus) -> None:
    """Write ``folder`` atomically; an existing folder is replaced.

    Files are not synced to disk. After a crash of the machine the checksums differ, and the corpus
    is prepared again.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        _write(temporary, prepared)
        temporary.chmod(0o755)
        # A process that reads the old folder at this moment finds it damaged, and waits for the
        # lock.
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _write(folder: Path, prepared: PreparedCorpus) -> None:
    (folder / _TOKENIZER_FILE).write_bytes(prepared.tokenizer.model_bytes)
    for split_name, split in prepared.splits.items():
        name = HASHED_SPLIT_NAMES[split_name]
        sides = (split.source_ids, split.source_text), (split.target_ids, split.target_text)
        for side, (rows, text) in zip(_SIDES, sides):
            (folder / f"{name}.{side}.ids").write_bytes(rows.flat.astype(_IDS).tobytes())
            (folder / f"{name}.{side}.offsets").write_bytes(rows.offsets.astype(_OFFSETS).tobytes())
            (folder / f"{name}.{side}.txt").write_bytes(_join_lines(text))
        for number, text in enumerate(split.texts.more_references, 2):
            (folder / _reference_file(name, number)).write_bytes(_join_lines(text))
        if split.texts.gold_edits is not None:
            lines = [json.dumps(edits_to_json(annotators)) + "\n"
                     for annotators in split.texts.gold_edits]
            (folder / f"{name}.gold.jsonl").write_text("".join(lines), "utf-8")
    checksums = {path.name: _file_checksum(path) for path in sorted(folder.iterdir())}
    overlaps = {HASHED_SPLIT_NAMES[name]: split.window_overlap
                for name, split in prepared.splits.items()}
    # Corpora with the same file hashes are equal, whatever they were made from.
    metadata = {"format": CACHE_FORMAT_VERSION, "hash": hash_json(checksums),
                "counts": _rename_keys(prepared.counts, "validation",
                                       HASHED_SPLIT_NAMES["validation"]), "files": checksums,
                "overlaps": overlaps}
    text = json.dumps({**metadata, "sum": hash_json(metadata)}, indent=1)
    (folder / _METADATA_FILE).write_text(text, "utf-8")


def _join_lines(lines: Sequence[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def _reference_file(split: str, number: int) -> str:
    """Name of the file of the reference ``number``, from 2, of a split."""
    return f"{split}.target{number}.txt"


def _rename_keys(counts: SplitCounts, old: str, new: str) -> SplitCounts:
    """Replace a word in all keys of nested counts."""
    return {name.replace(old,
                         new): {key.replace(old, new): count for key, count in split_counts.items()}
            for name, split_counts in counts.items()}


def hash_json(value: Any) -> str:
    """Hash a JSON value to 16 hex digits."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def _file_checksum(path: Path) -> str:
    regular_size(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def read_cache(folder: Path) -> StoredCorpus:
    """Read ``folder``; token ids are memory-mapped.

    Raises:
        DamagedCacheError: the folder or a file is missing, or differs from what was written.
    """
    try:
        metadata: dict[str, Any] = json.loads(read_regular(folder / _METADATA_FILE))
        changed = [name
                   for name, checksum in metadata["files"].items()
                   if _file_checksum(folder / name) != checksum]
        if changed or metadata.pop("sum") != hash_json(metadata):
            raise DamagedCacheError(f"{folder}: {', '.join(changed) or _METADATA_FILE} was changed")
        metadata["counts"] = _rename_keys(metadata["counts"], HASHED_SPLIT_NAMES["validation"],
                                          "validation")
        splits = {}
        for split_name in SPLIT_NAMES:
            name = HASHED_SPLIT_NAMES[split_name]
            source_ids = _read_ids(folder, name, "source")
            target_ids = _read_ids(folder, name, "target")
            texts = partial(_read_texts, folder, name)
            splits[split_name] = Split(source_ids, target_ids, texts, metadata["overlaps"][name])
        tokenizer_file = folder / _TOKENIZER_FILE
        return metadata, Tokenizer(tokenizer_file.read_bytes(), tokenizer_file), splits
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCacheError(f"{folder}: {error!r}") from None


def _read_ids(folder: Path, name: str, side: str) -> RaggedArray:
    flat = _memory_map(folder / f"{name}.{side}.ids", _IDS)
    return RaggedArray(flat, _memory_map(folder / f"{name}.{side}.offsets", _OFFSETS))


def _memory_map(path: Path, dtype: np.dtype[Any]) -> IntArray:
    """Map a file as a read-only plain array; slices of a ``memmap`` are slow."""
    return np.asarray(np.memmap(path, dtype, "r")) if path.stat().st_size else np.zeros(0, dtype)


def _read_texts(folder: Path, name: str) -> Texts:
    source, target = (_read_lines(folder / f"{name}.{side}.txt") for side in _SIDES)
    gold_file = folder / f"{name}.gold.jsonl"
    gold_edits = ([edits_from_json(json.loads(line)) for line in _read_lines(gold_file)]
                  if gold_file.exists() else None)
    reference_files = (folder / _reference_file(name, number) for number in count(2))
    references = [_read_lines(file) for file in takewhile(Path.exists, reference_files)]
    return Texts(source, target, gold_edits, references)


def _read_lines(file: Path) -> list[str]:
    return file.read_bytes().decode().split("\n")[:-1]
