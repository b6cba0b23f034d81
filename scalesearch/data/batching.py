"""Batches of sentences of similar length. Seed and epoch determine their order.

Shapes: B sentence pairs per batch, S source tokens, T target tokens; padding is on the right.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.core import BOS, EOS, PAD
from scalesearch.data.soft_targets import SoftTargetBatch
from scalesearch.data.split import IntArray, Split
from scalesearch.errors import UserError

T = TypeVar("T")
_LENGTH_JITTER = 2.0
BUCKET_MULTIPLE = 8  # widths that suit the matrix units of a GPU
MAX_BUCKETS = 16


@dataclass(frozen=True)
class Batch:
    """Batch of sentence pairs as int64 matrices, padded with PAD (0) on the right.

    Attributes:
        source: (B, S), each row ends with EOS.
        target_in: (B, T), each row starts with BOS: the input of a decoder.
        target_out: (B, T), each row ends with EOS: the labels. PAD labels are not scored.
        indices: (B,) indices of the pairs in their split.
        soft_targets: a teacher's probabilities for the labels, if the split has soft targets.
    """

    source: IntArray
    target_in: IntArray
    target_out: IntArray
    indices: IntArray
    soft_targets: SoftTargetBatch | None = None

    @property
    def tokens(self) -> int:
        """Number of target tokens without padding, EOS included; the loss is their mean."""
        return int(np.count_nonzero(self.target_out != PAD))

    def __len__(self) -> int:
        return len(self.indices)


@dataclass
class Batches:
    """Sequence of planned batches, which are padded on access.

    Attributes:
        indices_by_batch: one array of pair indices per batch.
        buckets: fixed shapes to pad to, or None to pad to the longest pair.
    """

    split: Split
    indices_by_batch: list[IntArray]
    buckets: "Buckets | None" = None

    def __len__(self) -> int:
        return len(self.indices_by_batch)

    def __getitem__(self, index: int) -> Batch:
        indices = self.indices_by_batch[index]
        if self.buckets is None:
            return make_batch(self.split, indices)
        return PlannedBatch(self.split, indices, self.buckets)

    def __iter__(self) -> Iterator[Batch]:
        return (self[index] for index in range(len(self)))


@dataclass(frozen=True)
class Buckets:
    """Fixed shapes (rows, width) of batches: widths are multiples of ``step``.

    A CUDA graph is captured per shape, so there must be few. The last of ``MAX_BUCKETS`` widths
    holds all longer pairs. ``max_tokens`` bounds rows times width, except for a single longer pair.

    Attributes:
        longest: greatest length of a side, EOS included, in any epoch.
        source_width: width of all sources, or None for that of the targets. The source of a window
            of a language model is EOS only, and padding would make its sequence twice as long.
    """

    step: int
    max_tokens: int
    longest: int
    source_width: int | None = None

    @classmethod
    def for_split(cls, split: Split, max_tokens: int, max_length: int | None = None) -> "Buckets":
        """Choose the step for at most ``MAX_BUCKETS`` widths in ``split``.

        Args:
            max_length: limit on the tokens of a side, without EOS, if the text is tokenized again
                every epoch. Sides can then be longer than in ``split``.
        """
        longest = int(_max_lengths(split).max(initial=1))
        step = BUCKET_MULTIPLE * -(-longest // (BUCKET_MULTIPLE * MAX_BUCKETS))
        return cls(step, max_tokens, max(longest, 1 + (max_length or 0)),
                   None if split.window_overlap is None or split.masking else 1)

    def shapes(self, split: Split) -> list[tuple[int, int]]:
        """Return the shapes (rows, width) of the batches of ``split``, by ascending width.

        If the text is tokenized again every epoch, these are all shapes that can occur.
        """
        lengths = _max_lengths(split)
        if self.longest > lengths.max(initial=1):
            lengths = np.arange(lengths.min(initial=1), self.longest + 1)
        return [(max(1, self.max_tokens // int(width)), int(width))
                for width in np.unique(self.widths(lengths))]

    def widths(self, lengths: IntArray) -> IntArray:
        """Round lengths up to the width of their bucket."""
        widths = -(-lengths // self.step) * self.step
        last_width = -(-self.longest // self.step) * self.step
        return np.where(widths < MAX_BUCKETS * self.step, widths, last_width)

    def shape(self, longest: int) -> tuple[int, int]:
        """Return the shape (rows, width) for sides of at most ``longest`` tokens."""
        width = int(self.widths(np.array(longest)))
        return max(1, self.max_tokens // width), width

    def pad(self, batch: Batch) -> Batch:
        """Pad a batch to the shape of its bucket, with PAD columns and rows."""
        longest = max(batch.source.shape[1], batch.target_out.shape[1])
        shape = self.shape(longest)
        soft_targets = batch.soft_targets and SoftTargetBatch(
            _pad_to(batch.soft_targets.ids, shape),
            _pad_to(batch.soft_targets.probabilities, shape))
        source_shape = (shape[0], self.source_width or shape[1])
        return Batch(_pad_to(batch.source, source_shape), _pad_to(batch.target_in, shape),
                     _pad_to(batch.target_out, shape), batch.indices, soft_targets)


def _pad_to(matrix: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Pad the first two axes of ``matrix`` with zeros on the right."""
    padded = np.zeros((*shape, *matrix.shape[2:]), matrix.dtype)
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded


class PlannedBatch(Batch):
    """Batch of a fixed shape, whose matrices are made on first use.

    Attributes:
        split: split of the pairs.
        shape: (rows, columns) of the targets.
        source_width: columns of the source.
    """

    split: Split
    shape: tuple[int, int]
    source_width: int

    def __init__(self, split: Split, indices: IntArray, buckets: Buckets) -> None:
        # A frozen dataclass has no assignments.
        shape = buckets.shape(int(_max_lengths(split, indices).max()))
        self.__dict__.update(split=split, indices=indices, _buckets=buckets, shape=shape,
                             source_width=buckets.source_width or shape[1])

    @cached_property
    def tokens(self) -> int:
        """Number of target tokens without padding, EOS included; the loss is their mean."""
        lengths = self.split.target_ids.lengths[self.indices]
        if self.split.masking is not None:
            return int(self.split.masking.counts(lengths).sum())
        if self.split.has_classes:
            return len(lengths)
        overlap = self.split.window_overlap
        if overlap is None:
            return int(lengths.sum()) + len(lengths)
        return int((lengths - np.minimum(lengths, overlap) * (self.indices > 0)).sum())

    @cached_property
    def _matrices(self) -> Batch:
        buckets: Buckets = self.__dict__["_buckets"]
        return buckets.pad(make_batch(self.split, self.indices))

    source = property(lambda self: self._matrices.source)
    target_in = property(lambda self: self._matrices.target_in)
    target_out = property(lambda self: self._matrices.target_out)
    soft_targets = property(lambda self: self._matrices.soft_targets)


@dataclass
class BatchStream:
    """Endless stream of training batches.

    ``epoch`` and ``index`` are the position of the next batch; checkpoints store them.
    ``make_epoch_split`` returns the split of an epoch, for text that is re-tokenized every epoch.
    With ``buckets``, batches have few fixed shapes.
    """

    split: Split
    max_tokens: int
    seed: int
    make_epoch_split: Callable[[int], Split] | None = None
    buckets: Buckets | None = None
    epoch: int = field(default=0, init=False)
    index: int = field(default=0, init=False)
    _batches: Batches | None = field(default=None, init=False)

    def take(self, count: int) -> list[Batch]:
        """Take the next ``count`` batches."""
        batches: list[Batch] = []
        while len(batches) < count:
            if self._batches is None:
                split = self.make_epoch_split(self.epoch) if self.make_epoch_split else self.split
                self._batches = training_batches(split, self.max_tokens, self.seed, self.epoch,
                                                 self.buckets)
            batches.append(self._batches[self.index])
            self.index += 1
            if self.index == len(self._batches):
                self.seek(self.epoch + 1, 0)
        return batches

    def seek(self, epoch: int, index: int) -> None:
        """Move to batch ``index`` of ``epoch``."""
        self.epoch = epoch
        self.index = index
        self._batches = None


def training_batches(
    split: Split, max_tokens: int = 4096, seed: int = 1, epoch: int = 0,
    buckets: Buckets | None = None
) -> Batches:
    """Plan the batches of one epoch in random order; each pair occurs once.

    The arguments determine the result. Which pairs of the same length share a batch changes from
    epoch to epoch.

    Args:
        max_tokens: upper bound on B · max(S, T), tokens of the longer side with padding and EOS or
            BOS. This is the convention of fairseq's ``--max-tokens``. A single longer pair is a
            batch of its own.
        buckets: fixed shapes to pad the batches to; the width of a bucket counts as the length of
            its pairs.

    Raises:
        UserError: ``max_tokens`` is below 1.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    # Pairs of one length are sorted by how much longer the source is, which saves padding on the
    # shorter side. A little noise in this order and a random direction mix the pairs of a batch at
    # a cost of 2 % padding.
    lengths = _max_lengths(split)
    skew = split.source_ids.lengths - split.target_ids.lengths
    skew = skew + rng.uniform(-_LENGTH_JITTER, _LENGTH_JITTER, len(skew))
    # Ascending and descending in turn, so that adjacent pairs of different length are similar too.
    direction = lengths + int(rng.integers(2))
    order = np.lexsort((np.where(direction % 2, skew, -skew), lengths))
    padded_lengths = lengths if buckets is None else buckets.widths(lengths)
    plan = _split_order(order, padded_lengths, max_tokens)
    return Batches(split, [plan[i] for i in rng.permutation(len(plan))], buckets)


def eval_batches(split: Split, max_tokens: int = 4096) -> Batches:
    """Plan batches for scoring or decoding: every pair once, sorted by source length.

    The longest batch comes first, so memory runs out in the first batch or not at all.
    ``max_tokens`` is as in :func:`training_batches`. For decoding the length of the target is
    unknown; the reference is counted.
    """
    order = np.lexsort((split.target_ids.lengths, split.source_ids.lengths))[::-1]
    return Batches(split, _split_order(order, _max_lengths(split), max_tokens))


def decoding_batches(split: Split, max_tokens: int) -> Batches:
    """Plan batches whose sources have few widths, the longest first; every pair once.

    ``max_tokens`` bounds rows times source width, except for a single longer source.
    """
    widths = Buckets.for_split(split, max_tokens).widths(split.source_ids.lengths + 1)
    plan = []
    for width in np.unique(widths)[::-1]:
        indices = np.flatnonzero(widths == width)
        n_batches = -(-len(indices) // max(1, max_tokens // int(width)))
        plan += np.array_split(indices, n_batches)
    return Batches(split, plan)


def restore_order(indices: Sequence[IntArray], results: Sequence[Sequence[T]]) -> list[T]:
    """Sort results of batches into the order of the split.

    ``results[b][i]`` belongs to the pair ``indices[b][i]``.
    """
    result_of: dict[int, T] = {}
    for batch_indices, batch_results in zip(indices, results, strict=True):
        for index, result in zip(batch_indices, batch_results, strict=True):
            result_of[int(index)] = result
    return [result_of[index] for index in range(len(result_of))]


def make_batch(split: Split, indices: IntArray) -> Batch:
    """Make a padded batch of the pairs, or windows, at ``indices``."""
    indices = np.asarray(indices)
    source = split.source_ids
    target = split.target_ids
    if split.has_classes:
        tokens = source.pad(indices, prefix_id=BOS)
        return Batch(tokens, tokens[:, :1], target.pad(indices), indices)
    if split.window_overlap is None:
        return Batch(
            source.pad(indices, suffix_id=EOS),
            target.pad(indices, prefix_id=BOS),
            target.pad(indices, suffix_id=EOS),
            indices,
            split.soft_targets and split.soft_targets.batch(split, indices),
        )
    if split.masking is not None:
        masked, labels = split.masking.apply(target.pad(indices), indices)
        return Batch(masked, masked, labels, indices)
    # The source of a window is EOS only. Tokens that it shares with the previous window are input
    # but not scored.
    tokens = target.pad(indices)
    decoder_input = np.concatenate([np.full((len(tokens), 1), BOS), tokens[:, :-1]], 1)
    labels = tokens.copy()
    labels[indices > 0, : split.window_overlap] = PAD
    return Batch(
        np.full((len(tokens), 1), EOS),
        np.where(tokens == PAD, PAD, decoder_input),
        labels,
        indices,
    )


def _max_lengths(split: Split, indices: IntArray | slice = slice(None)) -> IntArray:
    """Length of the longer side of each pair, with EOS, or of each window, without."""
    has_eos = split.window_overlap is None
    return np.maximum(split.source_ids.lengths[indices] + 1,
                      split.target_ids.lengths[indices] + has_eos)


def _split_order(order: IntArray, max_lengths: IntArray, max_tokens: int) -> list[IntArray]:
    """Cut an order of pairs into batches that are as large as ``max_tokens`` allows."""
    if max_tokens < 1:
        raise UserError(
            f"a batch needs room for at least 1 token, not {max_tokens}", code="below-one"
        )
    lengths = max_lengths[order]
    batches = []
    start = 0
    while start < len(order):
        # The length of the first pair gives an upper bound on the number of pairs.
        window = lengths[start : start + max(1, max_tokens // int(lengths[start]))]
        padded_tokens = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        count = max(1, int(np.searchsorted(padded_tokens, max_tokens, side="right")))
        batches.append(order[start : start + count])
        start += count
    return batches
