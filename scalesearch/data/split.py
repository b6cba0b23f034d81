"""Splits of a corpus: sentence pairs, or windows of text, as token ids with their text."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.tasks import Texts
from scalesearch.tasks.edits import Edits

if TYPE_CHECKING:
    from scalesearch.data.soft_targets import SoftTargets

PAD = 0
UNK = 1
BOS = 2
EOS = 3  # the token ids that every vocabulary starts with
IntArray = NDArray[Any]
GoldEdits = list[tuple[Edits, ...]]


class RaggedArray:
    """Rows of different lengths in one flat array, which may be memory-mapped.

    ``flat`` is (total,) int32, ``offsets`` (rows + 1,) int64; row i is ``flat[offsets[i]:offsets[i
    + 1]]``.
    """

    def __init__(self, flat: IntArray, offsets: IntArray) -> None:
        self.flat = flat
        self.offsets = offsets
        self.lengths: IntArray = np.diff(offsets)

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]]) -> "RaggedArray":
        """Makes rows from lists of ids."""
        offsets = _offsets(np.fromiter(map(len, rows), np.int64, len(rows)))
        return cls(np.fromiter(chain.from_iterable(rows), np.int32, int(offsets[-1])), offsets)

    @classmethod
    def concatenate(cls, parts: Sequence["RaggedArray"]) -> "RaggedArray":
        """Concatenates the rows of all parts."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.flat for part in parts]), _offsets(lengths))

    def take(self, indices: IntArray) -> "RaggedArray":
        """Copies the rows at ``indices``."""
        return self._gather(self.offsets[:-1][indices], self.lengths[indices])

    def truncate(self, max_length: int) -> "RaggedArray":
        """Copies the first ``max_length`` ids of each row."""
        return self._gather(self.offsets[:-1], np.minimum(self.lengths, max_length))

    def windows(self, size: int, stride: int) -> "RaggedArray":
        """Stretches of ``size`` ids that begin ``stride`` apart in all rows one behind the other, EOS behind each.

        The last one reaches the end.
        """
        stream = np.full(len(self.flat) + len(self), EOS, np.int32)
        stream[np.arange(len(self.flat))
               + np.repeat(np.arange(len(self)), self.lengths)] = self.flat
        count = 1 + max(0, -(-(len(stream) - size) // stride))
        starts = stride * np.arange(count)
        return RaggedArray(stream, _offsets(np.array([len(stream)])))._gather(
            starts, np.minimum(starts + size, len(stream)) - starts)

    def _gather(self, starts: IntArray, lengths: IntArray) -> "RaggedArray":
        """Copies stretches of ``flat`` that begin at ``starts``."""
        offsets = _offsets(lengths)
        shift = np.repeat(starts - offsets[:-1], lengths)
        return RaggedArray(self.flat[np.arange(offsets[-1]) + shift], offsets)

    def pad(self, indices: IntArray, prefix_id: int | None = None,
            suffix_id: int | None = None) -> IntArray:
        """Matrix (B, L), int64, of the rows at ``indices``, 0 (PAD) on the right.

        Where given, the id ``prefix_id`` goes in front of each row and the id ``suffix_id`` behind
        it.
        """
        chosen = self.take(indices)
        first = int(prefix_id is not None)
        ends = first + chosen.lengths
        width = int(ends.max(initial=0)) + int(suffix_id is not None)
        matrix = np.zeros((len(indices), width), np.int64)
        columns = np.arange(width)
        matrix[(columns >= first) & (columns < ends[:, None])] = chosen.flat
        if prefix_id is not None:
            matrix[:, 0] = prefix_id
        if suffix_id is not None:
            matrix[np.arange(len(indices)), ends] = suffix_id
        return matrix

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> IntArray:
        row = range(len(self))[index]
        return self.flat[self.offsets[row] : self.offsets[row + 1]]

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, RaggedArray) and np.array_equal(self.offsets, other.offsets)
                and np.array_equal(self.flat, other.flat))


def _offsets(lengths: IntArray) -> IntArray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


class Split:
    """Split of sentence pairs: ``source_ids``, ``target_ids`` (no BOS, no EOS) and their text.

    The text is read on first use: training needs none.

    Of text alone, ``target_ids`` holds windows of one stream of tokens, EOS among them, and
    ``source_ids`` empty rows. ``window_overlap`` is then the number of tokens that each window but
    the first repeats of the one before, to be read and not scored; of sentence pairs it is None.
    ``soft``: a teacher's probabilities at every place of the targets.
    """

    def __init__(self, source_ids: RaggedArray, target_ids: RaggedArray, texts: Callable[[], Texts],
                 window_overlap: int | None = None) -> None:
        self.source_ids = source_ids
        self.target_ids = target_ids
        self.window_overlap = window_overlap
        self._texts = texts
        self.soft_targets: SoftTargets | None = None

    @classmethod
    def from_lists(cls, source_ids: Sequence[Sequence[int]],
                   target_ids: Sequence[Sequence[int]] | None = None,
                   source_text: list[str] | None = None,
                   target_text: list[str] | None = None) -> "Split":
        """Makes a split in memory; targets and text that are not given are empty."""
        target_ids = [[]] * len(source_ids) if target_ids is None else target_ids
        if len(source_ids) != len(target_ids):
            raise ValueError(f"{len(source_ids)} source and {len(target_ids)} target sentences")
        blank = [""] * len(source_ids)
        return cls.from_rows(RaggedArray.from_lists(source_ids), RaggedArray.from_lists(target_ids),
                             source_text or blank, target_text or blank)

    @classmethod
    def from_rows(cls, source_ids: RaggedArray, target_ids: RaggedArray, source_text: list[str],
                  target_text: list[str], gold: GoldEdits | None = None,
                  window_overlap: int | None = None) -> "Split":
        """Makes a split of rows and text in memory."""
        return cls(source_ids, target_ids, partial(Texts, source_text, target_text, gold),
                   window_overlap)

    @cached_property
    def texts(self) -> Texts:
        """Texts that hypotheses are scored against."""
        return self._texts()

    @property
    def source_text(self) -> list[str]:
        """Source sentences, lower-cased where the spec asks for it."""
        return list(self.texts.source)

    @property
    def target_text(self) -> list[str]:
        """Target sentences, the references."""
        return list(self.texts.target)

    def __len__(self) -> int:
        return len(self.source_ids)

    def __repr__(self) -> str:
        tokens = f"{len(self.source_ids.flat)} + {len(self.target_ids.flat)}"
        return f"Split({len(self)} pairs, {tokens} tokens)"
