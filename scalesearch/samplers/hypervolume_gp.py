"""Bayesian optimization (``bayes``): EHVI with exact costs.

Surrogates predict only the measured objectives (:mod:`scalesearch.samplers.bayes.multi_fidelity`);
params, MACs and other costs are exact. A sampler that has to learn the costs as well spends trials
on candidates that are known to be dominated. The acquisition function is in
:mod:`scalesearch.samplers.bayes.acquisition`.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial

from scalesearch.samplers import MAX_IN_TRAINING
from scalesearch.samplers.bayes.acquisition import AcquisitionFunction
from scalesearch.samplers.bayes.hypervolume_improvement import (
    HypervolumeForecast,
    forecast_hypervolume,
)
from scalesearch.samplers.bayes.multi_fidelity import MIN_OBSERVATIONS
from scalesearch.samplers.candidate import Candidate
from scalesearch.samplers.front_neighbors import FRONT_PROBABILITY, FrontNeighbors
from scalesearch.samplers.proxy import ScoreProxy
from scalesearch.samplers.sampler_state import SamplerState
from scalesearch.samplers.trial_history import is_paused, rung_losses

# Candidates that enter the pool with a proposal: mutations of the front, and random ones.
N_CHILDREN = 5
N_RANDOM = 2
# The same if NEIGHBOR_BATCH_SIZE further candidates are evaluated together.
N_CHILDREN_WITH_BATCHES = 2
N_RANDOM_WITH_BATCHES = 1
NEIGHBOR_BATCH_SIZE = 64
# Number of proposals for which a candidate stays in the pool; evaluating its cost takes the time.
CANDIDATE_WINDOW = 32
NEIGHBOR_BATCH_WINDOW = 16
MAX_CACHED_CANDIDATES = 2000


@dataclass(frozen=True)
class AcquisitionValues:
    """Expected hypervolume improvement per compute of a full-budget run.

    Attributes:
        new: value of the best new candidate.
        paused: values of paused trials by number.
    """

    new: float
    paused: Mapping[int, float]


class HypervolumeGP(FrontNeighbors):
    """Propose the candidate with the largest acquisition value in a pool.

    The pool consists of mutations of the front and random candidates.

    Args:
        proxy: proxy of the scores, used by the surrogates if it reduces their error.
        max_in_training: share of the remaining budget of a study that is in training at once; other
            workers wait for results.
        arguments: see :class:`CandidateSampler`.
    """

    default_n_startup_trials = 6

    def __init__(self, *, proxy: ScoreProxy | None = None, max_in_training: float = MAX_IN_TRAINING,
                 **arguments: Any) -> None:
        super().__init__(**arguments)
        self.proxy = proxy
        self.max_in_training = max_in_training
        self._candidates: dict[tuple[str, str, int], Candidate] = {}
        self._neighbor_batches: dict[tuple[str, int], list[Candidate]] = {}
        # For the latest state: its key, the acquisition function and the pool.
        self._cached_acquisition: tuple[Any, AcquisitionFunction, list[Candidate]] | None = None

    def propose(self, state: SamplerState) -> Candidate | None:
        """Propose a candidate; None if no candidate of the pool is new and feasible."""
        if not self._has_model(state):
            return super().propose(state)
        acquisition, pool = self._acquisition(state)
        for row in np.argsort(-acquisition.new_values, kind="stable") if pool else ():
            facts = state.facts(pool[row].params)  # batches of neighbors are checked only here
            if facts.is_feasible and facts.identity not in state.identities:
                return pool[row]
        return None

    def acquisition_values(self, trials: Sequence[FrozenTrial]) -> AcquisitionValues | None:
        """Acquisition values after ``trials``; None before there is a model."""
        acquisition, pool = self.acquisition_after(trials) or (None, [])
        if acquisition is None or not acquisition.predicts_final_values:
            return None
        return AcquisitionValues(float(acquisition.new_values.max()) if pool else 0.0,
                                 acquisition.paused_values)

    def forecast_gain(self, trials: Sequence[FrozenTrial],
                      n_runs: int) -> HypervolumeForecast | None:
        """Forecast the growth of the hypervolume by ``n_runs`` more full-budget runs.

        None before there is a model.
        """
        after = self.acquisition_after(trials)
        return after and forecast_hypervolume(after[0], n_runs)

    def acquisition_after(self, trials: Sequence[FrozenTrial]) -> tuple[
            AcquisitionFunction, list[Candidate]] | None:
        """Acquisition function after ``trials``, with its pool.

        None before there is a model.
        """
        if self.define is None or self.objectives is None:
            return None
        # the others do not belong to this Optuna study
        past = [trial for trial in trials if trial.number >= 0]
        state = SamplerState(len(past), past, self.define, self._summaries, self.objectives, None,
                             random.Random(self.seed_at(len(past))))
        if not self._has_model(state):
            return None
        return self._acquisition(state)

    def _has_model(self, state: SamplerState) -> bool:
        """Whether the surrogates are used: all startup trials have started, and some have values.

        Parallel workers would otherwise start many more candidates at random.
        """
        return (len(state.identities) >= self.n_startup_trials
                and len(state.observed_trials) >= MIN_OBSERVATIONS)

    def _acquisition(self, state: SamplerState) -> tuple[AcquisitionFunction, list[Candidate]]:
        key = state.number, tuple((trial.number, trial.state, len(rung_losses(trial)),
                                   is_paused(trial)) for trial in state.trials)
        if self._cached_acquisition is None or self._cached_acquisition[0] != key:
            pool = self._candidate_pool(state)
            acquisition = AcquisitionFunction(state, pool, self.rung_shares, self.proxy)
            self._cached_acquisition = key, acquisition, pool
            self.proxy_note = str(acquisition.proxy_test or "")
        return self._cached_acquisition[1], self._cached_acquisition[2]

    def _candidate_pool(self, state: SamplerState) -> list[Candidate]:
        """Candidates that are feasible by all exact facts and were not proposed before.

        They are mutations of the current front and random candidates, including those of the
        previous trial numbers, and neighbors of the front whose costs are evaluated in batches.
        The parent of each name is selected by rendezvous hashing: a new member of the front takes
        over few names, so most costs of the previous proposal can be reused.
        """
        levels = [[(f":{trial.number}".encode(), trial) for trial in self.parents(state, level)]
                  for level in (0, 1)]

        def select_parent(name: str) -> FrozenTrial:
            start = zlib.crc32(f"{self.seed}:{name}".encode())
            level = levels[start > FRONT_PROBABILITY * 2**32]
            return max(level, key=lambda parent: zlib.crc32(parent[0], start))[1]

        region = self._region(state)
        batches = region.neighbor_sampler if region else None
        candidates: list[Candidate] = []
        for name in _names(state.number, N_CHILDREN_WITH_BATCHES if batches else N_CHILDREN,
                           CANDIDATE_WINDOW):
            parent = select_parent(name)
            candidates.append(self._make_once(state, ("child", name, parent.number),
                                              partial(self.mutate, state, parent.params, 1)))
        n_random = N_RANDOM_WITH_BATCHES if batches else N_RANDOM
        candidates += [self._make_once(state, ("drawn", name, 0),
                                       partial(self.sample_random, state))
                       for name in _names(state.number, n_random, CANDIDATE_WINDOW)]
        for name in _names(state.number, 1, NEIGHBOR_BATCH_WINDOW) if batches else ():
            parent = select_parent(f"bulk {name}")
            key = name, parent.number
            if key not in self._neighbor_batches:
                if len(self._neighbor_batches) >= 4 * NEIGHBOR_BATCH_WINDOW:
                    del self._neighbor_batches[next(iter(self._neighbor_batches))]
                rng = np.random.default_rng(zlib.crc32(f"{self.seed}:{key}".encode()))
                self._neighbor_batches[key] = state.evaluate_candidates(
                    batches, parent, NEIGHBOR_BATCH_SIZE, rng)
            candidates += self._neighbor_batches[key]
        keys = set(state.candidate_keys)
        identities = set(state.identities)
        pool: list[Candidate] = []
        for candidate in candidates:
            if candidate.key in keys:
                continue
            keys.add(candidate.key)
            facts = state.facts.for_candidate(candidate)
            if facts.is_feasible and facts.identity not in identities:
                identities |= {facts.identity} if facts.identity else set()
                pool.append(candidate)
        return pool

    def _make_once(self, state: SamplerState, key: tuple[str, str, int],
                   make: Callable[[random.Random], Candidate]) -> Candidate:
        """The candidate that ``make`` returns for a generator seeded by ``key``; cached."""
        if state.define is not self.define:  # it is only valid for this trial
            return make(random.Random(f"{self.seed}:{key}"))
        if key not in self._candidates:
            if len(self._candidates) >= MAX_CACHED_CANDIDATES:
                del self._candidates[next(iter(self._candidates))]
            self._candidates[key] = make(random.Random(f"{self.seed}:{key}"))
        return self._candidates[key]


def _names(number: int, per_trial: int, window: int) -> Iterator[str]:
    """Names of random streams of the trial numbers in a window.

    There are ``per_trial`` names for each number, the latest first.
    """
    numbers = range(number, max(-1, number - window), -1)
    return (f"{trial_number}.{stream}" for trial_number in numbers for stream in range(per_trial))
