"""The loop of a study: ask, evaluate, train, record, tell. One process; what it decides is on disk before it acts.

The order of durability makes ``kill -9`` at any moment harmless: the proposal is in the event log before its folder is
made; the folder holds architecture and job before training starts; the worker writes checkpoints and then
``result.json``; the driver writes the record, then the event, and only then tells Optuna and the callbacks. On restart,
every incomplete step is resumed from its last durable state.
"""

import json
from collections.abc import Mapping
from typing import Any

from optuna.samplers import BaseSampler

from scalesearch.errors import UserError
from scalesearch.files import DiskFull, write_json, write_text
from scalesearch.schedule.scheduler import NEW, Scheduler
from scalesearch.study.config.objectives import values
from scalesearch.study.engine.proposals import REJECTED, Proposals
from scalesearch.study.executors.base import FAULT, NO_ROOM, Done, Event, Job, Runner
from scalesearch.study.executors.worker import rung_file
from scalesearch.study.optuna_sync.attributes import NUMBER
from scalesearch.study.replicates.summary import describe_end, propose_replicate
from scalesearch.study.trials.callback import Callback
from scalesearch.study.trials.compute import spent
from scalesearch.study.trials.plan import Plan
from scalesearch.study.trials.record import make_record
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Kind, Origin, State, Trial

SLACK = 1e-9  # of compute: shares of full trainings are added up as floats


class Driver:
    """Runs ``plan`` to its end, from what ``study`` holds. ``sampler`` is None in a study of rows."""

    def __init__(self, plan: Plan, study: StudyDir, sampler: BaseSampler | None, runner: Runner,
                 callback: Callback) -> None:
        self.plan, self.study, self.runner, self.callback = plan, study, runner, callback
        self.trials = study.trials
        self.proposals = Proposals(plan, study, sampler, callback)
        self.search = self.proposals.search
        self.scheduler = Scheduler(plan.rungs, plan.objectives)
        self._exhausted = ""

    def run(self) -> str:
        """Trains until the plan is fulfilled or proposals are exhausted; returns why it ended.

        Raises:
            KeyboardInterrupt: after the workers have been stopped; the study can be resumed.
            DiskFull: there is no room where the study, or a worker, is; what finished is safe, and it can be resumed.
            UserError: too many trials failed to go on, or the workers are gone; likewise.
        """
        try:
            self.recover()
            while self._dispatch() or self.trials.having(State.PENDING):
                for event in self.runner.poll(0.5):
                    self._on_event(event)
                self.callback.update()
            ended = self._exhausted or self._trained()
            return ended + describe_end(self.trials, self.plan.objectives, self.plan.seeds)
        finally:
            self.runner.stop()
            self.callback.close()

    def recover(self) -> None:
        """Collects results that nobody recorded, and starts again what was in training."""
        for trial in self.trials.having(State.PENDING):
            if self._left_something(trial):
                self._collect(trial)
            else:
                self.callback.message(f"trial {trial.number} goes on from its last checkpoint")
                self._submit(trial)
        last = self.trials.candidates()[-self.plan.max_proposals :]
        if self.trials.replicates() and all(trial.state in REJECTED for trial in last):
            self._exhausted = self._why_exhausted()  # or else the search would go on amid the replicates

    def _dispatch(self) -> bool:
        """Gives work to idle workers; returns whether anything was started."""
        started = False
        while len(self.trials.having(State.PENDING)) < self.runner.slots:
            trial = (self._next() if not self._exhausted and self._wanted() else None) or self._replicate()
            if trial is None:
                break
            self._submit(trial)
            started = True
        return started

    def _next(self) -> Trial | None:
        """Chooses a free worker's trial. In this order: a reference, an enqueued trial, a paused one or a new one."""
        if (trial := self.proposals.reference()) is not None:
            return trial
        if self._left() <= SLACK:
            return None  # the last of the references was none to train
        if (trial := self.proposals.enqueued()) is not None:
            return trial
        chosen = self.scheduler.next(self.search.history(), self._left())
        if chosen is NEW and (trial := self.proposals.sampled()) is None:
            # Where nothing new is found, paused trials may still be trained on.
            chosen = self.scheduler.next(self.search.history(), self._left(), exhausted=True)
            self._exhausted = "" if chosen else self._why_exhausted()
        return trial if chosen is NEW or chosen is None else self.trials[chosen.user_attrs[NUMBER]]

    def _replicate(self) -> Trial | None:
        """Announces the next replicate, once the search is over."""
        trial = propose_replicate(self.study, self.plan.objectives, self.plan.seeds, self.study.meta.seed)
        if trial is not None:
            self.callback.proposed(trial)
        return trial

    def _wanted(self) -> bool:
        """Whether the search goes on. Raises UserError where too much of it failed."""
        failed = self.trials.having(State.FAILED)
        if not self.plan.trials and len(failed) > 2 and not self.trials.having(State.COMPLETE):
            raise UserError(f"the first {len(failed)} rows failed, the last with: {failed[-1].reason}",
                            code="too-many-failed")
        if self._count(State.FAILED) > self.plan.trials // 2 + 3:
            raise UserError(f"{self._count(State.FAILED)} candidates failed, the last with: {failed[-1].reason}",
                            code="too-many-failed")
        return len(self.trials.of(Origin.REFERENCE)) < len(self.plan.references) or self._left() > SLACK

    def _left(self) -> float:
        """Full trainings' worth of compute."""
        return self.plan.trials - spent(self.trials, self.plan.rungs)

    def _count(self, *states: State) -> int:
        return sum(trial.origin.charged for trial in self.trials.having(*states))

    def _trained(self) -> str:
        if self.plan.trials:
            return f"{self._count(State.COMPLETE)} candidates trained"
        rows = [self.trials.outcome(trial).state for trial in self.trials.of(Origin.REFERENCE)]
        return f"{rows.count(State.COMPLETE)} of {len(rows)} rows trained"

    def _why_exhausted(self) -> str:
        last = self.trials.candidates()[-self.plan.max_proposals :]
        missed = sum(trial.state == State.INFEASIBLE for trial in last)
        return (f"nothing new in {self.plan.max_proposals} proposals ({missed} infeasible, {len(last) - missed} "
                f"duplicates): {self._count(State.COMPLETE)} of {self.plan.trials} candidates trained")

    def _submit(self, trial: Trial) -> None:
        folder = self.study.trial_folder(trial)
        if not (folder / "architecture.yaml").exists():
            write_text(folder / "architecture.yaml", self.proposals.architecture(trial).to_yaml())
        attempt = trial.attempts + 1
        write_json(folder / "job.json", {"trial": trial.number, "attempt": attempt, **self.plan.job,
                                         **self.proposals.own_job(trial)})
        trial = self._append(Kind.STARTED, trial, attempt=attempt)
        self.callback.started(trial)
        self.runner.submit(Job(trial.number, folder, trial.attempts))

    def _left_something(self, trial: Trial) -> bool:
        """Whether a worker has left what nobody collected yet."""
        folder = self.study.trial_folder(trial)
        return any((folder / name).exists() for name in ("result.json", rung_file(len(trial.rungs))))

    def _on_event(self, event: Event) -> None:
        trial = self.trials[event.job.trial]
        if isinstance(event, Done):
            self._collect(trial)
            return
        trial = self._append(Kind.CRASHED, trial, attempt=event.job.attempt, reason=event.reason,
                             counts=event.kind == FAULT)
        if event.kind == NO_ROOM:
            raise DiskFull(event.reason)
        if event.again and trial.crashes < self.plan.attempts:
            self.callback.message(f"trial {trial.number}: its worker died ({event.reason}); started again")
            self._submit(trial)
        else:
            self._finish(trial, {"state": State.FAILED, "reason": event.reason}, {})

    def _collect(self, trial: Trial) -> None:
        """Collects the result that ``trial`` has left, or its loss at a rung."""
        folder = self.study.trial_folder(trial)
        if not (folder / "result.json").exists():
            self._pause(trial, json.loads((folder / rung_file(len(trial.rungs))).read_text()))
            return
        text = (folder / "result.json").read_text()
        result = json.loads(text, parse_constant=lambda _: None)  # NaN and Infinity say nothing
        end = {"wall_seconds": result.get("total_seconds") or result.get("seconds")}
        try:
            if result["state"] != "complete":
                raise UserError(result.get("reason") or "training failed", code="training-failed")
            end |= {"state": State.COMPLETE, "values": values(self.plan.objectives, result["metrics"], trial.costs)}
        except UserError as error:
            end |= {"state": State.FAILED, "reason": str(error)}
        self._finish(trial, end, result)

    def _pause(self, trial: Trial, left: Mapping[str, Any]) -> None:
        facts = {key: left["metrics"].get(key) for key in ("step", "tokens", "share", "cpu_seconds", "seconds")}
        trial = self._append(Kind.RUNG, trial, rung=len(trial.rungs), loss=left["metrics"]["valid_loss"], **facts)
        self.callback.paused(trial)

    def _finish(self, trial: Trial, end: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Record, then event, then Optuna: never announced before it is safe."""
        ended = trial.after({"event": Kind.ENDED, **end})
        write_json(self.study.trial_folder(trial) / "record.json", make_record(ended, self.plan.shared, result))
        self.callback.ended(self._append(Kind.ENDED, trial, **end))

    def _append(self, kind: Kind, trial: Trial, **facts: Any) -> Trial:
        trial = self.study.append(kind, trial.number, **facts)
        self.search.update(trial)
        return trial
