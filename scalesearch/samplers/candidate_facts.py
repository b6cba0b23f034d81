"""Exact facts about a candidate before its trial runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scalesearch.errors import UserError
from scalesearch.samplers.candidate import Candidate, CandidateKey, candidate_key

MAX_CACHED_FACTS = 10_000  # candidates


@dataclass(frozen=True)
class CandidateFacts:
    """Exact values and constraints of a candidate.

    Attributes:
        values: finite value per objective, in the order of the study; None if it has to be
            measured.
        constraints: violation per constraint; 0 or less means that it is met.
        identity: id of the architecture; candidates with equal ids are the same network. None: each
            candidate is a separate network.
        is_buildable: whether the architecture can be built.
    """

    values: Sequence[float | None] = ()
    constraints: Mapping[str, float] = field(default_factory=dict)
    identity: str | None = None
    is_buildable: bool = True

    @property
    def is_feasible(self) -> bool:
        """Whether the candidate can be built and meets all constraints."""
        return self.is_buildable and all(value <= 0 for value in self.constraints.values())


NO_FACTS = CandidateFacts()
FactsFunction = Callable[[Mapping[str, Any]], "CandidateFacts | None"]


class FactsCache:
    """Cache of the results of ``compute_facts``.

    A proposal may read those of thousands of candidates.
    """

    def __init__(self, compute_facts: FactsFunction | None) -> None:
        self.compute_facts = compute_facts
        self._facts_by_key: dict[CandidateKey, CandidateFacts] = {}
        self._batch_facts_by_key: dict[CandidateKey, CandidateFacts] = {}

    @classmethod
    def of(cls, compute_facts: FactsFunction | None) -> FactsCache:
        """Return a cache of ``compute_facts``, or the function itself if it is a cache."""
        return compute_facts if isinstance(compute_facts, FactsCache) else cls(compute_facts)

    def __call__(self, params: Mapping[str, Any]) -> CandidateFacts:
        return self._of(candidate_key(params), params)

    def for_candidate(self, candidate: Candidate) -> CandidateFacts:
        """Return the facts of a candidate; only the values if they were stored by a batch."""
        return self._batch_facts_by_key.get(candidate.key) or self._of(
            candidate.key, candidate.params)

    def store(self, candidate: Candidate, facts: CandidateFacts) -> None:
        """Store the facts of a feasible candidate from a batch."""
        _check_finite(facts, candidate.params)
        if len(self._batch_facts_by_key) >= MAX_CACHED_FACTS:
            del self._batch_facts_by_key[next(iter(self._batch_facts_by_key))]
        self._batch_facts_by_key[candidate.key] = facts

    def _of(self, key: CandidateKey, params: Mapping[str, Any]) -> CandidateFacts:
        if self.compute_facts is None:
            return NO_FACTS
        if key not in self._facts_by_key:
            if len(self._facts_by_key) >= MAX_CACHED_FACTS:
                del self._facts_by_key[next(iter(self._facts_by_key))]
            facts = self.compute_facts(params)
            facts = NO_FACTS if facts is None else facts
            if not (isinstance(facts, CandidateFacts) and isinstance(facts.values, Sequence)
                    and isinstance(facts.constraints, Mapping)):
                raise UserError("facts: expected CandidateFacts(values, constraints) with a list "
                                f"and a mapping, found {facts!r}", code="bad-argument")
            _check_finite(facts, params)
            self._facts_by_key[key] = facts
        return self._facts_by_key[key]

    def identity(self, params: Mapping[str, Any]) -> str:
        """Return the id of the architecture, or the key of the candidate if it has none."""
        return self(params).identity or candidate_key(params)


def _check_finite(facts: CandidateFacts, params: Mapping[str, Any]) -> None:
    for index, value in enumerate(facts.values):
        if value is not None and not math.isfinite(value):
            raise UserError(f"facts: objective {index}: expected a finite value, found {value} "
                            f"for {dict(params)}", code="bad-argument")
