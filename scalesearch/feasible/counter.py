"""Exact counts of feasible configurations and networks of a decomposed space.

The sections of a space form two sides: the encoder (left), and decoder, embedding and output
(right). A cell fixes the shared parameters. Within a cell, rows of the left and right side vary
independently, so that feasible pairs can be counted without a list of all pairs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.costed_candidates import IndexedCandidate
from scalesearch.feasible.decomposition import REMAINING_PART, SHARED_PART, Decomposition
from scalesearch.feasible.dominance import DominanceIndex, NetworksByGroup
from scalesearch.feasible.enumeration import NOT_SAMPLED, TooManyCandidatesError
from scalesearch.feasible.identity import number_rows
from scalesearch.feasible.limits import CostBound, tightest_bounds
from scalesearch.feasible.pieces import number_shared_values

if TYPE_CHECKING:
    from scalesearch.feasible.listing import ListedSpace

LEFT_SECTION = "encoder"
RIGHT_SECTIONS = ("decoder", "embedding", "output")
# Combinations of right sections: 13 bytes each, and 8 per bound while they are counted.
MAX_RIGHT_ROWS = 20_000_000
CELLS_PER_BATCH = 64  # counted by one query, which limits its memory
MAX_BOUNDS_TOGETHER = 3  # every combination of bounds is counted

T = TypeVar("T")
ProgressCallback = Callable[[str], None]
RowIndices = NDArray[np.int32]
NO_ROWS = np.zeros(0, np.int32)


@dataclass(frozen=True)
class RowGroup:
    """Rows of one side that have the same values of shared parameters.

    Attributes:
        rows: row indices of the encoder, or row indices of decoder, embedding and output.
        is_valid: whether the row is valid in each section.
    """

    rows: tuple[RowIndices, ...]
    is_valid: NDArray[np.bool_]

    @property
    def valid_rows(self) -> tuple[RowIndices, ...]:
        """Indices of the valid rows."""
        return tuple(rows[self.is_valid] for rows in self.rows)

    def __len__(self) -> int:
        return len(self.is_valid)


@dataclass(frozen=True)
class SharedCell:
    """A combination of shared parameters, and the groups that vary within it.

    Attributes:
        left, right: indices of the groups of rows.
        all_rest_rows: rows of the remaining parameters.
        valid_rest_rows: those that are valid.
        is_allowed: whether the constraints on shared parameters are met, and a rest row is valid.
        shared_row: row of the shared part.
    """

    left: int
    right: int
    all_rest_rows: RowIndices
    valid_rest_rows: RowIndices
    is_allowed: bool
    shared_row: int


class FeasibleCounter:
    """Counts of the candidates of a decomposed space.

    Args:
        bounds: bounds of the budget.
        required: bounds of the space's own constraints.
        progress: called with a text now and then.
    """

    def __init__(self, decomposition: Decomposition | ListedSpace, bounds: list[CostBound],
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
        self._n_within: dict[tuple[CostBound, ...], int] = {}

    def _cells(self) -> list[SharedCell]:
        parts = self.decomposition.parts
        shared = parts[SHARED_PART]
        # rows of a part by group key, and the group key of each row of the shared part
        rows: dict[str, dict[int, RowIndices]] = {}
        keys: dict[str, list[int]] = {}
        for name in (LEFT_SECTION, *RIGHT_SECTIONS, REMAINING_PART):
            part_keys, shared_keys = number_shared_values(parts[name], shared)
            order = np.argsort(part_keys, kind="stable").astype(np.int32)
            group_keys, starts = np.unique(part_keys[order], return_index=True)
            ends = np.append(starts[1:], len(parts[name]))
            rows[name] = {int(key): order[start:end]
                          for key, start, end in zip(group_keys, starts, ends)}
            keys[name] = shared_keys.tolist()
        left_numbers: dict[int, int] = {}
        right_numbers: dict[tuple[int, ...], int] = {}
        cells = []
        n_right_rows = 0
        for row in range(len(shared)):
            left = keys[LEFT_SECTION][row]
            right = tuple(keys[name][row] for name in RIGHT_SECTIONS)
            if left not in left_numbers:
                left_numbers[left] = len(self.left_groups)
                self.left_groups.append(
                    self._group((LEFT_SECTION,), (rows[LEFT_SECTION].get(left, NO_ROWS),)))
            if right not in right_numbers:
                right_numbers[right] = len(self.right_groups)
                section_rows = [rows[name].get(key, NO_ROWS)
                                for name, key in zip(RIGHT_SECTIONS, right)]
                n_right_rows += int(np.prod([len(indices) for indices in section_rows]))
                if n_right_rows > MAX_RIGHT_ROWS:
                    raise TooManyCandidatesError(f"more than {MAX_RIGHT_ROWS:,} combinations of "
                                                 "decoder, embedding and output")
                grid = np.meshgrid(*section_rows, indexing="ij")
                self.right_groups.append(
                    self._group(RIGHT_SECTIONS, tuple(indices.ravel() for indices in grid)))
            rest_rows = rows[REMAINING_PART].get(keys[REMAINING_PART][row], NO_ROWS)
            valid_rest_rows = rest_rows[parts[REMAINING_PART].is_valid[rest_rows]]
            is_allowed = bool(shared.is_valid[row]) and len(valid_rest_rows) > 0
            cells.append(SharedCell(left_numbers[left], right_numbers[right], rest_rows,
                                    valid_rest_rows, is_allowed, row))
        return cells

    def _group(self, names: tuple[str, ...], rows: tuple[RowIndices, ...]) -> RowGroup:
        is_valid = np.ones(len(rows[0]), bool)
        for name, indices in zip(names, rows):
            is_valid &= self.decomposition.parts[name].is_valid[indices]
        return RowGroup(rows, is_valid)

    def bounded_costs(self, side: str, number: int, bounds: list[CostBound]) -> NDArray[np.int64]:
        """Costs of the valid rows of a group, with the sign of each bound.

        Args:
            side: ``left`` or ``right``.
            number: index of the group.

        Returns:
            (valid rows, bounds) array.
        """
        columns = [self.decomposition.columns.index(bound.name) for bound in bounds]
        names, groups = self.sides[side]
        total: Any = sum(self.decomposition.parts[name].costs[rows][:, columns]
                         for name, rows in zip(names, groups[number].valid_rows))
        return np.asarray(total, np.int64) * np.array([bound.sign for bound in bounds], np.int64)

    def candidate_at(self, cell: SharedCell, left: int, right: int,
                     rest_row: int = 0) -> IndexedCandidate:
        """Candidate of one valid row per side of a cell, and one remaining row."""
        rows = {SHARED_PART: cell.shared_row, REMAINING_PART: cell.valid_rest_rows[rest_row],
                LEFT_SECTION: self.left_groups[cell.left].valid_rows[0][left]}
        right_rows = self.right_groups[cell.right].valid_rows
        rows |= {name: valid_rows[right] for name, valid_rows in zip(RIGHT_SECTIONS, right_rows)}
        parts = {name: self.decomposition.parts[name] for name in rows}
        indices = {parameter: int(index) for name, row in rows.items()
                   for parameter, index in zip(parts[name].parameters,
                                               parts[name].value_indices[row])
                   if index != NOT_SAMPLED}
        costs = np.sum([parts[name].costs[row] for name, row in rows.items()], 0)
        return IndexedCandidate(indices, dict(zip(self.decomposition.names, costs.tolist())),
                                self.decomposition.space)

    def _allowed(self, side: str) -> Iterator[SharedCell]:
        """Cells that the constraints allow, sorted by their group of ``side``."""
        return self._with_progress(sorted((cell for cell in self.cells if cell.is_allowed),
                                          key=attrgetter(side)), "counting")

    def _with_progress(self, items: list[T], word: str) -> Iterator[T]:
        """Yield the items, and report the progress in steps of 1 %."""
        for index, item in enumerate(items):
            if index % max(1, len(items) // 100) == 0:
                self.progress(f"{word}: {index / len(items):.0%}")
            yield item

    @cached_property
    def n_candidates(self) -> int:
        """Number of all configurations."""
        return sum(len(self.left_groups[c.left]) * len(self.right_groups[c.right])
                   * len(c.all_rest_rows) for c in self.cells)

    @cached_property
    def n_valid(self) -> int:
        """Number of configurations that can be built and meet the space's constraints."""
        return self._count_within(self.required)

    @cached_property
    def n_feasible(self) -> int:
        """Number of feasible configurations: valid and within all bounds."""
        return self._count_within(self.bounds)

    def _count_within(self, bounds: list[CostBound]) -> int:
        bounds = tightest_bounds(bounds)
        key = tuple(bounds)
        if key not in self._n_within:
            self._n_within[key] = sum(int(n_partners.sum()) * len(cell.valid_rest_rows)
                                      for cell, n_partners in self._count_partners("left", bounds))
        return self._n_within[key]

    def _count_partners(self, points: str, bounds: list[CostBound]
                        ) -> Iterator[tuple[SharedCell, NDArray[Any]]]:
        """Count the feasible partners of each valid row of one side, in each allowed cell.

        Args:
            points: the side of the partners. The cells are sorted by its groups.

        Yields:
            a cell, and an array (valid rows of the other side) of numbers of partners.
        """
        limits = np.array([bound.clipped_limit for bound in bounds], np.int64)
        other = "right" if points == "left" else "left"
        slacks = self._by_group(other, limits - self._side_costs(other, bounds))
        costs = self._by_group(points, self._side_costs(points, bounds))
        for number, group in groupby(self._allowed(points), attrgetter(points)):
            index = DominanceIndex(costs[number])  # a hundred bytes per row: only one exists
            while cells := list(islice(group, CELLS_PER_BATCH)):
                cell_slacks = [slacks[getattr(cell, other)] for cell in cells]
                n_partners = index.weight_within(np.concatenate(cell_slacks))
                ends = np.cumsum([len(slack) for slack in cell_slacks])
                yield from zip(cells, np.split(n_partners, ends))

    def _side_costs(self, side: str, bounds: list[CostBound]) -> NDArray[np.int64]:
        """Costs (valid rows, bounds) of all groups of a side, with the sign of each bound."""
        columns = [self.decomposition.columns.index(bound.name) for bound in bounds]
        names, groups = self.sides[side]
        total: Any = sum(
            self.decomposition.parts[name].costs[:, columns][
                np.concatenate([group.rows[position][group.is_valid] for group in groups])]
            for position, name in enumerate(names))
        return np.asarray(total, np.int64) * np.array([bound.sign for bound in bounds], np.int64)

    def _by_group(self, side: str, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Split values of the valid rows of a side by group."""
        ends = np.cumsum([int(group.is_valid.sum()) for group in self.sides[side][1]])
        return np.split(values, ends)

    def sample_costs(self, n_samples: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Sample valid configurations uniformly, or list all if there are at most ``n_samples``.

        Returns:
            (samples, columns of the decomposition) costs.
        """
        parts = self.decomposition.parts
        cells = [cell for cell in self.cells if cell.is_allowed]
        shapes = [(int(self.left_groups[cell.left].is_valid.sum()),
                   int(self.right_groups[cell.right].is_valid.sum()), len(cell.valid_rest_rows))
                  for cell in cells]
        counts = np.array([math.prod(shape) for shape in shapes], float)
        is_complete = counts.sum() <= n_samples
        n_of_cell = (counts.astype(int) if is_complete
                     else rng.multinomial(n_samples, counts / counts.sum()))
        costs = [np.zeros((0, len(self.decomposition.columns)), np.int64)]
        for index in np.flatnonzero(n_of_cell).tolist():
            shape, n = shapes[index], n_of_cell[index]
            left, right, _ = (np.unravel_index(np.arange(n), shape) if is_complete else
                              (rng.integers(size, size=n) for size in shape))
            cell = cells[index]
            rows = [self.left_groups[cell.left].valid_rows[0][left],
                    *(rows[right] for rows in self.right_groups[cell.right].valid_rows)]
            costs.append(np.sum([parts[name].costs[indices] for name, indices
                                 in zip((LEFT_SECTION, *RIGHT_SECTIONS), rows)], 0))
        return np.concatenate(costs)

    # -- violations

    def count_violations(self) -> dict[tuple[str, ...], int]:
        """Count configurations by the set of bounds that they violate.

        Invalid configurations are not counted. The empty tuple has the number of feasible ones.
        Counts follow from those of configurations within each set of bounds, by inclusion and
        exclusion.

        Raises:
            TooManyCandidatesError: more than ``MAX_BOUNDS_TOGETHER`` bounds.
        """
        if len(self.budgets) > MAX_BOUNDS_TOGETHER:
            raise TooManyCandidatesError(f"more than {MAX_BOUNDS_TOGETHER} budgets")
        indices = tuple(range(len(self.budgets)))
        subsets = [subset for size in range(len(indices) + 1)
                   for subset in combinations(indices, size)]
        within = {subset: self._count_within([*self.required, *(self.budgets[i] for i in subset)])
                  for subset in subsets}
        counts: dict[tuple[str, ...], int] = {}
        for violated in subsets:
            met = [i for i in indices if i not in violated]
            # Within all bounds that are met, and beyond each bound that is violated.
            count = sum((-1) ** len(more) * within[tuple(sorted((*met, *more)))]
                        for size in range(len(violated) + 1)
                        for more in combinations(violated, size))
            counts[tuple(str(self.budgets[i]) for i in violated)] = count
        return counts

    # -- by value

    def count_by_value(self) -> dict[str, dict[int, tuple[int, int, int]]]:
        """Number of all, of legal and of feasible configurations, by parameter and value."""
        counts: dict[str, dict[int, tuple[int, int, int]]] = defaultdict(dict)
        dtype = np.int64 if self.n_candidates < 2**62 else np.float64
        # Per row of each part, the number of all configurations with this row.
        all_weights = {name: np.zeros(len(part), dtype)
                       for name, part in self.decomposition.parts.items()}
        for cell in self.cells:
            left = self.left_groups[cell.left]
            right = self.right_groups[cell.right]
            n_rest = len(cell.all_rest_rows)
            all_weights[LEFT_SECTION][left.rows[0]] += len(right) * n_rest
            for name, rows in zip(RIGHT_SECTIONS, right.rows):
                np.add.at(all_weights[name], rows, len(left) * n_rest)
            all_weights[REMAINING_PART][cell.all_rest_rows] += len(left) * len(right)
            all_weights[SHARED_PART][cell.shared_row] += len(left) * len(right) * n_rest
        valid_weights = self._row_weights(self.required, dtype)
        feasible_weights = self._row_weights(self.bounds, dtype)
        for name in (SHARED_PART, *RIGHT_SECTIONS, LEFT_SECTION, REMAINING_PART):
            weights = (all_weights[name], valid_weights[name], feasible_weights[name])
            part = self.decomposition.parts[name]
            for column, parameter in enumerate(part.parameters):
                if parameter in counts:
                    continue
                indices, positions = np.unique(part.value_indices[:, column], return_inverse=True)
                sums = np.zeros((len(weights), len(indices)), dtype)
                for sum_by_value, weight in zip(sums, weights):
                    np.add.at(sum_by_value, positions, weight)
                for index, numbers in zip(indices.tolist(), sums.T.astype(object).tolist()):
                    if index != NOT_SAMPLED:
                        n_all, n_valid, n_feasible = map(int, numbers)
                        counts[parameter][index] = n_all, n_valid, n_feasible
        return counts

    def _row_weights(self, bounds: list[CostBound], dtype: type) -> dict[str, NDArray[Any]]:
        """Per row of each part, number of configurations that are valid and within ``bounds``."""
        bounds = tightest_bounds(bounds)
        weights = {name: np.zeros(len(part), dtype)
                   for name, part in self.decomposition.parts.items()}
        for points in ("left", "right"):
            names, groups = self.sides["right" if points == "left" else "left"]
            # Per group of rows, weights of its valid rows, summed over cells.
            group_weights = [np.zeros(int(group.is_valid.sum()), dtype) for group in groups]
            for cell, n_partners in self._count_partners(points, bounds):
                n_rest = len(cell.valid_rest_rows)
                number = cell.right if points == "left" else cell.left
                group_weights[number] += n_partners.astype(dtype) * n_rest
                if points == "right":
                    n_pairs = int(n_partners.sum())
                    weights[REMAINING_PART][cell.valid_rest_rows] += n_pairs
                    weights[SHARED_PART][cell.shared_row] += n_pairs * n_rest
            for group, weights_of_rows in zip(groups, group_weights):
                for name, rows in zip(names, group.valid_rows):
                    np.add.at(weights[name], rows, weights_of_rows)
        return weights

    # -- distinct networks

    def count_distinct(self, bounds: list[CostBound] | None = None) -> int:
        """Count distinct networks: configurations of the same network count once.

        A network is a pair of a left and a right side that some cell allows. Left sides that occur
        in the same cells are counted together, and so are right sides.

        Args:
            bounds: bounds to meet, by default all.
        """
        bounds = tightest_bounds(self.bounds if bounds is None else bounds)
        limits = np.array([bound.clipped_limit for bound in bounds], np.int64)
        left = self._networks_by_group("left", bounds)
        right = self._networks_by_group("right", bounds)
        pairs = {(left_set, right_set) for cell in self.cells if cell.is_allowed
                 for left_set in left.of_group.get(cell.left, ())
                 for right_set in right.of_group.get(cell.right, ())}
        total = 0
        for left_set, right_set in self._with_progress(sorted(pairs), "counting networks"):
            slack = limits - right.costs[right_set]
            total += int(left.group_index(left_set).weight_within(slack).sum())
        return total

    def _networks_by_group(self, side: str, bounds: list[CostBound]) -> NetworksByGroup:
        names, groups = self.sides[side]
        columns = []
        for position, name in enumerate(names):
            rows = np.concatenate([group.valid_rows[position] for group in groups])
            columns.append(self.decomposition.parts[name].network_numbers[rows])
        group_numbers = np.repeat(np.arange(len(groups), dtype=np.int32),
                                  [int(group.is_valid.sum()) for group in groups])
        return NetworksByGroup(number_rows(columns, len(group_numbers)), group_numbers,
                               self._side_costs(side, bounds))
