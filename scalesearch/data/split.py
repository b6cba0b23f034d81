"""Splits of a corpus: token ids of sentence pairs or windows, with their text.

Shapes: B rows, L ids per row.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.core import BOS, EOS, FIRST_WORD, PAD
from scalesearch.tasks import Texts

if TYPE_CHECKING:
    from scalesearch.data.soft_targets import SoftTargets

MASK = BOS  # windows of text do not contain it
MASK_RATIO = 0.15  # of evaluations, whatever the recipe
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # of the selected tokens; the others are unchanged
IntArray = NDArray[Any]


@dataclass(frozen=True)
class Masking:
    """Random selection of the tokens that a model predicts (Devlin et al. 2019, section 3.1).

    Attributes:
        vocab: size of the vocabulary.
        ratio: share of the tokens of a window, at least one.
        seed, epoch: with the index of a window, they determine its selection.
    """

    vocab: int
    ratio: float = MASK_RATIO
    seed: int = 0
    epoch: int = 0

    def counts(self, lengths: IntArray) -> IntArray:
        """Return how many tokens of windows of these ``lengths`` are selected."""
        return np.maximum(1, np.rint(self.ratio * lengths)).astype(np.int64)

    def apply(self, tokens: IntArray, indices: IntArray) -> tuple[IntArray, IntArray]:
        """Select tokens of the windows ``indices``, (B, L) with PAD on the right.

        Returns:
            The input (B, L), and the labels (B, L), which are PAD at all other tokens.
        """
        lengths = (tokens != PAD).sum(1)
        source = tokens.copy()
        labels = np.full_like(tokens, PAD)
        for row, (index, count) in enumerate(zip(indices.tolist(), self.counts(lengths))):
            rng = np.random.Generator(np.random.PCG64(
                np.random.SeedSequence([self.seed, self.epoch, index])))
            selected = rng.permutation(lengths[row])[:count]
            uniform = rng.random(count)
            words = rng.integers(min(FIRST_WORD, self.vocab - 1), self.vocab, count)
            labels[row, selected] = tokens[row, selected]
            replaced = np.where(uniform < MASK_SHARE, MASK, words)
            is_changed = uniform < MASK_SHARE + RANDOM_SHARE
            source[row, selected[is_changed]] = replaced[is_changed]
        return source, labels


class RaggedArray:
    """Rows of different lengths in one flat array, which may be memory-mapped.

    Attributes:
        flat: (total,) int32.
        offsets: (rows + 1,) int64; row i is ``flat[offsets[i]:offsets[i + 1]]``.
        lengths: (rows,) int64.
    """

    def __init__(self, flat: IntArray, offsets: IntArray) -> None:
        self.flat = flat
        self.offsets = offsets
        self.lengths: IntArray = np.diff(offsets)

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]]) -> "RaggedArray":
        """Copy lists of ids."""
        offsets = _offsets(np.fromiter(map(len, rows), np.int64, len(rows)))
        return cls(np.fromiter(chain.from_iterable(rows), np.int32, int(offsets[-1])), offsets)

    @classmethod
    def concatenate(cls, parts: Sequence["RaggedArray"]) -> "RaggedArray":
        """Concatenate the rows of all parts."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.flat for part in parts]), _offsets(lengths))

    def take(self, indices: IntArray) -> "RaggedArray":
        """Copy the rows at ``indices``."""
        return self._gather(self.offsets[:-1][indices], self.lengths[indices])

    def truncate(self, max_length: int) -> "RaggedArray":
        """Copy the first ``max_length`` ids of each row."""
        return self._gather(self.offsets[:-1], np.minimum(self.lengths, max_length))

    def windows(self, size: int, stride: int) -> "RaggedArray":
        """Cut windows of ``size`` ids, ``stride`` ids after one another.

        They cover all rows, each followed by EOS. The last window ends at the end of the text and
        may be shorter.
        """
        stream = np.full(len(self.flat) + len(self), EOS, np.int32)
        stream[np.arange(len(self.flat))
               + np.repeat(np.arange(len(self)), self.lengths)] = self.flat
        count = 1 + max(0, -(-(len(stream) - size) // stride)) if len(stream) else 0
        starts = stride * np.arange(count)
        lengths = np.minimum(starts + size, len(stream)) - starts
        return RaggedArray(stream, _offsets(np.array([len(stream)])))._gather(starts, lengths)

    def _gather(self, starts: IntArray, lengths: IntArray) -> "RaggedArray":
        """Copy slices of ``flat`` that begin at ``starts``."""
        offsets = _offsets(lengths)
        shift = np.repeat(starts - offsets[:-1], lengths)
        return RaggedArray(self.flat[np.arange(offsets[-1]) + shift], offsets)

    def pad(self, indices: IntArray, prefix_id: int | None = None,
            suffix_id: int | None = None) -> IntArray:
        """Return rows as an int64 matrix (B, L), with PAD (0) on the right.

        ``prefix_id`` is inserted before each row, and ``suffix_id`` after it, if they are given.
        """
        rows = self.take(indices)
        start = int(prefix_id is not None)
        ends = start + rows.lengths
        width = int(ends.max(initial=0)) + int(suffix_id is not None)
        matrix = np.zeros((len(indices), width), np.int64)
        columns = np.arange(width)
        matrix[(columns >= start) & (columns < ends[:, None])] = rows.flat
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
    """Split of sentence pairs: token ids without BOS and EOS, and their text.

    The text is read on first use; training does not need it. In the split of a language model,
    ``target_ids`` holds windows of one stream of tokens that includes EOS, and the rows of
    ``source_ids`` are empty.

    Attributes:
        source_ids, target_ids: one row per pair or window.
        window_overlap: number of tokens that a window repeats of the previous one, as input that
            is not scored; None for sentence pairs.
        soft_targets: a teacher's probabilities at each target position, if any.
        masking: which tokens of a window are masked and scored, for a masked language model.
        has_classes: whether the target of a text is its class, from 1.
    """

    def __init__(self, source_ids: RaggedArray, target_ids: RaggedArray, texts: Callable[[], Texts],
                 window_overlap: int | None = None) -> None:
        self.source_ids = source_ids
        self.target_ids = target_ids
        self.window_overlap = window_overlap
        self._texts = texts
        self.soft_targets: SoftTargets | None = None
        self.masking: Masking | None = None
        self.has_classes = False

    @classmethod
    def from_lists(cls, source_ids: Sequence[Sequence[int]],
                   target_ids: Sequence[Sequence[int]] | None = None,
                   source_text: list[str] | None = None,
                   target_text: list[str] | None = None) -> "Split":
        """Make a split in memory; missing targets and texts are empty."""
        target_ids = [[]] * len(source_ids) if target_ids is None else target_ids
        if len(source_ids) != len(target_ids):
            raise ValueError(f"{len(source_ids)} source and {len(target_ids)} target sentences")
        blank = [""] * len(source_ids)
        return cls.from_rows(RaggedArray.from_lists(source_ids), RaggedArray.from_lists(target_ids),
                             Texts(source_text or blank, target_text or blank))

    @classmethod
    def from_rows(cls, source_ids: RaggedArray, target_ids: RaggedArray, texts: Texts,
                  window_overlap: int | None = None) -> "Split":
        """Make a split from rows and text in memory."""
        return cls(source_ids, target_ids, partial(replace, texts), window_overlap)

    def masked(self, masking: Masking) -> "Split":
        """Return this split with other masked tokens."""
        split = copy.copy(self)
        split.masking = masking
        return split

    def with_classes(self) -> "Split":
        """Return this split with classes as targets."""
        split = copy.copy(self)
        split.has_classes = True
        return split

    @cached_property
    def texts(self) -> Texts:
        """Texts that hypotheses are scored against."""
        return self._texts()

    @property
    def source_text(self) -> list[str]:
        """Source sentences, lower-cased if the spec is."""
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
