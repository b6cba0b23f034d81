"""Coordinates of sheets for a model: numbers in their ranges, words as indicators, logarithms of known costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution

from scalesearch.samplers.candidate import Candidate

Array = NDArray[np.float64]
TREND_RANGE_STDS = 4.0  # deviations that a trend spans, as other coordinates span 1
# Share of a cost's trend in the residual of a score, if an earlier score is known; chosen by
# benchmarks/replay.py.
EARLIER_TREND_SHARE = 0.5


@dataclass(frozen=True)
class Coordinates:
    """Points (sheets, columns) and of each column the group (columns,) of those that have one length scale.

    ``trends`` (sheets, k) are what scores may rise or fall with in a line, in units of their
    deviations: logarithms of costs, with which losses fall in every scaling law. A few trials say
    nothing of most of many parameters, but they say that.
    """

    points: Array
    groups: NDArray[np.intp]
    trends: Array

    @classmethod
    def of(cls, candidates: Sequence[Candidate], costs: Array) -> Coordinates:
        """A group for each parameter of ``candidates`` and each of ``costs`` (sheets, costs).

        Two values of a word are 1 apart, two of a number at most 1. What a sheet was not asked for
        lies in the middle: the word that decides whether it is asked tells the two apart.
        """
        distributions: dict[str, BaseDistribution] = {}
        for sheet in candidates:
            distributions |= sheet.distributions
        blocks = [_columns(distribution, [candidate.params.get(name) for candidate in candidates])
                  for name, distribution in distributions.items()]
        lines = [_scale_cost(line)[:, None] for line in costs.T]
        blocks += lines
        blocks = blocks or [np.zeros((len(candidates), 1))]
        sizes = [block.shape[1] for block in blocks]
        trends = [(line - line.mean()) / (float(line.std()) or 1.0) for line in lines]
        trends = trends or [np.zeros((len(candidates), 0))]
        return cls(np.concatenate(blocks, 1), np.repeat(np.arange(len(sizes)), sizes),
                   np.concatenate(trends, 1))

    def with_trend(self, trend: Array) -> Coordinates:
        """These with one more trend, which is a coordinate, too: what is no line in it is learned."""
        points = np.column_stack([self.points, trend / TREND_RANGE_STDS])
        trends = np.column_stack([self.trends * EARLIER_TREND_SHARE, trend])
        return Coordinates(points, np.append(self.groups, self.groups.max() + 1), trends)

    def __getitem__(self, rows: Any) -> Coordinates:
        return Coordinates(self.points[rows], self.groups, self.trends[rows])

    def __add__(self, other: Coordinates) -> Coordinates:
        return Coordinates(np.vstack([self.points, other.points]), self.groups,
                           np.vstack([self.trends, other.trends]))


def _scale_cost(line: Array) -> Array:
    """A cost in its range from 0 to 1, by logarithms where it has some."""
    line = np.log(np.maximum(line, 1e-12)) if (line > 0).any() else line
    return np.asarray((line - line.min()) / (float(np.ptp(line)) or 1.0))


def _columns(distribution: Any, values: Sequence[Any]) -> Array:
    """(values, columns) of one parameter."""
    if isinstance(distribution, CategoricalDistribution):
        places = {(type(choice), choice): at for at, choice in enumerate(distribution.choices)}
        given = np.array([places.get((type(value), value), -1) for value in values])
        return np.asarray((given[:, None] == np.arange(len(places))) * np.sqrt(0.5))
    ends = np.array([distribution.low, distribution.high], float)
    there = np.array([value is not None for value in values])
    line = np.array([distribution.low if value is None else value for value in values], float)
    if distribution.log:
        line = np.log(line)
        ends = np.log(ends)
    places = (line - ends[0]) / (float(np.ptp(ends)) or 1.0)
    return np.where(there, places, 0.5)[:, None]
