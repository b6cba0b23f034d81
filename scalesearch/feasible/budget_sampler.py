"""Random candidates within a budget, by construction: from a space taken apart, without rejecting anything.

The chances are those of answering parameter by parameter (uniform, or log-uniform where the space
says so) and drawing again until the budget is met; only that nothing is drawn in vain: first a
cell, then a left side, weighed by all the right sides that fit with it, then one of those.
"""

from __future__ import annotations

import math
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
from scalesearch.feasible.limits import CostBound
from scalesearch.feasible.pieces import SectionCandidates
from scalesearch.space import Space
from scalesearch.space.syntax.parameters import IntRange, Parameter

Probabilities = NDArray[np.float64]


class BudgetSampler:
    """Draws answer sheets of ``space`` that meet ``bounds``.

    Attributes:
        share: of draws of the whole space that would meet them, exactly.

    Raises:
        TooMany, Endless: the space is too large to take apart, or has no end.
    """

    def __init__(self, space: Space, protocol: Protocol, bounds: list[CostBound]) -> None:
        names = tuple(dict.fromkeys(bound.name for bound in bounds)) or ("params.total",)
        self.parameters = parameters_by_name(space)
        self.counter = FeasibleCounter(Decomposition(space, protocol, names), bounds)
        self.parts = self.counter.decomposition.parts
        self.bounds = bounds
        spine = set(self.parts[SHARED_PART].parameters)
        self.row_probabilities = {name: self._chances(part, set() if name == SHARED_PART else spine)
                        for name, part in self.parts.items()}
        self.cumulative_weights = np.cumsum(self._weights())
        self.feasible_share = float(
            self.cumulative_weights[-1]) if len(self.cumulative_weights) else 0.0

    def sample(self, rng: random.Random) -> dict[str, Any] | None:
        """A sheet's answers by parameter; None where nothing meets the bounds."""
        if not self.feasible_share > 0:
            return None
        cell = self.counter.cells[_sample_index(self.cumulative_weights, rng)]
        room = self._slack_by_row(cell.left)
        mine = _sample_index(np.cumsum(self._lefts[cell.left]
                                       * self._weighted_index(cell.right).weight_within(room)), rng)
        fits = (self.counter.bounded_costs("right", cell.right, self.bounds) <= room[mine]).all(1)
        theirs = _sample_index(np.cumsum(self._rights[cell.right] * fits), rng)
        rest = _sample_index(
            np.cumsum(self.row_probabilities[REMAINING_PART][cell.valid_rest_rows]), rng)
        return dict(self.counter.candidate_at(cell, mine, theirs, rest).param_values.params)

    @cached_property
    def _caps(self) -> NDArray[np.int64]:
        return np.array([bound.clipped_limit for bound in self.bounds], np.int64)

    @cached_property
    def _lefts(self) -> list[Probabilities]:
        return [self.row_probabilities[LEFT_SECTION][group.valid_rows[0]]
                for group in self.counter.left_groups]

    @cached_property
    def _rights(self) -> list[Probabilities]:
        rights = []
        for group in self.counter.right_groups:
            chances = np.ones(int(group.is_valid.sum()))
            for name, rows in zip(RIGHT_SECTIONS, group.valid_rows):
                chances *= self.row_probabilities[name][rows]
            rights.append(chances)
        return rights

    def _weights(self) -> Probabilities:
        """(cells,) the chance that a draw of the whole space is of that cell and meets the bounds."""
        cells = self.counter.cells
        weights = np.array([cell.is_allowed * self.row_probabilities[SHARED_PART][cell.spine_row]
                            * self.row_probabilities[REMAINING_PART][cell.valid_rest_rows].sum()
                            for cell in cells])
        by_right: dict[int, dict[int, list[int]]] = {}
        for place in np.flatnonzero(weights).tolist():
            by_right.setdefault(cells[place].right, {}).setdefault(
                cells[place].left, []).append(place)
        for right, lefts in by_right.items():
            # a hundred bytes a row: kept no longer than needed
            weighed = self._weighted_index(right)
            for left, places in lefts.items():
                weights[places] *= float(self._lefts[left]
                                         @ weighed.weight_within(self._slack_by_row(left)))
        return weights

    def _weighted_index(self, right: int) -> DominanceIndex:
        return DominanceIndex(self.counter.bounded_costs("right", right, self.bounds),
                              self._rights[right])

    def _slack_by_row(self, left: int) -> NDArray[np.int64]:
        """(rows, bounds) what each good left row leaves."""
        return self._caps - self.counter.bounded_costs("left", left, self.bounds)

    def _chances(self, part: SectionCandidates, elsewhere: set[str]) -> Probabilities:
        """(rows,) the chance of each row's answers, those to parameters that are counted ``elsewhere`` left out."""
        chances = np.ones(len(part))
        for column, name in enumerate(part.parameters):
            if name not in elsewhere:
                # the last is UNASKED's, which is -1
                chance = np.append(value_probabilities(self.parameters[name]), 1.0)
                chances *= chance[part.value_indices[:, column]]
        return chances


def value_probabilities(parameter: Parameter) -> Probabilities:
    """The chance of each of a parameter's answers in its ``draw``."""
    count = parameter.count()
    assert count is not None, "what has no end was refused before"
    if not (isinstance(parameter, IntRange) and parameter.log):
        return np.full(count, 1 / count)
    edges = np.log(np.append(np.array(parameter.values()) - 0.5, parameter.high + 0.5))
    return np.diff(edges) / (math.log(parameter.high + 0.5) - math.log(parameter.low - 0.5))


def parameters_by_name(space: Space) -> dict[str, Parameter]:
    """Name to parameter.

    Raises:
        TooMany: a name holds several parameters, by a condition.
    """
    parameters: dict[str, Parameter] = {}
    for name, parameter in space.parameters():
        if parameters.setdefault(name, parameter) != parameter:
            raise TooManyCandidatesError(f"{name} is asked in several ways")
    return parameters


def _sample_index(sums: NDArray[np.float64], rng: random.Random) -> int:
    """A place with a chance by how much the running sum rises there."""
    at = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    return min(at, int(np.searchsorted(sums, sums[-1])))
