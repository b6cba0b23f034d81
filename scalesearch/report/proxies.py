"""Audit of proxies: how well a cheap measurement predicts the final score, with intervals.

A proxy is a number per architecture that is known before or early in its training: a size, a depth,
a loss at a rung, a zero-cost score, a predicted loss, or a column of a user's table.

Notation: s is the score and p the proxy of n architectures, both with the sign such that larger is
better; c is their cost.

- rho, tau: Spearman's rank correlation and Kendall's tau-b of p and s.
- tau at equal cost: tau-b over the pairs in the same quantile group of c. Pairs of all groups are
  pooled. There are min(10, n // 3) groups; equal costs are in the same group.
- error: mean of abs(s_i - a_i - b_i p_i); the line a_i, b_i is fitted to all architectures but i. A
  positive proxy that spans more than a factor of ten enters as its logarithm.
- The front F are the architectures that no other dominates in (s, c). The proxy chooses as many
  architectures P: the front in (p, c), or evenly spaced members of it if it is too large, filled up
  from the next fronts. A proxy that equals the cost does not profit from a front with all points.
- recall: share of F in P. regret: 1 - H(P) / H(F) with the hypervolume H of (s, c).

Intervals resample architectures (percentile bootstrap). Those of the error resample its terms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalesearch.errors import UserError
from scalesearch.pareto.front import default_reference_point
from scalesearch.pareto.noise import CONFIDENCE
from scalesearch.report.intervals import (
    ConfidenceInterval,
    kendall_tau_interval,
    percentile_interval,
    resample_counts,
    spearman_rho,
)
from scalesearch.report.table import PARAM_PREFIX
from scalesearch.samplers.proxy import scale_proxy
from scalesearch.tasks import EFFICIENCY_METRICS, METRICS

Array = NDArray[np.float64]
MIN_TRIALS = 5  # finished trials below which no correlation is reported
MAX_AUDITED = 500  # architectures; larger tables are sampled, because each resample reads all pairs
N_COST_GROUPS = 10
CURVE_SHARES = (0.1, 0.25, 0.5)  # shares of a learning curve whose losses are proxies
DEFAULT_COST = "params.total"
PROXY_LABELS = {  # column to label; zero-cost proxies are defined in train/proxies.py
    "params.decoder": "decoder params", "params.total": "all params", "macs.total": "MACs",
    "proxy.first_loss": "first validation loss", "proxy.synflow": "SynFlow", "proxy.snip": "SNIP",
    "proxy.grad_norm": "gradient norm", "predicted.loss": "predicted loss",
    "param.encoder.depth": "encoder depth", "param.decoder.depth": "decoder depth",
}
OTHER_PROXY = re.compile(r"(proxy|predicted)\..*")  # further columns of a study that are proxies
LOSS_NAME = re.compile(r"(.*[._ -])?(loss|ppl|perplexity|nll)([._ -].*)?")
NORMAL_QUANTILE = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True)
class Correlation:
    """Spearman's ``rho`` of a proxy with the final metric, with its 90 % interval.

    Both have the sign such that larger is better. It is significant if the interval excludes 0.
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
        return (f"{proxy_label(self.proxy)}: {self.rho:+.2f} ({self.low:+.2f} to "
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

    def lines(self) -> list[str]:
        """Lines for a terminal."""
        if self.trials < self.needed:
            return ["Early measurements: a rank correlation with the final "
                    f"{self.metric} needs {self.needed} finished trials; there are {self.trials}."]
        lower_counts = {correlation.n_trials for correlation in self.correlations} - {self.trials}
        minimum = f" (some over {min(lower_counts)})" if lower_counts else ""
        return [f"Early measurements: rank correlation with the final {self.metric} over "
                f"{self.trials} finished trials{minimum}, with its 90 % interval; positive if "
                "better measurements have better scores",
                *(f"  {correlation.describe()}" for correlation in self.correlations)]


@dataclass(frozen=True)
class AuditedProxy:
    """Measures of one proxy; see the module's docstring.

    Attributes:
        proxy: column of the table.
        n: number of architectures that have the proxy.
        rho: Spearman's rank correlation.
        tau: Kendall's tau.
        tau_at_equal_cost: tau within groups of equal cost; None if no pair differs.
        n_pairs: number of pairs with equal cost.
        error: mean absolute error after calibration, in units of the score.
        recall: share of the front that the proxy chooses.
        regret: share of the hypervolume that is lost by its choice.
    """

    proxy: str
    n: int
    rho: float
    tau: ConfidenceInterval
    tau_at_equal_cost: ConfidenceInterval | None
    n_pairs: int
    error: ConfidenceInterval
    recall: ConfidenceInterval
    regret: ConfidenceInterval


@dataclass(frozen=True)
class ProxyAudit:
    """Audit of all proxies of a table.

    Attributes:
        metric, cost: columns of the score and of the cost.
        n: number of architectures.
        n_available: number of architectures in the table; larger than ``n`` if it was sampled.
        front: number of architectures on the front.
        mean_error: mean absolute error without a proxy: of the mean of the other scores.
        confidence: confidence level of the intervals.
        proxies: empty if there are fewer than ``needed`` architectures.
    """

    metric: str
    cost: str
    n: int
    n_available: int
    front: int
    mean_error: float
    confidence: float
    proxies: tuple[AuditedProxy, ...]
    needed: int = MIN_TRIALS

    def lines(self) -> list[str]:
        """Sentences that a reader of the table needs."""
        if self.n < self.needed:
            return [f"An audit of proxies needs {self.needed} finished trials with {self.metric} "
                    f"and {self.cost}; there are {self.n}."]
        sampled = f" (a sample of {self.n_available:,})" if self.n < self.n_available else ""
        return [f"{self.n:,} architectures{sampled}; score {self.metric}, cost {self.cost}. "
                f"Intervals: {100 * self.confidence:g} %.",
                f"For comparison, without a proxy: the mean score has an error of "
                f"{self.mean_error:.3g}; a random choice recalls {self.front / self.n:.3g} of "
                f"the front ({self.front} architectures)."]


def proxy_label(name: str) -> str:
    """Label of a proxy's column."""
    return PROXY_LABELS.get(name, name.removeprefix("proxy.").removeprefix(PARAM_PREFIX))


def split_direction(name: str) -> tuple[str, float]:
    """Split a column and its direction, such as ``bits:min``.

    Returns:
        The name, and 1 if larger values are better, else -1. By default, smaller values of losses
        and of metrics that are minimized are better. Larger values of all other columns are better,
        because larger models have better scores.
    """
    column, _, direction = name.rpartition(":")
    if column and direction in ("min", "max"):
        return column, 1.0 if direction == "max" else -1.0
    metric = METRICS.get(name.removeprefix("test."))
    is_score = metric is not None and name not in EFFICIENCY_METRICS
    is_minimized = metric.direction == "min" if is_score else bool(LOSS_NAME.fullmatch(name))
    return name, -1.0 if is_minimized else 1.0


def finished_trials(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Rows of complete trials with a finite ``metric``; empty if the column is missing."""
    if metric not in table or "state" not in table:
        return table.iloc[:0]
    return table[(table["state"] == "complete") & np.isfinite(pd.to_numeric(table[metric]))]


def proxy_columns(table: pd.DataFrame) -> list[str]:
    """Columns of a study's table that are proxies."""
    labeled = [name for name in PROXY_LABELS if name in table]
    return labeled + [name for name in table if OTHER_PROXY.fullmatch(name) and name not in labeled]


def compute_proxy_correlations(table: pd.DataFrame, metric: str) -> ProxyCorrelations:
    """Compute the correlation of each proxy in a study's table with ``metric``.

    Args:
        table: a row per trial (see :func:`scalesearch.report.table.trials_frame`).
        metric: a column of ``table``.

    Returns:
        The correlations; empty for fewer than ``MIN_TRIALS`` finished trials.
    """
    finished = finished_trials(table, metric)
    correlations = []
    for name in proxy_columns(finished) if len(finished) >= MIN_TRIALS else ():
        values, scores = _finite_columns(finished, name, metric).T
        correlation = rank_correlation(name, values * split_direction(name)[1],
                                       scores * split_direction(metric)[1])
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
    half_width = NORMAL_QUANTILE * math.sqrt(1.06 / (count - 3))
    low = math.tanh(center - half_width)
    high = math.tanh(center + half_width)
    low = min(low, rho)
    high = max(high, rho)
    return Correlation(name, count, rho, low, high, low > 0 or high < 0)


# -- audit


def read_table(file: Path) -> pd.DataFrame:
    """Read a table of trained architectures, a row each.

    Lines that start with ``#`` before the header are skipped. Rows with a true ``failed`` are
    dropped. A column ``curve`` with losses at equal intervals of the run, separated by spaces, adds
    the lowest loss up to some shares of the run.

    Raises:
        UserError: the file cannot be read as CSV.
    """
    try:
        with file.open() as lines:
            n_comments = next((number for number, line in enumerate(lines) if line[0] != "#"), 0)
        table = pd.read_csv(file, skiprows=n_comments)
        if "failed" in table:
            table = table[table["failed"].astype(str).str.lower() != "true"]
        curves = [[float(loss) for loss in text.split()]
                  for text in table.get("curve", pd.Series()).astype(str)]
    except (OSError, ValueError) as error:  # also of pandas, of decoding and of numbers
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{file}: cannot be read as CSV: {reason}", code="cannot-read") from None
    table = table.rename(columns=lambda name: re.sub("^asked ", PARAM_PREFIX, name))
    for share in CURVE_SHARES if "curve" in table else ():
        table[f"loss at {share:.0%}"] = [
            min(curve[:math.ceil(share * len(curve))], default=math.nan) for curve in curves]
    return table.reset_index(drop=True)


def audit_proxies(table: pd.DataFrame, metric: str, cost: str, proxies: Iterable[str] = (),
                  confidence: float = 0.9) -> ProxyAudit:
    """Audit proxies of architectures.

    Args:
        table: a row per architecture.
        metric: column of the score; ``:min`` or ``:max`` may follow each name.
        cost: column of the cost. It is also the first proxy.
        proxies: columns of the proxies, by default all numbers. Constant columns are ignored. The
            prefix ``param.`` may be omitted.
        confidence: confidence level of the intervals.

    Raises:
        UserError: a column is missing.
    """
    metric, sign = split_direction(metric)
    proxies = list(proxies) or list(table.select_dtypes("number").drop(columns=metric,
                                                                       errors="ignore"))
    directions = {}
    for name, direction in map(split_direction, (cost, *proxies)):
        param = PARAM_PREFIX + name
        directions[param if name not in table and param in table else name] = direction
    missing = [name for name in (metric, *directions) if name not in table]
    if missing:
        raise UserError(f"the table has no column {', '.join(missing)}; its columns are "
                        f"{', '.join(table)}", code="unknown-metric")
    cost = next(iter(directions))
    n_available = len(_finite_columns(table, metric, cost))
    if n_available > MAX_AUDITED:
        table = table.sample(MAX_AUDITED, random_state=0)
    columns = _finite_columns(table, metric, cost)
    n = len(columns)
    scores = columns[:, 0] * sign
    audited = []
    for name, direction in directions.items():
        rows = _finite_columns(table, metric, cost, name)
        if len(rows) >= MIN_TRIALS and np.ptp(rows[:, [0, 2]], axis=0).all():
            audited.append(_audit_proxy(name, rows[:, 0] * sign, rows[:, 1], rows[:, 2], direction,
                                        confidence))
    front = _front(scores, columns[:, 1], np.ones((1, n), bool)) if n else np.zeros((1, 0), bool)
    mean_error = float(np.abs(scores - scores.mean()).mean() * n / (n - 1)) if n > 1 else math.nan
    return ProxyAudit(metric, cost, n, n_available, int(front.sum()), mean_error, confidence,
                      tuple(audited) if n >= MIN_TRIALS else ())


def _audit_proxy(name: str, scores: Array, costs: Array, values: Array, direction: float,
                 confidence: float) -> AuditedProxy:
    """Compute the measures of one proxy from columns (n,); ``scores`` have their sign already."""
    n = len(scores)
    groups = np.searchsorted(np.quantile(costs, np.linspace(0, 1, min(N_COST_GROUPS, n // 3) + 1)
                                         [1:-1]), costs, "left")
    ranked = np.column_stack([values * direction, scores])
    tau = kendall_tau_interval(ranked, confidence)
    assert tau is not None, "the columns are not constant"
    counts = resample_counts(n, 0)
    errors = np.abs(leave_one_out_residuals(values, scores))
    # The first row is the table itself.
    is_present = np.vstack([np.ones((1, n), bool), counts > 0])
    front = _front(scores, costs, is_present)
    chosen = _choose(values * direction, costs, is_present, front.sum(1))
    recalls = (front & chosen).sum(1) / front.sum(1)
    volumes = [_hypervolumes(scores, costs, members) for members in (chosen, front)]
    regrets = 1 - volumes[0] / volumes[1]
    return AuditedProxy(
        name, n, float(spearman_rho(values * direction, scores) or 0), tau,
        kendall_tau_interval(ranked, confidence, groups=groups),
        int(sum(size * (size - 1) // 2 for size in np.bincount(groups))),
        percentile_interval(float(errors.mean()), counts @ errors / n, confidence),
        percentile_interval(float(recalls[0]), recalls[1:], confidence),
        percentile_interval(float(regrets[0]), regrets[1:], confidence))


def leave_one_out_residuals(values: Array, scores: Array) -> Array:
    """Residual (n,) of each score from the line through the other points.

    By the leverage h of each point: the residual of the line through all points, over 1 - h.
    """
    values = scale_proxy(values)
    x = values - values.mean()
    y = scores - scores.mean()
    leverage = 1 / len(x) + x**2 / (x @ x)
    return np.asarray((y - x * (x @ y) / (x @ x)) / np.maximum(1 - leverage, 1e-9))


def _front(values: Array, costs: Array, is_present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Non-dominated points of each subset: larger values, lower costs; one of equal points.

    Args:
        values, costs: (n,).
        is_present: (subsets, n).

    Returns:
        (subsets, n).
    """
    order = np.lexsort((-values, costs))
    shown = np.where(is_present[:, order], values[order], -np.inf)
    best_before = np.maximum.accumulate(shown, axis=1)
    best_before = np.column_stack([np.full(len(shown), -np.inf), best_before[:, :-1]])
    front = np.empty_like(is_present)
    front[:, order] = shown > best_before
    return front


def _choose(values: Array, costs: Array, is_present: NDArray[np.bool_],
            sizes: NDArray[np.int_]) -> NDArray[np.bool_]:
    """Choose ``sizes`` (subsets,) points of each subset by their fronts; see the module."""
    order = np.lexsort((-values, costs))[::-1]  # the most expensive first
    chosen = np.zeros_like(is_present)
    while (left := sizes - chosen.sum(1)).any():
        front = _front(values, costs, is_present & ~chosen)[:, order]
        position = np.cumsum(front, axis=1) - 1  # in the front
        steps = np.minimum(left, front.sum(1)) - 1  # evenly spaced, with both ends
        spacing = steps / np.maximum(front.sum(1) - 1, 1)
        index = np.floor(position * spacing[:, None] + 1e-9)
        previous = np.floor((position - 1) * spacing[:, None] + 1e-9)
        chosen[:, order] |= front & ((index > previous) | (position == 0)) & (left > 0)[:, None]
    return chosen


def _hypervolumes(scores: Array, costs: Array, is_member: NDArray[np.bool_]) -> Array:
    """Hypervolume (subsets,) of the members of each subset in (score, cost).

    The reference point is that of all points.
    """
    worst_score, worst_cost = default_reference_point(np.column_stack([scores, costs]),
                                                      ["max", "min"])
    order = np.argsort(costs, kind="stable")
    shown = np.where(is_member[:, order], scores[order], worst_score)
    heights = np.diff(np.maximum.accumulate(shown, axis=1), axis=1, prepend=worst_score)
    return np.asarray(heights @ (worst_cost - costs[order]))


def _finite_columns(table: pd.DataFrame, *names: str) -> Array:
    """Columns (rows, names) as numbers, without rows that lack one of them."""
    columns = np.column_stack([
        pd.to_numeric(table[name], errors="coerce").to_numpy(float) for name in names])
    return columns[np.isfinite(columns).all(1)]
