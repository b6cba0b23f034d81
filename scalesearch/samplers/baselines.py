"""Samplers without a model: ``random``, and ``grid``, which enumerates all feasible candidates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scalesearch.samplers.candidate import Candidate, DefineByRun, enumerate_candidates
from scalesearch.samplers.candidate_sampler import CandidateSampler
from scalesearch.samplers.sampler_state import SamplerState


class RandomSampler(CandidateSampler):
    """Sample every parameter uniformly, or log-uniformly for log ranges.

    With a feasible region, only feasible candidates are sampled.
    """

    def propose(self, state: SamplerState) -> Candidate:
        return self.sample_random(state)


class GridSampler(CandidateSampler):
    """Propose every candidate of a space once.

    Raises :class:`~scalesearch.samplers.candidate_sampler.SpaceExhaustedError` after the last one.

    Raises:
        UserError: at the first proposal, if ``define`` has a continuous range.
    """

    is_exhaustive = True

    def __init__(self, define: DefineByRun, **arguments: Any) -> None:
        super().__init__(define=define, **arguments)
        self._enumerated: list[Candidate] = []  # the feasible candidates so far
        self._remaining = iter(enumerate_candidates(define))

    def propose(self, state: SamplerState) -> Candidate | None:
        """Return the first candidate that no trial has."""
        return next((candidate for candidate in self._feasible_candidates(state.define)
                     if candidate.key not in state.candidate_keys), None)

    def _feasible_candidates(self, define: DefineByRun) -> Iterator[Candidate]:
        if define is not self.define:
            yield from enumerate_candidates(define)
            return
        yield from self._enumerated
        for candidate in self._remaining:
            if self.facts(candidate.params).is_feasible:
                self._enumerated.append(candidate)
                yield candidate
