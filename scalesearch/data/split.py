"""A split of a corpus: sentence pairs as token ids, with their text."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from scalesearch.tasks import Texts
from scalesearch.tasks.edits import Edits

Ints = NDArray[Any]
Gold = list[tuple[Edits, ...]]


class Rows(Sequence[Ints]):
    """Rows of different lengths in one flat array, which may lie on disk and be shared between processes.

    ``flat`` is (total,) int32, ``offsets`` (rows + 1,) int64; row i is ``flat[offsets[i]:offsets[i + 1]]``.
    """

    def __init__(self, flat: Ints, offsets: Ints) -> None:
        self.flat = flat
        self.offsets = offsets
        self.lengths: Ints = np.diff(offsets)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> "Rows":
        """The rows of a list of lists of ids."""
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        offsets = _offsets(lengths)
        return cls(np.fromiter(chain.from_iterable(rows), np.int32, int(offsets[-1])), offsets)

    @classmethod
    def joined(cls, parts: Sequence["Rows"]) -> "Rows":
        """The rows of all parts, one after the other."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.flat for part in parts]), _offsets(lengths))

    def take(self, indices: Ints) -> "Rows":
        """The rows at ``indices``, copied together."""
        return self._gather(self.offsets[:-1][indices], self.lengths[indices])

    def cut(self, longest: int) -> "Rows":
        """The first ``longest`` ids of each row."""
        return self._gather(self.offsets[:-1], np.minimum(self.lengths, longest))

    def _gather(self, starts: Ints, lengths: Ints) -> "Rows":
        """The stretches of ``flat`` that begin at ``starts``, one after the other."""
        offsets = _offsets(lengths)
        shift = np.repeat(starts - offsets[:-1], lengths)
        return Rows(self.flat[np.arange(offsets[-1]) + shift], offsets)

    def padded(self, indices: Ints, before: int | None = None, after: int | None = None) -> Ints:
        """The rows at ``indices`` as one (B, L) int64 matrix, 0 (PAD) on the right.

        Where given, the id ``before`` goes in front of each row and the id ``after`` behind it.
        """
        chosen = self.take(indices)
        first = int(before is not None)
        ends = first + chosen.lengths
        width = int(ends.max(initial=0)) + int(after is not None)
        matrix = np.zeros((len(indices), width), np.int64)
        columns = np.arange(width)
        matrix[(columns >= first) & (columns < ends[:, None])] = chosen.flat
        if before is not None:
            matrix[:, 0] = before
        if after is not None:
            matrix[np.arange(len(indices)), ends] = after
        return matrix

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> Ints: ...
    @overload
    def __getitem__(self, index: slice) -> list[Ints]: ...
    def __getitem__(self, index: int | slice) -> Ints | list[Ints]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        return self.flat[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[Ints]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Rows) and np.array_equal(self.offsets, other.offsets)
                and np.array_equal(self.flat, other.flat))



def _offsets(lengths: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


class Split:
    """Sentence pairs: ``source_ids`` and ``target_ids`` (no BOS, no EOS) and the text they came from.

    The text is read when first asked for: training needs none.

    A split of text alone holds windows of one stream of tokens in ``target_ids``, end marks among them, and no
    source; its ``source_ids`` are empty rows. ``overlap`` then says how many tokens each window but the first repeats
    of the one before, to be read and not scored. Of sentence pairs it is None.
    """

    def __init__(self, source_ids: Rows, target_ids: Rows, texts: Callable[[], Texts],
                 overlap: int | None = None) -> None:
        self.source_ids = source_ids
        self.target_ids = target_ids
        self.overlap = overlap
        self._texts = texts

    @classmethod
    def of(cls, source_ids: Sequence[Sequence[int]], target_ids: Sequence[Sequence[int]] | None = None,
           source_text: list[str] | None = None, target_text: list[str] | None = None) -> "Split":
        """A split in memory. Without targets (text to translate) they are empty, and so is text not given."""
        target_ids = [[]] * len(source_ids) if target_ids is None else target_ids
        if len(source_ids) != len(target_ids):
            raise ValueError(f"{len(source_ids)} source and {len(target_ids)} target sentences")
        blank = [""] * len(source_ids)
        return cls.of_rows(Rows.of(source_ids), Rows.of(target_ids), source_text or blank, target_text or blank)

    @classmethod
    def of_rows(cls, source_ids: Rows, target_ids: Rows, source_text: list[str], target_text: list[str],
                gold: Gold | None = None, overlap: int | None = None) -> "Split":
        """A split of rows and text at hand."""
        return cls(source_ids, target_ids, _TextAtHand(Texts(source_text, target_text, gold)), overlap)

    @cached_property
    def texts(self) -> Texts:
        """What hypotheses are scored against."""
        return self._texts()

    @property
    def source_text(self) -> list[str]:
        """The source sentences, after lower-casing where the spec asks for it."""
        return list(self.texts.source)

    @property
    def target_text(self) -> list[str]:
        """The target sentences: the references."""
        return list(self.texts.target)

    def __len__(self) -> int:
        return len(self.source_ids)

    def __repr__(self) -> str:
        tokens = f"{len(self.source_ids.flat)} + {len(self.target_ids.flat)}"
        return f"Split({len(self)} pairs, {tokens} tokens)"


class _TextAtHand:
    """Text at hand, in the shape of text to be read; a class, so that it pickles."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts

    def __call__(self) -> Texts:
        return self.texts
