"""Optuna study in memory, for the sampler and the scheduler.

It contains all trials that the space could have proposed, in order. Complete trials are COMPLETE,
infeasible trials PRUNED with their constraints, failed trials and duplicates FAIL. All others are
RUNNING: these are the pending points of the acquisition function.

Scores of replicates are an attribute of the trial that they repeat. They are read when the study is
opened, because replicates are trained only after the search. References from outside the space are
passed to the scheduler only: Optuna requires parameters.

Trials of this process go through ask, or the queue, and tell. Earlier trials are added as they
ended.
"""

import warnings
from typing import Any

import optuna
from optuna.samplers import BaseSampler, RandomSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from scalesearch.pareto import Objective
from scalesearch.samplers.encoding import encode_params, suggest_params
from scalesearch.samplers.trial_history import (
    ARCHITECTURE,
    COMPUTE,
    COSTS,
    PAUSED,
    REPLICATES,
    RUNGS,
)
from scalesearch.spaces.space import Space
from scalesearch.studies.optuna_sync.attributes import (
    OPTUNA_STATES,
    TRIAL_NUMBER_ATTR,
    values_of,
)
from scalesearch.studies.trials.evaluator import JointSpace
from scalesearch.studies.trials.trial import Origin, Params, State, Trial
from scalesearch.studies.trials.trials import Trials, full_run_cpu_seconds


class SearchStudy:
    """The Optuna study of a search.

    Args:
        space: of architectures, and of recipes if they are searched.
        objectives: of the study.
        trials: of the study so far.
        has_compute_limit: whether the search is limited by CPU time; trials then report theirs.
    """

    def __init__(self, space: Space | JointSpace, objectives: tuple[Objective, ...], trials: Trials,
                 has_compute_limit: bool = False) -> None:
        self.space = space
        self.objectives = objectives
        self.trials = trials
        self.has_compute_limit = has_compute_limit
        self.storage = InMemoryStorage()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.study = optuna.create_study(
            directions=[objective.optuna_direction for objective in objectives],
            storage=self.storage)
        self._optuna_numbers: dict[int, int] = {}  # by the study's trial number
        self._trials_outside_space: dict[int, tuple[Trial, FrozenTrial]] = {}
        # Objective values of replicates, by the trial that they repeat.
        self._replicate_values: dict[int | None, list[Any]] = {}
        for trial in trials.replicates():
            if trial.state == State.COMPLETE:
                self._replicate_values.setdefault(trial.original, []).append(
                    values_of(trial, objectives))
        for trial in trials.candidates():
            if trial.is_in_space:
                self.add(trial)

    def ask(self, sampler: BaseSampler) -> tuple[optuna.Trial, Params]:
        """Return a new Optuna trial and the params that ``sampler`` proposes for it.

        Raises:
            SpaceExhaustedError: the sampler has no further proposal.
        """
        self.study.sampler = sampler
        number = len(self._optuna_trials())
        try:
            with warnings.catch_warnings():
                # Warnings of experimental features of Optuna do not concern the user.
                warnings.simplefilter("ignore")
                optuna_trial = self.study.ask()
                return optuna_trial, suggest_params(self.space, optuna_trial).params
        except BaseException:
            # Without this, the trial would count as in training.
            for trial in self._optuna_trials()[number:]:
                self.study.tell(trial.number, state=TrialState.FAIL)
            raise

    def discard(self, optuna_trial: optuna.Trial) -> None:
        """End a trial that repeats another; no trial of the study belongs to it."""
        self.study.tell(optuna_trial, state=TrialState.FAIL)

    def enqueue(self, params: Params) -> optuna.Trial:
        """Return a new Optuna trial with fixed ``params``, through Optuna's queue."""
        self.study.enqueue_trial(encode_params(self.space, params)[0])
        return self.ask(RandomSampler())[0]

    def add(self, trial: Trial, optuna_trial: optuna.Trial | None = None) -> None:
        """Add an evaluated ``trial``; ``optuna_trial`` is set if it was asked for now."""
        if optuna_trial is None:
            self._optuna_numbers[trial.number] = len(self._optuna_trials())
            frozen_trial = self._frozen(trial)
            if trial.number in self._replicate_values:
                frozen_trial.set_user_attr(REPLICATES, self._replicate_values[trial.number])
            self.study.add_trial(frozen_trial)
            return
        self._optuna_numbers[trial.number] = optuna_trial.number
        for name, slack in trial.constraints.items():
            optuna_trial.set_constraint(name, slack)
        self.update(trial)

    def update(self, trial: Trial) -> None:
        """Update the state of ``trial``.

        Replicates and trials outside the space are ignored.
        """
        if trial.number not in self._optuna_numbers:
            return
        number = self._optuna_numbers[trial.number]
        for name, value in self._attributes(trial).items():
            self.storage.set_trial_user_attr(self._optuna_trials()[number]._trial_id, name, value)
        if trial.state in OPTUNA_STATES:
            self.study.tell(number, state=OPTUNA_STATES[trial.state],
                            values=values_of(trial, self.objectives))

    def history(self) -> list[FrozenTrial]:
        """Return all candidates for the scheduler, with references from outside the space."""
        outside = []
        for trial in self.trials.with_origin(Origin.REFERENCE):
            if trial.is_in_space:
                continue
            if self._trials_outside_space.get(trial.number, (None,))[0] is not trial:
                frozen_trial = self._frozen(trial)
                frozen_trial.number = -1 - trial.number  # differs from all numbers of Optuna
                self._trials_outside_space[trial.number] = trial, frozen_trial
            outside.append(self._trials_outside_space[trial.number][1])
        return self._optuna_trials() + outside

    def _optuna_trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _frozen(self, trial: Trial) -> FrozenTrial:
        """Return ``trial`` as an Optuna trial."""
        params, distributions = (encode_params(self.space, trial.params) if trial.params
                                 else ({}, {}))
        return optuna.create_trial(state=OPTUNA_STATES.get(trial.state, TrialState.RUNNING),
                                   values=values_of(trial, self.objectives), params=params,
                                   distributions=distributions, user_attrs=self._attributes(trial),
                                   constraints=dict(trial.constraints))

    def _attributes(self, trial: Trial) -> dict[str, Any]:
        """Return the user attributes that samplers and the scheduler read."""
        exact = {objective.name: trial.costs[objective.name]
                 for objective in self.objectives if not objective.is_measured and trial.costs}
        attributes: dict[str, Any] = {
            TRIAL_NUMBER_ATTR: trial.number, ARCHITECTURE: trial.identity, COSTS: exact,
            RUNGS: list(trial.losses), PAUSED: trial.state == State.PAUSED}
        if self.has_compute_limit:
            attributes[COMPUTE] = full_run_cpu_seconds(trial)
        return attributes
