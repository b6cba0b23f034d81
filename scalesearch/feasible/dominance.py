"""Counting pairs under bounds: how many of one set each of another can be paired with, without listing the pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.grid import TooMany

MOST_PAIRS = 2_000_000_000  # compared one by one, where there are more than two bounds
Numbers = NDArray[np.int64]


class Wavelet:
    """A wavelet matrix over ranks: counts and order statistics of any prefix in O(log n), for many queries at once."""

    def __init__(self, ranks: Numbers) -> None:
        self.size = len(ranks)
        self.levels: list[tuple[int, NDArray[np.int64], int]] = []
        for bit in range(max(self.size - 1, 1).bit_length() - 1, -1, -1):
            zero = (ranks >> bit) & 1 == 0
            before = np.concatenate([[0], np.cumsum(zero)])
            self.levels.append((bit, before, int(before[-1])))
            ranks = np.concatenate([ranks[zero], ranks[~zero]])

    def below(self, prefix: Numbers, rank: Numbers) -> Numbers:
        """How many of the first ``prefix`` ranks are below ``rank``."""
        full = rank >= 1 << len(self.levels)
        low, high, found = np.zeros_like(prefix), prefix.copy(), np.zeros_like(prefix)
        for bit, before, zeros in self.levels:
            one = (rank >> bit) & 1 == 1
            a, b = before[low], before[high]
            found += np.where(one, b - a, 0)
            low, high = np.where(one, zeros + low - a, a), np.where(one, zeros + high - b, b)
        return np.where(full, prefix, found)

    def kth(self, prefix: Numbers, k: Numbers) -> Numbers:
        """The ``k``-th smallest (from 0) of the first ``prefix`` ranks; ``k`` must be below ``prefix``."""
        low, high, k, found = np.zeros_like(prefix), prefix.copy(), k.copy(), np.zeros_like(prefix)
        for bit, before, zeros in self.levels:
            a, b = before[low], before[high]
            one = k >= b - a
            k = np.where(one, k - (b - a), k)
            found |= np.where(one, 1 << bit, 0)
            low, high = np.where(one, zeros + low - a, a), np.where(one, zeros + high - b, b)
        return found


class Index:
    """Points (m, k), ready to say how many of them lie within given bounds."""

    def __init__(self, points: Numbers) -> None:
        self.points = points
        if not points.shape[1]:
            return
        order = np.argsort(points[:, 0], kind="stable")
        self.first = points[order, 0]
        if points.shape[1] == 2:
            second = points[order, 1]
            by_second = np.argsort(second, kind="stable")
            ranks = np.empty(len(second), np.int64)
            ranks[by_second] = np.arange(len(second))
            self.second, self.wavelet = second[by_second], Wavelet(ranks)

    def within(self, room: Numbers) -> Numbers:
        """(n,) how many points are at most ``room`` (n, k) in every number.

        Raises:
            TooMany: more than two numbers and too many pairs to compare.
        """
        if not room.shape[1]:
            return np.full(len(room), len(self.points))
        if room.shape[1] > 2:
            return _one_by_one(room, self.points)
        prefix = np.searchsorted(self.first, room[:, 0], side="right")
        if room.shape[1] == 1:
            return prefix
        return self.wavelet.below(prefix, np.searchsorted(self.second, room[:, 1], side="right"))


def partners(left: Numbers, right: Numbers, bounds: Numbers) -> Numbers:
    """(n,) for each row of ``left`` (n, k) how many rows of ``right`` (m, k) it adds up with to at most ``bounds``."""
    return Index(right).within(bounds[None, :] - left)


def _one_by_one(room: Numbers, right: Numbers) -> Numbers:
    if len(room) * len(right) > MOST_PAIRS:
        raise TooMany(f"more than two budgets over {len(room):,} x {len(right):,} combinations")
    found = np.empty(len(room), np.int64)
    step = max(1, 4_000_000 // max(1, len(right)))
    for start in range(0, len(room), step):
        part = room[start : start + step]
        fits = np.ones((len(part), len(right)), bool)
        for column in range(right.shape[1]):
            fits &= right[None, :, column] <= part[:, column, None]
        found[start : start + step] = fits.sum(1)
    return found


def largest_partner(left: Numbers, right: Numbers, bounds: Numbers) -> tuple[Numbers, Any]:
    """For each row of ``left`` (n, 2) the row of ``right`` with the largest first number, then the smallest second.

    Returns:
        indices into ``right``, and which rows of ``left`` have any partner.
    """
    room = bounds[None, :] - left
    order = np.argsort(right[:, 1], kind="stable")
    first = right[order, 0]
    by_first = np.lexsort((-right[order, 1], first))  # of equals, the one with the smallest second number comes last
    ranks = np.empty(len(first), np.int64)
    ranks[by_first] = np.arange(len(first))
    wavelet = Wavelet(ranks)
    prefix = np.searchsorted(right[order, 1], room[:, 1], side="right")
    fitting = wavelet.below(prefix, np.searchsorted(first[by_first], room[:, 0], side="right"))
    some = fitting > 0
    best = wavelet.kth(prefix, np.maximum(fitting - 1, 0))
    return order[by_first[np.minimum(best, len(first) - 1)]], some
