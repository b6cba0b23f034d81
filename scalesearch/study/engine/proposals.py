"""Entry of trials into a study: proposed, evaluated, then announced.

They come from the sampler, the study file or another study.
"""

from dataclasses import replace
from itertools import takewhile

import optuna
from optuna.samplers import BaseSampler

from scalesearch.samplers.candidate_sampler import SpaceExhaustedError
from scalesearch.space import read_space
from scalesearch.space.assembly.architecture import ModelSpec
from scalesearch.space.schema.cost_names import OWN_VOCABULARY
from scalesearch.study.config.fixed_architectures import FixedArchitecture
from scalesearch.study.optuna_sync.search_study import SearchStudy
from scalesearch.study.trials.callback import Callback
from scalesearch.study.trials.plan import StudyPlan
from scalesearch.study.trials.record import JobFile
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Origin, State, Trial
from scalesearch.train.recipe_space import override_keys

REJECTED_STATES = (State.INFEASIBLE, State.DUPLICATE)


class Proposals:
    """Announces the trials of one study: the event log first, then the search's Optuna study."""

    def __init__(self, plan: StudyPlan, study: StudyDir, sampler: BaseSampler | None,
                 callback: Callback) -> None:
        self.plan = plan
        self.study = study
        self.sampler = sampler
        self.callback = callback
        self.search = SearchStudy(plan.evaluator.joint_space, plan.objectives, study.trials,
                                  has_compute_limit=plan.compute is not None)

    def next_reference(self) -> Trial | None:
        """Announces references up to the next one to train.

        Those that were trained under another name are announced only; one that waits at a rung goes
        on.
        """
        announced = {trial.label for trial in self.study.trials.with_origin(Origin.REFERENCE)}
        for reference in self.plan.references:
            if reference.label not in announced and (
                    trial := self._propose_reference(reference)).state == State.PENDING:
                return trial
        return self.study.trials.paused_reference()

    def _propose_reference(self, reference: FixedArchitecture) -> Trial:
        trial = self.plan.evaluator.evaluate_architecture(reference.architecture, reference.params)
        trial = replace(trial,
                        recipe_params=self.plan.evaluator.recipe_values(reference.recipe_params))
        # A reference is trained even where it misses a limit.
        return self._enqueue(replace(trial, state=State.PENDING, origin=Origin.REFERENCE,
                                     label=reference.label))

    def next_enqueued(self) -> Trial | None:
        """The next of another study's front that is to be trained here."""
        # others: of a fork
        had = [trial
               for trial in self.study.trials.with_origin(Origin.ENQUEUED) if trial.source is None]
        for params in self.plan.enqueued[len(had) :]:
            trial = self._enqueue(replace(self.plan.evaluator.evaluate(params),
                                          origin=Origin.ENQUEUED))
            if trial.state == State.PENDING:
                return trial
        return None

    def _enqueue(self, trial: Trial) -> Trial:
        """Announces ``trial`` by Optuna's queue, where there is a search and the space could have proposed it."""
        # rows have no params
        asked = self.sampler is not None and trial.is_in_space and bool(trial.params)
        return self._propose(trial, self.search.enqueue(trial.params) if asked else None)

    def next_sampled(self) -> Trial | None:
        """The sampler's next new and feasible trial; None where it finds none in ``max_proposals`` proposals."""
        assert self.sampler is not None, "a study of rows proposes nothing"
        while self.count_last_rejected() < self.plan.max_proposals:
            try:
                asked, params = self.search.ask(self.sampler)
            except SpaceExhaustedError:
                return None
            trial = self._propose(self.plan.evaluator.evaluate(params), asked)
            if trial.state == State.PENDING:
                return trial
        return None

    def count_last_rejected(self) -> int:
        """Number of proposals since the last new one.

        A search that was cut off among them goes on there.
        """
        candidates = reversed(self.study.trials.candidates())
        return sum(1 for _ in takewhile(lambda trial: trial.state in REJECTED_STATES, candidates))

    def _propose(self, trial: Trial, optuna_trial: optuna.Trial | None = None) -> Trial:
        """Numbers ``trial``, marks it as a duplicate where it is one, and logs it."""
        first = self.study.trials.first_with_identity(
            trial.identity) if trial.state == State.PENDING else None
        if first is not None:
            trial = replace(trial, state=State.DUPLICATE, original=first.number)
        trial = self.study.propose(replace(trial, number=self.study.trials.next_number))
        if trial.is_in_space:
            self.search.add(trial, optuna_trial)
        self.callback.proposed(trial)
        return trial

    def architecture(self, trial: Trial) -> ModelSpec:
        """Architecture of ``trial``, with the protocol that its costs are of."""
        architecture = self._architecture(trial)
        protocol = self.plan.evaluator.protocol
        own = {**protocol.with_vocab(architecture.vocab).settings,
               "vocab": OWN_VOCABULARY} if architecture.vocab else protocol.settings
        return replace(architecture, protocol=own)

    def _architecture(self, trial: Trial) -> ModelSpec:
        trial = (self.study.trials[trial.original]
                 if trial.origin == Origin.REPLICATE and trial.original is not None else trial)
        if trial.origin == Origin.REFERENCE:
            named = (one.architecture for one in self.plan.references if one.label == trial.label)
            # One that the file no longer has may still get further seeds.
            return next(named, None) or read_space(
                self.study.trial_folder(trial) / "architecture.yaml").single_architecture()
        architecture = self.plan.evaluator.architecture(trial.params)
        assert architecture is not None and architecture.id == trial.architecture, "the space's hash was checked"
        return architecture

    def job_fields(self, trial: Trial) -> JobFile:
        """Job fields of this trial alone: its recipe, its seed, its next rung.

        References train to the end.
        """
        rung = len(trial.rungs)
        own: JobFile = {"recipe": override_keys(self.plan.job_template["recipe"],
                                                trial.recipe_params)} if trial.recipe_params else {}
        if trial.origin == Origin.REPLICATE:
            return {**own, "origin": "replicate", "original": trial.original,
                    "seed": trial.seed or self.study.meta.seed}
        if trial.origin == Origin.REFERENCE or rung >= self.plan.rungs.n_pauses:
            return own
        return {**own, "rung": rung, "until_share": self.plan.rungs.shares[rung]}
