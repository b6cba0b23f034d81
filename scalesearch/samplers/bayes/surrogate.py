"""Gaussian process over coordinates of candidates.

The kernel is a Matérn 5/2 kernel with one length scale per group of coordinates, plus a linear
kernel of unit variance in the trends. Hyperparameters maximize the posterior density (Rasmussen &
Williams 2006, section 5.4.1), by L-BFGS-B; without priors, few points fit anything. The variance of
repeated measurements enters as a likelihood of the noise.

The unit of the scores is estimated from the same points. Predictions therefore follow Student's t
distribution (Shah et al. 2014). ``interval_factor`` gives intervals their width.

Notation:

- X_obs: (n, d) coordinates of the observed points; y: (n,) scores with mean 0 and variance 1.
- rates: (groups,) inverse squared length scales.
- scale: variance of the process.
- noise: variance of one measurement; a score that is the mean of c measurements has noise / c.
- K: (n, n) covariance of the observed scores, with noise; L: its lower Cholesky factor.
"""

from __future__ import annotations

from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from scalesearch.pareto.noise import CONFIDENCE, Noise, t_quantile
from scalesearch.samplers.bayes.coordinates import Array, Coordinates

MAX_FIT_POINTS = 128  # points for the fit of the hyperparameters, spread evenly over all
MIN_NOISE = 1e-6  # share of the variance
JITTER = 1e-6  # added to the diagonal of correlations, for rounding errors
UNKNOWN_NOISE = Noise()
RATE_PRIOR_STRENGTH = 0.6  # strength of the prior that rates are near 1
RATE_BOUND = 7.0  # of the logarithms of hyperparameters
NORMAL_QUANTILE = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)


class Surrogate:
    """Gaussian process that is fitted to ``scores`` at ``observed``.

    Args:
        observed: coordinates of the observed points.
        scores: (n,) scores, in any unit.
        counts: (n,) number of measurements that each score is the mean of; by default 1.
        noise: noise of measurements at the same point, in the unit of the scores, if some were
            repeated.
    """

    def __init__(self, observed: Coordinates, scores: Array, counts: Array | None = None,
                 noise: Noise = UNKNOWN_NOISE) -> None:
        self.observed = observed
        self.counts = np.ones(len(scores)) if counts is None else counts
        self.mean = float(scores.mean())
        self.unit = float(scores.std()) or 1.0
        self.scores = (scores - self.mean) / self.unit
        # rates, scale and noise with the highest posterior density
        n_rows = len(self.scores)
        evenly_spread = np.linspace(0, n_rows - 1, min(n_rows, MAX_FIT_POINTS))
        rows = np.unique(evenly_spread.round().astype(np.intp))
        loss = _NegativeLogPosterior(observed[rows], self.scores[rows], self.counts[rows],
                                     (noise.sd / self.unit) ** 2, noise.df)
        initial = np.concatenate([np.zeros(loss.n_groups), [0.0, np.log(1e-2)]])
        best = minimize(loss, initial, jac=True, method="L-BFGS-B",
                        bounds=[(-RATE_BOUND, RATE_BOUND)] * len(initial),
                        options={"maxiter": 60, "ftol": 1e-5}).x
        self.rates = np.exp(best[:-2])
        self.scale = float(np.exp(best[-2]))
        self.noise = float(np.exp(best[-1])) + MIN_NOISE

    def predict(
            self, points: Coordinates, pending: Coordinates | None = None) -> tuple[Array, Array]:
        """Predict the scores without noise at ``points``.

        Args:
            points: coordinates of m points.
            pending: coordinates of running trials. Their predicted scores are added to the
                observations (kriging believer), which reduces the uncertainty near them.

        Returns:
            Mean and standard deviation, (m,) each.
        """
        observed = self.observed
        scores = self.scores
        counts = self.counts
        if pending is not None and len(pending.points):
            expected = (self.predict(pending)[0] - self.mean) / self.unit
            observed = observed + pending
            scores = np.concatenate([scores, expected])
            counts = np.concatenate([counts, np.ones(len(expected))])
        root = self._covariance_root(observed, counts)
        half = solve_triangular(root, self._kernel(observed, points), lower=True)
        mean = half.T @ solve_triangular(root, scores, lower=True)
        variance = self.scale + (points.trends**2).sum(1) - (half**2).sum(0)
        return mean * self.unit + self.mean, np.sqrt(np.maximum(variance, 1e-12)) * self.unit

    @property
    def noise_std(self) -> float:
        """Standard deviation of one measurement."""
        return float(self.noise**0.5 * self.unit)

    @property
    def interval_factor(self) -> float:
        """Ratio of 90 % quantiles: Student's t distribution to the normal one."""
        return t_quantile(CONFIDENCE, max(1, len(self.scores) - 1)) / NORMAL_QUANTILE

    def leave_one_out_residuals(self) -> Array:
        """Residual (n,) of each observed score from its prediction by the other scores.

        The hyperparameters are those of all scores (Rasmussen & Williams 2006, equation 5.12).
        """
        root = self._covariance_root(self.observed, self.counts)
        inverse = cho_solve((root, True), np.eye(len(root)))
        return np.asarray(inverse @ self.scores / np.diag(inverse) * self.unit)

    def correlation_root(self, points: Coordinates) -> Array:
        """Return the Cholesky factor (m, m) of posterior correlations of ``points``.

        The correlations are those of scores without noise.
        """
        root = self._covariance_root(self.observed, self.counts)
        half = solve_triangular(root, self._kernel(self.observed, points), lower=True)
        posterior = self._kernel(points, points) - half.T @ half
        std = np.sqrt(np.maximum(np.diag(posterior), 1e-12))
        correlations = posterior / np.outer(std, std)
        np.fill_diagonal(correlations, 1 + JITTER)
        return np.asarray(cholesky(correlations, lower=True))

    def _covariance_root(self, observed: Coordinates, counts: Array) -> Array:
        """Return L, the Cholesky factor of the covariance of scores at ``observed``."""
        covariance = self._kernel(observed, observed) + np.diag(self.noise / counts)
        return np.asarray(cholesky(covariance, lower=True))

    def _kernel(self, left: Coordinates, right: Coordinates) -> Array:
        weights = np.sqrt(self.rates[self.observed.groups])
        squares = cdist(left.points * weights, right.points * weights, "sqeuclidean")
        return self.scale * matern52(squares) + left.trends @ right.trends.T


class _NegativeLogPosterior:
    """Negative log posterior density and its gradient, up to a constant.

    It is a function of the logarithms of rates, scale and noise.

    Args:
        observed, scores, counts: see :class:`Surrogate`; the scores are standardized.
        variance: variance of repeated measurements.
        df: its degrees of freedom; 0 if no measurement was repeated.
    """

    def __init__(self, observed: Coordinates, scores: Array, counts: Array, variance: float,
                 df: int) -> None:
        self.observed = observed
        self.scores = scores
        self.counts = counts
        self.variance = variance
        self.df = df
        self.n_groups = int(observed.groups.max()) + 1

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Indices of the first and of the second point of each pair."""
        first, second = np.triu_indices(len(self.scores), 1)
        return first, second

    @cached_property
    def squared_distances(self) -> Array:
        """(groups, pairs) squared distances by group of coordinates."""
        first, second = self.pairs
        squares = (self.observed.points[first] - self.observed.points[second]) ** 2
        return np.stack([squares[:, self.observed.groups == group].sum(1)
                         for group in range(self.n_groups)])

    def __call__(self, logs: Array) -> tuple[float, Array]:
        rates = np.exp(logs[:-2])
        scale = float(np.exp(logs[-2]))
        noise = float(np.exp(logs[-1]))
        distances = np.sqrt(5 * (rates @ self.squared_distances))
        decay = np.exp(-distances)
        pair_covariances = scale * (1 + distances + distances**2 / 3) * decay
        kernel = np.diag(scale + (noise + MIN_NOISE) / self.counts)
        kernel[self.pairs] = kernel.T[self.pairs] = pair_covariances
        kernel += self.observed.trends @ self.observed.trends.T
        try:
            root = cholesky(kernel, lower=True, check_finite=False)
        except LinAlgError:
            return 1e10, np.zeros(len(logs))
        weights = cho_solve((root, True), self.scores)  # K⁻¹ y
        # The gradient with respect to K; each pair stands for two entries of the matrix.
        gradient = 0.5 * (cho_solve((root, True), np.eye(len(root))) - np.outer(weights, weights))
        pair_gradients = 2 * gradient[self.pairs]
        by_rate = rates * (self.squared_distances
                           @ (pair_gradients * scale * (-5 / 6) * (1 + distances) * decay))
        by_scale = pair_gradients @ pair_covariances + scale * np.trace(gradient)
        value = np.log(np.diag(root)).sum() + 0.5 * self.scores @ weights
        by_noise = noise * (np.diag(gradient) / self.counts).sum()
        # The prior has the form of Optuna's, with rates closer to 1 and more noise: Gamma(2, 1) for
        # the scale, Gamma(2, 10) for the noise. It was chosen by benchmarks/calibration.py;
        # Optuna's own constants trust few points too much.
        prior = float(-RATE_PRIOR_STRENGTH * (1 / rates + rates).sum() + np.log(scale) - scale
                      + np.log(noise) - 10 * noise)
        by_prior = np.concatenate([RATE_PRIOR_STRENGTH * (1 / rates - rates), [1 - scale],
                                   [1 - 10 * noise]])
        ratio = self.variance / (noise + MIN_NOISE)
        value += self.df / 2 * (np.log(noise + MIN_NOISE) + ratio)
        by_noise += self.df / 2 * (1 - ratio) * noise / (noise + MIN_NOISE)
        return float(value - prior), np.concatenate([by_rate, [by_scale], [by_noise]]) - by_prior


def matern52(squared_distances: Array) -> Array:
    """Return the Matérn 5/2 kernel of squared distances."""
    distances = np.sqrt(5 * np.maximum(squared_distances, 0))
    return np.asarray((1 + distances + distances**2 / 3) * np.exp(-distances))
