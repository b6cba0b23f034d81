"""Forecast of final losses, from what a trial is and how it stood at the rungs that it has reached.

Recursive co-kriging (Le Gratiet & Garnier 2014): a surrogate for the loss at the first rung, one
for each later rung given the loss before, and one for the end given the loss at the last rung; each
also of the coordinates. So what a rung says about the end is learned from the study: where it says
little, or says it of one vocabulary otherwise than of another, the doubt stays, or the coordinates
explain it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalesearch.pareto.noise import Noise
from scalesearch.samplers.bayes.coordinates import Array, Coordinates
from scalesearch.samplers.bayes.surrogate import UNKNOWN_NOISE, Surrogate

MIN_OBSERVATIONS = 3  # trials that have come to a level, before anything is learned of it


@dataclass(frozen=True)
class FidelityLevel:
    """The surrogate of the losses at one level, given those at the level before; their mean and deviation there.

    ``is_noisy``: foretold with what of a loss nothing explains; a trial has that at a rung and
    takes it on to the end.
    """

    surrogate: Surrogate
    mean: float = 0.0
    std: float = 1.0
    is_first: bool = True
    is_noisy: bool = False

    @classmethod
    def of(cls, points: Coordinates, losses: Array, previous_losses: Array | None, noisy: bool,
           *seeds: Any) -> FidelityLevel:
        """Fit to ``losses``; ``previous_losses`` is None at the first level, ``seeds`` go to :class:`Surrogate`."""
        if previous_losses is None:
            return cls(Surrogate(points, losses, *seeds), is_noisy=noisy)
        center = float(previous_losses.mean())
        unit = float(previous_losses.std()) or 1.0
        surrogate = Surrogate(points.with_trend((previous_losses - center) / unit), losses, *seeds)
        return cls(surrogate, center, unit, False, noisy)

    def predict(self, points: Coordinates, previous_losses: Array | None,
                pending: Coordinates | None = None) -> tuple[Array, Array]:
        """Mean and deviation of the losses at ``points`` where those before are known."""
        if not self.is_first and previous_losses is not None:
            points = points.with_trend((previous_losses - self.mean) / self.std)
        mean, spread = self.surrogate.predict(points, pending)
        return mean, np.hypot(
            spread, self.surrogate.noise**0.5 * self.surrogate.unit) if self.is_noisy else spread


class MultiFidelitySurrogate:
    """Learned from ``losses`` (trials, levels) at ``points``, the last level being the end; NaN is not known.

    ``counts`` (trials,) seeds of which the last losses are means, and the ``noise`` between seeds.

    Raises:
        ValueError: a level that fewer than :data:`MIN_OBSERVATIONS` trials have come to from the
            one before.
    """

    def __init__(self, points: Coordinates, losses: Array, counts: Array | None = None,
                 noise: Noise = UNKNOWN_NOISE) -> None:
        losses, last = losses.copy(), losses.shape[1] - 1
        self.levels: list[FidelityLevel] = []
        for level in range(losses.shape[1]):
            before = losses[:, level - 1] if level else np.zeros(len(losses))
            rows = np.flatnonzero(~np.isnan(losses[:, level]) & ~np.isnan(before))
            if len(rows) < MIN_OBSERVATIONS:
                raise ValueError(f"{len(rows)} trials have come to level {level}")
            seeds = (counts[rows], noise) if level == last and counts is not None else ()
            previous_losses = before[rows] if level else None
            fitted = FidelityLevel.of(points[rows], losses[rows, level], previous_losses,
                                      level < last, *seeds)
            self.levels.append(fitted)
            # A trial without rungs, such as a reference, is taken to have passed them as would be
            # foreseen of it.
            passed = np.flatnonzero(np.isnan(losses[:, level]) & ~np.isnan(losses[:, -1]))
            if len(passed):
                losses[passed, level] = fitted.predict(points[passed], before[passed])[0]

    def predict_level(self, points: Coordinates, level: int, previous_losses: Array | None,
                      pending: Coordinates | None = None) -> tuple[Array, Array]:
        """Mean and deviation (points,) of the losses at ``level``, those at the level before being known."""
        return self.levels[level].predict(points, previous_losses, pending)

    @property
    def seed_std(self) -> float:
        """Deviation of a final loss from what a training of the same kind comes to in the mean."""
        last = self.levels[-1].surrogate
        return float(last.noise**0.5 * last.unit)

    def correlation_root(self, points: Coordinates) -> Array:
        """(points, points) lower root of the correlations between what is not known yet of ``points``."""
        return self.levels[0].surrogate.correlation_root(points)

    def predict_final(self, points: Coordinates, level: int, loss: Array, std: Array | None = None
                      ) -> tuple[Array, Array]:
        """Mean and deviation of the final losses of trials whose loss at ``level`` is ``loss``, give or take.

        What is not known of a level goes on to the next by its mean plus and minus one deviation
        (Julier & Uhlmann 1997, in one dimension).
        """
        std = np.zeros(len(points.points)) if std is None else std
        for later in self.levels[level + 1 :]:
            (high, doubt), (low,
                            other) = (later.predict(points, loss + sign * std) for sign in (1, -1))
            loss = (high + low) / 2
            std = np.sqrt(((high - low) / 2) ** 2 + (doubt**2 + other**2) / 2)
        return loss, std
