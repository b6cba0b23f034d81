"""Weights of points within bounds, for many bounds at once: what ``dominance`` counts, weighed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.dominance import MOST_PAIRS, Numbers
from scalesearch.feasible.grid import TooMany

Weights = NDArray[np.float64]


class Weighed:
    """Points (m, k) with weights (m,) >= 0."""

    def __init__(self, points: Numbers, weights: Weights) -> None:
        self.points, self.weights = points, weights
        if points.shape[1] not in (1, 2):
            return
        order = np.argsort(points[:, 0], kind="stable")
        self.first, self.sums = points[order, 0], _sums(weights[order])
        if points.shape[1] == 2:
            self._levels(points[order, 1], weights[order])

    def _levels(self, second: Numbers, weights: Weights) -> None:
        """A wavelet matrix over the ranks of the second number, with running sums of the weights of each zero bit."""
        by_second = np.argsort(second, kind="stable")
        self.second = second[by_second]
        ranks = np.empty(len(second), np.int64)
        ranks[by_second] = np.arange(len(second))
        self.levels = []
        for bit in range(max(len(second) - 1, 1).bit_length() - 1, -1, -1):
            zero = (ranks >> bit) & 1 == 0
            before = np.concatenate([[0], np.cumsum(zero)])
            self.levels.append((bit, before, int(before[-1]), _sums(weights[zero])))
            ranks, weights = (np.concatenate([column[zero], column[~zero]]) for column in (ranks, weights))

    def within(self, room: Numbers) -> Weights:
        """(n,) the weight of all points that are at most ``room`` (n, k) in every number.

        Raises:
            TooMany: more than two numbers and too many pairs to compare.
        """
        if not room.shape[1]:
            return np.full(len(room), self.weights.sum())
        if room.shape[1] > 2:
            return self._one_by_one(room)
        prefix = np.searchsorted(self.first, room[:, 0], side="right")
        if room.shape[1] == 1:
            return self.sums[prefix]
        return self._below(prefix, np.searchsorted(self.second, room[:, 1], side="right"))

    def _below(self, prefix: Numbers, rank: Numbers) -> Weights:
        low, high, found = np.zeros_like(prefix), prefix.copy(), np.zeros(len(prefix))
        for bit, before, zeros, sums in self.levels:
            one = (rank >> bit) & 1 == 1
            a, b = before[low], before[high]
            found += np.where(one, sums[b] - sums[a], 0)
            low, high = np.where(one, zeros + low - a, a), np.where(one, zeros + high - b, b)
        return np.where(rank >= 1 << len(self.levels), self.sums[prefix], found)

    def _one_by_one(self, room: Numbers) -> Weights:
        if len(room) * len(self.points) > MOST_PAIRS:
            raise TooMany(f"more than two budgets over {len(room):,} x {len(self.points):,} combinations")
        found = np.empty(len(room))
        step = max(1, 4_000_000 // max(1, len(self.points)))
        for start in range(0, len(room), step):
            part = room[start : start + step]
            fits = np.ones((len(part), len(self.points)), bool)
            for column in range(room.shape[1]):
                fits &= self.points[None, :, column] <= part[:, column, None]
            found[start : start + step] = fits @ self.weights
        return found


def _sums(weights: Weights) -> Weights:
    """Running sums from 0; one more than there are weights."""
    return np.concatenate([[0.0], np.cumsum(weights)])
