"""Outlook of a study: what new sheets and paused trials may bring to its front, for the compute that they take.

One currency for both: expected gain in hypervolume for a full training's compute, of its own size where trials say what
they took, else of any. Who comes to a rung may be left
there, so the price of going on is that of the best plan: to the rung, and on from the losses there that are worth it
(Weitzman 1979, an option of one step).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial
from scipy.special import ndtr

from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.noise import pooled
from scalesearch.pareto.objective import Objective
from scalesearch.samplers.ask import Ask
from scalesearch.samplers.bayes.coordinates import Array, Coordinates
from scalesearch.samplers.bayes.forecast import FEWEST, Forecast
from scalesearch.samplers.bayes.gains import Gains
from scalesearch.samplers.bayes.surrogate import Surrogate
from scalesearch.samplers.history import (
    COMPUTE,
    is_complete,
    is_infeasible,
    is_paused,
    log_loss,
    rungs_of,
    seeds_of,
)
from scalesearch.samplers.sheet import Sheet

MOST_KNOWN = 1000  # trials that are learned from; their coordinates are made anew for each proposal
DIVERGED = 20.0  # the logarithm of a loss, above which all are alike
NODES = 8  # losses that a trial may have at its next rung


class Outlook:
    """Outlook of the trials of ``ask`` and a ``pool`` of new sheets.

    Args:
        shares: of a full training at which trials pause, the last one 1.
    """

    def __init__(self, ask: Ask, pool: Sequence[Sheet], shares: Sequence[float]) -> None:
        self.ask, self.shares = ask, shares
        told = [trial for trial in ask.trials if trial.params and (is_complete(trial) or rungs_of(trial))]
        self.known = _telling(told, ask.objectives)
        training = [trial for trial in ask.in_training if not rungs_of(trial)]
        trials = [*self.known, *training]
        asked = {name for sheet in pool for name in sheet.params} or {name for one in trials for name in one.params}
        self.costs = self._costs(trials, pool)
        self.points = Coordinates.of([*(_restricted(trial, asked) for trial in trials), *pool], self.costs)
        self.believed = self.points[len(self.known) : len(trials)]
        self.pool = np.arange(len(trials), len(trials) + len(pool))

    @cached_property
    def to_the_end(self) -> bool:
        """Whether final values can be forecast; before, everything is about losses at the first rung."""
        passed = len(self.shares) - 1 if self._ladder else 0
        return sum(is_complete(trial) and len(rungs_of(trial)) >= passed for trial in self.known) >= FEWEST

    @cached_property
    def new(self) -> Array:
        """(pool,) price of each sheet; before the end can be forecast, its gain at the first rung."""
        return self._prices(self.pool, -1, np.full(len(self.pool), np.nan)) * self._chances

    @cached_property
    def paused(self) -> dict[int, float]:
        """Number to price of each paused trial."""
        found: dict[int, float] = {}
        for level in range(len(self.shares) - 1):
            rows = [at for at, one in enumerate(self.known) if is_paused(one) and len(rungs_of(one)) == level + 1]
            if rows:
                prices = self._prices(np.array(rows), level, self._losses[rows, level])
                found |= {self.known[row].number: float(price) for row, price in zip(rows, prices)}
        return found

    def ends(self) -> tuple[NDArray[np.intp], Array, Array]:
        """Points of the pool and of paused trials; mean and deviation (points, measured) of their final values."""
        reached = np.array([len(rungs_of(one)) if is_paused(one) else 0 for one in self.known])
        rows, found = [self.pool], [self._at_last(self.pool, -1, np.zeros(len(self.pool)))]
        for level in range(self._losses.shape[1]):
            there = np.flatnonzero(reached == level + 1)
            rows.append(there)
            found.append(self._at_last(there, level, self._losses[there, level]))
        mean, spread = (np.concatenate(part) for part in zip(*found))
        return np.concatenate(rows), mean, spread

    def draws(self, rows: NDArray[np.intp], mean: Array, spread: Array, count: int, rng: np.random.Generator) -> Array:
        """(count, points, measured) final values that trainings may come to, those of neighbours alike."""
        found = np.empty((count, *mean.shape))
        for at, forecast in enumerate(self._forecasts):
            together = forecast.alike(self.points[rows]) @ rng.standard_normal((len(rows), count))
            alone = forecast.noise * rng.standard_normal((count, len(rows)))
            found[:, :, at] = mean[:, at] + spread[:, at] * together.T + alone
        return found

    def _prices(self, rows: NDArray[np.intp], level: int, loss: Array) -> Array:
        """(rows,) prices of points that have come to ``level`` with ``loss``."""
        return self._gains_by_share(rows, level, loss) / self._compute[rows]

    def _gains_by_share(self, rows: NDArray[np.intp], level: int, loss: Array) -> Array:
        """(rows,) the same where every training takes as much."""
        if not self._forecasts:  # all is known before, so there is nothing to wait for at a rung
            return self._at_end(rows, level, loss) / (1 - (self.shares[level] if level >= 0 else 0))
        ahead, points = level + 1, self.points[rows]
        last = ahead == self._losses.shape[1]
        found = [one.next(points, ahead, loss, self.believed if level < 0 else None) for one in self._forecasts]
        if last:
            mean, spread = (np.stack(one, 1) for one in zip(*found))
            return self.gains.of(mean, spread, self.costs[rows]) / self._step(ahead)
        (mean, spread), normal = found[0], [NormalDist().inv_cdf((at + 0.5) / NODES) for at in range(NODES)]
        gains = np.stack([self._at_end(rows, ahead, mean + far * spread) for far in normal])
        best_first = np.cumsum(-np.sort(-gains, axis=0), axis=0)
        going_on = np.arange(1, NODES + 1)[:, None]
        compute = NODES * self._step(ahead) + going_on * (1 - self.shares[ahead])
        return np.asarray((best_first / compute).max(0))

    def _at_end(self, rows: NDArray[np.intp], level: int, loss: Array) -> Array:
        """(rows,) expected gain of training points with ``loss`` at ``level`` to the end."""
        return self.gains.of(*self._at_last(rows, level, loss), self.costs[rows])

    def _at_last(self, rows: NDArray[np.intp], level: int, loss: Array) -> tuple[Array, Array]:
        """Mean and deviation (rows, measured) at the end, of points with ``loss`` at ``level``."""
        found = np.empty((2, len(rows), len(self._forecasts)))
        for at, one in enumerate(self._forecasts):
            found[:, :, at] = one.end(self.points[rows], level, loss)
        return found[0], found[1]

    def _step(self, level: int) -> float:
        """The compute from the level before to ``level``, in full trainings."""
        return self.shares[level] - (self.shares[level - 1] if level else 0.0)

    @cached_property
    def _compute(self) -> Array:
        """(points,) compute that a full training is expected to take, relative to what trials took in the mean."""
        took = np.array([one.user_attrs.get(COMPUTE) or np.nan for one in self.known])
        rows = np.flatnonzero(took > 0)
        if len(rows) < FEWEST:
            return np.ones(len(self.points.points))
        logs = np.log(took[rows])
        return np.asarray(np.exp(Surrogate(self.points[rows], logs).predict(self.points)[0] - logs.mean()))

    @cached_property
    def _ladder(self) -> bool:
        return len(self.shares) > 1 and any(rungs_of(trial) for trial in self.known)

    @cached_property
    def _losses(self) -> Array:
        """(trials, rungs) logarithms of losses; NaN where a trial has not been."""
        count = 0 if not self._ladder else len(self.shares) - 1 if self.to_the_end else 0
        found = np.full((len(self.known), count), np.nan)
        for row, trial in enumerate(self.known):
            for rung in range(min(count, len(rungs_of(trial)))):
                found[row, rung] = min(log_loss(trial, rung), DIVERGED)
        return found

    @cached_property
    def _ends(self) -> Array:
        """(trials, objectives) final values; NaN of what is not complete. Early, the loss at the first rung."""
        objectives, exact = self.ask.objectives, [self.ask.exact(one, self.ask.objectives) for one in self.known]
        if self.to_the_end:
            return _finite(np.array([np.mean(seeds_of(one), 0) if is_complete(one) else [np.nan] * len(objectives)
                                     for one in self.known], float))
        return np.array([[one.sign * min(log_loss(trial, 0), DIVERGED) if one.measured else known[one.name]
                          for one in objectives]
                         if rungs_of(trial) else [np.nan] * len(objectives)
                         for trial, known in zip(self.known, exact)], float)

    @cached_property
    def _forecasts(self) -> list[Forecast]:
        """One for each measured objective; of losses, so that less is better."""
        points, found = self.points[np.arange(len(self.known))], []
        seeds = [np.array(seeds_of(one)) if self.to_the_end and is_complete(one) else np.empty((1, 0))
                 for one in self.known]
        counts = np.array([len(several) for several in seeds], float)
        for at, one in enumerate(self.ask.objectives):
            if one.measured:
                losses = np.column_stack([self._losses, self._ends[:, at] * one.sign])
                found.append(Forecast(points, losses, counts,
                                      pooled(several[:, at] for several in seeds if len(several) > 1)))
        return found

    @cached_property
    def gains(self) -> Gains:
        """Gains over the front of complete trials."""
        ended = ~np.isnan(self._ends).any(1)
        feasible = ended & ~np.array([is_infeasible(trial) for trial in self.known])
        return Gains(self._ends[feasible if feasible.any() else ended], self.costs, self.ask.objectives)

    @cached_property
    def _chances(self) -> Array:
        """(pool,) the chance to meet the constraints that only a run tells."""
        chances = np.ones(len(self.pool))
        ended = [row for row, trial in enumerate(self.known) if is_complete(trial)]
        told = {name for row in ended for name in self.known[row].constraints}
        for name in sorted(told - set(self.ask.known(self.known[0].params).constraints)):
            misses = np.array([self.known[row].constraints.get(name, 0.0) for row in ended])
            mean, spread = Surrogate(self.points[ended], misses).predict(self.points[self.pool])
            chances *= ndtr(-mean / spread)
        return chances

    def _costs(self, trials: Sequence[FrozenTrial], pool: Sequence[Sheet]) -> Array:
        """(trials + pool, objectives known exactly)."""
        ask = self.ask
        exact = [(at, objective.name) for at, objective in enumerate(ask.objectives) if not objective.measured]
        rows: list[list[Any]] = [[ask.exact(trial, ask.objectives)[name] for _, name in exact] for trial in trials]
        rows += [[ask.known.of_sheet(sheet).values[at] for at, _ in exact] for sheet in pool]
        return np.array(rows, float).reshape(len(rows), len(exact))


def _telling(trials: list[FrozenTrial], objectives: Sequence[Objective]) -> list[FrozenTrial]:
    """The trials to learn from: all, and of very many those of the front, the paused, and others evenly."""
    if len(trials) <= MOST_KNOWN:
        return trials
    complete = np.flatnonzero([is_complete(trial) for trial in trials])
    table = np.array([trials[at].values for at in complete], float).reshape(-1, len(objectives))
    front = complete[pareto_front(table, [one.direction for one in objectives])]
    others = np.linspace(0, len(trials) - 1, MOST_KNOWN).round().astype(int)
    waiting = [at for at, trial in enumerate(trials) if not is_complete(trial)]
    return [trials[at] for at in sorted({*front.tolist(), *others.tolist(), *waiting[-MOST_KNOWN:]})]


def _restricted(trial: FrozenTrial, asked: Collection[str]) -> Sheet:
    """The sheet of ``trial``, less what no sheet of the pool has."""
    return Sheet({name: value for name, value in trial.params.items() if name in asked},
                 {name: its for name, its in trial.distributions.items() if name in asked})


def _finite(table: Array) -> Array:
    """``table`` with the infinite values that Optuna allows replaced by the ends of the others."""
    known = np.where(np.isfinite(table), table, np.nan)
    if not np.isinf(table).any():
        return table
    ends = [np.nan_to_num(end(known, axis=0)) for end in (np.nanmin, np.nanmax)]
    return np.asarray(np.where(np.isnan(table), np.nan, np.clip(table, *ends)))
