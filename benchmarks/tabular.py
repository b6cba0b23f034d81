"""Searches replayed on tables of trained candidates: no training, the same decisions.

Workers are simulated. A candidate occupies a worker for the compute of its training run; the next
decision is made when the first worker is free.
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
from scalesearch.pareto import Objective
from scalesearch.pareto.front import hypervolume, pareto_front
from scalesearch.samplers import SamplerSpec, make_sampler
from scalesearch.samplers.candidate import Candidate, candidate_key
from scalesearch.samplers.candidate_facts import CandidateFacts, FactsCache
from scalesearch.samplers.candidate_sampler import CandidateSampler, SpaceExhaustedError
from scalesearch.samplers.encoding import decode_params, encode_params, suggest_params
from scalesearch.samplers.hypervolume_gp import HypervolumeGP
from scalesearch.samplers.sampler_state import SamplerState
from scalesearch.samplers.trial_history import (
    ARCHITECTURE,
    COMPUTE,
    COSTS,
    LOSS_UNIT,
    PAUSED,
    RUNGS,
    rung_losses,
)
from scalesearch.schedule import START_TRIAL, Rungs, Scheduler
from scalesearch.spaces.syntax.parameters import Choice, Parameter

LISTED = "is in the table"
NEVER_ENDS = 100_000
SLACK = 1e-9  # tolerance: shares of full-budget runs are summed as floats
optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class Row:
    """One trained candidate.

    Attributes:
        params: value per parameter.
        values: objective to value.
        curve: losses at equal intervals of the run, the last at its end.
        compute: compute of the whole run, in any unit.
        share: length of the run, in units of a full-budget run.
        unit: unit of its losses; losses of different units are not compared.
        failed: the run failed; its values are ignored.
    """

    params: Mapping[str, Any]
    values: Mapping[str, float]
    curve: tuple[float, ...]
    compute: float
    share: float = 1.0
    unit: str = ""
    failed: bool = False

    def spent(self, share: float) -> float:
        """Return the compute up to a share, at least up to the first measurement."""
        return self.compute * max(1 / len(self.curve), min(1.0, share / self.share))

    def loss(self, share: float) -> float:
        """Return the best loss up to a share."""
        places = max(1, math.floor(len(self.curve) * min(1.0, share / self.share) + 1e-9))
        return min(self.curve[:places])

    def ended(self, share: float) -> bool:
        """Return whether the run ends before a share."""
        return share >= self.share - 1e-12


@dataclass(frozen=True)
class ListedConfig:
    """A configuration of the parameters of a table."""

    params: dict[str, Any]


class Listed:
    """Space of a table: the options of a parameter are the values in its column."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._parameters: list[tuple[str, Parameter]] = [
            (name, Choice(tuple(sorted({row.params[name] for row in rows}, key=_order))))
            for name in rows[0].params]

    def parameters(self) -> list[tuple[str, Parameter]]:
        """Return one parameter per column."""
        return list(self._parameters)

    def resolve(self, choose: Any) -> ListedConfig:
        """Resolve every parameter by the function ``choose``."""
        return ListedConfig({name: choose(name, parameter) for name, parameter in self._parameters})

    def enumerate(self) -> Any:
        """Yield all combinations, with or without a row."""
        names = [name for name, _ in self._parameters]
        for values in product(*(parameter.values() or () for _, parameter in self._parameters)):
            yield ListedConfig(dict(zip(names, values)))


class Table:
    """Trained candidates.

    Args:
        objectives: objectives of the search.
        space: space of the rows; by default all combinations of the values that occur.

    Raises:
        UserError: all runs failed, or two rows have equal parameters.
    """

    def __init__(self, rows: Sequence[Row], objectives: Sequence[Objective],
                 space: Any = None) -> None:
        if all(row.failed for row in rows):
            raise UserError("a table to replay needs at least one run that succeeded",
                            code="nothing-trained")
        self.rows = list(rows)
        self.objectives = tuple(objectives)
        self._at = {candidate_key(row.params): number for number, row in enumerate(self.rows)}
        if len(self._at) < len(self.rows):
            raise UserError("a table to replay has one row for each combination of values, and "
                            "some of these repeat", code="rows-repeat")
        self.space = space or Listed(self.rows)
        values = self.values(number for number, row in enumerate(self.rows) if not row.failed)
        span = np.ptp(values, axis=0)
        worst = np.where([g.direction == "min" for g in objectives], values.max(0), values.min(0))
        self.reference_point = worst + np.array(
            [g.sign for g in objectives]) * 0.01 * np.where(span > 0, span, 1)
        self.best = self.hypervolume(values)
        on_front = values[pareto_front(values, [objective.direction for objective in objectives])]
        self.front = len(on_front)
        # share of the single best row
        self.share = max(self.hypervolume(objective[None]) for objective in on_front) / self.best

    def find(self, params: Mapping[str, Any]) -> int | None:
        """Return the number of the row with these parameters, if any."""
        return self._at.get(candidate_key(params))

    def facts(self, params: Mapping[str, Any]) -> CandidateFacts:
        """Return the facts of a proposal: whether it has a row, its identity and its costs."""
        row = self.find(decode_params(self.space, params).params)
        if row is None:
            return CandidateFacts([None] * len(self.objectives), {LISTED: 1.0})
        values = self.rows[row].values
        exact = [None if objective.is_measured else values[objective.name]
                 for objective in self.objectives]
        return CandidateFacts(exact, {LISTED: 0.0}, str(row))

    def values(self, rows: Any) -> NDArray[np.float64]:
        """Return the values of rows, (rows, objectives)."""
        table = [[self.rows[row].values[objective.name] for objective in self.objectives]
                 for row in rows]
        return np.array(table, float).reshape(-1, len(self.objectives))

    def hypervolume(self, values: NDArray[np.float64]) -> float:
        """Return the hypervolume against the worst values plus 1 % of their range."""
        ways = [objective.direction for objective in self.objectives]
        return hypervolume(values[pareto_front(values, ways)], list(self.reference_point),
                           ways) if len(values) else 0.0


def _order(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value


@dataclass(frozen=True)
class Trace:
    """Course of a search, after each decision.

    Attributes:
        compute: compute spent.
        hypervolume: share of the best hypervolume.
        ended: number of candidates trained to the end.
        started: number of candidates started.
    """

    compute: NDArray[np.float64]
    hypervolume: NDArray[np.float64]
    ended: NDArray[np.int64]
    started: NDArray[np.int64]


class CheapestFirst(CandidateSampler):
    """Baseline that proposes rows by their first cost."""

    is_exhaustive = True

    def __init__(self, table: Table, seed: int) -> None:
        cost = next(objective.name for objective in table.objectives if not objective.is_measured)
        super().__init__(define=partial(suggest_params, table.space), facts=table.facts,
                         objectives=table.objectives, seed=seed)
        rows = sorted(table.rows, key=lambda row: row.values[cost])
        self.candidates = [Candidate(*encode_params(table.space, row.params)) for row in rows]

    def propose(self, state: SamplerState) -> Candidate | None:
        return next((candidate for candidate in self.candidates
                     if candidate.key not in state.candidate_keys), None)


class Replay:
    """One search on a table.

    Args:
        spec: of the sampler; None: cheapest first.
        rungs: where training pauses.
        workers: number of candidates in training at once.
        max_repeats: stop after this number of consecutive proposals without a new row.
        observes_compute: whether the sampler observes the compute of each run.
    """

    def __init__(self, table: Table, spec: SamplerSpec | None, rungs: Rungs, workers: int = 1,
                 max_repeats: int = 1000, observes_compute: bool = False) -> None:
        self.table = table
        self.workers = workers
        self.rungs = rungs
        self.max_repeats = max_repeats
        self.observes_compute = observes_compute
        self.define = partial(suggest_params, table.space)
        self.facts = FactsCache(table.facts)
        sampler = CheapestFirst(table, 1) if spec is None else (
            make_sampler(spec, self.define, self.facts, None, table.objectives, rungs.shares))
        surrogate = ((sampler.acquisition_values, sampler.n_startup_trials, sampler.max_in_training)
                     if isinstance(sampler, HypervolumeGP) else ())
        self.scheduler = Scheduler(rungs, table.objectives, *surrogate)
        self.study = optuna.create_study(
            directions=[objective.optuna_direction for objective in table.objectives],
            sampler=sampler)
        self.spent = self.full_runs = 0.0
        self.trials_left = math.inf
        self.rows: dict[int, int] = {}  # row per trial that was started
        self._open: dict[int, optuna.Trial] = {}
        self._exhausted = False
        self._steps: list[tuple[float, float, int, int]] = []
        self._ended: list[int] = []

    @property
    def trials(self) -> list[FrozenTrial]:
        """All trials so far."""
        return self.study.get_trials(deepcopy=False)

    def run(self, evaluations: int | None = None, compute: float = math.inf,
            trials: float = math.inf) -> Trace:
        """Search until a limit is reached or the table is exhausted.

        Args:
            evaluations: maximum number of candidates started.
            compute: maximum compute.
            trials: maximum number of full-budget runs, known to the search.
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
        """Return the trial to train now, if any."""
        left = min(NEVER_ENDS, self.trials_left - self.full_runs)
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
        """Return a new trial of a row that was not started, if any."""
        for _ in range(self.max_repeats):
            trial = self.study.ask()
            try:
                self.define(trial)
            except SpaceExhaustedError:
                self.study.tell(trial, state=TrialState.FAIL)
                return None
            facts = self.facts(trial.params)
            trial.set_constraint(LISTED, facts.constraints[LISTED])
            if facts.is_feasible and int(facts.identity) not in self.rows.values():
                self.rows[trial.number], self._open[trial.number] = int(facts.identity), trial
                trial.set_user_attr(ARCHITECTURE, facts.identity)
                trial.set_user_attr(LOSS_UNIT, self.table.rows[int(facts.identity)].unit)
                trial.set_user_attr(COSTS,
                                    {objective.name: value
                                     for objective, value in zip(self.table.objectives, facts.values)
                                     if value is not None})
                return trial
            self.study.tell(trial,
                            state=TrialState.FAIL if facts.is_feasible else TrialState.PRUNED)
        return None

    def _begin(self, number: int) -> float:
        """Start a candidate, and return its compute."""
        row = self.table.rows[self.rows[number]]
        rung = len(rung_losses(self.trials[number]))
        self._open[number].set_user_attr(PAUSED, False)
        self.full_runs += self.rungs.budget_to_rung(rung)
        cost = row.spent(self._share(rung)) - (row.spent(self._share(rung - 1)) if rung else 0.0)
        self.spent += cost
        return cost

    def _share(self, rung: int) -> float:
        """Return the share of a rung; the last is the end of training."""
        return self.rungs.shares[rung] if rung < self.rungs.n_pauses else math.inf

    def _end(self, number: int) -> None:
        row = self.table.rows[self.rows[number]]
        trial = self._open[number]
        losses = list(rung_losses(self.trials[number]))
        share = self._share(len(losses))
        losses.append(row.loss(share))
        if row.ended(share):
            # At rungs after its end it keeps its last loss, and counts as promoted.
            losses += [row.loss(math.inf)] * (len(self.rungs.shares) - len(losses))
        trial.set_user_attr(RUNGS, losses)
        if self.observes_compute:
            trial.set_user_attr(COMPUTE, row.spent(share) / min(share, 1.0))
        if not row.ended(share):
            trial.set_user_attr(PAUSED, True)
        else:
            values = None if row.failed else [row.values[objective.name] for objective in self.table.objectives]
            self.study.tell(trial, values, state=TrialState.FAIL if row.failed else None)
            self._ended.append(self.rows[number])
        volume = self.table.hypervolume(
            self.table.values(n for n in self._ended if not self.table.rows[n].failed))
        self._steps.append((self.spent, volume / self.table.best, len(self._ended), len(self.rows)))
