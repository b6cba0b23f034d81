"""Proposals of a study: new trials are evaluated, deduplicated and logged.

Trials come from the study file (references), from another study (enqueued) or from the sampler.
"""

from dataclasses import replace
from itertools import takewhile
from typing import ClassVar

import optuna
from optuna.samplers import BaseSampler

from scalesearch.data import default_cache
from scalesearch.samplers.candidate_sampler import CandidateSampler, SpaceExhaustedError
from scalesearch.spaces import read_space
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.spaces.schema.cost_names import OWN_VOCABULARY
from scalesearch.studies.config.fixed_architectures import COMPRESS
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.optuna_sync.search_study import SearchStudy
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.record import JobFile
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Callback, Origin, Params, State, Trial
from scalesearch.training.recipe_space import override_keys
from scalesearch.training.result import Result

REJECTED_STATES = (State.INFEASIBLE, State.DUPLICATE)


class Proposals:
    """Propose the trials of a study.

    They go to the event log first, then to the search's Optuna study.

    Args:
        spec: of the study; its data are those that trials learn from.
        study: loaded, and owned by this process.
        evaluator: of the candidates.
        sampler: None if all architectures are fixed.
        callback: receives each proposal.
        enqueued: params that are proposed before those of the sampler.
    """

    max_proposals: ClassVar[int] = 1000  # without a new candidate, after which the search ends

    def __init__(self, spec: StudySpec, study: StudyDir, evaluator: Evaluator,
                 sampler: BaseSampler | None, callback: Callback,
                 enqueued: tuple[Params, ...] = ()) -> None:
        self.spec = spec
        self.study = study
        self.evaluator = evaluator
        self.sampler = sampler
        self.callback = callback
        self.enqueued = enqueued
        self.search = SearchStudy(evaluator.joint_space, spec.objectives, study.trials,
                                  has_compute_limit=spec.compute is not None)

    def next_reference(self) -> Trial | None:
        """Propose references up to the next one to train; None if all of them are done.

        A reference that was trained under another name is a duplicate and is only logged. A
        reference that is paused at a rung is returned, to be resumed; combinations of a compression
        are promoted like the candidates of a search instead.
        """
        proposed = {trial.label for trial in self.study.trials.with_origin(Origin.REFERENCE)}
        for reference in self.spec.named_architectures:
            if reference.label in proposed:
                continue
            trial = self.evaluator.evaluate_architecture(reference.architecture, reference.params)
            recipe_params = self.evaluator.recipe.recipe_values(reference.recipe_params)
            # A reference is trained even if it violates a limit.
            trial = self._enqueue(trial.replace(
                recipe_params=recipe_params, state=State.PENDING, origin=Origin.REFERENCE,
                label=reference.label, costs={**trial.costs, **reference.predictions}))
            if trial.state == State.PENDING:
                return trial
        return None if self.spec.type == COMPRESS else self.study.trials.paused_reference()

    def next_enqueued(self) -> Trial | None:
        """Propose the next architecture of another study's front (warm start)."""
        proposed = self.study.trials.with_origin(Origin.ENQUEUED)
        for params in self.enqueued[len(proposed):]:
            trial = self.evaluator.evaluate(params)
            trial = self._enqueue(trial.replace(origin=Origin.ENQUEUED))
            if trial.state == State.PENDING:
                return trial
        return None

    def _enqueue(self, trial: Trial) -> Trial:
        """Propose ``trial``, through Optuna's queue if the sampler could have proposed it."""
        # A fixed architecture of a study without a search has no params.
        is_in_queue = self.sampler is not None and trial.is_in_space and bool(trial.params)
        return self._propose(trial, self.search.enqueue(trial.params) if is_in_queue else None)

    def next_sampled(self) -> Trial | None:
        """Return the sampler's next new and feasible trial.

        None if the sampler proposes no new configuration, or if ``max_proposals`` proposals in a
        row were infeasible. A repeated configuration is not logged.
        """
        assert self.sampler is not None, "only a search has sampled trials"
        while self.count_last_rejected() < self.max_proposals:
            try:
                optuna_trial, params = self.search.ask(self.sampler)
            except SpaceExhaustedError:
                return None
            trial = self.evaluator.evaluate(params)
            if self._is_repeated(trial):
                self.search.discard(optuna_trial)
                return None
            trial = self._propose(trial, optuna_trial)
            if trial.state == State.PENDING:
                return trial
        return None

    @property
    def is_space_enumerated(self) -> bool:
        """Whether the sampler lists all configurations of the space, or has listed them."""
        return isinstance(self.sampler, CandidateSampler) and (
            self.sampler.is_exhaustive
            or self.sampler.enumerate_space(self.sampler.define) is not None)

    def _is_repeated(self, trial: Trial) -> bool:
        """Whether the study has this configuration, or a run of this architecture."""
        if trial.state == State.PENDING:
            return self.study.trials.first_with_identity(trial.identity) is not None
        return any(other.params == trial.params and other.recipe_params == trial.recipe_params
                   for other in self.study.trials.candidates())

    def count_last_rejected(self) -> int:
        """Number of rejected proposals since the last accepted one.

        It is counted in the log, so an interrupted search continues with the same number.
        """
        candidates = reversed(self.study.trials.candidates())
        return sum(1 for _ in takewhile(lambda trial: trial.state in REJECTED_STATES, candidates))

    def _propose(self, trial: Trial, optuna_trial: optuna.Trial | None = None) -> Trial:
        """Number ``trial``, mark it if it is a duplicate, and log it."""
        if trial.state == State.PENDING:
            first = self.study.trials.first_with_identity(trial.identity)
            if first is not None:
                trial = trial.replace(state=State.DUPLICATE, original=first.number)
        trial = self.study.propose(trial.replace(number=self.study.trials.next_number))
        if trial.is_in_space:
            self.search.add(trial, optuna_trial)
        self.callback.proposed(trial)
        return trial

    def architecture(self, trial: Trial) -> ModelSpec:
        """Return the architecture of ``trial``, with the protocol of its costs."""
        if trial.origin == Origin.REPLICATE and trial.original is not None:
            trial = self.study.trials[trial.original]
        references = {reference.label: reference.architecture
                      for reference in self.spec.named_architectures}
        if trial.origin != Origin.REFERENCE:
            architecture = self.evaluator.architecture(trial.params)
            assert architecture is not None, "a pending trial can be built"
            assert architecture.id == trial.architecture, "the hash of the space was checked"
        elif trial.label in references:
            architecture = references[trial.label]
        else:  # a reference that was removed from the study file may still get replicates
            file = self.study.trial_folder(trial) / "architecture.yaml"
            architecture = read_space(file).single_architecture()
        protocol = self.evaluator.protocol
        settings = protocol.settings
        if architecture.vocab:
            settings = {**protocol.with_vocab(architecture.vocab).settings, "vocab": OWN_VOCABULARY}
        return replace(architecture, protocol=settings)

    def next_job(self, trial: Trial) -> JobFile:
        """Return the job of the next attempt of ``trial``: to its next rung, or to the end.

        Paths are absolute, because workers may start elsewhere. References are trained to the end,
        without pauses at rungs, except combinations of a compression.
        """
        spec = self.spec
        job: JobFile = {
            "trial": trial.number, "attempt": trial.attempts + 1,
            "data": spec.data.with_absolute_paths().model_dump(), "cache": str(default_cache()),
            "recipe": override_keys(spec.recipe.model_dump(), trial.recipe_params),
            "seed": trial.seed or spec.seed, "threads": spec.resources.threads_per_trial,
            "nice": spec.resources.nice, "processes": Result.processes, "proxies": spec.proxies}
        rung = len(trial.rungs)
        first_run = trial if trial.original is None else self.study.trials[trial.original]
        if first_run.label and first_run.label in spec.initial_models:
            job["initial_model"] = spec.initial_models[first_run.label]
        if trial.origin == Origin.REPLICATE:
            return {**job, "origin": "replicate", "original": trial.original}
        if not self.study.meta.pauses_at_rungs(trial.origin) or rung >= spec.rungs.n_pauses:
            return job
        return {**job, "rung": rung, "until_share": spec.rungs.shares[rung]}
