"""Local search (``local``): mutations of the front.

Source: evolutionary search of HAT (Wang et al. 2020).
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

MAX_TRIES = 60  # mutations until one is new
SECOND_CHANGE_PROBABILITY = 0.3  # probability of each further change
STEP_SHARE = 0.15  # standard deviation of a step in a list of numbers, as a share of the list
FRONT_PROBABILITY = 0.8  # probability of a parent on the first front; otherwise, the second


class FrontNeighbors(CandidateSampler):
    """Change one or more parameters of a trial on the front.

    A number changes to a near one, a word to any other.
    """

    default_n_startup_trials = 5
    starts_by_cost = True

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
        """Trials on the first or second front; only feasible ones, if there are any."""
        trials = ([trial for trial in state.observed_trials if not is_infeasible(trial)]
                  or state.observed_trials)
        values = np.array([state.predicted_values[trial.number] for trial in trials])
        ranks = pareto_ranks(values, [objective.direction for objective in state.objectives])
        selected = min(front_rank, int(ranks.max()))
        return [trial for trial, rank in zip(trials, ranks) if rank == selected]

    def mutate(self, state: SamplerState, parent: Mapping[str, Any], min_changes: int,
               rng: random.Random) -> Candidate:
        """Change at least ``min_changes`` parameters of ``parent``."""
        count = min_changes
        while rng.random() < SECOND_CHANGE_PROBABILITY:
            count += 1
        changed = set(rng.sample(sorted(parent), min(count, len(parent))))

        def choose(name: str, distribution: BaseDistribution) -> Any:
            if name in changed:
                return sample_neighbor(distribution, parent[name], rng, STEP_SHARE)
            return parent[name]

        return mutate_candidate(state.define, parent, rng, choose)
