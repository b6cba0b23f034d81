"""The cheapest and the dearest that fit, and the front between two costs: exact, from a space taken apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.count import LEFT, RIGHT, Cell, Counter, Group
from scalesearch.feasible.dominance import largest_partner
from scalesearch.feasible.limits import Bound
from scalesearch.feasible.sections import REST, SPINE
from scalesearch.space import Space
from scalesearch.space.questionnaire.answers import Answers

MOST_STEPS = 40  # points of the front that only a bound puts there, found one after the other
FREE = 1 << 61
Ends = dict[int, NDArray[np.int64]]


@dataclass(frozen=True)
class Point:
    """One candidate: the index of each of its answers, and some of its costs."""

    codes: dict[str, int]
    costs: dict[str, int]
    space: Space

    @property
    def answers(self) -> Answers:
        """Its answer sheet."""
        return self.space.answer(lambda name, parameter: parameter.values()[self.codes[name]])  # type: ignore[index]


class Extremes:
    """Finds candidates of a counter's space. ``bounds`` are at most one on each of two costs."""

    def __init__(self, counter: Counter) -> None:
        self.counter, self.decomposition = counter, counter.decomposition
        self._known: dict[tuple[str, int, str], NDArray[np.int64]] = {}
        self._ends: dict[str, tuple[Ends, Ends]] = {}

    def dearest(self, name: str, bounds: list[Bound]) -> Point | None:
        """The candidate with the largest ``name`` within ``bounds``."""
        return self._best(name, 1, bounds)

    def cheapest(self, name: str, bounds: list[Bound]) -> Point | None:
        """The candidate with the smallest ``name`` within ``bounds``."""
        return self._best(name, -1, bounds)

    def _best(self, name: str, sign: int, bounds: list[Bound], second: str | None = None) -> Point | None:
        """The largest ``sign`` · ``name``; of equals one with the smallest ``second``."""
        limit = {bound.name: bound for bound in bounds if bound.sign > 0}
        others = [bound for bound in bounds if bound.name != name]
        if len(others) > 1 or any(bound.sign < 0 for bound in bounds):
            raise NotTwo(f"the limits bound more than {name} and one other cost")
        other = others[0] if others else Bound(second or name, 1, FREE, "")
        own = limit[name].most if name in limit and sign > 0 else FREE
        best: tuple[int, int] | None = None
        at: tuple[Cell, int, int] | None = None
        floor = [-FREE]  # what the best so far has
        flip, bound = np.array([sign, 1]), np.array([own, other.most])
        for cell, left, right in self._promising(name, sign, other, floor):
            hope = sign * left[:, 0] + int((sign * right[:, 0]).max())
            rows = np.flatnonzero((left[:, 1] + int(right[:, 1].min()) <= other.most) & (hope >= floor[0]))
            partner, some = largest_partner(left[rows] * flip, right * flip, bound)
            if not some.any():
                continue
            total = (left[rows] + right[partner])[some]
            order = np.lexsort((total[:, 1], -sign * total[:, 0]))[0]
            value = (sign * int(total[order, 0]), -int(total[order, 1]))
            if best is None or value > best:
                best, floor[0], row = value, value[0], int(np.flatnonzero(some)[order])
                at = cell, int(rows[row]), int(partner[row])
        if at is None or (name in limit and sign < 0 and best is not None and -best[0] > limit[name].most):
            return None
        return self.point(*at)

    def _promising(self, name: str, sign: int, other: Bound, floor: list[int]
                   ) -> Iterator[tuple[Cell, NDArray[np.int64], NDArray[np.int64]]]:
        """Cells that may hold more of ``sign`` · ``name`` than ``floor`` within ``other``, most promising first."""
        (mine, theirs), (left, right) = self._extent(name), self._extent(other.name)
        pairs = self._pairs
        hope = sign * (mine[sign][pairs[:, 0]] + theirs[sign][pairs[:, 1]])
        able = left[-1][pairs[:, 0]] + right[-1][pairs[:, 1]] <= other.most
        for place in np.flatnonzero(able)[np.argsort(-hope[able], kind="stable")]:
            if hope[place] < floor[0]:
                return
            yield self._costs(int(pairs[place, 2]), [name, other.name])

    def _cells(self, names: list[str]) -> Iterator[tuple[Cell, NDArray[np.int64], NDArray[np.int64]]]:
        """(cell, left costs, right costs) of good rows, where both sides have some."""
        for place in self._pairs[:, 2].tolist():
            yield self._costs(place, names)

    def _costs(self, place: int, names: list[str]) -> tuple[Cell, NDArray[np.int64], NDArray[np.int64]]:
        cell = self.counter.cells[place]
        sides = (("left", (LEFT,), self.counter.lefts, cell.left), ("right", RIGHT, self.counter.rights, cell.right))
        left, right = (np.stack([self._column(*side, name) for name in names], 1) for side in sides)
        return cell, left, right

    def _column(self, side: str, parts: tuple[str, ...], groups: list[Group], number: int, name: str
                ) -> NDArray[np.int64]:
        key = (side, number, name)
        if key not in self._known:
            column = self.decomposition.names.index(name)
            self._known[key] = self.counter.costs(parts, groups[number], [column])[:, 0]
        return self._known[key]

    @cached_property
    def _pairs(self) -> NDArray[np.int64]:
        """(n, 3) left group, right group and the first cell that has both, where both have good rows."""
        some = [[bool(group.good.any()) for group in groups] for groups in (self.counter.lefts, self.counter.rights)]
        first: dict[tuple[int, int], int] = {}
        for place, cell in enumerate(self.counter.cells):
            if cell.allowed and len(cell.rest) and some[0][cell.left] and some[1][cell.right]:
                first.setdefault((cell.left, cell.right), place)
        return np.array([(*pair, place) for pair, place in first.items()], np.int64).reshape(-1, 3)

    def _extent(self, name: str) -> tuple[Ends, Ends]:
        """The largest (1) and the smallest (-1) ``name`` of each group on the left, and on the right."""
        if name not in self._ends:
            self._ends[name] = (self._side("left", (LEFT,), self.counter.lefts, name),
                                self._side("right", RIGHT, self.counter.rights, name))
        return self._ends[name]

    def _side(self, side: str, parts: tuple[str, ...], groups: list[Group], name: str) -> Ends:
        columns = [self._column(side, parts, groups, number, name) for number in range(len(groups))]
        return {1: np.array([c.max() if len(c) else 0 for c in columns], np.int64),
                -1: np.array([c.min() if len(c) else 0 for c in columns], np.int64)}

    def front(self, most: str, least: str, bounds: list[Bound]) -> tuple[list[Point], bool]:
        """Candidates within ``bounds`` of which no other has more of ``most`` for no more of ``least``.

        Where no bound is in the way, the front of a sum is made of the fronts of its parts. What only a bound on
        ``most`` puts on the front lies behind the first candidate beyond it, and is found step by step.

        Returns:
            the points, from the cheapest, and whether all are there (the steps may end early).
        """
        inside = self._whole_front(most, least, bounds)
        cap = next((b for b in bounds if b.name == most), None)
        points, last = list(inside), max((p.costs[most] for p in inside), default=-1)
        room = [bound for bound in bounds if bound.name != least]
        limit = next((b.most for b in bounds if b.name == least), FREE)
        tail: list[Point] = []
        for _ in range(MOST_STEPS if cap else 0):
            best = self._best(most, 1, [*room, Bound(least, 1, limit, "")])
            if best is None or best.costs[most] <= last:
                return sorted(points + tail, key=lambda p: p.costs[least]), True
            tail.append(best)
            limit = best.costs[least] - 1
        return sorted(points + tail, key=lambda p: p.costs[least]), cap is None

    def _whole_front(self, most: str, least: str, bounds: list[Bound]) -> list[Point]:
        """The part of the whole space's front that lies within the bounds."""
        fronts: dict[tuple[str, int], NDArray[np.int64]] = {}
        costs, where, cells = np.zeros((0, 2), np.int64), np.zeros((0, 3), np.int64), []
        for cell, left, right in self._cells([most, least]):
            mine = fronts.setdefault(("left", cell.left), _front(left))
            theirs = fronts.setdefault(("right", cell.right), _front(right))
            # What cannot get ahead of the front so far, even with the best of the other side, is left out.
            mine = mine[_ahead(left[mine], right[theirs], costs)]
            theirs = theirs[_ahead(right[theirs], left[mine], costs)] if len(mine) else theirs[:0]
            total = (left[mine][:, None] + right[theirs][None]).reshape(-1, 2)
            a, b = np.divmod(np.arange(len(total)), max(1, len(theirs)))
            fresh = np.stack([np.full(len(total), len(cells)), mine[a], theirs[b]], 1)
            costs, where = np.concatenate([costs, total]), np.concatenate([where, fresh])
            kept = _front(costs) if len(costs) else np.zeros(0, np.int64)
            costs, where = costs[kept], where[kept]
            cells.append(cell)
        limit = {bound.name: bound.most for bound in bounds}
        inside = (costs[:, 0] <= limit.get(most, FREE)) & (costs[:, 1] <= limit.get(least, FREE))
        return [self.point(cells[cell], a, b) for cell, a, b in where[inside].tolist()]

    def point(self, cell: Cell, left: int, right: int) -> Point:
        """The candidate of one good row on each side."""
        counter = self.counter
        mine, theirs = counter.lefts[cell.left], counter.rights[cell.right]
        rows = {SPINE: cell.spine, REST: int(cell.rest[0]), LEFT: int(mine.rows[0][mine.good][left])}
        rows |= {name: int(r[theirs.good][right]) for name, r in zip(RIGHT, theirs.rows)}
        codes: dict[str, int] = {}
        for name, row in rows.items():
            part = self.decomposition.parts[name]
            codes |= {q: int(code) for q, code in zip(part.parameters, part.codes[row]) if code >= 0}
        costs = np.sum([self.decomposition.parts[name].costs[row] for name, row in rows.items()], 0)
        return Point(codes, dict(zip(self.decomposition.names, costs.tolist())), self.decomposition.space)


class NotTwo(ValueError):
    """More bounds than an extreme is found under."""


def _ahead(costs: NDArray[np.int64], others: NDArray[np.int64], front: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows could, with the best of ``others``, be on ``front`` (sorted by the second number)."""
    if not len(front):
        return np.ones(len(costs), bool)
    best = costs + np.array([others[:, 0].max(), others[:, 1].min()])
    before = np.searchsorted(front[:, 1], best[:, 1], side="right") - 1
    ahead: NDArray[np.bool_] = (before < 0) | (front[np.maximum(before, 0), 0] < best[:, 0])
    return ahead


def _front(costs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of (most, least) that no other dominates: one of equals."""
    order = np.lexsort((-costs[:, 0], costs[:, 1]))
    highest = np.maximum.accumulate(costs[order, 0])
    first = np.concatenate([[True], costs[order[1:], 0] > highest[:-1]])
    return order[first]


def only(bounds: list[Bound], *names: str) -> list[Bound]:
    """The tightest upper bound on each of ``names``."""
    tightest = {}
    for bound in sorted((b for b in bounds if b.sign > 0 and b.name in names), key=lambda b: -b.most):
        tightest[bound.name] = replace(bound)
    return list(tightest.values())
