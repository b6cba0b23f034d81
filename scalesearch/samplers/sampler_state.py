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
from scalesearch.samplers.candidate import Candidate, CandidateKey, DefineByRun, candidate_key
from scalesearch.samplers.candidate_facts import CandidateFacts, FactsCache
from scalesearch.samplers.trial_history import (
    ARCHITECTURE,
    exact_values,
    is_complete,
    is_in_training,
    is_infeasible,
    predict_final_values,
)

if TYPE_CHECKING:
    from scalesearch.samplers.neighbor_batch import NeighborBatchSampler


@dataclass(frozen=True)
class TrialSummary:
    """What decides whether another trial is like this one.

    Attributes:
        key: of its sheet.
        identity: of what it describes; "" where it has not asked for parameters yet.
        is_rejected: whether it missed a constraint and was not run for that.
    """

    key: CandidateKey
    identity: str
    is_rejected: bool


class TrialSummaryCache:
    """Summaries of trials, each made once after its trial has ended: all are read for every proposal."""

    def __init__(self, facts: FactsCache) -> None:
        self.facts = facts
        # by object, which a storage never changes again
        self._cache: dict[int, tuple[FrozenTrial, TrialSummary]] = {}

    def __call__(self, trial: FrozenTrial) -> TrialSummary:
        made = self._cache.get(id(trial))
        if made is not None and made[0] is trial:
            return made[1]
        identity = trial.user_attrs.get(ARCHITECTURE) or (
            self.facts.identity(trial.params) if trial.params else "")
        if not identity and is_complete(trial):  # from outside the space
            identity = f"trial {trial.number}"
        summary = TrialSummary(candidate_key(trial.params), identity,
                               is_infeasible(trial) and not is_complete(trial))
        if trial.state.is_finished():
            self._cache[id(trial)] = trial, summary
        return summary


class SamplerState:
    """One request for parameters, by trial ``number``, and all other ``trials``.

    Args:
        define: what the trial has to be told.
        summaries: of trials, with what is known of sheets before they run.
        objectives: in the study's order; None: read from ``study``, which is needed for nothing
            else.
        rng: of this proposal.
    """

    def __init__(self, number: int, trials: Sequence[FrozenTrial], define: DefineByRun,
                 summaries: TrialSummaryCache, objectives: Sequence[Objective] | None,
                 study: Study | None, rng: random.Random) -> None:
        self.number = number
        self.trials = trials
        self.define = define
        self.rng = rng
        self.facts = summaries.facts
        self._summaries = [summaries(trial) for trial in trials]
        self.objectives = _objectives(study, trials,
                                      self.facts) if objectives is None else tuple(objectives)

    @property
    def last_is_rejected(self) -> bool:
        """Whether the latest trial missed a constraint and was not run."""
        return bool(self._summaries) and self._summaries[-1].is_rejected

    @cached_property
    def predicted_values(self) -> dict[int, list[float]]:
        """Trial number to values, predicted ones for the paused."""
        return predict_final_values(self.trials, self.objectives, self.exact_values)

    @cached_property
    def observed_trials(self) -> list[FrozenTrial]:
        """Trials that have values and parameters."""
        return [trial
                for trial in self.trials if trial.number in self.predicted_values and trial.params]

    @cached_property
    def running_trials(self) -> list[FrozenTrial]:
        """Trials that are being trained."""
        return [trial for trial in self.trials if is_in_training(trial) and trial.params]

    @cached_property
    def candidate_keys(self) -> Collection[CandidateKey]:
        """The sheets of all trials."""
        return {summary.key for summary in self._summaries if summary.key}

    @cached_property
    def identities(self) -> Collection[str]:
        """What the trials that were not rejected described."""
        return {summary.identity
                for summary in self._summaries if summary.identity and not summary.is_rejected}

    @cached_property
    def is_repeated(self) -> list[bool]:
        """Of each trial, whether it had been seen before, as a sheet or as what it describes."""
        keys: set[CandidateKey] = set()
        identities: set[str] = set()
        repeated = []
        for its in self._summaries:
            repeated.append((its.key in keys and its.key != "")
                            or (its.identity in identities and its.identity != ""))
            keys.add(its.key)
            if not its.is_rejected:
                identities.add(its.identity)
        return repeated

    @property
    def n_recent_repeats(self) -> int:
        """Among the trials since the last one that was new and not rejected, those that had been seen before."""
        count = 0
        for its, repeated in zip(reversed(self._summaries), reversed(self.is_repeated)):
            if its.identity and not repeated and not its.is_rejected:
                break
            count += repeated
        return count

    def evaluate_candidates(self, bulk: NeighborBatchSampler, parent: FrozenTrial, count: int,
                            rng: np.random.Generator) -> list[Candidate]:
        """Feasible candidates near ``parent``, whose costs are cached; see :meth:`NeighborBatchSampler.around`."""
        exact = [one.name for one in self.objectives if not one.is_measured]
        sheets = []
        for sheet, costs in bulk.sample_neighbors(parent, exact, count, rng):
            told = dict(zip(exact, costs))
            self.facts.store(sheet, CandidateFacts([told.get(one.name) for one in self.objectives]))
            sheets.append(sheet)
        return sheets

    def exact_values(
            self, trial: FrozenTrial, objectives: Sequence[Objective]) -> Mapping[str, float]:
        """Objective to exact value, as noted or as known."""
        noted = exact_values(trial, objectives)
        if not trial.params or all(objective.is_measured or objective.name in noted
                                   for objective in objectives):
            return noted
        values = self.facts(trial.params).values
        return {one.name: value
                for one, value in zip(objectives, values) if value is not None} | dict(noted)


def _objectives(study: Study | None, trials: Sequence[FrozenTrial],
                facts: FactsCache) -> tuple[Objective, ...]:
    """The axes of ``study``; one is measured unless ``facts`` tells it of the first sheet that can be built."""
    assert study is not None, "somebody has to say what is searched for"
    names = study.metric_names or [f"objective {at}" for at in range(len(study.directions))]
    found = (facts(trial.params) for trial in trials if trial.params)
    exact = next((one.values for one in found if one.is_buildable and one.values),
                 [None] * len(names))
    return tuple(Objective(name, "max" if direction == StudyDirection.MAXIMIZE else "min",
                           value is None)
                 for name, direction, value in zip(names, study.directions, exact))
