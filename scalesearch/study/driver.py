"""The loop of a study: propose, bill, train, record, tell. One process; what it decides is on disk before it acts.

Order of durability, which is what makes ``kill -9`` at any moment harmless: the proposal is in the event log before
its folder is made; the folder holds architecture and job before training starts; the worker writes checkpoints and
then ``result.json``; the driver writes the record, then the event, and only then tells Optuna. Whatever is found
half done on the way up is done from where it stands.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scalesearch.errors import UserError
from scalesearch.files import write_json, write_text
from scalesearch.space.architecture import Architecture
from scalesearch.study import ledger as states
from scalesearch.study.bill import Bill, Candidate
from scalesearch.study.ledger import COMPLETE, DUPLICATE, FAILED, INFEASIBLE, PENDING, Trial
from scalesearch.study.live import View
from scalesearch.study.objectives import Objective, values
from scalesearch.study.proposer import Proposer
from scalesearch.study.record import make_record
from scalesearch.study.runners.base import Done, Event, Job, Runner
from scalesearch.study.store import Store

PATIENCE = 10  # proposals in a row that were seen before, until a random one is asked for


@dataclass(frozen=True)
class Reference:
    """An architecture that the study file names: trained first, labelled in plots.

    ``asked`` holds its answers where the space could have proposed it, else None.
    """

    label: str
    architecture: Architecture
    asked: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Plan:
    """What a driver works off.

    Attributes:
        trials: candidates of the proposer to train; references come on top.
        job: what every ``job.json`` says.
        facts: what every record says.
        attempts: how often a candidate whose worker dies is started at most.
        asks: proposals in a row that bring nothing new, after which the study ends.
    """

    bill: Bill
    objectives: tuple[Objective, ...]
    trials: int
    job: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    references: tuple[Reference, ...] = ()
    attempts: int = 3
    asks: int = 1000


class Driver:
    """Runs ``plan`` to its end over what ``store`` already holds."""

    def __init__(self, plan: Plan, store: Store, proposer: Proposer, runner: Runner, view: View) -> None:
        self.plan, self.store, self.proposer, self.runner, self.view = plan, store, proposer, runner, view
        self.ledger = store.ledger
        self._exhausted = ""

    def run(self) -> str:
        """Trains until the plan is fulfilled or nothing new can be found; returns why it ended.

        Raises:
            KeyboardInterrupt: after the workers have been stopped; the study can be resumed.
            UserError: too many candidates failed to go on.
        """
        try:
            self.recover()
            while self._fill() or self.ledger.having(PENDING):
                for event in self.runner.poll(0.5):
                    self._take(event)
                self.view.update()
            return self._exhausted or f"{self._count(COMPLETE)} candidates trained"
        finally:
            self.runner.stop()

    def recover(self) -> None:
        """Takes in results that nobody recorded, and starts again what was in training."""
        for trial in self.ledger.having(PENDING):
            if (self.store.trial_folder(trial) / "result.json").exists():
                self._harvest(trial)
            else:
                self.view.say(f"trial {trial.number} goes on from its last checkpoint")
                self._submit(trial)

    def _fill(self) -> bool:
        """Proposes while workers are idle; returns whether anything was started."""
        started = False
        while not self._exhausted and len(self.ledger.having(PENDING)) < self.runner.slots and self._wanted():
            trial = self._propose()
            if trial is None:
                break
            self._submit(trial)
            started = True
        return started

    def _wanted(self) -> bool:
        if self._count(FAILED) > self.plan.trials // 2 + 3:
            last = self.ledger.having(FAILED)[-1]
            raise UserError(f"{self._count(FAILED)} candidates failed, the last with: {last.reason}")
        return self._next_reference() is not None or self._count(COMPLETE, PENDING) < self.plan.trials

    def _count(self, *state: str) -> int:
        return sum(trial.origin == "proposer" for trial in self.ledger.having(*state))

    def _propose(self) -> Trial | None:
        """The next candidate worth training, or None when none was found in ``plan.asks`` proposals."""
        repeats = 0
        for _ in range(self.plan.asks):
            reference = self._next_reference()
            if reference:
                trial = self._refer(reference)
            else:
                trial = self._ask(explore=repeats >= PATIENCE)
            if trial.state == PENDING:
                return trial
            repeats = repeats + 1 if trial.state == DUPLICATE else 0
            self.view.update()
        self._exhausted = self._why_nothing()
        return None

    def _why_nothing(self) -> str:
        last = list(self.ledger.trials.values())[-self.plan.asks :]
        missed = sum(trial.state == INFEASIBLE for trial in last)
        return (f"nothing new in {self.plan.asks} proposals ({missed} infeasible, {len(last) - missed} seen before): "
                f"{self._count(COMPLETE)} of {self.plan.trials} candidates trained")

    def _ask(self, explore: bool) -> Trial:
        number = self.ledger.next_number()
        asked = self.proposer.ask(number, explore)
        candidate = self.plan.bill.judge(asked)
        first = self._seen(candidate)
        state = PENDING if candidate.feasible else INFEASIBLE
        trial = self._announce(number, candidate, DUPLICATE if first else state, of=first and first.number)
        self.proposer.judge(number, trial.slacks)
        if first and first.state in (COMPLETE, FAILED):
            self.proposer.tell(number, first.values)
        return trial

    def _seen(self, candidate: Candidate) -> Trial | None:
        known = candidate.feasible and candidate.architecture
        return self.ledger.first(known.id) if known else None

    def _next_reference(self) -> Reference | None:
        used = sum(trial.origin == "reference" for trial in self.ledger.trials.values())
        return self.plan.references[used] if used < len(self.plan.references) else None

    def _refer(self, reference: Reference) -> Trial:
        candidate = self.plan.bill.judge_architecture(reference.architecture, reference.asked or {})
        first = self.ledger.first(reference.architecture.id)
        trial = self._announce(
            self.ledger.next_number(),
            candidate,
            DUPLICATE if first else PENDING,
            of=first and first.number,
            origin="reference",
            label=reference.label,
            in_space=reference.asked is not None,
        )
        if trial.in_space:
            self.proposer.add(trial, self.ledger.outcome(trial))
        return trial

    def _announce(self, number: int, candidate: Candidate, state: str, **more: Any) -> Trial:
        identity = candidate.architecture.id if candidate.architecture else None
        cost = candidate.cost.to_json() if candidate.cost else None
        facts = {"state": state, "asked": dict(candidate.asked), "answers": dict(candidate.answers),
                 "slacks": dict(candidate.slacks), "id": identity, "cost": cost, "reason": candidate.reason}
        trial = self.store.append(states.PROPOSED, number, **facts, **more)
        self.view.proposed(trial)
        return trial

    def _architecture(self, trial: Trial) -> Architecture:
        if trial.origin == "reference":
            return next(r.architecture for r in self.plan.references if r.label == trial.label)
        architecture = self.plan.bill.judge(trial.asked).architecture
        assert architecture is not None and architecture.id == trial.id, "the space hash was checked before"
        return architecture

    def _submit(self, trial: Trial) -> None:
        folder = self.store.trial_folder(trial)
        if not (folder / "job.json").exists():
            write_text(folder / "architecture.yaml", self._architecture(trial).to_yaml())
            write_json(folder / "job.json", {"trial": trial.number, **self.plan.job})
        self.store.append(states.STARTED, trial.number, attempt=trial.attempts + 1)
        self.view.started(trial)
        self.runner.submit(Job(trial.number, folder, trial.attempts))

    def _take(self, event: Event) -> None:
        trial = self.ledger.trials[event.job.trial]
        if isinstance(event, Done):
            self._harvest(trial)
            return
        self.store.append(states.CRASHED, trial.number, attempt=event.job.attempt, reason=event.reason)
        if event.again and trial.crashes < self.plan.attempts:
            self.view.say(f"trial {trial.number}: its worker died ({event.reason}); started again")
            self._submit(trial)
        else:
            self._end(trial, FAILED, None, event.reason, {})

    def _harvest(self, trial: Trial) -> None:
        """Takes in what ``result.json`` of ``trial`` says."""
        text = (self.store.trial_folder(trial) / "result.json").read_text()
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
        answers = self._architecture(trial).answers
        write_json(
            self.store.trial_folder(trial) / "record.json",
            make_record(trial, answers, {**self.plan.facts, "ended": time.time()}, result),
        )
        seconds = result.get("total_seconds") or result.get("seconds")
        facts = {"state": state, "values": found, "reason": reason, "seconds": seconds}
        self.store.append(states.ENDED, trial.number, **facts)
        for twin in (trial, *self.ledger.twins(trial.number)):
            self.proposer.tell(twin.number, found)
        self.view.ended(trial)
