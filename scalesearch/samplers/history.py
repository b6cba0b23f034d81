"""What a search knows: every candidate so far, what it costs, how far it was trained and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PENDING, PAUSED, COMPLETE, FAILED, INFEASIBLE = "pending", "paused", "complete", "failed", "infeasible"
DUPLICATE = "duplicate"  # a sheet that describes a network which is in the history already


@dataclass(frozen=True)
class Goal:
    """One axis of the front. ``measured``: only training tells it; otherwise the bill does."""

    name: str
    direction: str
    measured: bool

    @property
    def sign(self) -> int:
        """What makes smaller better."""
        return -1 if self.direction == "max" else 1


@dataclass(frozen=True)
class Seen:
    """One candidate.

    Attributes:
        params: question to answer.
        identity: of the network; two sheets may describe one.
        slacks: limit to how far it is missed; the same limits in the same order for every candidate.
        costs: goal to value, for goals that the bill tells.
        rungs: the loss at each rung that it has reached, smaller being better.
        values: goal to value of every goal, once trained to the end.
    """

    number: int
    state: str
    params: Mapping[str, Any]
    identity: str = ""
    slacks: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    rungs: tuple[float, ...] = ()
    values: Mapping[str, float] | None = None


History = Sequence[Seen]


def having(history: History, *states: str) -> list[Seen]:
    """The candidates in any of ``states``."""
    return [seen for seen in history if seen.state in states]
