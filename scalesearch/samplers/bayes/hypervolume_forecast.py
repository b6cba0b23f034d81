"""Forecast of the hypervolume that further training runs add, with its uncertainty.

The candidates with the largest expected improvement are assumed to be trained to the end. Their
final values are sampled jointly from the surrogates; each sample adds some hypervolume. A search
that learns during these runs may add more. A search that also spends compute on the first rungs of
other candidates adds less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scalesearch.samplers.bayes.acquisition import AcquisitionFunction

N_SAMPLES = 200
CONFIDENCE = 0.9  # of the interval


@dataclass(frozen=True)
class HypervolumeForecast:
    """Growth of the hypervolume, as a share of its present value.

    Attributes:
        n_runs: number of further training runs.
        mean: expected growth.
        low, high: its 90 % interval.
    """

    n_runs: int
    mean: float
    low: float
    high: float


def forecast_hypervolume(acquisition: AcquisitionFunction, n_runs: int,
                         seed: int = 0) -> HypervolumeForecast | None:
    """Forecast the growth by ``n_runs`` runs; None if final values cannot be predicted yet."""
    if not acquisition.predicts_final_values:
        return None
    improvement = acquisition.improvement
    rows, mean, std = acquisition.predict_final()
    expected = improvement.expected(mean, std, acquisition.costs[rows])
    best = np.argsort(-expected, kind="stable")[:n_runs]
    samples = acquisition.sample_final(rows[best], mean[best], std[best], N_SAMPLES,
                                       np.random.default_rng(seed))
    growth = np.array([improvement.relative_growth(sample, acquisition.costs[rows[best]])
                       for sample in samples])
    low, high = np.quantile(growth, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return HypervolumeForecast(n_runs, float(growth.mean()), float(low), float(high))
