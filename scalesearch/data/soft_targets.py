"""Soft targets: a teacher's token probabilities (Hinton et al. 2015).

A file of records, one per target token (EOS included) in the order of the pairs. A record holds
the ``top`` most probable tokens of the teacher and their probabilities, which sum to 1. FILE.json
next to it identifies the corpus and the teacher.

Shapes: N records, B sentence pairs, T target tokens.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from scalesearch.data.split import IntArray, Split
from scalesearch.errors import UserError
from scalesearch.files import read_json

_SUM_TOLERANCE = 0.01  # largest deviation from 1 of the sum of probabilities in half precision


class SoftTargetMetadata(TypedDict):
    """Identity of soft targets: corpus, teacher, tokens per position, dtype.

    ``corpus`` and ``teacher`` are hashes. The keys are part of the corpus hash.
    """

    corpus: str
    teacher: str
    top: int
    dtype: str


@dataclass(frozen=True)
class SoftTargetBatch:
    """Soft targets of a batch.

    Attributes:
        ids: (B, T, top) tokens.
        probabilities: (B, T, top), 0 after the end of a row.
    """

    ids: IntArray
    probabilities: NDArray[np.float32]

    @classmethod
    def from_records(cls, records: NDArray[np.void], mask: NDArray[np.bool_]) -> "SoftTargetBatch":
        """Place records (N,) row by row at the N true positions of ``mask`` (B, T)."""
        ids = np.zeros((*mask.shape, records["ids"].shape[1]), np.int64)
        probabilities = np.zeros(ids.shape, np.float32)
        ids[mask] = records["ids"]
        probabilities[mask] = records["probabilities"]
        return cls(ids, probabilities)

    def take(self, rows: IntArray, width: int) -> "SoftTargetBatch":
        """Select rows, truncated to ``width`` positions."""
        return SoftTargetBatch(self.ids[rows, :width], self.probabilities[rows, :width])


class SoftTargets:
    """Memory-mapped soft targets of a split, with their ``metadata``."""

    def __init__(self, records: NDArray[np.void], metadata: SoftTargetMetadata) -> None:
        self.records = records
        self.metadata = metadata

    @classmethod
    def read(cls, file: Path, corpus: str, split: Split, vocab_size: int) -> "SoftTargets":
        """Read the soft targets of ``split``.

        Args:
            corpus: hash of the corpus.
            vocab_size: of the corpus.

        Raises:
            UserError: the file is missing, belongs to another corpus, or is incomplete.
        """
        try:
            metadata = read_metadata(file)
            size = file.stat().st_size
        except OSError as error:
            raise UserError(f"data: soft_targets: {error.filename}: {error.strerror}",
                            key="data.soft_targets",
                            help="make it with `scalesearch distill --targets soft`",
                            code="no-soft-targets") from None
        if metadata["corpus"] != corpus:
            raise UserError(f"data: soft_targets: {file} was made for other pairs or another "
                            "vocabulary", key="data.soft_targets",
                            help="make it again with "
                            "`scalesearch distill --targets soft`, with a teacher of this "
                            "vocabulary and with these data", code="soft-targets-mismatch")
        top_k = metadata["top"]
        expected_size = record_offsets(split)[-1] * top_k * record_dtype(1).itemsize
        is_complete = top_k > 0 and size == expected_size
        records = np.asarray(np.memmap(file, record_dtype(top_k), "r")) if is_complete else None
        if records is None or not _is_valid(records, vocab_size):
            raise UserError(f"data: soft_targets: {file} is not finished, or damaged",
                            key="data.soft_targets",
                            help="run `scalesearch distill --targets "
                            "soft` again, which resumes; if the error persists, delete the file",
                            code="soft-targets-unfinished")
        return cls(records, metadata)

    def batch(self, split: Split, indices: IntArray) -> SoftTargetBatch:
        """Return the soft targets of the pairs of ``split`` at ``indices``."""
        first = record_offsets(split)[indices]
        lengths = split.target_ids.lengths[indices] + 1
        columns = np.arange(int(lengths.max(initial=0)))
        mask = columns < lengths[:, None]
        return SoftTargetBatch.from_records(self.records[(first[:, None] + columns)[mask]], mask)


def _is_valid(records: NDArray[np.void], vocab_size: int) -> bool:
    """Whether probabilities sum to 1, unlike zeros after a crash, and ids are tokens."""
    ids = records["ids"]
    probabilities = records["probabilities"]
    deviation = np.abs(probabilities.sum(1, dtype=np.float32) - 1).max()
    return bool(ids.min() >= 0 and ids.max() < vocab_size and probabilities.min() >= 0
                and deviation < _SUM_TOLERANCE)


def record_offsets(split: Split) -> IntArray:
    """Index (pairs + 1,) of each pair's first record; the last is the total."""
    return split.target_ids.offsets + np.arange(len(split) + 1)


def record_dtype(top_k: int) -> np.dtype[np.void]:
    """Layout of one record in the file."""
    return np.dtype([("ids", "<i4", (top_k,)), ("probabilities", "<f2", (top_k,))])


def metadata_file(file: Path) -> Path:
    """Path of the metadata next to ``file``."""
    return file.with_name(f"{file.name}.json")


def read_metadata(file: Path) -> SoftTargetMetadata:
    """Read the metadata of the soft targets in ``file``.

    Raises:
        UserError: the metadata are damaged.
        OSError: the metadata cannot be read.
    """
    return read_json(metadata_file(file), SoftTargetMetadata)
