"""A complete trial with its further seeds, and its means over all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalesearch.study.trials.trial import State, Trial


@dataclass(frozen=True)
class Replicated:
    """Complete trial with its replicates."""

    first: Trial
    further: tuple[Trial, ...] = ()

    @property
    def number(self) -> int:
        """Number of its first trial."""
        return self.first.number

    @property
    def finished(self) -> list[Trial]:
        """The trainings that have given scores; the first is one of them."""
        return [one for one in (self.first, *self.further) if one.state == State.COMPLETE]

    @property
    def seeds(self) -> int:
        """Seeds that have given scores."""
        return len(self.finished)

    @property
    def in_training(self) -> int:
        """Seeds in training."""
        return sum(one.state == State.PENDING for one in self.further)

    @property
    def coming(self) -> int:
        """Seeds that have given scores, or may yet."""
        return self.seeds + self.in_training

    @property
    def tried(self) -> int:
        """Trainings begun."""
        return self.coming + sum(one.state == State.FAILED for one in self.further)

    def sample(self, objective: str) -> list[float]:
        """Its values of one objective, one for each finished seed."""
        return [(one.values or {})[objective] for one in self.finished]

    def value(self, objective: str) -> float:
        """Its cost, or the mean over its seeds."""
        if self.further and objective not in self.first.costs:
            return float(np.mean(self.sample(objective)))
        return (self.first.values or {})[objective]
