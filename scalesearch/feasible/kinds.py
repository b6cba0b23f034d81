"""Networks of one side of a space taken apart, sorted by where they occur."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.dominance import Index

Rows = NDArray[np.int64]


class Kinds:
    """Networks of one side, by the groups in which they occur.

    ``costs``: of each kind's networks. ``of_group``: the kinds that occur in a group.
    """

    def __init__(self, ids: Rows, groups: Rows, costs: NDArray[np.int64]) -> None:
        order = np.lexsort((groups, ids))
        ids, groups, costs = ids[order], groups[order], costs[order]
        fresh = np.concatenate([[True], (ids[1:] != ids[:-1]) | (groups[1:] != groups[:-1])]) if len(ids) else ids > 0
        ids, groups, costs = ids[fresh], groups[fresh], costs[fresh]
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]])) if len(ids) else ids
        often = np.diff(np.append(starts, len(ids)))
        self.costs: list[NDArray[np.int64]] = []
        self.of_group: dict[int, list[int]] = defaultdict(list)
        self._made: dict[int, Index] = {}
        for times in np.unique(often):
            chosen = starts[often == times]
            occurs = groups[chosen[:, None] + np.arange(times)]
            self._add(occurs, costs[chosen])

    def _add(self, occurs: Rows, costs: NDArray[np.int64]) -> None:
        """Networks that occur in (n, times) groups each."""
        patterns, which = np.unique(occurs, axis=0, return_inverse=True)
        order = np.argsort(which.reshape(-1), kind="stable")
        edges = np.searchsorted(which.reshape(-1)[order], np.arange(len(patterns) + 1))
        for number, pattern in enumerate(patterns.tolist()):
            for group in pattern:
                self.of_group[group].append(len(self.costs))
            self.costs.append(costs[order[edges[number] : edges[number + 1]]])

    def index(self, kind: int) -> Index:
        """The networks of one kind, to be counted."""
        if kind not in self._made:
            self._made[kind] = Index(self.costs[kind])
        return self._made[kind]
