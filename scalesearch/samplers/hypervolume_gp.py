"""``bayes``: what brings the most expected hypervolume for its compute, among new candidates and paused trials.

Bayesian optimisation where only part of the objectives is unknown: surrogates forecast the measured ones alone
(:mod:`scalesearch.samplers.forecast`), the others are exact. Samplers that must learn the costs, too, spend trials on
sheets that could be known to be dominated.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial

from scalesearch.samplers.ask import Ask
from scalesearch.samplers.forecast import FEWEST
from scalesearch.samplers.front_neighbours import FrontNeighbours
from scalesearch.samplers.history import is_paused, rungs_of
from scalesearch.samplers.outlook import Outlook
from scalesearch.samplers.sheet import Sheet

N_CHILDREN, N_DRAWN = 40, 40  # sheets: changes to members of the front, and random ones
BLOCK = 8  # trials that choose among the same random sheets, which take the longest to find


@dataclass(frozen=True)
class Worth:
    """Expected gain in hypervolume for a full training's compute: of the best new candidate, and of paused trials."""

    new: float
    paused: Mapping[int, float]


class HypervolumeGP(FrontNeighbours):
    """Takes the most promising of changes to the front and random draws."""

    n_startup = 6

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._block: tuple[int, list[Sheet]] = (-1, [])  # number of a block of trials, and the sheets drawn for it
        self._seen: tuple[Any, Outlook, list[Sheet]] | None = None  # what was found for the proposal at hand

    def propose(self, ask: Ask) -> Sheet | None:
        """As :meth:`SheetSampler.propose`; None also where none of many sheets is new and feasible."""
        if len(ask.learned) < max(self.n_startup_trials, FEWEST):
            return super().propose(ask)
        outlook, pool = self._outlook(ask)
        return pool[int(np.argmax(outlook.new))] if pool else None

    def worth(self, trials: Sequence[FrozenTrial]) -> Worth | None:
        """What going on with paused trials is worth, and a new one; None where too little is known."""
        if self.define is None or self.objectives is None:
            return None
        past = [trial for trial in trials if trial.number >= 0]  # others are no trials of this Optuna study
        ask = Ask(len(past), past, self.define, self._summaries, self.objectives, None,
                  random.Random(self.seed_at(len(past))))
        if len(ask.learned) < max(self.n_startup_trials, FEWEST):
            return None
        outlook, pool = self._outlook(ask)
        return Worth(float(outlook.new.max()) if pool else 0.0, outlook.paused) if outlook.to_the_end else None

    def _outlook(self, ask: Ask) -> tuple[Outlook, list[Sheet]]:
        key = ask.number, tuple((trial.number, trial.state, len(rungs_of(trial)), is_paused(trial))
                                for trial in ask.trials)
        if self._seen is None or self._seen[0] != key:
            pool = self._pool(ask)
            self._seen = key, Outlook(ask, pool, self.shares), pool
        return self._seen[1], self._seen[2]

    def _pool(self, ask: Ask) -> list[Sheet]:
        """Sheets that nothing known forbids and nobody has seen."""
        keys, identities = set(ask.keys), set(ask.identities)
        parents, pool = self.parents(ask), []
        for sheet in (*(self.changed(ask, ask.rng.choice(parents).params) for _ in range(N_CHILDREN)),
                      *self._drawn(ask)):
            if sheet.key in keys:
                continue
            keys.add(sheet.key)
            identity = ask.known.identity(sheet.params)
            if identity not in identities and ask.known(sheet.params).feasible:
                identities.add(identity)
                pool.append(sheet)
        return pool

    def _drawn(self, ask: Ask) -> Sequence[Sheet]:
        """Random sheets, the same ones for a whole block of trials."""
        block = ask.number // BLOCK
        if ask.define is not self.define:  # made for this trial alone
            return [self.sample(ask) for _ in range(N_DRAWN)]
        if self._block[0] != block:
            rng = random.Random(f"{self.seed}:{block}")
            self._block = block, [self.sample(ask, rng) for _ in range(N_DRAWN)]
        return self._block[1]
