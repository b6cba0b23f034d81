"""Random candidates within a budget, without rejection.

The distribution is that of rejection sampling: each parameter is sampled (uniformly, or
log-uniformly for ranges with this option) until the budget is met. Here, a cell is sampled first,
then a left side, weighted by all its feasible right sides, and then one of these. See
:mod:`scalesearch.feasible.counter` for cells and sides.
"""

from __future__ import annotations

import random
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.counter import LEFT_SECTION, RIGHT_SECTIONS, FeasibleCounter
from scalesearch.feasible.decomposition import REMAINING_PART, SHARED_PART, Decomposition
from scalesearch.feasible.dominance import DominanceIndex
from scalesearch.feasible.enumeration import TooManyCandidatesError
from scalesearch.feasible.estimate import log_probability
from scalesearch.feasible.limits import CostBound
from scalesearch.spaces import Space
from scalesearch.spaces.syntax.parameters import Parameter

Probabilities = NDArray[np.float64]


class BudgetSampler:
    """Sampler of configurations of ``space`` that meet ``bounds``.

    Attributes:
        feasible_share: exact share of random configurations that meet the bounds.
        row_probabilities: probability of each row of a part, by name of the part.
        cumulative_weights: (cells,) cumulative probability of a feasible sample in each cell.

    Raises:
        TooManyCandidatesError: the space is too large to decompose.
        ContinuousRangeError: the space has a continuous range.
    """

    def __init__(self, space: Space, protocol: Protocol, bounds: list[CostBound]) -> None:
        names = tuple(dict.fromkeys(bound.name for bound in bounds)) or ("params.total",)
        self.parameters = parameters_by_name(space)
        self.counter = FeasibleCounter(Decomposition(space, protocol, names), bounds)
        self.parts = self.counter.decomposition.parts
        self.bounds = bounds
        shared = set(self.parts[SHARED_PART].parameters)
        # part to the probability of each row; shared parameters count in their own part only
        self.row_probabilities: dict[str, Probabilities] = {}
        for part_name, part in self.parts.items():
            probabilities = np.ones(len(part))
            for column, name in enumerate(part.parameters):
                if part_name == SHARED_PART or name not in shared:
                    log_probabilities = [log_probability(self.parameters[name], value)
                                         for value in self.parameters[name].values() or ()]
                    # The last entry is for NOT_SAMPLED, which is -1.
                    by_index = np.exp([*log_probabilities, 0.0])
                    probabilities *= by_index[part.value_indices[:, column]]
            self.row_probabilities[part_name] = probabilities
        # (cells,): probability that a random candidate is in the cell and feasible
        cells = self.counter.cells
        weights = np.array([cell.is_allowed * self.row_probabilities[SHARED_PART][cell.shared_row]
                            * self.row_probabilities[REMAINING_PART][cell.valid_rest_rows].sum()
                            for cell in cells])
        by_right: dict[int, dict[int, list[int]]] = {}
        for index in np.flatnonzero(weights).tolist():
            cell = cells[index]
            by_right.setdefault(cell.right, {}).setdefault(cell.left, []).append(index)
        for right, by_left in by_right.items():
            dominance = self._weighted_index(right)  # large: kept for one right group only
            for left, indices in by_left.items():
                partner_weights = dominance.weight_within(self._slack_by_row(left))
                weights[indices] *= float(self._left_probabilities[left] @ partner_weights)
        self.cumulative_weights = np.cumsum(weights)
        self.feasible_share = 0.0
        if len(self.cumulative_weights):
            self.feasible_share = float(self.cumulative_weights[-1])

    def sample(self, rng: random.Random) -> dict[str, Any] | None:
        """Sample the value of each parameter; None if no candidate meets the bounds."""
        if not self.feasible_share > 0:
            return None
        cell = self.counter.cells[_sample_index(self.cumulative_weights, rng)]
        slack = self._slack_by_row(cell.left)
        left_weights = self._left_probabilities[cell.left] * self._weighted_index(
            cell.right).weight_within(slack)
        left = _sample_index(np.cumsum(left_weights), rng)
        right_costs = self.counter.bounded_costs("right", cell.right, self.bounds)
        is_feasible = (right_costs <= slack[left]).all(1)
        right = _sample_index(np.cumsum(self._right_probabilities[cell.right] * is_feasible), rng)
        remaining = self.row_probabilities[REMAINING_PART][cell.valid_rest_rows]
        rest_row = _sample_index(np.cumsum(remaining), rng)
        return dict(self.counter.candidate_at(cell, left, right, rest_row).param_values.params)

    @cached_property
    def _left_probabilities(self) -> list[Probabilities]:
        return [self.row_probabilities[LEFT_SECTION][group.valid_rows[0]]
                for group in self.counter.left_groups]

    @cached_property
    def _right_probabilities(self) -> list[Probabilities]:
        by_group = []
        for group in self.counter.right_groups:
            probabilities = np.ones(int(group.is_valid.sum()))
            for name, rows in zip(RIGHT_SECTIONS, group.valid_rows):
                probabilities *= self.row_probabilities[name][rows]
            by_group.append(probabilities)
        return by_group

    def _weighted_index(self, right: int) -> DominanceIndex:
        return DominanceIndex(self.counter.bounded_costs("right", right, self.bounds),
                              self._right_probabilities[right])

    def _slack_by_row(self, left: int) -> NDArray[np.int64]:
        """(rows, bounds) limits minus the costs of each valid left row."""
        limits = np.array([bound.clipped_limit for bound in self.bounds], np.int64)
        return limits - self.counter.bounded_costs("left", left, self.bounds)


def parameters_by_name(space: Space) -> dict[str, Parameter]:
    """Parameters by name.

    Raises:
        TooManyCandidatesError: a parameter has different values depending on a condition.
    """
    parameters: dict[str, Parameter] = {}
    for name, parameter in space.parameters():
        if parameters.setdefault(name, parameter) != parameter:
            raise TooManyCandidatesError(f"the values of {name} depend on a condition")
    return parameters


def _sample_index(cumulative: NDArray[np.float64], rng: random.Random) -> int:
    """Sample an index from cumulative weights."""
    index = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
    return min(index, int(np.searchsorted(cumulative, cumulative[-1])))
