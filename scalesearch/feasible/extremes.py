"""Cheapest and most expensive feasible candidates, and the front of two costs.

Results are exact. The search uses the decomposition of a space, see
:mod:`scalesearch.feasible.counter`. A pair is a left and a right group of rows that occur together
in an allowed cell. A cap is the largest allowed value of a cost.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.costed_candidates import IndexedCandidate
from scalesearch.feasible.counter import FeasibleCounter
from scalesearch.feasible.dominance import find_largest_partner
from scalesearch.feasible.limits import CostBound, tightest_bounds

MAX_STEPS = 200  # candidates of the front that are found one after the other
MAX_ROW_CLASSES = 64  # classes of rows with the same difference of two costs
MAX_CACHED_VALUES = 32_000_000  # cached costs of rows, eight bytes each
UNBOUNDED = 1 << 61
IntArray = NDArray[np.int64]
Caps = Mapping[str, int]  # cost to the largest allowed value
# Rows of a left and of a right group, and their caps.
RowClass = tuple[IntArray, IntArray, Caps]


class NoExtremeError(ValueError):
    """Extremes cannot be found under these bounds."""


class Extremes:
    """Search for extreme candidates within ``bounds``.

    The search optimizes one cost under caps on this cost and on another one. Further caps are
    converted to caps on these two costs. For example, a cap on params.total is a cap on
    params.non_embedding for rows with the same embeddings, and a cap on macs.encoder excludes rows
    of the encoder.

    Raises:
        NoExtremeError: a bound is a lower bound, or cannot be converted.
    """

    def __init__(self, counter: FeasibleCounter, bounds: list[CostBound]) -> None:
        if any(bound.sign < 0 for bound in bounds):
            raise NoExtremeError("there are lower bounds")
        self.counter = counter
        self.caps: Caps = {bound.name: bound.limit for bound in tightest_bounds(bounds)}
        self._columns: dict[tuple[str, int, str], IntArray] = {}
        self._n_cached = 0
        self._cost_ranges: dict[str, tuple[IntArray, IntArray]] = {}

    def most_expensive(self, name: str, other: str = "") -> IndexedCandidate | None:
        """Candidate with the largest cost ``name``; None if no candidate is feasible.

        Of equal candidates, the one with the smallest ``other`` is returned if the bounds permit.
        """
        return self._best(name, 1, other)

    def cheapest(self, name: str, other: str = "") -> IndexedCandidate | None:
        """Candidate with the smallest cost ``name``; likewise."""
        return self._best(name, -1, other)

    def _best(self, name: str, sign: int, other: str) -> IndexedCandidate | None:
        """Candidate with the largest ``sign`` · ``name``; tries ``other``, then capped costs."""
        capped = [cap for cap in self.caps if cap not in (name, other)]
        *seconds, last = ([other] if other else []) + capped or [name]
        for second in seconds:
            with suppress(NoExtremeError):
                return self._search(name, sign, second, self.caps)
        return self._search(name, sign, last, self.caps)

    def _search(self, name: str, sign: int, other: str, caps: Caps) -> IndexedCandidate | None:
        """Candidate with the largest ``sign`` · ``name``, then the smallest ``other``.

        Branch and bound over pairs: pairs are tried by decreasing bound of ``sign`` · ``name``,
        until no pair can improve the best candidate. Within a pair, the rows of both sides are
        joined by :func:`find_largest_partner`, which needs caps on two costs only.
        """
        other_caps = [cap for cap in caps if cap not in (name, other)]
        best_value = (-UNBOUNDED, 0)
        best = None
        may_fit = np.ones(len(self._pairs), bool)
        for cost, cap in caps.items():
            may_fit &= self._cost_range(cost)[0] <= cap
        potential = self._cost_range(name)[1] if sign > 0 else -self._cost_range(name)[0]
        pairs = np.flatnonzero(may_fit)
        for pair in pairs[np.argsort(-potential[pairs], kind="stable")].tolist():
            if potential[pair] < best_value[0]:
                break
            # Split the rows so that only caps on two costs remain.
            sizes = [len(self._column(side, pair, name)) for side in (0, 1)]
            classes: list[RowClass] = [(np.arange(sizes[0]), np.arange(sizes[1]), caps)]
            for cost in other_caps:
                classes = [smaller for row_class in classes for smaller in
                           self._split_by_cap(pair, row_class, cost, (name, other))]
            for row_class in classes:
                if not len(row_class[0]) or not len(row_class[1]):
                    continue
                rows = self._best_rows(pair, row_class, sign, (name, other), best_value[0])
                if rows is None:
                    continue
                left_row, right_row, value = rows
                if value > best_value:
                    best_value = value
                    best = pair, left_row, right_row
        return None if best is None else self.candidate_at(*best)

    def _best_rows(self, pair: int, row_class: RowClass, sign: int, costs: tuple[str, str],
                   lowest: int) -> tuple[int, int, tuple[int, int]] | None:
        """Best rows of a class, and their value; None if none is feasible and may improve.

        Args:
            costs: the optimized cost and the other one.
            lowest: a value of ``sign`` times the optimized cost that has to be reached.

        Returns:
            left row, right row, and value: ``sign`` times the first cost, minus the other cost.
        """
        left_rows, right_rows, caps = row_class
        left = self._costs(0, pair, left_rows, costs)
        right = self._costs(1, pair, right_rows, costs)
        cap, other_cap = (caps.get(cost, UNBOUNDED) for cost in costs)
        highest = sign * left[:, 0] + (sign * right[:, 0]).max()
        lowest_other = left[:, 1] + right[:, 1].min()
        promising = np.flatnonzero((lowest_other <= other_cap) & (highest >= lowest))
        signs = np.array([sign, 1])
        limits = np.array([cap if sign > 0 else UNBOUNDED, other_cap])
        partner, has_partner = find_largest_partner(left[promising] * signs, right * signs, limits)
        joined_left = promising[has_partner]
        joined_right = partner[has_partner]
        totals = left[joined_left] + right[joined_right]
        if not len(totals):
            return None
        first = np.lexsort((totals[:, 1], -sign * totals[:, 0]))[0]
        total, other_total = totals[first].tolist()
        if total > cap:  # the cheapest candidate, too, is too expensive
            return None
        return (int(left_rows[joined_left[first]]), int(right_rows[joined_right[first]]),
                (sign * total, -other_total))

    def _split_by_cap(self, pair: int, row_class: RowClass, cost: str,
                      costs: tuple[str, str]) -> Iterator[RowClass]:
        """Replace the cap on ``cost`` by a selection of rows, or by another cap."""
        rows = row_class[:2]
        caps = row_class[2]
        values = [self._column(side, pair, cost)[rows[side]] for side in (0, 1)]
        for side in (0, 1):  # if it is constant on one side, it selects rows of the other side
            if len(values[side]) and (values[side] == values[side][0]).all():
                mask = values[1 - side] <= caps[cost] - values[side][0]
                yield (rows[0][mask], rows[1], caps) if side else (rows[0], rows[1][mask], caps)
                return
        for target in dict.fromkeys(costs):
            targets = [self._column(side, pair, target)[rows[side]] for side in (0, 1)]
            if all((values[side] == 2 * targets[side]).all() for side in (0, 1)):  # FLOPs
                yield (*rows, {**caps, target: min(caps.get(target, UNBOUNDED), caps[cost] // 2)})
                return
            offsets = [values[side] - targets[side] for side in (0, 1)]
            distinct = [np.unique(side_offsets) for side_offsets in offsets]
            if len(distinct[0]) * len(distinct[1]) <= MAX_ROW_CLASSES:
                for left, right in itertools.product(*distinct):
                    cap = min(caps.get(target, UNBOUNDED), caps[cost] - int(left) - int(right))
                    yield (rows[0][offsets[0] == left], rows[1][offsets[1] == right],
                           {**caps, target: cap})
                return
        names = ", ".join(dict.fromkeys((*costs, cost)))
        raise NoExtremeError(f"bounds on {names} cannot be combined")

    # -- groups

    @cached_property
    def _pairs(self) -> IntArray:
        """Pairs with valid rows: (n, 3) left group, right group, and their first cell."""
        is_left_valid = [bool(group.is_valid.any()) for group in self.counter.left_groups]
        is_right_valid = [bool(group.is_valid.any()) for group in self.counter.right_groups]
        first_cell: dict[tuple[int, int], int] = {}
        for index, cell in enumerate(self.counter.cells):
            if cell.is_allowed and is_left_valid[cell.left] and is_right_valid[cell.right]:
                first_cell.setdefault((cell.left, cell.right), index)
        rows = [(left, right, index) for (left, right), index in first_cell.items()]
        return np.array(rows, np.int64).reshape(-1, 3)

    def _column(self, side: int, pair: int, name: str) -> IntArray:
        """One cost of the valid rows of the left (side 0) or right group of a pair."""
        key = ("left", "right")[side], int(self._pairs[pair, side]), name
        if key not in self._columns:
            column = self.counter.bounded_costs(*key[:2], [CostBound(name, 1, UNBOUNDED)])[:, 0]
            self._n_cached += len(column)
            if self._n_cached > MAX_CACHED_VALUES:
                self._columns = {}
                self._n_cached = len(column)
            self._columns[key] = column
        return self._columns[key]

    def _costs(self, side: int, pair: int, rows: IntArray, names: tuple[str, ...]) -> IntArray:
        """Costs (rows, names) of some rows of a group."""
        return np.stack([self._column(side, pair, name)[rows] for name in names], 1)

    def _cost_range(self, name: str) -> tuple[IntArray, IntArray]:
        """Smallest and largest cost ``name`` of each pair, (n,) each."""
        if name not in self._cost_ranges:
            lowest = np.zeros(len(self._pairs), np.int64)
            highest = np.zeros(len(self._pairs), np.int64)
            for side in (0, 1):
                groups, pairs = np.unique(self._pairs[:, side], return_index=True)
                columns = [self._column(side, pair, name) for pair in pairs.tolist()]
                indices = np.searchsorted(groups, self._pairs[:, side])
                lowest += np.array([column.min() for column in columns], np.int64)[indices]
                highest += np.array([column.max() for column in columns], np.int64)[indices]
            self._cost_ranges[name] = lowest, highest
        return self._cost_ranges[name]

    # -- the front

    def front(self, maximize: str, minimize: str) -> tuple[list[IndexedCandidate], bool]:
        """Non-dominated candidates: largest ``maximize`` for smallest ``minimize``.

        Without bounds, the front of a sum consists of fronts of its parts. If candidates of this
        front are infeasible, the candidates between its feasible ones are found step by step.

        Returns:
            candidates by increasing ``minimize``, and whether the front is complete; the number of
            steps is limited.
        """
        front: list[IndexedCandidate] = []
        n_steps = MAX_STEPS
        is_gap = False
        for candidate in [*self._unbounded_front(maximize, minimize), None]:
            if candidate is not None and any(candidate.costs[name] > cap
                                             for name, cap in self.caps.items()):
                is_gap = True
                continue
            if is_gap:
                floor = front[-1].costs[maximize] if front else -1
                cap = (self.caps.get(minimize, UNBOUNDED) if candidate is None
                       else candidate.costs[minimize] - 1)
                while n_steps:
                    best = self._search(maximize, 1, minimize, {**self.caps, minimize: cap})
                    if best is None or best.costs[maximize] <= floor:
                        break
                    front.append(best)
                    cap = best.costs[minimize] - 1
                    n_steps -= 1
            if candidate is not None:
                front.append(candidate)
            is_gap = False
        return sorted(front, key=lambda candidate: candidate.costs[minimize]), n_steps > 0

    def _unbounded_front(self, maximize: str, minimize: str) -> list[IndexedCandidate]:
        """Front of the whole space up to the cap on ``minimize``, sorted by it."""
        group_fronts: dict[tuple[int, int], IntArray] = {}
        costs = np.zeros((0, 2), np.int64)
        candidates = np.zeros((0, 3), np.int64)  # pair, left row, right row
        highest = self._cost_range(maximize)[1].tolist()
        lowest = self._cost_range(minimize)[0].tolist()
        front_costs: tuple[list[int], list[int]] = ([], [])
        for pair, groups in enumerate(self._pairs.tolist()):
            before = bisect_right(front_costs[1], lowest[pair]) - 1
            if before >= 0 and front_costs[0][before] >= highest[pair]:
                continue
            sides = []
            for side in (0, 1):
                rows = group_fronts.get((side, groups[side]))
                if rows is None:
                    all_rows = np.arange(len(self._column(side, pair, maximize)))
                    rows = _front(self._costs(side, pair, all_rows, (maximize, minimize)))
                    group_fronts[side, groups[side]] = rows
                sides.append((rows, self._costs(side, pair, rows, (maximize, minimize))))
            (left_rows, left), (right_rows, right) = sides
            # Rows are dropped if they are dominated even with the best partners.
            mask = _may_be_on_front(left, right, costs)
            left_rows = left_rows[mask]
            left = left[mask]
            if not len(left_rows):
                continue
            mask = _may_be_on_front(right, left, costs)
            right_rows = right_rows[mask]
            right = right[mask]
            a, b = np.divmod(np.arange(len(left_rows) * len(right_rows)), max(1, len(right_rows)))
            new = np.stack([np.full(len(a), pair), left_rows[a], right_rows[b]], 1)
            costs = np.concatenate([costs, left[a] + right[b]])
            candidates = np.concatenate([candidates, new])
            front = _front(costs)
            costs = costs[front]
            candidates = candidates[front]
            front_costs = costs[:, 0].tolist(), costs[:, 1].tolist()
        within_cap = costs[:, 1] <= self.caps.get(minimize, UNBOUNDED)
        return [self.candidate_at(*row) for row in candidates[within_cap].tolist()]

    def candidate_at(self, pair: int, left: int, right: int) -> IndexedCandidate:
        """Candidate of one valid row on each side of a pair."""
        return self.counter.candidate_at(self.counter.cells[self._pairs[pair, 2]], left, right)


def _may_be_on_front(costs: IntArray, others: IntArray, front: IntArray) -> NDArray[np.bool_]:
    """Mask of the rows that may be on a front with the best partners among ``others``.

    Args:
        costs, others: (n, 2) and (m, 2) costs to maximize and to minimize.
        front: (k, 2) the front so far, sorted by the second cost.
    """
    if not len(front):
        return np.ones(len(costs), bool)
    best = costs + np.array([others[:, 0].max(), others[:, 1].min()])
    before = np.searchsorted(front[:, 1], best[:, 1], side="right") - 1
    mask: NDArray[np.bool_] = (before < 0) | (front[np.maximum(before, 0), 0] < best[:, 0])
    return mask


def _front(costs: IntArray) -> IntArray:
    """Indices of non-dominated rows, one of equal rows, by increasing second cost.

    Args:
        costs: (n, 2) costs to maximize and to minimize.
    """
    order = np.lexsort((-costs[:, 0], costs[:, 1]))
    highest = np.maximum.accumulate(costs[order, 0])
    is_higher = costs[order[1:], 0] > highest[:-1]
    return order[np.concatenate([[True], is_higher])[: len(order)]]
