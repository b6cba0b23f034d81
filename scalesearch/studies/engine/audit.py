"""Training runs of a fairness audit, trained by the study's executor."""

import shutil
from collections.abc import Callable
from dataclasses import asdict

from msgspec import to_builtins

from scalesearch.errors import UserError
from scalesearch.files import read_json, replace_non_finite, write_json
from scalesearch.report.fairness import Fairness, describe_option
from scalesearch.studies.engine.jobs import JobLoop, reading_result
from scalesearch.studies.executors.base import Runner, TrainingJob
from scalesearch.studies.executors.worker import rung_file
from scalesearch.studies.results.audit import (
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
from scalesearch.studies.results.results import Results
from scalesearch.training.result import RESULT_FILE, Result

MAX_ATTEMPTS = 3  # per training run


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
            AuditLoop(results, plan, runner, report).run_jobs()
        finally:
            runner.stop()
        findings = audit_findings(results, plan)
        assert findings is not None, "the plan was written above"
        write_json(study.folder / AUDIT_FOLDER / FINDINGS_FILE,
                   replace_non_finite(asdict(findings)))
    return findings


class AuditLoop(JobLoop):
    """Loop that trains the runs of an audit that are due.

    A job has the number of its architecture and option.
    """

    def __init__(self, results: Results, plan: AuditPlan, runner: Runner,
                 report: Callable[[str], object]) -> None:
        super().__init__(runner, MAX_ATTEMPTS)
        self.study = results.study
        self.plan = plan
        self.report = report
        self.job_template = study_job(results.study)
        self.pairs = [(member, option) for member in plan.architectures for option in plan.options]

    def next_job(self) -> TrainingJob | None:
        """Write the files of the first run that is due and not running."""
        for member in self.plan.architectures:
            runs = runs_of_architecture(self.plan, member, self.study)
            for audit_run, is_whole in self.plan.due_runs(runs):
                number = self.pairs.index((member, audit_run.option))
                if number in self.running:
                    continue
                folder = self.plan.run_folder(self.study.folder, member, audit_run.option)
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.study.folder / "trials" / member.folder / "architecture.yaml",
                                folder / "architecture.yaml")
                pause = {} if is_whole else {"rung": 0,
                                             "until_share": self.plan.settings.early_stop_share}
                recipe = self.plan.recipe(member, audit_run.option).model_dump()
                write_json(folder / "job.json",
                           {**self.job_template, "proxies": False, **pause, "recipe": recipe})
                return TrainingJob(number, folder)
        return None

    def collect(self, job: TrainingJob) -> None:
        """Check the result and report the progress."""
        for name in (RESULT_FILE, rung_file(0)):
            if (job.folder / name).exists():
                with reading_result(job.folder / name):
                    read_json(job.folder / name, Result)
        self._report(job)

    def fail(self, job: TrainingJob, reason: str) -> None:
        write_json(job.folder / RESULT_FILE, {"state": "failed", "reason": reason, "metrics": {}})
        self._report(job)

    def _report(self, job: TrainingJob) -> None:
        """Report the number of finished stretches: to the early stop, and to the end."""
        runs = [audit_run for member in self.plan.architectures
                for audit_run in runs_of_architecture(self.plan, member, self.study)]
        n_done = sum((audit_run.rung_loss is not None) + (audit_run.loss is not None)
                     for audit_run in runs)
        member, option = self.pairs[job.trial]
        self.report(f"{n_done} of at most {self.plan.stretches} stretches of training; last: "
                    f"{member.folder}, {describe_option(option)}")
