"""Trials with their replicates, and allocation of further seeds until the front is resolved.

A search selects the best of many single scores, so scores on its front are too optimistic. The
members of the front are therefore trained again with further seeds, and the final front is that of
the means. The next replicate is a function of the trials, so an interrupted study continues in the
same way.

1. Every member of the front gets a second seed, including members that join it later.
2. The noise between seeds is then known. It is pooled over all trials with several seeds, including
   references over the budget. Two types of pairs are compared. Neighbors on the front, in the order
   of costs, are resolved if each is significantly better than the other in some objective. A
   candidate off the front is resolved if a member significantly dominates it. A difference of means
   is significant if its confidence interval excludes 0.
3. The pair that is least resolved, by its difference in standard errors, gets a seed: for the
   candidate with fewer seeds. This ends when all pairs are resolved, all candidates have the
   maximum number of seeds, or the budget of extra runs is spent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, permutations

import numpy as np

from scalesearch.pareto import Objective
from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.noise import Noise, pool_noise, t_quantile
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.trials.trial import State, Trial

NEIGHBORS = "neighbors"
CHALLENGER = "challenger"


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


@dataclass(frozen=True)
class MeanDifference:
    """Difference of two means in a measured objective.

    Attributes:
        objective: name of the objective.
        value: mean of the second candidate minus mean of the first.
        half_width: half-width of its confidence interval; may be infinite.
    """

    objective: str
    value: float
    half_width: float


@dataclass(frozen=True)
class PairComparison:
    """Two candidates whose order the front depends on.

    Attributes:
        type: ``neighbors``: two neighbors on the front, the cheaper first; ``challenger``: a member
            and a candidate off the front that it dominates.
        first, second: their trial numbers.
        differences: differences of the means per measured objective.
        is_resolved: whether the order is significant.
        standardized_difference: the smallest difference that the order depends on, in standard
            errors; seeds in training count as complete.
    """

    type: str
    first: int
    second: int
    differences: tuple[MeanDifference, ...]
    is_resolved: bool
    standardized_difference: float


def next_replicate(candidates: Sequence[ReplicatedTrial], objectives: Sequence[Objective],
                   seeds: Seeds,
                   finished: Sequence[ReplicatedTrial] = ()) -> ReplicatedTrial | None:
    """Select the candidate that is trained with a further seed.

    Args:
        candidates: candidates that may be on the front.
        objectives: objectives of the study.
        seeds: limits of the study.
        finished: see :class:`FrontOrder`.

    Returns:
        The candidate; None if all comparisons are resolved, the budget is spent, or the result of
        runs in progress is needed first.
    """
    n_started = sum(candidate.started_seeds - 1 for candidate in candidates)
    if seeds.max_per_candidate < 2 or n_started >= seeds.extra_runs or not any(
            objective.is_measured for objective in objectives):
        return None
    order = FrontOrder(candidates, objectives, seeds, finished)
    by_number = {candidate.number: candidate for candidate in candidates}
    single_seed = [by_number[number] for number in order.front
                   if by_number[number].completed_seeds < 2]
    available = [member for member in single_seed
                 if member.expected_seeds < 2 and member.started_seeds < seeds.max_per_candidate]
    if available or any(member.running_seeds for member in single_seed):
        return min(available, default=None, key=lambda member: (
            member.expected_seeds, order.min_standardized_difference(member), member.number))
    for pair in sorted(order.comparisons, key=lambda pair: (pair.standardized_difference,
                                                            pair.first, pair.second)):
        available = [by_number[number] for number in (pair.first, pair.second)
                     if by_number[number].started_seeds < seeds.max_per_candidate]
        if available and not pair.is_resolved:
            return min(available,
                       key=lambda candidate: (candidate.expected_seeds, candidate.number))
    return None


def interval_confidence(objectives: Sequence[Objective], seeds: Seeds) -> float:
    """Return the confidence level of a single interval (Bonferroni correction).

    Each further seed and each measured objective is another test, in which an interval may exclude
    0 by chance. The error probability of the study is divided among them.
    """
    measured = sum(objective.is_measured for objective in objectives)
    return 1 - (1 - seeds.confidence) / max(1, measured) / max(1, seeds.max_per_candidate - 1)


class FrontOrder:
    """Front of complete candidates by their means, and the comparisons behind it.

    Args:
        candidates: candidates that may be on the front.
        objectives: objectives of the study.
        seeds: limits and confidence level of the study.
        finished: trials over which the noise is pooled; by default ``candidates``.

    Attributes:
        front: trial numbers of the members, the cheapest first.
        noise: noise per measured objective.
        level: confidence level of a single interval; see :func:`interval_confidence`.
    """

    def __init__(self, candidates: Sequence[ReplicatedTrial], objectives: Sequence[Objective],
                 seeds: Seeds, finished: Sequence[ReplicatedTrial] = ()) -> None:
        # the limit may have been higher before
        max_seeds = max([seeds.max_per_candidate,
                         *(candidate.completed_seeds for candidate in candidates)])
        self.candidates = candidates
        self.objectives = tuple(objectives)
        self.level = interval_confidence(objectives, replace(seeds, max_per_candidate=max_seeds))
        self.measured = [objective for objective in objectives if objective.is_measured]
        names = [objective.name for objective in objectives]
        self.noise = {
            objective.name: pool_noise(trial.values(objective.name)
                                       for trial in finished or candidates)
            for objective in self.measured}
        self.means = {(candidate.number, name): candidate.mean(name)
                      for candidate in candidates for name in names}
        rows = np.array([[self.means[candidate.number, name] for name in names]
                         for candidate in candidates], dtype=float)
        is_on_front = pareto_front(rows, [objective.direction for objective in objectives])
        self._members = sorted((candidate for candidate, is_member in zip(candidates, is_on_front)
                                if is_member), key=self._sort_key)
        self.front = tuple(member.number for member in self._members)
        # While the noise is unknown, the standard deviation over candidates replaces it.
        self._scale = {}
        for name, noise in self.noise.items():
            means = [self.means[candidate.number, name] for candidate in candidates] or [0.0]
            self._scale[name] = noise.sd if noise.is_known else float(np.std(means))

    @cached_property
    def neighbors(self) -> list[PairComparison]:
        """Each member of the front and the next in the partial order of costs."""
        return [self._compare(NEIGHBORS, first, second)
                for first, second in permutations(self._members, 2)
                if self._precedes(first, second)
                and not any(self._precedes(first, other) and self._precedes(other, second)
                            for other in self._members)]

    @cached_property
    def challengers(self) -> list[PairComparison]:
        """Candidates off the front that no member significantly dominates.

        Each is compared with the member that dominates it most.
        """
        pairs = []
        for candidate in self.candidates:
            if candidate.number in self.front:
                continue
            dominated = [self._compare(CHALLENGER, member, candidate) for member in self._members
                         if all(self._advantage(objective, member, candidate) >= 0
                                for objective in self.objectives)]
            if not any(pair.is_resolved for pair in dominated):
                pairs.append(max(dominated,
                                 key=lambda pair: (pair.standardized_difference, -pair.first)))
        return pairs

    @property
    def comparisons(self) -> list[PairComparison]:
        """Neighbors and challengers."""
        return [*self.neighbors, *self.challengers]

    @property
    def is_resolved(self) -> bool:
        """Whether all comparisons are significant."""
        return all(comparison.is_resolved for comparison in self.comparisons)

    @property
    def df(self) -> int:
        """Smallest degrees of freedom of the noise of any objective."""
        return min((noise.df for noise in self.noise.values()), default=0)

    def ties(self) -> list[tuple[int, int, MeanDifference]]:
        """Return neighbors in a measured objective whose difference is not significant.

        Both can still be on the front because of their costs.

        Returns:
            trial numbers of both members, and the difference of their means.
        """
        ties = []
        for name in self.noise:
            ranked = sorted(self._members,
                            key=lambda member: (self.means[member.number, name], member.number))
            for first, second in pairwise(ranked):
                difference = self._difference(name, first, second)
                if abs(difference.value) <= difference.half_width:
                    ties.append((first.number, second.number, difference))
        return ties

    def min_standardized_difference(self, candidate: ReplicatedTrial) -> float:
        """Return the smallest standardized difference of the comparisons of ``candidate``."""
        return min((pair.standardized_difference
                    for pair in self.comparisons if candidate.number in (pair.first, pair.second)),
                   default=math.inf)

    def _compare(self, type: str, first: ReplicatedTrial,
                 second: ReplicatedTrial) -> PairComparison:
        """Compare two candidates; ``type`` is that of :class:`PairComparison`."""
        def required_differences(has_pending: bool) -> list[float]:
            # All of them must be significant; with `has_pending`, seeds in training are complete.
            if type == NEIGHBORS:  # each is better than the other in some objective
                return [max(self._standardized(objective, a, b, has_pending)
                            for objective in self.objectives)
                        for a, b in ((first, second), (second, first))]
            return [self._standardized(objective, first, second, has_pending, tie=math.inf)
                    for objective in self.objectives]

        threshold = t_quantile(self.level, self.df) if self.df else math.inf
        is_resolved = all(difference == math.inf or difference > threshold
                          for difference in required_differences(has_pending=False))
        differences = tuple(self._difference(name, first, second) for name in self.noise)
        return PairComparison(type, first.number, second.number, differences, is_resolved,
                              min(required_differences(has_pending=True)))

    def _standardized(self, objective: Objective, a: ReplicatedTrial, b: ReplicatedTrial,
                      has_pending: bool, tie: float = -math.inf) -> float:
        """Return the advantage of ``a`` over ``b`` in standard errors.

        The result is infinite without noise.
        """
        advantage = self._advantage(objective, a, b)
        if objective.is_measured:
            counts = (a.expected_seeds, b.expected_seeds) if has_pending else (
                a.completed_seeds, b.completed_seeds)
            error = Noise(self._scale[objective.name]).standard_error(*counts)
            if error > 0 or not self.noise[objective.name].is_known:
                return advantage / error if error else 0.0
        return math.copysign(math.inf, advantage) if advantage else tie

    def _advantage(self, objective: Objective, a: ReplicatedTrial, b: ReplicatedTrial) -> float:
        """Return by how much the mean of ``a`` is better than that of ``b``."""
        return (self.means[b.number, objective.name]
                - self.means[a.number, objective.name]) * objective.sign

    def _difference(self, objective: str, first: ReplicatedTrial,
                    second: ReplicatedTrial) -> MeanDifference:
        value = self.means[second.number, objective] - self.means[first.number, objective]
        half_width = self.noise[objective].interval_half_width(
            self.level, first.completed_seeds, second.completed_seeds)
        return MeanDifference(objective, value, half_width)

    def _precedes(self, first: ReplicatedTrial, second: ReplicatedTrial) -> bool:
        """Whether ``first`` precedes ``second`` in the (partial) order of costs.

        Without costs, the first objective decides.
        """
        objectives = [objective for objective in self.objectives if not objective.is_measured]
        if not objectives:
            return self._sort_key(first) < self._sort_key(second)
        a = [first.mean(objective.name) * objective.sign for objective in objectives]
        b = [second.mean(objective.name) * objective.sign for objective in objectives]
        return all(x <= y for x, y in zip(a, b)) and (a, first.number) < (b, second.number)

    def _sort_key(self, candidate: ReplicatedTrial) -> tuple[float, int]:
        """Sort key, cheapest first: the first exact cost or minimized objective."""
        leading = min(self.objectives,
                      key=lambda objective: (objective.is_measured, objective.direction != "min"))
        return self.means[candidate.number, leading.name] * leading.sign, candidate.number
