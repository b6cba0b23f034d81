"""Optuna study in memory: a fold of a study's trials, for samplers and scheduler.

In it are the trials that the space could have proposed, in their order: trained ones are COMPLETE,
infeasible ones PRUNED with their constraints, failed ones and duplicates FAIL, everything else
RUNNING. What replicates came to is an attribute of the trial that they repeat, from when the study
is opened again: none is trained before a search is over. References from outside the space are
shown to the scheduler alone: Optuna knows no trial without parameters. What a study does now goes
through ask, or the queue, and tell; what it did before it was opened is added as it ended.
"""

import warnings
from typing import Any

import optuna
from optuna.samplers import BaseSampler, RandomSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from scalesearch.pareto.objective import Objective
from scalesearch.samplers.encoding import encode_params, suggest_params
from scalesearch.samplers.trial_history import ARCHITECTURE, COMPUTE, COSTS, PAUSED, REPLICATES, RUNGS
from scalesearch.study.optuna_sync.attributes import TRIAL_NUMBER_ATTR
from scalesearch.study.trials.trial import Origin, Params, State, Trial
from scalesearch.study.trials.trials import Trials, full_run_cpu_seconds

OPTUNA_STATES = {State.COMPLETE: TrialState.COMPLETE, State.FAILED: TrialState.FAIL, State.INFEASIBLE: TrialState.PRUNED,
          State.DUPLICATE: TrialState.FAIL}  # others are RUNNING
DIRECTIONS = {"min": "minimize", "max": "maximize"}


class SearchStudy:
    """The Optuna study of a search.

    Args:
        space: asks the parameters.
        objectives: of the study.
        trials: what has happened so far.
        has_compute_limit: whether trials say what CPU time they take, since that is what the search
            has a limit of.
    """

    def __init__(self, space: Any, objectives: tuple[Objective, ...], trials: Trials,
                 has_compute_limit: bool = False) -> None:
        self.space = space
        self.objectives = objectives
        self.trials = trials
        self.has_compute_limit = has_compute_limit
        self.storage = InMemoryStorage()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.study = optuna.create_study(
            directions=[DIRECTIONS[one.direction] for one in objectives], storage=self.storage)
        self._optuna_numbers: dict[int, int] = {}  # our number to Optuna's
        self._trials_outside_space: dict[int, tuple[Trial, FrozenTrial]] = {}
        # what replicates came to, by the trial that they repeat
        self._replicate_values: dict[int | None, list[Any]] = {}
        for trial in trials.replicates():
            if trial.state == State.COMPLETE:
                self._replicate_values.setdefault(trial.original, []).append(
                    _values(trial, objectives))
        for trial in trials.candidates():
            if trial.is_in_space:
                self.add(trial)

    def ask(self, sampler: BaseSampler) -> tuple[optuna.Trial, Params]:
        """A new trial of Optuna's, and the params that ``sampler`` proposes for it.

        Raises:
            Exhausted: the sampler has nothing left to propose.
        """
        self.study.sampler = sampler
        number = len(self._optuna_trials())
        try:
            with warnings.catch_warnings():
                # what is experimental in Optuna is our business, not the user's
                warnings.simplefilter("ignore")
                asked = self.study.ask()
                return asked, suggest_params(self.space, asked).params
        except BaseException:
            # the search ends here; nobody is to take it for one in training
            for left in self._optuna_trials()[number:]:
                self.study.tell(left.number, state=TrialState.FAIL)
            raise

    def enqueue(self, params: Params) -> optuna.Trial:
        """The trial of Optuna's in which no sampler has a say: ``params`` are known."""
        self.study.enqueue_trial(encode_params(self.space, params)[0])
        return self.ask(RandomSampler())[0]

    def add(self, trial: Trial, optuna_trial: optuna.Trial | None = None) -> None:
        """Adds an evaluated ``trial``.

        ``optuna_trial`` is Optuna's own where a sampler proposed it.
        """
        if optuna_trial is None:
            self._optuna_numbers[trial.number] = len(self._optuna_trials())
            shown = self._frozen(trial)
            if trial.number in self._replicate_values:
                shown.set_user_attr(REPLICATES, self._replicate_values[trial.number])
            self.study.add_trial(shown)
            return
        self._optuna_numbers[trial.number] = optuna_trial.number
        for name, slack in trial.constraints.items():
            optuna_trial.set_constraint(name, slack)
        self.update(trial)

    def update(self, trial: Trial) -> None:
        """Updates the state of ``trial``.

        Replicates, and references from outside the space, are ignored.
        """
        if trial.number not in self._optuna_numbers:
            return
        number = self._optuna_numbers[trial.number]
        for name, value in self._attributes(trial).items():
            self.storage.set_trial_user_attr(self._optuna_trials()[number]._trial_id, name, value)
        if trial.state in OPTUNA_STATES:
            self.study.tell(number, state=OPTUNA_STATES[trial.state],
                            values=_values(trial, self.objectives))

    def history(self) -> list[FrozenTrial]:
        """Every candidate, references from outside the space included, as the scheduler reads it."""
        return self._optuna_trials() + [self._shown(trial)
                                        for trial in self.trials.with_origin(Origin.REFERENCE)
                                        if not trial.is_in_space]

    def _optuna_trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _shown(self, trial: Trial) -> FrozenTrial:
        if self._trials_outside_space.get(trial.number, (None,))[0] is not trial:
            shown = self._frozen(trial)
            shown.number = -1 - trial.number  # apart from the study's own
            self._trials_outside_space[trial.number] = trial, shown
        return self._trials_outside_space[trial.number][1]

    def _frozen(self, trial: Trial) -> FrozenTrial:
        """``trial`` in Optuna's words."""
        params, distributions = encode_params(
            self.space, trial.params) if trial.params else ({}, {})
        return optuna.create_trial(state=OPTUNA_STATES.get(trial.state, TrialState.RUNNING),
                                   values=_values(trial, self.objectives), params=params,
                                   distributions=distributions, user_attrs=self._attributes(trial),
                                   constraints=dict(trial.constraints))

    def _attributes(self, trial: Trial) -> dict[str, Any]:
        """User attributes that samplers and the scheduler read."""
        exact = {one.name: trial.costs[one.name]
                 for one in self.objectives if not one.is_measured and trial.costs}
        told = {TRIAL_NUMBER_ATTR: trial.number, ARCHITECTURE: trial.identity, COSTS: exact,
                RUNGS: list(trial.losses), PAUSED: trial.state == State.PAUSED}
        return told | ({COMPUTE: full_run_cpu_seconds(trial)} if self.has_compute_limit else {})


def _values(trial: Trial, objectives: tuple[Objective, ...]) -> list[float] | None:
    return [trial.values[one.name]
            for one in objectives] if trial.state == State.COMPLETE and trial.values else None
