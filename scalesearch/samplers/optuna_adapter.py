"""Any sampler of Optuna's as one of ours: it proposes whole feasible sheets, and hears of what was paused.

The study that it sees is built in memory from the history: values of Optuna's trials cannot be
changed once told, but what a paused trial is worth changes with every other that ends. Infeasible
trials are shown as pruned, with constraints, which teaches TPE (and FAIL would trap it); so are
failed ones, and repetitions are left out.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseGASampler, BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from scalesearch.samplers.candidate import Candidate, define_from_distributions
from scalesearch.samplers.candidate_sampler import CandidateSampler
from scalesearch.samplers.sampler_state import SamplerState

MakeInner = Callable[[int], BaseSampler]
# a trial, and the values that the sampler is told
TrialWithValues = tuple[FrozenTrial, "list[float] | None"]


class SharedFrozenTrial(FrozenTrial):
    """A trial that is never changed again, so that a study need not copy all of it."""

    def __deepcopy__(self, memo: Any) -> SharedFrozenTrial:
        return copy.copy(self)


class OptunaSamplerAdapter(CandidateSampler):
    """Asks a fresh sampler of Optuna's for every trial, so that its proposals depend on history and number alone.

    Args:
        inner: makes the sampler from a seed.
        learns_from_infeasible: whether ``inner`` reads constraints; if not, what it proposes is
            repaired.
        arguments: of :class:`~scalesearch.samplers.candidate_sampler.CandidateSampler`. With a
            region, the number of
            random trials at the start is the size of the inner sampler's generation, if it has
            generations.
    """

    def __init__(self, inner: MakeInner, *, learns_from_infeasible: bool = False,
                 n_startup_trials: int | None = None, **arguments: Any) -> None:
        example = inner(0)
        self.generation = example.population_size if isinstance(example, BaseGASampler) else None
        # Which generation a trial is of has no public name in Optuna.
        self._generation_key = example._get_generation_key() if isinstance(
            example, BaseGASampler) else ""
        super().__init__(n_startup_trials=n_startup_trials or self.generation, **arguments)
        self.inner = inner
        self.learns_from_infeasible = learns_from_infeasible
        self._shown_trials: list[TrialWithValues] = []
        self._study: Study | None = None

    def propose(self, state: SamplerState) -> Candidate:
        if self.region is not None and len(state.predicted_values) < self.n_startup_trials:
            return self.sample_random(state)
        with warnings.catch_warnings():
            # what is experimental in Optuna was said when the study was read
            warnings.simplefilter("ignore")
            study = self.make_inner_study(state)
            study.sampler = self.inner(state.rng.getrandbits(32))
            trial = study.ask()
            try:
                state.define(trial)
                return Candidate(trial.params, trial.distributions)
            finally:
                # no sampler reads failed ones: as if it had not been asked
                study.tell(trial, state=TrialState.FAIL)

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str,
                           param_distribution: BaseDistribution) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shown = self.make_inner_study(
                self.make_state(study, trial, self.define or define_from_distributions({})))
            shown.sampler = self.inner(self.seed_of(trial, param_name))
            number = shown.ask().number
            asking = shown.get_trials(deepcopy=False)[number]
            value = shown.sampler.sample_independent(shown, asking, param_name, param_distribution)
            shown.tell(number, state=TrialState.FAIL)
            return value

    def make_inner_study(self, state: SamplerState) -> Study:
        """A study of what is known; the last one, where it only has to grow.

        Trials that have ended without values, as those without rungs before ends can be forecast,
        are not in it.
        """
        facts: list[TrialWithValues] = [
            (trial, state.predicted_values.get(trial.number))
            for trial, is_repeated in zip(state.trials, state.is_repeated)
            if trial.params and not (is_repeated and trial.state == TrialState.FAIL)
            and (trial.number in state.predicted_values or trial.state != TrialState.COMPLETE)]
        if self._study is None or self.generation or not _continues(self._shown_trials, facts):
            self._shown_trials = []
            self._study = optuna.create_study(
                directions=[_DIRECTIONS[one.direction] for one in state.objectives])
        told = sum(values is not None for _, values in self._shown_trials)
        for trial, values in facts[len(self._shown_trials) :]:
            self._study.add_trial(self._to_inner_trial(trial, values, told))
            told += values is not None
        self._shown_trials = facts
        return self._study

    def _to_inner_trial(self, trial: FrozenTrial, values: Sequence[float] | None,
                        n_trials_before: int) -> FrozenTrial:
        """``trial`` as the inner sampler sees it, when ``n_trials_before`` others with values were shown before."""
        state = TrialState.COMPLETE if values is not None else _STATES.get(trial.state, trial.state)
        attributes = dict(trial.system_attrs)
        if self.generation:
            attributes[self._generation_key] = n_trials_before // self.generation
        ended = trial.datetime_start if state.is_finished() else None
        return SharedFrozenTrial(trial.number, state, None, trial.datetime_start,
                                 trial.datetime_complete or ended, trial.params,
                                 trial.distributions, {}, attributes, trial.intermediate_values, -1,
                                 values=values)


_DIRECTIONS = {"min": StudyDirection.MINIMIZE, "max": StudyDirection.MAXIMIZE}
_STATES = {TrialState.FAIL: TrialState.PRUNED}


def _continues(old: Sequence[TrialWithValues], new: Sequence[TrialWithValues]) -> bool:
    """Whether ``new`` begins with all of ``old``."""
    return len(old) <= len(new) and all(
        a.number == b.number and a.state == b.state and a.params == b.params and x == y
        for (a, x), (b, y) in zip(old, new))
