"""What a free worker does next: train a paused trial on, or start a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from scalesearch.pareto.objective import Objective
from scalesearch.samplers.history import is_complete, is_infeasible, is_paused, rungs_of
from scalesearch.samplers.predict import predict_final_values
from scalesearch.schedule.rungs import Rungs, promotable, spread

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


class New:
    """The decision to start a new trial."""


NEW: Final = New()


class Scheduler:
    """Decides from the trials alone.

    Args:
        rungs: where training pauses; a single rung is full training of everyone.
        objectives: of the study.
    """

    def __init__(self, rungs: Rungs, objectives: Sequence[Objective]) -> None:
        self.rungs, self.objectives = rungs, tuple(objectives)

    def next(self, trials: Sequence[FrozenTrial], left: float, exhausted: bool = False) -> FrozenTrial | New | None:
        """What to do with ``left`` full trainings' worth of compute; None where there is nothing left to do.

        The last compute goes to those that are likely to stand on the front, since only a trial that was trained to the
        end can.

        Args:
            trials: all of the study, those from outside its space included.
            exhausted: whether there is nothing new to start.
        """
        begun = [trial for trial in trials if not is_infeasible(trial)]
        chosen = promotable(begun, self.rungs, self.objectives)
        if chosen is not None and self._to_end(chosen) <= left + 1e-9:
            return chosen
        paused = [trial for trial in begun if is_paused(trial)]
        # Somebody must come to the end: the new one, or one that waits.
        ends = [1.0 - self.rungs.shares[0] if self.rungs.pauses else 0.0, *map(self._to_end, paused)]
        affordable = left > self._reserve(paused) + 1e-9 and self.rungs.step(0) + min(ends) <= left + 1e-9
        return NEW if affordable and not exhausted else self._last_call(begun, paused, left)

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
        """The paused trial that is most likely to join the front and can still be trained to the end."""
        values = predict_final_values(trials, self.objectives)
        able = [trial for trial in paused if trial.number in values and self._to_end(trial) <= left + 1e-9]
        return able[self._best(trials, able, values)] if able else None

    def _best(self, trials: Sequence[FrozenTrial], able: Sequence[FrozenTrial],
              values: Mapping[int, Sequence[float]]) -> int:
        import numpy as np

        ended = [trial for trial in trials if is_complete(trial) and trial.number in values]
        rows = [values[trial.number] for trial in (*able, *ended)]
        order = spread(np.array(rows, float) * [one.sign for one in self.objectives], len(rows))
        return next(place for place in order if place < len(able))
