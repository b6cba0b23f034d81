"""Running trials and teacher of a study, from what their workers leave."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalesearch.schedule.rungs import Rungs
from scalesearch.study.executors import lease
from scalesearch.study.executors.worker import Progress
from scalesearch.study.monitor.format import span
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Origin, State, Trial

TEACHER, CORPUS = "teacher", "corpus"  # the folder of a study's teacher, and in it that of its translations
STARTING, TRAINING, SCORING, WAITING, SILENT = "starting", "training", "scoring", "waiting", "silent"
AT_THE_END = ("decode", "done")  # reports that come after the last update before a pause or the end


@dataclass(frozen=True)
class RunningTrial:
    """A candidate in training, or to be trained on.

    Attributes:
        kind: candidate, reference or replicate.
        name: how people know it: its label, or of which trial it is a replicate; else its number.
        attempt: 1, and one more for each time that it had to be started again; to go on from a rung is none.
        doing: starting, training, or scoring (translating, for most tasks); waiting for a worker; silent where its
            worker shows no sign of life.
        words: the same with its numbers, for people.
        share: done of a full training of its own recipe, from 0 to 1.
        rung: the one that it is on the way to, counted from 1; None where it goes to the end without a pause.
        until: the share where it pauses, or 1.
        seconds_left: until it pauses or ends, scoring not counted; None while unknown.
        full_seconds: what a full training would take at its pace, scoring not counted; None while unknown.
        elapsed: seconds since its worker began this attempt.
        step, steps: updates made, and to be made where the recipe counts them.
        valid: its latest validation loss, or None.
    """

    trial: int
    kind: str
    name: str
    id: str | None
    params: float | None
    macs: float | None
    attempt: int
    doing: str
    words: str
    share: float
    rung: int | None
    until: float
    seconds_left: float | None
    full_seconds: float | None
    elapsed: float | None
    step: int | None
    steps: int | None
    loss: float | None
    valid: float | None
    host: str | None
    process: int | None

    def to_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)


@dataclass(frozen=True)
class RunningTeacher:
    """Progress of a study's teacher.

    Attributes:
        stage: waiting, training, translating, done or failed.
        words: for people.
        share: of its training, or of its translating, from 0 to 1.
        seconds_left: of its training; None while unknown, and while it translates.
    """

    stage: str
    words: str
    share: float
    seconds_left: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)


def running_trials(study: StudyDir) -> list[RunningTrial]:
    """Every candidate that has been handed to a worker, in order."""
    return [running_trial(study, trial, study.meta.rungs) for trial in study.trials.having(State.PENDING)]


def running_trial(study: StudyDir, trial: Trial, rungs: Rungs) -> RunningTrial:
    """Reads the progress of ``trial``. A file that is half written, or missing, gives nothing."""
    place = study.trial_folder(trial)
    facts, owner, job = _report(place, trial), lease.read(place), lease.read_json(place / "job.json")
    rung, until = _next_rung(trial, rungs)
    done = max(until if facts.get("kind") in AT_THE_END else share(facts),
               rungs.shares[len(trial.rungs) - 1] if trial.rungs else 0.0)
    silent = lease.describe_silence(place)
    doing = SILENT if silent else _doing(facts, owner)
    return RunningTrial(
        trial.number, _kind(trial), trial.name, trial.architecture,
        *(trial.costs.get(name) for name in ("params.total", "macs.total")),
        _attempt(trial), doing, silent or _words(doing, facts), done, rung, until, *_times(facts, done, until),
        _since(owner), facts.get("step"), (job.get("recipe") or {}).get("steps"), facts.get("loss"),
        (facts.get("validation") or {}).get("valid_loss"), *((owner or {}).get(key) for key in ("host", "process")),
    )


def describe_progress(facts: Mapping[str, Any]) -> str:
    """A trainer's report in a few words."""
    if facts.get("kind") == "decode":
        return f"translating, {facts.get('done')} of {facts.get('of')}"
    shown = [f"{facts['share']:.0%}"] if isinstance(facts.get("share"), int | float) else []
    for key, words in (("loss", "loss {:.3f}"), ("tokens_per_second", "{:,.0f} tokens/s")):
        if isinstance(facts.get(key), int | float):
            shown.append(words.format(facts[key]))
    if isinstance(facts.get("eta_seconds"), int | float):
        shown.append(f"{span(facts['eta_seconds'])} left")
    return ", ".join(shown) or "in training"


def share(facts: Mapping[str, Any]) -> float:
    """Share of a training or translation that is done, from 0 to 1."""
    if facts.get("kind") == "decode":
        return float((facts.get("done") or 0) / (facts.get("of") or 1))
    return min(1.0, float(facts.get("share") or 0))


def running_teacher(study: StudyDir) -> RunningTeacher | None:
    """Reads the progress of the study's teacher; None where it has none."""
    if not study.meta.teacher:
        return None
    place = study.folder / TEACHER
    made, learned = lease.read_json(place / CORPUS / "result.json"), lease.read_json(place / "result.json")
    for result in (made, learned):
        if result and result.get("state") != "complete":
            return RunningTeacher("failed", str(result.get("reason") or "failed"), 0.0)
    if made:
        pairs = f" {made['pairs']:,} sentences" if isinstance(made.get("pairs"), int) else ""
        return RunningTeacher("done", f"has translated{pairs}", 1.0)
    if (place / CORPUS / "job.json").exists():
        return _taught("translating", place / CORPUS)
    return _taught("training", place) if (place / "job.json").exists() else RunningTeacher(WAITING, "to begin", 0.0)


def _taught(stage: str, place: Path) -> RunningTeacher:
    facts = Progress(place).read()
    words = lease.describe_silence(place) or (describe_progress(facts) if facts else STARTING)
    if lease.read(place) is None:
        words = f"{WAITING} for a worker, {share(facts):.0%} done"
    return RunningTeacher(stage, words, share(facts), facts.get("eta_seconds"))


def _attempt(trial: Trial) -> int:
    return max(1, trial.attempts - len(trial.rungs))


def _report(place: Path, trial: Trial) -> dict[str, Any]:
    """Reads the worker's last report. One from before the last rung is none of the training that goes on."""
    facts = Progress(place).read()
    return {} if facts.get("kind") == "done" and trial.rungs else facts


def _kind(trial: Trial) -> str:
    return str(trial.origin) if trial.origin in (Origin.REFERENCE, Origin.REPLICATE) else "candidate"


def _next_rung(trial: Trial, rungs: Rungs) -> tuple[int | None, float]:
    """References and further seeds go to the end at once, as the driver has it."""
    reached = len(trial.rungs)
    if trial.origin in (Origin.REFERENCE, Origin.REPLICATE) or reached >= rungs.pauses:
        return None, 1.0
    return reached + 1, rungs.shares[reached]


def _doing(facts: Mapping[str, Any], owner: Mapping[str, Any] | None) -> str:
    if owner is None:
        return WAITING
    if not facts:
        return STARTING
    return SCORING if facts.get("kind") in AT_THE_END else TRAINING


def _words(doing: str, facts: Mapping[str, Any]) -> str:
    if doing == WAITING:
        return f"waiting for a worker, {share(facts):.0%} done" if facts.get("share") else "waiting for a worker"
    if facts.get("kind") == "done":
        return "at its end"
    return describe_progress(facts) if facts else STARTING


def _times(facts: Mapping[str, Any], done: float, until: float) -> tuple[float | None, float | None]:
    """Seconds to ``until`` and of a full training, by the pace up to ``done``."""
    spent = facts.get("seconds")
    if facts.get("kind") in AT_THE_END:
        return 0.0, None
    if not isinstance(spent, int | float) or not done:
        return None, None
    return max(0.0, spent * (until - done) / done), spent / done


def _since(owner: Mapping[str, Any] | None) -> float | None:
    since = (owner or {}).get("since")
    return max(0.0, time.time() - since) if isinstance(since, int | float) else None
