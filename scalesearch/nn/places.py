"""Where a feature of a smaller or larger model stands in the model that it comes from, and copying by that.

A feature that the parent does not have is computed by fresh weights and read with zero weight, so that it changes
nothing until it is trained (Chen et al. 2016, Net2Net, for what is added; zero weights as Gesmundo & Maile 2023).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

FRESH = -1  # the parent has no such feature: the child's own first weights compute it
ZERO = -2  # neither, and it must be zero for the others to stay what they were


@dataclass(frozen=True)
class Places:
    """Of each feature of the child its place among the parent's (``parent`` of them), or ``FRESH`` or ``ZERO``."""

    parent: int
    places: tuple[int, ...]

    @property
    def same(self) -> bool:
        """Whether the axes are one."""
        return self.places == tuple(range(self.parent))

    @property
    def whole(self) -> bool:
        """Whether no feature of the parent is lost."""
        return set(range(self.parent)) <= set(self.places)


def first(parent: int, child: int, more: int = FRESH) -> Places:
    """The first features of the parent, as many as there are in both."""
    return Places(parent, (*range(min(parent, child)), *[more] * (child - parent)))


def centred(parent: int, child: int) -> Places:
    """Clipped distances around the middle: a distance beyond the parent's clip is its farthest."""
    shift = (parent - 1) // 2 - (child - 1) // 2
    return Places(parent, tuple(min(max(at + shift, 0), parent - 1) for at in range(child)))


def nested(outer: Places, inner: Places) -> Places:
    """Of an axis that holds ``inner`` in each of ``outer``: heads, and features in each of them."""
    return Places(outer.parent * inner.parent, tuple(
        a if a < 0 else b if b < 0 else a * inner.parent + b for a in outer.places for b in inner.places))


def twice(axis: Places) -> Places:
    """Of two such axes one after the other."""
    return Places(2 * axis.parent, (*axis.places, *(at if at < 0 else at + axis.parent for at in axis.places)))


def spread(parent: int, child: int) -> Places:
    """Of a width that sinusoidal positions are added to: each feature to one of nearly the same wavelength.

    Sines fill the first half, cosines the second, wavelengths grow geometrically in each.
    """
    places = [FRESH] * child
    halves = [((parent + 1) // 2, (child + 1) // 2), (parent // 2, child // 2)]
    starts = (0, 0), halves[0]
    for (mine, its), (before, after) in zip(halves, starts):
        few, many = sorted((mine, its))
        for at in range(few):
            far = round(at * (many - 1) / (few - 1)) if few > 1 else 0
            source, target = (at, far) if mine <= its else (far, at)
            places[after + target] = before + source
    return Places(parent, tuple(places))


def strongest(importance: Tensor, child: int) -> Places:
    """The ``child`` features of the largest importance, in the parent's order; all and fresh ones if it has fewer.

    Magnitudes as what decides follow Li et al. 2017 (filters) and Cai et al. 2020 (Once-for-all's widths).
    """
    parent = len(importance)
    if child >= parent:
        return first(parent, child)
    return Places(parent, tuple(sorted(importance.topk(child).indices.tolist())))


@dataclass(frozen=True)
class Link:
    """How one matrix corresponds to the parent's: the axis that it reads, the one that it writes, and a factor.

    ``heads``: of what has a matrix for each head. ``scale``: of all that is copied.
    """

    reads: Places
    writes: Places
    heads: Places | None = None
    scale: float = 1.0

    @property
    def same(self) -> bool:
        """Whether the parent's weights fit as they are."""
        return self.reads.same and self.writes.same and (self.heads is None or self.heads.same) and self.scale == 1

    def to(self, writes: Places) -> Link:
        """The same matrix with another output."""
        return replace(self, writes=writes)


def fill(child: Tensor, parent: Tensor, axes: Sequence[Places], reads: Collection[int] = (), scale: float = 1.0) -> int:
    """Copy into ``child`` what ``parent`` has of it; returns how many numbers are the parent's.

    Of new features on the axes ``reads`` the weights in known rows become zero, elsewhere they stay as they are.
    """
    index = [torch.tensor(axis.places, dtype=torch.long) for axis in axes]
    grid = [at.view([1] * place + [-1] + [1] * (child.ndim - place - 1)) for place, at in enumerate(index)]
    copied, known, zero = (torch.full(child.shape, value) for value in (True, True, False))
    for place, at in enumerate(grid):
        copied &= at >= 0
        zero |= at == ZERO
        known &= (at >= 0) | torch.tensor(place in reads)
    for place in reads:
        zero |= (grid[place] < 0) & known
    source = parent
    for place, at in enumerate(index):
        source = source.index_select(place, at.clamp(min=0))
    with torch.no_grad():
        child.masked_fill_(zero.to(child.device), 0.0)
        child.copy_(torch.where(copied.to(child.device), (source * scale).to(child), child))
    return int(copied.sum())
