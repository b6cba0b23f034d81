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
from scalesearch.study.config.rows import Reference
from scalesearch.study.optuna_sync.view import SearchStudy
from scalesearch.study.trials.callback import Callback
from scalesearch.study.trials.plan import Plan
from scalesearch.study.trials.record import JobFile
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Origin, State, Trial
from scalesearch.train.recipe_space import override_keys

REJECTED = (State.INFEASIBLE, State.DUPLICATE)


class Proposals:
    """Announces the trials of one study: the event log first, then the search's Optuna study."""

    def __init__(self, plan: Plan, study: StudyDir, sampler: BaseSampler | None, callback: Callback) -> None:
        self.plan, self.study, self.sampler, self.callback = plan, study, sampler, callback
        self.search = SearchStudy(plan.evaluator.searched, plan.objectives, study.trials,
                                  priced=plan.compute is not None)

    def reference(self) -> Trial | None:
        """Announces references up to the next one to train.

        Those that were trained under another name are announced only; one that waits at a rung goes on.
        """
        announced = {trial.label for trial in self.study.trials.of(Origin.REFERENCE)}
        for reference in self.plan.references:
            if reference.label not in announced and (trial := self._refer(reference)).state == State.PENDING:
                return trial
        return self.study.trials.referred()

    def _refer(self, reference: Reference) -> Trial:
        trial = self.plan.evaluator.evaluate_architecture(reference.architecture, reference.params)
        trial = replace(trial, tuned=self.plan.evaluator.tuned(reference.recipe))
        # A reference is trained even where it misses a limit.
        return self._enqueue(replace(trial, state=State.PENDING, origin=Origin.REFERENCE, label=reference.label))

    def enqueued(self) -> Trial | None:
        """The next of another study's front that is to be trained here."""
        had = [trial for trial in self.study.trials.of(Origin.ENQUEUED) if trial.source is None]  # others: of a fork
        for params in self.plan.enqueued[len(had) :]:
            trial = self._enqueue(replace(self.plan.evaluator.evaluate(params), origin=Origin.ENQUEUED))
            if trial.state == State.PENDING:
                return trial
        return None

    def _enqueue(self, trial: Trial) -> Trial:
        """Announces ``trial`` by Optuna's queue, where there is a search and the space could have proposed it."""
        asked = self.sampler is not None and trial.in_space and bool(trial.params)  # rows have no params
        return self._announce(trial, self.search.enqueue(trial.params) if asked else None)

    def sampled(self) -> Trial | None:
        """The sampler's next new and feasible trial; None where it finds none in ``max_proposals`` proposals."""
        assert self.sampler is not None, "a study of rows proposes nothing"
        while self.rejected_last() < self.plan.max_proposals:
            try:
                asked, params = self.search.ask(self.sampler)
            except SpaceExhaustedError:
                return None
            trial = self._announce(self.plan.evaluator.evaluate(params), asked)
            if trial.state == State.PENDING:
                return trial
        return None

    def rejected_last(self) -> int:
        """Number of proposals since the last new one. A search that was cut off among them goes on there."""
        candidates = reversed(self.study.trials.candidates())
        return sum(1 for _ in takewhile(lambda trial: trial.state in REJECTED, candidates))

    def _announce(self, trial: Trial, asked: optuna.Trial | None = None) -> Trial:
        """Numbers ``trial``, marks it as a duplicate where it is one, and logs it."""
        first = self.study.trials.first(trial.identity) if trial.state == State.PENDING else None
        if first is not None:
            trial = replace(trial, state=State.DUPLICATE, of=first.number)
        trial = self.study.propose(replace(trial, number=self.study.trials.next_number))
        if trial.in_space:
            self.search.add(trial, asked)
        self.callback.proposed(trial)
        return trial

    def architecture(self, trial: Trial) -> ModelSpec:
        """Architecture of ``trial``, with the protocol that its costs are of."""
        architecture, protocol = self._architecture(trial), self.plan.evaluator.protocol
        own = {**protocol.with_vocab(architecture.vocab).settings, "vocab": OWN_VOCABULARY} if architecture.vocab else protocol.settings
        return replace(architecture, protocol=own)

    def _architecture(self, trial: Trial) -> ModelSpec:
        trial = self.study.trials[trial.of] if trial.origin == Origin.REPLICATE and trial.of is not None else trial
        if trial.origin == Origin.REFERENCE:
            named = (one.architecture for one in self.plan.references if one.label == trial.label)
            # One that the file no longer has may still get further seeds.
            return next(named, None) or read_space(self.study.trial_folder(trial) / "architecture.yaml").single_architecture()
        architecture = self.plan.evaluator.architecture(trial.params)
        assert architecture is not None and architecture.id == trial.architecture, "the space's hash was checked"
        return architecture

    def own_job(self, trial: Trial) -> JobFile:
        """Job fields of this trial alone: its recipe, its seed, its next rung. References train to the end."""
        rung = len(trial.rungs)
        own: JobFile = {"recipe": override_keys(self.plan.job["recipe"], trial.tuned)} if trial.tuned else {}
        if trial.origin == Origin.REPLICATE:
            return {**own, "job": "replicate", "of": trial.of, "seed": trial.seed or self.study.meta.seed}
        if trial.origin == Origin.REFERENCE or rung >= self.plan.rungs.n_pauses:
            return own
        return {**own, "rung": rung, "until": self.plan.rungs.shares[rung]}
