"""Running trials and teacher of a study, from what their workers leave."""

import time
from dataclasses import dataclass
from pathlib import Path

from scalesearch.files import try_read_json
from scalesearch.study.executors import lease
from scalesearch.study.executors.worker import ProgressFile, ProgressReport
from scalesearch.study.monitor.format import format_duration
from scalesearch.study.trials.record import JobFile
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Origin, State, Trial

TEACHER_FOLDER = "teacher"
TRANSLATIONS_FOLDER = "corpus"
SOFT_TARGETS_FOLDER = "soft"  # a study's teacher; in it its translations and probabilities
TEACHER_ACTIVITIES = {"decode": "translating", "soft_targets": "computing soft targets"}
STARTING = "starting"
TRAINING = "training"
SCORING = "scoring"
WAITING = "waiting"
SILENT = "silent"
# reports that come after the last update before a pause or the end
FINAL_REPORT_TYPES = ("decode", "done")


@dataclass(frozen=True)
class RunningTrial:
    """A candidate in training, or to be trained on.

    Attributes:
        type: candidate, reference or replicate.
        name: how people know it: its label, or of which trial it is a replicate; else its number.
        attempt: 1, and one more for each time that it had to be started again; to go on from a rung
            is none.
        status: starting, training, or scoring (translating, for most tasks); waiting for a worker;
            silent where its
            worker shows no sign of life.
        status_text: the same with its numbers, for people.
        trained_share: done of a full training of its own recipe, from 0 to 1.
        rung: the one that it is on the way to, counted from 1; None where it goes to the end
            without a pause.
        pause_share: the share where it pauses, or 1.
        seconds_left: until it pauses or ends, scoring not counted; None while unknown.
        full_run_seconds: what a full training would take at its pace, scoring not counted; None
            while unknown.
        elapsed: seconds since its worker began this attempt.
        step, steps: updates made, and to be made where the recipe counts them.
        validation_loss: its latest validation loss, or None.
    """

    trial: int
    type: str
    name: str
    architecture: str | None
    params: float | None
    macs: float | None
    attempt: int
    status: str
    status_text: str
    trained_share: float
    rung: int | None
    pause_share: float
    seconds_left: float | None
    full_run_seconds: float | None
    elapsed: float | None
    step: int | None
    steps: int | None
    loss: float | None
    validation_loss: float | None
    host: str | None
    pid: int | None


@dataclass(frozen=True)
class RunningTeacher:
    """Progress of a study's teacher.

    Attributes:
        stage: waiting, training, translating, done or failed.
        status_text: for people.
        share: of its training, or of its translating, from 0 to 1.
        seconds_left: of its training; None while unknown, and while it translates.
    """

    stage: str
    status_text: str
    share: float
    seconds_left: float | None = None


@dataclass(frozen=True)
class _TeacherResult:
    """What is read here of a teacher's results."""

    state: str = ""
    reason: str = ""
    pairs: int | None = None


def running_trials(study: StudyDir) -> list[RunningTrial]:
    """Every candidate that has been handed to a worker, in order."""
    return [running_trial(study, trial) for trial in study.trials.with_state(State.PENDING)]


def running_trial(study: StudyDir, trial: Trial) -> RunningTrial:
    """Reads the progress of ``trial``. A file that is half written, or missing, gives nothing."""
    place = study.trial_folder(trial)
    rungs = study.meta.rungs
    reached = len(trial.rungs)
    report = ProgressFile(place).read()
    owner = lease.read_holder(place)
    job = try_read_json(place / "job.json", JobFile)
    if report.type == "done" and trial.rungs:
        # it is from before the last rung, and not of the training that goes on
        report = ProgressReport()
    named = trial.origin in (Origin.REFERENCE, Origin.REPLICATE)  # these do not pause
    rung, until = (None, 1.0) if named or reached >= rungs.n_pauses else (
        reached + 1, rungs.shares[reached])
    at_end = report.type in FINAL_REPORT_TYPES
    done = max(until if at_end else report_share(report),
               rungs.shares[reached - 1] if reached else 0.0)
    pace = report.seconds / done if report.seconds is not None and done and not at_end else None
    left = None if pace is None else max(0.0, pace * (until - done))
    silent = lease.describe_silence(place)
    begun = SCORING if at_end else TRAINING if report.type else STARTING
    doing = SILENT if silent else begun if owner else WAITING
    steps = ((job or {}).get("recipe") or {}).get("steps")
    return RunningTrial(
        trial=trial.number, type=str(trial.origin) if named else "candidate", name=trial.name,
        architecture=trial.architecture, params=trial.costs.get("params.total"),
        macs=trial.costs.get("macs.total"), attempt=max(1, trial.attempts - reached), status=doing,
        status_text=silent or _words(doing, report), trained_share=done, rung=rung,
        pause_share=until, seconds_left=0.0 if at_end else left, full_run_seconds=pace,
        elapsed=max(0.0, time.time() - owner.started_at) if owner and owner.started_at is not None
        else None, step=report.step, steps=steps if isinstance(steps, int) else None,
        loss=report.loss, validation_loss=report.validation and report.validation.validation_loss,
        host=owner and owner.host, pid=owner and owner.pid)


def _words(doing: str, report: ProgressReport) -> str:
    if doing == WAITING:
        return "waiting for a worker" + (f", {report_share(report):.0%} done" if report.share
                                         else "")
    if report.type == "done":
        return "at its end"
    return describe_progress(report) if report.type else STARTING


def describe_progress(report: ProgressReport) -> str:
    """A worker's report in a few words."""
    if report.type in TEACHER_ACTIVITIES:
        return f"{TEACHER_ACTIVITIES[report.type]}, {report.done} of {report.total}"
    shown = [words.format(value)
             for words, value in (("{:.0%}", report.share), ("loss {:.3f}", report.loss),
                                  ("{:,.0f} tokens/s", report.tokens_per_second))
             if value is not None]
    if report.eta_seconds is not None:
        shown.append(f"{format_duration(report.eta_seconds)} left")
    return ", ".join(shown) or "in training"


def report_share(report: ProgressReport) -> float:
    """Share of a training or translation that is done, from 0 to 1."""
    if report.type in TEACHER_ACTIVITIES:
        return (report.done or 0) / (report.total or 1)
    return min(1.0, report.share or 0.0)


def running_teacher(study: StudyDir) -> RunningTeacher | None:
    """Reads the progress of the study's teacher; None where it has none."""
    if not study.meta.teacher:
        return None
    place = study.folder / TEACHER_FOLDER
    stages = [("training", place), ("translating", place / TRANSLATIONS_FOLDER)]
    stages += [("softening", place / SOFT_TARGETS_FOLDER)] * bool(study.meta.teacher.top_k)
    left = [try_read_json(folder / "result.json", _TeacherResult) for _, folder in stages]
    for result in left:
        if result and result.state != "complete":
            return RunningTeacher("failed", result.reason or "failed", 0.0)
    if left[-1]:
        pairs = f" {left[1].pairs:,} sentences" if left[1] and left[1].pairs is not None else ""
        return RunningTeacher("done", f"has translated{pairs}", 1.0)
    for stage, folder in reversed(stages):
        if (folder / "job.json").exists():
            return _teacher_progress(stage, folder)
    return RunningTeacher(WAITING, "to begin", 0.0)


def _teacher_progress(stage: str, place: Path) -> RunningTeacher:
    report = ProgressFile(place).read()
    words = lease.describe_silence(place) or (
        describe_progress(report) if report.type else STARTING)
    if lease.read_holder(place) is None:
        words = f"{WAITING} for a worker, {report_share(report):.0%} done"
    return RunningTeacher(stage, words, report_share(report), report.eta_seconds)
