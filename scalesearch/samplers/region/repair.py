"""From a sheet that misses a constraint to one near by that meets them all, by small changes of single parameters."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution

from scalesearch.samplers.known import Knowledge
from scalesearch.samplers.sheet import Define, Sheet, change, draw, place_of, values_of

MAX_EVALUATIONS = 300  # sheets looked at on one way, at some milliseconds each
REACH = 0.3  # of a list of numbers: the standard deviation of a step along it
OTHERS = 3  # words tried in the place of one


@dataclass(frozen=True)
class Step:
    """A sheet, and by how much it misses: nothing can be built, the sum of what is missed, or it is known already."""

    sheet: Sheet
    miss: tuple[bool, float, bool]

    @property
    def sound(self) -> bool:
        """Whether it meets every constraint and is new."""
        return not any(self.miss)


class Repairer:
    """Walks sheets of ``define`` towards what ``known`` finds feasible."""

    def __init__(self, define: Define, known: Knowledge) -> None:
        self.define, self.known = define, known

    def repair(self, sheet: Sheet, rng: random.Random, taken: Collection[str] = (), most: int = MAX_EVALUATIONS
               ) -> Sheet | None:
        """A feasible sheet on the way from ``sheet`` whose identity is not ``taken``; None where none was found.

        Parameter after parameter, in an order that ``rng`` decides, takes the first change that misses by less. A
        round in which small changes do not help is followed by one of changes to either end; if that does not help
        either, the walk ends.
        """
        now = self._step(sheet, taken)
        budget = iter(range(most))
        wide = False
        while not now.sound:
            before = now.miss
            for name in rng.sample(sorted(now.sheet.params), len(now.sheet.params)):
                now = self._better(now, name, wide, rng, taken, budget)
                if now.sound:
                    return now.sheet
            if now.miss == before and (wide or next(budget, None) is None):
                return None
            wide = now.miss == before
        return now.sheet

    def _better(self, now: Step, name: str, wide: bool, rng: random.Random, taken: Collection[str],
                budget: Iterator[int]) -> Step:
        """``now``, or the first change of ``name`` that is better."""
        params = now.sheet.params
        if name not in params:  # an earlier change has taken the parameter away
            return now
        for value in others(now.sheet.distributions[name], params[name], wide, rng):
            if next(budget, None) is None:
                return now
            found = self._step(change(self.define, {**params, name: value}, rng), taken)
            if found.miss < now.miss:
                return found
        return now

    def _step(self, sheet: Sheet, taken: Collection[str]) -> Step:
        known = self.known(sheet.params)
        repeats = known.feasible and self.known.identity(sheet.params) in taken
        return Step(sheet, (not known.buildable, known.excess, repeats))


def others(distribution: BaseDistribution, value: Any, wide: bool, rng: random.Random) -> list[Any]:
    """Other values to try: of numbers one below and one above, near or (``wide``) the ends; of words some others."""
    values = values_of(distribution)
    if values is None:
        return [draw(distribution, rng), draw(distribution, rng)]
    if isinstance(distribution, CategoricalDistribution):
        rest = [choice for choice in values if choice is not value and choice != value]
        return rng.sample(rest, len(rest) if wide else min(OTHERS, len(rest)))
    at, last = place_of(values, value), len(values) - 1
    step = last if wide else max(1, round(abs(rng.gauss(0, REACH)) * last))
    places = {max(0, at - step), min(last, at + step)} - {at}
    return [values[place] for place in sorted(places)]
