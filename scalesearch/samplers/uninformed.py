"""Samplers that learn nothing: ``random`` draws, and ``grid``, every feasible sheet once in the order of the values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scalesearch.samplers.ask import Ask
from scalesearch.samplers.base import SheetSampler
from scalesearch.samplers.sheet import Define, Sheet, enumerate_sheets


class RandomDraws(SheetSampler):
    """Draws every parameter uniformly, log-uniformly for log ranges; within the feasible region where it is known."""

    def propose(self, ask: Ask) -> Sheet:
        return self.sample(ask)


class Grid(SheetSampler):
    """Goes through all sheets of ``define``, and raises :class:`~scalesearch.samplers.base.Exhausted` at their end.

    Raises:
        UserError: when a trial asks, where ``define`` has a continuous range.
    """

    exhaustive = True

    def __init__(self, define: Define, **arguments: Any) -> None:
        super().__init__(define=define, **arguments)
        self._listed: list[Sheet] = []  # the feasible ones, as far as they were needed
        self._rest = iter(enumerate_sheets(define))

    def propose(self, ask: Ask) -> Sheet | None:
        """The first sheet that no trial has."""
        return next((sheet for sheet in self._sheets(ask.define) if sheet.key not in ask.keys), None)

    def _sheets(self, define: Define) -> Iterator[Sheet]:
        if define is not self.define:
            yield from enumerate_sheets(define)
            return
        yield from self._listed
        for sheet in self._rest:
            if self.known(sheet.params).feasible:
                self._listed.append(sheet)
                yield sheet
