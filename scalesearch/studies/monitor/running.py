"""Progress of running trials and the teacher, from the files of workers."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from scalesearch.files import try_read_json
from scalesearch.studies.eta import RunningTrial
from scalesearch.studies.executors import lease
from scalesearch.studies.executors.worker import ProgressFile, ProgressReport
from scalesearch.studies.monitor.format import format_duration, format_percent
from scalesearch.studies.trials.record import JobFile, JobResult
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State, Trial

TEACHER_FOLDER = "teacher"
TRANSLATIONS_FOLDER = "corpus"
SOFT_TARGETS_FOLDER = "soft"  # in the folder of the teacher, as TRANSLATIONS_FOLDER
TEACHER_ACTIVITIES = {"decode": "translating", "soft_targets": "computing soft targets"}
STARTING = "starting"
TRAINING = "training"
SCORING = "scoring"
WAITING = "waiting"
SILENT = "silent"
INTERRUPTED = "interrupted"
# types of reports after the last update before a pause or the end
FINAL_REPORT_TYPES = ("decode", "done")


@dataclass(frozen=True)
class WorkerState:
    """State of the worker that trains in a folder.

    Attributes:
        report: its last report.
        holder: the process of the worker; None if no worker has the folder.
        silence: description of a missing heartbeat; empty if it is recent.
    """

    report: ProgressReport
    holder: lease.LeaseHolder | None
    silence: str

    @classmethod
    def read(cls, folder: Path) -> "WorkerState":
        """Read the files of the worker; incomplete and missing files are ignored."""
        return cls(ProgressFile(folder).read(), lease.read_holder(folder),
                   lease.describe_silence(folder))

    @property
    def is_at_end(self) -> bool:
        """Whether the last update before a pause or the end is done."""
        return self.report.type in FINAL_REPORT_TYPES

    @property
    def status(self) -> str:
        """Status; see :class:`.RunningTrial`."""
        if self.silence:
            return SILENT
        if self.holder is None:
            return WAITING
        if self.is_at_end:
            return SCORING
        return TRAINING if self.report.type else STARTING

    def __str__(self) -> str:
        share = report_share(self.report)
        if self.silence:
            return self.silence
        if self.holder is None:
            return f"{WAITING} for a worker{f', {format_percent(share)} done' if share else ''}"
        if self.report.type == "done":
            return "at the end"
        return describe_progress(self.report) if self.report.type else STARTING


@dataclass(frozen=True)
class RunningTeacher:
    """Progress of a study's teacher.

    Attributes:
        stage: ``waiting``, ``training``, ``translating``, ``soft targets``, ``done`` or ``failed``.
        status_text: description for users.
        share: finished share of the stage, from 0 to 1.
        seconds_left: seconds of training left; None if unknown or in another stage.
    """

    stage: str
    status_text: str
    share: float
    seconds_left: float | None = None

    def __str__(self) -> str:
        return f"{self.stage}, {self.status_text}"


def running_trials(study: StudyDir) -> list[RunningTrial]:
    """Read the progress of all pending trials, in order of their numbers."""
    return [running_trial(study, trial) for trial in study.trials.with_state(State.PENDING)]


def running_trial(study: StudyDir, trial: Trial) -> RunningTrial:
    """Read the progress of ``trial``; incomplete and missing files are ignored."""
    folder = study.trial_folder(trial)
    worker = WorkerState.read(folder)
    if worker.report.type == "done" and trial.rungs:
        # The report was written before the last rung, not by the resumed run.
        worker = replace(worker, report=ProgressReport())
    job = try_read_json(folder / "job.json", JobFile) or JobFile()
    steps = (job.get("recipe") or {}).get("steps")
    report = worker.report
    holder = worker.holder
    rungs = study.meta.rungs
    n_rungs = len(trial.rungs)
    rung = None
    pause_share = 1.0
    if study.meta.pauses_at_rungs(trial.origin) and n_rungs < rungs.n_pauses:
        rung = n_rungs + 1
        pause_share = rungs.shares[n_rungs]
    trained_share = max(pause_share if worker.is_at_end else report_share(report),
                        rungs.shares[n_rungs - 1] if n_rungs else 0.0)
    seconds_left = 0.0 if worker.is_at_end else None
    full_run_seconds = None
    if report.seconds is not None and trained_share and not worker.is_at_end:
        full_run_seconds = report.seconds / trained_share
        seconds_left = max(0.0, full_run_seconds * (pause_share - trained_share))
    elapsed = None
    if holder and holder.started_at is not None:
        elapsed = max(0.0, time.time() - holder.started_at)
    return RunningTrial(
        trial=trial.number, type="candidate" if trial.origin.charged else str(trial.origin),
        name=trial.name, architecture=trial.architecture, params=trial.costs.get("params.total"),
        macs=trial.costs.get("macs.total"), attempt=max(1, trial.attempts - n_rungs),
        status=worker.status, status_text=str(worker), trained_share=trained_share, rung=rung,
        pause_share=pause_share, seconds_left=seconds_left, full_run_seconds=full_run_seconds,
        elapsed=elapsed, step=report.step, steps=steps if isinstance(steps, int) else None,
        loss=report.loss,
        validation_loss=report.validation.validation_loss if report.validation else None,
        host=holder.host if holder else None, pid=holder.pid if holder else None,
        seconds=report.seconds, cpu_seconds=report.cpu_seconds)


def describe_progress(report: ProgressReport) -> str:
    """Describe a worker's report."""
    if report.type in TEACHER_ACTIVITIES:
        return f"{TEACHER_ACTIVITIES[report.type]}, {report.done} of {report.total}"
    parts = []
    if report.share is not None:
        parts.append(format_percent(report.share))
    if report.loss is not None:
        parts.append(f"loss {report.loss:.3f}")
    if report.tokens_per_second is not None:
        parts.append(f"{report.tokens_per_second:,.0f} tokens/s")
    if report.eta_seconds is not None:
        parts.append(f"{format_duration(report.eta_seconds)} left")
    return ", ".join(parts) or "in training"


def report_share(report: ProgressReport) -> float:
    """Finished share of a training run or a translation, from 0 to 1."""
    if report.type in TEACHER_ACTIVITIES:
        return (report.done or 0) / (report.total or 1)
    return min(1.0, report.share or 0.0)


def running_teacher(study: StudyDir) -> RunningTeacher | None:
    """Read the progress of the study's teacher; None if it has none."""
    if not study.meta.teacher:
        return None
    folder = study.folder / TEACHER_FOLDER
    stages = {"training": folder, "translating": folder / TRANSLATIONS_FOLDER}
    if study.meta.teacher.top_k:
        stages["soft targets"] = folder / SOFT_TARGETS_FOLDER
    results = {}
    for stage, stage_folder in stages.items():
        result = results[stage] = try_read_json(stage_folder / "result.json", JobResult)
        if result and result.state != "complete":
            return RunningTeacher("failed", result.reason or "failed", 0.0)
    if results[stage]:  # of the last stage
        translations = results["translating"]
        pairs = f" {translations.pairs:,} sentences" if translations else ""
        return RunningTeacher("done", f"has translated{pairs}", 1.0)
    for stage, stage_folder in reversed(stages.items()):
        if (stage_folder / "job.json").exists():
            worker = WorkerState.read(stage_folder)
            return RunningTeacher(stage, str(worker), report_share(worker.report),
                                  worker.report.eta_seconds)
    return RunningTeacher(WAITING, "not started", 0.0)
