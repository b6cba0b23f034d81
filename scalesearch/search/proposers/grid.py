"""``grid``: every sheet of the space once, in the space's own order."""

from collections.abc import Mapping, Sequence
from typing import Any

from scalesearch.search.history import Goal, History
from scalesearch.search.proposers.base import Askable, Feasible, Proposer, Settings


class Grid(Proposer):
    """Proposes what was not seen yet and meets the limits, first things first; a space with a continuous range has no
    grid.
    """

    name = "grid"
    lists = True

    def __init__(self, space: Askable, limits: Sequence[str], goals: Sequence[Goal], settings: Settings,
                 region: Feasible | None = None) -> None:
        super().__init__(space, limits, goals, settings, region)
        self._misses: set[tuple[tuple[str, str], ...]] = set()  # what the region does not hold

    def ask(self, number: int, history: History) -> Mapping[str, Any] | None:
        seen = {key_of(one.asked) for one in history}
        for answers in self.space.enumerate():
            key = key_of(answers.asked)
            if key not in seen and self._may_be(key, answers.asked):
                return dict(answers.asked)
        return None

    def _may_be(self, key: tuple[tuple[str, str], ...], asked: Mapping[str, Any]) -> bool:
        """Whether a sheet is worth proposing."""
        if self.region is not None and key not in self._misses and not self.region.fits(asked):
            self._misses.add(key)
        return key not in self._misses


def key_of(asked: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What makes two sheets the same."""
    return tuple(sorted((name, repr(value)) for name, value in asked.items()))
