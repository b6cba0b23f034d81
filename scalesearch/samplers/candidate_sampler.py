"""Base class of the samplers, and the samplers ``random`` and ``grid``.

A proposal is a whole candidate. It only depends on the history, the trial number and the seed. An
interrupted study therefore proposes the same candidates after a resume, in any process.
"""

from __future__ import annotations

import copy
import hashlib
import math
import random
import secrets
import threading
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import intersection_search_space
from optuna.study import Study
from optuna.trial import FrozenTrial

from scalesearch.errors import UserError
from scalesearch.pareto import Objective
from scalesearch.samplers.candidate import (
    Candidate,
    DefineByRun,
    define_from_distributions,
    enumerate_candidates,
    sample_candidate,
    sample_value,
)
from scalesearch.samplers.candidate_facts import FactsCache, FactsFunction
from scalesearch.samplers.sampler_state import SamplerState, TrialSummaryCache

if TYPE_CHECKING:
    from scalesearch.samplers.bayes.hypervolume_improvement import HypervolumeForecast
    from scalesearch.samplers.feasible_region import FeasibleRegion
    from scalesearch.samplers.hypervolume_gp import AcquisitionValues

MAX_NEW_SAMPLES = 50  # random candidates after a repeated one, before the space is enumerated
MAX_ENUMERATED = 10_000  # candidates of a space that is enumerated to find a new one
# random candidates from which a startup trial is chosen by cost
N_STARTUP_SAMPLES = 20
# Held by threads that propose (``n_jobs``); of all samplers, because a lock cannot be pickled.
PROPOSAL_LOCK = threading.RLock()


class SpaceExhaustedError(Exception):
    """The search space is exhausted.

    Raised by ``infer_relative_search_space``, at the first suggestion of a trial.
    """


class CandidateSampler(BaseSampler):
    """Propose whole candidates of conditional spaces; usable in any Optuna study.

    A proposal is new as long as a new candidate is found: its parameters and its architecture
    differ from those of all trials. After that, proposals repeat trials.

    Args:
        define: define-by-run function that suggests all parameters of a trial, such as
            ``partial(suggest_params, space)``. None: the parameters that all past trials share;
            others are random.
        facts: exact values and constraints of a candidate before its trial runs; must be
            deterministic.
        region: samples and repairs feasible candidates of ``define``; without it, samples ignore
            constraints.
        objectives: in the study's order. None: read from the study; those that ``facts`` has are
            exact.
        seed: of all proposals. None: a new seed per sampler.
        n_startup_trials: trials with values before a model or a front is used. None: the sampler's
            default.
        rung_shares: shares of a full-budget run at which trials pause; the last one is 1.
    """

    default_n_startup_trials: ClassVar[int] = 10  # Optuna's number
    # whether the first trials are spread over exact costs
    starts_by_cost: ClassVar[bool] = False
    # whether it enumerates candidates and then ends the search
    is_exhaustive: ClassVar[bool] = False
    learns_from_infeasible: bool = False  # whether it reads infeasible trials
    proxy_note: str = ""  # whether the latest model uses a proxy, and why

    def __init__(self, *, define: DefineByRun | None = None, facts: FactsFunction | None = None,
                 region: FeasibleRegion | None = None,
                 objectives: Sequence[Objective] | None = None, seed: int | None = None,
                 n_startup_trials: int | None = None,
                 rung_shares: Sequence[float] = (1.0,)) -> None:
        self.define = define
        self.region = region
        self.facts = FactsCache.of(facts if facts is not None or region is None else region.facts)
        self.objectives = None if objectives is None else tuple(objectives)
        self.seed = secrets.randbits(32) if seed is None else seed
        self.n_startup_trials = type(
            self).default_n_startup_trials if n_startup_trials is None else n_startup_trials
        self.rung_shares = tuple(rung_shares)
        self._summaries = TrialSummaryCache(self.facts)
        self._proposed: dict[int, Candidate] = {}  # by trial, until its parameters are suggested
        self._enumerated: tuple[DefineByRun, list[Candidate] | None] | None = None

    def propose(self, state: SamplerState) -> Candidate | None:
        """Propose a candidate.

        None if no promising new candidate was found; a random one is then used.
        """
        raise NotImplementedError

    def infer_relative_search_space(
            self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        define = self.define
        if define is None:
            past = [other for other in study.get_trials(deepcopy=False)
                    if other.number != trial.number and other.distributions]
            shared = intersection_search_space(past, include_pruned=True)
            if not shared:
                return {}
            define = define_from_distributions(shared)
        return dict(self._propose(study, trial, define).distributions)

    def sample_relative(self, study: Study, trial: FrozenTrial,
                        search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        if not search_space:
            return {}
        candidate = self._proposed.get(trial.number)
        if candidate is None or not set(search_space) <= set(candidate.params):
            candidate = self._propose(study, trial, define_from_distributions(search_space))
        return {name: candidate.params[name] for name in search_space}

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str,
                           param_distribution: BaseDistribution) -> Any:
        generator = random.Random(self.seed_at(trial.number, param_name))
        return sample_value(param_distribution, generator)

    def make_state(self, study: Study, trial: FrozenTrial, define: DefineByRun) -> SamplerState:
        """State of the study when parameters are suggested for ``trial``.

        Other running trials have all parameters that were proposed for them.
        """
        past = [self._with_proposal(other)
                for other in study.get_trials(deepcopy=False) if other.number != trial.number]
        rng = random.Random(self.seed_at(trial.number))
        summaries = self._summaries
        objectives = self.objectives
        if self.define is not None and define is not self.define:  # other parameters: no facts
            summaries = TrialSummaryCache(FactsCache(None))
            objectives = None
        return SamplerState(trial.number, past, define, summaries, objectives, study, rng)

    def seed_at(self, number: int, name: str = "") -> int:
        """Seed (32 bits) of the proposal for a trial number, or of one of its parameters."""
        digest = hashlib.sha256(f"{self.seed}:{number}:{name}".encode()).digest()
        return int.from_bytes(digest[:4], "big")

    def next_candidate(self, state: SamplerState) -> Candidate:
        """The next candidate: repaired, chosen by cost, the sampler's own, or random.

        A candidate that repeats a trial is replaced by a new one, if one is found.

        Raises:
            SpaceExhaustedError: the sampler enumerates candidates, and all were proposed.
            UserError: the sampler proposes something other than a candidate.
        """
        candidate = None
        if self.learns_from_infeasible and state.last_is_rejected:
            candidate = self.repair(state, state.trials[-1].params)
        elif self.starts_by_cost:
            candidate = self._candidate_by_cost(state)
        candidate = candidate or self.propose(state)
        if not isinstance(candidate, Candidate | None):
            raise UserError(f"{type(self).__name__}.propose returned {candidate!r}: expected a "
                            "Candidate, or None", key="sampler", code="bad-proposal")
        if candidate is None:
            if self.is_exhaustive:
                raise SpaceExhaustedError("all feasible candidates of the space were proposed")
            candidate = self.sample_random(state)
        if not self.learns_from_infeasible and not state.facts(candidate.params).is_feasible:
            candidate = self.repair(state, candidate.params) or candidate
        if state.is_new(candidate):
            return candidate
        # Propose another one that is new and feasible: a random one, or the first of a small space.
        samples = (self.sample_random(state) for _ in range(MAX_NEW_SAMPLES))
        for others in (samples, self.enumerate_space(state.define) or ()):
            for other in others:
                if state.is_new(other) and state.facts(other.params).is_feasible:
                    return other
        return candidate

    def enumerate_space(self, define: DefineByRun | None) -> list[Candidate] | None:
        """All candidates of a space.

        None: the space is unknown, has a continuous range, or more than ``MAX_ENUMERATED``
        candidates.
        """
        if define is None:
            return None
        if self._enumerated is None or self._enumerated[0] is not define:
            try:
                candidates = list(islice(enumerate_candidates(define), MAX_ENUMERATED + 1))
            except UserError:  # a continuous range
                candidates = []
            is_small = 0 < len(candidates) <= MAX_ENUMERATED
            self._enumerated = define, candidates if is_small else None
        return self._enumerated[1]

    def sample_random(self, state: SamplerState, rng: random.Random | None = None) -> Candidate:
        """A random candidate; a feasible one if the sampler has a region."""
        rng = rng or state.rng
        region = self._region(state)
        feasible = region.sample_feasible(rng) if region else None
        return sample_candidate(state.define, rng) if feasible is None else feasible

    def repair(self, state: SamplerState, params: Mapping[str, Any]) -> Candidate | None:
        """A new feasible candidate near ``params``, else a random feasible one."""
        region = self._region(state)
        if region is None or not params:
            return None
        return region.repair(params, state.rng,
                             state.identities) or region.sample_feasible(state.rng)

    def acquisition_values(self, trials: Sequence[FrozenTrial]) -> AcquisitionValues | None:
        """Values of paused trials and of the best new candidate.

        None: the scheduler promotes by losses only.
        """
        return None

    def forecast_gain(self, trials: Sequence[FrozenTrial],
                      n_runs: int) -> HypervolumeForecast | None:
        """Forecast the growth of the hypervolume by ``n_runs`` runs; None: no forecast."""
        return None

    def _propose(self, study: Study, trial: FrozenTrial, define: DefineByRun) -> Candidate:
        with PROPOSAL_LOCK:
            candidate = self.next_candidate(self.make_state(study, trial, define))
            self._proposed[trial.number] = candidate
        return candidate

    def _with_proposal(self, trial: FrozenTrial) -> FrozenTrial:
        """``trial`` with its proposed parameters; the storage has those that were suggested."""
        candidate = self._proposed.get(trial.number)
        if candidate is None:
            return trial
        if trial.state.is_finished() or candidate.params.keys() <= trial.params.keys():
            del self._proposed[trial.number]
            return trial
        pending = copy.copy(trial)
        pending.params = {**candidate.params, **trial.params}
        pending.distributions = {**candidate.distributions, **trial.distributions}
        return pending

    def _region(self, state: SamplerState) -> FeasibleRegion | None:
        """The region, if it describes the parameters of this trial."""
        return self.region if state.facts is self.facts else None

    def _candidate_by_cost(self, state: SamplerState) -> Candidate | None:
        """Startup candidate: at a quantile of the costs of random feasible candidates.

        The quantiles 1/2, 1/4, 3/4, 1/8, … (van der Corput sequence) cover the range of costs also
        if few candidates are trained.
        """
        n_started = len(state.identities)
        if n_started >= self.n_startup_trials:
            return None

        def log_cost(candidate: Candidate) -> float:
            costs = state.facts(candidate.params).values
            return sum(math.log(max(cost, 1e-12)) for cost in costs if cost is not None)

        samples = [self.sample_random(state) for _ in range(N_STARTUP_SAMPLES)]
        feasible = sorted((sample for sample in samples if state.facts(sample.params).is_feasible),
                          key=log_cost)
        reversed_bits = int(f"{n_started + 1:b}"[::-1], 2)
        quantile = reversed_bits / 2 ** (n_started + 1).bit_length()
        return feasible[int(len(feasible) * quantile)] if feasible else None


class RandomSampler(CandidateSampler):
    """Sample every parameter uniformly, or log-uniformly for log ranges.

    With a feasible region, only feasible candidates are sampled.
    """

    def propose(self, state: SamplerState) -> Candidate:
        return self.sample_random(state)


class GridSampler(CandidateSampler):
    """Propose every candidate of a space once.

    Raises :class:`SpaceExhaustedError` after the last one.

    Raises:
        UserError: at the first proposal, if ``define`` has a continuous range.
    """

    is_exhaustive = True

    def __init__(self, define: DefineByRun, **arguments: Any) -> None:
        super().__init__(define=define, **arguments)
        self._feasible: list[Candidate] = []  # the feasible candidates so far
        self._remaining = iter(enumerate_candidates(define))

    def propose(self, state: SamplerState) -> Candidate | None:
        """Return the first candidate that no trial has."""
        if state.define is not self.define:
            return next(filter(state.is_new, enumerate_candidates(state.define)), None)
        for candidate in self._feasible:
            if state.is_new(candidate):
                return candidate
        for candidate in self._remaining:
            if self.facts(candidate.params).is_feasible:
                self._feasible.append(candidate)
                if state.is_new(candidate):
                    return candidate
        return None
