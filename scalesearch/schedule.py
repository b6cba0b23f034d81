"""Scheduler with rungs: it promotes a paused trial or starts a new one.

With a surrogate, the acquisition function decides. Its first observations are those of many trials
at the first rung, and of a few of these at the end.

Otherwise, multi-objective ASHA decides, asynchronously (Li et al. 2020): no trial waits
until a rung is full. Promotion by the score alone would keep only large models. Trials are
therefore promoted front by front of (loss, costs), and within a front in the order of the largest
distance to those before (an epsilon-net, Salinas et al. 2021), so that small models are promoted,
too.

A budget is measured in full-budget runs: 0.5 is half of the training of one candidate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from scalesearch.errors import UserError
from scalesearch.pareto import Objective, euclidean_distances, farthest_points
from scalesearch.pareto.front import (
    default_reference_point,
    hypervolume,
    pareto_front,
    pareto_ranks,
)
from scalesearch.samplers.trial_history import (
    LOSS_UNIT,
    MIN_TRIALS,
    exact_values,
    is_complete,
    is_in_training,
    is_infeasible,
    is_paused,
    log_loss,
    predict_final_values,
    rung_losses,
)

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from scalesearch.samplers.hypervolume_gp import AcquisitionValues

Points = NDArray[np.float64]
# Before the surrogate predicts final values:
N_FIRST_STARTED = 21  # trials that are started at most; chosen by benchmarks/replay.py
N_FIRST_IN_TRAINING = 8  # trials of this phase that may be in training at once
N_FIRST_COMPLETE = 5  # trials that are trained to the end, for at most half of the budget
FIRST_COMPLETE_SHARE = 0.7  # share of the budget for three of these; one may take more
EXPENSIVE_SHARE = 1 / 3  # share of the trials from which the first of these is chosen
MIN_IN_TRAINING = 2.0  # full-budget runs that may be in training at once


@dataclass(frozen=True)
class Rungs:
    """Shares of a full-budget run at which training pauses.

    Attributes:
        shares: increasing shares; the last one is 1, the end of training.
        eta: one of ``eta`` trials is promoted at each rung.

    Raises:
        UserError: the shares do not increase to 1, or ``eta`` is below 2.
    """

    shares: tuple[float, ...] = (1.0,)
    eta: int = 2

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip((0.0, *self.shares), self.shares))
        if not rising or self.shares[-1] != 1:
            raise UserError("rungs: the shares must increase from above 0 to 1, unlike "
                            f"{list(self.shares)}", code="bad-rungs")
        if self.eta < 2:
            raise UserError(f"rungs: eta must be at least 2, not {self.eta}; one of eta trials is "
                            "promoted", code="bad-rungs")

    @classmethod
    def geometric(cls, first: float = 1 / 9, eta: int = 2, spacing: float = 3) -> Rungs:
        """Return rungs that start at ``first``; each is ``spacing`` times the one before.

        With the defaults, half of the trials at each rung are trained three times as long. A
        spacing of ``eta``, as in successive halving, stops too many trials with misleading early
        losses (measured on tables of trained Transformers, see docs/results/benchmarks.md).

        Raises:
            UserError: ``first`` is not in (0, 1], ``spacing`` is not above 1, or ``eta`` is below
                2.
        """
        if not 0 < first <= 1:
            raise UserError("rungs: the first rung is a share of a full-budget run, above 0 and at "
                            f"most 1, not {first}", code="bad-rungs")
        if not spacing > 1:
            raise UserError(f"rungs: spacing must be above 1, not {spacing}", code="bad-rungs")
        # A rung just below the end would save nothing, unless it is the first one.
        count = max(math.floor(math.log(1 / first, spacing) + 0.5), int(first < 1))
        return cls((*[first * spacing**rung for rung in range(count)], 1.0), eta)

    @property
    def n_pauses(self) -> int:
        """Number of rungs before the end."""
        return len(self.shares) - 1

    def budget_to_rung(self, rung: int) -> float:
        """Return the budget from the previous rung to ``rung``."""
        return self.shares[rung] - (self.shares[rung - 1] if rung else 0.0)

    def expected_counts(self, full_runs: float) -> list[float]:
        """Expected numbers of trials that reach each rung, and the end.

        The first one is the number of trials that are started.

        Args:
            full_runs: compute of the search, in full-budget runs.
        """
        reached = [self.eta**-rung for rung in range(len(self.shares))]  # share of started trials
        started = full_runs / sum(share * self.budget_to_rung(rung)
                                  for rung, share in enumerate(reached))
        return [started * share for share in reached]


NO_RUNGS = Rungs()  # all trials are trained to the end


def find_promotable(trials: Sequence[FrozenTrial], rungs: Rungs,
                    objectives: Sequence[Objective]) -> FrozenTrial | None:
    """Return the paused trial to promote, at the highest rung, or None."""
    for rung in reversed(range(rungs.n_pauses)):
        reached = [trial for trial in trials if len(rung_losses(trial)) > rung]
        n_due = len(reached) // rungs.eta
        n_promoted = sum(len(rung_losses(trial)) > rung + 1 or not is_paused(trial)
                         for trial in reached)
        if n_promoted < n_due:
            order = order_by_spread(losses_at_rung(reached, rung, objectives), n_due)
            for trial in (reached[index] for index in order):
                if is_paused(trial) and len(rung_losses(trial)) == rung + 1:
                    return trial
    return None


def losses_at_rung(trials: Sequence[FrozenTrial], rung: int,
                   objectives: Sequence[Objective]) -> Points:
    """Return the log loss at ``rung`` and the logarithms of the exact objectives.

    Returns:
        (trials, 1 + exact objectives), smaller is better.
    """
    costs = [objective for objective in objectives if not objective.is_measured]
    rows = []
    for trial in trials:
        exact = exact_values(trial, objectives)
        rows.append([log_loss(trial, rung),
                     *(math.log(max(exact[objective.name], 1e-12)) * objective.sign
                       for objective in costs)])
    return np.array(rows, float)


def non_dominated(paused: Sequence[FrozenTrial],
                  objectives: Sequence[Objective]) -> list[FrozenTrial]:
    """Return paused trials that no trial at the same rung dominates.

    Trials are compared by loss and costs.

    Only losses with the same unit are compared.
    """
    front: list[FrozenTrial] = []
    groups = [(len(rung_losses(trial)) - 1, trial.user_attrs.get(LOSS_UNIT)) for trial in paused]
    for rung, unit in dict.fromkeys(groups):
        members = [trial for trial, group in zip(paused, groups) if group == (rung, unit)]
        points = losses_at_rung(members, rung, objectives)
        front += compress(members, pareto_front(points, ["min"] * points.shape[1]))
    return front


def order_by_spread(points: Points, count: int) -> list[int]:
    """Order points by fronts, then by the distance to all points before.

    The first point of the first front has the lowest loss (column 0). Distances are in units of the
    range of each column.

    Args:
        points: (n, columns), smaller is better.
        count: number of indices to return.
    """
    if not len(points):
        return []
    span = np.ptp(points, axis=0)
    scaled = (points - points.min(0)) / np.where(span > 0, span, 1)
    ranks = pareto_ranks(points, ["min"] * points.shape[1])
    order: list[int] = []
    for rank in range(int(ranks.max()) + 1):
        members = np.flatnonzero(ranks == rank)
        if not order:
            order.append(int(members[scaled[members, 0].argmin()]))
        order += farthest_points(euclidean_distances(scaled), order, members.tolist(), len(members))
        if len(order) >= count:
            break
    return order[:count]


def select_first_promotion(paused: Sequence[FrozenTrial], promoted: Sequence[FrozenTrial],
                           objectives: Sequence[Objective], count: int, ends_search: bool
                           ) -> FrozenTrial:
    """Return the paused trial to train to the end before there is a surrogate.

    Large models are often behind at the first rung and ahead at the end. The first of several
    promotions is therefore the best of the most expensive third. The next ones, or the only one,
    add the most hypervolume to those before, in loss at the first rung and costs. If the search
    continues, these are logarithms of costs, so that small models are chosen, too.

    Args:
        paused: trials that are paused at the first rung.
        promoted: trials that were promoted.
        objectives: objectives of the study.
        count: number of trials that are promoted in all.
        ends_search: whether no budget is left for others.
    """
    points = losses_at_rung([*paused, *promoted], 0, objectives)
    if not promoted and count > 1:
        costs = points[:, 1:].sum(1)
        is_expensive = costs >= np.quantile(costs, 1 - EXPENSIVE_SHARE)
        return paused[int(np.where(is_expensive, points[:, 0], np.inf).argmin())]
    worst = np.where(np.isfinite(points), points, -np.inf).max(0)
    points = np.minimum(points, worst)  # losses of diverged runs may be infinite
    if ends_search:
        points[:, 1:] = np.exp(points[:, 1:])
    directions = ["min"] * points.shape[1]
    reference_point = default_reference_point(points, directions)
    volumes = [hypervolume(np.vstack([point, points[len(paused) :]]), reference_point, directions)
               for point in points[: len(paused)]]
    return paused[int(np.argmax(volumes))]


def is_promoted(trial: FrozenTrial) -> bool:
    """Return whether a trial continued after the first rung and has not failed."""
    return len(rung_losses(trial)) > is_paused(trial) and trial.state.name != "FAIL"


class StartTrial:
    """The decision to start a new trial."""


START_TRIAL: Final = StartTrial()


class Scheduler:
    """Decide what a free worker does next, from the trials only.

    Args:
        rungs: rungs at which training pauses.
        objectives: objectives of the study.
        acquisition_values: returns the values of a new trial and of paused trials, or None while
            there are too few observations; see
            :meth:`scalesearch.samplers.hypervolume_gp.HypervolumeGP.acquisition_values`. None: the
            sampler has no surrogate.
        n_startup_trials: number of new trials that are proposed without a surrogate.
        max_in_training: share of the remaining budget that may be in training at once.

    Attributes:
        is_waiting: whether the last action has to wait for the results of trials in training.
    """

    def __init__(self, rungs: Rungs, objectives: Sequence[Objective],
                 acquisition_values: Callable[[Sequence[FrozenTrial]], AcquisitionValues | None]
                 | None = None, n_startup_trials: int = 0, max_in_training: float = 1.0) -> None:
        self.rungs = rungs
        self.objectives = tuple(objectives)
        self.acquisition_values = acquisition_values
        self.n_startup_trials = n_startup_trials
        self.max_in_training = max_in_training
        self.is_waiting = False

    def next_action(self, trials: Sequence[FrozenTrial], budget_left: float, exhausted: bool = False
                    ) -> FrozenTrial | StartTrial | None:
        """Return the paused trial to continue, START_TRIAL, or None.

        None means that nothing is left to do, or that the results of trials in training are awaited
        first.

        The last of the budget is spent on trials that are likely to be on the front, because only
        trials that are trained to the end can be.

        Args:
            trials: all trials of the study, including references outside the space.
            budget_left: remaining budget in full-budget runs.
            exhausted: whether all candidates were proposed.
        """
        started = [trial for trial in trials if not is_infeasible(trial)]
        values = None
        is_first_phase = False
        n_complete = n_ending = 0
        if self.acquisition_values and self.rungs.n_pauses:
            n_complete = self._n_first_complete(started, budget_left)
            n_ending = sum(is_promoted(trial) and not is_paused(trial)
                           and len(rung_losses(trial)) >= self.rungs.n_pauses for trial in started)
            values = self.acquisition_values(trials)
            # A surrogate needs MIN_TRIALS complete trials; with a large budget, more are awaited.
            is_first_phase = values is None or MIN_TRIALS <= n_ending < n_complete
        if is_first_phase and n_ending < n_complete:
            action = self._first_action(started, budget_left, exhausted, n_complete)
        elif values is not None:
            action = self._best_action(started, values, budget_left, exhausted)
        else:
            action = self._action_by_rank(started, budget_left, exhausted)
        self.is_waiting = not self._is_due(action, started, is_first_phase, budget_left)
        return None if self.is_waiting else action

    def _is_due(self, action: FrozenTrial | StartTrial | None, started: Sequence[FrozenTrial],
                is_first_phase: bool, budget_left: float) -> bool:
        """Return whether an action need not wait for the results of trials in training.

        With many workers, most of a small budget would otherwise be spent before any result. In the
        first phase, losses at the first rung decide which further candidates are proposed.
        """
        is_startup = action is START_TRIAL and len(started) < self.n_startup_trials
        if action is None or is_startup or self.max_in_training >= 1:
            return True
        training = [trial for trial in started if is_in_training(trial)]
        if is_first_phase and action is START_TRIAL:  # counts like a full-budget run
            return len(training) < max(N_FIRST_IN_TRAINING, self.max_in_training * budget_left)
        in_training = sum(self.rungs.budget_to_rung(len(rung_losses(trial))) for trial in training)
        rung = 0 if isinstance(action, StartTrial) else len(rung_losses(action))
        limit = max(MIN_IN_TRAINING, self.max_in_training * (budget_left + in_training))
        return in_training + self.rungs.budget_to_rung(rung) <= limit + 1e-9

    def _total_budget(self, started: Sequence[FrozenTrial], budget_left: float) -> float:
        """Return the budget of the search: what is left and what its trials have used."""
        levels = [len(rung_losses(trial)) - (not is_in_training(trial)) for trial in started]
        return budget_left + sum(self.rungs.shares[min(level, self.rungs.n_pauses)]
                                 for level in levels if level >= 0)

    def _n_first_complete(self, started: Sequence[FrozenTrial], budget_left: float) -> int:
        """Return how many trials of the first phase are trained to the end."""
        budget = self._total_budget(started, budget_left) + 1e-9
        budget_to_end = 1 - self.rungs.shares[0]
        return max(1, min(int(FIRST_COMPLETE_SHARE * budget / budget_to_end), MIN_TRIALS),
                   min(int(budget / 2 / budget_to_end), N_FIRST_COMPLETE))

    def _first_action(self, started: Sequence[FrozenTrial], budget_left: float, exhausted: bool,
                      n_complete: int) -> FrozenTrial | StartTrial | None:
        """Return the next action before ``n_complete`` trials are trained to the end.

        Many trials are trained to the first rung, for at most half of the budget. A few of them are
        then trained to the end.
        """
        first_share = self.rungs.shares[0]
        promoted = [trial for trial in started if is_promoted(trial)]
        for trial in promoted:
            if is_paused(trial) and self._budget_to_end(trial) <= budget_left + 1e-9:
                return trial
        # Trials in training are trained to the end.
        left = budget_left - sum(
            1 - self.rungs.shares[min(len(rung_losses(trial)), self.rungs.n_pauses)]
            for trial in promoted if is_in_training(trial))
        # References that were complete before the search have no losses at rungs.
        n_started = sum(len(rung_losses(trial)) > 0 or not is_complete(trial) for trial in started)
        reserved = max(0, n_complete - len(promoted)) * (1 - first_share)
        half = self._total_budget(started, budget_left) / 2
        if (not exhausted and n_started < N_FIRST_STARTED
                and (n_started + 1) * first_share <= half + 1e-9
                and left - first_share >= max(reserved, 1 - first_share) - 1e-9):
            return START_TRIAL
        finishable = [trial for trial in started
                      if is_paused(trial) and self._budget_to_end(trial) <= left + 1e-9]
        if finishable and len(promoted) < max(n_complete, MIN_TRIALS):
            return select_first_promotion(finishable, promoted, self.objectives, n_complete,
                                          left - reserved < 1 - 1e-9)
        return self._action_by_rank(started, budget_left, exhausted)

    def _best_action(self, started: Sequence[FrozenTrial], values: AcquisitionValues,
                     budget_left: float, exhausted: bool) -> FrozenTrial | StartTrial | None:
        """Return the action with the largest acquisition value that can be trained to the end.

        Ranks at a rung have no effect except through the predicted final values: large models are
        often behind at a rung and ahead at the end.
        """
        budget_left -= self._reserved_budget(started)
        finishable = [trial for trial in started
                      if is_paused(trial) and trial.number in values.paused
                      and self._budget_to_end(trial) <= budget_left + 1e-9]
        best = max(finishable, key=lambda trial: values.paused[trial.number], default=None)
        affordable = budget_left >= 1 - 1e-9 and not exhausted
        if best is None or (affordable and values.new > values.paused[best.number]):
            return START_TRIAL if affordable else None
        return best

    def _action_by_rank(self, started: Sequence[FrozenTrial], budget_left: float, exhausted: bool
                        ) -> FrozenTrial | StartTrial | None:
        """Return the next action of multi-objective ASHA."""
        budget_left -= self._reserved_budget(started)
        promotable = find_promotable(started, self.rungs, self.objectives)
        if promotable is not None and self._budget_to_end(promotable) <= budget_left + 1e-9:
            return promotable
        paused = [trial for trial in started if is_paused(trial)]
        # A new trial is only started if it, or a paused one, can still be trained to the end.
        budgets_to_end = [1.0 - self.rungs.shares[0] if self.rungs.n_pauses else 0.0,
                          *map(self._budget_to_end, paused)]
        # Reserve budget for the trials at the last rung before the end.
        reserved = (max(1.0 - self.rungs.shares[-2], 0.5) * min(len(paused), 2)
                    if self.rungs.n_pauses else 0.0)
        affordable = (budget_left > reserved + 1e-9 and
                      self.rungs.budget_to_rung(0) + min(budgets_to_end) <= budget_left + 1e-9)
        if affordable and not exhausted:
            return START_TRIAL
        return self._best_finishable(started, paused, budget_left)

    def _reserved_budget(self, started: Sequence[FrozenTrial]) -> float:
        """Return the expected budget of trials in training after the rung that they train to.

        Without it, all workers would start new trials, and none would be finished.
        """
        budget = 0.0
        for trial in started:
            if is_in_training(trial):
                rung = len(rung_losses(trial))
                budget += sum(self.rungs.budget_to_rung(level) / self.rungs.eta ** (level - rung)
                              for level in range(rung + 1, len(self.rungs.shares)))
        return budget

    def _budget_to_end(self, trial: FrozenTrial) -> float:
        """Return the budget to train a paused trial to the end."""
        return 1.0 - self.rungs.shares[len(rung_losses(trial)) - 1]

    def _best_finishable(self, trials: Sequence[FrozenTrial], paused: Sequence[FrozenTrial],
                         budget_left: float) -> FrozenTrial | None:
        """Return the paused trial that most likely joins the front and can be finished.

        Predictions may be based on an earlier rung than the one where a trial is paused, or be
        equal for all trials. Trials that are dominated at their rung are therefore excluded first.
        """
        finishable = [trial for trial in non_dominated(paused, self.objectives)
                      if self._budget_to_end(trial) <= budget_left + 1e-9]
        if not finishable:
            return None
        values = predict_final_values(trials, self.objectives)
        complete = [trial for trial in trials if is_complete(trial) and trial.number in values]
        rows = [values[trial.number] for trial in (*finishable, *complete)]
        signs = [objective.sign for objective in self.objectives]
        order = order_by_spread(np.array(rows, float) * signs, len(rows))
        return finishable[next(index for index in order if index < len(finishable))]
