"""Forecast of what further trainings bring to a front, with its doubt.

The candidates of the largest expected gain are taken as if each were trained to its end: draws of
all their final values together, from the surrogates, and the hypervolume that each draw adds. A
search that learns on the way may bring more; one that spends compute on the rungs of others brings
less.
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
    """Growth of the hypervolume by so many ``n_runs``, as a share of what it is, and its 90 % interval."""

    n_runs: int
    mean: float
    low: float
    high: float


def forecast_hypervolume(acquisition: AcquisitionFunction, n_runs: int,
                         seed: int = 0) -> HypervolumeForecast | None:
    """Forecast of the gain of ``n_runs`` more; None before final values can be foretold."""
    if not acquisition.predicts_final_values:
        return None
    rows, mean, spread = acquisition.predict_final()
    best = np.argsort(-acquisition.improvement.expected(mean, spread, acquisition.costs[rows]),
                      kind="stable")[:n_runs]
    drawn = acquisition.sample_final(rows[best], mean[best], spread[best], N_SAMPLES,
                                     np.random.default_rng(seed))
    grown = np.array([acquisition.improvement.relative_growth(one, acquisition.costs[rows[best]])
                      for one in drawn])
    low, high = np.quantile(grown, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return HypervolumeForecast(n_runs, float(grown.mean()), float(low), float(high))
