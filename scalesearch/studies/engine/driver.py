"""Main loop of a study: ask, evaluate, train, record, tell.

The loop is one process. Each decision is on disk before it takes effect, in this order:

1. A proposal is written to the event log before its folder is made.
2. The folder holds architecture and job before training starts.
3. The worker writes checkpoints, then ``result.json``.
4. The driver writes the record, then the event. Optuna and the callbacks follow last.

So ``kill -9`` at any moment loses nothing: on restart, every incomplete step is resumed from its
last durable state.
"""

from pathlib import Path
from typing import Any

import msgspec
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from scalesearch.errors import UserError
from scalesearch.files import read_json, write_json, write_text
from scalesearch.report.records import validation_loss_name
from scalesearch.samplers.hypervolume_gp import HypervolumeGP
from scalesearch.schedule import START_TRIAL, Scheduler, find_promotable
from scalesearch.studies.config.fixed_architectures import COMPRESS
from scalesearch.studies.config.objectives import objective_values
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.engine.jobs import JobLoop, reading_result
from scalesearch.studies.engine.proposals import REJECTED_STATES, Proposals
from scalesearch.studies.engine.stopping import EarlyStopping
from scalesearch.studies.executors.base import (
    CRASH_FAULT,
    JobCrashed,
    JobDone,
    Runner,
    TrainingJob,
)
from scalesearch.studies.executors.worker import rung_file
from scalesearch.studies.optuna_sync.attributes import TRIAL_NUMBER_ATTR
from scalesearch.studies.replicates.summary import StudyView, describe_end, propose_replicate
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.record import make_record
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import (
    Callback,
    EventType,
    Origin,
    Params,
    Rung,
    State,
    Trial,
)
from scalesearch.terminal import format_count
from scalesearch.training.result import RESULT_FILE, Result

COMPUTE_TOLERANCE = 1e-9  # in full-budget runs, whose shares are summed as floats


class Driver(JobLoop):
    """Runs a study to its end, from the state in its folder.

    Args:
        spec: of the study. With rungs, the compute of its ``trials`` full-budget runs is spent on
            more candidates.
        study: loaded, and owned by this process.
        evaluator: of the candidates.
        sampler: None if all architectures are fixed (grid, ablation, scaling).
        runner: trains the jobs.
        callback: receives each trial after it is on disk.
        enqueued: params that are proposed before those of the sampler.
    """

    def __init__(self, spec: StudySpec, study: StudyDir, evaluator: Evaluator,
                 sampler: BaseSampler | None, runner: Runner, callback: Callback,
                 enqueued: tuple[Params, ...] = ()) -> None:
        super().__init__(runner, spec.attempts)
        self.spec = spec
        self.study = study
        self.callback = callback
        self.trials = study.trials
        self.proposals = Proposals(spec, study, evaluator, sampler, callback, enqueued)
        self.search = self.proposals.search
        # The acquisition function also chooses which paused trial is promoted to the next rung.
        surrogate = ((sampler.acquisition_values, sampler.n_startup_trials, sampler.max_in_training)
                     if isinstance(sampler, HypervolumeGP) else ())
        self.scheduler = Scheduler(self.spec.rungs, self.spec.objectives, *surrogate)
        self.stopping = EarlyStopping(study, self.spec.stop, sampler, runner.slots)
        self._stop_reason = ""
        self._is_space_exhausted = False
        self._has_idle_workers = False

    def run(self) -> str:
        """Train until the plan is complete or the search ends; return the reason.

        Finished trials are on disk after each of these errors, and the study can be resumed.

        Raises:
            KeyboardInterrupt: after the workers were stopped.
            DiskFullError: the disk of the study or of a worker is full.
            UserError: too many trials failed, or the workers are gone.
        """
        try:
            self.recover()
            self.run_jobs()
            failed = self.trials.with_state(State.FAILED)
            if failed and not self.trials.with_state(State.COMPLETE, State.PAUSED):
                raise UserError(f"all {format_count(len(failed), 'trial')} failed, the last with: "
                                f"{failed[-1].reason}", code="too-many-failed")
            self.stopping.reason(self.search.history())  # keeps the last forecast on disk
            reason = self._stop_reason or self._describe_trained()
            return reason + describe_end(StudyView(self.trials, self.study.meta))
        finally:
            self.runner.stop()
            self.callback.close()

    def recover(self) -> None:
        """Collect results that were not recorded, and restart interrupted trials."""
        for trial in self.trials.with_state(State.PENDING):
            if self._uncollected_file(trial):
                folder = self.study.trial_folder(trial)
                self.handle_done(JobDone(TrainingJob(trial.number, folder)))
            else:
                self.callback.message(f"trial {trial.number} resumes from its last checkpoint")
                self.submit(self._start(trial))
        last = self.trials.candidates()[-self.proposals.max_proposals:]
        if self.trials.replicates() and all(trial.state in REJECTED_STATES for trial in last):
            # The search had ended; without this it would continue among the replicates.
            self._stop_reason = self._describe_exhaustion()
        elif self._compute_left() > COMPUTE_TOLERANCE and self.stopping.has_stopped():
            self._stop_reason = f"stopped: {self._describe_trained()}"

    def update(self) -> None:
        self.callback.update()

    def next_job(self) -> TrainingJob | None:
        """Start the next trial: of the search or, after it, a run with a further seed."""
        # Stop a study in which most trials fail.
        failed = self.trials.with_state(State.FAILED)
        if not self.spec.trials and len(failed) > 2 and not self.trials.with_state(State.COMPLETE):
            raise UserError(f"the first {len(failed)} architectures failed, the last with: "
                            f"{failed[-1].reason}", code="too-many-failed")
        n_charged = self._count_charged(State.FAILED)
        if n_charged > self.spec.trials // 2 + 3:
            raise UserError(f"{n_charged} candidates failed, the last with: {failed[-1].reason}",
                            code="too-many-failed")
        trial = self.proposals.next_reference()
        if trial is None and self.spec.type == COMPRESS:
            promotable = find_promotable(self.search.history(), self.spec.rungs,
                                         self.spec.objectives)
            if promotable is not None:
                trial = self.trials[promotable.user_attrs[TRIAL_NUMBER_ATTR]]
        if trial is None and not self._stop_reason and self._compute_left() > COMPUTE_TOLERANCE:
            trial = self.proposals.next_enqueued()
            if trial is None:
                self._stop_reason = self.stopping.reason(self.search.history())
            if trial is None and not self._stop_reason:
                trial = self._next_search_trial()
        if trial is None:
            trial = propose_replicate(self.study)
            if trial is None:
                return None
            self.callback.proposed(trial)
        return self._start(trial)

    def _next_search_trial(self) -> Trial | None:
        """Return the next trial of the search: a paused one, or a new one of the sampler."""
        action = self.scheduler.next_action(self.search.history(), self._compute_left(),
                                            exhausted=self._is_space_exhausted)
        if self.scheduler.is_waiting and not self._has_idle_workers:
            self._has_idle_workers = True
            self.callback.message("from now on, fewer workers are used: the last "
                                  f"{self._compute_left():.0f} full-budget runs are chosen after "
                                  "results of those before")
        if action is START_TRIAL:
            trial = self.proposals.next_sampled()
            if trial is not None:
                return trial
            # Nothing new is left, but paused trials may still be promoted.
            self._is_space_exhausted = True
            action = self.scheduler.next_action(self.search.history(), self._compute_left(),
                                                exhausted=True)
        if isinstance(action, FrozenTrial):
            return self.trials[action.user_attrs[TRIAL_NUMBER_ATTR]]
        if self._is_space_exhausted and not self.trials.with_state(State.PENDING):
            self._stop_reason = self._describe_exhaustion()
        return None

    def _compute_left(self) -> float:
        """Return the compute that is left, in full-budget runs."""
        return self._compute_allowed() - self.trials.full_runs_spent(self.spec.rungs)

    def _compute_allowed(self) -> float:
        """Return the limit of the search, in full-budget runs."""
        return self.trials.full_runs_allowed(self.spec.rungs, self.spec.trials, self.spec.compute)

    def _count_charged(self, *states: State) -> int:
        """Number of trials that count towards ``trials`` of the study file."""
        return sum(trial.origin.charged for trial in self.trials.with_state(*states))

    def _describe_trained(self) -> str:
        if self.spec.trials:
            limit = (" (compute budget used up)" if self._compute_allowed() < self.spec.trials
                     else "")
            paused = self._count_charged(State.PAUSED)
            at_rungs = f", {paused} paused at rungs" if paused else ""
            return f"{self.trials.describe_complete(is_search=True)} trained{at_rungs}{limit}"
        labels = {reference.label for reference in self.spec.named_architectures}
        states = [self.trials.resolve_duplicate(trial).state
                  for trial in self.trials.with_origin(Origin.REFERENCE) if trial.label in labels]
        n_complete = states.count(State.COMPLETE)
        return f"{n_complete} of {format_count(len(states), 'architecture')} trained"

    def _describe_exhaustion(self) -> str:
        """Describe why nothing new is proposed."""
        n_complete = self._count_charged(State.COMPLETE)
        progress = f"{n_complete} of {format_count(self.spec.trials, 'candidate')} trained"
        max_proposals = self.proposals.max_proposals
        if self.proposals.count_last_rejected() >= max_proposals:
            return f"the last {max_proposals} proposals were infeasible: {progress}"
        if not self.proposals.is_space_enumerated:
            return f"the sampler proposes no new configuration: {progress}"
        configurations = [trial for trial in self.trials.candidates()
                          if trial.is_in_space and trial.state not in REJECTED_STATES]
        n_trained = sum(trial.state == State.COMPLETE for trial in configurations)
        return (f"the space has no further configurations: {n_trained} of {len(configurations)} "
                f"configurations trained ({format_count(self.spec.trials, 'candidate')} requested)")

    def _start(self, trial: Trial) -> TrainingJob:
        """Write the architecture and the job of ``trial``, and log its start."""
        folder = self.study.trial_folder(trial)
        for name in ("architecture.yaml", "job.json"):
            _move_folder_away(folder / name)
        write_text(folder / "architecture.yaml", self.proposals.architecture(trial).to_yaml())
        job = self.proposals.next_job(trial)
        write_json(folder / "job.json", job)
        trial = self._append(EventType.STARTED, trial, attempt=job["attempt"])
        self.callback.started(trial)
        return TrainingJob(trial.number, folder)

    def _uncollected_file(self, trial: Trial) -> Path | None:
        """Return the file of a worker that is not collected: result or next rung."""
        folder = self.study.trial_folder(trial)
        files = (folder / name for name in ("result.json", rung_file(len(trial.rungs))))
        return next((file for file in files if file.exists()), None)

    def log_crash(self, crash: JobCrashed) -> int:
        """Log a crash; return the number of crashes so far that are the trial's own fault."""
        trial = self.trials[crash.job.trial]
        return self._append(EventType.CRASHED, trial, attempt=trial.attempts, reason=crash.reason,
                            is_own_fault=crash.cause == CRASH_FAULT).crashes

    def repeat(self, crash: JobCrashed) -> None:
        """Start the next attempt of a trial."""
        self.callback.message(
            f"trial {crash.job.trial}: its worker died ({crash.reason}); restarted")
        self.submit(self._start(self.trials[crash.job.trial]))

    def fail(self, job: TrainingJob, reason: str) -> None:
        self._finish(self.trials[job.trial], None, State.FAILED, reason=reason)

    def collect(self, job: TrainingJob) -> None:
        """Record the result or the rung of a trial whose worker is done."""
        trial = self.trials[job.trial]
        file = self._uncollected_file(trial)
        assert file is not None, "a worker that is done has written a file"
        with reading_result(file):
            result = read_json(file, Result)
            metrics = result.metrics
            loss = metrics.get(validation_loss_name(trial.config))
            rung = None if file.name == RESULT_FILE else msgspec.convert(
                {**metrics, "loss": loss}, Rung)
        if rung is not None:
            facts = {**msgspec.to_builtins(rung), "efforts": msgspec.to_builtins(result.efforts)}
            self.callback.paused(
                self._append(EventType.RUNG, trial, rung=len(trial.rungs), **facts,
                             phases=result.phases))
            return
        try:
            if result.state != "complete":
                raise UserError(result.reason or "training failed", code="training-failed")
            scores = objective_values(self.spec.objectives, metrics, trial.costs)
        except UserError as error:
            self._finish(trial, result, State.FAILED, reason=str(error))
        else:
            self._finish(trial, result, State.COMPLETE, values=scores)

    def _finish(self, trial: Trial, result: Result | None, state: State, **end: Any) -> None:
        """Write the record, then the event, then tell Optuna and the callbacks."""
        seconds = (result.total_seconds or result.seconds or None) if result else None
        efforts = result.efforts if result else trial.efforts
        phases = result.phases if result else trial.phases
        ended_trial = trial.replace(**{"state": state, "reason": "", "wall_seconds": seconds,
                                       "efforts": efforts, "phases": phases, **end})
        record_file = self.study.trial_folder(trial) / "record.json"
        _move_folder_away(record_file)
        write_json(record_file, make_record(ended_trial, self.study.record_fields, result))
        self.callback.ended(self._append(EventType.ENDED, trial, state=state, wall_seconds=seconds,
                                         efforts=msgspec.to_builtins(efforts), phases=phases,
                                         **end))

    def _append(self, event_type: EventType, trial: Trial, **facts: Any) -> Trial:
        """Append an event to the log; return the trial after it."""
        trial = self.study.append(event_type, trial.number, **facts)
        self.search.update(trial)
        return trial


def _move_folder_away(file: Path) -> None:
    """Rename a folder in the place of a file to ``*.damaged``, as damaged results are."""
    if file.is_dir():
        file.replace(file.with_suffix(".damaged"))
