"""Progress of running trials and the teacher, from the files of workers."""

import time
from dataclasses import dataclass
from pathlib import Path

from scalesearch.files import try_read_json
from scalesearch.studies.executors import lease
from scalesearch.studies.executors.worker import ProgressFile, ProgressReport
from scalesearch.studies.forecast import RunningTrial
from scalesearch.studies.monitor.format import format_duration, format_percent
from scalesearch.studies.trials.record import JobFile
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Origin, State, Trial

TEACHER_FOLDER = "teacher"
TRANSLATIONS_FOLDER = "corpus"
SOFT_TARGETS_FOLDER = "soft"  # in the folder of the teacher, as TRANSLATIONS_FOLDER
TEACHER_ACTIVITIES = {"decode": "translating", "soft_targets": "computing soft targets"}
STARTING = "starting"
TRAINING = "training"
SCORING = "scoring"
WAITING = "waiting"
SILENT = "silent"
# types of reports after the last update before a pause or the end
FINAL_REPORT_TYPES = ("decode", "done")


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


@dataclass(frozen=True)
class _TeacherResult:
    """The fields of a teacher's result files that are used here."""

    state: str = ""
    reason: str = ""
    pairs: int | None = None


def running_trials(study: StudyDir) -> list[RunningTrial]:
    """Read the progress of all pending trials, in order of their numbers."""
    return [running_trial(study, trial) for trial in study.trials.with_state(State.PENDING)]


def running_trial(study: StudyDir, trial: Trial) -> RunningTrial:
    """Read the progress of ``trial``; incomplete and missing files are ignored."""
    folder = study.trial_folder(trial)
    rungs = study.meta.rungs
    n_rungs = len(trial.rungs)
    report = ProgressFile(folder).read()
    holder = lease.read_holder(folder)
    job = try_read_json(folder / "job.json", JobFile)
    if report.type == "done" and trial.rungs:
        # The report was written before the last rung, not by the resumed run.
        report = ProgressReport()
    never_pauses = trial.origin in (Origin.REFERENCE, Origin.REPLICATE)
    rung = None
    pause_share = 1.0
    if not never_pauses and n_rungs < rungs.n_pauses:
        rung = n_rungs + 1
        pause_share = rungs.shares[n_rungs]
    at_end = report.type in FINAL_REPORT_TYPES
    trained_share = max(pause_share if at_end else report_share(report),
                        rungs.shares[n_rungs - 1] if n_rungs else 0.0)
    full_run_seconds = (report.seconds / trained_share
                        if report.seconds is not None and trained_share and not at_end else None)
    seconds_left = (None if full_run_seconds is None
                    else max(0.0, full_run_seconds * (pause_share - trained_share)))
    silence = lease.describe_silence(folder)
    activity = SCORING if at_end else TRAINING if report.type else STARTING
    status = SILENT if silence else activity if holder else WAITING
    steps = ((job or {}).get("recipe") or {}).get("steps")
    started_at = holder.started_at if holder else None
    validation = report.validation
    return RunningTrial(
        trial=trial.number, type=str(trial.origin) if never_pauses else "candidate",
        name=trial.name, architecture=trial.architecture, params=trial.costs.get("params.total"),
        macs=trial.costs.get("macs.total"), attempt=max(1, trial.attempts - n_rungs),
        status=status, status_text=silence or _status_text(status, report),
        trained_share=trained_share, rung=rung, pause_share=pause_share,
        seconds_left=0.0 if at_end else seconds_left, full_run_seconds=full_run_seconds,
        elapsed=None if started_at is None else max(0.0, time.time() - started_at),
        step=report.step, steps=steps if isinstance(steps, int) else None, loss=report.loss,
        validation_loss=validation.validation_loss if validation else None,
        host=holder.host if holder else None, pid=holder.pid if holder else None)


def _status_text(status: str, report: ProgressReport) -> str:
    if status == WAITING:
        return "waiting for a worker" + (f", {format_percent(report_share(report))} done"
                                         if report.share else "")
    if report.type == "done":
        return "at the end"
    return describe_progress(report) if report.type else STARTING


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
    teacher_folder = study.folder / TEACHER_FOLDER
    stages = [("training", teacher_folder),
              ("translating", teacher_folder / TRANSLATIONS_FOLDER)]
    if study.meta.teacher.top_k:
        stages.append(("soft targets", teacher_folder / SOFT_TARGETS_FOLDER))
    results = [try_read_json(folder / "result.json", _TeacherResult) for _, folder in stages]
    for result in results:
        if result and result.state != "complete":
            return RunningTeacher("failed", result.reason or "failed", 0.0)
    if results[-1]:
        translations = results[1]
        pairs = (f" {translations.pairs:,} sentences"
                 if translations and translations.pairs is not None else "")
        return RunningTeacher("done", f"has translated{pairs}", 1.0)
    for stage, folder in reversed(stages):
        if (folder / "job.json").exists():
            return _teacher_progress(stage, folder)
    return RunningTeacher(WAITING, "not started", 0.0)


def _teacher_progress(stage: str, folder: Path) -> RunningTeacher:
    report = ProgressFile(folder).read()
    status_text = lease.describe_silence(folder) or (
        describe_progress(report) if report.type else STARTING)
    if lease.read_holder(folder) is None:
        status_text = f"{WAITING} for a worker, {format_percent(report_share(report))} done"
    return RunningTeacher(stage, status_text, report_share(report), report.eta_seconds)
