"""Any sampler of Optuna's as one of ours: it proposes whole feasible sheets, and hears of what was paused.

The study that it sees is built in memory from the history: values of Optuna's trials cannot be changed once told, but
what a paused trial is worth changes with every other that ends. Infeasible trials are shown as pruned, with
constraints, which teaches TPE (and FAIL would trap it); so are failed ones, and repetitions are left out.
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

from scalesearch.samplers.ask import Ask
from scalesearch.samplers.base import SheetSampler
from scalesearch.samplers.sheet import Sheet, flat

MakeInner = Callable[[int], BaseSampler]
Shown = tuple[FrozenTrial, "list[float] | None"]  # a trial, and the values that the sampler is told


class SharedFrozenTrial(FrozenTrial):
    """A trial that is never changed again, so that a study need not copy all of it."""

    def __deepcopy__(self, memo: Any) -> SharedFrozenTrial:
        return copy.copy(self)


class Wrapped(SheetSampler):
    """Asks a fresh sampler of Optuna's for every trial, so that its proposals depend on history and number alone.

    Args:
        inner: makes the sampler from a seed.
        learns_from_infeasible: whether ``inner`` reads constraints; if not, what it proposes is repaired.
        arguments: of :class:`~scalesearch.samplers.base.SheetSampler`. The trials of a known region that come first are
            as many as the inner sampler has in a generation, where it has those.
    """

    def __init__(self, inner: MakeInner, *, learns_from_infeasible: bool = False, n_startup_trials: int | None = None,
                 **arguments: Any) -> None:
        example = inner(0)
        self.generation = example.population_size if isinstance(example, BaseGASampler) else None
        # Which generation a trial is of has no public name in Optuna.
        self._generation_key = example._get_generation_key() if isinstance(example, BaseGASampler) else ""
        super().__init__(n_startup_trials=n_startup_trials or self.generation, **arguments)
        self.inner, self.learns_from_infeasible = inner, learns_from_infeasible
        self._shown: list[Shown] = []
        self._study: Study | None = None

    def propose(self, ask: Ask) -> Sheet:
        if self.region is not None and len(ask.values) < self.n_startup_trials:
            return self.sample(ask)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is experimental in Optuna was said when the study was read
            study = self.shown(ask)
            study.sampler = self.inner(ask.rng.getrandbits(32))
            trial = study.ask()
            try:
                ask.define(trial)
                return Sheet(trial.params, trial.distributions)
            finally:
                study.tell(trial, state=TrialState.FAIL)  # no sampler reads failed ones: as if it had not been asked

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str,
                           param_distribution: BaseDistribution) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shown = self.shown(self.ask(study, trial, self.define or flat({})))
            shown.sampler = self.inner(self.seed_of(trial, param_name))
            number = shown.ask().number
            asking = shown.get_trials(deepcopy=False)[number]
            value = shown.sampler.sample_independent(shown, asking, param_name, param_distribution)
            shown.tell(number, state=TrialState.FAIL)
            return value

    def shown(self, ask: Ask) -> Study:
        """A study of what is known; the last one, where it only has to grow.

        Trials that have ended without values, as those without rungs before ends can be forecast, are not in it.
        """
        facts: list[Shown] = [(trial, ask.values.get(trial.number)) for trial, again in zip(ask.trials, ask.repeated)
                              if trial.params and not (again and trial.state == TrialState.FAIL)
                              and (trial.number in ask.values or trial.state != TrialState.COMPLETE)]
        if self._study is None or self.generation or not _continues(self._shown, facts):
            self._shown = []
            self._study = optuna.create_study(directions=[_DIRECTIONS[one.direction] for one in ask.objectives])
        told = sum(values is not None for _, values in self._shown)
        for trial, values in facts[len(self._shown) :]:
            self._study.add_trial(self._trial(trial, values, told))
            told += values is not None
        self._shown = facts
        return self._study

    def _trial(self, trial: FrozenTrial, values: Sequence[float] | None, told: int) -> FrozenTrial:
        """``trial`` as the inner sampler sees it, when ``told`` others with values were shown before."""
        state = TrialState.COMPLETE if values is not None else _STATES.get(trial.state, trial.state)
        attributes = dict(trial.system_attrs)
        if self.generation:
            attributes[self._generation_key] = told // self.generation
        ended = trial.datetime_start if state.is_finished() else None
        return SharedFrozenTrial(trial.number, state, None, trial.datetime_start, trial.datetime_complete or ended,
                                 trial.params, trial.distributions, {}, attributes, trial.intermediate_values, -1,
                                 values=values)


_DIRECTIONS = {"min": StudyDirection.MINIMIZE, "max": StudyDirection.MAXIMIZE}
_STATES = {TrialState.FAIL: TrialState.PRUNED}


def _continues(old: Sequence[Shown], new: Sequence[Shown]) -> bool:
    """Whether ``new`` begins with all of ``old``."""
    return len(old) <= len(new) and all(
        a.number == b.number and a.state == b.state and a.params == b.params and x == y
        for (a, x), (b, y) in zip(old, new))
