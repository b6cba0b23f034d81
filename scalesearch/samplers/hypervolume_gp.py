"""``bayes``: what brings the most expected hypervolume for its compute, among new candidates and paused trials.

Bayesian optimisation where only part of the objectives is unknown: surrogates forecast the measured ones alone
(:mod:`scalesearch.samplers.bayes.multi_fidelity`), the others are exact. Samplers that must learn the costs, too, spend
trials on sheets that could be known to be dominated.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.trial import FrozenTrial

from scalesearch.samplers.bayes.acquisition import AcquisitionFunction
from scalesearch.samplers.bayes.hypervolume_forecast import HypervolumeForecast, forecast_hypervolume
from scalesearch.samplers.bayes.multi_fidelity import MIN_OBSERVATIONS
from scalesearch.samplers.candidate import Candidate
from scalesearch.samplers.front_neighbors import FRONT_PROBABILITY, FrontNeighbors
from scalesearch.samplers.sampler_state import SamplerState
from scalesearch.samplers.trial_history import is_paused, rung_losses

if TYPE_CHECKING:
    from scalesearch.samplers.neighbor_batch import NeighborBatchSampler

N_CHILDREN, N_RANDOM = 5, 2  # sheets that come in with a proposal: changes to members of the front, and random ones
# The same if NEIGHBOR_BATCH_SIZE further candidates are evaluated together.
N_CHILDREN_WITH_BATCHES = 2
N_RANDOM_WITH_BATCHES = 1
NEIGHBOR_BATCH_SIZE = 64
# Number of proposals for which a candidate stays in the pool; evaluating its cost takes the time.
CANDIDATE_WINDOW = 32
NEIGHBOR_BATCH_WINDOW = 16
MAX_CACHED_CANDIDATES = 2000

ParentSelector = Callable[[str],
                          FrozenTrial]  # name of a place to the member of the front that it has


@dataclass(frozen=True)
class AcquisitionValues:
    """Expected gain in hypervolume for a full training's compute: of the best new candidate, and of paused trials."""

    new: float
    paused: Mapping[int, float]


class HypervolumeGP(FrontNeighbors):
    """Takes the most promising of changes to the front and random draws."""

    default_n_startup_trials = 6

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._candidates: dict[tuple[str, str, int], Candidate] = {}
        self._neighbor_batches: dict[tuple[str, int], list[Candidate]] = {}
        self._cached_acquisition: tuple[
            Any, AcquisitionFunction,
            list[Candidate]] | None = None  # what was found for the proposal at hand

    def propose(self, state: SamplerState) -> Candidate | None:
        """As :meth:`CandidateSampler.propose`; None also where none of many sheets is new and feasible."""
        if len(state.observed_trials) < max(self.n_startup_trials, MIN_OBSERVATIONS):
            return super().propose(state)
        outlook, pool = self._acquisition(state)
        best = np.argsort(-outlook.new_values, kind="stable") if pool else ()
        return next((pool[at] for at in best if self._is_new(state, pool[at])), None)

    def acquisition_values(self, trials: Sequence[FrozenTrial]) -> AcquisitionValues | None:
        """What going on with paused trials is worth, and a new one; None where too little is known."""
        found = self.acquisition_after(trials)
        if found is None:
            return None
        outlook, pool = found
        return AcquisitionValues(
            float(outlook.new_values.max()) if pool else 0.0,
            outlook.paused_values) if outlook.predicts_final_values else None

    def forecast_gain(self, trials: Sequence[FrozenTrial],
                      n_runs: int) -> HypervolumeForecast | None:
        """What so many more trainings may bring; None where too little is known."""
        found = self.acquisition_after(trials)
        return found and forecast_hypervolume(found[0], n_runs)

    def acquisition_after(
            self,
            trials: Sequence[FrozenTrial]) -> tuple[AcquisitionFunction, list[Candidate]] | None:
        """Outlook after ``trials``, with its pool; None where too little is known."""
        if self.define is None or self.objectives is None:
            return None
        past = [trial for trial in trials
                if trial.number >= 0]  # others are no trials of this Optuna study
        ask = SamplerState(len(past), past, self.define, self._summaries, self.objectives, None,
                  random.Random(self.seed_at(len(past))))
        return None if len(ask.observed_trials) < max(self.n_startup_trials,
                                                      MIN_OBSERVATIONS) else self._acquisition(ask)

    def _acquisition(self, state: SamplerState) -> tuple[AcquisitionFunction, list[Candidate]]:
        key = state.number, tuple(
            (trial.number, trial.state, len(rung_losses(trial)), is_paused(trial))
            for trial in state.trials)
        if self._cached_acquisition is None or self._cached_acquisition[0] != key:
            pool = self._candidate_pool(state)
            self._cached_acquisition = key, AcquisitionFunction(state, pool, self.rung_shares), pool
        return self._cached_acquisition[1], self._cached_acquisition[2]

    def _candidate_pool(self, state: SamplerState) -> list[Candidate]:
        """Sheets that nothing known forbids and nobody has seen."""
        keys, identities, pool = set(state.candidate_keys), set(state.identities), []
        region, chosen = self._region(state), self._chooser(state)
        bulk = region.neighbor_sampler if region else None
        children, drawn = (N_CHILDREN_WITH_BATCHES, N_RANDOM_WITH_BATCHES) if bulk else (N_CHILDREN,
                                                                                         N_RANDOM)
        billed = self._neighbor_candidates(state, chosen, bulk) if bulk else ()
        for sheet in (*self._children(state, chosen, children),
                      *self._random_candidates(state, drawn), *billed):
            if sheet.key in keys:
                continue
            keys.add(sheet.key)
            known = state.facts.for_candidate(sheet)
            if known.is_feasible and known.identity not in identities:
                identities |= {known.identity} if known.identity else set()
                pool.append(sheet)
        return pool

    def _is_new(self, state: SamplerState, candidate: Candidate) -> bool:
        """Whether nobody has seen what ``sheet`` describes; of sheets that were billed together only this tells."""
        known = state.facts(candidate.params)
        return known.is_feasible and known.identity not in state.identities

    def _children(self, state: SamplerState, select_parent: ParentSelector,
                  per_trial: int) -> Iterator[Candidate]:
        """Changes to members of the front as it is now, those of the numbers before among them."""
        for name in _names(state.number, per_trial, CANDIDATE_WINDOW):
            parent = select_parent(name)
            yield self._make_once(state, ("child", name, parent.number),
                                  partial(self._child, state, parent))

    def _chooser(self, state: SamplerState) -> ParentSelector:
        """Chooses the member of the front that a place has, by a lot for each.

        So a new member takes few places of the others, and what was billed for the proposal before is mostly what is
        looked at for this one.
        """
        levels = [[(f":{one.number}".encode(), one)
                   for one in self.parents(state, level)]
                  for level in (0, 1)]

        def chosen(name: str) -> FrozenTrial:
            start = zlib.crc32(f"{self.seed}:{name}".encode())
            return max(levels[start > FRONT_PROBABILITY * 2**32],
                       key=lambda lot: zlib.crc32(lot[0], start))[1]

        return chosen

    def _child(self, state: SamplerState, parent: FrozenTrial, rng: random.Random) -> Candidate:
        return self.mutate(state, parent.params, 1, rng)

    def _random_candidates(self, state: SamplerState, per_trial: int) -> Iterator[Candidate]:
        """Random sheets, those of the numbers before among them."""
        for name in _names(state.number, per_trial, CANDIDATE_WINDOW):
            yield self._make_once(state, ("drawn", name, 0), partial(self.sample_random, state))

    def _neighbor_candidates(self, state: SamplerState, select_parent: ParentSelector,
                             bulk: NeighborBatchSampler) -> Iterator[Candidate]:
        """Sheets near members of the front that are billed many at a time."""
        for name in _names(state.number, 1, NEIGHBOR_BATCH_WINDOW):
            parent = select_parent(f"bulk {name}")
            key = name, parent.number
            if key not in self._neighbor_batches:
                if len(self._neighbor_batches) >= 4 * NEIGHBOR_BATCH_WINDOW:
                    del self._neighbor_batches[next(iter(self._neighbor_batches))]
                rng = np.random.default_rng(zlib.crc32(f"{self.seed}:{key}".encode()))
                self._neighbor_batches[key] = state.evaluate_candidates(
                    bulk, parent, NEIGHBOR_BATCH_SIZE, rng)
            yield from self._neighbor_batches[key]

    def _make_once(self, state: SamplerState, key: tuple[str, str, int],
                   make: Callable[[random.Random], Candidate]) -> Candidate:
        """The sheet that ``make`` makes of a generator of its own, made once."""
        if state.define is not self.define:  # made for this trial alone
            return make(random.Random(f"{self.seed}:{key}"))
        if key not in self._candidates:
            if len(self._candidates) >= MAX_CACHED_CANDIDATES:
                del self._candidates[next(iter(self._candidates))]
            self._candidates[key] = make(random.Random(f"{self.seed}:{key}"))
        return self._candidates[key]


def _names(number: int, each: int, window: int) -> Iterator[str]:
    """Names of so many places of each number in a ``window``, the last one first."""
    return (f"{at}.{place}" for at in range(number, max(-1, number - window), -1)
            for place in range(each))
