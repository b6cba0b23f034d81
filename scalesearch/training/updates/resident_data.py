"""Training text on the device, where batches of fixed shapes are gathered.

Only the indices of the pairs of a batch are copied to the device. The gathering is part of the
captured update, so the host does not assemble batches.

Shapes: B rows, T columns, ``top`` soft targets per token.
"""

import torch
from torch import Tensor

from scalesearch.blocks.core import BOS, EOS, PAD
from scalesearch.data.soft_targets import record_offsets
from scalesearch.data.split import IntArray, Split

MAX_SHARE = 0.25  # of the memory of a GPU
GROWTH = 1.25  # room for later epochs of text that is tokenized again


def resident_bytes(split: Split) -> int:
    """Bytes of a split on a device."""
    n_tokens = len(split.source_ids.flat) + len(split.target_ids.flat)
    records = split.soft_targets.records.nbytes if split.soft_targets else 0
    return int(GROWTH * 4 * n_tokens) + 8 * 4 * len(split) + records


class ResidentSplit:
    """Token ids of a split on a device; those of a later epoch replace them in place.

    Attributes:
        split: the split whose ids are on the device.
        flat, starts, lengths: for source and target, as in :class:`RaggedArray`.
        soft_targets: ids and probabilities, each (records, top), and the index of the first record
            of each pair (pairs,); or None.
    """

    def __init__(self, split: Split, device: torch.device) -> None:
        self.split = split
        sides = (split.source_ids, split.target_ids)
        self.flat = [torch.zeros(1 + int(GROWTH * len(side.flat)), dtype=torch.int32, device=device)
                     for side in sides]
        self.starts = [torch.zeros(len(split), dtype=torch.int64, device=device) for _ in sides]
        self.lengths = [torch.zeros_like(starts) for starts in self.starts]
        self.soft_targets: tuple[Tensor, ...] | None = None
        if split.soft_targets is not None:
            records = split.soft_targets.records
            arrays = records["ids"], records["probabilities"], record_offsets(split)[:-1]
            self.soft_targets = tuple(torch.from_numpy(array.copy()).to(device) for array in arrays)
        self.replace(split)

    def has_room(self, split: Split) -> bool:
        """Whether the ids of another epoch fit into the tensors."""
        return all(len(side.flat) < len(flat)
                   for side, flat in zip((split.source_ids, split.target_ids), self.flat))

    def replace(self, split: Split) -> None:
        """Copy the ids of ``split`` to the device, without waiting for it."""
        self.split = split
        for index, side in enumerate((split.source_ids, split.target_ids)):
            copy_to(self.flat[index][: len(side.flat)], side.flat)
            copy_to(self.starts[index], side.offsets[:-1])
            copy_to(self.lengths[index], side.lengths)

    def gather(self, rows: Tensor, source: Tensor, ids: Tensor) -> None:
        """Write source (B, S), and decoder input and labels (2, B, T), to two tensors.

        They are equal to those of :meth:`Buckets.pad`. ``rows`` (B,) are indices of pairs, and -1
        for rows of padding.
        """
        columns = torch.arange(ids.shape[2], device=ids.device)
        length = self._lengths_of(1, rows)
        tokens = self._tokens(1, rows, length, columns)
        previous = self._tokens(1, rows, length, columns - 1)
        if self.split.window_overlap is None:
            source_length = self._lengths_of(0, rows)
            source_columns = torch.arange(source.shape[1], device=ids.device)
            source.copy_(self._tokens(0, rows, source_length, source_columns)
                         + EOS * (source_columns == source_length))
            ids[0].copy_(previous + BOS * ((columns == 0) & (length >= 0)))
            ids[1].copy_(tokens + EOS * (columns == length))
            return
        source.copy_(EOS * (length >= 0))
        ids[0].copy_((previous + BOS * (columns == 0)) * (columns < length))
        is_repeated = (rows[:, None] > 0) & (columns < self.split.window_overlap)
        ids[1].copy_(tokens * ~is_repeated)

    def gather_soft_targets(self, rows: Tensor, ids: Tensor, probabilities: Tensor) -> None:
        """Write the soft targets of each position, EOS included, to two tensors (B, T, top)."""
        assert self.soft_targets is not None
        soft_ids, soft_probabilities, first_records = self.soft_targets
        columns = torch.arange(ids.shape[1], device=ids.device)
        is_scored = (columns <= self._lengths_of(1, rows))[..., None]
        records = first_records[rows.clamp(min=0), None] + columns
        records = records.clamp(max=len(soft_ids) - 1)
        ids.copy_(soft_ids[records] * is_scored)
        probabilities.copy_(soft_probabilities[records] * is_scored)

    def _lengths_of(self, side: int, rows: Tensor) -> Tensor:
        """Lengths (B, 1) of one side; -1 for rows of padding."""
        lengths = self.lengths[side][rows.clamp(min=0)]
        return lengths.masked_fill(rows < 0, -1)[:, None]

    def _tokens(self, side: int, rows: Tensor, length: Tensor, columns: Tensor) -> Tensor:
        """Ids (B, T) of one side at ``columns`` (T,) of its rows; PAD outside of them."""
        starts = self.starts[side][rows.clamp(min=0)][:, None]
        flat = self.flat[side]
        ids = flat[(starts + columns).clamp(0, len(flat) - 1)]
        return ids.masked_fill((columns < 0) | (columns >= length), PAD)


def copy_to(destination: Tensor, values: IntArray) -> None:
    """Copy an array to a tensor; to a GPU from pinned memory, without waiting."""
    source = torch.from_numpy(values.copy())  # memory-mapped arrays cannot be written
    # A pinned block is reused only after its copy: PyTorch keeps track of that.
    destination.copy_(source.pin_memory() if destination.is_cuda else source, non_blocking=True)
