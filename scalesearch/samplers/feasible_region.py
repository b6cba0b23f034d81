"""The feasible region of a space: random samples from it, and repair of candidates outside it.

If a large share of the space is feasible, rejection sampling is cheapest. If the share is small, exact sampling (see
:mod:`~scalesearch.samplers.exact_feasible_sampler`) decomposes the space once, in seconds, and then rejects nothing.
Both have the same distribution. If a space cannot be decomposed, a walk leads from a random candidate into the region.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from optuna.distributions import BaseDistribution, CategoricalDistribution

from scalesearch.samplers.candidate import (
    Candidate,
    DefineByRun,
    distribution_values,
    index_of,
    mutate_candidate,
    sample_candidate,
    sample_value,
)
from scalesearch.samplers.candidate_facts import FactsCache, FactsFunction

if TYPE_CHECKING:
    from scalesearch.samplers.neighbor_batch import NeighborBatchSampler

N_PROBES = 200
MIN_FEASIBLE_PROBES = 5  # a region is sparse where fewer than FEW of PROBES draws are in it
MAX_REJECTED = 1000  # draws of a region that is not sparse: one in 40 at least is in it
MAX_EXACT = 50  # exact draws, of which constraints that do not add up may reject some
MAX_WALKS = 5
MAX_EVALUATIONS = 300  # sheets looked at on one walk, at some milliseconds each
STEP_SHARE = 0.3  # of a list of numbers: the standard deviation of a step along it
MAX_ALTERNATIVES = 3  # words tried in the place of one

# nothing can be built; the sum of what is missed; it is known already
Violation = tuple[bool, float, bool]


class FeasibleSource(Protocol):
    """Draws by construction, of what meets the constraints that add up."""

    feasible_share: float | None

    def sample(self, rng: random.Random) -> Mapping[str, Any] | None:
        """The parameters of a sheet; None where nothing meets them."""


class FeasibleRegion:
    """The sheets of ``define`` that ``facts`` finds feasible.

    Args:
        exact: makes exact draws of the region; gives None where the space cannot be taken apart.
        neighbor_sampler: makes what bills many sheets together, of so many costs; gives None where
            that cannot be done.
    """

    def __init__(self, define: DefineByRun, facts: FactsFunction,
                 exact: Callable[[], FeasibleSource | None] = lambda: None,
                 neighbor_sampler: Callable[[],
                                            NeighborBatchSampler | None] = lambda: None) -> None:
        self.define = define
        self.known = FactsCache.of(facts)
        self._exact = exact
        self._bulk = neighbor_sampler

    def is_feasible(self, params: Mapping[str, Any]) -> bool:
        """Whether a sheet meets every constraint."""
        return self.known(params).is_feasible

    @cached_property
    def is_sparse(self) -> bool:
        """Whether so little of the space is feasible that rejection is no way to draw."""
        rng = random.Random(0)
        feasible = 0
        for _ in range(N_PROBES):
            feasible += self.is_feasible(sample_candidate(self.define, rng).params)
            if feasible >= MIN_FEASIBLE_PROBES:
                return False
        return True

    @cached_property
    def exact_sampler(self) -> FeasibleSource | None:
        """The space taken apart, or None where that cannot be done."""
        return self._exact()

    @cached_property
    def neighbor_sampler(self) -> NeighborBatchSampler | None:
        """What bills many sheets together, or None where that cannot be done."""
        return self._bulk()

    @property
    def feasible_share(self) -> float | None:
        """The chance that a draw of the whole space is feasible, exactly; None where that is not known."""
        return self.exact_sampler.feasible_share if self.exact_sampler else None

    def sample_feasible(self, rng: random.Random) -> Candidate | None:
        """A random feasible sheet; None where none was found."""
        if not self.is_sparse:
            sheets = (sample_candidate(self.define, rng) for _ in range(MAX_REJECTED))
            return next((sheet for sheet in sheets if self.is_feasible(sheet.params)), None)
        if self.exact_sampler is not None:
            drawn = (self.exact_sampler.sample(rng) for _ in range(MAX_EXACT))
            # What no constraint depends on, such as a recipe, is drawn beside it.
            sheets = (mutate_candidate(self.define, one, rng) for one in drawn if one is not None)
            return next((sheet for sheet in sheets if self.is_feasible(sheet.params)), None)
        starts = (sample_candidate(self.define, rng) for _ in range(MAX_WALKS))
        return next((end for start in starts if (end := self._walk(start, rng, ()))), None)

    def repair(self, params: Mapping[str, Any], rng: random.Random,
               excluded: Collection[str] = ()) -> Candidate | None:
        """A feasible sheet near ``params`` whose identity is not ``excluded``; None where none was found.

        Parameter after parameter, in an order that ``rng`` decides, takes the first change that
        misses by less. A round in which small changes do not help is followed by one of changes to
        either end; if that does not help either, the walk ends.
        """
        return self._walk(mutate_candidate(self.define, params, rng), rng, excluded)

    def _walk(self, candidate: Candidate, rng: random.Random,
              taken: Collection[str]) -> Candidate | None:
        miss = self._violation(candidate, taken)
        budget = iter(range(MAX_EVALUATIONS))
        wide = False
        while any(miss):
            before = miss
            for name in rng.sample(sorted(candidate.params), len(candidate.params)):
                candidate, miss = self._improve(candidate, miss, name, wide, rng, taken, budget)
                if not any(miss):
                    return candidate
            if miss == before and (wide or next(budget, None) is None):
                return None
            wide = miss == before
        return candidate

    def _improve(self, candidate: Candidate, miss: Violation, name: str, wide: bool,
                 rng: random.Random, taken: Collection[str],
                 budget: Iterator[int]) -> tuple[Candidate, Violation]:
        """The first change of ``name`` that misses by less, and by how much; else the sheet as it is."""
        if name not in candidate.params:  # an earlier change has taken the parameter away
            return candidate, miss
        for value in alternative_values(candidate.distributions[name], candidate.params[name], wide,
                                        rng):
            if next(budget, None) is None:
                break
            changed = mutate_candidate(self.define, {**candidate.params, name: value}, rng)
            if (less := self._violation(changed, taken)) < miss:
                return changed, less
        return candidate, miss

    def _violation(self, candidate: Candidate, taken: Collection[str]) -> Violation:
        known = self.known(candidate.params)
        repeats = known.is_feasible and self.known.identity(candidate.params) in taken
        return not known.is_buildable, known.total_violation, repeats


def alternative_values(distribution: BaseDistribution, value: Any, wide: bool,
                       rng: random.Random) -> list[Any]:
    """Other values to try: of numbers one below and one above, near or (``wide``) the ends; of words some others."""
    values = distribution_values(distribution)
    if values is None:
        return [sample_value(distribution, rng), sample_value(distribution, rng)]
    if isinstance(distribution, CategoricalDistribution):
        rest = [choice for choice in values if choice is not value and choice != value]
        return rng.sample(rest, len(rest) if wide else min(MAX_ALTERNATIVES, len(rest)))
    at = index_of(values, value)
    last = len(values) - 1
    step = last if wide else max(1, round(abs(rng.gauss(0, STEP_SHARE)) * last))
    places = {max(0, at - step), min(last, at + step)} - {at}
    return [values[place] for place in sorted(places)]
