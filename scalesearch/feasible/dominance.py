"""Dominance counting: weights of points within upper bounds, without pairs.

A point (k costs) is within a bound if each of its costs is at most that of the bound.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.enumeration import TooManyCandidatesError

MAX_COMPARISONS = 250_000  # of bounds with points, at the same time
MAX_PAIRS = 2_000_000_000  # pairs that are compared directly, for more than two bounds
IntArray = NDArray[np.int64]


class DominanceIndex:
    """Index of points to sum the weights of those within upper bounds.

    For two costs, the points are sorted by each cost into about sqrt(m) blocks. A summed-area table
    has the weights of all combinations of blocks. A query reads it, and compares its bounds with
    the points of one block per cost, which takes O(sqrt(m)).

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
        weights = self.weights[order]
        if points.shape[1] == 1:
            self.sums = np.append(weights[:0].sum(), np.cumsum(weights))
            return
        by_second = np.argsort(points[order, 1], kind="stable")  # first rank of each second rank
        self.second = points[order, 1][by_second]
        second_ranks = np.empty_like(by_second)
        second_ranks[by_second] = np.arange(len(order))
        self.block_size = math.isqrt(len(order)) + 1
        n_blocks = len(order) // self.block_size + 1
        self.table = np.zeros((n_blocks + 1, n_blocks + 1), weights.dtype)
        np.add.at(self.table, (np.arange(len(order)) // self.block_size + 1,
                               second_ranks // self.block_size + 1), weights)
        self.table = self.table.cumsum(0).cumsum(1)
        padding = n_blocks * self.block_size - len(order)
        shape = (n_blocks, self.block_size)
        # For each block of first ranks: second ranks and weights; and the other way round.
        self.second_ranks = np.pad(second_ranks, (0, padding)).reshape(shape)
        self.first_ranks = np.pad(by_second, (0, padding)).reshape(shape)
        self.weights_by_first = np.pad(weights, (0, padding)).reshape(shape)
        self.weights_by_second = np.pad(weights[by_second], (0, padding)).reshape(shape)

    def weight_within(self, upper_bounds: IntArray) -> NDArray[Any]:
        """Total weight of the points within each bound.

        Args:
            upper_bounds: (n, k) bounds.

        Returns:
            (n,) weights.

        Raises:
            TooManyCandidatesError: k > 2, and there are too many pairs to compare.
        """
        n_costs = upper_bounds.shape[1]
        if n_costs == 0:
            return np.full(len(upper_bounds), self.weights.sum())
        if n_costs == 1:
            return self.sums[np.searchsorted(self.first, upper_bounds[:, 0], side="right")]
        if n_costs > 2 and len(upper_bounds) * len(self.points) > MAX_PAIRS:
            raise TooManyCandidatesError(f"more than two budgets over {len(upper_bounds):,} x "
                                         f"{len(self.points):,} combinations")
        within = np.empty(len(upper_bounds), self.weights.dtype)
        n_compared = self.block_size if n_costs == 2 else len(self.points)
        step = max(1, MAX_COMPARISONS // max(1, n_compared))
        for start in range(0, len(upper_bounds), step):
            part = upper_bounds[start : start + step]
            if n_costs == 2:
                within[start : start + step] = self._weight_within_two(part)
                continue
            fits = np.ones((len(part), len(self.points)), bool)
            for column in range(n_costs):
                fits &= self.points[None, :, column] <= part[:, column, None]
            within[start : start + step] = fits @ self.weights
        return within

    def _weight_within_two(self, upper_bounds: IntArray) -> NDArray[Any]:
        """Total weight of the points within each of (n, 2) bounds."""
        prefix = np.searchsorted(self.first, upper_bounds[:, 0], side="right")
        second_prefix = np.searchsorted(self.second, upper_bounds[:, 1], side="right")
        row, n_in_row = np.divmod(prefix, self.block_size)
        column, n_in_column = np.divmod(second_prefix, self.block_size)
        offsets = np.arange(self.block_size)
        in_row = (offsets < n_in_row[:, None]) & (self.second_ranks[row] < second_prefix[:, None])
        in_column = ((offsets < n_in_column[:, None])
                     & (self.first_ranks[column] < (prefix - n_in_row)[:, None]))
        return (self.table[row, column] + (in_row * self.weights_by_first[row]).sum(1)
                + (in_column * self.weights_by_second[column]).sum(1))


def find_largest_partner(left: IntArray, right: IntArray, bounds: IntArray) -> tuple[IntArray, Any]:
    """Find the best partner of each row: largest first number, then smallest second.

    A partner is a row of ``right`` for which both sums are within the bounds. The rows of ``left``
    are processed by decreasing room for the second number, so that rows of ``right`` are only
    removed. A union-find structure leads from a removed first number to the next smaller one.

    Args:
        left: (n, 2).
        right: (m, 2).
        bounds: (2,) upper bounds of left + right.

    Returns:
        (n,) indices into ``right``, and a mask (n,) of the rows that have any partner.
    """
    room = bounds - left
    by_second = np.lexsort((-np.arange(len(right)), right[:, 1]))  # of equal rows, the last first
    firsts, smallest = np.unique(right[by_second, 0], return_index=True)
    rows = np.append(by_second[smallest], -1)  # a row per first number; position -1: no partner
    seconds = right[rows[:-1], 1]
    removals = np.argsort(-seconds, kind="stable")
    by_room = np.argsort(-room[:, 1], kind="stable")
    n_removed = np.searchsorted(-seconds[removals], -room[by_room, 1], side="left")
    positions = np.searchsorted(firsts, room[by_room, 0], side="right") - 1
    removed = iter(removals.tolist())
    # smaller[position + 1]: the same position, or a smaller one if it is removed; -1 is the end.
    smaller = list(range(-1, len(firsts)))
    n_done = 0
    best_positions = []
    for n_total, position in zip(n_removed.tolist(), positions.tolist()):
        for index in islice(removed, n_total - n_done):
            smaller[index + 1] = index - 1
        n_done = n_total
        while smaller[position + 1] != position:
            smaller[position + 1] = smaller[smaller[position + 1] + 1]
            position = smaller[position + 1]
        best_positions.append(position)
    partner = np.empty(len(left), np.int64)
    partner[by_room] = rows[best_positions]
    return partner, partner >= 0


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
        # The groups of each network, each once, in increasing order.
        _, rows = np.unique(ids * (groups.max(initial=0) + 1) + groups, return_index=True)
        groups = groups[rows]
        costs = costs[rows]
        _, starts, n_groups = np.unique(ids[rows], return_index=True, return_counts=True)
        self.costs: list[IntArray] = []
        self.of_group: dict[int, list[int]] = defaultdict(list)
        self._indices: dict[int, DominanceIndex] = {}
        for count in np.unique(n_groups):
            network_rows = starts[n_groups == count]
            patterns, pattern_of, sizes = np.unique(
                groups[network_rows[:, None] + np.arange(count)], axis=0, return_inverse=True,
                return_counts=True)
            by_pattern = network_rows[np.argsort(pattern_of.reshape(-1), kind="stable")]
            for pattern, rows in zip(patterns.tolist(),
                                     np.split(by_pattern, np.cumsum(sizes)[:-1])):
                for group in pattern:
                    self.of_group[group].append(len(self.costs))
                self.costs.append(costs[rows])

    def group_index(self, number: int) -> DominanceIndex:
        """Dominance index of the networks of one set."""
        if number not in self._indices:  # only the last index is kept
            self._indices = {number: DominanceIndex(self.costs[number])}
        return self._indices[number]
