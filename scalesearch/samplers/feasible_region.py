"""The part of a space that constraints allow: draws from it, and ways into it. Everything is found when it is needed.

Where much of a space is feasible, rejection is the cheapest way to draw from it. Where little is, exact draws (see
:mod:`~scalesearch.samplers.exact_draws`) take the space apart once, in seconds, then draw nothing in vain. Both have
the same chances. A space that cannot be taken apart is drawn from by walking from a random sheet into the region.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from optuna.distributions import BaseDistribution, CategoricalDistribution

from scalesearch.samplers.known import Knowledge, Knows
from scalesearch.samplers.sheet import Define, Sheet, change, draw, place_of, sample, values_of

if TYPE_CHECKING:
    from scalesearch.samplers.bulk import Bulk

PROBES, FEW = 200, 5  # a region is sparse where fewer than FEW of PROBES draws are in it
MAX_REJECTED = 1000  # draws of a region that is not sparse: one in 40 at least is in it
MAX_EXACT = 50  # exact draws, of which constraints that do not add up may reject some
MAX_WALKS = 5
MAX_EVALUATIONS = 300  # sheets looked at on one walk, at some milliseconds each
REACH = 0.3  # of a list of numbers: the standard deviation of a step along it
OTHERS = 3  # words tried in the place of one

Miss = tuple[bool, float, bool]  # nothing can be built; the sum of what is missed; it is known already


class Exact(Protocol):
    """Draws by construction, of what meets the constraints that add up."""

    share: float | None

    def sample(self, rng: random.Random) -> Mapping[str, Any] | None:
        """The parameters of a sheet; None where nothing meets them."""


class FeasibleRegion:
    """The sheets of ``define`` that ``known`` finds feasible.

    Args:
        exact: makes exact draws of the region; gives None where the space cannot be taken apart.
        bulk: makes what bills many sheets together, of so many costs; gives None where that cannot be done.
    """

    def __init__(self, define: Define, known: Knows, exact: Callable[[], Exact | None] = lambda: None,
                 bulk: Callable[[], Bulk | None] = lambda: None) -> None:
        self.define, self.known, self._exact, self._bulk = define, Knowledge.of(known), exact, bulk

    def is_feasible(self, params: Mapping[str, Any]) -> bool:
        """Whether a sheet meets every constraint."""
        return self.known(params).feasible

    @cached_property
    def is_sparse(self) -> bool:
        """Whether so little of the space is feasible that rejection is no way to draw."""
        rng, feasible = random.Random(0), 0
        for _ in range(PROBES):
            feasible += self.is_feasible(sample(self.define, rng).params)
            if feasible >= FEW:
                return False
        return True

    @cached_property
    def exact(self) -> Exact | None:
        """The space taken apart, or None where that cannot be done."""
        return self._exact()

    @cached_property
    def bulk(self) -> Bulk | None:
        """What bills many sheets together, or None where that cannot be done."""
        return self._bulk()

    @property
    def share(self) -> float | None:
        """The chance that a draw of the whole space is feasible, exactly; None where that is not known."""
        return self.exact.share if self.exact else None

    def sample_feasible(self, rng: random.Random) -> Sheet | None:
        """A random feasible sheet; None where none was found."""
        if not self.is_sparse:
            sheets = (sample(self.define, rng) for _ in range(MAX_REJECTED))
            return next((sheet for sheet in sheets if self.is_feasible(sheet.params)), None)
        if self.exact is not None:
            drawn = (self.exact.sample(rng) for _ in range(MAX_EXACT))
            # What no constraint depends on, such as a recipe, is drawn beside it.
            sheets = (change(self.define, one, rng) for one in drawn if one is not None)
            return next((sheet for sheet in sheets if self.is_feasible(sheet.params)), None)
        starts = (sample(self.define, rng) for _ in range(MAX_WALKS))
        return next((end for start in starts if (end := self._walk(start, rng, ()))), None)

    def repair(self, params: Mapping[str, Any], rng: random.Random, taken: Collection[str] = ()) -> Sheet | None:
        """A feasible sheet near ``params`` whose identity is not ``taken``; None where none was found.

        Parameter after parameter, in an order that ``rng`` decides, takes the first change that misses by less. A
        round in which small changes do not help is followed by one of changes to either end; if that does not help
        either, the walk ends.
        """
        return self._walk(change(self.define, params, rng), rng, taken)

    def _walk(self, sheet: Sheet, rng: random.Random, taken: Collection[str]) -> Sheet | None:
        miss, budget, wide = self._miss(sheet, taken), iter(range(MAX_EVALUATIONS)), False
        while any(miss):
            before = miss
            for name in rng.sample(sorted(sheet.params), len(sheet.params)):
                sheet, miss = self._better(sheet, miss, name, wide, rng, taken, budget)
                if not any(miss):
                    return sheet
            if miss == before and (wide or next(budget, None) is None):
                return None
            wide = miss == before
        return sheet

    def _better(self, sheet: Sheet, miss: Miss, name: str, wide: bool, rng: random.Random, taken: Collection[str],
                budget: Iterator[int]) -> tuple[Sheet, Miss]:
        """The first change of ``name`` that misses by less, and by how much; else the sheet as it is."""
        if name not in sheet.params:  # an earlier change has taken the parameter away
            return sheet, miss
        for value in others(sheet.distributions[name], sheet.params[name], wide, rng):
            if next(budget, None) is None:
                break
            changed = change(self.define, {**sheet.params, name: value}, rng)
            if (less := self._miss(changed, taken)) < miss:
                return changed, less
        return sheet, miss

    def _miss(self, sheet: Sheet, taken: Collection[str]) -> Miss:
        known = self.known(sheet.params)
        repeats = known.feasible and self.known.identity(sheet.params) in taken
        return not known.buildable, known.excess, repeats


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
