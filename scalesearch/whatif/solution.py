"""Answers to inverse questions: the value, how it stands to every limit, what comes next, and how that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scalesearch.feasible.limits import LimitCheck

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Point:
    """A value, what it costs, and how it stands to every limit."""

    value: int
    costs: Mapping[str, Any]
    limits: tuple[LimitCheck, ...]

    @property
    def broken(self) -> tuple[LimitCheck, ...]:
        """The limits that it misses."""
        return tuple(limit for limit in self.limits if not limit.holds)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {"value": self.value, "costs": dict(self.costs), "limits": [limit.to_json() for limit in self.limits]}


@dataclass(frozen=True)
class Solution:
    """The answer to one question.

    Attributes:
        way, key: ``max`` or ``min``, of which size.
        given: the sizes of ``--for``.
        best: the answer; None where no value is within the budget.
        next: the value after it that can be built; None where the range ends first.
        follows: computed answers that are others than in the file, at the answer.
        tried, unbuildable, within: how many values were costed, cannot be built, are within the budget.
        low, high, step: the range; a step of 0 is a list.
        open_end: the range ends only because the search does: nothing in the budget limits the size.
        rising: whether every cost in the budget rises with the size (or stays); None where none is.
        exhaustive: whether every value of the range was costed.
        nearest: where no value is within the budget, the one that misses it by the least.
    """

    way: str
    key: str
    given: Mapping[str, int]
    best: Point | None
    next: Point | None
    follows: Mapping[str, Any]
    tried: int
    unbuildable: int
    within: int
    low: int
    high: int
    step: int
    open_end: bool
    rising: bool | None
    exhaustive: bool
    nearest: Point | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        points = {name: point and point.to_json() for name, point in (("best", self.best), ("next", self.next))}
        breaks = [limit.text for limit in self.next.broken] if self.next else []
        searched = ("tried", "unbuildable", "within", "low", "high", "step", "open_end", "rising", "exhaustive")
        given = {"for": dict(self.given), "follows": dict(self.follows), "breaks": breaks}
        return {name: getattr(self, name) for name in ("way", "key", *searched)} | given | points


class Solutions(tuple[Solution, ...]):
    """The answers, one for each combination of the given sizes."""

    def frame(self) -> pd.DataFrame:
        """One row each: what was given, the value, its costs, the room left, the next value and what that breaks."""
        import pandas as pd

        return pd.DataFrame([_row(solution) for solution in self])


def _row(solution: Solution) -> dict[str, Any]:
    best, after = solution.best, solution.next
    row: dict[str, Any] = {**solution.given, solution.key: best.value if best else None}
    if best:
        row |= dict(best.costs) | {f"slack {s.text}": s.slack for s in best.limits if s.name}
    breaks = " and ".join(limit.text for limit in after.broken) if after else ""
    return row | {"next": after.value if after else None, "breaks": breaks, "rising": solution.rising}
