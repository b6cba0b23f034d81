"""The loop of a study: propose, bill, train, record, tell. One process; what it decides is on disk before it acts.

Order of durability, which is what makes ``kill -9`` at any moment harmless: the proposal is in the event log before
its folder is made; the folder holds architecture and job before training starts; the worker writes checkpoints and
then ``result.json``; the driver writes the record, then the event, and only then tells Optuna. Whatever is found
half done on the way up is done from where it stands.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

from scalesearch.errors import UserError
from scalesearch.files import DiskFull, write_json, write_text
from scalesearch.samplers.base import Proposer
from scalesearch.schedule.scheduler import Start, Strategy, TrainOn
from scalesearch.study.config.objectives import values
from scalesearch.study.engine.proposals import Entries
from scalesearch.study.executors.base import FAULT, NO_ROOM, Done, Event, Job, Runner
from scalesearch.study.executors.worker import rung_file
from scalesearch.study.monitor.console import View
from scalesearch.study.optuna_sync.retrying import SteadyMirror
from scalesearch.study.replicates.summary import another_seed, describe_end
from scalesearch.study.trials import trials as states
from scalesearch.study.trials.history import goals_of, history_of, spent
from scalesearch.study.trials.plan import Plan
from scalesearch.study.trials.record import make_record
from scalesearch.study.trials.study_dir import Store
from scalesearch.study.trials.trials import (
    CHARGED,
    COMPLETE,
    DUPLICATE,
    ENQUEUED,
    FAILED,
    INFEASIBLE,
    PENDING,
    REFERENCE,
    SEED,
    Trial,
)


class Driver:
    """Runs ``plan`` to its end over what ``store`` already holds; ``mirror`` is Optuna's copy of it."""

    def __init__(self, plan: Plan, store: Store, proposer: Proposer, mirror: SteadyMirror, runner: Runner,
                 view: View) -> None:
        self.plan, self.store, self.mirror, self.runner, self.view = plan, store, mirror, runner, view
        self.ledger, self.goals = store.ledger, goals_of(plan.objectives)
        self.entries = Entries(plan, store, mirror, view)
        self.strategy = Strategy(proposer, self.entries.judge, plan.rungs, self.goals, plan.asks)
        self._exhausted = ""

    def run(self) -> str:
        """Trains until the plan is fulfilled or nothing new can be found; returns why it ended.

        Raises:
            KeyboardInterrupt: after the workers have been stopped; the study can be resumed.
            DiskFull: there is no room where the study, or a worker, is; what finished is safe, and it can be resumed.
            UserError: too many candidates failed to go on, or the workers are gone; likewise.
        """
        try:
            self.recover()
            while self._fill() or self.ledger.having(PENDING):
                for event in self.runner.poll(0.5):
                    self._take(event)
                self.mirror.update()
                self.view.update()
            ended = self._exhausted or self._trained()
            return ended + describe_end(self.ledger, self.goals, self.plan.seeds)
        finally:
            self.runner.stop()

    def recover(self) -> None:
        """Takes in results that nobody recorded, and starts again what was in training."""
        for trial in self.ledger.having(PENDING):
            if self._left_something(trial):
                self._harvest(trial)
            else:
                self.view.say(f"trial {trial.number} goes on from its last checkpoint")
                self._submit(trial)
        last = self.ledger.searched()[-self.plan.asks :]
        if self.ledger.replicated() and all(trial.state in (INFEASIBLE, DUPLICATE) for trial in last):
            self._exhausted = self._why_nothing()  # or else the search would go on amid the further seeds

    def _fill(self) -> bool:
        """Proposes while workers are idle; returns whether anything was started."""
        started = False
        while len(self.ledger.having(PENDING)) < self.runner.slots:
            trial = (self._next() if not self._exhausted and self._wanted() else None) or self._confirm()
            if trial is None:
                break
            self._submit(trial)
            started = True
        return started

    def _trained(self) -> str:
        if self.plan.trials:
            return f"{self._count(COMPLETE)} candidates trained"
        rows = [self.ledger.outcome(trial).state for trial in self.ledger.trials.values() if trial.origin == REFERENCE]
        return f"{rows.count(COMPLETE)} of {len(rows)} rows trained"

    def _wanted(self) -> bool:
        failed = self.ledger.having(FAILED)
        if not self.plan.trials and len(failed) > 2 and not self.ledger.having(COMPLETE):
            raise UserError(f"the first {len(failed)} rows failed, the last with: {failed[-1].reason}")
        if self._count(FAILED) > self.plan.trials // 2 + 3:
            last = self.ledger.having(FAILED)[-1]
            raise UserError(f"{self._count(FAILED)} candidates failed, the last with: {last.reason}")
        return self.entries.next_reference() is not None or self._left() > 1e-9

    def _count(self, *state: str) -> int:
        return sum(trial.origin in CHARGED for trial in self.ledger.having(*state))

    def _next(self) -> Trial | None:
        """What a free worker trains: a reference, a new candidate, or a paused one that goes on."""
        while (reference := self.entries.next_reference()) is not None:
            trial = self.entries.refer(reference)
            if trial.state == PENDING:
                return trial
        if self._left() <= 1e-9:
            return None  # the last of the references was none to train
        for params in self.plan.first[sum(trial.origin == ENQUEUED for trial in self.ledger.trials.values()) :]:
            seen = self.entries.judge(self.ledger.next_number(), params)
            if (trial := self.entries.propose(seen, ENQUEUED)).state == PENDING:
                return trial
        chosen = self.strategy.next(history_of(self.ledger, self.goals), self._left())
        if isinstance(chosen, TrainOn):
            return self.ledger.searched()[chosen.seen.number]
        return self._begin(chosen) if chosen else None

    def _left(self) -> float:
        """Full trainings' worth of compute."""
        return self.plan.trials - spent(self.ledger, self.plan.rungs)

    def _confirm(self) -> Trial | None:
        """What is trained with a further seed, once the search is over."""
        trial = another_seed(self.store, self.goals, self.plan.seeds, int(self.plan.facts.get("seed", 1)))
        if trial is not None:
            self.view.proposed(trial)
        return trial

    def _begin(self, start: Start) -> Trial | None:
        """Announces what was proposed, in its order; the last of it is to be trained, unless nothing new was found."""
        trial = None
        for seen in (*start.rejected, *([start.seen] if start.seen else [])):
            trial = self.entries.propose(seen)
        if start.seen is None:
            self._exhausted = self._why_nothing()
        return trial if start.seen else None

    def _why_nothing(self) -> str:
        last = self.ledger.searched()[-self.plan.asks :]
        missed = sum(trial.state == INFEASIBLE for trial in last)
        return (f"nothing new in {self.plan.asks} proposals ({missed} infeasible, {len(last) - missed} seen before): "
                f"{self._count(COMPLETE)} of {self.plan.trials} candidates trained")

    def _submit(self, trial: Trial) -> None:
        folder = self.store.trial_folder(trial)
        if not (folder / "architecture.yaml").exists():
            write_text(folder / "architecture.yaml", self.entries.architecture(trial).to_yaml())
        job = {**self.plan.job, **self._own(trial)}
        write_json(folder / "job.json", {"trial": trial.number, "attempt": trial.attempts + 1, **job})
        self.store.append(states.STARTED, trial.number, attempt=trial.attempts + 1)
        self.view.started(trial)
        self.runner.submit(Job(trial.number, folder, trial.attempts))

    def _own(self, trial: Trial) -> dict[str, Any]:
        """What only this job says: its seed, or where it is to pause; references and further seeds go to the end."""
        rung = len(trial.rungs)
        if trial.origin == SEED:
            return {"job": "seed", "of": trial.of, "seed": trial.seed}
        if trial.origin == REFERENCE or rung >= self.plan.rungs.pauses:
            return {}
        return {"rung": rung, "until": self.plan.rungs.shares[rung]}

    def _left_something(self, trial: Trial) -> bool:
        """Whether a worker has left what nobody took in yet."""
        folder = self.store.trial_folder(trial)
        return any((folder / name).exists() for name in ("result.json", rung_file(len(trial.rungs))))

    def _take(self, event: Event) -> None:
        trial = self.ledger.trials[event.job.trial]
        if isinstance(event, Done):
            self._harvest(trial)
            return
        self.store.append(states.CRASHED, trial.number, attempt=event.job.attempt, reason=event.reason,
                          counts=event.kind == FAULT)
        if event.kind == NO_ROOM:
            raise DiskFull(event.reason)
        if event.again and trial.crashes < self.plan.attempts:
            self.view.say(f"trial {trial.number}: its worker died ({event.reason}); started again")
            self._submit(trial)
        else:
            self._end(trial, FAILED, None, event.reason, {})

    def _harvest(self, trial: Trial) -> None:
        """Takes in what ``trial`` has left: its result, or what it had come to at a rung."""
        folder = self.store.trial_folder(trial)
        if not (folder / "result.json").exists():
            self._take_rung(trial, json.loads((folder / rung_file(len(trial.rungs))).read_text()))
            return
        text = (folder / "result.json").read_text()
        result = json.loads(text, parse_constant=lambda _: None)  # NaN and Infinity say nothing
        if result["state"] != "complete":
            self._end(trial, FAILED, None, result.get("reason") or "training failed", result)
            return
        try:
            found = values(self.plan.objectives, result["metrics"], self._cost_of(trial))
        except UserError as error:
            self._end(trial, FAILED, None, str(error), result)
        else:
            self._end(trial, COMPLETE, found, "", result)

    def _take_rung(self, trial: Trial, left: Mapping[str, Any]) -> None:
        facts = {key: left["metrics"].get(key) for key in ("step", "tokens", "share", "cpu_seconds", "seconds")}
        loss = left["metrics"]["valid_loss"]
        self.store.append(states.RUNG, trial.number, rung=len(trial.rungs), loss=loss, **facts)
        self.view.paused(trial)

    def _cost_of(self, trial: Trial) -> Any:
        def lookup(name: str) -> float:
            value: Any = trial.cost
            for part in name.split("."):
                value = value[part]
            return float(value)

        return lookup

    def _end(
        self, trial: Trial, state: str, found: dict[str, float] | None, reason: str, result: Mapping[str, Any]
    ) -> None:
        """Record, then event, then Optuna: never announced before it is safe."""
        trial.state, trial.values, trial.reason = state, found, reason
        answers = self.entries.architecture(trial).answers
        write_json(
            self.store.trial_folder(trial) / "record.json",
            make_record(trial, answers, {**self.plan.facts, "ended": time.time()}, result),
        )
        seconds = result.get("total_seconds") or result.get("seconds")
        facts = {"state": state, "values": found, "reason": reason, "seconds": seconds}
        self.store.append(states.ENDED, trial.number, **facts)
        for twin in (trial, *self.ledger.twins(trial.number)):
            self.mirror.tell(twin.number, found)
        self.view.ended(trial)
