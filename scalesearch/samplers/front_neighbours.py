"""``local``: small changes to members of the front, as the evolutionary search of HAT (Wang et al. 2020)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from scalesearch.pareto.front import pareto_ranks
from scalesearch.samplers.ask import Ask
from scalesearch.samplers.base import SheetSampler
from scalesearch.samplers.history import is_infeasible
from scalesearch.samplers.sheet import Sheet, change, near

MAX_TRIES = 60  # changes tried until one is new
SECOND = 0.3  # chance of each further change
REACH = 0.15  # of a list of numbers: the standard deviation of a step along it
FROM_FRONT = 0.8  # parents of the first front; the others are of the second


class FrontNeighbours(SheetSampler):
    """Changes one parameter of a parent, sometimes more: a number to a near one, anything else to any."""

    n_startup = 5
    stratified_startup = True

    def propose(self, ask: Ask) -> Sheet | None:
        if len(ask.values) < self.n_startup_trials or not ask.learned:
            return self.sample(ask)
        parents = self.parents(ask, 0 if ask.rng.random() < FROM_FRONT else 1)
        for attempt in range(MAX_TRIES):
            child = self.changed(ask, ask.rng.choice(parents).params, 1 + attempt // 20, ask.rng)
            if child.key not in ask.keys:
                return child
        return self.sample(ask)

    def parents(self, ask: Ask, level: int) -> list[FrozenTrial]:
        """The trials of the first front, or of the second; feasible ones, where there are any."""
        trials = [trial for trial in ask.learned if not is_infeasible(trial)] or ask.learned
        table = np.array([ask.values[trial.number] for trial in trials])
        rank = pareto_ranks(table, [objective.direction for objective in ask.objectives])
        return [trial for trial, its in zip(trials, rank) if its == min(level, int(rank.max()))]

    def changed(self, ask: Ask, parent: Mapping[str, Any], least: int, rng: random.Random) -> Sheet:
        """A sheet with at least so many parameters of ``parent`` changed."""
        count = least
        while rng.random() < SECOND:
            count += 1
        changing = set(rng.sample(sorted(parent), min(count, len(parent))))

        def new(name: str, distribution: BaseDistribution) -> Any:
            return near(distribution, parent[name], rng, REACH) if name in changing else parent[name]

        return change(ask.define, parent, rng, new)
