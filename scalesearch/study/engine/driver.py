"""The loop of a study: ask, evaluate, train, record, tell.

One process; what it decides is on disk before it acts.

The order of durability makes ``kill -9`` at any moment harmless: the proposal is in the event log
before its folder is made; the folder holds architecture and job before training starts; the worker
writes checkpoints and then ``result.json``; the driver writes the record, then the event, and only
then tells Optuna and the callbacks. On restart, every incomplete step is resumed from its last
durable state.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from scalesearch.errors import UserError
from scalesearch.files import DiskFullError, read_json, write_json, write_text
from scalesearch.report.records import validation_loss_name
from scalesearch.samplers.candidate_sampler import CandidateSampler
from scalesearch.schedule.rungs import START_TRIAL, Scheduler
from scalesearch.study.config.objectives import objective_values
from scalesearch.study.engine.proposals import REJECTED_STATES, Proposals
from scalesearch.study.engine.stopping import EarlyStopping
from scalesearch.study.executors.base import CRASH_DISK_FULL, CRASH_FAULT, JobDone, JobEvent, Runner, TrainingJob
from scalesearch.study.executors.worker import rung_file
from scalesearch.study.optuna_sync.attributes import TRIAL_NUMBER_ATTR
from scalesearch.study.replicates.summary import describe_end, propose_replicate
from scalesearch.study.trials.callback import Callback
from scalesearch.study.trials.plan import StudyPlan
from scalesearch.study.trials.record import make_record
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import EventType, Origin, Rung, State, Trial
from scalesearch.train.result import RESULT_FILE, Result

COMPUTE_TOLERANCE = 1e-9  # of compute: shares of full trainings are added up as floats


class Driver:
    """Runs ``plan`` to its end, from what ``study`` holds.

    ``sampler`` is None in a study of rows.
    """

    def __init__(self, plan: StudyPlan, study: StudyDir, sampler: BaseSampler | None,
                 runner: Runner, callback: Callback) -> None:
        self.plan = plan
        self.study = study
        self.runner = runner
        self.callback = callback
        self.trials = study.trials
        self.proposals = Proposals(plan, study, sampler, callback)
        self.search = self.proposals.search
        acquisition_values = sampler.acquisition_values if isinstance(
            sampler, CandidateSampler) else None
        self.scheduler = Scheduler(plan.rungs, plan.objectives, acquisition_values)
        self.stopping = EarlyStopping(study, plan.stop, sampler, runner.slots)
        self._stop_reason = ""
        self._is_space_exhausted = False

    def run(self) -> str:
        """Trains until the plan is fulfilled or proposals are exhausted; returns why it ended.

        Raises:
            KeyboardInterrupt: after the workers have been stopped; the study can be resumed.
            DiskFull: there is no room where the study, or a worker, is; what finished is safe, and
                it can be resumed.
            UserError: too many trials failed to go on, or the workers are gone; likewise.
        """
        try:
            self.recover()
            while self._dispatch() or self.trials.with_state(State.PENDING):
                for event in self.runner.poll(0.5):
                    self._on_event(event)
                self.callback.update()
            self.stopping.reason(self.search.history())  # for whoever wonders whether to go on
            ended = self._stop_reason or self._describe_trained()
            return ended + describe_end(self.trials, self.plan.objectives, self.plan.seeds)
        finally:
            self.runner.stop()
            self.callback.close()

    def recover(self) -> None:
        """Collects results that nobody recorded, and starts again what was in training."""
        for trial in self.trials.with_state(State.PENDING):
            if self._uncollected_file(trial):
                self._collect(trial)
            else:
                self.callback.message(f"trial {trial.number} goes on from its last checkpoint")
                self._submit(trial)
        last = self.trials.candidates()[-self.plan.max_proposals :]
        if self.trials.replicates() and all(trial.state in REJECTED_STATES for trial in last):
            # or else the search would go on amid the replicates
            self._stop_reason = self._describe_exhaustion()
        elif self._compute_left() > COMPUTE_TOLERANCE and self.stopping.has_stopped():
            self._stop_reason = f"stopped: {self._describe_trained()}"

    def _dispatch(self) -> bool:
        """Gives work to idle workers; returns whether anything was started."""
        started = False
        while len(self.trials.with_state(State.PENDING)) < self.runner.slots:
            trial = self._next_trial() or self._propose_replicate()
            if trial is None:
                break
            self._submit(trial)
            started = True
        return started

    def _next_trial(self) -> Trial | None:
        """Chooses a free worker's trial.

        In this order: a reference, an enqueued trial, a paused one or a new one.
        """
        self._check_failures()
        if (trial := self.proposals.next_reference()) is not None:
            return trial
        if self._stop_reason or self._compute_left() <= COMPUTE_TOLERANCE:
            return None
        if (trial := self.proposals.next_enqueued()) is not None:
            return trial
        self._stop_reason = self.stopping.reason(self.search.history())
        return None if self._stop_reason else self._next_search_trial()

    def _next_search_trial(self) -> Trial | None:
        """Chooses a paused trial or a new one."""
        chosen = self.scheduler.next_action(self.search.history(), self._compute_left(),
                                            exhausted=self._is_space_exhausted)
        if chosen is START_TRIAL:
            if (trial := self.proposals.next_sampled()) is not None:
                return trial
            # trials that wait at a rung, or will, may still be trained on
            self._is_space_exhausted = True
            chosen = self.scheduler.next_action(
                self.search.history(), self._compute_left(), exhausted=True)
        if isinstance(chosen, FrozenTrial):
            return self.trials[chosen.user_attrs[TRIAL_NUMBER_ATTR]]
        if self._is_space_exhausted and not self.trials.with_state(State.PENDING):
            self._stop_reason = self._describe_exhaustion()
        return None

    def _propose_replicate(self) -> Trial | None:
        """Announces the next replicate, once the search is over."""
        trial = propose_replicate(self.study, self.plan.objectives, self.plan.seeds,
                                  self.study.meta.seed)
        if trial is not None:
            self.callback.proposed(trial)
        return trial

    def _check_failures(self) -> None:
        """Raises UserError where too much has failed to go on."""
        failed = self.trials.with_state(State.FAILED)
        if not self.plan.trials and len(failed) > 2 and not self.trials.with_state(State.COMPLETE):
            raise UserError(f"the first {len(failed)} rows failed, the last with: "
                            f"{failed[-1].reason}", code="too-many-failed")
        if self._count_charged(State.FAILED) > self.plan.trials // 2 + 3:
            raise UserError(f"{self._count_charged(State.FAILED)} candidates failed, the last "
                            f"with: {failed[-1].reason}", code="too-many-failed")

    def _compute_left(self) -> float:
        """Full trainings' worth of compute."""
        allowed = self.trials.full_runs_allowed(
            self.plan.rungs, self.plan.trials, self.plan.compute)
        return allowed - self.trials.full_runs_spent(self.plan.rungs)

    def _count_charged(self, *states: State) -> int:
        return sum(trial.origin.charged for trial in self.trials.with_state(*states))

    def _describe_trained(self) -> str:
        if self.plan.trials:
            short = self.trials.full_runs_allowed(
                self.plan.rungs, self.plan.trials, self.plan.compute) < self.plan.trials
            return (f"{self._count_charged(State.COMPLETE)} candidates trained"
                    + ", as many as the compute allows" * short)
        named = {one.label for one in self.plan.references}
        rows = [self.trials.resolve_duplicate(one).state
                for one in self.trials.with_origin(Origin.REFERENCE) if one.label in named]
        return f"{rows.count(State.COMPLETE)} of {len(rows)} rows trained"

    def _describe_exhaustion(self) -> str:
        trained = f"{self._count_charged(State.COMPLETE)} of {self.plan.trials} candidates trained"
        if self.proposals.count_last_rejected() < self.plan.max_proposals:
            return f"the sampler has proposed its whole list: {trained}"
        last = self.trials.candidates()[-self.plan.max_proposals :]
        missed = sum(trial.state == State.INFEASIBLE for trial in last)
        return (f"nothing new in {self.plan.max_proposals} proposals ({missed} infeasible, "
                f"{len(last) - missed} duplicates): {trained}")

    def _submit(self, trial: Trial) -> None:
        folder = self.study.trial_folder(trial)
        write_text(folder / "architecture.yaml", self.proposals.architecture(trial).to_yaml())
        attempt = trial.attempts + 1
        write_json(folder / "job.json",
                   {"trial": trial.number, "attempt": attempt, **self.plan.job_template,
                    **self.proposals.job_fields(trial)})
        trial = self._append(EventType.STARTED, trial, attempt=attempt)
        self.callback.started(trial)
        self.runner.submit(TrainingJob(trial.number, folder, trial.attempts))

    def _uncollected_file(self, trial: Trial) -> Path | None:
        """The file that a worker has left and nobody collected yet: a result, or one of the next rung."""
        folder = self.study.trial_folder(trial)
        files = (folder / name for name in ("result.json", rung_file(len(trial.rungs))))
        return next((file for file in files if file.exists()), None)

    def _on_event(self, event: JobEvent) -> None:
        trial = self.trials[event.job.trial]
        if isinstance(event, JobDone):
            self._collect(trial)
            return
        self._handle_crash(trial, event.reason, event.cause == CRASH_FAULT, event.can_retry,
                           event.cause == CRASH_DISK_FULL)

    def _handle_crash(self, trial: Trial, reason: str, is_own_fault: bool = True,
                      can_retry: bool = True, is_disk_full: bool = False) -> None:
        trial = self._append(EventType.CRASHED, trial, attempt=trial.attempts, reason=reason,
                             is_own_fault=is_own_fault)
        if is_disk_full:
            raise DiskFullError(reason)
        if can_retry and trial.crashes < self.plan.attempts:
            self.callback.message(
                f"trial {trial.number}: its worker died ({reason}); started again")
            self._submit(trial)
        else:
            self._finish(trial, None, State.FAILED, reason=reason)

    def _collect(self, trial: Trial) -> None:
        """Collects what the worker of ``trial`` has left.

        A damaged file is put aside and the training gone on with.
        """
        file = self._uncollected_file(trial)
        assert file is not None, "a worker that is done has left something"
        try:
            result = read_json(file, Result)
            metrics = result.metrics
            loss = metrics.get(validation_loss_name(trial.config))
            rung = None if file.name == RESULT_FILE else msgspec.convert(
                {**metrics, "loss": loss}, Rung)
        except (UserError, ValueError) as damaged:
            file.replace(file.with_suffix(".damaged"))
            self._handle_crash(trial, f"what it left cannot be read: {damaged}")
            return
        if rung is not None:
            self.callback.paused(
                self._append(EventType.RUNG, trial, rung=len(trial.rungs), **asdict(rung),
                             efforts=msgspec.to_builtins(result.efforts)))
            return
        try:
            if result.state != "complete":
                raise UserError(result.reason or "training failed", code="training-failed")
            scores = objective_values(self.plan.objectives, metrics, trial.costs)
        except UserError as error:
            self._finish(trial, result, State.FAILED, reason=str(error))
        else:
            self._finish(trial, result, State.COMPLETE, values=scores)

    def _finish(self, trial: Trial, result: Result | None, state: State, **end: Any) -> None:
        """Record, then event, then Optuna: never announced before it is safe."""
        seconds = (result.total_seconds or result.seconds or None) if result else None
        efforts = result.efforts if result else trial.efforts
        ended = replace(trial,
                        **{"state": state, "reason": "", "wall_seconds": seconds,
                           "efforts": efforts, **end})
        write_json(self.study.trial_folder(trial) / "record.json",
                   make_record(ended, self.plan.record_fields, result))
        self.callback.ended(self._append(EventType.ENDED, trial, state=state, wall_seconds=seconds,
                                         efforts=msgspec.to_builtins(efforts), **end))

    def _append(self, event_type: EventType, trial: Trial, **facts: Any) -> Trial:
        trial = self.study.append(event_type, trial.number, **facts)
        self.search.update(trial)
        return trial
