"""A complete trial with its replicates, and its means over all seeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalesearch.studies.trials.trial import State, Trial


@dataclass(frozen=True)
class ReplicatedTrial:
    """A complete trial and its replicates: training runs that differ only in the seed."""

    first: Trial
    replicates: tuple[Trial, ...] = ()

    @property
    def number(self) -> int:
        """Number of the first trial."""
        return self.first.number

    @property
    def completed(self) -> list[Trial]:
        """Complete trials, including the first."""
        return [trial for trial in (self.first, *self.replicates) if trial.state == State.COMPLETE]

    @property
    def completed_seeds(self) -> int:
        """Number of complete seeds."""
        return len(self.completed)

    @property
    def running_seeds(self) -> int:
        """Number of seeds in training."""
        return sum(trial.state == State.PENDING for trial in self.replicates)

    @property
    def expected_seeds(self) -> int:
        """Number of seeds that are complete or in training."""
        return self.completed_seeds + self.running_seeds

    @property
    def started_seeds(self) -> int:
        """Number of seeds that were started, including failed ones."""
        return self.expected_seeds + sum(trial.state == State.FAILED for trial in self.replicates)

    def values(self, objective: str) -> list[float]:
        """Return the values of an objective, one per complete seed."""
        return [(trial.values or {})[objective] for trial in self.completed]

    def mean(self, objective: str) -> float:
        """Return the mean of an objective over seeds; a cost is the same for all."""
        if self.replicates and objective not in self.first.costs:
            return float(np.mean(self.values(objective)))
        return (self.first.values or {})[objective]
