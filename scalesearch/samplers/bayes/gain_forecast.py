"""Forecast of what further trainings bring to a front, with its doubt.

The candidates of the largest expected gain are taken as if each were trained to its end: draws of all their final
values together, from the surrogates, and the hypervolume that each draw adds. A search that learns on the way may bring
more; one that spends compute on the rungs of others brings less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scalesearch.samplers.bayes.outlook import Outlook

N_DRAWS = 200
LEVEL = 0.9  # of the interval


@dataclass(frozen=True)
class GainForecast:
    """Growth of the hypervolume by so many ``trainings``, as a share of what it is, and its 90 % interval."""

    trainings: int
    mean: float
    low: float
    high: float


def forecast_gain(outlook: Outlook, trainings: int, seed: int = 0) -> GainForecast | None:
    """Forecast of the gain of ``trainings`` more; None before final values can be foretold."""
    if not outlook.to_the_end:
        return None
    rows, mean, spread = outlook.ends()
    best = np.argsort(-outlook.gains.of(mean, spread, outlook.costs[rows]), kind="stable")[:trainings]
    drawn = outlook.draws(rows[best], mean[best], spread[best], N_DRAWS, np.random.default_rng(seed))
    grown = np.array([outlook.gains.growth(one, outlook.costs[rows[best]]) for one in drawn])
    low, high = np.quantile(grown, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return GainForecast(trainings, float(grown.mean()), float(low), float(high))
