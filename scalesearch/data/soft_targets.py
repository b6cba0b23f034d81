"""Soft targets: what a teacher finds probable at every place of the training pairs (Hinton et al.

2015).

A file of records, one a target token (the end mark among them) in the order of the pairs, each the
teacher's ``top`` likeliest tokens and their probabilities, which sum to 1; beside it FILE.json says
which corpus and teacher they are of.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from scalesearch.data.split import IntArray, Split
from scalesearch.errors import UserError
from scalesearch.files import read_json

_SUM_TOLERANCE = 0.01  # by which probabilities that are kept in half precision may miss 1 together


class SoftTargetMetadata(TypedDict):
    """What decides soft targets: hashes of the ``corpus`` and the ``teacher``, and how many are kept of a place."""

    corpus: str
    teacher: str
    top: int
    dtype: str


@dataclass(frozen=True)
class SoftTargetBatch:
    """Soft targets of a batch, (B, T, top) each: tokens, and their probabilities, 0 where the row has ended."""

    ids: IntArray
    probabilities: NDArray[np.float32]

    @classmethod
    def from_records(cls, records: NDArray[np.void], mask: NDArray[np.bool_]) -> "SoftTargetBatch":
        """Those of the places (B, T) that are ``mask`` the rows, whose records are given one row behind the other."""
        ids = np.zeros((*mask.shape, records["ids"].shape[1]), np.int64)
        probabilities = np.zeros(ids.shape, np.float32)
        ids[mask], probabilities[mask] = records["ids"], records["probabilities"]
        return cls(ids, probabilities)

    def take(self, rows: IntArray, width: int) -> "SoftTargetBatch":
        """Those of some rows, cut to ``width`` places."""
        return SoftTargetBatch(self.ids[rows, :width], self.probabilities[rows, :width])


class SoftTargets:
    """Soft targets of a split, memory-mapped; ``metadata`` say what they are of."""

    def __init__(self, records: NDArray[np.void], metadata: SoftTargetMetadata) -> None:
        self.records = records
        self.metadata = metadata

    @classmethod
    def read(cls, file: Path, corpus: str, split: Split, vocab_size: int) -> "SoftTargets":
        """Reads those of ``split``, of the corpus whose hash and size of vocabulary are given.

        Raises:
            UserError: there is no such file, it is of other pairs or another vocabulary, or it is
                not whole.
        """
        try:
            facts = read_metadata(file)
            size = file.stat().st_size
        except OSError as error:
            raise UserError(f"data: soft_targets: {error.filename}: {error.strerror}",
                            key="data.soft_targets", help="make it with `scalesearch soften`",
                            code="no-soft-targets") from None
        if facts["corpus"] != corpus:
            raise UserError(f"data: soft_targets: {file} is of other pairs or another vocabulary "
                            "than these data's", key="data.soft_targets",
                            help="make it anew with "
                            "`scalesearch soften`, from a teacher of this vocabulary and for these "
                            "data", code="soft-targets-of-other-data")
        top = facts["top"]
        whole = top > 0 and size == record_offsets(split)[-1] * top * record_dtype(1).itemsize
        records = np.asarray(np.memmap(file, record_dtype(top), "r")) if whole else None
        if records is None or not _is_valid(records, vocab_size):
            raise UserError(
                f"data: soft_targets: {file} is not finished, or damaged", key="data.soft_targets",
                help="run `scalesearch soften` again, which "
                "goes on; if it ends and this stays, delete it", code="soft-targets-unfinished")
        return cls(records, facts)

    def batch(self, split: Split, indices: IntArray) -> SoftTargetBatch:
        """Those of the pairs of ``split`` at ``indices``."""
        first = record_offsets(split)[indices]
        lengths = split.target_ids.lengths[indices] + 1
        columns = np.arange(int(lengths.max(initial=0)))
        inside = columns < lengths[:, None]
        return SoftTargetBatch.from_records(self.records[(first[:, None] + columns)[inside]],
                                            inside)


def _is_valid(records: NDArray[np.void], vocab: int) -> bool:
    """Whether they hold tokens, and probabilities that sum to 1: zeros after a crash do not."""
    ids = records["ids"]
    probabilities = records["probabilities"]
    apart = np.abs(probabilities.sum(1, dtype=np.float32) - 1).max()
    return bool(ids.min() >= 0 and ids.max() < vocab and probabilities.min() >= 0
                and apart < _SUM_TOLERANCE)


def record_offsets(split: Split) -> IntArray:
    """Place (pairs + 1,) of each pair's first record, and the number of all."""
    return split.target_ids.offsets + np.arange(len(split) + 1)


def record_dtype(top_k: int) -> np.dtype[np.void]:
    """Layout of a place's record."""
    return np.dtype([("ids", "<i4", (top_k,)), ("probabilities", "<f2", (top_k,))])


def metadata_file(file: Path) -> Path:
    """File of the facts beside ``file``."""
    return file.with_name(f"{file.name}.json")


def read_metadata(file: Path) -> SoftTargetMetadata:
    """Reads what the soft targets in ``file`` are of. Raises UserError, OSError."""
    return read_json(metadata_file(file), SoftTargetMetadata)
