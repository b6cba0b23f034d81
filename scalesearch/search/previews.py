"""Previews: a candidate that is much like a trained one begins with its weights and is trained for a share only.

What it came to is foreseen as what a full training would (:mod:`scalesearch.search.predict`), and tells the proposer
where to look. It never stands on a front: those that would are trained in full, from the recipe's first weights. Some
of them are while the search goes on, so that there are pairs to correct previews by and new parents; the last compute
goes to the others. OFA and HAT (Cai et al. 2020, Wang et al. 2020) choose by inherited weights, too, of one network
that was trained to hold all; here each parent is a candidate of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalesearch.errors import UserError
from scalesearch.report.front import ranks
from scalesearch.search.history import COMPLETE, PENDING, PREVIEWED, Goal, History, Seen
from scalesearch.search.predict import FEWEST, foreseen
from scalesearch.search.proposers.base import Proposer
from scalesearch.search.rungs import FULL
from scalesearch.search.strategy import Judge, Start, Strategy, TrainOn, firsts

KEPT = 2  # full trainings that are kept for those that would join the front


@dataclass(frozen=True)
class Previews:
    """How candidates are previewed.

    Attributes:
        share: of a full training.
        eta: of so many previewed one is trained in full while the search goes on, where it would join the front.
        apart: answers in which a candidate may differ from the one whose weights it inherits.

    Raises:
        UserError: a share that is not between 0 and 1.
    """

    share: float
    eta: int = 3
    apart: int = 4

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise UserError(f"inherit: share is of a full training, above 0 and below 1, not {self.share:g}")

    def affordable(self, left: float) -> bool:
        """Whether a preview leaves enough for the full training that must follow, of ``left`` full trainings."""
        return left >= self.share + 1 - 1e-9


class Previewing(Strategy):
    """Starts candidates, each perhaps with a preview, and trains in full those that would join the front."""

    def __init__(self, proposer: Proposer, judge: Judge, previews: Previews, goals: Sequence[Goal],
                 asks: int = 1000) -> None:
        super().__init__(proposer, judge, FULL, goals, asks)
        self.previews = previews

    def next(self, history: History, left: float) -> TrainOn | Start | None:
        """What to do with ``left`` full trainings' worth of compute; None where nothing can be done now."""
        once = firsts(history)
        if left < 1 - 1e-9:
            return None
        values = foreseen(once, self.goals)
        waiting = [seen for seen in once if seen.state == PREVIEWED]
        likely = self._likely(waiting, values)
        if self._due(once, likely):
            return self._train(once, likely or waiting, values)
        if left >= self.previews.share + max(1, min(KEPT, len(likely))) - 1e-9 or not (waiting or self._away(once)):
            begun = self.start(history)
            return begun if begun.seen is not None or not waiting else self._train(once, likely or waiting, values)
        return self._train(once, likely, values) if likely else self._otherwise(history, once)

    def _otherwise(self, history: History, once: History) -> Start | None:
        """Nobody who waits would join the front: a new candidate, once there is no preview to wait for."""
        return None if self._away(once) else self.start(history)

    def _away(self, once: History) -> bool:
        """Whether a preview is under way."""
        return any(seen.heir and seen.state == PENDING and seen.preview is None for seen in once)

    def _due(self, once: History, likely: Sequence[Seen]) -> bool:
        """Whether it is time to train one of the previewed in full."""
        previewed = [seen for seen in once if seen.preview is not None]
        chosen = [seen for seen in previewed if seen.state != PREVIEWED]
        due = len(previewed) // self.previews.eta > len(chosen)
        return due and (bool(likely) or len(chosen) < FEWEST)

    def _likely(self, waiting: Sequence[Seen], values: Mapping[int, Mapping[str, float]]) -> list[Seen]:
        """Those of ``waiting`` that would stand on the front."""
        if not waiting:
            return []
        table = np.array([[found[goal.name] for goal in self.goals] for found in values.values()], float)
        rank = dict(zip(values, ranks(table, [goal.direction for goal in self.goals])))
        return [seen for seen in waiting if rank[seen.number] == 0]

    def _train(self, once: History, able: Sequence[Seen], values: Mapping[int, Any]) -> TrainOn:
        return TrainOn(able[self._best(once, able, values)])


def parent_of(asked: Mapping[str, Any], history: History, previews: Previews, goals: Sequence[Goal]) -> Seen | None:
    """The candidate trained to the end that answers most alike; None where all differ in more than ``apart``.

    Of equally near ones the best by the first measured goal, then the first. Whoever proposed it has no say, so that a
    study that goes on finds the same.
    """
    goal = next(goal for goal in (*(g for g in goals if g.measured), *goals))
    known = [seen for seen in history if seen.state == COMPLETE and seen.values and seen.asked]
    ranked = sorted((differences(asked, seen.asked), (seen.values or {})[goal.name] * goal.sign, seen.number)
                    for seen in known)
    near = next((number for count, _, number in ranked if count <= previews.apart), None)
    return next((seen for seen in known if seen.number == near), None)


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    """Questions that two sheets answer differently, those counted that only one of them was asked."""
    return sum(one.get(name, _unasked) != other.get(name, _unasked) for name in one.keys() | other.keys())


_unasked = object()
