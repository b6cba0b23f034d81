"""Adapter of Optuna samplers.

They propose whole feasible candidates, and read paused trials.

The inner sampler reads a study in memory that is built from the history. The reason: values of
Optuna trials cannot change, but the predicted value of a paused trial changes whenever another
trial ends. Infeasible trials have the state PRUNED, with constraints, from which TPE can learn;
with FAIL, it would propose them again. Failed trials are also PRUNED. Repeated trials are omitted.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseGASampler, BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from scalesearch.samplers.candidate import Candidate, define_from_distributions
from scalesearch.samplers.candidate_sampler import PROPOSAL_LOCK, CandidateSampler
from scalesearch.samplers.sampler_state import SamplerState

MakeInner = Callable[[int], BaseSampler]
# a trial, and its values for the inner sampler
TrialWithValues = tuple[FrozenTrial, "list[float] | None"]


class SharedFrozenTrial(FrozenTrial):
    """A trial that does not change, so that a study need not copy it deeply."""

    def __deepcopy__(self, memo: Any) -> SharedFrozenTrial:
        return copy.copy(self)


class OptunaSamplerAdapter(CandidateSampler):
    """Sampler that makes a new Optuna sampler for every trial.

    Its proposals therefore depend only on the history and the trial number.

    Args:
        inner: function from a seed to an Optuna sampler.
        learns_from_infeasible: whether ``inner`` reads constraints; otherwise, its proposals are
            repaired.
        n_startup_trials: number of random trials at the start; by default the population size of a
            genetic algorithm.
        arguments: arguments of :class:`~scalesearch.samplers.candidate_sampler.CandidateSampler`.
    """

    def __init__(self, inner: MakeInner, *, learns_from_infeasible: bool = False,
                 n_startup_trials: int | None = None, **arguments: Any) -> None:
        example = inner(0)
        self.generation = example.population_size if isinstance(example, BaseGASampler) else None
        # Optuna has no public name for the generation of a trial.
        self._generation_key = example._get_generation_key() if isinstance(
            example, BaseGASampler) else ""
        super().__init__(n_startup_trials=n_startup_trials or self.generation, **arguments)
        self.inner = inner
        self.learns_from_infeasible = learns_from_infeasible
        self._inner_trials: list[TrialWithValues] = []
        self._study: Study | None = None

    def propose(self, state: SamplerState) -> Candidate:
        if self.region is not None and len(state.predicted_values) < self.n_startup_trials:
            return self.sample_random(state)
        with warnings.catch_warnings():
            # warnings about experimental samplers were shown when the study was read
            warnings.simplefilter("ignore")
            study = self.make_inner_study(state)
            study.sampler = self.inner(state.rng.getrandbits(32))
            trial = study.ask()
            try:
                state.define(trial)
                return Candidate(trial.params, trial.distributions)
            finally:
                # samplers ignore failed trials: the trial has no effect on the next proposal
                study.tell(trial, state=TrialState.FAIL)

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str,
                           param_distribution: BaseDistribution) -> Any:
        with PROPOSAL_LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inner_study = self.make_inner_study(
                self.make_state(study, trial, self.define or define_from_distributions({})))
            inner_study.sampler = self.inner(self.seed_at(trial.number, param_name))
            number = inner_study.ask().number
            inner_trial = inner_study.get_trials(deepcopy=False)[number]
            value = inner_study.sampler.sample_independent(inner_study, inner_trial, param_name,
                                                           param_distribution)
            inner_study.tell(number, state=TrialState.FAIL)
            return value

    def make_inner_study(self, state: SamplerState) -> Study:
        """Return the study of the inner sampler; the previous one is extended if possible.

        It does not contain trials that ended without values, such as trials without rungs before
        final values can be predicted.
        """
        trials: list[TrialWithValues] = [
            (trial, state.predicted_values.get(trial.number))
            for trial, is_repeated in zip(state.trials, state.is_repeated)
            if trial.params and not (is_repeated and trial.state == TrialState.FAIL)
            and (trial.number in state.predicted_values or trial.state != TrialState.COMPLETE)]
        n_known = len(self._inner_trials)
        is_extended = n_known <= len(trials) and all(
            trial.number == other.number and trial.state == other.state
            and trial.params == other.params and values == other_values
            for (trial, values), (other, other_values) in zip(trials, self._inner_trials))
        if self._study is None or self.generation or not is_extended:
            n_known = 0
            self._study = optuna.create_study(
                directions=[objective.optuna_direction for objective in state.objectives])
        n_with_values = sum(values is not None for _, values in trials[:n_known])
        for trial, values in trials[n_known:]:
            state_of_trial = trial.state
            if values is not None:
                state_of_trial = TrialState.COMPLETE
            elif trial.state == TrialState.FAIL:
                state_of_trial = TrialState.PRUNED
            attributes = dict(trial.system_attrs)
            if self.generation:
                attributes[self._generation_key] = n_with_values // self.generation
            end = trial.datetime_start if state_of_trial.is_finished() else None
            self._study.add_trial(SharedFrozenTrial(
                trial.number, state_of_trial, None, trial.datetime_start,
                trial.datetime_complete or end, trial.params, trial.distributions, {}, attributes,
                trial.intermediate_values, -1, values=values))
            n_with_values += values is not None
        self._inner_trials = trials
        return self._study
