"""Samplers that learn nothing: ``random`` draws, and ``grid``, every feasible sheet once in the order of the values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scalesearch.samplers.candidate import Candidate, DefineByRun, enumerate_candidates
from scalesearch.samplers.candidate_sampler import CandidateSampler
from scalesearch.samplers.sampler_state import SamplerState


class RandomSampler(CandidateSampler):
    """Draws every parameter uniformly, log-uniformly for log ranges; within the feasible region where it is known."""

    def propose(self, state: SamplerState) -> Candidate:
        return self.sample_random(state)


class GridSampler(CandidateSampler):
    """Propose every candidate of a space once.

    Raises :class:`~scalesearch.samplers.candidate_sampler.SpaceExhaustedError` after the last one.

    Raises:
        UserError: when a trial asks, where ``define`` has a continuous range.
    """

    is_exhaustive = True

    def __init__(self, define: DefineByRun, **arguments: Any) -> None:
        super().__init__(define=define, **arguments)
        self._enumerated: list[Candidate] = []  # the feasible ones, as far as they were needed
        self._remaining = iter(enumerate_candidates(define))

    def propose(self, state: SamplerState) -> Candidate | None:
        """The first sheet that no trial has."""
        return next((sheet
                     for sheet in self._sheets(state.define)
                     if sheet.key not in state.candidate_keys), None)

    def _sheets(self, define: DefineByRun) -> Iterator[Candidate]:
        if define is not self.define:
            yield from enumerate_candidates(define)
            return
        yield from self._enumerated
        for sheet in self._remaining:
            if self.facts(sheet.params).is_feasible:
                self._enumerated.append(sheet)
                yield sheet
