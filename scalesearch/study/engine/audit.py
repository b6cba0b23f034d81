"""Trainings of a fairness audit, run by the study's executors and resumed from what its folder holds."""

import shutil
from collections import Counter
from collections.abc import Callable

from msgspec import to_builtins

from scalesearch.errors import UserError
from scalesearch.files import DiskFullError, write_json
from scalesearch.report.fairness import Fairness, Training, words
from scalesearch.study.executors.base import FAULT, NO_ROOM, Crashed, Job, Runner
from scalesearch.study.results.audit import (
    FINDINGS,
    FOLDER,
    PLAN,
    AuditPlan,
    Settings,
    findings,
    job_of,
    make_plan,
    read_plan,
    trainings_of,
)
from scalesearch.study.results.results import Results
from scalesearch.train.result import RESULT_FILE

ATTEMPTS = 3  # of a training whose worker dies


def plan_of(results: Results, settings: Settings) -> AuditPlan:
    """The plan of the study's audit: the one that was begun, or a new one.

    Raises:
        UserError: another audit was begun, or the study has nothing to audit.
    """
    there, folder = read_plan(results.study.folder), results.study.folder / FOLDER
    if there is not None and there.settings != settings:
        raise UserError(f"{folder}: an audit with other settings was begun here: {there.settings}. Give the same to go "
                        "on, or move that folder away", code="audit-exists")
    return there or make_plan(results, settings)


def audit(results: Results, plan: AuditPlan, runner: Runner, tell: Callable[[str], object]) -> Fairness:
    """Trains what ``plan`` still lacks, and returns the findings.

    Raises:
        UserError: the study is running, or the workers are gone; the audit can be gone on with.
        DiskFull: likewise.
    """
    study = results.study
    with study.owned():
        write_json(study.folder / FOLDER / PLAN, to_builtins(plan))
        try:
            _Audit(results, plan, runner, tell).run()
        finally:
            runner.stop()
        found = findings(results, plan)
        assert found is not None, "there is a plan"
        write_json(study.folder / FOLDER / FINDINGS, found.to_json())
    return found


class _Audit:
    """Trainings of an audit under way."""

    def __init__(self, results: Results, plan: AuditPlan, runner: Runner, tell: Callable[[str], object]) -> None:
        self.study, self.plan, self.runner, self.tell = results.study, plan, runner, tell
        self.metric, self.job = results.study.meta.main_metric, job_of(results.study)
        self.numbers = {(member.folder, option): at for at, (member, option) in enumerate(
            (member, option) for member in plan.members for option in plan.options)}
        self.running: dict[int, Training] = {}
        self.crashes: Counter[int] = Counter()

    def run(self) -> None:
        """Trains until nothing is due."""
        while self._submit() or self.running:
            for event in self.runner.poll(0.5):
                training = self.running.pop(event.job.trial)
                if isinstance(event, Crashed):
                    self._crashed(event)
                self.tell(f"{self._done()} of at most {self.plan.stretches} stretches of training; last: "
                          f"{training.architecture}, {words(training.option)}")

    def _submit(self) -> bool:
        """Gives work to idle workers; returns whether there was any."""
        before = len(self.running)
        for member in self.plan.members:
            there = trainings_of(self.plan, member, self.study.folder, self.metric)
            for training, whole in self.plan.due(there):
                number = self.numbers[member.folder, training.option]
                if len(self.running) >= self.runner.slots:
                    return True
                if number in self.running:
                    continue
                place = self.plan.place(self.study.folder, member, training.option)
                place.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.study.folder / "trials" / member.folder / "architecture.yaml",
                                place / "architecture.yaml")
                own = {} if whole else {"rung": 0, "until": self.plan.settings.until}
                recipe = self.plan.recipe(member, training.option).to_json()
                write_json(place / "job.json", {**self.job, "proxies": False, **own, "recipe": recipe})
                self.running[number] = training
                self.runner.submit(Job(number, place, 1 + self.crashes[number]))
        return len(self.running) > before

    def _crashed(self, event: Crashed) -> None:
        """Counts a crash; a training that cannot be had counts as failed."""
        if event.kind == NO_ROOM:
            raise DiskFullError(event.reason)
        self.crashes[event.job.trial] += event.kind == FAULT
        if not event.again or self.crashes[event.job.trial] >= ATTEMPTS:
            write_json(event.job.folder / RESULT_FILE, {"state": "failed", "reason": event.reason, "metrics": {}})

    def _done(self) -> int:
        """Stretches of training that are behind."""
        there = [one for member in self.plan.members
                 for one in trainings_of(self.plan, member, self.study.folder, self.metric)]
        return sum((one.rung is not None) + (one.loss is not None) for one in there)
