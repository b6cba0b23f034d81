"""Rank correlation of early measurements with the final metric, with intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from scalesearch.report.intervals import spearman_rho

MIN_TRIALS = 5  # finished trials below which no correlation is reported
PROXY_LABELS = {  # column to label; zero-cost proxies are defined in train/proxies.py
    "params.decoder": "decoder params", "params.total": "all params", "macs.total": "MACs",
    "proxy.first_loss": "first validation loss", "proxy.synflow": "SynFlow", "proxy.snip": "SNIP",
    "proxy.grad_norm": "gradient norm",
}
NORMAL_QUANTILE_95 = 1.959963984540054


@dataclass(frozen=True)
class Correlation:
    """Spearman's ``rho`` of a proxy with the final metric, with its 95 % interval.

    It is significant if the interval excludes 0.
    """

    proxy: str
    n_trials: int
    rho: float
    low: float
    high: float
    significant: bool

    def describe(self) -> str:
        """Describe the correlation in a line for a terminal."""
        note = "" if self.significant else ": not significant"
        return (f"{PROXY_LABELS.get(self.proxy, self.proxy)}: {self.rho:+.2f} ({self.low:+.2f} to "
                f"{self.high:+.2f}){note}")


@dataclass(frozen=True)
class ProxyCorrelations:
    """Correlations of all proxies with ``metric``.

    Attributes:
        trials: number of finished trials.
        correlations: empty if there are fewer than ``needed`` trials.
    """

    metric: str
    trials: int
    correlations: tuple[Correlation, ...]
    needed: int = MIN_TRIALS

    @property
    def has_too_few_trials(self) -> bool:
        """Whether there are too few trials to report anything."""
        return self.trials < self.needed

    def lines(self) -> list[str]:
        """Lines for a terminal."""
        if self.has_too_few_trials:
            return ["Early measurements: a rank correlation with the final "
                    f"{self.metric} needs {self.needed} finished trials; there are {self.trials}."]
        lower_counts = {correlation.n_trials
                        for correlation in self.correlations} - {self.trials}
        minimum = f" (some over {min(lower_counts)})" if lower_counts else ""
        return [f"Early measurements: rank correlation with the final {self.metric} over "
                f"{self.trials} finished trials{minimum}, with its 95 % interval",
                *(f"  {correlation.describe()}" for correlation in self.correlations)]


def compute_proxy_correlations(table: pd.DataFrame, metric: str) -> ProxyCorrelations:
    """Compute the correlation of each proxy in a study's table with ``metric``.

    Args:
        table: a row per trial (see :func:`scalesearch.report.table.trials_frame`).
        metric: a column of ``table``.

    Returns:
        The correlations; empty for fewer than ``MIN_TRIALS`` finished trials.
    """
    if metric not in table or "state" not in table:
        return ProxyCorrelations(metric, 0, ())
    finished = table[(table["state"] == "complete") & np.isfinite(pd.to_numeric(table[metric]))]
    if len(finished) < MIN_TRIALS:
        return ProxyCorrelations(metric, len(finished), ())
    correlations = []
    for name in PROXY_LABELS:
        if name not in finished:
            continue
        values = pd.to_numeric(finished[name])
        measured = finished[np.isfinite(values)]
        correlation = rank_correlation(name, values[measured.index].to_numpy(float),
                                       measured[metric].to_numpy(float))
        if correlation is not None:
            correlations.append(correlation)
    return ProxyCorrelations(metric, len(finished), tuple(correlations))


def rank_correlation(name: str, values: Any, scores: Any) -> Correlation | None:
    """Spearman's correlation of ``values`` (n,) and ``scores`` (n,).

    The interval is Fisher's, with the variance 1.06 / (n - 3) for ranks (Fieller et al., 1957). A
    perfect order has no such interval. Its interval is centered on the next lower value that n
    ranks can have.

    Returns:
        None if there are fewer than ``MIN_TRIALS`` values, or a column is constant.
    """
    count = len(values)
    rho = spearman_rho(values, scores) if count >= MIN_TRIALS else None
    if rho is None:
        return None
    max_rho = 1 - 12 / (count**3 - count)
    center = math.atanh(max(-max_rho, min(max_rho, rho)))
    half_width = NORMAL_QUANTILE_95 * math.sqrt(1.06 / (count - 3))
    low = math.tanh(center - half_width)
    high = math.tanh(center + half_width)
    low = min(low, rho)
    high = max(high, rho)
    return Correlation(name, count, rho, low, high, low > 0 or high < 0)
