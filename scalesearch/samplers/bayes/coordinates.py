"""Coordinates of candidates for a surrogate.

Numbers are scaled to their ranges, words are indicators, and exact costs are logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution

from scalesearch.samplers.candidate import Candidate

Array = NDArray[np.float64]
TREND_RANGE_STDS = 4.0  # standard deviations of a trend that have the length 1 of a coordinate
# Share of a cost's trend in the residual of a score, if an earlier score is known; chosen by
# benchmarks/replay.py.
EARLIER_TREND_SHARE = 0.5


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of n candidates.

    Attributes:
        points: (n, columns) coordinates.
        groups: (columns,) group of each column; a group has one length scale.
        trends: (n, k) quantities on which scores depend linearly, in units of their standard
            deviations: logarithms of costs, as in scaling laws. They can be learned from few
            trials, unlike the effects of most parameters.
    """

    points: Array
    groups: NDArray[np.intp]
    trends: Array

    @classmethod
    def of(cls, candidates: Sequence[Candidate], costs: Array) -> Coordinates:
        """Return coordinates with a group per parameter and per cost.

        The distance between two words is 1, between two numbers at most 1. A parameter that does
        not exist for a candidate has the value in the middle of its range; the word on which its
        existence depends distinguishes the two cases.

        Args:
            candidates: n candidates.
            costs: (n, k) exact costs.
        """
        distributions: dict[str, BaseDistribution] = {}
        for candidate in candidates:
            distributions |= candidate.distributions
        blocks = [_columns(distribution, [candidate.params.get(name) for candidate in candidates])
                  for name, distribution in distributions.items()]
        scaled_costs = []
        for cost in costs.T:  # scaled to the range from 0 to 1, as logarithms if any is positive
            scaled = np.log(np.maximum(cost, 1e-12)) if (cost > 0).any() else cost
            span = float(np.ptp(scaled)) or 1.0
            scaled_costs.append(((scaled - scaled.min()) / span)[:, None])
        blocks += scaled_costs
        blocks = blocks or [np.zeros((len(candidates), 1))]
        sizes = [block.shape[1] for block in blocks]
        trends = [(cost - cost.mean()) / (float(cost.std()) or 1.0) for cost in scaled_costs]
        trends = trends or [np.zeros((len(candidates), 0))]
        return cls(np.concatenate(blocks, 1), np.repeat(np.arange(len(sizes)), sizes),
                   np.concatenate(trends, 1))

    def with_trend(self, trend: Array) -> Coordinates:
        """Add a trend (n,), also as a coordinate for nonlinear effects."""
        points = np.column_stack([self.points, trend / TREND_RANGE_STDS])
        trends = np.column_stack([self.trends * EARLIER_TREND_SHARE, trend])
        return Coordinates(points, np.append(self.groups, self.groups.max() + 1), trends)

    def with_proxy(self, values: Array) -> Coordinates:
        """Add a proxy (n,) of the scores, as a coordinate and as a trend."""
        centered = values - values.mean()
        points = np.column_stack([self.points, centered / (float(np.ptp(values)) or 1.0)])
        trends = np.column_stack([self.trends, centered / (float(values.std()) or 1.0)])
        return Coordinates(points, np.append(self.groups, self.groups.max() + 1), trends)

    def __getitem__(self, rows: Any) -> Coordinates:
        return Coordinates(self.points[rows], self.groups, self.trends[rows])

    def __add__(self, other: Coordinates) -> Coordinates:
        return Coordinates(np.vstack([self.points, other.points]), self.groups,
                           np.vstack([self.trends, other.trends]))


def _columns(distribution: Any, values: Sequence[Any]) -> Array:
    """Return the columns of one parameter, (values, columns)."""
    if isinstance(distribution, CategoricalDistribution):
        index_by_choice = {(type(choice), choice): index
                           for index, choice in enumerate(distribution.choices)}
        indices = np.array([index_by_choice.get((type(value), value), -1) for value in values])
        return np.asarray((indices[:, None] == np.arange(len(index_by_choice))) * np.sqrt(0.5))
    bounds = np.array([distribution.low, distribution.high], float)
    exists = np.array([value is not None for value in values])
    numbers = np.array([distribution.low if value is None else value for value in values], float)
    if distribution.log:
        numbers = np.log(numbers)
        bounds = np.log(bounds)
    scaled = (numbers - bounds[0]) / (float(np.ptp(bounds)) or 1.0)
    return np.where(exists, scaled, 0.5)[:, None]
