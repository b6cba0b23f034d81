"""A Gaussian process over sheets of parameters and what is known of them: what an untried one may score.

Distances are of values, parameter by parameter, and of the logarithms of the costs, which are known of every sheet
before its trial. How much each of them counts is found by the marginal likelihood (Rasmussen & Williams 2006, section
5.4), one at a time over a few values: some hundred points at most, no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from scalesearch.samplers.sheet import Sheet

Array = NDArray[np.float64]
SCALES = (0.0, 0.1, 0.5, 2.0, 8.0)  # what a squared distance may be multiplied with; 0: does not matter
NOISES = (1e-4, 1e-2, 0.1, 0.4)  # share of the variance that nothing explains
ABSENT = 1.0  # distance of a value from a parameter that was not asked for


def squared_distances(sheets: Sequence[Sheet], costs: Array) -> Array:
    """(parameters + costs, sheets, sheets) squared distances, one coordinate a parameter and a cost.

    Args:
        costs: (sheets, costs) of the same sheets.
    """
    distributions: dict[str, BaseDistribution] = {}
    for sheet in sheets:
        distributions |= sheet.distributions
    lines = [_scaled(line) for line in costs.T]
    return np.stack([*(_apart(distribution, [sheet.params.get(name) for sheet in sheets])
                       for name, distribution in distributions.items()),
                     *((2 * (line[:, None] - line[None])) ** 2 for line in lines),
                     *([] if distributions or lines else [np.zeros((len(sheets), len(sheets)))])])


def _scaled(line: Array) -> Array:
    """The logarithms of costs, where they have some, in units of their range."""
    line = np.log(np.maximum(line, 1e-12)) if (line > 0).any() else line
    span = float(np.ptp(line))
    return line / (span or 1.0)


def _apart(distribution: BaseDistribution, values: Sequence[Any]) -> Array:
    """(sheets, sheets) squared distances of the values of one parameter."""
    there = np.array([value is not None for value in values])
    if isinstance(distribution, CategoricalDistribution):
        text = np.array([repr(value) for value in values])
        square = (text[:, None] != text[None]).astype(float)
        there[:] = there | (None in distribution.choices)
    else:
        line = _places(distribution, values)
        square = ((line[:, None] - line[None]) * 2) ** 2
    square = np.where(there[:, None] & there[None], square, ABSENT)
    return np.where(~there[:, None] & ~there[None], 0.0, square)


def _places(distribution: Any, values: Sequence[Any]) -> Array:
    """Where in 0 … 1 numbers lie in their range, in logarithms where that is how they are drawn."""
    line = np.array([distribution.low if value is None else value for value in values], float)
    ends = np.array([distribution.low, distribution.high], float)
    if distribution.log:
        line, ends = np.log(line), np.log(ends)
    return np.asarray((line - ends[0]) / (float(np.ptp(ends)) or 1.0))


class Surrogate:
    """Fitted to the first ``len(scores)`` of the points of ``squares``; predicts the others.

    Args:
        squares: (coordinates, points, points) squared distances.
        scores: of the points that are known, in any unit.
        doubt: of each, how much of the scores' variance its value may be off by, besides the common noise.
    """

    def __init__(self, squares: Array, scores: Array, doubt: Array) -> None:
        self.known = len(scores)
        self.mean, self.unit = float(scores.mean()), float(scores.std()) or 1.0
        self.scores, self.doubt = (scores - self.mean) / self.unit, doubt
        self.squares = squares
        self.weights, self.noise = self._fit()
        self.together = np.tensordot(self.weights, squares, 1)  # (points, points)

    def predict(self, which: slice | NDArray[np.intp], also: NDArray[np.intp] | None = None) -> tuple[Array, Array]:
        """Mean and standard deviation at ``which`` points.

        Args:
            also: points in training, believed to come to what is predicted of them; they lessen doubt around them.
        """
        inside = np.arange(self.known)
        scores, doubt = self.scores, self.doubt
        if also is not None and len(also):
            expected = (self.predict(also)[0] - self.mean) / self.unit
            inside = np.concatenate([inside, also])
            scores, doubt = np.concatenate([scores, expected]), np.concatenate([doubt, np.zeros(len(also))])
        near = matern(self.together[which][:, inside])
        root = cholesky(matern(self.together[inside][:, inside]) + np.diag(self.noise + doubt), lower=True)
        half = solve_triangular(root, near.T, lower=True)
        mean = half.T @ solve_triangular(root, scores, lower=True)
        spread = np.sqrt(np.maximum(1 - (half**2).sum(0), 1e-9))
        return mean * self.unit + self.mean, spread * self.unit

    def _fit(self) -> tuple[Array, float]:
        """Weights of the coordinates and the noise, by coordinate ascent of the likelihood."""
        inside = self.squares[:, : self.known, : self.known]
        weights, noise = np.full(len(inside), 0.1), 1e-2
        together = np.tensordot(weights, inside, 1)
        best = self._likelihood(together, weights, noise)
        for at in (coordinate for coordinate in range(len(weights)) if inside[coordinate].any()):
            for value in SCALES:
                tried = weights.copy()
                tried[at] = value
                moved = together + (value - weights[at]) * inside[at]
                if (found := self._likelihood(moved, tried, noise)) > best:
                    best, weights, together = found, tried, moved
        for value in NOISES:
            if (found := self._likelihood(together, weights, value)) > best:
                best, noise = found, value
        return weights, noise

    def _likelihood(self, together: Array, weights: Array, noise: float) -> float:
        covariance = matern(together)
        covariance[np.diag_indices(self.known)] += noise + self.doubt
        try:
            root = cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return -math.inf
        half = solve_triangular(root, self.scores, lower=True, check_finite=False)
        # Few points fit anything: a weight must earn its place.
        return float(-0.5 * half @ half - np.log(np.diag(root)).sum() - 0.1 * np.log1p(weights).sum())


def matern(squares: Array) -> Array:
    """The Matérn 5/2 kernel of squared distances."""
    far = np.sqrt(5 * np.maximum(squares, 0))
    return np.asarray((1 + far + far**2 / 3) * np.exp(-far))
