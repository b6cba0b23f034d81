"""Searches replayed on tables of candidates that were really trained: no training, the same decisions.

Workers are simulated: a candidate keeps one busy for as much compute as its training took; the next decision falls
when the first of them is free.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.errors import UserError
from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.hypervolume import hypervolume
from scalesearch.samplers import make_proposer
from scalesearch.samplers.base import Askable, Settings
from scalesearch.samplers.grid import key_of
from scalesearch.samplers.history import COMPLETE, FAILED, INFEASIBLE, PAUSED, PENDING, Goal, Seen
from scalesearch.schedule.rungs import Rungs
from scalesearch.schedule.scheduler import Start, Strategy, TrainOn
from scalesearch.space.syntax.parameters import Choice, Question

LISTED = "is in the table"
NEVER_ENDS = 100_000


@dataclass(frozen=True)
class Row:
    """One trained candidate.

    Attributes:
        asked: question to answer.
        values: goal to value.
        curve: loss at equal distances of training, the last at its end.
        compute: of the whole training, in any unit.
        share: of what rungs count in; a training may end of itself before that, or after.
        failed: it came to nothing; its values do not count.
    """

    asked: Mapping[str, Any]
    values: Mapping[str, float]
    curve: tuple[float, ...]
    compute: float
    share: float = 1.0
    failed: bool = False

    def spent(self, share: float) -> float:
        """Compute up to ``share``: up to its first measurement at least, since nothing is known before that."""
        return self.compute * max(1 / len(self.curve), min(1.0, share / self.share))

    def loss(self, share: float) -> float:
        """The best loss up to ``share``."""
        places = max(1, math.floor(len(self.curve) * min(1.0, share / self.share) + 1e-9))
        return min(self.curve[:places])

    def ended(self, share: float) -> bool:
        """Whether training is over by then."""
        return share >= self.share - 1e-12


@dataclass(frozen=True)
class Answered:
    """A sheet of a table's questions."""

    asked: dict[str, Any]


class Listed:
    """A table's columns as a space: every question's options are the values that occur."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._questions: list[tuple[str, Question]] = [
            (name, Choice(tuple(sorted({row.params[name] for row in rows}, key=_order)))) for name in rows[0].params]

    def dimensions(self) -> list[tuple[str, Question]]:
        """The questions: one for each column."""
        return list(self._questions)

    def answer(self, ask: Any) -> Answered:
        """Asks every question."""
        return Answered({name: ask(name, question) for name, question in self._questions})

    def enumerate(self) -> Any:
        """Every combination, in the table or not."""
        names = [name for name, _ in self._questions]
        for values in product(*(question.values() or () for _, question in self._questions)):
            yield Answered(dict(zip(names, values)))


class Table:
    """Trained candidates.

    Args:
        goals: of the search.
        space: asks what the rows answer; without one, the space of all combinations of what occurs.

    Raises:
        UserError: not one training succeeded, or two rows answer alike.
    """

    def __init__(self, rows: Sequence[Row], goals: Sequence[Goal], space: Askable | None = None) -> None:
        if all(row.failed for row in rows):
            raise UserError("a table to replay needs at least one training that succeeded")
        self.rows, self.goals = list(rows), tuple(goals)
        self._at = {key_of(row.params): number for number, row in enumerate(self.rows)}
        if len(self._at) < len(self.rows):
            raise UserError("a table to replay has one row for each combination of answers, and some of these repeat")
        self.space = space or Listed(self.rows)
        values = self.values(number for number, row in enumerate(self.rows) if not row.failed)
        span = np.ptp(values, axis=0)
        worst = np.where([g.direction == "min" for g in goals], values.max(0), values.min(0))
        self.corner = worst + np.array([g.sign for g in goals]) * 0.01 * np.where(span > 0, span, 1)
        self.best = self.volume(values)

    def find(self, asked: Mapping[str, Any]) -> int | None:
        """The row with these answers."""
        return self._at.get(key_of(asked))

    def values(self, rows: Any) -> NDArray[np.float64]:
        """(rows, goals)."""
        found = [[self.rows[row].values[goal.name] for goal in self.goals] for row in rows]
        return np.array(found, float).reshape(-1, len(self.goals))

    def volume(self, values: NDArray[np.float64]) -> float:
        """Hypervolume up to the table's worst values and 1 % of their range beyond."""
        ways = [goal.direction for goal in self.goals]
        return hypervolume(values[pareto_front(values, ways)], list(self.corner), ways) if len(values) else 0.0


def _order(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value


@dataclass(frozen=True)
class Trace:
    """A search as it went: after each decision the compute that was spent and the share of the best hypervolume.

    ``ended``: candidates trained to the end by then; ``begun``: candidates begun.
    """

    compute: NDArray[np.float64]
    volume: NDArray[np.float64]
    ended: NDArray[np.int64]
    begun: NDArray[np.int64]


class Replay:
    """One search on a table.

    Args:
        settings: of the proposer.
        rungs: where training pauses.
        workers: candidates in training at once.
    """

    def __init__(self, table: Table, settings: Settings, rungs: Rungs, workers: int = 1) -> None:
        self.table, self.workers, self.rungs = table, workers, rungs
        proposer = make_proposer(table.space, (LISTED,), table.goals, settings)
        self.strategy = Strategy(proposer, self._judge, rungs, table.goals)
        self.history: list[Seen] = []
        self.spent = 0.0
        self._steps: list[tuple[float, float, int, int]] = []
        self._ended: list[int] = []

    def run(self, evaluations: int | None = None, compute: float = math.inf) -> Trace:
        """Search until so many candidates were begun, so much compute was spent, or the table is exhausted."""
        busy: list[tuple[float, int]] = []
        clock = 0.0
        while True:
            while len(busy) < self.workers and not self._over(evaluations, compute):
                chosen = self.strategy.next(self.history, NEVER_ENDS)
                if chosen is None or chosen.seen is None:
                    break
                number, cost = self._begin(chosen)
                heapq.heappush(busy, (clock + cost, number))
            if not busy:
                break
            clock, number = heapq.heappop(busy)
            self._end(number)
        steps = np.array(self._steps).reshape(-1, 4)
        return Trace(steps[:, 0], steps[:, 1], steps[:, 2].astype(int), steps[:, 3].astype(int))

    def _over(self, evaluations: int | None, compute: float) -> bool:
        begun = sum(seen.state != INFEASIBLE for seen in {s.identity: s for s in self.history}.values())
        return self.spent >= compute or (evaluations is not None and begun >= evaluations)

    def _judge(self, number: int, asked: Mapping[str, Any]) -> Seen:
        row = self.table.find(asked)
        if row is None:
            return Seen(number, INFEASIBLE, asked, f"none {number}", {LISTED: 1.0})
        values = self.table.rows[row].values
        costs = {goal.name: values[goal.name] for goal in self.table.goals if not goal.measured}
        return Seen(number, PENDING, asked, str(row), {LISTED: 0.0}, costs)

    def _begin(self, chosen: TrainOn | Start) -> tuple[int, float]:
        """Puts a candidate in training; its number and what that costs."""
        if isinstance(chosen, Start):
            self.history += [*chosen.rejected, chosen.seen]
        seen = chosen.seen
        self.history[seen.number] = replace(seen, state=PENDING)
        row, rung = self.table.rows[int(seen.identity)], len(seen.rungs)
        cost = row.spent(self._share(rung)) - (row.spent(self._share(rung - 1)) if rung else 0.0)
        self.spent += cost
        return seen.number, cost

    def _share(self, rung: int) -> float:
        """Where ``rung`` is; the last one is the end of training, whenever that comes."""
        return self.rungs.shares[rung] if rung < self.rungs.pauses else math.inf

    def _end(self, number: int) -> None:
        seen = self.history[number]
        row = self.table.rows[int(seen.identity)]
        share = self._share(len(seen.rungs))
        rungs = (*seen.rungs, row.loss(share))
        if row.ended(share):
            # Past rungs that it never came to, its loss stays what it was: it counts as having passed them.
            rungs = (*rungs, *[row.loss(math.inf)] * (len(self.rungs.shares) - len(rungs)))
            state, values = (FAILED, None) if row.failed else (COMPLETE, row.values)
            self.history[number] = replace(seen, state=state, rungs=rungs, values=values)
            self._ended.append(int(seen.identity))
        else:
            self.history[number] = replace(seen, state=PAUSED, rungs=rungs)
        volume = self.table.volume(self.table.values(n for n in self._ended if not self.table.rows[n].failed))
        begun = len({one.identity for one in self.history if one.state != INFEASIBLE})
        self._steps.append((self.spent, volume / self.table.best, len(self._ended), begun))
