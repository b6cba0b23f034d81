"""What a free worker does next: train a paused trial on (successive halving for several objectives), or start one.

Asynchronous, as ASHA is (Li et al. 2020): no trial waits for a rung to fill up. But a rung's best are not those of the
best score: promoting by score alone leaves the large. They are taken from front after front of (loss, costs), and
within a front so that they lie far apart (an epsilon-net, Salinas et al. 2021): the small stay alive.
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
from scalesearch.samplers.history import (
    UNIT,
    exact_values,
    is_complete,
    is_in_training,
    is_infeasible,
    is_paused,
    log_loss,
    predict_final_values,
    rungs_of,
)

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from scalesearch.samplers.hypervolume_gp import Worth

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
            raise UserError(f"rungs: shares of a full training grow from above 0 to 1, unlike {list(self.shares)}",
                            code="bad-rungs")
        if self.eta < 2:
            raise UserError(f"rungs: eta is at least 2, not {self.eta}; one in eta goes on", code="bad-rungs")

    @classmethod
    def geometric(cls, first: float = 1 / 9, eta: int = 2, spacing: float = 3) -> Rungs:
        """From ``first`` on each rung ``spacing`` times the one before, and 1.

        The defaults train half of each rung three times as long. A spacing of eta, as in successive halving, stops too
        many of those whose early losses mislead: measured on tables of trained Transformers, see docs/benchmarks.md.

        Raises:
            UserError: the first share is not above 0 and at most 1, the spacing not above 1, or eta below 2.
        """
        if not 0 < first <= 1:
            raise UserError(f"rungs: the first is a share of a full training, above 0 and at most 1, not {first}",
                            code="bad-rungs")
        if not spacing > 1:
            raise UserError(f"rungs: each is more than once the one before, not {spacing} times", code="bad-rungs")
        # One just below the end would save nothing, unless it is the first, which was asked for.
        count = max(math.floor(math.log(1 / first, spacing) + 0.5), int(first < 1))
        return cls((*[first * spacing**rung for rung in range(count)], 1.0), eta)

    @property
    def pauses(self) -> int:
        """Rungs before the end."""
        return len(self.shares) - 1

    def step(self, rung: int) -> float:
        """The share of a full training from the rung before to ``rung``."""
        return self.shares[rung] - (self.shares[rung - 1] if rung else 0.0)


FULL = Rungs()  # no pause: everyone is trained to the end


def promotable(trials: Sequence[FrozenTrial], rungs: Rungs, objectives: Sequence[Objective]) -> FrozenTrial | None:
    """The paused trial that is to be trained on, highest rung first; None where none has earned it yet."""
    for rung in reversed(range(rungs.pauses)):
        there = [trial for trial in trials if len(rungs_of(trial)) > rung]
        due = len(there) // rungs.eta
        gone = sum(len(rungs_of(trial)) > rung + 1 or not is_paused(trial) for trial in there)
        if gone < due:
            chosen = [there[at] for at in spread(points_at(there, rung, objectives), due)]
            waiting = [trial for trial in chosen if is_paused(trial) and len(rungs_of(trial)) == rung + 1]
            if waiting:
                return waiting[0]
    return None


def points_at(trials: Sequence[FrozenTrial], rung: int, objectives: Sequence[Objective]) -> Points:
    """(trials, 1 + costs) losses: the log of the loss at ``rung``, and of the objectives that are known exactly."""
    costs = [objective for objective in objectives if not objective.measured]
    rows = [(log_loss(trial, rung), exact_values(trial, objectives)) for trial in trials]
    return np.array([[loss, *(_log(exact[one.name]) * one.sign for one in costs)] for loss, exact in rows], float)


def undominated(paused: Sequence[FrozenTrial], objectives: Sequence[Objective]) -> list[FrozenTrial]:
    """The ``paused`` trials that none at the same rung dominates in (loss, costs), losses being of one unit."""
    found: list[FrozenTrial] = []
    places = [(len(rungs_of(trial)) - 1, trial.user_attrs.get(UNIT)) for trial in paused]
    for rung, unit in dict.fromkeys(places):
        there = [trial for trial, place in zip(paused, places) if place == (rung, unit)]
        points = points_at(there, rung, objectives)
        found += compress(there, pareto_front(points, ["min"] * points.shape[1]))
    return found


def _log(value: float) -> float:
    return math.log(max(value, 1e-12))


def spread(points: Points, count: int) -> list[int]:
    """Places of ``count`` points, smaller being better: front after front, and in a front each next the farthest one.

    The first of a front is its lowest loss (column 0). Distances are in units of each column's range.
    """
    if not len(points):
        return []
    span = np.ptp(points, axis=0)
    scaled = (points - points.min(0)) / np.where(span > 0, span, 1)
    rank = pareto_ranks(points, ["min"] * points.shape[1])
    found: list[int] = []
    for level in range(int(rank.max()) + 1):
        found += _far_apart(scaled, np.flatnonzero(rank == level), found)
        if len(found) >= count:
            break
    return found[:count]


def _far_apart(points: Points, members: NDArray[np.intp], taken: Sequence[int]) -> list[int]:
    """``members`` in the order in which each is the farthest from all before it, those ``taken`` included."""
    order = [] if taken else [int(members[points[members, 0].argmin()])]
    left = np.setdiff1d(members, order)
    apart = np.linalg.norm(points[left][:, None] - points[[*taken, *order]][None], axis=2).min(1)
    for _ in left:
        at = int(apart.argmax())
        order.append(int(left[at]))
        apart = np.minimum(apart, np.linalg.norm(points[left] - points[left[at]], axis=1))
        apart[at] = -1.0  # of none that is left
    return order


class New:
    """The decision to start a new trial."""


NEW: Final = New()


class Scheduler:
    """Decides from the trials alone.

    Args:
        rungs: where training pauses; a single rung is full training of everyone.
        objectives: of the study.
        worth: says of all trials what a new one and the paused are worth, once enough is known; see
            :meth:`scalesearch.samplers.hypervolume_gp.HypervolumeGP.worth`.
    """

    def __init__(self, rungs: Rungs, objectives: Sequence[Objective],
                 worth: Callable[[Sequence[FrozenTrial]], Worth | None] | None = None) -> None:
        self.rungs, self.objectives, self.worth = rungs, tuple(objectives), worth

    def next(self, trials: Sequence[FrozenTrial], left: float, exhausted: bool = False) -> FrozenTrial | New | None:
        """What to do with ``left`` full trainings' worth of compute; None where there is nothing left to do.

        The last compute goes to those that are likely to stand on the front, since only a trial that was trained to the
        end can.

        Args:
            trials: all of the study, those from outside its space included.
            exhausted: whether there is nothing new to start.
        """
        begun = [trial for trial in trials if not is_infeasible(trial)]
        left -= sum(self._ahead(len(rungs_of(trial))) for trial in begun if is_in_training(trial))
        worth = self.worth(trials) if self.worth and self.rungs.pauses else None
        if worth is not None:
            return self._worthiest(begun, worth, left, exhausted)
        chosen = promotable(begun, self.rungs, self.objectives)
        if chosen is not None and self._to_end(chosen) <= left + 1e-9:
            return chosen
        paused = [trial for trial in begun if is_paused(trial)]
        # Somebody must come to the end: the new one, or one that waits.
        ends = [1.0 - self.rungs.shares[0] if self.rungs.pauses else 0.0, *map(self._to_end, paused)]
        affordable = left > self._reserve(paused) + 1e-9 and self.rungs.step(0) + min(ends) <= left + 1e-9
        return NEW if affordable and not exhausted else self._last_call(begun, paused, left)

    def _worthiest(self, begun: Sequence[FrozenTrial], worth: Worth, left: float, exhausted: bool
                   ) -> FrozenTrial | New | None:
        """What brings most for its compute, among what can still be trained to its end.

        That a smaller trial is ahead at a rung counts for what the forecast makes of it, no more: large models are
        behind there, and ahead at the end.
        """
        able = [trial for trial in begun if is_paused(trial) and trial.number in worth.paused
                and self._to_end(trial) <= left + 1e-9]
        best = max(able, key=lambda trial: worth.paused[trial.number], default=None)
        affordable = left >= 1 - 1e-9 and not exhausted
        if best is None or (affordable and worth.new > worth.paused[best.number]):
            return NEW if affordable else None
        return best

    def _ahead(self, rung: int) -> float:
        """Full trainings' worth that a trial on its way to ``rung`` is expected to take from there on.

        Without it, as many workers as there is compute for would all begin, and none would come to its end.
        """
        later = range(rung + 1, len(self.rungs.shares))
        return sum(self.rungs.step(level) / self.rungs.eta ** (level - rung) for level in later)

    def _to_end(self, trial: FrozenTrial) -> float:
        """Full trainings' worth of compute until a paused trial has come to its end."""
        return 1.0 - self.rungs.shares[len(rungs_of(trial)) - 1]

    def _reserve(self, paused: Sequence[FrozenTrial]) -> float:
        """Full trainings that are kept for those that wait at the last rung before the end."""
        if not self.rungs.pauses:
            return 0.0
        return max(1.0 - self.rungs.shares[-2], 0.5) * min(len(paused), 2)

    def _last_call(self, trials: Sequence[FrozenTrial], paused: Sequence[FrozenTrial], left: float
                   ) -> FrozenTrial | None:
        """The paused trial that is most likely to join the front and can still be trained to the end.

        A prediction may rest on an earlier rung than the one where a trial waits, or be the same for all. So those that
        another dominates where they wait are left out first.
        """
        able = [trial for trial in undominated(paused, self.objectives) if self._to_end(trial) <= left + 1e-9]
        return able[self._best(trials, able, predict_final_values(trials, self.objectives))] if able else None

    def _best(self, trials: Sequence[FrozenTrial], able: Sequence[FrozenTrial],
              values: Mapping[int, Sequence[float]]) -> int:
        ended = [trial for trial in trials if is_complete(trial) and trial.number in values]
        rows = [values[trial.number] for trial in (*able, *ended)]
        order = spread(np.array(rows, float) * [one.sign for one in self.objectives], len(rows))
        return next(place for place in order if place < len(able))
