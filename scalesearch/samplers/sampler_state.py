"""State of a study when parameters are proposed."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

from scalesearch.errors import UserError
from scalesearch.pareto import Objective
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
    from scalesearch.samplers.space_samplers import NeighborBatchSampler


@dataclass(frozen=True)
class TrialSummary:
    """Values that identify the candidate of a trial.

    Attributes:
        key: key of the candidate.
        identity: id of its architecture; empty if the trial has no parameters yet.
        is_rejected: whether it violated a constraint and was therefore not run.
    """

    key: CandidateKey
    identity: str
    is_rejected: bool


class TrialSummaryCache:
    """Summaries of trials.

    Those of finished trials are cached, because every proposal reads all.
    """

    def __init__(self, facts: FactsCache) -> None:
        self.facts = facts
        # by id of the object; a storage does not change finished trials
        self._cache: dict[int, tuple[FrozenTrial, TrialSummary]] = {}

    def __call__(self, trial: FrozenTrial) -> TrialSummary:
        cached = self._cache.get(id(trial))
        if cached is not None and cached[0] is trial:
            return cached[1]
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
    """State of a study when parameters are proposed for a trial.

    Args:
        number: number of the trial.
        trials: all other trials.
        define: define-by-run function of the parameters.
        summaries: summaries of trials, and exact facts about candidates.
        objectives: objectives in the order of the study; None: read from ``study``.
        study: only used if ``objectives`` is None.
        rng: random number generator of this proposal.
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
        if objectives is None:
            assert study is not None, "without objectives, a study is required"
            names = study.metric_names or [f"objective {index}"
                                           for index in range(len(study.directions))]
            # An objective is exact if the first trial that can be built has a value for it.
            facts_of_trials = (self.facts(trial.params) for trial in trials if trial.params)
            exact = next((facts.values for facts in facts_of_trials
                          if facts.is_buildable and facts.values), [None] * len(names))
            if len(exact) != len(names):
                raise UserError(f"facts: expected a value or None for each of {len(names)} "
                                f"objectives, found {len(exact)}", code="bad-argument")
            objectives = [
                Objective(name, "max" if direction == StudyDirection.MAXIMIZE else "min",
                          value is None)
                for name, direction, value in zip(names, study.directions, exact)]
        self.objectives = tuple(objectives)

    @property
    def last_is_rejected(self) -> bool:
        """Whether the latest trial violated a constraint and was not run."""
        return bool(self._summaries) and self._summaries[-1].is_rejected

    @cached_property
    def predicted_values(self) -> dict[int, list[float]]:
        """Values by trial number; predicted values of paused trials."""
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
        """Keys of the candidates of all trials."""
        return {summary.key for summary in self._summaries if summary.key}

    @cached_property
    def identities(self) -> Collection[str]:
        """Ids of the architectures of all trials that were not rejected."""
        return {summary.identity
                for summary in self._summaries if summary.identity and not summary.is_rejected}

    @cached_property
    def is_repeated(self) -> list[bool]:
        """Whether an earlier trial has the same candidate or architecture, per trial."""
        keys: set[CandidateKey] = set()
        identities: set[str] = set()
        repeated = []
        for summary in self._summaries:
            repeated.append((summary.key in keys and summary.key != "")
                            or (summary.identity in identities and summary.identity != ""))
            keys.add(summary.key)
            if not summary.is_rejected:
                identities.add(summary.identity)
        return repeated

    def is_new(self, candidate: Candidate) -> bool:
        """Whether no trial has this candidate, or is a run of its architecture."""
        return (candidate.key not in self.candidate_keys
                and self.facts.identity(candidate.params) not in self.identities)

    def evaluate_candidates(self, neighbor_sampler: NeighborBatchSampler, parent: FrozenTrial,
                            count: int, rng: np.random.Generator) -> list[Candidate]:
        """Sample feasible neighbors of ``parent``; their costs are stored in the facts.

        See :meth:`NeighborBatchSampler.sample_neighbors`.
        """
        exact = [objective.name for objective in self.objectives if not objective.is_measured]
        candidates = []
        for candidate, costs in neighbor_sampler.sample_neighbors(parent, exact, count, rng):
            cost_by_name = dict(zip(exact, costs))
            self.facts.store(candidate, CandidateFacts([cost_by_name.get(objective.name)
                                                        for objective in self.objectives]))
            candidates.append(candidate)
        return candidates

    def exact_values(
            self, trial: FrozenTrial, objectives: Sequence[Objective]) -> Mapping[str, float]:
        """Return exact values by objective: those of the trial, and computed ones."""
        stored = exact_values(trial, objectives)
        if not trial.params or all(objective.is_measured or objective.name in stored
                                   for objective in objectives):
            return stored
        computed = {objective.name: value
                    for objective, value in zip(objectives, self.facts(trial.params).values)
                    if value is not None}
        return computed | dict(stored)
