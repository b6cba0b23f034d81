"""What is known of a sheet of parameters before its trial runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scalesearch.samplers.candidate import Candidate, CandidateKey, candidate_key

MAX_CACHED_FACTS = 10_000  # sheets


@dataclass(frozen=True)
class CandidateFacts:
    """What is exact before a trial runs.

    Attributes:
        values: one an objective, in the study's order; None where only running the trial tells.
        constraints: name to how far it is missed; 0 or less is met.
        identity: of what the sheet describes: two sheets of one identity are one thing. None: as
            the sheet.
        is_buildable: whether the sheet describes anything at all.
    """

    values: Sequence[float | None] = ()
    constraints: Mapping[str, float] = field(default_factory=dict)
    identity: str | None = None
    is_buildable: bool = True

    @property
    def is_feasible(self) -> bool:
        """Whether nothing known forbids the trial."""
        return self.is_buildable and all(value <= 0 for value in self.constraints.values())

    @property
    def total_violation(self) -> float:
        """The sum of what the constraints are missed by."""
        return sum(value for value in self.constraints.values() if value > 0)


NO_FACTS = CandidateFacts()
FactsFunction = Callable[[Mapping[str, Any]], "CandidateFacts | None"]


class FactsCache:
    """What ``compute_facts`` says of sheets, each asked of once; it may be asked of thousands for one proposal."""

    def __init__(self, compute_facts: FactsFunction | None) -> None:
        self.compute_facts = compute_facts
        self._facts_by_key: dict[CandidateKey, CandidateFacts] = {}
        self._batch_facts_by_key: dict[CandidateKey, CandidateFacts] = {}

    @classmethod
    def of(cls, compute_facts: FactsFunction | None) -> FactsCache:
        """``compute_facts`` with its memory, shared where it has one already."""
        return compute_facts if isinstance(compute_facts, FactsCache) else cls(compute_facts)

    def __call__(self, params: Mapping[str, Any]) -> CandidateFacts:
        return self._of(candidate_key(params), params)

    def for_candidate(self, candidate: Candidate) -> CandidateFacts:
        """The same of a sheet, which knows its key; of one that was :meth:`billed` no more than its values."""
        return self._batch_facts_by_key.get(candidate.key) or self._of(
            candidate.key, candidate.params)

    def store(self, candidate: Candidate, facts: CandidateFacts) -> None:
        """Takes in what is known of a feasible sheet that was billed among many."""
        if len(self._batch_facts_by_key) >= MAX_CACHED_FACTS:
            del self._batch_facts_by_key[next(iter(self._batch_facts_by_key))]
        self._batch_facts_by_key[candidate.key] = facts

    def _of(self, key: CandidateKey, params: Mapping[str, Any]) -> CandidateFacts:
        if self.compute_facts is None:
            return NO_FACTS
        if key not in self._facts_by_key:
            if len(self._facts_by_key) >= MAX_CACHED_FACTS:
                del self._facts_by_key[next(iter(self._facts_by_key))]
            self._facts_by_key[key] = self.compute_facts(params) or NO_FACTS
        return self._facts_by_key[key]

    def identity(self, params: Mapping[str, Any]) -> str:
        """What the sheet describes; a text of the sheet itself where nothing is known of it."""
        return self(params).identity or candidate_key(params)
