"""Gain in hypervolume that trials may bring, for whatever mixture of measured and known objectives a study has."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from scalesearch.pareto.front import pareto_front, to_losses
from scalesearch.pareto.hypervolume import hypervolume
from scalesearch.pareto.objective import Objective
from scalesearch.samplers.bayes.coordinates import Array
from scalesearch.samplers.bayes.ehvi import MAX_KNOWN_OBJECTIVES, expected_hypervolume_improvement

REFERENCE_MARGIN = 0.01  # of the range, from the worst values to the reference point
N_SAMPLES = 8  # of measured objectives, where there are several
MAX_SAMPLED_CANDIDATES = 32  # candidates of which the gain is computed by samples


class HypervolumeImprovement:
    """Expected gains over the front of ``values`` (trials, objectives).

    Args:
        costs: (candidates, objectives known exactly) of everything that may be asked of.
    """

    def __init__(self, values: Array, costs: Array, objectives: Sequence[Objective]) -> None:
        ways = [one.direction for one in objectives]
        self.signs = np.array([-1.0 if one.direction == "max" else 1.0 for one in objectives])
        self.measured = np.array([one.is_measured for one in objectives])
        points = to_losses(values, ways)
        self.front = points[pareto_front(values, ways)]
        worst = points.max(0)
        signed = costs * self.signs[~self.measured]
        worst[~self.measured] = np.maximum(worst[~self.measured], signed.max(0, initial=-np.inf))
        best = points.min(0)
        best[~self.measured] = np.minimum(best[~self.measured], signed.min(0, initial=np.inf))
        self.objective_ranges = np.where(worst > best, worst - best, 1.0)
        self.reference_point = worst + REFERENCE_MARGIN * self.objective_ranges

    def expected(self, mean: Array, std: Array, costs: Array) -> Array:
        """(candidates,) expected gains, the box of all values being 1.

        Args:
            mean, std: (candidates, measured objectives), as losses.
            costs: (candidates, others) as they are.
        """
        costs = costs * self.signs[~self.measured]
        box = float(np.prod(self.objective_ranges))
        if self.measured.sum() == 1 and 1 <= costs.shape[1] <= MAX_KNOWN_OBJECTIVES:
            order = np.argsort(~self.measured, kind="stable")
            improvement = expected_hypervolume_improvement(
                mean[:, 0], std[:, 0], costs, self.front[:, order], self.reference_point[order])
            return improvement / box
        return self._expected_by_sampling(mean, std, costs) / box

    def relative_growth(self, measured: Array, costs: Array) -> float:
        """The share by which the hypervolume grows with candidates of known values, as :meth:`of` takes them."""
        points = np.empty((len(measured), len(self.measured)))
        points[:, self.measured], points[
            :, ~self.measured] = measured, costs * self.signs[~self.measured]
        before = self._volume(self.front)
        return self._volume(np.vstack([self.front, points])) / before - 1 if before > 0 else 0.0

    def _expected_by_sampling(self, mean: Array, spread: Array, costs: Array) -> Array:
        """By samples of several measured objectives, taken as independent; of a short list, the others being 0.

        The list is by the maximin improvement (Svenson & Santner 2016), which needs no volumes.
        """
        normal = np.array([NormalDist().inv_cdf((at + 0.5) / N_SAMPLES) for at in range(N_SAMPLES)])
        drawn = np.empty((len(mean), N_SAMPLES, len(self.measured)))
        order = np.random.default_rng(0)
        for at, column in enumerate(np.flatnonzero(self.measured)):
            drawn[:, :, column] = mean[:, at, None] + spread[
                :, at, None] * order.permutation(normal)
        drawn[:, :, ~self.measured] = costs[:, None]
        ahead = ((self.front[None, None] - drawn[:, :, None])
                 / self.objective_ranges).max(-1).min(-1)
        promise = np.maximum(ahead, 0).mean(1) + 1e-9 * ahead.mean(1)
        gains = np.zeros(len(mean))
        base = self._volume(self.front)
        for at in np.argsort(-promise, kind="stable")[:MAX_SAMPLED_CANDIDATES]:
            gains[at] = np.mean([self._volume(np.vstack([self.front, one])) - base
                                 for one in drawn[at]])
        return gains

    def _volume(self, points: NDArray[np.float64]) -> float:
        return hypervolume(points, list(self.reference_point), ["min"] * len(self.reference_point))
