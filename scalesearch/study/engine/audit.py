"""Training runs of a fairness audit: submitted to the study's executor, resumed from its folder."""

import shutil
from collections import Counter
from collections.abc import Callable

from msgspec import to_builtins

from scalesearch.errors import UserError
from scalesearch.files import DiskFullError, write_json
from scalesearch.report.fairness import AuditRun, Fairness, describe_option
from scalesearch.study.executors.base import (
    CRASH_DISK_FULL,
    CRASH_FAULT,
    JobCrashed,
    Runner,
    TrainingJob,
)
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

MAX_ATTEMPTS = 3  # per training run whose worker dies


def load_or_make_plan(results: Results, settings: AuditSettings) -> AuditPlan:
    """Load the plan of an audit that has started, or make a new plan.

    Raises:
        UserError: an audit with other settings has started, or the study has nothing to audit.
    """
    plan = read_plan(results.study.folder)
    folder = results.study.folder / AUDIT_FOLDER
    if plan is not None and plan.settings != settings:
        raise UserError(f"{folder}: an audit with other settings was started here: "
                        f"{plan.settings}. Use the same settings to resume it, or move that "
                        "folder away", code="audit-exists")
    return plan or make_plan(results, settings)


def run_audit(results: Results, plan: AuditPlan, runner: Runner,
              report: Callable[[str], object]) -> Fairness:
    """Train the missing runs of ``plan`` and return the findings.

    Raises:
        UserError: the study is running, or the workers are gone. The audit can be resumed.
        DiskFullError: the disk is full. The audit can be resumed.
    """
    study = results.study
    with study.exclusive():
        write_json(study.folder / AUDIT_FOLDER / PLAN_FILE, to_builtins(plan))
        try:
            _AuditRunner(results, plan, runner, report).run()
        finally:
            runner.stop()
        findings = audit_findings(results, plan)
        assert findings is not None, "the plan was written above"
        write_json(study.folder / AUDIT_FOLDER / FINDINGS_FILE, findings.to_json())
    return findings


class _AuditRunner:
    """Submits the runs of an audit that are due and handles their events."""

    def __init__(self, results: Results, plan: AuditPlan, runner: Runner,
                 report: Callable[[str], object]) -> None:
        self.study = results.study
        self.plan = plan
        self.runner = runner
        self.report = report
        self.metric = results.study.meta.main_metric
        self.job_template = study_job(results.study)
        pairs = ((member, option) for member in plan.architectures for option in plan.options)
        self.job_numbers = {(member.folder, option): number
                            for number, (member, option) in enumerate(pairs)}
        self.running: dict[int, AuditRun] = {}
        self.crashes: Counter[int] = Counter()

    def run(self) -> None:
        """Train until no run is due."""
        while self._submit() or self.running:
            for event in self.runner.poll(0.5):
                audit_run = self.running.pop(event.job.trial)
                if isinstance(event, JobCrashed):
                    self._handle_crash(event)
                self.report(f"{self._stretches_done()} of at most {self.plan.stretches} stretches "
                            f"of training; last: {audit_run.architecture}, "
                            f"{describe_option(audit_run.option)}")

    def _submit(self) -> bool:
        """Submit due runs to idle workers; return whether any run was due."""
        before = len(self.running)
        for member in self.plan.architectures:
            runs = runs_of_architecture(self.plan, member, self.study.folder, self.metric)
            for audit_run, is_whole in self.plan.due_runs(runs):
                number = self.job_numbers[member.folder, audit_run.option]
                if len(self.running) >= self.runner.slots:
                    return True
                if number in self.running:
                    continue
                folder = self.plan.run_folder(self.study.folder, member, audit_run.option)
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.study.folder / "trials" / member.folder / "architecture.yaml",
                                folder / "architecture.yaml")
                pause = {} if is_whole else {"rung": 0,
                                             "until_share": self.plan.settings.early_stop_share}
                recipe = self.plan.recipe(member, audit_run.option).to_json()
                write_json(folder / "job.json",
                           {**self.job_template, "proxies": False, **pause, "recipe": recipe})
                self.running[number] = audit_run
                self.runner.submit(TrainingJob(number, folder, 1 + self.crashes[number]))
        return len(self.running) > before

    def _handle_crash(self, event: JobCrashed) -> None:
        """Count a crash; after the last attempt, record the run as failed."""
        if event.cause == CRASH_DISK_FULL:
            raise DiskFullError(event.reason)
        self.crashes[event.job.trial] += event.cause == CRASH_FAULT
        if not event.can_retry or self.crashes[event.job.trial] >= MAX_ATTEMPTS:
            write_json(event.job.folder / RESULT_FILE,
                       {"state": "failed", "reason": event.reason, "metrics": {}})

    def _stretches_done(self) -> int:
        """Number of stretches of training (to the early stop, or to the end) that are done."""
        runs = [audit_run for member in self.plan.architectures
                for audit_run in runs_of_architecture(self.plan, member, self.study.folder,
                                                      self.metric)]
        return sum((audit_run.rung_loss is not None) + (audit_run.loss is not None)
                   for audit_run in runs)
