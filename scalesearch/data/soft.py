"""Soft targets: what a teacher finds probable at every place of the training pairs (Hinton et al. 2015).

A file of records, one a target token (the end mark among them) in the order of the pairs, each the teacher's ``top``
likeliest tokens and their probabilities, which sum to 1; beside it FILE.json says which corpus and teacher they are of.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from scalesearch.data.split import Ints, Split
from scalesearch.errors import UserError
from scalesearch.files import read_json

_ROUNDED = 0.01  # by which probabilities that are kept in half precision may miss 1 together


class SoftFacts(TypedDict):
    """What decides soft targets: hashes of the ``corpus`` and the ``teacher``, and how many are kept of a place."""

    corpus: str
    teacher: str
    top: int
    dtype: str


@dataclass(frozen=True)
class Soft:
    """Soft targets of a batch, (B, T, top) each: tokens, and their probabilities, 0 where the row has ended."""

    ids: Ints
    probabilities: NDArray[np.float32]

    @classmethod
    def of(cls, records: NDArray[np.void], inside: NDArray[np.bool_]) -> "Soft":
        """Those of the places (B, T) that are ``inside`` the rows, whose records are given one row behind the other."""
        ids = np.zeros((*inside.shape, records["ids"].shape[1]), np.int64)
        probabilities = np.zeros(ids.shape, np.float32)
        ids[inside], probabilities[inside] = records["ids"], records["probabilities"]
        return cls(ids, probabilities)

    def at(self, rows: Ints, width: int) -> "Soft":
        """Those of some rows, cut to ``width`` places."""
        return Soft(self.ids[rows, :width], self.probabilities[rows, :width])


class SoftTargets:
    """Soft targets of a split, memory-mapped; ``facts`` say what they are of."""

    def __init__(self, records: NDArray[np.void], facts: SoftFacts) -> None:
        self.records, self.facts = records, facts

    @classmethod
    def read(cls, file: Path, corpus: str, split: Split, vocab: int) -> "SoftTargets":
        """Reads those of ``split``, of the corpus whose hash and size of vocabulary are given.

        Raises:
            UserError: there is no such file, it is of other pairs or another vocabulary, or it is not whole.
        """
        try:
            facts = facts_of(file)
            size = file.stat().st_size
        except OSError as error:
            raise UserError(f"data: soft_targets: {error.filename}: {error.strerror}", key="data.soft_targets",
                            help="make it with `scalesearch soften`", code="no-soft-targets") from None
        if facts["corpus"] != corpus:
            raise UserError(f"data: soft_targets: {file} is of other pairs or another vocabulary than these data's",
                            key="data.soft_targets", help="make it anew with `scalesearch soften`, from a teacher of "
                            "this vocabulary and for these data", code="soft-targets-of-other-data")
        top = facts["top"]
        whole = top > 0 and size == places(split)[-1] * top * record(1).itemsize
        records = np.asarray(np.memmap(file, record(top), "r")) if whole else None
        if records is None or not _sound(records, vocab):
            raise UserError(f"data: soft_targets: {file} is not finished, or damaged", key="data.soft_targets",
                            help="run `scalesearch soften` again, which goes on; if it ends and this stays, delete it",
                            code="soft-targets-unfinished")
        return cls(records, facts)

    def padded(self, split: Split, indices: Ints) -> Soft:
        """Those of the pairs of ``split`` at ``indices``."""
        first, lengths = places(split)[indices], split.target_ids.lengths[indices] + 1
        columns = np.arange(int(lengths.max(initial=0)))
        inside = columns < lengths[:, None]
        return Soft.of(self.records[(first[:, None] + columns)[inside]], inside)


def _sound(records: NDArray[np.void], vocab: int) -> bool:
    """Whether they hold tokens, and probabilities that sum to 1: zeros after a crash do not."""
    ids, probabilities = records["ids"], records["probabilities"]
    apart = np.abs(probabilities.sum(1, dtype=np.float32) - 1).max()
    return bool(ids.min() >= 0 and ids.max() < vocab and probabilities.min() >= 0 and apart < _ROUNDED)


def places(split: Split) -> Ints:
    """Place (pairs + 1,) of each pair's first record, and the number of all."""
    return split.target_ids.offsets + np.arange(len(split) + 1)


def record(top: int) -> np.dtype[np.void]:
    """Layout of a place's record."""
    return np.dtype([("ids", "<i4", (top,)), ("probabilities", "<f2", (top,))])


def facts_file(file: Path) -> Path:
    """File of the facts beside ``file``."""
    return file.with_name(f"{file.name}.json")


def facts_of(file: Path) -> SoftFacts:
    """Reads what the soft targets in ``file`` are of. Raises UserError, OSError."""
    return read_json(facts_file(file), SoftFacts)
