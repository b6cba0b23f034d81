"""Means, differences of means and rank correlations, with confidence intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalesearch.pareto.noise import pool_noise

N_RESAMPLES = 2000  # of the bootstrap
MIN_ROWS_FOR_TAU = 3  # rows below which no rank correlation is computed


@dataclass(frozen=True)
class ConfidenceInterval:
    """Estimate with its confidence interval.

    ``low`` and ``high`` are None if it is unknown.
    """

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.3g}" + ("" if self.low is None
                                      else f" ({self.low:.3g} to {self.high:.3g})")


def mean_interval(values: Sequence[float], confidence: float) -> ConfidenceInterval:
    """Mean with Student's t interval."""
    value = float(np.mean(values))
    if len(values) < 2 or not np.isfinite(value):
        return ConfidenceInterval(value)
    half = pool_noise([values]).interval_half_width(confidence, len(values))
    return ConfidenceInterval(value, value - half, value + half)


def welch_interval(first: Sequence[float], second: Sequence[float],
                   confidence: float) -> ConfidenceInterval | None:
    """Difference of two means with Welch's interval; None if either sample is empty."""
    if not first or not second:
        return None
    value = float(np.mean(first) - np.mean(second))
    if len(first) < 2 or len(second) < 2 or np.std(first) + np.std(second) < 1e-12:
        return ConfidenceInterval(value)
    from scipy import stats

    between = stats.ttest_ind(first, second, equal_var=False).confidence_interval(confidence)
    return ConfidenceInterval(value, float(between.low), float(between.high))


def percentile_interval(value: float, samples: ArrayLike, confidence: float) -> ConfidenceInterval:
    """Percentile bootstrap interval of ``value``, extended to contain it."""
    low, high = np.quantile(samples, [(1 - confidence) / 2, (1 + confidence) / 2])
    return ConfidenceInterval(value, min(float(low), value), max(float(high), value))


def kendall_tau_interval(table: NDArray[np.float64], confidence: float,
                         groups: NDArray[np.int_] | None = None) -> ConfidenceInterval | None:
    """:func:`kendall_tau` of ``table`` (n, 2) with a percentile bootstrap over rows."""
    value = kendall_tau(table, groups)
    if value is None:
        return None
    return percentile_interval(value, bootstrap_kendall_taus(table, 0, groups), confidence)


def spearman_rho(x: ArrayLike, y: ArrayLike) -> float | None:
    """Spearman's rank correlation of ``x`` (n,) and ``y`` (n,).

    It is None if one of them is constant.
    """
    columns = np.array([x, y], dtype=float)
    if not np.ptp(columns, axis=1).all():
        return None
    ranks = []
    for column in columns:
        sorted_column = np.sort(column)
        # Equal values have their mean rank.
        ranks.append((np.searchsorted(sorted_column, column, "left")
                      + np.searchsorted(sorted_column, column, "right")) / 2)
    return float(np.clip(np.corrcoef(ranks)[0, 1], -1, 1))


def kendall_tau(table: NDArray[np.float64], groups: NDArray[np.int_] | None = None) -> float | None:
    """Kendall's tau-b of two columns (n, 2); None if n < 3 or a column is constant.

    Args:
        table: the two columns.
        groups: (n,) group of each row; only pairs of the same group count. By default all pairs.
    """
    if len(table) < MIN_ROWS_FOR_TAU:
        return None
    taus = _resampled_taus(table, np.ones((1, len(table))), groups)
    return float(taus[0]) if len(taus) else None


def bootstrap_kendall_taus(table: NDArray[np.float64], seed: int,
                           groups: NDArray[np.int_] | None = None) -> NDArray[np.float64]:
    """(at most N_RESAMPLES,) :func:`kendall_tau` of resampled rows of ``table`` (n, 2).

    Resamples with a constant column are excluded.
    """
    return _resampled_taus(table, resample_counts(len(table), seed), groups)


@lru_cache(maxsize=2)  # the proxies of a table have the same number of rows
def resample_counts(n_rows: int, seed: int) -> NDArray[np.float64]:
    """(N_RESAMPLES, n_rows) how often each bootstrap resample contains each row."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(n_rows, np.full(n_rows, 1 / n_rows), N_RESAMPLES).astype(float)


def _resampled_taus(table: NDArray[np.float64], counts: NDArray[np.float64],
                    groups: NDArray[np.int_] | None) -> NDArray[np.float64]:
    """Tau-b of each resample from the signs of all pairs of rows; undefined ones are excluded.

    Numbers of pairs are exact in float32 for up to 4,000 rows.
    """
    x_signs, y_signs = (np.sign(column[:, None] - column[None]).astype(np.float32)  # (n, n)
                        for column in np.where(np.isinf(table), 1e300, table).T)
    counts = counts.astype(np.float32)
    if groups is not None:
        is_counted = groups[:, None] == groups[None]
        x_signs = x_signs * is_counted
        y_signs = y_signs * is_counted
    pairs = [((counts @ signs) * counts).sum(1)
             for signs in (x_signs * y_signs, x_signs**2, y_signs**2)]
    is_defined = (pairs[1] > 0) & (pairs[2] > 0)
    return np.clip(pairs[0][is_defined] / np.sqrt(pairs[1][is_defined] * pairs[2][is_defined]),
                   -1, 1)
