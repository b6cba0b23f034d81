"""Batches of sentences of like length, in an order that seed and epoch alone decide."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import numpy as np

from scalesearch.data.split import Ints, Split
from scalesearch.data.tokens import BOS, EOS, PAD
from scalesearch.errors import UserError

T = TypeVar("T")
_JITTER = 2.0


@dataclass(frozen=True)
class Batch:
    """Batch of sentence pairs as int64 matrices, PAD (0) on the right.

    Attributes:
        source: (B, S), each row ending in EOS.
        target_in: (B, T), each row starting with BOS: what a decoder reads.
        target_out: (B, T), each row ending in EOS: the labels; PAD where nothing is scored.
        indices: (B,) places of the pairs in their split.
    """

    source: Ints
    target_in: Ints
    target_out: Ints
    indices: Ints

    @property
    def tokens(self) -> int:
        """Number of real target tokens, EOS included, which the loss is averaged over."""
        return int(np.count_nonzero(self.target_out != PAD))

    @property
    def source_tokens(self) -> int:
        """Number of real source tokens, EOS included."""
        return int(np.count_nonzero(self.source != PAD))

    @property
    def padded_tokens(self) -> int:
        """Number of tokens of both sides, padding included."""
        return self.source.size + self.target_out.size

    def __len__(self) -> int:
        return len(self.indices)


class Batches(Sequence[Batch]):
    """Sequence of planned batches, each padded when it is taken.

    ``plan`` holds one array of pair indices a batch.
    """

    def __init__(self, split: Split, plan: list[Ints]) -> None:
        self.split = split
        self.plan = plan

    def __len__(self) -> int:
        return len(self.plan)

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> "Batches": ...
    def __getitem__(self, index: int | slice) -> "Batch | Batches":
        if isinstance(index, slice):
            return Batches(self.split, self.plan[index])
        return make_batch(self.split, self.plan[index])

    def __iter__(self) -> Iterator[Batch]:
        return (make_batch(self.split, indices) for indices in self.plan)


def batches(split: Split, max_tokens: int = 4096, seed: int = 1, epoch: int = 0, shuffle: bool = True,
            max_sentences: int | None = None) -> Batches:
    """Batches of one epoch: every pair once, in an order that the arguments alone decide.

    ``max_tokens`` bounds B · max(S, T), the places of the wider side with its padding and its EOS or BOS (the
    convention of fairseq's ``--max-tokens``); a single pair longer than that is a batch of its own.

    With ``shuffle``, batches come in random order, and which pairs of the same length meet in a batch changes
    from epoch to epoch. Without, they go from short to long.

    Raises:
        UserError: a bound below 1.
    """
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch]))) if shuffle else None
    longer, skew = _lengths(split)
    if random is None:
        plan = _cut(_order(longer, skew), longer, max_tokens, max_sentences)
        return Batches(split, plan)
    # Pairs of one length lie in order of how much longer the source is, which saves padding on the narrower
    # side. A little noise there, and the direction drawn anew, mix companions at a cost of 2 % padding.
    skew = skew + random.uniform(-_JITTER, _JITTER, len(skew))
    plan = _cut(_order(longer, skew, int(random.integers(2))), longer, max_tokens, max_sentences)
    return Batches(split, [plan[i] for i in random.permutation(len(plan))])


def eval_batches(split: Split, max_tokens: int = 4096, max_sentences: int | None = None) -> Batches:
    """Batches for scoring or decoding: every pair once, sorted by source length.

    The longest come first, so that memory runs out at once or not at all. ``Batch.indices`` and :func:`put_back`
    restore the split's order. The bound is that of :func:`batches`; for decoding, where the target's length is not
    known, it counts the reference.
    """
    longer, _ = _lengths(split)
    order = np.lexsort((split.target_ids.lengths, split.source_ids.lengths))[::-1]
    return Batches(split, _cut(order, longer, max_tokens, max_sentences))


def put_back(indices: Sequence[Ints], rows: Sequence[Sequence[T]]) -> list[T]:
    """Sorts results of batches into the split's order; ``rows[b][i]`` is that of pair ``indices[b][i]``."""
    placed = {int(place): row for places, results in zip(indices, rows, strict=True)
              for place, row in zip(places, results, strict=True)}
    return [placed[place] for place in range(len(placed))]


def make_batch(split: Split, indices: Ints) -> Batch:
    """Makes a padded batch of the pairs, or windows, at ``indices``."""
    if split.overlap is not None:
        return _windows(split, indices, split.overlap)
    source, target = split.source_ids, split.target_ids
    return Batch(source=source.padded(indices, after=EOS), target_in=target.padded(indices, before=BOS),
                 target_out=target.padded(indices, after=EOS), indices=np.asarray(indices))


def _windows(split: Split, indices: Ints, overlap: int) -> Batch:
    """Makes a batch of windows: source is EOS alone, repeated tokens are read and not scored."""
    tokens = split.target_ids.padded(indices)
    read = np.concatenate([np.full((len(tokens), 1), BOS), tokens[:, :-1]], 1)
    out = tokens.copy()
    out[np.asarray(indices) > 0, :overlap] = PAD
    return Batch(source=np.full((len(tokens), 1), EOS), target_in=np.where(tokens == PAD, PAD, read), target_out=out,
                 indices=np.asarray(indices))


def _lengths(split: Split) -> tuple[Ints, Ints]:
    """Length of each pair's longer side with EOS, and how much longer the source is."""
    source, target = split.source_ids.lengths, split.target_ids.lengths
    return np.maximum(source, target) + 1, source - target


def _order(longer: Ints, skew: Ints, turn: int = 0) -> Ints:
    """Order by length, then by skew, up and down in turn, so that neighbours of unequal length are alike too."""
    return np.lexsort((np.where((longer + turn) % 2, skew, -skew), longer))


def _cut(order: Ints, longer: Ints, max_tokens: int, max_sentences: int | None) -> list[Ints]:
    """Cuts an order into runs, each as long as the bounds allow."""
    if max_tokens < 1 or (max_sentences is not None and max_sentences < 1):
        raise UserError(f"a batch needs room for at least 1 token and 1 sentence, not {max_tokens} and "
                        f"{max_sentences}", code="below-one")
    lengths, runs, start = longer[order], [], 0
    while start < len(order):
        # The first sentence's length alone says that more than this many cannot fit.
        limit = max(1, min(max_tokens // int(lengths[start]), max_sentences or len(order)))
        window = lengths[start : start + limit]
        places = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        count = max(1, int(np.searchsorted(places, max_tokens, side="right")))
        runs.append(order[start : start + count])
        start += count
    return runs
