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

from scalesearch.feasible.costed_candidates import IndexedCandidate
from scalesearch.feasible.decomposition import REMAINING_PART, SHARED_PART, Decomposition
from scalesearch.feasible.dominance import DominanceIndex, NetworksByGroup
from scalesearch.feasible.enumeration import NOT_SAMPLED, TooManyCandidatesError
from scalesearch.feasible.identity import number_rows
from scalesearch.feasible.limits import CostBound, tightest_bounds
from scalesearch.feasible.pieces import SectionCandidates, number_shared_values

LEFT_SECTION = "encoder"
RIGHT_SECTIONS = ("decoder", "embedding", "output")
# combinations, of which three row numbers of four bytes and a flag are kept
MAX_RIGHT_ROWS = 20_000_000
MAX_BOUNDS_TOGETHER = 3  # bounds of which every combination is counted

T = TypeVar("T")
ProgressCallback = Callable[[str], None]
RowIndices = NDArray[np.int32]
NO_ROWS = np.zeros(0, np.int32)


@dataclass(frozen=True)
class RowGroup:
    """Rows of the left or of the right that go together with the same shared answers: all, and which are good."""

    # of the encoder; or of decoder, embedding and output, side by side
    rows: tuple[RowIndices, ...]
    is_valid: NDArray[np.bool_]

    @property
    def valid_rows(self) -> tuple[RowIndices, ...]:
        """The good ones among its rows."""
        return tuple(rows[self.is_valid] for rows in self.rows)

    def __len__(self) -> int:
        return len(self.is_valid)


@dataclass(frozen=True)
class SharedCell:
    """One combination of shared answers: the groups that are free under it, and how often the rest multiplies them."""

    left: int
    right: int
    all_rest_rows: RowIndices  # of the rest: all, and those that are good
    valid_rest_rows: RowIndices
    is_allowed: bool  # by the constraints over shared answers
    spine_row: int  # its row


class FeasibleCounter:
    """Counts over a space taken apart, under ``bounds``; ``required`` are those of the space itself."""

    def __init__(self, decomposition: Decomposition, bounds: list[CostBound],
                 required: Sequence[CostBound] = (),
                 progress: ProgressCallback = lambda text: None) -> None:
        self.progress = progress
        self.decomposition = decomposition
        self.budgets = bounds
        self.required = list(required)
        self.bounds = [*self.required, *bounds]
        self.left_groups: list[RowGroup] = []
        self.right_groups: list[RowGroup] = []
        self.sides = {"left": ((LEFT_SECTION,), self.left_groups),
                      "right": (RIGHT_SECTIONS, self.right_groups)}
        self.cells = self._cells()
        self._indices: dict[Any, DominanceIndex] = {}

    def _cells(self) -> list[SharedCell]:
        spine = self.decomposition.parts[SHARED_PART]
        names = [LEFT_SECTION, *RIGHT_SECTIONS, REMAINING_PART]
        grouped = {name: _grouped(self.decomposition.parts[name], spine) for name in names}
        rows, keys = ({name: grouped[name][i] for name in names} for i in (0, 1))
        known: tuple[dict[Any, int], dict[Any, int]] = ({}, {})
        cells = []
        listed = 0
        for row in range(len(spine)):
            left = keys[LEFT_SECTION][row]
            right = tuple(keys[name][row] for name in RIGHT_SECTIONS)
            if left not in known[0]:
                known[0][left] = len(self.left_groups)
                self.left_groups.append(
                    self._group((LEFT_SECTION,), (rows[LEFT_SECTION].get(left, NO_ROWS),)))
            if right not in known[1]:
                known[1][right] = len(self.right_groups)
                free = [rows[name].get(key, NO_ROWS) for name, key in zip(RIGHT_SECTIONS, right)]
                listed += int(np.prod([len(r) for r in free]))
                if listed > MAX_RIGHT_ROWS:
                    raise TooManyCandidatesError(f"more than {MAX_RIGHT_ROWS:,} combinations of "
                                                 "decoder, embedding and output")
                self.right_groups.append(
                    self._group(RIGHT_SECTIONS,
                                tuple(g.ravel() for g in np.meshgrid(*free, indexing="ij"))))
            rest = rows[REMAINING_PART].get(keys[REMAINING_PART][row], NO_ROWS)
            good = rest[self.decomposition.parts[REMAINING_PART].is_valid[rest]]
            allowed = bool(spine.is_valid[row]) and len(good) > 0
            cells.append(SharedCell(known[0][left], known[1][right], rest, good, allowed, row))
        return cells

    def _group(self, names: tuple[str, ...], rows: tuple[RowIndices, ...]) -> RowGroup:
        good = np.ones(len(rows[0]), bool)
        for name, chosen in zip(names, rows):
            good &= self.decomposition.parts[name].is_valid[chosen]
        return RowGroup(rows, good)

    def bounded_costs(self, side: str, number: int, bounds: list[CostBound]) -> NDArray[np.int64]:
        """(good rows, bounds) of group ``number`` of a side: signed costs, of which a bound allows at most so much."""
        columns = [self.decomposition.names.index(bound.name) for bound in bounds]
        names, groups = self.sides[side]
        total: Any = sum(self.decomposition.parts[name].costs[rows][:, columns]
                         for name, rows in zip(names, groups[number].valid_rows))
        return np.asarray(total, np.int64) * np.array([bound.sign for bound in bounds], np.int64)

    def candidate_at(self, cell: SharedCell, left: int, right: int,
                     rest: int = 0) -> IndexedCandidate:
        """The candidate of one good row on each side of a cell, and one row of the rest."""
        rows = {SHARED_PART: cell.spine_row, REMAINING_PART: cell.valid_rest_rows[rest],
                LEFT_SECTION: self.left_groups[cell.left].valid_rows[0][left]}
        rows |= {name: good[right]
                 for name, good in zip(RIGHT_SECTIONS, self.right_groups[cell.right].valid_rows)}
        parts = {name: self.decomposition.parts[name] for name in rows}
        codes = {q: int(code) for name, row in rows.items()
                 for q, code in zip(parts[name].parameters, parts[name].value_indices[row])
                 if code != NOT_SAMPLED}
        costs = np.sum([parts[name].costs[row] for name, row in rows.items()], 0)
        return IndexedCandidate(codes, dict(zip(self.decomposition.names, costs.tolist())),
                                self.decomposition.space)

    def _index(self, side: str, number: int, bounds: list[CostBound]) -> DominanceIndex:
        key = (side, number, tuple((bound.name, bound.sign) for bound in bounds))
        if key not in self._indices:  # a hundred bytes a row: only the last is kept
            self._indices = {key: DominanceIndex(self.bounded_costs(side, number, bounds))}
        return self._indices[key]

    def _allowed(self, side: str) -> Iterator[SharedCell]:
        """The cells that the constraints allow, with one group of ``side`` after the other."""
        return self._with_progress(sorted((cell for cell in self.cells if cell.is_allowed),
                                          key=attrgetter(side)), "counting")

    def _with_progress(self, items: list[T], word: str) -> Iterator[T]:
        """``items``, and progress in steps of a hundredth."""
        for at, item in enumerate(items):
            if at % max(1, len(items) // 100) == 0:
                self.progress(f"{word}: {at / len(items):.0%}")
            yield item

    @cached_property
    def n_candidates(self) -> int:
        """All answer sheets."""
        return sum(len(self.left_groups[c.left]) * len(self.right_groups[c.right])
                   * len(c.all_rest_rows) for c in self.cells)

    @cached_property
    def n_valid(self) -> int:
        """Answer sheets of networks that can be built and that the space's own constraints allow."""
        return self._fitting(self.required)

    @cached_property
    def n_feasible(self) -> int:
        """Of these, the ones within all bounds."""
        return self._fitting(self.bounds)

    def _fitting(self, bounds: list[CostBound]) -> int:
        bounds = tightest_bounds(bounds)
        return sum(int(self._count_partners(cell, "left", bounds).sum()) * len(cell.valid_rest_rows)
                   for cell in self._allowed("left"))

    def _count_partners(self, cell: SharedCell, points: str,
                        bounds: list[CostBound]) -> NDArray[Any]:
        """For each good row of one side of ``cell`` how many good rows of the other, the ``points``, fit with it."""
        most = np.array([bound.clipped_limit for bound in bounds], np.int64)
        other = "right" if points == "left" else "left"
        room = most - self.bounded_costs(other, getattr(cell, other), bounds)
        return self._index(points, getattr(cell, points), bounds).weight_within(room)

    # -- why

    def count_violations(self) -> dict[tuple[str, ...], int]:
        """Sound sheets by the bounds that they violate: the empty tuple is what fits.

        Raises:
            TooMany: more bounds than whose combinations are counted.
        """
        if len(self.budgets) > MAX_BOUNDS_TOGETHER:
            raise TooManyCandidatesError(f"more than {MAX_BOUNDS_TOGETHER} budgets")
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

    def count_by_value(self) -> dict[str, dict[int, tuple[int, int]]]:
        """For each parameter and answer (by index): the sheets that have it, and how many of them fit."""
        counts: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
        bounds = tightest_bounds(self.bounds)
        kind = np.int64 if self.n_candidates < 2**62 else np.float64
        weights = {name: (np.zeros(len(part), kind), np.zeros(len(part), kind))
                   for name, part in self.decomposition.parts.items()}
        for cell in self.cells:
            left = self.left_groups[cell.left]
            right = self.right_groups[cell.right]
            many = len(cell.all_rest_rows)
            weights[LEFT_SECTION][0][left.rows[0]] += len(right) * many
            for name, rows in zip(RIGHT_SECTIONS, right.rows):
                np.add.at(weights[name][0], rows, len(left) * many)
            for name, row, times in ((REMAINING_PART, cell.all_rest_rows, 1),
                                     (SHARED_PART, cell.spine_row, many)):
                weights[name][0][row] += len(left) * len(right) * times
        for cell in self._allowed("right"):
            left = self.left_groups[cell.left]
            many = len(cell.valid_rest_rows)
            fits = self._count_partners(cell, "right", bounds).astype(kind)
            weights[LEFT_SECTION][1][left.valid_rows[0]] += fits * many
            for name, row, times in ((REMAINING_PART, cell.valid_rest_rows, 1),
                                     (SHARED_PART, cell.spine_row, many)):
                weights[name][1][row] += int(fits.sum()) * times
        for cell in self._allowed("left"):
            right = self.right_groups[cell.right]
            fits = self._count_partners(cell, "left",
                                        bounds).astype(kind) * len(cell.valid_rest_rows)
            for name, rows in zip(RIGHT_SECTIONS, right.valid_rows):
                np.add.at(weights[name][1], rows, fits)
        for name in (SHARED_PART, *RIGHT_SECTIONS, LEFT_SECTION, REMAINING_PART):
            part = self.decomposition.parts[name]
            for column, parameter in enumerate(part.parameters):
                if parameter in counts:
                    continue
                for index in np.unique(part.value_indices[:, column]):
                    if index != NOT_SAMPLED:
                        chosen = part.value_indices[:, column] == index
                        every, fitting = (int(weight[chosen].sum()) for weight in weights[name])
                        counts[parameter][int(index)] = every, fitting
        return counts

    # -- distinct networks

    def count_distinct(self, bounds: list[CostBound] | None = None) -> int:
        """Networks, each once however many sheets describe it, within ``bounds`` (all of them unless given).

        A network is a left and a right that some combination of shared answers allows together.
        Lefts that occur under the same combinations are counted at once, and so are rights.
        """
        chosen = tightest_bounds(self.bounds if bounds is None else bounds)
        most = np.array([bound.clipped_limit for bound in chosen], np.int64)
        sides = [self._networks_by_group("left", chosen), self._networks_by_group("right", chosen)]
        pairs = {(a, b) for cell in self.cells if cell.is_allowed
                 for a in sides[0].of_group.get(cell.left, ())
                 for b in sides[1].of_group.get(cell.right, ())}
        return sum(int(sides[0].group_index(a).weight_within(most - sides[1].costs[b]).sum())
                   for a, b in self._with_progress(sorted(pairs), "counting networks"))

    def _networks_by_group(self, side: str, bounds: list[CostBound]) -> NetworksByGroup:
        names, groups = self.sides[side]
        ids = [np.concatenate([self.decomposition.parts[name].network_numbers[group.rows[at][group.is_valid]] for group in groups])
               for at, name in enumerate(names)]
        where = np.repeat(np.arange(len(groups), dtype=np.int32),
                          [int(group.is_valid.sum()) for group in groups])
        costs = np.concatenate([self.bounded_costs(side, number, bounds)
                                for number in range(len(groups))])
        return NetworksByGroup(number_rows(ids, len(where)), where, costs)


def _grouped(part: SectionCandidates, spine: SectionCandidates) -> tuple[
        dict[int, RowIndices], list[int]]:
    """A part's rows by their answers to the shared parameters that it has, and for each of the spine's rows which group
    goes with it."""
    mine, keys = number_shared_values(part, spine)
    order = np.argsort(mine, kind="stable").astype(np.int32)
    names, starts = np.unique(mine[order], return_index=True)
    ends = np.append(starts[1:], len(part))
    return {int(name): order[start:end]
            for name, start, end in zip(names, starts, ends)}, keys.tolist()
