"""Searches replayed on tables of candidates that were really trained: no training, the same decisions.

Workers are simulated: a candidate keeps one busy for as much compute as its training took; the next
decision falls when the first of them is free.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from scalesearch.errors import UserError
from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.hypervolume import hypervolume
from scalesearch.pareto.objective import Objective
from scalesearch.samplers import SamplerSpec, make_sampler
from scalesearch.samplers.candidate import Candidate, candidate_key
from scalesearch.samplers.candidate_facts import CandidateFacts, FactsCache
from scalesearch.samplers.candidate_sampler import CandidateSampler, SpaceExhaustedError
from scalesearch.samplers.encoding import decode_params, encode_params, suggest_params
from scalesearch.samplers.sampler_state import SamplerState
from scalesearch.samplers.trial_history import ARCHITECTURE, COMPUTE, COSTS, LOSS_UNIT, PAUSED, RUNGS, rung_losses
from scalesearch.schedule.rungs import START_TRIAL, Rungs, Scheduler
from scalesearch.space.syntax.parameters import Choice, Parameter

LISTED = "is in the table"
NEVER_ENDS = 100_000
SLACK = 1e-9  # of compute: shares of full trainings are added up as floats
optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class Row:
    """One trained candidate.

    Attributes:
        answers: parameter to answer.
        values: objective to value.
        curve: loss at equal distances of training, the last at its end.
        compute: of the whole training, in any unit.
        share: of what rungs count in; a training may end of itself before that, or after.
        unit: of its losses; those of other units say nothing beside it.
        failed: it came to nothing; its values do not count.
    """

    answers: Mapping[str, Any]
    values: Mapping[str, float]
    curve: tuple[float, ...]
    compute: float
    share: float = 1.0
    unit: str = ""
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
    """A sheet of a table's parameters."""

    params: dict[str, Any]


class Listed:
    """A table's columns as a space: every parameter's options are the values that occur."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._parameters: list[tuple[str, Parameter]] = [
            (name, Choice(tuple(sorted({row.answers[name] for row in rows}, key=_order))))
            for name in rows[0].answers]

    def parameters(self) -> list[tuple[str, Parameter]]:
        """The parameters: one for each column."""
        return list(self._parameters)

    def resolve(self, ask: Any) -> Answered:
        """Asks every parameter."""
        return Answered({name: ask(name, parameter) for name, parameter in self._parameters})

    def enumerate(self) -> Any:
        """Every combination, in the table or not."""
        names = [name for name, _ in self._parameters]
        for values in product(*(parameter.values() or () for _, parameter in self._parameters)):
            yield Answered(dict(zip(names, values)))


class Table:
    """Trained candidates.

    Args:
        objectives: of the search.
        space: asks what the rows answer; without one, the space of all combinations of what occurs.

    Raises:
        UserError: not one training succeeded, or two rows answer alike.
    """

    def __init__(self, rows: Sequence[Row], objectives: Sequence[Objective],
                 space: Any = None) -> None:
        if all(row.failed for row in rows):
            raise UserError("a table to replay needs at least one training that succeeded",
                            code="nothing-trained")
        self.rows = list(rows)
        self.objectives = tuple(objectives)
        self._at = {candidate_key(row.answers): number for number, row in enumerate(self.rows)}
        if len(self._at) < len(self.rows):
            raise UserError("a table to replay has one row for each combination of answers, and "
                            "some of these repeat", code="rows-repeat")
        self.space = space or Listed(self.rows)
        values = self.values(number for number, row in enumerate(self.rows) if not row.failed)
        span = np.ptp(values, axis=0)
        worst = np.where([g.direction == "min" for g in objectives], values.max(0), values.min(0))
        self.reference_point = worst + np.array(
            [g.sign for g in objectives]) * 0.01 * np.where(span > 0, span, 1)
        self.best = self.hypervolume(values)
        on_front = values[pareto_front(values, [one.direction for one in objectives])]
        self.front = len(on_front)
        # of the best row alone
        self.share = max(self.hypervolume(one[None]) for one in on_front) / self.best

    def find(self, answers: Mapping[str, Any]) -> int | None:
        """The row with these answers."""
        return self._at.get(candidate_key(answers))

    def known(self, params: Mapping[str, Any]) -> CandidateFacts:
        """What is known of a proposal: whether the table has it, which row it is, and what that costs."""
        row = self.find(decode_params(self.space, params).params)
        if row is None:
            return CandidateFacts([None] * len(self.objectives), {LISTED: 1.0})
        values = self.rows[row].values
        exact = [None if objective.is_measured else values[objective.name]
                 for objective in self.objectives]
        return CandidateFacts(exact, {LISTED: 0.0}, str(row))

    def values(self, rows: Any) -> NDArray[np.float64]:
        """(rows, objectives)."""
        found = [[self.rows[row].values[one.name] for one in self.objectives] for row in rows]
        return np.array(found, float).reshape(-1, len(self.objectives))

    def hypervolume(self, values: NDArray[np.float64]) -> float:
        """Hypervolume up to the table's worst values and 1 % of their range beyond."""
        ways = [one.direction for one in self.objectives]
        return hypervolume(values[pareto_front(values, ways)], list(self.reference_point),
                           ways) if len(values) else 0.0


def _order(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value


@dataclass(frozen=True)
class Trace:
    """A search as it went: after each decision the compute that was spent and the share of the best hypervolume.

    ``ended``: candidates trained to the end by then; ``started``: candidates that were started.
    """

    compute: NDArray[np.float64]
    hypervolume: NDArray[np.float64]
    ended: NDArray[np.int64]
    started: NDArray[np.int64]


class CheapestFirst(CandidateSampler):
    """Goes through a table by its first cost, and learns nothing: what a search has to beat."""

    is_exhaustive = True

    def __init__(self, table: Table, seed: int) -> None:
        cost = next(one.name for one in table.objectives if not one.is_measured)
        super().__init__(define=partial(suggest_params, table.space), facts=table.known,
                         objectives=table.objectives, seed=seed)
        rows = sorted(table.rows, key=lambda row: row.values[cost])
        self.sheets = [Candidate(*encode_params(table.space, row.answers)) for row in rows]

    def propose(self, state: SamplerState) -> Candidate | None:
        return next((sheet for sheet in self.sheets if sheet.key not in state.candidate_keys), None)


class Replay:
    """One search on a table.

    Args:
        spec: of the sampler; None: cheapest first.
        rungs: where training pauses.
        workers: candidates in training at once.
        max_repeats: stop after this number of consecutive proposals without a new row.
        priced: whether the search is told what each training took.
    """

    def __init__(self, table: Table, spec: SamplerSpec | None, rungs: Rungs, workers: int = 1,
                 max_repeats: int = 1000, priced: bool = False) -> None:
        self.table = table
        self.workers = workers
        self.rungs = rungs
        self.max_repeats = max_repeats
        self.priced = priced
        self.define = partial(suggest_params, table.space)
        self.known = FactsCache(table.known)
        sampler = CheapestFirst(table, 1) if spec is None else (
            make_sampler(spec, self.define, self.known, None, table.objectives, rungs.shares))
        self.scheduler = Scheduler(rungs, table.objectives, sampler.acquisition_values)
        self.study = optuna.create_study(
            directions=[one.optuna_direction for one in table.objectives], sampler=sampler)
        self.spent = self.trainings = 0.0
        self.trials_left = math.inf
        self.rows: dict[int, int] = {}  # of the trials that were begun
        self._open: dict[int, optuna.Trial] = {}
        self._exhausted = False
        self._steps: list[tuple[float, float, int, int]] = []
        self._ended: list[int] = []

    @property
    def trials(self) -> list[FrozenTrial]:
        """Of the study so far."""
        return self.study.get_trials(deepcopy=False)

    def run(self, evaluations: int | None = None, compute: float = math.inf,
            trials: float = math.inf) -> Trace:
        """Search until so many candidates were begun, so much compute was spent, or the table is exhausted.

        Args:
            trials: full trainings, whatever their size, which is what a study charges; the search
                knows this end.
        """
        self.trials_left = trials
        busy: list[tuple[float, int]] = []
        clock = 0.0
        while True:
            while len(busy) < self.workers and not self._over(evaluations, compute):
                number = self._next()
                if number is None:
                    break
                heapq.heappush(busy, (clock + self._begin(number), number))
            if not busy:
                break
            clock, number = heapq.heappop(busy)
            self._end(number)
        steps = np.array(self._steps).reshape(-1, 4)
        return Trace(steps[:, 0], steps[:, 1], steps[:, 2].astype(int), steps[:, 3].astype(int))

    def _over(self, evaluations: int | None, compute: float) -> bool:
        return self.spent >= compute or (evaluations is not None and len(self.rows) >= evaluations)

    def _next(self) -> int | None:
        """The trial to be trained now; None where there is none."""
        left = min(NEVER_ENDS, self.trials_left - self.trainings)
        if left <= SLACK:
            return None
        chosen = self.scheduler.next_action(self.trials, left, self._exhausted)
        if chosen is not START_TRIAL:
            return None if chosen is None else chosen.number
        trial = self._new()
        if trial is not None:
            return trial.number
        self._exhausted = True
        return self._next()

    def _new(self) -> optuna.Trial | None:
        """A new trial of a row that was not begun yet; None where there is none."""
        for _ in range(self.max_repeats):
            trial = self.study.ask()
            try:
                self.define(trial)
            except SpaceExhaustedError:
                self.study.tell(trial, state=TrialState.FAIL)
                return None
            known = self.known(trial.params)
            trial.set_constraint(LISTED, known.constraints[LISTED])
            if known.is_feasible and int(known.identity) not in self.rows.values():
                self.rows[trial.number], self._open[trial.number] = int(known.identity), trial
                trial.set_user_attr(ARCHITECTURE, known.identity)
                trial.set_user_attr(LOSS_UNIT, self.table.rows[int(known.identity)].unit)
                trial.set_user_attr(COSTS,
                                    {one.name: value
                                     for one, value in zip(self.table.objectives, known.values)
                                     if value is not None})
                return trial
            self.study.tell(trial,
                            state=TrialState.FAIL if known.is_feasible else TrialState.PRUNED)
        return None

    def _begin(self, number: int) -> float:
        """Puts a candidate in training; what that costs."""
        row = self.table.rows[self.rows[number]]
        rung = len(rung_losses(self.trials[number]))
        self._open[number].set_user_attr(PAUSED, False)
        self.trainings += self.rungs.budget_to_rung(rung)
        cost = row.spent(self._share(rung)) - (row.spent(self._share(rung - 1)) if rung else 0.0)
        self.spent += cost
        return cost

    def _share(self, rung: int) -> float:
        """Where ``rung`` is; the last one is the end of training, whenever that comes."""
        return self.rungs.shares[rung] if rung < self.rungs.n_pauses else math.inf

    def _end(self, number: int) -> None:
        row = self.table.rows[self.rows[number]]
        trial = self._open[number]
        losses = list(rung_losses(self.trials[number]))
        share = self._share(len(losses))
        losses.append(row.loss(share))
        if row.ended(share):
            # Past rungs that it never came to, its loss stays what it was: it counts as having
            # passed them.
            losses += [row.loss(math.inf)] * (len(self.rungs.shares) - len(losses))
        trial.set_user_attr(RUNGS, losses)
        if self.priced:
            trial.set_user_attr(COMPUTE, row.spent(share) / min(share, 1.0))
        if not row.ended(share):
            trial.set_user_attr(PAUSED, True)
        else:
            values = None if row.failed else [row.values[one.name] for one in self.table.objectives]
            self.study.tell(trial, values, state=TrialState.FAIL if row.failed else None)
            self._ended.append(self.rows[number])
        volume = self.table.hypervolume(
            self.table.values(n for n in self._ended if not self.table.rows[n].failed))
        self._steps.append((self.spent, volume / self.table.best, len(self._ended), len(self.rows)))
