"""Forecast of final losses, from what a trial is and how it stood at the rungs that it has reached.

Recursive co-kriging (Le Gratiet & Garnier 2014): a surrogate for the loss at the first rung, one for each later rung
given the loss before, and one for the end given the loss at the last rung; each also of the coordinates. So what a rung
says about the end is learned from the study: where it says little, or says it of one vocabulary otherwise than of
another, the doubt stays, or the coordinates explain it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalesearch.pareto.noise import Noise
from scalesearch.samplers.bayes.coordinates import Array, Coordinates
from scalesearch.samplers.bayes.surrogate import UNKNOWN, Surrogate

FEWEST = 3  # trials that have come to a level, before anything is learned of it


@dataclass(frozen=True)
class Level:
    """The surrogate of the losses at one level, given those at the level before; their mean and deviation there.

    ``noisy``: foretold with what of a loss nothing explains; a trial has that at a rung and takes it on to the end.
    """

    surrogate: Surrogate
    centre: float = 0.0
    unit: float = 1.0
    first: bool = True
    noisy: bool = False

    @classmethod
    def of(cls, points: Coordinates, losses: Array, before: Array | None, noisy: bool, *seeds: Any) -> Level:
        """Learned from ``losses``; ``before`` is None at the first level, ``seeds`` are what Surrogate takes."""
        if before is None:
            return cls(Surrogate(points, losses, *seeds), noisy=noisy)
        centre, unit = float(before.mean()), float(before.std()) or 1.0
        return cls(Surrogate(points.along((before - centre) / unit), losses, *seeds), centre, unit, False, noisy)

    def at(self, points: Coordinates, before: Array | None, believed: Coordinates | None = None
           ) -> tuple[Array, Array]:
        """Mean and deviation of the losses at ``points`` where those before are known."""
        given = points if self.first or before is None else points.along((before - self.centre) / self.unit)
        mean, spread = self.surrogate.predict(given, believed)
        return mean, np.hypot(spread, self.surrogate.noise**0.5 * self.surrogate.unit) if self.noisy else spread


class Forecast:
    """Learned from ``losses`` (trials, levels) at ``points``, the last level being the end; NaN is not known.

    ``counts`` (trials,) seeds of which the last losses are means, and the ``spread`` between seeds.

    Raises:
        ValueError: a level that fewer than :data:`FEWEST` trials have come to from the one before.
    """

    def __init__(self, points: Coordinates, losses: Array, counts: Array | None = None, spread: Noise = UNKNOWN
                 ) -> None:
        losses, last = losses.copy(), losses.shape[1] - 1
        self.levels: list[Level] = []
        for level in range(losses.shape[1]):
            before = losses[:, level - 1] if level else np.zeros(len(losses))
            rows = np.flatnonzero(~np.isnan(losses[:, level]) & ~np.isnan(before))
            if len(rows) < FEWEST:
                raise ValueError(f"{len(rows)} trials have come to level {level}")
            seeds = (counts[rows], spread) if level == last and counts is not None else ()
            found = Level.of(points[rows], losses[rows, level], before[rows] if level else None, level < last, *seeds)
            self.levels.append(found)
            # A trial without rungs, such as a reference, is taken to have passed them as would be foreseen of it.
            passed = np.flatnonzero(np.isnan(losses[:, level]) & ~np.isnan(losses[:, -1]))
            if len(passed):
                losses[passed, level] = found.at(points[passed], before[passed])[0]

    def next(self, points: Coordinates, level: int, before: Array | None, believed: Coordinates | None = None
             ) -> tuple[Array, Array]:
        """Mean and deviation (points,) of the losses at ``level``, those at the level before being known."""
        return self.levels[level].at(points, before, believed)

    @property
    def noise(self) -> float:
        """Deviation of a final loss from what a training of the same kind comes to in the mean."""
        last = self.levels[-1].surrogate
        return float(last.noise**0.5 * last.unit)

    def alike(self, points: Coordinates) -> Array:
        """(points, points) lower root of the correlations between what is not known yet of ``points``."""
        return self.levels[0].surrogate.correlated(points)

    def end(self, points: Coordinates, level: int, loss: Array, spread: Array | None = None) -> tuple[Array, Array]:
        """Mean and deviation of the final losses of trials whose loss at ``level`` is ``loss``, give or take.

        What is not known of a level goes on to the next by its mean plus and minus one deviation (Julier & Uhlmann
        1997, in one dimension).
        """
        spread = np.zeros(len(points.points)) if spread is None else spread
        for later in self.levels[level + 1 :]:
            (high, doubt), (low, other) = (later.at(points, loss + sign * spread) for sign in (1, -1))
            loss, spread = (high + low) / 2, np.sqrt(((high - low) / 2) ** 2 + (doubt**2 + other**2) / 2)
        return loss, spread
