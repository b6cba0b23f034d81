"""Trainings of a fairness audit, run by the study's executors and resumed from what its folder holds."""

import shutil
from collections import Counter
from collections.abc import Callable

from msgspec import to_builtins

from scalesearch.errors import UserError
from scalesearch.files import DiskFullError, write_json
from scalesearch.report.fairness import AuditRun, Fairness, describe_option
from scalesearch.study.executors.base import CRASH_DISK_FULL, CRASH_FAULT, JobCrashed, Runner, TrainingJob
from scalesearch.study.results.audit import (
    AUDIT_FOLDER,
    FINDINGS_FILE,
    PLAN_FILE,
    AuditPlan,
    AuditSettings,
    audit_findings,
    make_plan,
    read_plan,
    runs_of_architecture,
    study_job,
)
from scalesearch.study.results.results import Results
from scalesearch.train.result import RESULT_FILE

MAX_ATTEMPTS = 3  # of a training whose worker dies


def load_or_make_plan(results: Results, settings: AuditSettings) -> AuditPlan:
    """The plan of the study's audit: the one that was begun, or a new one.

    Raises:
        UserError: another audit was begun, or the study has nothing to audit.
    """
    there = read_plan(results.study.folder)
    folder = results.study.folder / AUDIT_FOLDER
    if there is not None and there.settings != settings:
        raise UserError(f"{folder}: an audit with other settings was begun here: {there.settings}. "
                        "Give the same to go on, or move that folder away", code="audit-exists")
    return there or make_plan(results, settings)


def run_audit(results: Results, plan: AuditPlan, runner: Runner,
              report: Callable[[str], object]) -> Fairness:
    """Trains what ``plan`` still lacks, and returns the findings.

    Raises:
        UserError: the study is running, or the workers are gone; the audit can be gone on with.
        DiskFull: likewise.
    """
    study = results.study
    with study.exclusive():
        write_json(study.folder / AUDIT_FOLDER / PLAN_FILE, to_builtins(plan))
        try:
            _AuditRunner(results, plan, runner, report).run()
        finally:
            runner.stop()
        found = audit_findings(results, plan)
        assert found is not None, "there is a plan"
        write_json(study.folder / AUDIT_FOLDER / FINDINGS_FILE, found.to_json())
    return found


class _AuditRunner:
    """Trainings of an audit under way."""

    def __init__(self, results: Results, plan: AuditPlan, runner: Runner,
                 report: Callable[[str], object]) -> None:
        self.study = results.study
        self.plan = plan
        self.runner = runner
        self.report = report
        self.metric = results.study.meta.main_metric
        self.job_template = study_job(results.study)
        self.numbers = {(member.folder, option): at for at, (member, option) in enumerate(
            (member, option) for member in plan.architectures for option in plan.options)}
        self.running: dict[int, AuditRun] = {}
        self.crashes: Counter[int] = Counter()

    def run(self) -> None:
        """Trains until nothing is due."""
        while self._submit() or self.running:
            for event in self.runner.poll(0.5):
                training = self.running.pop(event.job.trial)
                if isinstance(event, JobCrashed):
                    self._crashed(event)
                self.report(f"{self._stretches_done()} of at most {self.plan.stretches} stretches "
                            f"of training; last: {training.architecture}, "
                            f"{describe_option(training.option)}")

    def _submit(self) -> bool:
        """Gives work to idle workers; returns whether there was any."""
        before = len(self.running)
        for member in self.plan.architectures:
            there = runs_of_architecture(self.plan, member, self.study.folder, self.metric)
            for training, whole in self.plan.due_runs(there):
                number = self.numbers[member.folder, training.option]
                if len(self.running) >= self.runner.slots:
                    return True
                if number in self.running:
                    continue
                place = self.plan.run_folder(self.study.folder, member, training.option)
                place.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.study.folder / "trials" / member.folder / "architecture.yaml",
                                place / "architecture.yaml")
                own = {} if whole else {"rung": 0, "until_share": self.plan.settings.early_stop_share}
                recipe = self.plan.recipe(member, training.option).to_json()
                write_json(place / "job.json",
                           {**self.job_template, "proxies": False, **own, "recipe": recipe})
                self.running[number] = training
                self.runner.submit(TrainingJob(number, place, 1 + self.crashes[number]))
        return len(self.running) > before

    def _crashed(self, event: JobCrashed) -> None:
        """Counts a crash; a training that cannot be had counts as failed."""
        if event.cause == CRASH_DISK_FULL:
            raise DiskFullError(event.reason)
        self.crashes[event.job.trial] += event.cause == CRASH_FAULT
        if not event.can_retry or self.crashes[event.job.trial] >= MAX_ATTEMPTS:
            write_json(event.job.folder / RESULT_FILE,
                       {"state": "failed", "reason": event.reason, "metrics": {}})

    def _stretches_done(self) -> int:
        """Stretches of training that are behind."""
        there = [one for member in self.plan.architectures
                 for one in runs_of_architecture(self.plan, member, self.study.folder, self.metric)]
        return sum((one.rung_loss is not None) + (one.loss is not None) for one in there)
