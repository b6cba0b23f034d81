"""Means, differences of means and rank correlations, with confidence intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

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


def kendall_tau_interval(table: NDArray[np.float64], confidence: float,
                         seed: int = 0) -> ConfidenceInterval | None:
    """:func:`kendall_tau` of ``table`` (n, 2) with a percentile bootstrap over rows."""
    value = kendall_tau(table)
    if value is None:
        return None
    low, high = np.quantile(bootstrap_kendall_taus(table, seed),
                            [(1 - confidence) / 2, (1 + confidence) / 2])
    return ConfidenceInterval(value, float(low), float(high))


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


def kendall_tau(table: NDArray[np.float64]) -> float | None:
    """Kendall's tau-b of two columns (n, 2); None if n < 3 or a column is constant."""
    if len(table) < MIN_ROWS_FOR_TAU:
        return None
    from scipy import stats  # takes half a second, so only audits import it

    value = float(stats.kendalltau(table[:, 0], table[:, 1]).statistic)
    return None if np.isnan(value) else value


def bootstrap_kendall_taus(table: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """(at most N_RESAMPLES,) Kendall's tau-b of resampled rows of ``table`` (n, 2).

    It is computed from the signs of all pairs of rows. Resamples with a constant column are
    excluded.
    """
    x_signs, y_signs = (np.sign(column[:, None] - column[None])  # (n, n)
                        for column in np.where(np.isinf(table), 1e300, table).T)
    counts = np.random.default_rng(seed).multinomial(
        len(table), np.full(len(table), 1 / len(table)), N_RESAMPLES)
    pairs = [np.einsum("di,ij,dj->d", counts, signs, counts, optimize=True)
             for signs in (x_signs * y_signs, x_signs * x_signs, y_signs * y_signs)]
    is_defined = (pairs[1] > 0) & (pairs[2] > 0)
    taus: NDArray[np.float64] = (pairs[0][is_defined]
                                 / np.sqrt(pairs[1][is_defined] * pairs[2][is_defined]))
    return taus
