"""Optuna's samplers as proposers: ``tpe``, ``nsga2``, ``gp``.

The study that the sampler sees is built in memory from what was seen, and anew when anything in it has changed: values
of Optuna's trials cannot be changed once told, but what a paused candidate is worth changes with every other that ends.
Infeasible proposals are told as pruned, with constraints, which teaches TPE (and FAIL would trap it); so are failed
trainings, without.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from copy import copy
from typing import Any, ClassVar

import optuna
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from scalesearch.errors import UserError
from scalesearch.samplers.base import Askable, Feasible, Proposer, Settings
from scalesearch.samplers.encoding import Encoding
from scalesearch.samplers.history import DUPLICATE, FAILED, INFEASIBLE, PAUSED, PENDING, History, Seen
from scalesearch.samplers.predict import foreseen

DIRECTIONS = {"min": "minimize", "max": "maximize"}
STATES = {INFEASIBLE: TrialState.PRUNED, FAILED: TrialState.PRUNED, PENDING: TrialState.RUNNING,
          PAUSED: TrialState.RUNNING}


class Told(FrozenTrial):
    """A trial that is never changed again, so that a study need not copy all of it."""

    def __deepcopy__(self, memo: Any) -> Told:
        return copy(self)


class Sampled(Proposer):
    """Asks a fresh Optuna sampler."""

    name: ClassVar[str]
    grows: ClassVar[bool] = True  # whether the sampler keeps nothing in the study, so that one serves many proposals

    def __init__(self, space: Askable, limits: Any, goals: Any, settings: Settings,
                 region: Feasible | None = None) -> None:
        super().__init__(space, limits, goals, settings, region)
        self.encoding = Encoding(space)
        self._facts: list[tuple[Seen, Mapping[str, float] | None]] = []
        self._params: dict[int, Any] = {}
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def sampler(self, seed: int) -> BaseSampler:
        """The sampler of one proposal."""
        raise NotImplementedError

    @property
    def draws(self) -> int:
        """Candidates with results before which proposals are draws of the region, where that is known."""
        return self.first

    def ask(self, number: int, history: History) -> Mapping[str, Any]:
        if self.region is not None and len(foreseen(history, self.goals)) < self.draws:
            return self.drawn(random.Random(self.seed(number)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is experimental in Optuna is our business, not the user's
            study = self._study(history)
            study.sampler = self.sampler(self.seed(number))
            trial = study.ask()
            params = self.filled(lambda name, question: self.encoding.suggest(trial, name, question))
            study.tell(trial, state=TrialState.FAIL)  # no sampler reads failed ones: as if it had not been asked
            return params

    def _study(self, history: History) -> optuna.Study:
        """A study of what was seen; the last one, where it only has to grow."""
        values = foreseen(history, self.goals)
        facts = [(seen, values.get(seen.number)) for seen in history if seen.params and seen.state != DUPLICATE]
        if not self.grows or self._facts != facts[: len(self._facts)]:
            self._facts = []
        if not self._facts:
            self._known = optuna.create_study(directions=[DIRECTIONS[goal.direction] for goal in self.goals])
        told = sum(of is not None for _, of in self._facts)
        for seen, of in facts[len(self._facts) :]:
            self._known.add_trial(self._trial(seen, of, told))
            told += of is not None
        self._facts = facts
        return self._known

    def _trial(self, seen: Seen, values: Mapping[str, float] | None, told: int) -> FrozenTrial:
        if seen.number not in self._params:
            self._params[seen.number] = self.encoding.encode(seen.params)
        params, shapes = self._params[seen.number]
        trial = optuna.create_trial(
            state=TrialState.COMPLETE if values else STATES[seen.state],
            values=[values[goal.name] for goal in self.goals] if values else None,
            params=params, distributions=shapes, system_attrs=self.attributes(told),
            constraints={name: seen.slacks.get(name, 0.0) for name in self.limits},
        )
        trial.__class__ = Told
        return trial

    def attributes(self, told: int) -> dict[str, Any]:
        """What the sampler wants to find in a trial before which ``told`` others were told."""
        return {}


class TPE(Sampled):
    """Tree-structured Parzen estimators (Bergstra et al. 2011; several objectives: Ozaki et al. 2022)."""

    name = "tpe"
    heeds = True

    def sampler(self, seed: int) -> BaseSampler:
        return TPESampler(seed=seed, n_startup_trials=self.first, constant_liar=True)


class NSGA2(Sampled):
    """NSGA-II (Deb et al. 2002). Generations are of the candidates that ended, in their order."""

    name = "nsga2"
    grows = False

    @property
    def draws(self) -> int:
        return self.settings.population  # its first generation

    def sampler(self, seed: int) -> BaseSampler:
        return NSGAIISampler(seed=seed, population_size=self.settings.population)

    def attributes(self, told: int) -> dict[str, Any]:
        return {NSGAIISampler._get_generation_key(): told // self.settings.population}


class GP(Sampled):
    """Gaussian processes with expected hypervolume improvement; seconds a proposal, for studies of few candidates."""

    name = "gp"

    def __init__(self, space: Askable, limits: Any, goals: Any, settings: Settings,
                 region: Feasible | None = None) -> None:
        super().__init__(space, limits, goals, settings, region)
        try:
            import scipy  # noqa: F401
            import torch  # noqa: F401
        except ImportError as error:
            raise UserError(f"proposer gp: Optuna's needs scipy and torch ({error}); pip install them, or take tpe"
                            ) from None

    def sampler(self, seed: int) -> BaseSampler:
        return GPSampler(seed=seed, n_startup_trials=self.first)
