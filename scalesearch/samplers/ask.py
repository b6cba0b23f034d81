"""What is known at the moment when a trial asks for its parameters."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

from scalesearch.pareto.objective import Objective
from scalesearch.samplers.history import (
    ARCHITECTURE,
    exact_values,
    is_complete,
    is_in_training,
    is_infeasible,
    predict_final_values,
)
from scalesearch.samplers.known import Knowledge, Known
from scalesearch.samplers.sheet import Define, Key, Sheet, key_of

if TYPE_CHECKING:
    from scalesearch.samplers.bulk import Bulk


@dataclass(frozen=True)
class Summary:
    """What decides whether another trial is like this one.

    Attributes:
        key: of its sheet.
        identity: of what it describes; "" where it has not asked for parameters yet.
        rejected: whether it missed a constraint and was not run for that.
    """

    key: Key
    identity: str
    rejected: bool


class Summaries:
    """Summaries of trials, each made once after its trial has ended: all are read for every proposal."""

    def __init__(self, known: Knowledge) -> None:
        self.known = known
        self._made: dict[int, tuple[FrozenTrial, Summary]] = {}  # by object, which a storage never changes again

    def __call__(self, trial: FrozenTrial) -> Summary:
        made = self._made.get(id(trial))
        if made is not None and made[0] is trial:
            return made[1]
        identity = trial.user_attrs.get(ARCHITECTURE) or (self.known.identity(trial.params) if trial.params else "")
        if not identity and is_complete(trial):  # from outside the space
            identity = f"trial {trial.number}"
        summary = Summary(key_of(trial.params), identity, is_infeasible(trial) and not is_complete(trial))
        if trial.state.is_finished():
            self._made[id(trial)] = trial, summary
        return summary


class Ask:
    """One request for parameters, by trial ``number``, and all other ``trials``.

    Args:
        define: what the trial has to be told.
        summaries: of trials, with what is known of sheets before they run.
        objectives: in the study's order; None: read from ``study``, which is needed for nothing else.
        rng: of this proposal.
    """

    def __init__(self, number: int, trials: Sequence[FrozenTrial], define: Define, summaries: Summaries,
                 objectives: Sequence[Objective] | None, study: Study | None, rng: random.Random) -> None:
        self.number, self.trials, self.define, self.rng = number, trials, define, rng
        self.known, self._summaries = summaries.known, [summaries(trial) for trial in trials]
        self.objectives = _objectives(study, trials, self.known) if objectives is None else tuple(objectives)

    @property
    def last_is_rejected(self) -> bool:
        """Whether the latest trial missed a constraint and was not run."""
        return bool(self._summaries) and self._summaries[-1].rejected

    @cached_property
    def values(self) -> dict[int, list[float]]:
        """Trial number to values, predicted ones for the paused."""
        return predict_final_values(self.trials, self.objectives, self.exact)

    @cached_property
    def learned(self) -> list[FrozenTrial]:
        """Trials that have values and parameters."""
        return [trial for trial in self.trials if trial.number in self.values and trial.params]

    @cached_property
    def in_training(self) -> list[FrozenTrial]:
        """Trials that are being trained."""
        return [trial for trial in self.trials if is_in_training(trial) and trial.params]

    @cached_property
    def keys(self) -> Collection[Key]:
        """The sheets of all trials."""
        return {summary.key for summary in self._summaries if summary.key}

    @cached_property
    def identities(self) -> Collection[str]:
        """What the trials that were not rejected described."""
        return {summary.identity for summary in self._summaries if summary.identity and not summary.rejected}

    @cached_property
    def repeated(self) -> list[bool]:
        """Of each trial, whether it had been seen before, as a sheet or as what it describes."""
        keys: set[Key] = set()
        identities: set[str] = set()
        repeated = []
        for its in self._summaries:
            repeated.append((its.key in keys and its.key != "") or (its.identity in identities and its.identity != ""))
            keys.add(its.key)
            if not its.rejected:
                identities.add(its.identity)
        return repeated

    @property
    def repeats(self) -> int:
        """Among the trials since the last one that was new and not rejected, those that had been seen before."""
        count = 0
        for its, repeated in zip(reversed(self._summaries), reversed(self.repeated)):
            if its.identity and not repeated and not its.rejected:
                break
            count += repeated
        return count

    def billed(self, bulk: Bulk, parent: FrozenTrial, count: int, rng: np.random.Generator) -> list[Sheet]:
        """Feasible sheets near ``parent``, see :meth:`Bulk.around`; what they cost is known from then on."""
        exact = [one.name for one in self.objectives if not one.measured]
        sheets = []
        for sheet, costs in bulk.around(parent, exact, count, rng):
            told = dict(zip(exact, costs))
            self.known.billed(sheet, Known([told.get(one.name) for one in self.objectives]))
            sheets.append(sheet)
        return sheets

    def exact(self, trial: FrozenTrial, objectives: Sequence[Objective]) -> Mapping[str, float]:
        """Objective to exact value, as noted or as known."""
        noted = exact_values(trial, objectives)
        if not trial.params or all(objective.measured or objective.name in noted for objective in objectives):
            return noted
        values = self.known(trial.params).values
        return {one.name: value for one, value in zip(objectives, values) if value is not None} | dict(noted)


def _objectives(study: Study | None, trials: Sequence[FrozenTrial], known: Knowledge) -> tuple[Objective, ...]:
    """The axes of ``study``; one is measured unless ``known`` tells it of the first sheet that can be built."""
    assert study is not None, "somebody has to say what is searched for"
    names = study.metric_names or [f"objective {at}" for at in range(len(study.directions))]
    found = (known(trial.params) for trial in trials if trial.params)
    exact = next((one.values for one in found if one.buildable and one.values), [None] * len(names))
    return tuple(Objective(name, "max" if direction == StudyDirection.MAXIMIZE else "min", value is None)
                 for name, direction, value in zip(names, study.directions, exact))
