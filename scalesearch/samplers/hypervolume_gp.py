"""``bayes``: of many candidates whose costs the bill tells, the one from which the front may gain most.

Bayesian optimisation where only part of the goals is unknown: a Gaussian process predicts the measured goals alone
(:mod:`scalesearch.samplers.surrogate`), the others are exact. Samplers that must learn the costs, too, spend trainings
on candidates that could be known to be dominated.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.hypervolume import hypervolume, worst_corner
from scalesearch.samplers.front_neighbours import Local
from scalesearch.samplers.grid import key_of
from scalesearch.samplers.history import INFEASIBLE, PENDING, History, Seen
from scalesearch.samplers.predict import foreseen
from scalesearch.samplers.surrogate import Array, Points, Surrogate

CHILDREN, DRAWN = 40, 40  # candidates: changes to members of the front, and random ones
MOST = 120  # trained candidates that a prediction is made from: the latest
ASTRAY = 0.15  # proposals that heed no prediction: two bad trainings must not rule out a whole region
SAMPLES = 8  # of the predicted goals
SHORT = 8  # candidates of which the gain in hypervolume is computed
DOUBT = 0.05  # of a foreseen value, as a share of the variance of all


class Bayes(Local):
    """Takes the most promising of :meth:`Local` changes and random draws."""

    name = "bayes"
    startup = 6

    def ask(self, number: int, history: History) -> Mapping[str, Any] | None:
        """As :meth:`Proposer.ask`; None also where none of many candidates is new and allowed."""
        rng = random.Random(self.seed(number))
        values = foreseen(history, self.goals)
        # Of references from outside the space nothing can be learned: they answer none of its questions.
        known = [seen for seen in history if seen.number in values and seen.params][-MOST:]
        if len(known) < max(self.first, 2) or self.judge is None:
            return super().ask(number, history)
        pool = self._pool(number, history, values, rng)
        if not pool:
            return None
        if rng.random() < ASTRAY:
            return rng.choice(pool).params
        waiting = [seen for seen in history if seen.state == PENDING and seen.number not in values and seen.params]
        return pool[self._best(pool, known, waiting, values, rng)].params

    def _pool(self, number: int, history: History, values: Mapping[int, Mapping[str, float]],
              rng: random.Random) -> list[Seen]:
        """Candidates that the bill allows and nobody has seen."""
        sheets = {key_of(seen.params) for seen in history}
        networks = {seen.identity for seen in history if seen.state != INFEASIBLE}
        parents, pool = self._parents(history, values, rng), []
        params = [*(self._changed(rng.choice(parents).params, rng, 1) for _ in range(CHILDREN)),
                 *(self.drawn(rng) for _ in range(DRAWN))]
        for one in params:
            key = key_of(one)
            if key in sheets:
                continue
            sheets.add(key)
            candidate = self.judge(number, one)
            if candidate.state != INFEASIBLE and candidate.identity not in networks:
                networks.add(candidate.identity)
                pool.append(candidate)
        return pool

    def _best(self, pool: Sequence[Seen], known: Sequence[Seen], waiting: Sequence[Seen],
              values: Mapping[int, Mapping[str, float]], rng: random.Random) -> int:
        """The place in ``pool`` of the candidate from which the front may gain most."""
        everyone = [*known, *waiting, *pool]
        costs = [goal.name for goal in self.goals if not goal.measured]
        bills = np.array([[seen.costs[name] for name in costs] for seen in everyone], float).reshape(-1, len(costs))
        points = Points(self.space.dimensions(), [seen.params for seen in everyone], bills)
        doubt = np.array([0.0 if seen.values else DOUBT for seen in known])
        new = np.arange(len(known) + len(waiting), len(everyone))
        also = np.arange(len(known), len(known) + len(waiting))
        normal = np.array([NormalDist().inv_cdf((i + 0.5) / SAMPLES) for i in range(SAMPLES)])
        found = np.empty((len(pool), SAMPLES, len(self.goals)))
        for at, goal in enumerate(self.goals):
            if goal.measured:
                scores = np.array([values[seen.number][goal.name] for seen in known])
                mean, spread = Surrogate(points, scores, doubt).predict(new, also)
                order = rng.sample(range(SAMPLES), SAMPLES)  # goals are independent of each other
                found[:, :, at] = mean[:, None] + spread[:, None] * normal[order]
            else:
                found[:, :, at] = np.array([seen.costs[goal.name] for seen in pool])[:, None]
        table = np.array([[values[seen.number][goal.name] for goal in self.goals] for seen in known])
        return self._gain(found, table)

    def _gain(self, found: NDArray[np.float64], table: Array) -> int:
        """Where of (candidates, samples, goals) the mean gain over the front of ``table`` is largest.

        A short list by the maximin improvement (Svenson & Santner 2016) comes first, which needs no volumes.
        """
        ways = [goal.direction for goal in self.goals]
        best = table[pareto_front(table, ways)]
        signs = np.array([goal.sign for goal in self.goals])
        unit = np.ptp(table, axis=0)
        unit[unit == 0] = 1.0
        ahead = ((best[None, None] - found[:, :, None]) * signs / unit).max(-1).min(-1)  # (candidates, samples)
        short = np.argsort(-np.maximum(ahead, 0).mean(1) - 1e-9 * ahead.mean(1), kind="stable")[:SHORT]
        corner = worst_corner(np.concatenate([table, found[short].reshape(-1, len(ways))]), ways, 0.01)
        base = hypervolume(best, corner, ways)
        gains = [np.mean([hypervolume(np.vstack([best, sample]), corner, ways) - base for sample in found[at]])
                 for at in short]
        top = int(np.argmax(gains))
        return int(short[top]) if gains[top] > 0 else int(short[0])
