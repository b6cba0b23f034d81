"""Expected hypervolume improvement for measured and exact objectives."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scalesearch.pareto import Objective
from scalesearch.pareto.front import hypervolume, pareto_front, to_losses
from scalesearch.samplers.bayes.coordinates import Array
from scalesearch.samplers.bayes.ehvi import MAX_KNOWN_OBJECTIVES, expected_hypervolume_improvement

if TYPE_CHECKING:
    from scalesearch.samplers.bayes.acquisition import AcquisitionFunction

# distance from the worst values to the reference point, as a share of the range
REFERENCE_MARGIN = 0.01
N_SAMPLES = 8  # per candidate, if several objectives are measured
MAX_SAMPLED_CANDIDATES = 32  # candidates for which the improvement is computed by sampling
N_FORECAST_SAMPLES = 200
# Share of the samples in the 90 % interval of a forecast: on tables that were left out of the
# choice, it holds 90 % of observed growths, and 90 % of the samples hold 85 % (benchmarks/LOG.md).
FORECAST_QUANTILES = (0.025, 0.975)


class HypervolumeImprovement:
    """Expected improvements over the front of the observed trials.

    Args:
        values: (trials, objectives) observed values.
        costs: (candidates, exact objectives) costs of all candidates that may be evaluated; with
            ``values``, they determine the reference point.
        objectives: the objectives of the study.
    """

    def __init__(self, values: Array, costs: Array, objectives: Sequence[Objective]) -> None:
        directions = [objective.direction for objective in objectives]
        self.signs = np.array([-1.0 if direction == "max" else 1.0 for direction in directions])
        self.measured = np.array([objective.is_measured for objective in objectives])
        points = to_losses(values, directions)
        self.front = points[pareto_front(values, directions)]
        worst = points.max(0)
        signed_costs = costs * self.signs[~self.measured]
        worst[~self.measured] = np.maximum(worst[~self.measured],
                                           signed_costs.max(0, initial=-np.inf))
        best = points.min(0)
        best[~self.measured] = np.minimum(best[~self.measured], signed_costs.min(0, initial=np.inf))
        self.objective_ranges = np.where(worst > best, worst - best, 1.0)
        self.reference_point = worst + REFERENCE_MARGIN * self.objective_ranges

    def expected(self, mean: Array, std: Array, costs: Array) -> Array:
        """Return the expected improvements (n,), as shares of the box of all values.

        Args:
            mean, std: (n, measured objectives) predicted losses.
            costs: (n, exact objectives) costs, without a change of sign.
        """
        costs = costs * self.signs[~self.measured]
        box = float(np.prod(self.objective_ranges))
        if self.measured.sum() == 1 and 1 <= costs.shape[1] <= MAX_KNOWN_OBJECTIVES:
            order = np.argsort(~self.measured, kind="stable")
            improvement = expected_hypervolume_improvement(
                mean[:, 0], std[:, 0], costs, self.front[:, order], self.reference_point[order])
            return improvement / box
        # Only candidates with a large maximin improvement (Svenson & Santner 2016) are evaluated,
        # because it is computed without hypervolumes. The improvement of the others is 0.
        normal = np.array([NormalDist().inv_cdf((index + 0.5) / N_SAMPLES)
                           for index in range(N_SAMPLES)])
        samples = np.empty((len(mean), N_SAMPLES, len(self.measured)))
        rng = np.random.default_rng(0)
        for index, column in enumerate(np.flatnonzero(self.measured)):
            samples[:, :, column] = mean[:, index, None] + std[:, index, None] * rng.permutation(
                normal)
        samples[:, :, ~self.measured] = costs[:, None]
        maximin = ((self.front[None, None] - samples[:, :, None])
                   / self.objective_ranges).max(-1).min(-1)
        priority = np.maximum(maximin, 0).mean(1) + 1e-9 * maximin.mean(1)
        improvements = np.zeros(len(mean))
        front_volume = self._volume(self.front)
        for index in np.argsort(-priority, kind="stable")[:MAX_SAMPLED_CANDIDATES]:
            volumes = [self._volume(np.vstack([self.front, sample])) for sample in samples[index]]
            improvements[index] = np.mean([volume - front_volume for volume in volumes])
        return improvements / box

    def with_points(self, measured: Array, costs: Array) -> HypervolumeImprovement:
        """Return the improvements over a front with n further points.

        Args:
            measured: (n, measured objectives) losses.
            costs: (n, exact objectives) costs, without a change of sign.
        """
        extended = copy(self)
        points = np.vstack([self.front, self._to_losses(measured, costs)])
        extended.front = points[pareto_front(points, ["min"] * points.shape[1])]
        return extended

    def relative_growth(self, measured: Array, costs: Array) -> float:
        """Return the share by which the hypervolume grows with n points.

        The arguments are those of :meth:`with_points`.
        """
        before = self._volume(self.front)
        points = np.vstack([self.front, self._to_losses(measured, costs)])
        return self._volume(points) / before - 1 if before > 0 else 0.0

    def _to_losses(self, measured: Array, costs: Array) -> Array:
        """Return (n, objectives) losses in the order of the objectives."""
        losses = np.empty((len(measured), len(self.measured)))
        losses[:, self.measured] = measured
        losses[:, ~self.measured] = costs * self.signs[~self.measured]
        return losses

    def _volume(self, points: NDArray[np.float64]) -> float:
        return hypervolume(points, list(self.reference_point), ["min"] * len(self.reference_point))


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


def forecast_hypervolume(acquisition: AcquisitionFunction,
                         n_runs: int) -> HypervolumeForecast | None:
    """Forecast the hypervolume growth by ``n_runs`` further runs.

    Returns None if final values cannot be predicted yet.

    The candidates with the largest expected improvement are assumed to be trained to the end. Their
    final values are sampled jointly from the surrogates; each sample adds some hypervolume. A
    search that learns during these runs may add more. A search that also spends compute on the
    first rungs of other candidates adds less.
    """
    if not acquisition.predicts_final_values:
        return None
    improvement = acquisition.improvement
    rows, mean, std = acquisition.predict_final()
    expected = improvement.expected(mean, std, acquisition.costs[rows])
    best = np.argsort(-expected, kind="stable")[:n_runs]
    samples = acquisition.sample_final(rows[best], mean[best], std[best], N_FORECAST_SAMPLES,
                                       np.random.default_rng(0))
    growth = np.array([improvement.relative_growth(sample, acquisition.costs[rows[best]])
                       for sample in samples])
    low, high = np.quantile(growth, FORECAST_QUANTILES)
    return HypervolumeForecast(n_runs, float(growth.mean()), float(low), float(high))
