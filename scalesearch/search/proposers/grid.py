"""``grid``: every sheet of the space once, in the space's own order."""

from collections.abc import Mapping
from typing import Any

from scalesearch.search.history import History
from scalesearch.search.proposers.base import Proposer


class Grid(Proposer):
    """Proposes what was not seen yet, first things first; a space with a continuous range has no grid."""

    name = "grid"
    lists = True

    def ask(self, number: int, history: History) -> Mapping[str, Any] | None:
        seen = {key_of(one.asked) for one in history}
        for answers in self.space.enumerate():
            if key_of(answers.asked) not in seen:
                return dict(answers.asked)
        return None


def key_of(asked: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What makes two sheets the same."""
    return tuple(sorted((name, repr(value)) for name, value in asked.items()))
