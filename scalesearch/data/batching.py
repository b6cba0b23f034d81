"""Batches of sentences of like length, in an order that seed and epoch alone decide."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from scalesearch.data.soft_targets import SoftTargetBatch
from scalesearch.data.split import BOS, EOS, PAD, IntArray, Split
from scalesearch.errors import UserError

T = TypeVar("T")
_LENGTH_JITTER = 2.0


@dataclass(frozen=True)
class Batch:
    """Batch of sentence pairs as int64 matrices, PAD (0) on the right.

    Attributes:
        source: (B, S), each row ending in EOS.
        target_in: (B, T), each row starting with BOS: what a decoder reads.
        target_out: (B, T), each row ending in EOS: the labels; PAD where nothing is scored.
        indices: (B,) places of the pairs in their split.
        soft_targets: what a teacher finds probable there, beside the labels.
    """

    source: IntArray
    target_in: IntArray
    target_out: IntArray
    indices: IntArray
    soft_targets: SoftTargetBatch | None = None

    @property
    def tokens(self) -> int:
        """Number of real target tokens, EOS included, which the loss is averaged over."""
        return int(np.count_nonzero(self.target_out != PAD))

    def __len__(self) -> int:
        return len(self.indices)


@dataclass
class Batches:
    """Planned batches, each padded when it is taken; ``indices_by_batch`` holds one array of pair indices a batch."""

    split: Split
    indices_by_batch: list[IntArray]

    def __len__(self) -> int:
        return len(self.indices_by_batch)

    def __getitem__(self, index: int) -> Batch:
        return make_batch(self.split, self.indices_by_batch[index])

    def __iter__(self) -> Iterator[Batch]:
        return (make_batch(self.split, indices) for indices in self.indices_by_batch)


class BatchStream:
    """Training batches without end. ``epoch`` and ``index`` are the next one's, for checkpoints.

    ``make_epoch_split`` makes the split of an epoch where its sentences are cut into tokens anew.
    """

    def __init__(self, split: Split, max_tokens: int, seed: int,
                 make_epoch_split: Callable[[int], Split] | None = None) -> None:
        self.split = split
        self.max_tokens = max_tokens
        self.seed = seed
        self.make_epoch_split = make_epoch_split
        self.epoch = self.index = 0
        self._batches: Batches | None = None

    def take(self, count: int) -> list[Batch]:
        """Takes the next ``count`` batches."""
        return [self._next() for _ in range(count)]

    def seek(self, epoch: int, index: int) -> None:
        """Moves to a position."""
        self.epoch = epoch
        self.index = index
        self._batches = None

    def _next(self) -> Batch:
        if self._batches is None:
            split = self.make_epoch_split(self.epoch) if self.make_epoch_split else self.split
            self._batches = training_batches(split, self.max_tokens, self.seed, self.epoch)
        batch = self._batches[self.index]
        self.index += 1
        if self.index == len(self._batches):
            self.seek(self.epoch + 1, 0)
        return batch


def training_batches(split: Split, max_tokens: int = 4096, seed: int = 1,
                     epoch: int = 0) -> Batches:
    """Batches of one epoch in random order: every pair once; the arguments alone decide it.

    ``max_tokens`` bounds B · max(S, T), the places of the wider side with its padding and its EOS
    or BOS (the convention of fairseq's ``--max-tokens``); a single pair longer than that is a batch
    of its own.

    Which pairs of the same length meet in a batch changes from epoch to epoch.

    Raises:
        UserError: a bound below 1.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    # Pairs of one length lie in order of how much longer the source is, which saves padding on the
    # narrower side. A
    # little noise there, and the direction drawn anew, mix companions at a cost of 2 % padding.
    longer = _max_lengths(split)
    skew = split.source_ids.lengths - split.target_ids.lengths
    skew = skew + rng.uniform(-_LENGTH_JITTER, _LENGTH_JITTER, len(skew))
    # Up and down in turn, so that neighbours of unequal length are alike too.
    turn = longer + int(rng.integers(2))
    plan = _split_order(np.lexsort((np.where(turn % 2, skew, -skew), longer)), longer, max_tokens)
    return Batches(split, [plan[i] for i in rng.permutation(len(plan))])


def eval_batches(split: Split, max_tokens: int = 4096) -> Batches:
    """Batches for scoring or decoding: every pair once, sorted by source length.

    The longest come first, so that memory runs out at once or not at all. The bound is that of
    :func:`training_batches`; for decoding, where the target's length is not known, it counts the
    reference.
    """
    order = np.lexsort((split.target_ids.lengths, split.source_ids.lengths))[::-1]
    return Batches(split, _split_order(order, _max_lengths(split), max_tokens))


def restore_order(indices: Sequence[IntArray], results: Sequence[Sequence[T]]) -> list[T]:
    """Sorts results of batches into the split's order; ``rows[b][i]`` is that of pair ``indices[b][i]``."""
    placed = {int(place): row for places, results in zip(indices, results, strict=True)
              for place, row in zip(places, results, strict=True)}
    return [placed[place] for place in range(len(placed))]


def make_batch(split: Split, indices: IntArray) -> Batch:
    """Makes a padded batch of the pairs, or windows, at ``indices``."""
    source = split.source_ids
    target = split.target_ids
    if split.window_overlap is None:
        return Batch(source.pad(indices, suffix_id=EOS), target.pad(indices, prefix_id=BOS),
                     target.pad(indices, suffix_id=EOS), np.asarray(indices),
                     split.soft_targets and split.soft_targets.batch(split, np.asarray(indices)))
    # Of windows the source is EOS alone; tokens that the window before has too are read and not
    # scored.
    tokens = target.pad(indices)
    indices = np.asarray(indices)
    read = np.concatenate([np.full((len(tokens), 1), BOS), tokens[:, :-1]], 1)
    labels = tokens.copy()
    labels[indices > 0, : split.window_overlap] = PAD
    return Batch(np.full((len(tokens), 1), EOS), np.where(tokens == PAD, PAD, read), labels,
                 indices)


def _max_lengths(split: Split) -> IntArray:
    """Length of each pair's longer side with EOS."""
    return np.maximum(split.source_ids.lengths, split.target_ids.lengths) + 1


def _split_order(order: IntArray, max_lengths: IntArray, max_tokens: int) -> list[IntArray]:
    """Cuts an order into runs, each as long as the bound allows."""
    if max_tokens < 1:
        raise UserError(f"a batch needs room for at least 1 token, not {max_tokens}",
                        code="below-one")
    lengths = max_lengths[order]
    runs = []
    start = 0
    while start < len(order):
        # The first sentence's length alone says that more than this many cannot fit.
        window = lengths[start : start + max(1, max_tokens // int(lengths[start]))]
        places = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        count = max(1, int(np.searchsorted(places, max_tokens, side="right")))
        runs.append(order[start : start + count])
        start += count
    return runs
