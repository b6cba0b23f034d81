"""Multi-fidelity surrogate of final losses.

Predictors are coordinates and losses at rungs.

Recursive co-kriging (Le Gratiet & Garnier 2014). There is one surrogate for the loss at the first
rung, one for each later rung given the loss at the rung before, and one for the final loss given
the loss at the last rung. Each also depends on the coordinates of the candidate. The study itself
therefore shows how well a rung predicts the end. If it predicts little, the uncertainty stays
large; if the relation depends on the vocabulary, for example, the coordinates explain it.

A level is a rung, or the end of training (the last level).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalesearch.pareto.noise import Noise
from scalesearch.samplers.bayes.coordinates import Array, Coordinates
from scalesearch.samplers.bayes.surrogate import UNKNOWN_NOISE, Surrogate

MIN_OBSERVATIONS = 3  # trials that have reached a level, before a surrogate is fitted to it


@dataclass(frozen=True)
class FidelityLevel:
    """Surrogate of the losses at one level, given those at the previous level.

    Attributes:
        surrogate: the surrogate.
        mean, std: mean and standard deviation of the losses at the previous level.
        is_first: whether it is the first level.
        is_noisy: whether predictions include the noise of one run. A run keeps its noise from a
            rung to the end.
    """

    surrogate: Surrogate
    mean: float = 0.0
    std: float = 1.0
    is_first: bool = True
    is_noisy: bool = False

    @classmethod
    def of(cls, points: Coordinates, losses: Array, previous_losses: Array | None, noisy: bool,
           *seeds: Any) -> FidelityLevel:
        """Fit a level.

        Args:
            points: coordinates of n trials.
            losses: (n,) their losses at the level.
            previous_losses: (n,) their losses at the previous level; None at the first level.
            noisy: see ``is_noisy``.
            seeds: numbers of seeds and noise, see :class:`Surrogate`.
        """
        if previous_losses is None:
            return cls(Surrogate(points, losses, *seeds), is_noisy=noisy)
        center = float(previous_losses.mean())
        unit = float(previous_losses.std()) or 1.0
        surrogate = Surrogate(points.with_trend((previous_losses - center) / unit), losses, *seeds)
        return cls(surrogate, center, unit, False, noisy)

    def predict(self, points: Coordinates, previous_losses: Array | None,
                pending: Coordinates | None = None) -> tuple[Array, Array]:
        """Predict mean and standard deviation of the losses, given the previous ones."""
        if not self.is_first and previous_losses is not None:
            points = points.with_trend((previous_losses - self.mean) / self.std)
        mean, std = self.surrogate.predict(points, pending)
        if self.is_noisy:
            std = np.hypot(std, self.surrogate.noise_std)
        return mean, std


class MultiFidelitySurrogate:
    """Surrogates of all levels.

    Args:
        points: coordinates of n trials.
        losses: (n, levels) losses; NaN if a trial has not reached the level.
        counts: (n,) number of seeds that a final loss is the mean of.
        noise: noise between seeds.

    Attributes:
        levels: the last one predicts final losses.

    Raises:
        ValueError: fewer than :data:`MIN_OBSERVATIONS` trials have losses at a level and at the
            previous one.
    """

    def __init__(self, points: Coordinates, losses: Array, counts: Array | None = None,
                 noise: Noise = UNKNOWN_NOISE) -> None:
        losses = losses.copy()
        last = losses.shape[1] - 1
        self.levels: list[FidelityLevel] = []
        for level in range(losses.shape[1]):
            before = losses[:, level - 1] if level else np.zeros(len(losses))
            rows = np.flatnonzero(~np.isnan(losses[:, level]) & ~np.isnan(before))
            if len(rows) < MIN_OBSERVATIONS:
                raise ValueError(f"{len(rows)} trials have reached level {level}")
            seeds = (counts[rows], noise) if level == last and counts is not None else ()
            previous_losses = before[rows] if level else None
            fitted = FidelityLevel.of(points[rows], losses[rows, level], previous_losses,
                                      level < last, *seeds)
            self.levels.append(fitted)
            # A trial without rungs, such as a reference, gets the losses that are predicted there.
            passed = np.flatnonzero(np.isnan(losses[:, level]) & ~np.isnan(losses[:, -1]))
            if len(passed):
                losses[passed, level] = fitted.predict(points[passed], before[passed])[0]

    def predict_final(self, points: Coordinates, level: int, loss: Array, std: Array | None = None
                      ) -> tuple[Array, Array]:
        """Predict mean and std (n,) of final losses from those at ``level``.

        The uncertainty at a level is propagated to the next by the two sigma points mean ± std
        (unscented transform in one dimension, Julier & Uhlmann 1997).

        Args:
            points: coordinates of n trials.
            level: the last level that they have passed.
            loss: (n,) their losses there.
            std: (n,) standard deviations of these losses; by default 0.
        """
        std = np.zeros(len(points.points)) if std is None else std
        for next_level in self.levels[level + 1 :]:
            upper, upper_std = next_level.predict(points, loss + std)
            lower, lower_std = next_level.predict(points, loss - std)
            loss = (upper + lower) / 2
            std = np.sqrt(((upper - lower) / 2) ** 2 + (upper_std**2 + lower_std**2) / 2)
        return loss, std
