"""``local``: small changes to members of the front, as the evolutionary search of HAT (Wang et al. 2020)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from scalesearch.errors import UserError
from scalesearch.pareto.front import pareto_ranks
from scalesearch.samplers.base import Proposer
from scalesearch.samplers.grid import key_of
from scalesearch.samplers.history import History, Seen
from scalesearch.samplers.predict import foreseen
from scalesearch.space.syntax.parameters import Choice, Question

TRIES = 60  # changes tried until one is new
SECOND = 0.3  # chance of each further change
REACH = 0.15  # of a list of numbers: the standard deviation of a step along it
FROM_FRONT = 0.8  # parents of the first front; the others are of the second


class Local(Proposer):
    """Changes one answer of a parent, sometimes more: a number to a near one, anything else to any."""

    name = "local"
    startup = 5
    opens = True

    def ask(self, number: int, history: History) -> Mapping[str, Any] | None:
        rng = random.Random(self.seed(number))
        values = foreseen(history, self.goals)
        if len(values) < self.first:
            return self.drawn(rng)
        parents = self._parents(history, values, rng)
        known = {key_of(seen.params) for seen in history}
        for attempt in range(TRIES):
            child = self._changed(rng.choice(parents).params, rng, 1 + attempt // 20)
            if key_of(child) not in known:
                return child
        return self.drawn(rng)

    def _parents(self, history: History, values: Mapping[int, Mapping[str, float]], rng: random.Random) -> list[Seen]:
        candidates = [seen for seen in history if seen.number in values]
        table = np.array([[values[seen.number][goal.name] for goal in self.goals] for seen in candidates])
        rank = pareto_ranks(table, [goal.direction for goal in self.goals])
        level = 0 if rng.random() < FROM_FRONT else min(1, int(rank.max()))
        return [seen for seen, its in zip(candidates, rank) if its == level]

    def _changed(self, parent: Mapping[str, Any], rng: random.Random, least: int) -> dict[str, Any]:
        count = least
        while rng.random() < SECOND:
            count += 1
        changing = set(rng.sample(sorted(parent), min(count, len(parent))))

        def ask(name: str, question: Question) -> Any:
            try:
                value = question.settle(parent[name])
            except (KeyError, UserError, ValueError, TypeError):
                return question.draw(rng)  # the parent was not asked this, or the answer is no longer legal
            return near(question, value, rng) if name in changing else value

        return self.filled(ask)


def near(question: Question, value: Any, rng: random.Random) -> Any:
    """Another answer: of numbers one near by, at least the next one; of words any other."""
    values = question.values()
    if values is None:
        return question.draw(rng)
    if len(values) < 2:
        return value
    if isinstance(question, Choice) and not all(_number(option) for option in values):
        return rng.choice([option for option in values if option != value])
    ordered = sorted(values) if isinstance(question, Choice) else values
    at, last = ordered.index(value), len(ordered) - 1
    step = max(1, round(abs(rng.gauss(0, REACH)) * last))
    places = [place for place in (at - step, at + step) if 0 <= place <= last]
    return ordered[rng.choice(places) if places else (0 if at > last - at else last)]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
