"""Optuna's copy of a study, for its dashboard and its plots: every trial, told as soon as we know.

Who proposes is another's business (:mod:`scalesearch.samplers`); nothing is read from here. The constraints are
the same, in the same order, on every trial, and an infeasible one is told as PRUNED. Optuna's values cannot change
once told, so a trial keeps those of its first seed, and further seeds are not in the copy. Nor are references from
outside the space, which have no parameters: Optuna compares what all trials have.
"""

from collections.abc import Mapping
from typing import Any

import optuna
from optuna.trial import TrialState

from scalesearch.samplers.base import Askable
from scalesearch.study.config.objectives import Objective
from scalesearch.study.optuna_sync.attributes import NUMBER, Values, attributes
from scalesearch.study.trials.trials import COMPLETE, FAILED, INFEASIBLE, PAUSED, PENDING, Ledger, Trial

STATES = {
    COMPLETE: TrialState.COMPLETE,
    FAILED: TrialState.FAIL,
    INFEASIBLE: TrialState.PRUNED,
    PENDING: TrialState.RUNNING,
    PAUSED: TrialState.RUNNING,
}


class Mirror:
    """One Optuna study, owned by this process.

    Args:
        space: says what the questions are.
        limits: names of all constraints, in the order in which every trial has them.
        objectives: of the study.
        study: an Optuna study with the objectives' directions; see :mod:`scalesearch.study.optuna_sync.storage`.
    """

    def __init__(self, space: Askable, limits: tuple[str, ...], objectives: tuple[Objective, ...],
                 study: optuna.Study) -> None:
        self.space, self.limits, self.objectives = space, limits, objectives
        self.study, self.encoding = study, Values(space)
        self._there: dict[int, int] = {}  # our trial number to Optuna's

    def tell(self, number: int, values: Mapping[str, float] | None) -> None:
        """The values of a trained candidate, or None for one that failed."""
        if number not in self._there:
            return  # a reference from outside the space: Optuna has no parameters for it
        if values is None:
            self.study.tell(self._there[number], state=TrialState.FAIL)
        else:
            self.study.tell(self._there[number], values=[values[o.name] for o in self.objectives])

    def add(self, trial: Trial, outcome: Trial) -> None:
        """Gives Optuna a trial; ``outcome`` is the one whose result counts."""
        self._there[trial.number] = len(self.study.get_trials(deepcopy=False))
        self.study.add_trial(self._frozen(trial, outcome))

    def reconcile(self, ledger: Ledger) -> bool:
        """Brings Optuna's study to what the ledger says, as far as trials can be told or added.

        Returns:
            Whether it is now as if nothing had been interrupted; if not, the storage holds trials that the ledger
            does not know, or has them in another order.
        """
        wanted = [trial for trial in ledger.searched() if trial.in_space]
        there = self.study.get_trials(deepcopy=False)
        self._there = {t.user_attrs[NUMBER]: t.number for t in there if NUMBER in t.user_attrs}
        for trial in wanted:
            if trial.number not in self._there:
                self.add(trial, ledger.outcome(trial))
            else:
                self._catch_up(there[self._there[trial.number]], trial, ledger.outcome(trial))
        strangers = [t for t in there if not self._same(t, ledger.trials.get(t.user_attrs.get(NUMBER, -1)))]
        for stranger in strangers:
            if stranger.state == TrialState.RUNNING:
                self.study.tell(stranger.number, state=TrialState.FAIL)
        return not strangers and sorted(self._there.values()) == [self._there[t.number] for t in wanted]

    def _same(self, there: optuna.trial.FrozenTrial, trial: Trial | None) -> bool:
        """Whether Optuna's trial is ours, with the parameters that we asked for."""
        return trial is not None and trial.in_space and self._encoded(trial)[0] == there.params

    def _encoded(self, trial: Trial) -> tuple[Any, Any]:
        """Its parameters and what they are drawn from; a row of a table was asked nothing."""
        return self.encoding.encode(trial.params) if trial.params else ({}, {})

    def _catch_up(self, there: optuna.trial.FrozenTrial, trial: Trial, outcome: Trial) -> None:
        """Tells what Optuna has not heard: the process died between our record and the tell."""
        if there.state != TrialState.RUNNING:
            return
        again = optuna.Trial(self.study, there._trial_id)
        for name in self.limits:
            if name not in there.constraints:
                again.set_constraint(name, trial.slacks[name])
        if trial.state == INFEASIBLE:
            self.study.tell(there.number, state=TrialState.PRUNED)
        elif outcome.state in (COMPLETE, FAILED):
            self.tell(trial.number, outcome.values)

    def _frozen(self, trial: Trial, outcome: Trial) -> optuna.trial.FrozenTrial:
        params, shapes = self._encoded(trial)
        state = STATES[trial.state if trial.state == INFEASIBLE else outcome.state]
        values = None
        if state == TrialState.COMPLETE and outcome.values:
            values = [outcome.values[o.name] for o in self.objectives]
        return optuna.create_trial(
            state=state,
            values=values,
            params=params,
            distributions=shapes,
            user_attrs=attributes(trial),
            constraints={name: trial.slacks[name] for name in self.limits},
        )

