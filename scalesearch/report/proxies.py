"""Whether early measurements rank trials as the final metric does: Spearman's correlation, with an interval."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

MIN_TRIALS = 5  # finished trials below which no correlation is reported
PROXY_LABELS = {  # column to words; zero-cost proxies: see train/proxies.py
    "params.decoder": "decoder params", "params.total": "all params", "macs.total": "MACs",
    "proxy.first_loss": "first validation loss", "proxy.synflow": "SynFlow", "proxy.snip": "SNIP",
    "proxy.grad_norm": "gradient norm",
}
NORMAL_QUANTILE_95 = 1.959963984540054


@dataclass(frozen=True)
class Correlation:
    """Spearman's ``rho`` of one proxy with the final metric over ``n_trials``; ``low`` to ``high``: 95 % interval."""

    proxy: str
    n_trials: int
    rho: float
    low: float
    high: float

    @property
    def is_significant(self) -> bool:
        """Whether its interval excludes 0."""
        return self.low > 0 or self.high < 0

    def describe(self) -> str:
        """One line for a terminal."""
        chance = "" if self.is_significant else ": within chance"
        return (f"{PROXY_LABELS.get(self.proxy, self.proxy)}: {self.rho:+.2f} ({self.low:+.2f} to "
                f"{self.high:+.2f}){chance}")


@dataclass(frozen=True)
class ProxyCorrelations:
    """All correlations with ``metric``, over at most ``n_trials`` finished trials; none where these are too few."""

    metric: str
    n_trials: int
    correlations: tuple[Correlation, ...]

    @property
    def has_too_few_trials(self) -> bool:
        """Whether there are too few trials to report anything."""
        return self.n_trials < MIN_TRIALS

    def lines(self) -> list[str]:
        """Lines for a terminal."""
        if self.has_too_few_trials:
            return [f"Early measurements: {MIN_TRIALS} finished trials are needed to say whether "
                    f"they rank trials as {self.metric} does; there are {self.n_trials}."]
        counts = {one.n_trials for one in self.correlations} - {self.n_trials}
        least = f" (some over {min(counts)})" if counts else ""
        return [f"Early measurements: rank correlation with the final {self.metric} over "
                f"{self.n_trials} finished trials{least}, with its 95 % interval",
                *(f"  {one.describe()}" for one in self.correlations)]

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        rows = [{**asdict(one), "significant": one.is_significant} for one in self.correlations]
        return {"metric": self.metric, "trials": self.n_trials, "needed": MIN_TRIALS,
                "correlations": rows}


def compute_proxy_correlations(table: pd.DataFrame, metric: str) -> ProxyCorrelations:
    """Correlations in a study's table (see ``report.table.frame``) of every proxy that some trials have."""
    if metric not in table or "state" not in table:
        return ProxyCorrelations(metric, 0, ())
    done = table[(table["state"] == "complete") & np.isfinite(pd.to_numeric(table[metric]))]
    found = []
    for name in (column
                 for column in PROXY_LABELS if column in done) if len(done) >= MIN_TRIALS else ():
        values = pd.to_numeric(done[name])
        both = done[np.isfinite(values)]
        found.append(rank_correlation(name, values[both.index].to_numpy(float),
                                      both[metric].to_numpy(float)))
    return ProxyCorrelations(metric, len(done), tuple(one for one in found if one is not None))


def rank_correlation(name: str, values: Any, scores: Any) -> Correlation | None:
    """Rank correlation of two columns (n,); None where they are too short, or one is constant.

    The interval is Fisher's, with the variance that Fieller et al. (1957) found for ranks, 1.06 /
    (n - 3). A perfect order has no such interval; its is centered on the next lower value that n
    ranks can have.
    """
    count = len(values)
    if count < MIN_TRIALS or len(set(values)) < 2 or len(set(scores)) < 2:
        return None
    rho = float(np.clip(np.corrcoef(pd.Series(values).rank(), pd.Series(scores).rank())[0, 1], -1,
                        1))
    most = 1 - 12 / (count**3 - count)
    middle = math.atanh(max(-most, min(most, rho)))
    half = NORMAL_QUANTILE_95 * math.sqrt(1.06 / (count - 3))
    low = math.tanh(middle - half)
    high = math.tanh(middle + half)
    return Correlation(name, count, rho, min(low, rho), max(high, rho))
