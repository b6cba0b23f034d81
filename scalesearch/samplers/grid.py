"""``grid``: every sheet of the space once, in the space's own order."""

from collections.abc import Mapping, Sequence
from typing import Any

from scalesearch.samplers.base import Askable, Feasible, Proposer, Settings
from scalesearch.samplers.history import Goal, History


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
        seen = {key_of(one.params) for one in history}
        for answers in self.space.enumerate():
            key = key_of(answers.params)
            if key not in seen and self._may_be(key, answers.params):
                return dict(answers.params)
        return None

    def _may_be(self, key: tuple[tuple[str, str], ...], params: Mapping[str, Any]) -> bool:
        """Whether a sheet is worth proposing."""
        if self.region is not None and key not in self._misses and not self.region.fits(params):
            self._misses.add(key)
        return key not in self._misses


def key_of(params: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What makes two sheets the same."""
    return tuple(sorted((name, repr(value)) for name, value in params.items()))
