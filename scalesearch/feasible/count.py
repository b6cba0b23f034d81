"""How many candidates fit: exact counts of answer sheets and of distinct networks, from a space taken apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.candidates import Point
from scalesearch.feasible.dominance import Index, Kinds
from scalesearch.feasible.grid import UNASKED, TooMany
from scalesearch.feasible.identity import rows_numbered
from scalesearch.feasible.limits import Bound, tightest
from scalesearch.feasible.pieces import Part, answers_numbered
from scalesearch.feasible.sections import REST, SPINE, Decomposition

LEFT, RIGHT = "encoder", ("decoder", "embedding", "output")
MOST_RIGHT = 20_000_000  # combinations, of which three row numbers of four bytes and a flag are kept
MOST_TOGETHER = 3  # bounds of which every combination is counted

T = TypeVar("T")
Progress = Callable[[str], None]
Rows = NDArray[np.int32]
NOTHING = np.zeros(0, np.int32)


@dataclass(frozen=True)
class Group:
    """Rows of the left or of the right that go together with the same shared answers: all, and which are good."""

    rows: tuple[Rows, ...]  # of the encoder; or of decoder, embedding and output, side by side
    good: NDArray[np.bool_]

    @property
    def good_rows(self) -> tuple[Rows, ...]:
        """The good ones among its rows."""
        return tuple(rows[self.good] for rows in self.rows)

    def __len__(self) -> int:
        return len(self.good)


@dataclass(frozen=True)
class Cell:
    """One combination of shared answers: the groups that are free under it, and how often the rest multiplies them."""

    left: int
    right: int
    listed: Rows  # of the rest: all, and those that are good
    rest: Rows
    allowed: bool  # by the constraints over shared answers
    spine: int  # its row


class Counter:
    """Counts over a space taken apart, under ``bounds``; ``required`` are those of the space itself."""

    def __init__(self, decomposition: Decomposition, bounds: list[Bound], required: Sequence[Bound] = (),
                 progress: Progress = lambda text: None) -> None:
        self.progress = progress
        self.decomposition, self.budgets, self.required = decomposition, bounds, list(required)
        self.bounds = [*self.required, *bounds]
        self.lefts: list[Group] = []
        self.rights: list[Group] = []
        self.sides = {"left": ((LEFT,), self.lefts), "right": (RIGHT, self.rights)}
        self.cells = self._cells()
        self._indices: dict[Any, Index] = {}

    def _cells(self) -> list[Cell]:
        spine = self.decomposition.parts[SPINE]
        names = [LEFT, *RIGHT, REST]
        grouped = {name: _grouped(self.decomposition.parts[name], spine) for name in names}
        rows, keys = ({name: grouped[name][i] for name in names} for i in (0, 1))
        known: tuple[dict[Any, int], dict[Any, int]] = ({}, {})
        cells, listed = [], 0
        for row in range(len(spine)):
            left, right = keys[LEFT][row], tuple(keys[name][row] for name in RIGHT)
            if left not in known[0]:
                known[0][left] = len(self.lefts)
                self.lefts.append(self._group((LEFT,), (rows[LEFT].get(left, NOTHING),)))
            if right not in known[1]:
                known[1][right] = len(self.rights)
                free = [rows[name].get(key, NOTHING) for name, key in zip(RIGHT, right)]
                listed += int(np.prod([len(r) for r in free]))
                if listed > MOST_RIGHT:
                    raise TooMany(f"more than {MOST_RIGHT:,} combinations of decoder, embedding and output")
                self.rights.append(self._group(RIGHT, tuple(g.ravel() for g in np.meshgrid(*free, indexing="ij"))))
            rest = rows[REST].get(keys[REST][row], NOTHING)
            good = rest[self.decomposition.parts[REST].good[rest]]
            allowed = bool(spine.good[row]) and len(good) > 0
            cells.append(Cell(known[0][left], known[1][right], rest, good, allowed, row))
        return cells

    def _group(self, names: tuple[str, ...], rows: tuple[Rows, ...]) -> Group:
        good = np.ones(len(rows[0]), bool)
        for name, chosen in zip(names, rows):
            good &= self.decomposition.parts[name].good[chosen]
        return Group(rows, good)

    def bounded(self, side: str, number: int, bounds: list[Bound]) -> NDArray[np.int64]:
        """(good rows, bounds) of group ``number`` of a side: signed costs, of which a bound allows at most so much."""
        columns = [self.decomposition.names.index(bound.name) for bound in bounds]
        names, groups = self.sides[side]
        total: Any = sum(self.decomposition.parts[name].costs[rows][:, columns]
                         for name, rows in zip(names, groups[number].good_rows))
        return np.asarray(total, np.int64) * np.array([bound.sign for bound in bounds], np.int64)

    def point(self, cell: Cell, left: int, right: int, rest: int = 0) -> Point:
        """The candidate of one good row on each side of a cell, and one row of the rest."""
        rows = {SPINE: cell.spine, REST: cell.rest[rest], LEFT: self.lefts[cell.left].good_rows[0][left]}
        rows |= {name: good[right] for name, good in zip(RIGHT, self.rights[cell.right].good_rows)}
        parts = {name: self.decomposition.parts[name] for name in rows}
        codes = {q: int(code) for name, row in rows.items()
                 for q, code in zip(parts[name].parameters, parts[name].codes[row]) if code != UNASKED}
        costs = np.sum([parts[name].costs[row] for name, row in rows.items()], 0)
        return Point(codes, dict(zip(self.decomposition.names, costs.tolist())), self.decomposition.space)

    def _index(self, side: str, number: int, bounds: list[Bound]) -> Index:
        key = (side, number, tuple((bound.name, bound.sign) for bound in bounds))
        if key not in self._indices:  # a hundred bytes a row: only the last is kept
            self._indices = {key: Index(self.bounded(side, number, bounds))}
        return self._indices[key]

    def _allowed(self, side: str) -> Iterator[Cell]:
        """The cells that the constraints allow, with one group of ``side`` after the other."""
        return self._watched(sorted((cell for cell in self.cells if cell.allowed), key=attrgetter(side)), "counting")

    def _watched(self, items: list[T], word: str) -> Iterator[T]:
        """``items``, and progress in steps of a hundredth."""
        for at, item in enumerate(items):
            if at % max(1, len(items) // 100) == 0:
                self.progress(f"{word}: {at / len(items):.0%}")
            yield item

    @cached_property
    def sheets(self) -> int:
        """All answer sheets."""
        return sum(len(self.lefts[c.left]) * len(self.rights[c.right]) * len(c.listed) for c in self.cells)

    @cached_property
    def sound(self) -> int:
        """Answer sheets of networks that can be built and that the space's own constraints allow."""
        return self._fitting(self.required)

    @cached_property
    def fitting(self) -> int:
        """Of these, the ones within all bounds."""
        return self._fitting(self.bounds)

    def _fitting(self, bounds: list[Bound]) -> int:
        bounds = tightest(bounds)
        return sum(int(self._fits(cell, "left", bounds).sum()) * len(cell.rest) for cell in self._allowed("left"))

    def _fits(self, cell: Cell, points: str, bounds: list[Bound]) -> NDArray[Any]:
        """For each good row of one side of ``cell`` how many good rows of the other, the ``points``, fit with it."""
        most = np.array([bound.cut for bound in bounds], np.int64)
        other = "right" if points == "left" else "left"
        room = most - self.bounded(other, getattr(cell, other), bounds)
        return self._index(points, getattr(cell, points), bounds).within(room)

    # -- why

    def reasons(self) -> dict[tuple[str, ...], int]:
        """Sound sheets by the bounds that they violate: the empty tuple is what fits.

        Raises:
            TooMany: more bounds than whose combinations are counted.
        """
        if len(self.budgets) > MOST_TOGETHER:
            raise TooMany(f"more than {MOST_TOGETHER} budgets")
        every = tuple(range(len(self.budgets)))
        within = {chosen: self._fitting([*self.required, *(self.budgets[i] for i in chosen)])
                  for n in range(len(every) + 1) for chosen in combinations(every, n)}
        counts: dict[tuple[str, ...], int] = {}
        for n in range(len(every) + 1):
            for broken in combinations(every, n):
                kept = [i for i in every if i not in broken]
                # Within all that are kept, and beyond each that is broken.
                count = sum((-1) ** len(more) * within[tuple(sorted((*kept, *more)))]
                            for k in range(len(broken) + 1) for more in combinations(broken, k))
                counts[tuple(str(self.budgets[i]) for i in broken)] = count
        return counts

    # -- by value

    def by_value(self) -> dict[str, dict[int, tuple[int, int]]]:
        """For each parameter and answer (by index): the sheets that have it, and how many of them fit."""
        counts: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
        bounds = tightest(self.bounds)
        kind = np.int64 if self.sheets < 2**62 else np.float64
        weights = {name: (np.zeros(len(part), kind), np.zeros(len(part), kind))
                   for name, part in self.decomposition.parts.items()}
        for cell in self.cells:
            left, right, many = self.lefts[cell.left], self.rights[cell.right], len(cell.listed)
            weights[LEFT][0][left.rows[0]] += len(right) * many
            for name, rows in zip(RIGHT, right.rows):
                np.add.at(weights[name][0], rows, len(left) * many)
            for name, row, times in ((REST, cell.listed, 1), (SPINE, cell.spine, many)):
                weights[name][0][row] += len(left) * len(right) * times
        for cell in self._allowed("right"):
            left, many, fits = self.lefts[cell.left], len(cell.rest), self._fits(cell, "right", bounds).astype(kind)
            weights[LEFT][1][left.good_rows[0]] += fits * many
            for name, row, times in ((REST, cell.rest, 1), (SPINE, cell.spine, many)):
                weights[name][1][row] += int(fits.sum()) * times
        for cell in self._allowed("left"):
            right, fits = self.rights[cell.right], self._fits(cell, "left", bounds).astype(kind) * len(cell.rest)
            for name, rows in zip(RIGHT, right.good_rows):
                np.add.at(weights[name][1], rows, fits)
        for name in (SPINE, *RIGHT, LEFT, REST):
            part = self.decomposition.parts[name]
            for column, parameter in enumerate(part.parameters):
                if parameter in counts:
                    continue
                for index in np.unique(part.codes[:, column]):
                    if index != UNASKED:
                        chosen = part.codes[:, column] == index
                        every, fitting = (int(weight[chosen].sum()) for weight in weights[name])
                        counts[parameter][int(index)] = every, fitting
        return counts

    # -- distinct networks

    def distinct(self, bounds: list[Bound] | None = None) -> int:
        """Networks, each once however many sheets describe it, within ``bounds`` (all of them unless given).

        A network is a left and a right that some combination of shared answers allows together. Lefts that occur
        under the same combinations are counted at once, and so are rights.
        """
        chosen = tightest(self.bounds if bounds is None else bounds)
        most = np.array([bound.cut for bound in chosen], np.int64)
        sides = [self._kinds("left", chosen), self._kinds("right", chosen)]
        pairs = {(a, b) for cell in self.cells if cell.allowed
                 for a in sides[0].of_group.get(cell.left, ()) for b in sides[1].of_group.get(cell.right, ())}
        return sum(int(sides[0].index(a).within(most - sides[1].costs[b]).sum())
                   for a, b in self._watched(sorted(pairs), "counting networks"))

    def _kinds(self, side: str, bounds: list[Bound]) -> Kinds:
        names, groups = self.sides[side]
        ids = [np.concatenate([self.decomposition.parts[name].identity[group.rows[at][group.good]] for group in groups])
               for at, name in enumerate(names)]
        where = np.repeat(np.arange(len(groups), dtype=np.int32), [int(group.good.sum()) for group in groups])
        costs = np.concatenate([self.bounded(side, number, bounds) for number in range(len(groups))])
        return Kinds(rows_numbered(ids, len(where)), where, costs)


def _grouped(part: Part, spine: Part) -> tuple[dict[int, Rows], list[int]]:
    """A part's rows by their answers to the shared parameters that it has, and for each of the spine's rows which group
    goes with it."""
    mine, keys = answers_numbered(part, spine)
    order = np.argsort(mine, kind="stable").astype(np.int32)
    names, starts = np.unique(mine[order], return_index=True)
    ends = np.append(starts[1:], len(part))
    return {int(name): order[start:end] for name, start, end in zip(names, starts, ends)}, keys.tolist()
