"""``bayes``: what brings the most expected hypervolume for its compute, among new candidates and paused trials.

Bayesian optimisation where only part of the objectives is unknown: surrogates forecast the measured ones alone
(:mod:`scalesearch.samplers.bayes.forecast`), the others are exact. Samplers that must learn the costs, too, spend
trials on sheets that could be known to be dominated.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.trial import FrozenTrial

from scalesearch.samplers.ask import Ask
from scalesearch.samplers.bayes.forecast import FEWEST
from scalesearch.samplers.bayes.gain_forecast import GainForecast, forecast_gain
from scalesearch.samplers.bayes.outlook import Outlook
from scalesearch.samplers.front_neighbours import FROM_FRONT, FrontNeighbours
from scalesearch.samplers.history import is_paused, rungs_of
from scalesearch.samplers.sheet import Sheet

if TYPE_CHECKING:
    from scalesearch.samplers.bulk import Bulk

N_CHILDREN, N_DRAWN = 5, 2  # sheets that come in with a proposal: changes to members of the front, and random ones
FEW_CHILDREN, FEW_DRAWN, BULK = 2, 1, 64  # the same, where about so many more come in that are billed together
WINDOW, BULK_WINDOW = 32, 16  # proposals for which a sheet is looked at; billing is what takes the time
MAX_KEPT = 2000

Chooser = Callable[[str], FrozenTrial]  # name of a place to the member of the front that it has


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
        self._sheets: dict[tuple[str, str, int], Sheet] = {}
        self._bulks: dict[tuple[str, int], list[Sheet]] = {}
        self._seen: tuple[Any, Outlook, list[Sheet]] | None = None  # what was found for the proposal at hand

    def propose(self, ask: Ask) -> Sheet | None:
        """As :meth:`SheetSampler.propose`; None also where none of many sheets is new and feasible."""
        if len(ask.learned) < max(self.n_startup_trials, FEWEST):
            return super().propose(ask)
        outlook, pool = self._outlook(ask)
        best = np.argsort(-outlook.new, kind="stable") if pool else ()
        return next((pool[at] for at in best if self._is_new(ask, pool[at])), None)

    def worth(self, trials: Sequence[FrozenTrial]) -> Worth | None:
        """What going on with paused trials is worth, and a new one; None where too little is known."""
        found = self.outlook_after(trials)
        if found is None:
            return None
        outlook, pool = found
        return Worth(float(outlook.new.max()) if pool else 0.0, outlook.paused) if outlook.to_the_end else None

    def forecast(self, trials: Sequence[FrozenTrial], trainings: int) -> GainForecast | None:
        """What so many more trainings may bring; None where too little is known."""
        found = self.outlook_after(trials)
        return found and forecast_gain(found[0], trainings)

    def outlook_after(self, trials: Sequence[FrozenTrial]) -> tuple[Outlook, list[Sheet]] | None:
        """Outlook after ``trials``, with its pool; None where too little is known."""
        if self.define is None or self.objectives is None:
            return None
        past = [trial for trial in trials if trial.number >= 0]  # others are no trials of this Optuna study
        ask = Ask(len(past), past, self.define, self._summaries, self.objectives, None,
                  random.Random(self.seed_at(len(past))))
        return None if len(ask.learned) < max(self.n_startup_trials, FEWEST) else self._outlook(ask)

    def _outlook(self, ask: Ask) -> tuple[Outlook, list[Sheet]]:
        key = ask.number, tuple((trial.number, trial.state, len(rungs_of(trial)), is_paused(trial))
                                for trial in ask.trials)
        if self._seen is None or self._seen[0] != key:
            pool = self._pool(ask)
            self._seen = key, Outlook(ask, pool, self.shares), pool
        return self._seen[1], self._seen[2]

    def _pool(self, ask: Ask) -> list[Sheet]:
        """Sheets that nothing known forbids and nobody has seen."""
        keys, identities, pool = set(ask.keys), set(ask.identities), []
        region, chosen = self._region(ask), self._chooser(ask)
        bulk = region.bulk if region else None
        children, drawn = (FEW_CHILDREN, FEW_DRAWN) if bulk else (N_CHILDREN, N_DRAWN)
        billed = self._billed(ask, chosen, bulk) if bulk else ()
        for sheet in (*self._children(ask, chosen, children), *self._drawn(ask, drawn), *billed):
            if sheet.key in keys:
                continue
            keys.add(sheet.key)
            known = ask.known.of_sheet(sheet)
            if known.feasible and known.identity not in identities:
                identities |= {known.identity} if known.identity else set()
                pool.append(sheet)
        return pool

    def _is_new(self, ask: Ask, sheet: Sheet) -> bool:
        """Whether nobody has seen what ``sheet`` describes; of sheets that were billed together only this tells."""
        known = ask.known(sheet.params)
        return known.feasible and known.identity not in ask.identities

    def _children(self, ask: Ask, chosen: Chooser, each: int) -> Iterator[Sheet]:
        """Changes to members of the front as it is now, those of the numbers before among them."""
        for name in _names(ask.number, each, WINDOW):
            parent = chosen(name)
            yield self._made(ask, ("child", name, parent.number), partial(self._child, ask, parent))

    def _chooser(self, ask: Ask) -> Chooser:
        """Chooses the member of the front that a place has, by a lot for each.

        So a new member takes few places of the others, and what was billed for the proposal before is mostly what is
        looked at for this one.
        """
        levels = [[(f":{one.number}".encode(), one) for one in self.parents(ask, level)] for level in (0, 1)]

        def chosen(name: str) -> FrozenTrial:
            start = zlib.crc32(f"{self.seed}:{name}".encode())
            return max(levels[start > FROM_FRONT * 2**32], key=lambda lot: zlib.crc32(lot[0], start))[1]

        return chosen

    def _child(self, ask: Ask, parent: FrozenTrial, rng: random.Random) -> Sheet:
        return self.changed(ask, parent.params, 1, rng)

    def _drawn(self, ask: Ask, each: int) -> Iterator[Sheet]:
        """Random sheets, those of the numbers before among them."""
        for name in _names(ask.number, each, WINDOW):
            yield self._made(ask, ("drawn", name, 0), partial(self.sample, ask))

    def _billed(self, ask: Ask, chosen: Chooser, bulk: Bulk) -> Iterator[Sheet]:
        """Sheets near members of the front that are billed many at a time."""
        for name in _names(ask.number, 1, BULK_WINDOW):
            parent = chosen(f"bulk {name}")
            key = name, parent.number
            if key not in self._bulks:
                if len(self._bulks) >= 4 * BULK_WINDOW:
                    del self._bulks[next(iter(self._bulks))]
                rng = np.random.default_rng(zlib.crc32(f"{self.seed}:{key}".encode()))
                self._bulks[key] = ask.billed(bulk, parent, BULK, rng)
            yield from self._bulks[key]

    def _made(self, ask: Ask, key: tuple[str, str, int], make: Callable[[random.Random], Sheet]) -> Sheet:
        """The sheet that ``make`` makes of a generator of its own, made once."""
        if ask.define is not self.define:  # made for this trial alone
            return make(random.Random(f"{self.seed}:{key}"))
        if key not in self._sheets:
            if len(self._sheets) >= MAX_KEPT:
                del self._sheets[next(iter(self._sheets))]
            self._sheets[key] = make(random.Random(f"{self.seed}:{key}"))
        return self._sheets[key]


def _names(number: int, each: int, window: int) -> Iterator[str]:
    """Names of so many places of each number in a ``window``, the last one first."""
    return (f"{at}.{place}" for at in range(number, max(-1, number - window), -1) for place in range(each))
