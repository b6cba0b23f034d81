"""Feasible region of a space: random samples, and repair of candidates.

If a large share of the space is feasible, rejection sampling is cheapest. If the share is small,
exact sampling (:mod:`~scalesearch.samplers.space_samplers`) decomposes the space once, in
seconds, and then rejects nothing. Both have the same distribution. If a space cannot be decomposed,
a walk leads from a random candidate into the region.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
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
    from scalesearch.samplers.space_samplers import NeighborBatchSampler

N_PROBES = 200
MIN_FEASIBLE_PROBES = 5  # a region is sparse if fewer of the N_PROBES samples are in it
MAX_REJECTED = 1000  # samples if the region is not sparse: at least one in 40 is feasible
MAX_EXACT = 50  # exact samples; constraints that are not sums over a model may reject some
MAX_WALKS = 5
MAX_EVALUATIONS = 300  # candidates per walk, some milliseconds each
STEP_SHARE = 0.3  # standard deviation of a step in a list of numbers, as a share of the list
MAX_ALTERNATIVES = 3  # other words to try

# whether it cannot be built, the sum of violations, whether it was proposed before
Violation = tuple[bool, float, bool]


class FeasibleSource(Protocol):
    """Sampler of candidates that meet all constraints that are sums over a model."""

    feasible_share: float | None

    def sample(self, rng: random.Random) -> Mapping[str, Any] | None:
        """Sample the parameters of a candidate; None if no candidate is feasible."""


class FeasibleRegion:
    """The candidates of ``define`` that are feasible according to ``facts``.

    Args:
        define: define-by-run function of the space.
        facts: exact values and constraints of a candidate.
        exact: returns an exact sampler of the region; None if the space cannot be decomposed.
        neighbor_sampler: returns a sampler that evaluates the costs of many candidates together;
            None if that is not possible.
    """

    def __init__(self, define: DefineByRun, facts: FactsFunction,
                 exact: Callable[[], FeasibleSource | None] = lambda: None,
                 neighbor_sampler: Callable[[],
                                            NeighborBatchSampler | None] = lambda: None) -> None:
        self.define = define
        self.facts = FactsCache.of(facts)
        self._make_exact_sampler = exact
        self._make_neighbor_sampler = neighbor_sampler

    def is_feasible(self, params: Mapping[str, Any]) -> bool:
        """Whether a candidate meets every constraint."""
        return self.facts(params).is_feasible

    @cached_property
    def is_sparse(self) -> bool:
        """Whether the feasible share is too small for rejection sampling."""
        rng = random.Random(0)
        feasible = 0
        for _ in range(N_PROBES):
            feasible += self.is_feasible(sample_candidate(self.define, rng).params)
            if feasible >= MIN_FEASIBLE_PROBES:
                return False
        return True

    @cached_property
    def exact_sampler(self) -> FeasibleSource | None:
        """Exact sampler of the region; None if the space cannot be decomposed."""
        return self._make_exact_sampler()

    @cached_property
    def neighbor_sampler(self) -> NeighborBatchSampler | None:
        """Sampler of neighbors with a common cost evaluation; None if it is not possible."""
        return self._make_neighbor_sampler()

    @property
    def feasible_share(self) -> float | None:
        """Exact share of random candidates that are feasible; None if it is unknown."""
        return self.exact_sampler.feasible_share if self.exact_sampler else None

    def sample_feasible(self, rng: random.Random) -> Candidate | None:
        """Sample a random feasible candidate; None if none was found."""
        if not self.is_sparse:
            candidates = (sample_candidate(self.define, rng) for _ in range(MAX_REJECTED))
            return self._first_feasible(candidates)
        if self.exact_sampler is not None:
            samples = (self.exact_sampler.sample(rng) for _ in range(MAX_EXACT))
            # Parameters that no constraint depends on, such as those of a recipe, are added.
            return self._first_feasible(mutate_candidate(self.define, params, rng)
                                        for params in samples if params is not None)
        for _ in range(MAX_WALKS):
            candidate = self._walk(sample_candidate(self.define, rng), rng, ())
            if candidate:
                return candidate
        return None

    def _first_feasible(self, candidates: Iterable[Candidate]) -> Candidate | None:
        return next((candidate for candidate in candidates if self.is_feasible(candidate.params)),
                    None)

    def repair(self, params: Mapping[str, Any], rng: random.Random,
               excluded: Collection[str] = ()) -> Candidate | None:
        """Find a feasible candidate near ``params``; None if none was found.

        One parameter after the other, in random order, takes the first value that reduces the
        violation. If small changes do not help in a round, the next round tries the ends of each
        range. If that does not help either, the walk ends.

        Args:
            excluded: identities that the candidate must not have.
        """
        return self._walk(mutate_candidate(self.define, params, rng), rng, excluded)

    def _walk(self, candidate: Candidate, rng: random.Random,
              excluded: Collection[str]) -> Candidate | None:
        violation = self._violation(candidate, excluded)
        evaluations = iter(range(MAX_EVALUATIONS))
        wide = False
        while any(violation):
            before = violation
            for name in rng.sample(sorted(candidate.params), len(candidate.params)):
                if name not in candidate.params:  # an earlier change has removed the parameter
                    continue
                # The first change that reduces the violation, if any.
                for value in alternative_values(candidate.distributions[name],
                                                candidate.params[name], wide, rng):
                    if next(evaluations, None) is None:
                        break
                    changed = mutate_candidate(self.define, {**candidate.params, name: value}, rng)
                    changed_violation = self._violation(changed, excluded)
                    if changed_violation < violation:
                        candidate = changed
                        violation = changed_violation
                        break
                if not any(violation):
                    return candidate
            if violation == before and (wide or next(evaluations, None) is None):
                return None
            wide = violation == before
        return candidate

    def _violation(self, candidate: Candidate, excluded: Collection[str]) -> Violation:
        facts = self.facts(candidate.params)
        is_excluded = facts.is_feasible and self.facts.identity(candidate.params) in excluded
        total = sum(value for value in facts.constraints.values() if value > 0)
        return not facts.is_buildable, total, is_excluded


def alternative_values(distribution: BaseDistribution, value: Any, wide: bool,
                       rng: random.Random) -> list[Any]:
    """Return other values to try.

    For numbers, these are a smaller and a larger one: near ones, or the ends of the range if
    ``wide``. For words, these are some others.
    """
    values = distribution_values(distribution)
    if values is None:
        return [sample_value(distribution, rng), sample_value(distribution, rng)]
    if isinstance(distribution, CategoricalDistribution):
        others = [choice for choice in values if choice is not value and choice != value]
        return rng.sample(others, len(others) if wide else min(MAX_ALTERNATIVES, len(others)))
    index = index_of(values, value)
    last = len(values) - 1
    step = last if wide else max(1, round(abs(rng.gauss(0, STEP_SHARE)) * last))
    neighbors = {max(0, index - step), min(last, index + step)} - {index}
    return [values[neighbor] for neighbor in sorted(neighbors)]
