"""Acquisition function: EHVI per compute, with rung look-ahead.

The values of new candidates and of paused trials have one unit: expected growth of the front's
hypervolume per compute of a full-budget run. If trials report their compute, it is the compute
predicted for that candidate; otherwise all candidates count the same. A trial may stop at its next
rung. Its value is therefore that of the best plan: train to the rung, then continue only from
losses that are worth it (one-step look-ahead, Weitzman 1979).

Notation: rows index the training points, that is observed trials, pending points (trials without a
loss yet) and the pool of new candidates, in this order. ``level`` is the last rung that a point has
passed, -1 for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial
from scipy.special import ndtr

from scalesearch.pareto import Objective
from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.noise import pool_noise
from scalesearch.samplers.bayes.coordinates import Array, Coordinates
from scalesearch.samplers.bayes.hypervolume_improvement import HypervolumeImprovement
from scalesearch.samplers.bayes.multi_fidelity import MIN_OBSERVATIONS, MultiFidelitySurrogate
from scalesearch.samplers.bayes.surrogate import Surrogate
from scalesearch.samplers.candidate import Candidate
from scalesearch.samplers.proxy import ProxyTest, ScoreProxy
from scalesearch.samplers.sampler_state import SamplerState
from scalesearch.samplers.trial_history import (
    COMPUTE,
    is_complete,
    is_in_training,
    is_infeasible,
    is_paused,
    log_loss,
    rung_losses,
    values_by_seed,
)

MAX_TRAINING_TRIALS = 1000  # observed trials that the surrogates are fitted to
MAX_LOG_LOSS = 20.0  # larger logarithms of losses are clipped
FAILED_STDS = 3.0  # robust standard deviations above the median, at which final losses are clipped
MIN_CLIPPED = 5  # final losses from which their robust standard deviation is estimated
N_QUADRATURE_NODES = 8  # losses that a trial may have at its next rung


class AcquisitionFunction:
    """Expected hypervolume improvement per compute.

    It is evaluated for new candidates and for paused trials.

    Args:
        state: trials of the study at the time of the proposal.
        pool: new candidates.
        rung_shares: shares of a full-budget run at which trials pause; the last one is 1.
        proxy: proxy of the scores, a further coordinate if it helps.

    Attributes:
        proxy_test: comparison of the surrogate with and without the proxy; None without one.
    """

    def __init__(self, state: SamplerState, pool: Sequence[Candidate],
                 rung_shares: Sequence[float], proxy: ScoreProxy | None = None) -> None:
        self.state = state
        self.rung_shares = rung_shares
        observed = [trial
                    for trial in state.trials
                    if trial.params and (is_complete(trial) or rung_losses(trial))]
        self.observed_trials = _select_training_trials(observed, state.objectives)
        pending = [trial for trial in state.running_trials if not rung_losses(trial)]
        trials = [*self.observed_trials, *pending]
        names = {name for candidate in pool for name in candidate.params}
        names = names or {name for trial in trials for name in trial.params}
        # Exact objectives, (trials + pool, exact objectives).
        objectives = state.objectives
        exact = [index for index, objective in enumerate(objectives) if not objective.is_measured]
        rows: list[list[Any]] = []
        for trial in trials:
            values = state.exact_values(trial, objectives)
            rows.append([values[objectives[index].name] for index in exact])
        for candidate in pool:
            facts = state.facts.for_candidate(candidate)
            rows.append([facts.values[index] for index in exact])
        self.costs = np.array(rows, float).reshape(len(rows), len(exact))
        candidates = [Candidate({name: value for name, value in trial.params.items()
                                 if name in names},
                                {name: distribution
                                 for name, distribution in trial.distributions.items()
                                 if name in names}) for trial in trials]
        candidates += pool
        self.coordinates = Coordinates.of(candidates, self.costs)
        self.proxy_test: ProxyTest | None = None
        if proxy is not None:
            params = [*(trial.params for trial in trials),
                      *(candidate.params for candidate in pool)]
            is_measured = [objective.is_measured for objective in objectives]
            self.proxy_test, self.coordinates = proxy.add_to(
                self.coordinates, proxy.values(params), self._final_values[:, is_measured],
                len(pool))
        self.pending = self.coordinates[len(self.observed_trials) : len(trials)]
        self.pool_rows = np.arange(len(trials), len(trials) + len(pool))

    @cached_property
    def predicts_final_values(self) -> bool:
        """Whether enough trials are complete to predict final values.

        Until then, losses at the first rung replace the final values.
        """
        n_rungs = len(self.rung_shares) - 1 if self._has_rungs else 0
        n_final = sum(is_complete(trial) and len(rung_losses(trial)) >= n_rungs
                      for trial in self.observed_trials)
        return n_final >= MIN_OBSERVATIONS

    @cached_property
    def new_values(self) -> Array:
        """Acquisition values of the new candidates, shape (pool,)."""
        no_loss = np.full(len(self.pool_rows), np.nan)
        # (pool,): to meet the constraints that are measured by a run
        probabilities = np.ones(len(self.pool_rows))
        rows = [row for row, trial in enumerate(self.observed_trials) if is_complete(trial)]
        measured = {name for row in rows for name in self.observed_trials[row].constraints}
        for name in sorted(measured
                           - set(self.state.facts(self.observed_trials[0].params).constraints)):
            violations = np.array([self.observed_trials[row].constraints.get(name, 0.0)
                                   for row in rows])
            surrogate = Surrogate(self.coordinates[rows], violations)
            mean, std = surrogate.predict(self.coordinates[self.pool_rows])
            probabilities *= ndtr(-mean / std)
        return self._values(self.pool_rows, -1, no_loss) * probabilities

    @cached_property
    def paused_values(self) -> dict[int, float]:
        """Acquisition value of each paused trial, by its number."""
        value_by_number: dict[int, float] = {}
        for level in range(len(self.rung_shares) - 1):
            rows = [row for row, trial in enumerate(self.observed_trials)
                    if is_paused(trial) and len(rung_losses(trial)) == level + 1]
            if rows:
                values = self._values(np.array(rows), level, self._log_losses[rows, level])
                for row, value in zip(rows, values):
                    value_by_number[self.observed_trials[row].number] = float(value)
        return value_by_number

    def predict_final(self) -> tuple[NDArray[np.intp], Array, Array]:
        """Predict the final values of the pool and of paused trials.

        Returns:
            rows; mean and standard deviation of their final values, each (rows, measured
            objectives).
        """
        n_passed = np.array([len(rung_losses(trial)) if is_paused(trial) else 0
                             for trial in self.observed_trials])
        rows = [self.pool_rows]
        surrogates = self._forecast_surrogates
        no_loss = np.zeros(len(self.pool_rows))
        predictions = [self._predict_final(surrogates, self.pool_rows, -1, no_loss)]
        for level in range(self._log_losses.shape[1]):
            at_level = np.flatnonzero(n_passed == level + 1)
            rows.append(at_level)
            loss = self._log_losses[at_level, level]
            predictions.append(self._predict_final(surrogates, at_level, level, loss))
        mean, std = (np.concatenate(part) for part in zip(*predictions))
        return np.concatenate(rows), mean, std

    def sample_final(self, rows: NDArray[np.intp], mean: Array, std: Array, count: int,
                     rng: np.random.Generator) -> Array:
        """Sample final values jointly; similar candidates are correlated.

        Samples have the 90 % intervals of Student's t distribution.

        Returns:
            (count, rows, measured objectives).
        """
        samples = np.empty((count, *mean.shape))
        for index, surrogate in enumerate(self._forecast_surrogates):
            final = surrogate.levels[-1].surrogate
            root = surrogate.levels[0].surrogate.correlation_root(self.coordinates[rows])
            correlated = root @ rng.standard_normal((len(rows), count))
            independent = final.noise_std * rng.standard_normal((count, len(rows)))
            deviations = std[:, index] * correlated.T + independent
            samples[:, :, index] = mean[:, index] + deviations * final.interval_factor
        return samples

    def _values(self, rows: NDArray[np.intp], level: int, loss: Array) -> Array:
        """Acquisition values (rows,) of points that have passed ``level`` with ``loss``."""
        relative_compute = self._relative_compute[rows]
        if not self._surrogates:  # all objectives are exact: a rung reveals nothing
            budget = 1 - (self.rung_shares[level] if level >= 0 else 0)
            return self._ehvi_at_end(rows, level, loss) / budget / relative_compute
        next_level = level + 1
        points = self.coordinates[rows]
        pending = self.pending if level < 0 else None
        predictions = [surrogate.levels[next_level].predict(points, loss, pending)
                       for surrogate in self._surrogates]
        if next_level == self._log_losses.shape[1]:
            mean, std = (np.stack(part, 1) for part in zip(*predictions))
            gain = self.pending_improvement.expected(mean, std, self.costs[rows])
            return gain / self._rung_budget(next_level) / relative_compute
        mean, std = predictions[0]
        nodes = [NormalDist().inv_cdf((index + 0.5) / N_QUADRATURE_NODES)
                 for index in range(N_QUADRATURE_NODES)]
        gains = np.stack([self._ehvi_at_end(rows, next_level, mean + node * std) for node in nodes])
        # (number of nodes that continue, rows)
        best_gains = np.cumsum(-np.sort(-gains, axis=0), axis=0)
        n_continue = np.arange(1, N_QUADRATURE_NODES + 1)[:, None]
        to_rung = N_QUADRATURE_NODES * self._rung_budget(next_level)
        compute = to_rung + n_continue * (1 - self.rung_shares[next_level])
        return np.asarray((best_gains / compute).max(0)) / relative_compute

    def _ehvi_at_end(self, rows: NDArray[np.intp], level: int, loss: Array) -> Array:
        """EHVI (rows,) at the end, given ``loss`` at ``level``."""
        mean, std = self._predict_final(self._surrogates, rows, level, loss)
        return self.pending_improvement.expected(mean, std, self.costs[rows])

    def _predict_final(self, surrogates: Sequence[MultiFidelitySurrogate], rows: NDArray[np.intp],
                       level: int, loss: Array) -> tuple[Array, Array]:
        """Mean and std (rows, measured) at the end, given ``loss`` at ``level``."""
        predicted = np.empty((2, len(rows), len(surrogates)))
        for index, surrogate in enumerate(surrogates):
            predicted[:, :, index] = surrogate.predict_final(self.coordinates[rows], level, loss)
        return predicted[0], predicted[1]

    def _rung_budget(self, level: int) -> float:
        """Compute from the previous level to ``level``, as a share of a full-budget run."""
        return self.rung_shares[level] - (self.rung_shares[level - 1] if level else 0.0)

    @cached_property
    def _relative_compute(self) -> Array:
        """Predicted compute (points,) of a full-budget run.

        It is relative to the geometric mean of the observed ones.
        """
        compute = np.array([trial.user_attrs.get(COMPUTE) or np.nan
                            for trial in self.observed_trials])
        rows = np.flatnonzero(compute > 0)
        if len(rows) < MIN_OBSERVATIONS:
            return np.ones(len(self.coordinates.points))
        logs = np.log(compute[rows])
        predicted, _ = Surrogate(self.coordinates[rows], logs).predict(self.coordinates)
        return np.asarray(np.exp(predicted - logs.mean()))

    @cached_property
    def _has_rungs(self) -> bool:
        return len(self.rung_shares) > 1 and any(
            rung_losses(trial) for trial in self.observed_trials)

    @cached_property
    def _log_losses(self) -> Array:
        """Logarithms of losses (trials, rungs); NaN at rungs that a trial has not reached."""
        n_rungs = len(self.rung_shares) - 1 if self._has_rungs and self.predicts_final_values else 0
        log_losses = np.full((len(self.observed_trials), n_rungs), np.nan)
        for row, trial in enumerate(self.observed_trials):
            for rung in range(min(n_rungs, len(rung_losses(trial)))):
                log_losses[row, rung] = min(log_loss(trial, rung), MAX_LOG_LOSS)
        return log_losses

    @cached_property
    def _final_values(self) -> Array:
        """Final values (trials, objectives); NaN if a trial is not complete.

        Before final values can be predicted, losses at the first rung replace them.
        """
        objectives = self.state.objectives
        missing = [np.nan] * len(objectives)
        if self.predicts_final_values:
            values = np.array([np.mean(values_by_seed(trial), 0) if is_complete(trial) else missing
                               for trial in self.observed_trials], float)
            if np.isinf(values).any():  # Optuna allows them: use the finite extremes of the column
                finite = np.where(np.isfinite(values), values, np.nan)
                low = np.nan_to_num(np.nanmin(finite, axis=0))
                high = np.nan_to_num(np.nanmax(finite, axis=0))
                values = np.where(np.isnan(values), np.nan, np.clip(values, low, high))
            return values
        rows = []
        for trial in self.observed_trials:
            exact = self.state.exact_values(trial, objectives)
            rows.append([objective.sign * min(log_loss(trial, 0), MAX_LOG_LOSS)
                         if objective.is_measured else exact[objective.name]
                         for objective in objectives] if rung_losses(trial) else missing)
        return np.array(rows, float)

    @cached_property
    def _surrogates(self) -> list[MultiFidelitySurrogate]:
        """One surrogate per measured objective, with signs such that less is better."""
        return self._fit_surrogates(self._final_losses)

    @cached_property
    def _forecast_surrogates(self) -> list[MultiFidelitySurrogate]:
        """Surrogates of final values in which failed runs are clipped.

        Without it, a few failed runs widen the intervals of all candidates. Losses at rungs explain
        failed runs, so nothing is clipped with rungs.
        """
        if self._log_losses.shape[1]:
            return self._surrogates
        clipped = np.column_stack([clip_failed(column) for column in self._final_losses.T])
        if np.array_equal(clipped, self._final_losses, equal_nan=True):
            return self._surrogates
        return self._fit_surrogates(clipped)

    @cached_property
    def _final_losses(self) -> Array:
        """Final values (trials, objectives), with signs such that less is better."""
        return self._final_values * [objective.sign for objective in self.state.objectives]

    def _fit_surrogates(self, final_losses: Array) -> list[MultiFidelitySurrogate]:
        points = self.coordinates[np.arange(len(self.observed_trials))]
        values_of_seeds = [
            np.array(values_by_seed(trial)) if self.predicts_final_values and is_complete(trial)
            else np.empty((1, 0)) for trial in self.observed_trials]
        n_seeds = np.array([len(values) for values in values_of_seeds], float)
        surrogates = []
        for index, objective in enumerate(self.state.objectives):
            if objective.is_measured:
                losses = np.column_stack([self._log_losses, final_losses[:, index]])
                noise = pool_noise(values[:, index]
                                   for values in values_of_seeds if len(values) > 1)
                surrogates.append(MultiFidelitySurrogate(points, losses, n_seeds, noise))
        return surrogates

    @cached_property
    def improvement(self) -> HypervolumeImprovement:
        """Hypervolume improvement over the front of complete trials."""
        complete = ~np.isnan(self._final_values).any(1)
        feasible = complete & ~np.array([is_infeasible(trial) for trial in self.observed_trials])
        front = self._final_values[feasible if feasible.any() else complete]
        return HypervolumeImprovement(front, self.costs, self.state.objectives)

    @cached_property
    def pending_improvement(self) -> HypervolumeImprovement:
        """Improvement over the same front with the predicted values of trials in training.

        Candidates that would only repeat the gain of a trial in training have a low value.
        """
        if not self._surrogates or not self.predicts_final_values:
            return self.improvement
        pending_rows = len(self.observed_trials) + np.arange(len(self.pending.points))
        levels = np.array([len(rung_losses(trial)) - 1 if is_in_training(trial) else -1
                           for trial in self.observed_trials])
        parts = [(pending_rows, -1, np.zeros(len(pending_rows)))]
        for level in range(self._log_losses.shape[1]):
            at_level = np.flatnonzero(levels == level)
            parts.append((at_level, level, self._log_losses[at_level, level]))
        means = [self._predict_final(self._surrogates, *part)[0] for part in parts]
        rows = np.concatenate([part[0] for part in parts])
        return self.improvement.with_points(np.concatenate(means), self.costs[rows])


def clip_failed(losses: Array) -> Array:
    """Clip the losses (n,) of runs that failed to learn to a bound.

    A few such runs would increase the unit of the scores, and thus the uncertainty of all others.
    The bound is some robust standard deviations above the median; NaN is kept.
    """
    measured = losses[~np.isnan(losses)]
    if len(measured) < MIN_CLIPPED:
        return losses
    median = np.median(measured)
    robust_std = float(np.median(abs(measured - median))) / NormalDist().inv_cdf(0.75)
    return np.minimum(losses, median + FAILED_STDS * robust_std) if robust_std else losses


def _select_training_trials(trials: list[FrozenTrial],
                            objectives: Sequence[Objective]) -> list[FrozenTrial]:
    """Select the trials that the surrogates are fitted to.

    If there are more than the maximum, these are the front, the latest paused trials, and evenly
    spaced others.
    """
    if len(trials) <= MAX_TRAINING_TRIALS:
        return trials
    complete = np.flatnonzero([is_complete(trial) for trial in trials])
    values = np.array([trials[row].values for row in complete], float).reshape(-1, len(objectives))
    front = complete[pareto_front(values, [objective.direction for objective in objectives])]
    spaced = np.linspace(0, len(trials) - 1, MAX_TRAINING_TRIALS).round().astype(int)
    paused = [row for row, trial in enumerate(trials) if not is_complete(trial)]
    return [trials[row]
            for row in sorted({*front.tolist(), *spaced.tolist(), *paused[-MAX_TRAINING_TRIALS:]})]
