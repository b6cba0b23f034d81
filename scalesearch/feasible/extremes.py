"""The cheapest and the dearest that fit, and the front between two costs: exact, from a space taken apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.costed_candidates import IndexedCandidate
from scalesearch.feasible.counter import FeasibleCounter
from scalesearch.feasible.dominance import find_largest_partner
from scalesearch.feasible.limits import CostBound, tightest_bounds

MAX_STEPS = 200  # points of the front that only a bound puts there, found one after the other
MAX_ROW_CLASSES = 64  # of rows that differ in how two costs go together, taken one by one
MAX_CACHED_VALUES = 32_000_000  # costs of groups' rows, eight bytes each
UNBOUNDED = 1 << 61
IntArray = NDArray[np.int64]
Caps = Mapping[str, int]  # cost to the most that is allowed
# rows of a left and of a right group, and caps for these
RowClass = tuple[IntArray, IntArray, Caps]


class NoExtremeError(ValueError):
    """Bounds under which no extreme is found."""


class Extremes:
    """Finds candidates of a counter's space within ``bounds``.

    The search is over one cost under a cap on itself and on another. Further caps are led back to
    these two: a bound on params.total is one on params.non_embedding for all rows with the same
    embeddings, one on macs.encoder leaves out rows of the encoder.

    Raises:
        NotFound: bounds from below, or that cannot be led back.
    """

    def __init__(self, counter: FeasibleCounter, bounds: list[CostBound]) -> None:
        if any(bound.sign < 0 for bound in bounds):
            raise NoExtremeError("budgets from below")
        self.counter = counter
        self.caps: Caps = {bound.name: bound.limit for bound in tightest_bounds(bounds)}
        self._columns: dict[tuple[str, int, str], IntArray] = {}
        self._kept = 0
        self._ends: dict[str, tuple[IntArray, IntArray]] = {}

    def most_expensive(self, name: str) -> IndexedCandidate | None:
        """The candidate with the largest ``name``."""
        return self._best(name, 1, self.caps)

    def cheapest(self, name: str) -> IndexedCandidate | None:
        """The candidate with the smallest ``name``."""
        return self._best(name, -1, self.caps)

    def _best(self, name: str, sign: int, caps: Caps,
              other: str | None = None) -> IndexedCandidate | None:
        """The largest ``sign`` · ``name`` within ``caps``; of equals one with the smallest ``other``."""
        choices = [other] if other else [cap for cap in caps if cap != name] or [name]
        for choice in choices:
            try:
                return self._search(name, sign, choice, caps)
            except NoExtremeError:
                if choice == choices[-1]:
                    raise
        raise AssertionError("there is always a second cost")

    def _search(self, name: str, sign: int, other: str, caps: Caps) -> IndexedCandidate | None:
        extra = [cap for cap in caps if cap not in (name, other)]
        best = (-UNBOUNDED, 0)
        at = None
        flip = np.array([sign, 1])
        for place, hope in self._pairs_by_potential(name, sign, caps):
            if hope < best[0]:
                break
            for lefts, rights, capped in self._row_classes(place, (name, other), extra, caps):
                left, right = (self._costs(side, place, rows, (name, other))
                               for side, rows in enumerate((lefts, rights)))
                room = np.array([capped.get(name, UNBOUNDED) if sign > 0 else UNBOUNDED,
                                 capped.get(other, UNBOUNDED)])
                most = sign * left[:, 0] + int((sign * right[:, 0]).max())
                able = np.flatnonzero(
                    (left[:, 1] + int(right[:, 1].min()) <= room[1]) & (most >= best[0]))
                partner, some = find_largest_partner(left[able] * flip, right * flip, room)
                if not some.any():
                    continue
                total = left[able[some]] + right[partner[some]]
                first = np.lexsort((total[:, 1], -sign * total[:, 0]))[0]
                value = (sign * int(total[first, 0]), -int(total[first, 1]))
                if value > best and (sign > 0 or -value[0] <= capped.get(name, UNBOUNDED)):
                    best = value
                    row = np.flatnonzero(some)[first]
                    at = place, int(lefts[able[row]]), int(rights[partner[row]])
        return None if at is None else self.candidate_at(*at)

    def _pairs_by_potential(self, name: str, sign: int, caps: Caps) -> Iterator[tuple[int, int]]:
        """Pairs of groups that may be within ``caps``, and how much ``sign`` · ``name`` each may have, most first."""
        able = np.ones(len(self._pairs), bool)
        for cost, cap in caps.items():
            able &= self._cost_range(cost)[0] <= cap
        hope = self._cost_range(name)[1] if sign > 0 else -self._cost_range(name)[0]
        places = np.flatnonzero(able)
        for place in places[np.argsort(-hope[places], kind="stable")].tolist():
            yield place, int(hope[place])

    def _row_classes(self, place: int, two: tuple[str, str], extra: list[str],
                     caps: Caps) -> list[RowClass]:
        """The rows of a pair of groups in classes, for each of which caps on ``two`` costs say all that ``caps`` do."""
        sizes = [len(self._column(side, place, two[0])) for side in (0, 1)]
        pieces: list[RowClass] = [(np.arange(sizes[0]), np.arange(sizes[1]), caps)]
        for cost in extra:
            pieces = [fine for piece in pieces
                      for fine in self._split_by_cap(place, piece, cost, two)]
        return [piece for piece in pieces if len(piece[0]) and len(piece[1])]

    def _split_by_cap(self, place: int, piece: RowClass, cost: str,
                      two: tuple[str, str]) -> Iterator[RowClass]:
        """Leads the cap on ``cost`` back, to one of ``two`` costs or to which rows there are."""
        rows = piece[:2]
        caps = piece[2]
        own = [self._column(side, place, cost)[rows[side]] for side in (0, 1)]
        for side in (0, 1):  # constant on one side: a matter of the other's rows
            if len(own[side]) and (own[side] == own[side][0]).all():
                kept = own[1 - side] <= caps[cost] - own[side][0]
                yield (rows[0][kept], rows[1], caps) if side else (rows[0], rows[1][kept], caps)
                return
        for target in dict.fromkeys(two):
            apart = [own[side] - self._column(side, place, target)[rows[side]] for side in (0, 1)]
            classes = [np.unique(one) for one in apart]
            if len(classes[0]) * len(classes[1]) <= MAX_ROW_CLASSES:
                for a in classes[0]:
                    for b in classes[1]:
                        cap = min(caps.get(target, UNBOUNDED), caps[cost] - int(a) - int(b))
                        yield rows[0][apart[0] == a], rows[1][apart[1] == b], {**caps, target: cap}
                return
        raise NoExtremeError(f"bounds on {', '.join(dict.fromkeys((*two, cost)))} at once")

    # -- groups

    @cached_property
    def _pairs(self) -> IntArray:
        """(n, 3) left group, right group and the first cell that has both, where both have good rows."""
        some = [[bool(group.is_valid.any()) for group in groups]
                for groups in (self.counter.left_groups, self.counter.right_groups)]
        first: dict[tuple[int, int], int] = {}
        for place, cell in enumerate(self.counter.cells):
            if cell.is_allowed and len(cell.valid_rest_rows) and some[0][cell.left] and some[1][
                    cell.right]:
                first.setdefault((cell.left, cell.right), place)
        return np.array([(*pair, place) for pair, place in first.items()], np.int64).reshape(-1, 3)

    def _column(self, side: int, place: int, name: str) -> IntArray:
        """One cost of the good rows of the left (side 0) or right group of a pair."""
        key = ("left", "right")[side], int(self._pairs[place, side]), name
        if key not in self._columns:
            column = self.counter.bounded_costs(*key[:2], [CostBound(name, 1, UNBOUNDED)])[:, 0]
            self._kept += len(column)
            if self._kept > MAX_CACHED_VALUES:
                self._columns = {}
                self._kept = len(column)
            self._columns[key] = column
        return self._columns[key]

    def _costs(self, side: int, place: int, rows: IntArray, names: tuple[str, ...]) -> IntArray:
        return np.stack([self._column(side, place, name)[rows] for name in names], 1)

    def _cost_range(self, name: str) -> tuple[IntArray, IntArray]:
        """The smallest and the largest ``name`` of each pair of groups."""
        if name not in self._ends:
            ends = []
            for side in (0, 1):
                groups, where = np.unique(self._pairs[:, side], return_index=True)
                columns = [self._column(side, place, name) for place in where.tolist()]
                places = np.searchsorted(groups, self._pairs[:, side])
                ends.append([np.array([end(c) for c in columns], np.int64)[places]
                             for end in (np.min, np.max)])
            self._ends[name] = ends[0][0] + ends[1][0], ends[0][1] + ends[1][1]
        return self._ends[name]

    # -- the front

    def front(self, maximize: str, minimize: str) -> tuple[list[IndexedCandidate], bool]:
        """Candidates within the bounds of which no other has more of ``maximize`` for no more of ``minimize``.

        Where no bound is in the way, the front of a sum is made of the fronts of its parts. What
        only a bound puts on the front lies behind candidates that are beyond it, and is found step
        by step.

        Returns:
            the points, from the cheapest, and whether all are there (the steps may end early).
        """
        points = []
        steps = MAX_STEPS
        behind = False
        for point in [*self._unbounded_front(maximize, minimize), None]:
            if point is not None and any(point.costs[name] > cap
                                         for name, cap in self.caps.items()):
                behind = True
                continue
            if behind:
                floor = points[-1].costs[maximize] if points else -1
                end = self.caps.get(minimize,
                                    UNBOUNDED) if point is None else point.costs[minimize] - 1
                while steps and (
                        best := self._best(maximize, 1, {**self.caps, minimize: end}, minimize)):
                    if best.costs[maximize] <= floor:
                        break
                    points.append(best)
                    end = best.costs[minimize] - 1
                    steps = steps - 1
            if point is not None:
                points.append(point)
            behind = False
        return sorted(points, key=lambda point: point.costs[minimize]), steps > 0

    def _unbounded_front(self, maximize: str, minimize: str) -> list[IndexedCandidate]:
        """The whole space's front, as far as the bound on ``minimize``, from the cheapest."""
        fronts: dict[tuple[int, int], IntArray] = {}
        costs = np.zeros((0, 2), np.int64)
        where = np.zeros((0, 3), np.int64)
        for place, pair in enumerate(self._pairs.tolist()):
            sides = []
            for side in (0, 1):
                rows = fronts.get((side, pair[side]))
                if rows is None:
                    whole = np.arange(len(self._column(side, place, maximize)))
                    rows = fronts[side, pair[side]] = _front(
                        self._costs(side, place, whole, (maximize, minimize)))
                sides.append((rows, self._costs(side, place, rows, (maximize, minimize))))
            (mine, left), (theirs, right) = sides
            # What cannot get ahead of the front so far, even with the best of the other side, is
            # left out.
            ahead = _may_be_on_front(left, right, costs)
            mine = mine[ahead]
            left = left[ahead]
            ahead = _may_be_on_front(right, left, costs) if len(mine) else np.zeros(
                len(right), bool)
            theirs = theirs[ahead]
            right = right[ahead]
            a, b = np.divmod(np.arange(len(mine) * len(theirs)), max(1, len(theirs)))
            costs = np.concatenate([costs, left[a] + right[b]])
            where = np.concatenate([where,
                                    np.stack([np.full(len(a), place), mine[a], theirs[b]], 1)])
            kept = _front(costs)
            costs = costs[kept]
            where = where[kept]
        return [self.candidate_at(*row)
                for row in where[costs[:, 1] <= self.caps.get(minimize, UNBOUNDED)].tolist()]

    def candidate_at(self, pair: int, left: int, right: int) -> IndexedCandidate:
        """The candidate of one good row on each side of a pair of groups."""
        return self.counter.candidate_at(self.counter.cells[self._pairs[pair, 2]], left, right)


def _may_be_on_front(costs: IntArray, others: IntArray, front: IntArray) -> NDArray[np.bool_]:
    """Which rows could, with the best of ``others``, be on ``front`` (sorted by the second number)."""
    if not len(front):
        return np.ones(len(costs), bool)
    best = costs + np.array([others[:, 0].max(), others[:, 1].min()])
    before = np.searchsorted(front[:, 1], best[:, 1], side="right") - 1
    ahead: NDArray[np.bool_] = (before < 0) | (front[np.maximum(before, 0), 0] < best[:, 0])
    return ahead


def _front(costs: IntArray) -> IntArray:
    """Rows of (most, least) that no other dominates, one of equals, from the least."""
    order = np.lexsort((-costs[:, 0], costs[:, 1]))
    highest = np.maximum.accumulate(costs[order, 0])
    return order[np.concatenate([[True], costs[order[1:], 0] > highest[:-1]])[: len(order)]]
