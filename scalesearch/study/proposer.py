"""Optuna as the one who answers a space's questions: ask, reject at once or tell later.

What was measured and decides the shape of this file: infeasible proposals told as FAIL trap TPE, PRUNED together
with constraints teaches it; the constraints must be the same, in the same order, on every trial; a fresh sampler
seeded by (study seed, trial number) makes an interrupted study propose what the uninterrupted one would have.
NSGA-II learns from complete trials alone, so for it a pruned proposal is simply rejected and asked again.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import TrialState

from scalesearch.search.encoding import Encoding
from scalesearch.study.ledger import COMPLETE, FAILED, INFEASIBLE, PENDING, Ledger, Trial
from scalesearch.study.objectives import Objective

KINDS = ("tpe", "nsga2", "random")
NUMBER = "trial"  # the attribute of an Optuna trial that holds our number
STATES = {
    COMPLETE: TrialState.COMPLETE,
    FAILED: TrialState.FAIL,
    INFEASIBLE: TrialState.PRUNED,
    PENDING: TrialState.RUNNING,
}


@dataclass(frozen=True)
class ProposerSettings:
    """Who proposes. ``startup``: random proposals before TPE models; ``population``: NSGA-II's."""

    kind: str = "tpe"
    seed: int = 1
    startup: int = 10
    population: int = 20


def make_sampler(settings: ProposerSettings, number: int, explore: bool = False) -> BaseSampler:
    """The sampler of trial ``number``; ``explore`` asks for a random one, to leave a beaten track."""
    digest = hashlib.sha256(f"{settings.seed}:{number}".encode()).digest()
    seed = int.from_bytes(digest[:4], "big")
    if settings.kind == "random" or explore:
        return RandomSampler(seed=seed)
    if settings.kind == "nsga2":
        return NSGAIISampler(seed=seed, population_size=settings.population)
    return TPESampler(seed=seed, n_startup_trials=settings.startup, constant_liar=True)


class Proposer:
    """One Optuna study, owned by this process.

    Args:
        space: asks the questions.
        limits: names of all constraints, in the order in which every trial has them.
        objectives: of the study.
        settings: kind and seed.
        study: an Optuna study with the objectives' directions; see :mod:`scalesearch.study.storage`.
    """

    def __init__(
        self,
        space: Any,
        limits: tuple[str, ...],
        objectives: tuple[Objective, ...],
        settings: ProposerSettings,
        study: optuna.Study,
    ) -> None:
        self.space, self.limits, self.objectives, self.settings = space, limits, objectives, settings
        self.study, self.encoding = study, Encoding(space)
        self._there: dict[int, int] = {}  # our trial number to Optuna's
        self._open: dict[int, optuna.Trial] = {}

    def ask(self, number: int, explore: bool = False) -> dict[str, Any]:
        """The proposal of trial ``number``: question to value."""
        self.study.sampler = make_sampler(self.settings, number, explore)
        trial = self.study.ask()
        trial.set_user_attr(NUMBER, number)
        asked: dict[str, Any] = {}

        def answer(path: str, question: Any) -> Any:
            asked[path] = self.encoding.suggest(trial, path, question)
            return asked[path]

        self.space.answer(answer)
        self._there[number], self._open[number] = trial.number, trial
        return asked

    def judge(self, number: int, slacks: Mapping[str, float]) -> None:
        """Notes how far the proposal misses each limit; an infeasible one ends here, as PRUNED."""
        trial = self._open.pop(number)
        for name in self.limits:
            trial.set_constraint(name, slacks[name])
        if any(slack > 0 for slack in slacks.values()):
            self.study.tell(trial.number, state=TrialState.PRUNED)

    def tell(self, number: int, values: Mapping[str, float] | None) -> None:
        """The values of a trained candidate, or None for one that failed."""
        if number not in self._there:
            return  # a reference from outside the space: Optuna has no parameters for it
        if values is None:
            self.study.tell(self._there[number], state=TrialState.FAIL)
        else:
            self.study.tell(self._there[number], values=[values[o.name] for o in self.objectives])

    def add(self, trial: Trial, outcome: Trial) -> None:
        """Gives Optuna a trial that it did not propose, or has lost; ``outcome`` is the one whose result counts."""
        self._there[trial.number] = len(self.study.get_trials(deepcopy=False))
        self.study.add_trial(self._frozen(trial, outcome))

    def reconcile(self, ledger: Ledger) -> bool:
        """Brings Optuna's study to what the ledger says, as far as trials can be told or added.

        Returns:
            Whether it is now as if nothing had been interrupted; if not, the storage holds trials that the ledger
            does not know, or has them in another order.
        """
        wanted = [trial for trial in ledger.trials.values() if trial.in_space]
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
        return trial is not None and trial.in_space and self.encoding.encode(trial.asked)[0] == there.params

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
        params, shapes = self.encoding.encode(trial.asked)
        state = STATES[trial.state if trial.state == INFEASIBLE else outcome.state]
        values = None
        if state == TrialState.COMPLETE and outcome.values:
            values = [outcome.values[o.name] for o in self.objectives]
        return optuna.create_trial(
            state=state,
            values=values,
            params=params,
            distributions=shapes,
            user_attrs={NUMBER: trial.number},
            constraints={name: trial.slacks[name] for name in self.limits},
        )

