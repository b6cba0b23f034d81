"""What a free worker does next: train someone on, or start someone new."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scalesearch.samplers.base import Judge, Proposer
from scalesearch.samplers.grid import key_of
from scalesearch.samplers.history import COMPLETE, DUPLICATE, INFEASIBLE, PAUSED, Goal, History, Seen, having
from scalesearch.samplers.predict import foreseen
from scalesearch.samplers.random import RandomDraws
from scalesearch.schedule.rungs import Rungs, promotable, spread

PATIENCE = 5  # proposals for one place that were seen before, after which they are random
DRAWS = 20  # random candidates of which one of the first is chosen, by what it costs


@dataclass(frozen=True)
class TrainOn:
    """Train a paused candidate to its next rung."""

    seen: Seen


@dataclass(frozen=True)
class Start:
    """Train a new candidate to its first rung; ``rejected`` are those that were proposed before it and cost nothing.

    ``seen`` is None where nothing new was found.
    """

    seen: Seen | None
    rejected: tuple[Seen, ...] = ()


class Strategy:
    """Decides from what was seen alone.

    Args:
        proposer: who proposes.
        judge: number and answers to a candidate, infeasible or to be trained, with costs and slacks.
        rungs: where training pauses; a single rung is full training of everyone.
        goals: of the study.
        asks: proposals in a row that bring nothing new, after which there is nothing more.
    """

    def __init__(self, proposer: Proposer, judge: Judge, rungs: Rungs, goals: Sequence[Goal], asks: int = 1000) -> None:
        self.proposer, self.judge, self.rungs, self.goals, self.asks = proposer, judge, rungs, tuple(goals), asks
        proposer.judge = judge
        self._dice = RandomDraws(proposer.space, proposer.limits, goals, proposer.settings, proposer.region)

    def next(self, history: History, left: float) -> TrainOn | Start | None:
        """What to do with ``left`` full trainings' worth of compute; None where there is nothing left to do.

        The last compute goes to those that are likely to stand on the front, since only a candidate that was trained
        to the end can.
        """
        once = firsts(history)
        chosen = promotable(once, self.rungs, self.goals)
        if chosen is not None and self._to_end(chosen) <= left + 1e-9:
            return TrainOn(chosen)
        # Somebody must come to the end: the new one, or one that waits.
        ends = [1.0 - self.rungs.shares[0] if self.rungs.pauses else 0.0, *map(self._to_end, having(once, PAUSED))]
        if left > self._reserve(once) + 1e-9 and self.rungs.step(0) + min(ends) <= left + 1e-9:
            begun = self.start(history)
            # Where there is nobody new to begin, the others may still be trained on.
            return begun if begun.seen is not None else self._last_call(once, left) or begun
        return self._last_call(once, left)

    def start(self, history: History) -> Start:
        """A new candidate. What was rejected last in ``history`` belongs to it: a search that was cut off goes on."""
        seen, earlier = list(history), _rejected_last(history)
        networks = {one.identity for one in seen if one.state != INFEASIBLE}
        sheets = {key_of(one.params) for one in seen[: len(seen) - len(earlier)]}
        repeats = 0
        for one in earlier:
            repeats += one.identity in networks or key_of(one.params) in sheets
            sheets.add(key_of(one.params))
        rejected: list[Seen] = []
        for _ in range(self.asks - len(earlier)):
            number = len(seen)
            stuck = repeats >= PATIENCE and not self.proposer.lists
            params = self._asked(number, seen, networks, stuck)
            if params is None and self.proposer.lists:
                break
            if params is None:  # the proposer finds nothing that it would train
                params, repeats = self._dice.ask(number, seen), PATIENCE
            candidate = self._within(self.judge(number, params), networks)
            if candidate.state != INFEASIBLE and candidate.identity not in networks:
                return Start(candidate, tuple(rejected))
            key = key_of(candidate.params)
            repeats += candidate.identity in networks or key in sheets
            if candidate.state != INFEASIBLE:  # its network is known, and nothing is trained twice
                candidate = replace(candidate, state=DUPLICATE)
            sheets.add(key)
            seen.append(candidate)
            rejected.append(candidate)
        return Start(None, tuple(rejected))

    def _asked(self, number: int, seen: History, networks: Collection[str], stuck: bool) -> Mapping[str, Any] | None:
        """Proposal ``number``: a way back into the region for the last one, one of the first, or the proposer's."""
        if self.proposer.heeds and seen and seen[-1].state == INFEASIBLE:
            mended = self._mended(number, seen[-1].params, networks)
            if mended is not None:
                return mended
        opening = self._opening(number, len(networks)) if self.proposer.opens and not stuck else None
        return opening or (self._dice if stuck else self.proposer).ask(number, seen)

    def _within(self, candidate: Seen, networks: Collection[str]) -> Seen:
        """``candidate``, or a feasible one near by in its place; a proposer that learns from misses hears of them."""
        if candidate.state != INFEASIBLE or self.proposer.heeds or self.proposer.lists:
            return candidate
        mended = self._mended(candidate.number, candidate.params, networks)
        return candidate if mended is None else self.judge(candidate.number, mended)

    def _mended(self, number: int, params: Mapping[str, Any], networks: Collection[str]) -> Mapping[str, Any] | None:
        """A feasible sheet near ``params`` and of a new network, if there is a way; else any feasible one."""
        region = self.proposer.region
        if region is None or not params:
            return None
        rng = random.Random(self.proposer.seed(number))
        return region.mended(params, rng, networks) or region.drawn(rng)

    def _opening(self, number: int, begun: int) -> Mapping[str, Any] | None:
        """One of the first candidates: of many random ones that the bill allows, from the cheapest to the dearest.

        Each beginning then has the whole range of costs in it, and the first results cost least.
        """
        count, rng = self.proposer.first, random.Random(self.proposer.seed(number))
        if begun >= count:
            return None
        drawn = [self.judge(number, self.proposer.drawn(rng)) for _ in range(DRAWS)]
        able = sorted((one for one in drawn if one.state != INFEASIBLE), key=lambda one: sum(_logs(one.costs)))
        return able[int(len(able) * (begun + 0.5) / count)].params if able else None

    def _to_end(self, seen: Seen) -> float:
        """Full trainings' worth of compute until a paused candidate has come to its end."""
        return 1.0 - self.rungs.shares[len(seen.rungs) - 1]

    def _reserve(self, history: History) -> float:
        """Full trainings that are kept for those that wait at the last rung before the end."""
        if not self.rungs.pauses:
            return 0.0
        return max(1.0 - self.rungs.shares[-2], 0.5) * min(len(having(history, PAUSED)), 2)

    def _last_call(self, history: History, left: float) -> TrainOn | None:
        """The paused candidate that is most likely to join the front and can still be trained to the end."""
        values = foreseen(history, self.goals)
        able = [seen for seen in having(history, PAUSED)
                if seen.number in values and self._to_end(seen) <= left + 1e-9]
        return TrainOn(able[self._best(history, able, values)]) if able else None

    def _best(self, history: History, able: Sequence[Seen], values: Mapping[int, Mapping[str, float]]) -> int:
        import numpy as np

        ended = [seen for seen in having(history, COMPLETE) if seen.number in values]
        rows = [[values[seen.number][goal.name] * goal.sign for goal in self.goals] for seen in (*able, *ended)]
        order = spread(np.array(rows, float), len(rows))
        return next(place for place in order if place < len(able))


def _rejected_last(history: History) -> Sequence[Seen]:
    """The proposals at the end of ``history`` that brought nothing new."""
    count = 0
    while count < len(history) and history[-1 - count].state in (INFEASIBLE, DUPLICATE):
        count += 1
    return history[len(history) - count :]


def firsts(history: History) -> list[Seen]:
    """Each network once: what was proposed again is no further candidate."""
    return [seen for seen in history if seen.state not in (INFEASIBLE, DUPLICATE)]


def _logs(costs: Mapping[str, float]) -> list[float]:
    return [math.log(max(cost, 1e-12)) for cost in costs.values()]
