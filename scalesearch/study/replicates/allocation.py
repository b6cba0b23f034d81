"""After a search: who of the front is trained with a further seed, and when the front's order is settled.

A search picks the best of many single scores, so its front is better than it should be: who was lucky stands on it.
Here the members are trained again with further seeds, and the front is that of the means. What is done next is a
function of what was trained, so a study that was interrupted does what it would have done.

1. Every member of the front gets a second seed; also one that joins it because another has fallen.
2. The noise between seeds then is known, pooled over all candidates with several. In doubt is each pair of neighbours
   on the front (in the order of costs) of which neither surely beats the other in something, and each candidate off the
   front that no member surely dominates. *Surely*: the interval of the difference of the means leaves 0 out.
3. The pair that is least settled, by its difference over its standard error, gets a seed: that of the two which has
   fewer. Until nothing is in doubt, each has as many seeds as allowed, or the trainings are spent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.noise import Noise, pooled, quantile
from scalesearch.samplers.history import Goal
from scalesearch.study.config.replication import Seeds

NEIGHBOURS, CONTENDER = "neighbours", "contender"


@dataclass(frozen=True)
class Candidate:
    """One that was trained to its end.

    Attributes:
        number: of its trial.
        known: goal to value, for goals that the bill tells.
        scores: goal to value of the measured goals, for each seed that has ended well; at least one.
        under_way: seeds in training.
        failed: seeds that came to nothing.
    """

    number: int
    known: Mapping[str, float]
    scores: tuple[Mapping[str, float], ...]
    under_way: int = 0
    failed: int = 0

    @property
    def seeds(self) -> int:
        """That have given scores."""
        return len(self.scores)

    @property
    def coming(self) -> int:
        """Seeds that have given scores, or may yet."""
        return len(self.scores) + self.under_way

    @property
    def tried(self) -> int:
        """Trainings begun."""
        return self.coming + self.failed

    def sample(self, goal: str) -> list[float]:
        """Its scores in one measured goal."""
        return [score[goal] for score in self.scores]

    def value(self, goal: str) -> float:
        """Its cost, or the mean over its seeds."""
        return self.known[goal] if goal in self.known else float(np.mean(self.sample(goal)))


@dataclass(frozen=True)
class Difference:
    """Of two means in one measured goal: the second's less the first's, and half its interval (infinite if unknown)."""

    goal: str
    value: float
    half: float


@dataclass(frozen=True)
class Comparison:
    """Two candidates whose order the front depends on.

    Attributes:
        kind: two ``neighbours`` on the front, from the cheaper; or a member and a ``contender`` that it dominates.
        differences: in each measured goal.
        settled: whether the order is beyond the noise.
        doubt: the least difference that it rests on, over its standard error; seeds under way count as had.
    """

    kind: str
    first: int
    second: int
    differences: tuple[Difference, ...]
    settled: bool
    doubt: float


@dataclass(frozen=True)
class Order:
    """How far the front is settled.

    Attributes:
        front: numbers of its members, from the cheapest.
        noise: measured goal to its noise.
        level: confidence of each interval; see :func:`level`.
        comparisons: all neighbours, and those off the front that no member surely dominates.
    """

    front: tuple[int, ...]
    noise: Mapping[str, Noise]
    level: float
    comparisons: tuple[Comparison, ...]

    @property
    def settled(self) -> bool:
        """Whether no order on the front, or beside it, could be noise."""
        return all(comparison.settled for comparison in self.comparisons)


@dataclass(frozen=True)
class Training:
    """Train candidate ``number`` once more; ``further`` counts its seeds beyond the search's, from 1."""

    number: int
    further: int


def next_training(candidates: Sequence[Candidate], goals: Sequence[Goal], seeds: Seeds) -> Training | None:
    """What to train next; None where all is settled or spent, or what is under way has to be waited for."""
    begun = sum(candidate.tried - 1 for candidate in candidates)
    if seeds.most < 2 or begun >= seeds.trials or not any(goal.measured for goal in goals):
        return None
    order = order_of(candidates, goals, seeds)
    at = {candidate.number: candidate for candidate in candidates}
    once = [at[number] for number in order.front if at[number].seeds < 2]
    able = [one for one in once if one.coming < 2 and one.tried < seeds.most]
    if able or any(one.under_way for one in once):
        return _second_seed(able, order)
    for comparison in sorted(order.comparisons, key=lambda one: (one.doubt, one.first, one.second)):
        able = [at[number] for number in (comparison.first, comparison.second) if at[number].tried < seeds.most]
        if able and not comparison.settled:
            return _train(min(able, key=lambda one: (one.coming, one.number)))
    return None


def order_of(candidates: Sequence[Candidate], goals: Sequence[Goal], seeds: Seeds) -> Order:
    """What the means say, and how surely, of candidates that were all trained to their end."""
    had = replace(seeds, most=max([seeds.most, *(one.seeds for one in candidates)]))  # once more may have been allowed
    judge = _Judge(candidates, goals, level(goals, had))
    return Order(tuple(one.number for one in judge.front), judge.noise, judge.level,
                 (*judge.neighbours(), *judge.contenders()))


def level(goals: Sequence[Goal], seeds: Seeds) -> float:
    """The confidence of one interval, such that a claim that rests on it has the study's.

    Each further seed is another look, and each measured goal another chance, at which luck alone may leave 0 out of an
    interval; what may go wrong is shared out among them (Bonferroni).
    """
    measured = sum(goal.measured for goal in goals)
    return 1 - (1 - seeds.confidence) / max(1, measured) / max(1, seeds.most - 1)


def _second_seed(once: Sequence[Candidate], order: Order) -> Training | None:
    """For one of ``once``: the one whose order is most in doubt."""
    def doubt(one: Candidate) -> float:
        pairs = (pair for pair in order.comparisons if one.number in (pair.first, pair.second))
        return min((pair.doubt for pair in pairs), default=math.inf)

    return _train(min(once, key=lambda one: (one.coming, doubt(one), one.number))) if once else None


def _train(candidate: Candidate) -> Training:
    return Training(candidate.number, candidate.tried)


class _Judge:
    """Compares candidates in all goals."""

    def __init__(self, candidates: Sequence[Candidate], goals: Sequence[Goal], level: float) -> None:
        self.candidates, self.goals, self.level = candidates, tuple(goals), level
        self.measured = [goal for goal in goals if goal.measured]
        self.noise = {goal.name: pooled(one.sample(goal.name) for one in candidates) for goal in self.measured}
        self.means = {(one.number, goal.name): one.value(goal.name) for one in candidates for goal in goals}
        rows = np.array([[self.means[one.number, goal.name] for goal in goals] for one in candidates], dtype=float)
        on = pareto_front(rows, [goal.direction for goal in goals])
        self.front = sorted((one for one, is_on in zip(candidates, on) if is_on), key=self._place)
        # Before the noise is known, doubts are compared by the spread over the candidates in its stead.
        self.scale = {goal.name: self.noise[goal.name].sd if self.noise[goal.name].known else
                      float(np.std([self.means[one.number, goal.name] for one in candidates] or [0.0]))
                      for goal in self.measured}

    def neighbours(self) -> list[Comparison]:
        """On the front: each member with the next that costs no less in anything."""
        return [self._pair(NEIGHBOURS, one, other) for one, other in permutations(self.front, 2)
                if self._before(one, other)
                and not any(self._before(one, third) and self._before(third, other) for third in self.front)]

    def contenders(self) -> list[Comparison]:
        """Those off the front that no member surely dominates, each with the one that comes nearest to it."""
        on, found = {one.number for one in self.front}, []
        for candidate in self.candidates:
            over = [self._pair(CONTENDER, one, candidate) for one in self.front if self._cheaper(one, candidate)]
            if candidate.number not in on and not any(pair.settled for pair in over):
                found.append(max(over, key=lambda pair: (pair.doubt, -pair.first)))
        return found

    def _pair(self, kind: str, one: Candidate, other: Candidate) -> Comparison:
        ratios = self._claim(kind, one, other, under_way=False)
        differences = tuple(self._difference(goal.name, one, other) for goal in self.measured)
        return Comparison(kind, one.number, other.number, differences, min(map(self._sure, ratios), default=True),
                          min(self._claim(kind, one, other, under_way=True)))

    def _claim(self, kind: str, one: Candidate, other: Candidate, under_way: bool) -> list[float]:
        """The advantages over their errors that must all be sure for the order to be settled."""
        if kind == NEIGHBOURS:  # each beats the other in something
            return [max(self._ratio(goal, a, b, under_way) for goal in self.goals)
                    for a, b in ((one, other), (other, one))]
        return [self._ratio(goal, one, other, under_way, tie=math.inf) for goal in self.goals]

    def _ratio(self, goal: Goal, a: Candidate, b: Candidate, under_way: bool, tie: float = -math.inf) -> float:
        """By how many standard errors ``a`` is better than ``b``; infinite where there is no noise."""
        better = (self.means[b.number, goal.name] - self.means[a.number, goal.name]) * goal.sign
        if goal.measured:
            counts = (a.coming, b.coming) if under_way else (a.seeds, b.seeds)
            error = Noise(self.scale[goal.name]).error(*counts)
            if error > 0 or not self.noise[goal.name].known:
                return better / error if error else 0.0
        return math.copysign(math.inf, better) if better else tie

    def _sure(self, ratio: float) -> bool:
        """Whether a difference of so many standard errors is more than noise."""
        df = min((noise.df for noise in self.noise.values()), default=0)
        return ratio == math.inf or (df > 0 and ratio > quantile(self.level, df))

    def _difference(self, goal: str, one: Candidate, other: Candidate) -> Difference:
        value = self.means[other.number, goal] - self.means[one.number, goal]
        return Difference(goal, value, self.noise[goal].half(self.level, one.seeds, other.seeds))

    def _cheaper(self, one: Candidate, other: Candidate) -> bool:
        """Whether ``one`` costs no more than ``other`` in anything, and is nowhere worse by the means."""
        return one is not other and all(
            (self.means[one.number, goal.name] - self.means[other.number, goal.name]) * goal.sign <= 0
            for goal in self.goals)

    def _before(self, one: Candidate, other: Candidate) -> bool:
        """Whether ``one`` comes first in the (partial) order of costs; without costs, in that of the first goal."""
        costs = [goal for goal in self.goals if not goal.measured]
        if not costs:
            return self._place(one) < self._place(other)
        a, b = ([each.known[goal.name] * goal.sign for goal in costs] for each in (one, other))
        return all(x <= y for x, y in zip(a, b)) and (a, one.number) < (b, other.number)

    def _place(self, one: Candidate) -> tuple[float, int]:
        """From the cheapest: by the first cost that the bill tells, else by the first goal that is minimised."""
        first = min(self.goals, key=lambda goal: (goal.measured, goal.direction != "min"))
        return self.means[one.number, first.name] * first.sign, one.number
