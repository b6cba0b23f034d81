"""A complete trial with its further seeds, and its means over all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalesearch.study.trials.trial import State, Trial


@dataclass(frozen=True)
class ReplicatedTrial:
    """Complete trial with its replicates."""

    first: Trial
    replicates: tuple[Trial, ...] = ()

    @property
    def number(self) -> int:
        """Number of its first trial."""
        return self.first.number

    @property
    def completed(self) -> list[Trial]:
        """The trainings that have given scores; the first is one of them."""
        return [one for one in (self.first, *self.replicates) if one.state == State.COMPLETE]

    @property
    def completed_seeds(self) -> int:
        """Seeds that have given scores."""
        return len(self.completed)

    @property
    def running_seeds(self) -> int:
        """Seeds in training."""
        return sum(one.state == State.PENDING for one in self.replicates)

    @property
    def expected_seeds(self) -> int:
        """Seeds that have given scores, or may yet."""
        return self.completed_seeds + self.running_seeds

    @property
    def started_seeds(self) -> int:
        """Trainings begun."""
        return self.expected_seeds + sum(one.state == State.FAILED for one in self.replicates)

    def values(self, objective: str) -> list[float]:
        """Its values of one objective, one for each finished seed."""
        return [(one.values or {})[objective] for one in self.completed]

    def mean(self, objective: str) -> float:
        """Its cost, or the mean over its seeds."""
        if self.replicates and objective not in self.first.costs:
            return float(np.mean(self.values(objective)))
        return (self.first.values or {})[objective]
