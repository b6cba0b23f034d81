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
from scalesearch.pareto.noise import pool_noise
from scalesearch.pareto.objective import Objective
from scalesearch.samplers.bayes.coordinates import Array, Coordinates
from scalesearch.samplers.bayes.hypervolume_improvement import HypervolumeImprovement
from scalesearch.samplers.bayes.multi_fidelity import MIN_OBSERVATIONS, MultiFidelitySurrogate
from scalesearch.samplers.bayes.surrogate import Surrogate
from scalesearch.samplers.candidate import Candidate
from scalesearch.samplers.sampler_state import SamplerState
from scalesearch.samplers.trial_history import (
    COMPUTE,
    is_complete,
    is_infeasible,
    is_paused,
    log_loss,
    rung_losses,
    values_by_seed,
)

MAX_TRAINING_TRIALS = 1000  # trials that are learned from; their coordinates are made anew for each proposal
MAX_LOG_LOSS = 20.0  # the logarithm of a loss, above which all are alike
N_QUADRATURE_NODES = 8  # losses that a trial may have at its next rung


class AcquisitionFunction:
    """Outlook of the trials of ``ask`` and a ``pool`` of new sheets.

    Args:
        shares: of a full training at which trials pause, the last one 1.
    """

    def __init__(self, state: SamplerState, pool: Sequence[Candidate],
                 rung_shares: Sequence[float]) -> None:
        self.state, self.rung_shares = state, rung_shares
        told = [
            trial for trial in state.trials
            if trial.params and (is_complete(trial) or rung_losses(trial))
        ]
        self.observed_trials = _select_training_trials(told, state.objectives)
        training = [trial for trial in state.running_trials if not rung_losses(trial)]
        trials = [*self.observed_trials, *training]
        asked = {name
                 for sheet in pool
                 for name in sheet.params} or {name
                                               for one in trials
                                               for name in one.params}
        self.costs = self._costs(trials, pool)
        self.coordinates = Coordinates.of(
            [*(_restrict_to_pool(trial, asked) for trial in trials), *pool], self.costs)
        self.pending = self.coordinates[len(self.observed_trials) : len(trials)]
        self.pool_rows = np.arange(len(trials), len(trials) + len(pool))

    @cached_property
    def predicts_final_values(self) -> bool:
        """Whether final values can be forecast; before, everything is about losses at the first rung."""
        passed = len(self.rung_shares) - 1 if self._has_rungs else 0
        return sum(
            is_complete(trial) and len(rung_losses(trial)) >= passed
            for trial in self.observed_trials) >= MIN_OBSERVATIONS

    @cached_property
    def new_values(self) -> Array:
        """(pool,) price of each sheet; before the end can be forecast, its gain at the first rung."""
        return self._values(self.pool_rows, -1, np.full(len(self.pool_rows),
                                                        np.nan)) * self._feasibility_probabilities

    @cached_property
    def paused_values(self) -> dict[int, float]:
        """Number to price of each paused trial."""
        found: dict[int, float] = {}
        for level in range(len(self.rung_shares) - 1):
            rows = [
                at for at, one in enumerate(self.observed_trials)
                if is_paused(one) and len(rung_losses(one)) == level + 1
            ]
            if rows:
                prices = self._values(np.array(rows), level, self._log_losses[rows, level])
                found |= {
                    self.observed_trials[row].number: float(price)
                    for row, price in zip(rows, prices)
                }
        return found

    def predict_final(self) -> tuple[NDArray[np.intp], Array, Array]:
        """Points of the pool and of paused trials; mean and deviation (points, measured) of their final values."""
        reached = np.array(
            [len(rung_losses(one)) if is_paused(one) else 0 for one in self.observed_trials])
        rows, found = [self.pool_rows
                       ], [self._predict_final(self.pool_rows, -1, np.zeros(len(self.pool_rows)))]
        for level in range(self._log_losses.shape[1]):
            there = np.flatnonzero(reached == level + 1)
            rows.append(there)
            found.append(self._predict_final(there, level, self._log_losses[there, level]))
        mean, spread = (np.concatenate(part) for part in zip(*found))
        return np.concatenate(rows), mean, spread

    def sample_final(self, rows: NDArray[np.intp], mean: Array, std: Array, count: int,
                     rng: np.random.Generator) -> Array:
        """(count, points, measured) final values that trainings may come to, those of neighbours alike."""
        found = np.empty((count, *mean.shape))
        for at, forecast in enumerate(self._surrogates):
            together = forecast.correlation_root(self.coordinates[rows]) @ rng.standard_normal(
                (len(rows), count))
            alone = forecast.seed_std * rng.standard_normal((count, len(rows)))
            found[:, :, at] = mean[:, at] + std[:, at] * together.T + alone
        return found

    def _values(self, rows: NDArray[np.intp], level: int, loss: Array) -> Array:
        """(rows,) prices of points that have come to ``level`` with ``loss``."""
        return self._lookahead_values(rows, level, loss) / self._relative_compute[rows]

    def _lookahead_values(self, rows: NDArray[np.intp], level: int, loss: Array) -> Array:
        """(rows,) the same where every training takes as much."""
        if not self._surrogates:  # all is known before, so there is nothing to wait for at a rung
            return self._ehvi_at_end(rows, level,
                                     loss) / (1 - (self.rung_shares[level] if level >= 0 else 0))
        ahead, points = level + 1, self.coordinates[rows]
        last = ahead == self._log_losses.shape[1]
        found = [
            one.predict_level(points, ahead, loss, self.pending if level < 0 else None)
            for one in self._surrogates
        ]
        if last:
            mean, spread = (np.stack(one, 1) for one in zip(*found))
            return self.improvement.expected(mean, spread,
                                             self.costs[rows]) / self._rung_budget(ahead)
        (mean, spread), normal = found[0], [
            NormalDist().inv_cdf((at + 0.5) / N_QUADRATURE_NODES)
            for at in range(N_QUADRATURE_NODES)
        ]
        gains = np.stack([self._ehvi_at_end(rows, ahead, mean + far * spread) for far in normal])
        best_first = np.cumsum(-np.sort(-gains, axis=0), axis=0)
        going_on = np.arange(1, N_QUADRATURE_NODES + 1)[:, None]
        compute = N_QUADRATURE_NODES * self._rung_budget(ahead) + going_on * (
            1 - self.rung_shares[ahead])
        return np.asarray((best_first / compute).max(0))

    def _ehvi_at_end(self, rows: NDArray[np.intp], level: int, loss: Array) -> Array:
        """(rows,) expected gain of training points with ``loss`` at ``level`` to the end."""
        return self.improvement.expected(*self._predict_final(rows, level, loss), self.costs[rows])

    def _predict_final(self, rows: NDArray[np.intp], level: int,
                       loss: Array) -> tuple[Array, Array]:
        """Mean and deviation (rows, measured) at the end, of points with ``loss`` at ``level``."""
        found = np.empty((2, len(rows), len(self._surrogates)))
        for at, one in enumerate(self._surrogates):
            found[:, :, at] = one.predict_final(self.coordinates[rows], level, loss)
        return found[0], found[1]

    def _rung_budget(self, level: int) -> float:
        """The compute from the level before to ``level``, in full trainings."""
        return self.rung_shares[level] - (self.rung_shares[level - 1] if level else 0.0)

    @cached_property
    def _relative_compute(self) -> Array:
        """(points,) compute that a full training is expected to take, relative to what trials took in the mean."""
        took = np.array([one.user_attrs.get(COMPUTE) or np.nan for one in self.observed_trials])
        rows = np.flatnonzero(took > 0)
        if len(rows) < MIN_OBSERVATIONS:
            return np.ones(len(self.coordinates.points))
        logs = np.log(took[rows])
        return np.asarray(
            np.exp(
                Surrogate(self.coordinates[rows], logs).predict(self.coordinates)[0] - logs.mean()))

    @cached_property
    def _has_rungs(self) -> bool:
        return len(self.rung_shares) > 1 and any(
            rung_losses(trial) for trial in self.observed_trials)

    @cached_property
    def _log_losses(self) -> Array:
        """(trials, rungs) logarithms of losses; NaN where a trial has not been."""
        count = 0 if not self._has_rungs else len(
            self.rung_shares) - 1 if self.predicts_final_values else 0
        found = np.full((len(self.observed_trials), count), np.nan)
        for row, trial in enumerate(self.observed_trials):
            for rung in range(min(count, len(rung_losses(trial)))):
                found[row, rung] = min(log_loss(trial, rung), MAX_LOG_LOSS)
        return found

    @cached_property
    def _final_values(self) -> Array:
        """(trials, objectives) final values; NaN of what is not complete. Early, the loss at the first rung."""
        objectives, exact = self.state.objectives, [
            self.state.exact_values(one, self.state.objectives) for one in self.observed_trials
        ]
        if self.predicts_final_values:
            return _clip_infinite(
                np.array([
                    np.mean(values_by_seed(one), 0) if is_complete(one) else [np.nan] *
                    len(objectives) for one in self.observed_trials
                ], float))
        return np.array([[
            one.sign * min(log_loss(trial, 0), MAX_LOG_LOSS) if one.is_measured else known[one.name]
            for one in objectives
        ] if rung_losses(trial) else [np.nan] * len(objectives)
                         for trial, known in zip(self.observed_trials, exact)], float)

    @cached_property
    def _surrogates(self) -> list[MultiFidelitySurrogate]:
        """One for each measured objective; of losses, so that less is better."""
        points, found = self.coordinates[np.arange(len(self.observed_trials))], []
        seeds = [
            np.array(values_by_seed(one))
            if self.predicts_final_values and is_complete(one) else np.empty((1, 0))
            for one in self.observed_trials
        ]
        counts = np.array([len(several) for several in seeds], float)
        for at, one in enumerate(self.state.objectives):
            if one.is_measured:
                losses = np.column_stack([self._log_losses, self._final_values[:, at] * one.sign])
                found.append(
                    MultiFidelitySurrogate(
                        points, losses, counts,
                        pool_noise(several[:, at] for several in seeds if len(several) > 1)))
        return found

    @cached_property
    def improvement(self) -> HypervolumeImprovement:
        """Gains over the front of complete trials."""
        ended = ~np.isnan(self._final_values).any(1)
        feasible = ended & ~np.array([is_infeasible(trial) for trial in self.observed_trials])
        return HypervolumeImprovement(self._final_values[feasible if feasible.any() else ended],
                                      self.costs, self.state.objectives)

    @cached_property
    def _feasibility_probabilities(self) -> Array:
        """(pool,) the chance to meet the constraints that only a run tells."""
        chances = np.ones(len(self.pool_rows))
        ended = [row for row, trial in enumerate(self.observed_trials) if is_complete(trial)]
        told = {name for row in ended for name in self.observed_trials[row].constraints}
        for name in sorted(told -
                           set(self.state.facts(self.observed_trials[0].params).constraints)):
            misses = np.array(
                [self.observed_trials[row].constraints.get(name, 0.0) for row in ended])
            mean, spread = Surrogate(self.coordinates[ended],
                                     misses).predict(self.coordinates[self.pool_rows])
            chances *= ndtr(-mean / spread)
        return chances

    def _costs(self, trials: Sequence[FrozenTrial], pool: Sequence[Candidate]) -> Array:
        """(trials + pool, objectives known exactly)."""
        ask = self.state
        exact = [(at, objective.name)
                 for at, objective in enumerate(ask.objectives)
                 if not objective.is_measured]
        rows: list[list[Any]] = [
            [ask.exact_values(trial, ask.objectives)[name] for _, name in exact] for trial in trials
        ]
        rows += [[ask.facts.for_candidate(sheet).values[at] for at, _ in exact] for sheet in pool]
        return np.array(rows, float).reshape(len(rows), len(exact))


def _select_training_trials(trials: list[FrozenTrial],
                            objectives: Sequence[Objective]) -> list[FrozenTrial]:
    """The trials to learn from: all, and of very many those of the front, the paused, and others evenly."""
    if len(trials) <= MAX_TRAINING_TRIALS:
        return trials
    complete = np.flatnonzero([is_complete(trial) for trial in trials])
    table = np.array([trials[at].values for at in complete], float).reshape(-1, len(objectives))
    front = complete[pareto_front(table, [one.direction for one in objectives])]
    others = np.linspace(0, len(trials) - 1, MAX_TRAINING_TRIALS).round().astype(int)
    waiting = [at for at, trial in enumerate(trials) if not is_complete(trial)]
    return [
        trials[at]
        for at in sorted({*front.tolist(), *others.tolist(), *waiting[-MAX_TRAINING_TRIALS:]})
    ]


def _restrict_to_pool(trial: FrozenTrial, asked: Collection[str]) -> Candidate:
    """The sheet of ``trial``, less what no sheet of the pool has."""
    return Candidate({name: value for name, value in trial.params.items() if name in asked},
                 {name: its for name, its in trial.distributions.items() if name in asked})


def _clip_infinite(table: Array) -> Array:
    """``table`` with the infinite values that Optuna allows replaced by the ends of the others."""
    known = np.where(np.isfinite(table), table, np.nan)
    if not np.isinf(table).any():
        return table
    ends = [np.nan_to_num(end(known, axis=0)) for end in (np.nanmin, np.nanmax)]
    return np.asarray(np.where(np.isnan(table), np.nan, np.clip(table, *ends)))
