"""A Gaussian process over coordinates: what an untried sheet may score, and how sure that is.

A Matérn 5/2 kernel with one length scale a group of coordinates, beside lines of unit variance in
the trends. Scales and noise are those of the highest posterior density (Rasmussen & Williams 2006,
section 5.4.1), by L-BFGS; without priors a few points fit anything. What repeated measurements say
of the noise counts as what it is, a likelihood.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from scalesearch.pareto.noise import Noise
from scalesearch.samplers.bayes.coordinates import Array, Coordinates

MAX_FIT_POINTS = 128  # points that scales are found by, spread evenly over all
MIN_NOISE = 1e-6  # share of the variance
JITTER = 1e-6  # by which correlations may be off, for rounding
UNKNOWN_NOISE = Noise()
RATE_PRIOR_STRENGTH = 0.6  # strength of the belief that rates are near 1


class Surrogate:
    """Fitted to ``scores`` (points,) of any unit at ``observed``.

    Args:
        counts: (points,) measurements of which each score is the mean; 1 unless given.
        noise: of measurements at one point, in the scores' unit, where some were repeated.
    """

    def __init__(self, observed: Coordinates, scores: Array, counts: Array | None = None,
                 noise: Noise = UNKNOWN_NOISE) -> None:
        self.known = observed
        self.spread = noise
        self.counts = np.ones(len(scores)) if counts is None else counts
        self.mean = float(scores.mean())
        self.unit = float(scores.std()) or 1.0
        self.scores = (scores - self.mean) / self.unit
        self.rates, self.scale, self.noise = self._fit()

    def predict(
            self, points: Coordinates, pending: Coordinates | None = None) -> tuple[Array, Array]:
        """Mean and standard deviation (points,) of what is measured without noise at ``points``.

        Args:
            pending: in training, and believed to come to what is predicted of them; they lessen
                doubt around them.
        """
        known = self.known
        scores = self.scores
        counts = self.counts
        if pending is not None and len(pending.points):
            expected = (self.predict(pending)[0] - self.mean) / self.unit
            known = known + pending
            scores = np.concatenate([scores, expected])
            counts = np.concatenate([counts, np.ones(len(expected))])
        root = cholesky(self._kernel(known, known) + np.diag(self.noise / counts), lower=True)
        half = solve_triangular(root, self._kernel(known, points), lower=True)
        mean = half.T @ solve_triangular(root, scores, lower=True)
        variance = self.scale + (points.trends**2).sum(1) - (half**2).sum(0)
        return mean * self.unit + self.mean, np.sqrt(np.maximum(variance, 1e-12)) * self.unit

    def correlation_root(self, new: Coordinates) -> Array:
        """(points, points) lower root of the posterior's correlations, noise left out."""
        root = cholesky(self._kernel(self.known, self.known) + np.diag(self.noise / self.counts),
                        lower=True)
        half = solve_triangular(root, self._kernel(self.known, new), lower=True)
        found = self._kernel(new, new) - half.T @ half
        scale = np.sqrt(np.maximum(np.diag(found), 1e-12))
        correlations = found / np.outer(scale, scale)
        np.fill_diagonal(correlations, 1 + JITTER)
        return np.asarray(cholesky(correlations, lower=True))

    def _kernel(self, left: Coordinates, right: Coordinates) -> Array:
        weights = np.sqrt(self.rates[self.known.groups])
        squares = cdist(left.points * weights, right.points * weights, "sqeuclidean")
        return self.scale * matern(squares) + left.trends @ right.trends.T

    def _fit(self) -> tuple[Array, float, float]:
        """Inverse squared length scale of each group, variance of the process, and noise."""
        rows = _even_indices(len(self.scores), MAX_FIT_POINTS)
        told = (self.spread.sd / self.unit) ** 2, self.spread.df
        found = _Posterior(self.known[rows], self.scores[rows], self.counts[rows], *told)
        start = np.concatenate([np.zeros(found.groups), [0.0, np.log(1e-2)]])
        best = minimize(found, start, jac=True, method="L-BFGS-B",
                        bounds=[(-7.0, 7.0)] * len(start), options={"maxiter": 60, "ftol": 1e-5}).x
        return np.exp(best[:-2]), float(np.exp(best[-2])), float(np.exp(best[-1])) + MIN_NOISE


class _Posterior:
    """Negative log posterior density, less a constant, of the logarithms of rates, scale and noise; its gradient.

    ``variance`` of repeated measurements is known with ``df`` degrees of freedom.
    """

    def __init__(self, observed: Coordinates, scores: Array, counts: Array, variance: float,
                 df: int) -> None:
        self.known = observed
        self.scores = scores
        self.counts = counts
        self.variance = variance
        self.df = df
        self.groups = int(observed.groups.max()) + 1

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        one, other = np.triu_indices(len(self.scores), 1)
        return one, other

    @cached_property
    def squares(self) -> Array:
        """(groups, pairs) squared distances."""
        one, other = self.pairs
        columns = (self.known.points[one] - self.known.points[other]) ** 2
        return np.stack([columns[:, self.known.groups == group].sum(1)
                         for group in range(self.groups)])

    def __call__(self, logs: Array) -> tuple[float, Array]:
        rates = np.exp(logs[:-2])
        scale = float(np.exp(logs[-2]))
        noise = float(np.exp(logs[-1]))
        far = np.sqrt(5 * (rates @ self.squares))
        decay = np.exp(-far)
        apart = scale * (1 + far + far**2 / 3) * decay
        kernel = np.diag(scale + (noise + MIN_NOISE) / self.counts)
        kernel[self.pairs] = kernel.T[self.pairs] = apart
        kernel += self.known.trends @ self.known.trends.T
        try:
            root = cholesky(kernel, lower=True, check_finite=False)
        except LinAlgError:
            return 1e10, np.zeros(len(logs))
        weights = cho_solve((root, True), self.scores)
        # d/dK of the negative log likelihood; each pair stands for two entries of the matrix.
        slope = 0.5 * (cho_solve((root, True), np.eye(len(root))) - np.outer(weights, weights))
        pairs = 2 * slope[self.pairs]
        by_rate = rates * (self.squares @ (pairs * scale * (-5 / 6) * (1 + far) * decay))
        by_scale = pairs @ apart + scale * np.trace(slope)
        value = np.log(np.diag(root)).sum() + 0.5 * self.scores @ weights
        by_noise = noise * (np.diag(slope) / self.counts).sum()
        prior, by_prior = _prior(rates, scale, noise)
        told = self.variance / (noise + MIN_NOISE)
        value += self.df / 2 * (np.log(noise + MIN_NOISE) + told)
        by_noise += self.df / 2 * (1 - told) * noise / (noise + MIN_NOISE)
        return float(value - prior), np.concatenate([by_rate, [by_scale], [by_noise]]) - by_prior


def _prior(rates: Array, scale: float, noise: float) -> tuple[float, Array]:
    """Log density, less a constant, and its slope by the logarithms.

    Of Optuna's form, with rates kept nearer to 1 and more noise allowed for: Gamma(2, 1) of the
    scale, Gamma(2, 10) of the noise. Chosen by benchmarks/calibration.py; with Optuna's own numbers
    a few points are trusted too much.
    """
    value = -RATE_PRIOR_STRENGTH * (
        1 / rates + rates).sum() + np.log(scale) - scale + np.log(noise) - 10 * noise
    return float(value), np.concatenate([RATE_PRIOR_STRENGTH * (1 / rates - rates), [1 - scale],
                                         [1 - 10 * noise]])


def _even_indices(count: int, most: int) -> NDArray[np.intp]:
    """At most so many places among ``count``, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.intp))


def matern(squares: Array) -> Array:
    """The Matérn 5/2 kernel of squared distances."""
    far = np.sqrt(5 * np.maximum(squares, 0))
    return np.asarray((1 + far + far**2 / 3) * np.exp(-far))
