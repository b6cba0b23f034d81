"""``local``: small changes to members of the front, as the evolutionary search of HAT (Wang et al.

2020).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from scalesearch.pareto.front import pareto_ranks
from scalesearch.samplers.candidate import Candidate, mutate_candidate, sample_neighbor
from scalesearch.samplers.candidate_sampler import CandidateSampler
from scalesearch.samplers.sampler_state import SamplerState
from scalesearch.samplers.trial_history import is_infeasible

MAX_TRIES = 60  # changes tried until one is new
SECOND_CHANGE_PROBABILITY = 0.3  # chance of each further change
STEP_SHARE = 0.15  # of a list of numbers: the standard deviation of a step along it
FRONT_PROBABILITY = 0.8  # parents of the first front; the others are of the second


class FrontNeighbors(CandidateSampler):
    """Changes one parameter of a parent, sometimes more: a number to a near one, anything else to any."""

    default_n_startup_trials = 5
    has_stratified_startup = True

    def propose(self, state: SamplerState) -> Candidate | None:
        if len(state.predicted_values) < self.n_startup_trials or not state.observed_trials:
            return self.sample_random(state)
        parents = self.parents(state, 0 if state.rng.random() < FRONT_PROBABILITY else 1)
        for attempt in range(MAX_TRIES):
            child = self.mutate(state, state.rng.choice(parents).params, 1 + attempt // 20,
                                state.rng)
            if child.key not in state.candidate_keys:
                return child
        return self.sample_random(state)

    def parents(self, state: SamplerState, front_rank: int) -> list[FrozenTrial]:
        """The trials of the first front, or of the second; feasible ones, where there are any."""
        trials = ([trial for trial in state.observed_trials if not is_infeasible(trial)]
                  or state.observed_trials)
        table = np.array([state.predicted_values[trial.number] for trial in trials])
        rank = pareto_ranks(table, [objective.direction for objective in state.objectives])
        return [trial
                for trial, its in zip(trials, rank) if its == min(front_rank, int(rank.max()))]

    def mutate(self, state: SamplerState, parent: Mapping[str, Any], min_changes: int,
               rng: random.Random) -> Candidate:
        """A sheet with at least so many parameters of ``parent`` changed."""
        count = min_changes
        while rng.random() < SECOND_CHANGE_PROBABILITY:
            count += 1
        changing = set(rng.sample(sorted(parent), min(count, len(parent))))

        def new(name: str, distribution: BaseDistribution) -> Any:
            return sample_neighbor(distribution, parent[name], rng,
                                   STEP_SHARE) if name in changing else parent[name]

        return mutate_candidate(state.define, parent, rng, new)
