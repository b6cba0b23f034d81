"""Dominance counting: weights of points within upper bounds, without pairs.

A point (k costs) is within a bound if each of its costs is at most that of the bound. For one or
two costs, a query takes O(log n) with sorted sums or a wavelet matrix.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.enumeration import TooManyCandidatesError

QUERIES_PER_BATCH = 1 << 19
MAX_PAIRS = 2_000_000_000  # pairs that are compared directly, for more than two bounds
IntArray = NDArray[np.int64]


class WaveletMatrix:
    """Wavelet matrix over ranks: sums and order statistics of any prefix in O(log n).

    All methods process arrays of queries.

    Args:
        ranks: (n,) integers from 0 to n - 1.
        weights: (n,) weights of the ranks, by default 1.

    Source: Claude and Navarro (2012), "The wavelet matrix".
    """

    def __init__(self, ranks: IntArray, weights: NDArray[Any] | None = None) -> None:
        self.total = np.arange(len(ranks) + 1) if weights is None else running_sums(weights)
        self.levels: list[tuple[int, IntArray, int, NDArray[Any] | None]] = []
        for bit in range(max(len(ranks) - 1, 1).bit_length() - 1, -1, -1):
            zero = (ranks >> bit) & 1 == 0
            before = running_sums(zero, np.int32)
            self.levels.append((bit, before, int(before[-1]),
                                None if weights is None else running_sums(weights[zero])))
            ranks = np.concatenate([ranks[zero], ranks[~zero]])
            weights = None if weights is None else np.concatenate([weights[zero], weights[~zero]])

    def weight_below(self, prefix: IntArray, rank: IntArray) -> NDArray[Any]:
        """Total weight of the first ``prefix`` ranks that are below ``rank``."""
        low = np.zeros_like(prefix)
        high = prefix.copy()
        below = np.zeros(len(prefix), self.total.dtype)
        for bit, before, zeros, weights in self.levels:
            bit_is_set = (rank >> bit) & 1 == 1
            a = before[low]
            b = before[high]
            below += np.where(bit_is_set, b - a if weights is None else weights[b] - weights[a], 0)
            low = np.where(bit_is_set, zeros + low - a, a)
            high = np.where(bit_is_set, zeros + high - b, b)
        return np.where(rank >= 1 << len(self.levels), self.total[prefix], below)

    def kth_smallest(self, prefix: IntArray, k: IntArray) -> IntArray:
        """The ``k``-th smallest (k = 0, 1, …) of the first ``prefix`` ranks, k < prefix."""
        low = np.zeros_like(prefix)
        high = prefix.copy()
        k = k.copy()
        smallest = np.zeros_like(prefix)
        for bit, before, zeros, _ in self.levels:
            a = before[low]
            b = before[high]
            bit_is_set = k >= b - a
            k = np.where(bit_is_set, k - (b - a), k)
            smallest |= np.where(bit_is_set, 1 << bit, 0)
            low = np.where(bit_is_set, zeros + low - a, a)
            high = np.where(bit_is_set, zeros + high - b, b)
        return smallest


def running_sums(weights: NDArray[Any], dtype: Any = None) -> NDArray[Any]:
    """Cumulative sums that start with 0, (n + 1,) for (n,) weights."""
    running = np.cumsum(weights, dtype=dtype)
    return np.concatenate([np.zeros(1, running.dtype), running])


class DominanceIndex:
    """Index of points to sum the weights of those within upper bounds.

    Args:
        points: (m, k) costs.
        weights: (m,) non-negative weights, by default 1.
    """

    def __init__(self, points: IntArray, weights: NDArray[Any] | None = None) -> None:
        self.points = points
        self.weights = np.ones(len(points), np.int64) if weights is None else weights
        if points.shape[1] not in (1, 2):
            return
        order = np.argsort(points[:, 0], kind="stable")
        self.first = points[order, 0]
        ordered = self.weights[order]
        self.sums = running_sums(ordered)
        if points.shape[1] == 2:
            second = points[order, 1]
            by_second = np.argsort(second, kind="stable")
            ranks = np.empty(len(second), np.int64)
            ranks[by_second] = np.arange(len(second))
            self.second = second[by_second]
            self.wavelet = WaveletMatrix(ranks, None if weights is None else ordered)

    def weight_within(self, upper_bounds: IntArray) -> NDArray[Any]:
        """Total weight of the points within each bound.

        Args:
            upper_bounds: (n, k) bounds.

        Returns:
            (n,) weights.

        Raises:
            TooManyCandidatesError: k > 2, and there are too many pairs to compare.
        """
        if len(upper_bounds) > QUERIES_PER_BATCH and upper_bounds.shape[1] <= 2:
            starts = range(0, len(upper_bounds), QUERIES_PER_BATCH)
            batches = [upper_bounds[start : start + QUERIES_PER_BATCH] for start in starts]
            return np.concatenate([self.weight_within(batch) for batch in batches])
        if not upper_bounds.shape[1]:
            return np.full(len(upper_bounds), self.weights.sum())
        if upper_bounds.shape[1] > 2:
            return self._one_by_one(upper_bounds)
        prefix = np.searchsorted(self.first, upper_bounds[:, 0], side="right")
        if upper_bounds.shape[1] == 1:
            return self.sums[prefix]
        return self.wavelet.weight_below(
            prefix, np.searchsorted(self.second, upper_bounds[:, 1], side="right"))

    def _one_by_one(self, room: IntArray) -> NDArray[Any]:
        if len(room) * len(self.points) > MAX_PAIRS:
            raise TooManyCandidatesError(f"more than two budgets over {len(room):,} x "
                                         f"{len(self.points):,} combinations")
        within = np.empty(len(room), self.weights.dtype)
        step = max(1, 4_000_000 // max(1, len(self.points)))
        for start in range(0, len(room), step):
            part = room[start : start + step]
            fits = np.ones((len(part), len(self.points)), bool)
            for column in range(room.shape[1]):
                fits &= self.points[None, :, column] <= part[:, column, None]
            within[start : start + step] = fits @ self.weights
        return within


def find_largest_partner(left: IntArray, right: IntArray, bounds: IntArray) -> tuple[IntArray, Any]:
    """Find the best partner of each row: largest first number, then smallest second.

    A partner is a row of ``right`` for which both sums are within the bounds.

    Args:
        left: (n, 2).
        right: (m, 2).
        bounds: (2,) upper bounds of left + right.

    Returns:
        (n,) indices into ``right``, and a mask (n,) of the rows that have any partner.
    """
    room = bounds[None, :] - left
    order = np.argsort(right[:, 1], kind="stable")
    first = right[order, 0]
    # of equals, the one with the smallest second number comes last
    by_first = np.lexsort((-right[order, 1], first))
    ranks = np.empty(len(first), np.int64)
    ranks[by_first] = np.arange(len(first))
    wavelet = WaveletMatrix(ranks)
    prefix = np.searchsorted(right[order, 1], room[:, 1], side="right")
    fitting = wavelet.weight_below(prefix,
                                   np.searchsorted(first[by_first], room[:, 0], side="right"))
    some = fitting > 0
    best = wavelet.kth_smallest(prefix, np.maximum(fitting - 1, 0))
    return order[by_first[np.minimum(best, len(first) - 1)]], some


class NetworksByGroup:
    """Networks of one side, in sets of networks that occur in the same groups.

    Args:
        ids: (n,) numbers of networks.
        groups: (n,) group in which the network occurs.
        costs: (n, k) costs.

    Attributes:
        costs: costs of the networks of each set.
        of_group: indices of the sets that occur in a group.
    """

    def __init__(self, ids: IntArray, groups: IntArray, costs: IntArray) -> None:
        order = np.lexsort((groups, ids))
        ids = ids[order]
        groups = groups[order]
        costs = costs[order]
        fresh = np.concatenate(
            [[True], (ids[1:] != ids[:-1]) | (groups[1:] != groups[:-1])]) if len(ids) else ids > 0
        ids = ids[fresh]
        groups = groups[fresh]
        costs = costs[fresh]
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]])) if len(ids) else ids
        often = np.diff(np.append(starts, len(ids)))
        self.costs: list[IntArray] = []
        self.of_group: dict[int, list[int]] = defaultdict(list)
        self._indices: dict[int, DominanceIndex] = {}
        for times in np.unique(often):
            chosen = starts[often == times]
            occurs = groups[chosen[:, None] + np.arange(times)]
            self._add(occurs, costs[chosen])

    def _add(self, occurs: IntArray, costs: IntArray) -> None:
        """Add networks; each occurs in the groups of its row of ``occurs`` (n, times)."""
        patterns, which = np.unique(occurs, axis=0, return_inverse=True)
        order = np.argsort(which.reshape(-1), kind="stable")
        edges = np.searchsorted(which.reshape(-1)[order], np.arange(len(patterns) + 1))
        for number, pattern in enumerate(patterns.tolist()):
            for group in pattern:
                self.of_group[group].append(len(self.costs))
            self.costs.append(costs[order[edges[number] : edges[number + 1]]])

    def group_index(self, number: int) -> DominanceIndex:
        """Dominance index of the networks of one set."""
        if number not in self._indices:  # only the last index is kept
            self._indices = {number: DominanceIndex(self.costs[number])}
        return self._indices[number]
