"""Allocation of further seeds to the front, until its members are settled.

A search picks the best of many single scores, so its front is better than it should be: who was
lucky stands on it. Here the members are trained again with further seeds, and the front is that of
the means. What is done next is a function of what was trained, so a study that was interrupted does
what it would have done.

1. Every member of the front gets a second seed; also one that joins it because another has fallen.
2. The noise between seeds then is known, pooled over all trials with several, references over the budget included. In
   doubt is each pair of neighbors on the front (in the order of costs) of which neither surely
   beats the other in
   something, and each candidate off the front that no member surely dominates. *Surely*: the
   interval of the difference
   of the means leaves 0 out.
3. The pair that is least settled, by its difference over its standard error, gets a seed: that of the two which has
   fewer. Until nothing is in doubt, each has as many seeds as allowed, or the trainings are spent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations

import numpy as np

from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.noise import Noise, pool_noise, t_quantile
from scalesearch.pareto.objective import Objective
from scalesearch.study.config.sections import Seeds
from scalesearch.study.replicates.replicated import ReplicatedTrial

NEIGHBORS = "neighbors"
CHALLENGER = "challenger"


@dataclass(frozen=True)
class MeanDifference:
    """Difference of two means in a measured objective.

    It is the second's less the first's, with half its interval (may be infinite).
    """

    objective: str
    value: float
    half_width: float


@dataclass(frozen=True)
class PairComparison:
    """Two candidates whose order the front depends on.

    Attributes:
        type: two ``neighbors`` on the front, from the cheaper; or a member and a ``challenger``
            that it dominates.
        differences: in each measured objective.
        is_resolved: whether the order is beyond the noise.
        standardized_difference: the least difference that it rests on, over its standard error;
            seeds under way count as had.
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
    """Chooses the candidate that is trained once more.

    None where all is settled or spent, or where trainings under way have to be waited for. ``finished`` as
    :class:`FrontOrder`'s.
    """
    begun = sum(candidate.started_seeds - 1 for candidate in candidates)
    if seeds.max_per_candidate < 2 or begun >= seeds.extra_runs or not any(
            objective.is_measured for objective in objectives):
        return None
    order = FrontOrder(candidates, objectives, seeds, finished)
    at = {candidate.number: candidate for candidate in candidates}
    once = [at[number] for number in order.front if at[number].completed_seeds < 2]
    able = [one
            for one in once
            if one.expected_seeds < 2 and one.started_seeds < seeds.max_per_candidate]
    if able or any(one.running_seeds for one in once):
        return min(able,
                   key=lambda one: (one.expected_seeds, order.min_standardized_difference(one),
                                    one.number), default=None)
    for comparison in sorted(order.comparisons,
                             key=lambda one: (one.standardized_difference, one.first, one.second)):
        able = [at[number]
                for number in (comparison.first, comparison.second)
                if at[number].started_seeds < seeds.max_per_candidate]
        if able and not comparison.is_resolved:
            return min(able, key=lambda one: (one.expected_seeds, one.number))
    return None


def interval_confidence(objectives: Sequence[Objective], seeds: Seeds) -> float:
    """Confidence of one interval, such that a claim on it has the study's.

    Each further seed is another look, and each measured objective another chance, at which luck
    alone may leave 0 out of an interval; what may go wrong is shared out among them (Bonferroni).
    """
    measured = sum(objective.is_measured for objective in objectives)
    return 1 - (1 - seeds.confidence) / max(1, measured) / max(1, seeds.max_per_candidate - 1)


class FrontOrder:
    """Order of complete candidates by their means in all objectives, as far as it is settled.

    Args:
        finished: trials over which the noise is pooled; ``candidates`` alone where there are none.

    Attributes:
        front: numbers of its members, from the cheapest.
        noise: measured objective to its noise.
        level: confidence of each interval; see :func:`interval_confidence`.
        comparisons: all neighbors, and those off the front that no member surely dominates.
    """

    def __init__(self, candidates: Sequence[ReplicatedTrial], objectives: Sequence[Objective],
                 seeds: Seeds, finished: Sequence[ReplicatedTrial] = ()) -> None:
        # more may have been allowed
        had = replace(seeds,
                      max_per_candidate=max([seeds.max_per_candidate,
                                             *(one.completed_seeds for one in candidates)]))
        self.candidates = candidates
        self.objectives = tuple(objectives)
        self.level = interval_confidence(objectives, had)
        self.measured = [objective for objective in objectives if objective.is_measured]
        names = [objective.name for objective in objectives]
        self.noise = {one.name: pool_noise(each.values(one.name) for each in finished or candidates)
                      for one in self.measured}
        self.means = {(one.number, name): one.mean(name) for one in candidates for name in names}
        rows = np.array([[self.means[one.number, name] for name in names] for one in candidates],
                        dtype=float)
        on = pareto_front(rows, [objective.direction for objective in objectives])
        self._members = sorted((one for one, is_on in zip(candidates, on) if is_on),
                               key=self._sort_key)
        self.front = tuple(one.number for one in self._members)
        # Before the noise is known, doubts are compared by the spread over the candidates in its
        # stead.
        self._scale = {
            objective.name: self.noise[objective.name].sd if self.noise[objective.name].is_known
            else float(np.std([self.means[one.number, objective.name] for one in candidates]
                              or [0.0])) for objective in self.measured}
        self.comparisons = (*self._neighbors(), *self._challengers())

    @property
    def is_resolved(self) -> bool:
        """Whether noise could not have put anybody on the front or off it."""
        return all(comparison.is_resolved for comparison in self.comparisons)

    @property
    def df(self) -> int:
        """The least degrees of freedom by which the noise of an objective is known."""
        return min((noise.df for noise in self.noise.values()), default=0)

    def ties(self) -> list[tuple[int, int, MeanDifference]]:
        """Members next to each other by a measured objective, of which noise could turn the order round.

        Both can be on the front for all that: by what they cost.
        """
        found = []
        for name in self.noise:
            ranked = sorted(self._members,
                            key=lambda one: (self.means[one.number, name], one.number))
            found += [(one.number, other.number, self._difference(name, one, other))
                      for one, other in pairwise(ranked)]
        return [(one, other, each)
                for one, other, each in found if abs(each.value) <= each.half_width]

    def min_standardized_difference(self, candidate: ReplicatedTrial) -> float:
        """The least doubt of a comparison that ``candidate`` takes part in."""
        return min((pair.standardized_difference
                    for pair in self.comparisons if candidate.number in (pair.first, pair.second)),
                   default=math.inf)

    def _neighbors(self) -> list[PairComparison]:
        """On the front: each member with the next that costs no less in anything."""
        return [self._pair(NEIGHBORS, one, other)
                for one, other in permutations(self._members, 2)
                if self._precedes(one, other)
                and not any(self._precedes(one, third) and self._precedes(third, other)
                            for third in self._members)]

    def _challengers(self) -> list[PairComparison]:
        """Pairs of a candidate off the front that no member surely dominates, and its nearest member."""
        pairs = []
        for candidate in self.candidates:
            over = [self._pair(CHALLENGER, one, candidate)
                    for one in self._members if self._dominates_in_means(one, candidate)]
            if candidate.number not in self.front and not any(pair.is_resolved for pair in over):
                pairs.append(max(over,
                                 key=lambda pair: (pair.standardized_difference, -pair.first)))
        return pairs

    def _pair(self, kind: str, one: ReplicatedTrial, other: ReplicatedTrial) -> PairComparison:
        ratios = self._compare(kind, one, other, under_way=False)
        differences = tuple(self._difference(objective.name, one, other)
                            for objective in self.measured)
        return PairComparison(kind, one.number, other.number, differences,
                              min(map(self._is_significant, ratios), default=True),
                              min(self._compare(kind, one, other, under_way=True)))

    def _compare(self, kind: str, one: ReplicatedTrial, other: ReplicatedTrial,
                 under_way: bool) -> list[float]:
        """Ratios of advantage to error that must all be sure for a settled order."""
        if kind == NEIGHBORS:  # each beats the other in something
            return [max(self._ratio(objective, a, b, under_way) for objective in self.objectives)
                    for a, b in ((one, other), (other, one))]
        return [self._ratio(objective, one, other, under_way, tie=math.inf)
                for objective in self.objectives]

    def _ratio(self, objective: Objective, a: ReplicatedTrial, b: ReplicatedTrial, under_way: bool,
               tie: float = -math.inf) -> float:
        """Difference of ``a`` and ``b`` in standard errors; infinite without noise."""
        better = (self.means[b.number, objective.name]
                  - self.means[a.number, objective.name]) * objective.sign
        if objective.is_measured:
            counts = (a.expected_seeds, b.expected_seeds) if under_way else (
                a.completed_seeds, b.completed_seeds)
            error = Noise(self._scale[objective.name]).standard_error(*counts)
            if error > 0 or not self.noise[objective.name].is_known:
                return better / error if error else 0.0
        return math.copysign(math.inf, better) if better else tie

    def _is_significant(self, ratio: float) -> bool:
        """Whether a difference of so many standard errors is more than noise."""
        return ratio == math.inf or (self.df > 0 and ratio > t_quantile(self.level, self.df))

    def _difference(self, objective: str, one: ReplicatedTrial,
                    other: ReplicatedTrial) -> MeanDifference:
        value = self.means[other.number, objective] - self.means[one.number, objective]
        half = self.noise[objective].interval_half_width(
            self.level, one.completed_seeds, other.completed_seeds)
        return MeanDifference(objective, value, half)

    def _dominates_in_means(self, one: ReplicatedTrial, other: ReplicatedTrial) -> bool:
        """Whether ``one`` costs no more than ``other`` and has no worse means."""
        return one is not other and all((self.means[one.number, objective.name]
                                         - self.means[other.number, objective.name])
                                        * objective.sign <= 0 for objective in self.objectives)

    def _precedes(self, one: ReplicatedTrial, other: ReplicatedTrial) -> bool:
        """Whether ``one`` precedes ``other`` in the (partial) order of costs.

        Without costs the first objective decides.
        """
        costs = [objective for objective in self.objectives if not objective.is_measured]
        if not costs:
            return self._sort_key(one) < self._sort_key(other)
        a, b = ([each.mean(objective.name) * objective.sign for objective in costs]
                for each in (one, other))
        return all(x <= y for x, y in zip(a, b)) and (a, one.number) < (b, other.number)

    def _sort_key(self, one: ReplicatedTrial) -> tuple[float, int]:
        """Sort key, from the cheapest: the first exact cost, else the first minimized objective."""
        first = min(self.objectives,
                    key=lambda objective: (objective.is_measured, objective.direction != "min"))
        return self.means[one.number, first.name] * first.sign, one.number
