"""What a free worker does next: train a paused trial on (successive halving for several objectives), or start one.

Asynchronous, as ASHA is (Li et al. 2020): no trial waits for a rung to fill up. But a rung's best
are not those of the best score: promoting by score alone leaves the large. They are taken from
front after front of (loss, costs), and within a front so that they lie far apart (an epsilon-net,
Salinas et al. 2021): the small stay alive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from scalesearch.errors import UserError
from scalesearch.pareto.front import pareto_front, pareto_ranks
from scalesearch.pareto.objective import Objective
from scalesearch.samplers.trial_history import (
    LOSS_UNIT,
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


@dataclass(frozen=True)
class Rungs:
    """Where training pauses: shares of a full training, the last one 1; of each rung one in ``eta`` goes on.

    Raises:
        UserError: shares that do not grow to 1, or an eta below 2.
    """

    shares: tuple[float, ...] = (1.0,)
    eta: int = 2

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip((0.0, *self.shares), self.shares))
        if not rising or self.shares[-1] != 1:
            raise UserError("rungs: shares of a full training grow from above 0 to 1, unlike "
                            f"{list(self.shares)}", code="bad-rungs")
        if self.eta < 2:
            raise UserError(f"rungs: eta is at least 2, not {self.eta}; one in eta goes on",
                            code="bad-rungs")

    @classmethod
    def geometric(cls, first: float = 1 / 9, eta: int = 2, spacing: float = 3) -> Rungs:
        """From ``first`` on each rung ``spacing`` times the one before, and 1.

        The defaults train half of each rung three times as long. A spacing of eta, as in successive
        halving, stops too many of those whose early losses mislead: measured on tables of trained
        Transformers, see docs/benchmarks.md.

        Raises:
            UserError: the first share is not above 0 and at most 1, the spacing not above 1, or eta
                below 2.
        """
        if not 0 < first <= 1:
            raise UserError("rungs: the first is a share of a full training, above 0 and at most "
                            f"1, not {first}", code="bad-rungs")
        if not spacing > 1:
            raise UserError(f"rungs: each is more than once the one before, not {spacing} times",
                            code="bad-rungs")
        # One just below the end would save nothing, unless it is the first, which was asked for.
        count = max(math.floor(math.log(1 / first, spacing) + 0.5), int(first < 1))
        return cls((*[first * spacing**rung for rung in range(count)], 1.0), eta)

    @property
    def n_pauses(self) -> int:
        """Rungs before the end."""
        return len(self.shares) - 1

    def budget_to_rung(self, rung: int) -> float:
        """The share of a full training from the rung before to ``rung``."""
        return self.shares[rung] - (self.shares[rung - 1] if rung else 0.0)


NO_RUNGS = Rungs()  # no pause: everyone is trained to the end


def find_promotable(trials: Sequence[FrozenTrial], rungs: Rungs,
                    objectives: Sequence[Objective]) -> FrozenTrial | None:
    """The paused trial that is to be trained on, highest rung first; None where none has earned it yet."""
    for rung in reversed(range(rungs.n_pauses)):
        there = [trial for trial in trials if len(rung_losses(trial)) > rung]
        due = len(there) // rungs.eta
        gone = sum(len(rung_losses(trial)) > rung + 1 or not is_paused(trial) for trial in there)
        if gone < due:
            chosen = [there[at]
                      for at in order_by_spread(losses_at_rung(there, rung, objectives), due)]
            waiting = [trial
                       for trial in chosen
                       if is_paused(trial) and len(rung_losses(trial)) == rung + 1]
            if waiting:
                return waiting[0]
    return None


def losses_at_rung(trials: Sequence[FrozenTrial], rung: int,
                   objectives: Sequence[Objective]) -> Points:
    """(trials, 1 + costs) losses: the log of the loss at ``rung``, and of the objectives that are known exactly."""
    costs = [objective for objective in objectives if not objective.is_measured]
    rows = [(log_loss(trial, rung), exact_values(trial, objectives)) for trial in trials]
    return np.array([[loss, *(_log(exact[one.name]) * one.sign for one in costs)]
                     for loss, exact in rows], float)


def non_dominated(paused: Sequence[FrozenTrial],
                  objectives: Sequence[Objective]) -> list[FrozenTrial]:
    """The ``paused`` trials that none at the same rung dominates in (loss, costs), losses being of one unit."""
    found: list[FrozenTrial] = []
    places = [(len(rung_losses(trial)) - 1, trial.user_attrs.get(LOSS_UNIT)) for trial in paused]
    for rung, unit in dict.fromkeys(places):
        there = [trial for trial, place in zip(paused, places) if place == (rung, unit)]
        points = losses_at_rung(there, rung, objectives)
        found += compress(there, pareto_front(points, ["min"] * points.shape[1]))
    return found


def _log(value: float) -> float:
    return math.log(max(value, 1e-12))


def order_by_spread(points: Points, count: int) -> list[int]:
    """Places of ``count`` points, smaller being better: front after front, and in a front each next the farthest one.

    The first of a front is its lowest loss (column 0). Distances are in units of each column's
    range.
    """
    if not len(points):
        return []
    span = np.ptp(points, axis=0)
    scaled = (points - points.min(0)) / np.where(span > 0, span, 1)
    rank = pareto_ranks(points, ["min"] * points.shape[1])
    found: list[int] = []
    for level in range(int(rank.max()) + 1):
        found += _farthest_point_order(scaled, np.flatnonzero(rank == level), found)
        if len(found) >= count:
            break
    return found[:count]


def _farthest_point_order(points: Points, members: NDArray[np.intp],
                          selected: Sequence[int]) -> list[int]:
    """``members`` in the order in which each is the farthest from all before it, those ``selected`` included."""
    order = [] if selected else [int(members[points[members, 0].argmin()])]
    left = np.setdiff1d(members, order)
    apart = np.linalg.norm(points[left][:, None] - points[[*selected, *order]][None], axis=2).min(1)
    for _ in left:
        at = int(apart.argmax())
        order.append(int(left[at]))
        apart = np.minimum(apart, np.linalg.norm(points[left] - points[left[at]], axis=1))
        apart[at] = -1.0  # of none that is left
    return order


class StartTrial:
    """The decision to start a new trial."""


START_TRIAL: Final = StartTrial()


class Scheduler:
    """Decides from the trials alone.

    Args:
        rungs: where training pauses; a single rung is full training of everyone.
        objectives: of the study.
        acquisition_values: says of all trials what a new one and the paused are worth, once enough
            is known; see
            :meth:`scalesearch.samplers.hypervolume_gp.HypervolumeGP.acquisition_values`.
    """

    def __init__(self, rungs: Rungs, objectives: Sequence[Objective],
                 acquisition_values: Callable[[Sequence[FrozenTrial]], AcquisitionValues | None]
                 | None = None) -> None:
        self.rungs = rungs
        self.objectives = tuple(objectives)
        self.worth = acquisition_values

    def next_action(self, trials: Sequence[FrozenTrial], budget_left: float, exhausted: bool = False
                    ) -> FrozenTrial | StartTrial | None:
        """What to do with ``budget_left`` full trainings' worth of compute; None where there is nothing left to do.

        The last compute goes to those that are likely to stand on the front, since only a trial
        that was trained to the end can.

        Args:
            trials: all of the study, those from outside its space included.
            exhausted: whether there is nothing new to start.
        """
        begun = [trial for trial in trials if not is_infeasible(trial)]
        budget_left -= sum(self._expected_budget_from(len(rung_losses(trial)))
                           for trial in begun if is_in_training(trial))
        worth = self.worth(trials) if self.worth and self.rungs.n_pauses else None
        if worth is not None:
            return self._best_by_acquisition(begun, worth, budget_left, exhausted)
        chosen = find_promotable(begun, self.rungs, self.objectives)
        if chosen is not None and self._budget_to_end(chosen) <= budget_left + 1e-9:
            return chosen
        paused = [trial for trial in begun if is_paused(trial)]
        # Somebody must come to the end: the new one, or one that waits.
        ends = [1.0 - self.rungs.shares[0] if self.rungs.n_pauses else 0.0,
                *map(self._budget_to_end, paused)]
        affordable = (budget_left > self._reserved_budget(paused) + 1e-9
                      and self.rungs.budget_to_rung(0) + min(ends) <= budget_left + 1e-9)
        return START_TRIAL if affordable and not exhausted else self._best_finishable(
            begun, paused, budget_left)

    def _best_by_acquisition(self, started: Sequence[FrozenTrial],
                             acquisition_values: AcquisitionValues, budget_left: float,
                             exhausted: bool) -> FrozenTrial | StartTrial | None:
        """What brings most for its compute, among what can still be trained to its end.

        That a smaller trial is ahead at a rung counts for what the forecast makes of it, no more:
        large models are behind there, and ahead at the end.
        """
        able = [trial
                for trial in started
                if is_paused(trial) and trial.number in acquisition_values.paused
                and self._budget_to_end(trial) <= budget_left + 1e-9]
        best = max(able, key=lambda trial: acquisition_values.paused[trial.number], default=None)
        affordable = budget_left >= 1 - 1e-9 and not exhausted
        if best is None or (affordable
                            and acquisition_values.new > acquisition_values.paused[best.number]):
            return START_TRIAL if affordable else None
        return best

    def _expected_budget_from(self, rung: int) -> float:
        """Full trainings' worth that a trial on its way to ``rung`` is expected to take from there on.

        Without it, as many workers as there is compute for would all begin, and none would come to
        its end.
        """
        later = range(rung + 1, len(self.rungs.shares))
        return sum(self.rungs.budget_to_rung(level) / self.rungs.eta ** (level - rung)
                   for level in later)

    def _budget_to_end(self, trial: FrozenTrial) -> float:
        """Full trainings' worth of compute until a paused trial has come to its end."""
        return 1.0 - self.rungs.shares[len(rung_losses(trial)) - 1]

    def _reserved_budget(self, paused: Sequence[FrozenTrial]) -> float:
        """Full trainings that are kept for those that wait at the last rung before the end."""
        if not self.rungs.n_pauses:
            return 0.0
        return max(1.0 - self.rungs.shares[-2], 0.5) * min(len(paused), 2)

    def _best_finishable(self, trials: Sequence[FrozenTrial], paused: Sequence[FrozenTrial],
                         budget_left: float) -> FrozenTrial | None:
        """The paused trial that is most likely to join the front and can still be trained to the end.

        A prediction may rest on an earlier rung than the one where a trial waits, or be the same
        for all. So those that another dominates where they wait are left out first.
        """
        able = [trial for trial in non_dominated(paused, self.objectives)
                if self._budget_to_end(trial) <= budget_left + 1e-9]
        return able[self._best(trials, able,
                               predict_final_values(trials, self.objectives))] if able else None

    def _best(self, trials: Sequence[FrozenTrial], finishable: Sequence[FrozenTrial],
              values: Mapping[int, Sequence[float]]) -> int:
        ended = [trial for trial in trials if is_complete(trial) and trial.number in values]
        rows = [values[trial.number] for trial in (*finishable, *ended)]
        order = order_by_spread(np.array(rows, float) * [one.sign for one in self.objectives],
                                len(rows))
        return next(place for place in order if place < len(finishable))
