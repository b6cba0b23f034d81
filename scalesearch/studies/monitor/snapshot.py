"""Snapshots of a study for ``study run``, ``watch`` and ``status``.

They change no files.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from scalesearch.pareto.front import pareto_front
from scalesearch.report.intervals import spearman_rho
from scalesearch.report.records import LOSS_UNITS
from scalesearch.studies.eta import (
    Eta,
    ProgressState,
    RunningTrial,
    StudyProgress,
    study_progress,
    time_left,
)
from scalesearch.studies.forecast import (
    ExpectedGain,
    ForecastStatus,
    StudyForecast,
    forecast_status,
    read_forecast,
    read_gain,
)
from scalesearch.studies.monitor.events import LogFollower, LoggedEvent
from scalesearch.studies.monitor.format import format_percent
from scalesearch.studies.monitor.heartbeat import FINISHED, RUNNING, STOPPED, Owner, read_owner
from scalesearch.studies.monitor.running import (
    INTERRUPTED,
    RunningTeacher,
    running_teacher,
    running_trials,
)
from scalesearch.studies.replicates.summary import StudyView
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.study_meta import StudyMeta
from scalesearch.studies.trials.trial import Origin, State
from scalesearch.studies.trials.trials import Trials

MAX_EVENTS_SHOWN = 5
MAX_MEMBERS_SHOWN = 6
MIN_TRIALS_FOR_CORRELATION = 5  # complete trials needed for a rank correlation


@dataclass(frozen=True)
class RungSummary:
    """Numbers of trials at a rung; the last summary of a study is its end.

    Attributes:
        share: share of the full budget at the rung.
        reached: number of trials that reached the rung.
        promoted, paused, failed: the present state of these trials; 0 at the end.
        best_loss: lowest validation loss at the rung; None at the end.
        rank_correlation: Spearman's rank correlation of the losses at the rung with the final main
            objective of complete trials. It is +1 if a lower loss always leads to a better value.
            None for fewer than ``MIN_TRIALS_FOR_CORRELATION`` trials.
    """

    share: float
    reached: int
    promoted: int
    paused: int
    failed: int
    best_loss: float | None
    rank_correlation: float | None = None


@dataclass(frozen=True)
class FrontMember:
    """A complete candidate; its values are means over its ``seeds``."""

    trial: int
    label: str | None
    architecture: str | None
    seeds: int
    values: dict[str, float]


@dataclass(frozen=True)
class FrontHypervolume:
    """Hypervolume of the front, and its growth by the latest member.

    Attributes:
        value: hypervolume with respect to ``reference_point``.
        gain: growth of the hypervolume by ``trial``, the member of the front that ended last. The
            hypervolume before it uses the same reference point.
        ended_at: end of ``trial`` in seconds since the epoch; None if another study trained it.
    """

    value: float
    reference_point: dict[str, float]
    gain: float
    trial: int
    ended_at: float | None


@dataclass(frozen=True)
class FrontSummary:
    """The best candidates so far.

    Attributes:
        size: number of members of the front; 0 if only references outside the space are complete.
        main_objective: objective by which members are sorted, best first.
        members: some members, evenly spaced, with the first and the last one; references if
            ``size`` is 0.
    """

    objectives: dict[str, str]
    main_objective: str
    size: int = 0
    members: tuple[FrontMember, ...] = ()
    hypervolume: FrontHypervolume | None = None


@dataclass(frozen=True)
class StudySnapshot:
    """State of a study at one time.

    Attributes:
        time: time of the snapshot, in seconds since the epoch.
        counts: state to number of candidates and references, without further seeds.
        complete: the complete ones in words, such as ``5 candidates and 1 reference``.
        events: the latest events in order of time.
        problem: why the log cannot be read further; empty if it can.
        forecast_status: comparison with the forecast; None without a forecast.
        expected_gain: expected gain by further training runs; None if unknown.
        phases: mean wall-clock seconds of each phase of a complete training run.
        loss_unit: unit of the losses at the rungs.
    """

    study: str
    folder: str
    time: float
    owner: Owner
    progress: StudyProgress
    eta: Eta
    counts: dict[str, int]
    complete: str
    running: tuple[RunningTrial, ...]
    teacher: RunningTeacher | None
    rungs: tuple[RungSummary, ...]
    front_summary: FrontSummary
    events: tuple[LoggedEvent, ...]
    problem: str
    forecast_status: ForecastStatus | None = None
    expected_gain: ExpectedGain | None = None
    phases: dict[str, float] = field(default_factory=dict)
    loss_unit: str = LOSS_UNITS["validation_loss"]


class SnapshotBuilder:
    """Takes snapshots of ``study``; the front is recomputed only after new events."""

    def __init__(self, study: StudyDir) -> None:
        self.study = study
        self._n_events = -1  # number of events for which the front was computed
        self._front: FrontSummary
        self._forecast: StudyForecast | None = None

    def take(self, owner: Owner, events: Sequence[LoggedEvent] = (),
             problem: str = "") -> StudySnapshot:
        """Take a snapshot of the study now."""
        study = self.study
        meta = study.meta
        trials = study.trials
        running = running_trials(study)
        if owner.state in (FINISHED, STOPPED):
            running = [replace(trial, status=INTERRUPTED, status_text=(
                f"{INTERRUPTED} at {format_percent(trial.trained_share)}")) for trial in running]
        teacher = running_teacher(study)
        progress = ProgressState(trials, *planned_work(meta, trials, owner), meta, running)
        teacher_finished = teacher is None or teacher.stage == "done" or len(trials) > 0
        eta = (time_left(progress, owner.workers or max(1, len(running)))
               if teacher_finished and owner.state == RUNNING else Eta())
        if self._n_events != trials.events:
            self._forecast = read_forecast(study.folder)
            self._front = summarize_front(StudyView(trials, meta))
            self._n_events = trials.events
        status = (forecast_status(self._forecast, trials, meta.rungs, running,
                                  owner.state == FINISHED)
                  if self._forecast else None)
        counts = Counter(trial.state for trial in trials.candidates())
        return StudySnapshot(
            meta.name, str(study.folder), time.time(), owner, study_progress(progress), eta,
            {str(state): counts[state] for state in State},
            trials.describe_complete(is_search=progress.planned_candidates > 0), tuple(running),
            teacher, rung_summaries(trials, meta), self._front, tuple(events)[-MAX_EVENTS_SHOWN:],
            problem, status, read_gain(study.folder), trials.mean_phases(),
            LOSS_UNITS[trials.loss_name])


class StudyWatcher:
    """Watches the study in ``folder``; each snapshot reads only new lines of the log.

    Raises:
        UserError: the folder contains no study. :meth:`snapshot` raises it if the study was
            removed.
    """

    def __init__(self, folder: Path) -> None:
        self._begin(StudyDir(folder))

    def _begin(self, study: StudyDir) -> None:
        self.study = study
        self.follower = LogFollower(study)
        self._snapshots = SnapshotBuilder(study)
        self.study.read_meta()

    def snapshot(self) -> StudySnapshot:
        """Take a snapshot of the study now."""
        study_id = self.study.meta.id
        self.study.read_meta()
        if self.study.meta.id != study_id:  # another study in the same folder
            self._begin(StudyDir(self.study.folder))
        self.follower.update()
        return self._snapshots.take(read_owner(self.study.folder), tuple(self.follower.events),
                                    self.follower.problem)


def planned_work(meta: StudyMeta, trials: Trials, owner: Owner) -> tuple[float, int]:
    """Planned full-budget runs and references of the study, of its last start if known.

    A study that has finished plans no more than it has trained: its space may have no further
    configurations, or the compute that is left may be too little for another run.
    """
    candidates = owner.candidates
    references = owner.references
    if candidates is None or references is None:
        references = len(trials.with_origin(Origin.REFERENCE))
        candidates = max(0, meta.total_trials - references)
    full_runs = trials.full_runs_allowed(meta.rungs, candidates, meta.compute)
    if owner.state == FINISHED:
        full_runs = min(full_runs, trials.full_runs_spent(meta.rungs))
    return full_runs, references


def summarize_front(view: StudyView) -> FrontSummary:
    """Compute the front, its hypervolume and some members.

    If no trial is eligible, the members are the complete references.
    """
    main = view.meta.main_objective
    members = view.members if view.candidates else list(view.references)
    members.sort(key=lambda candidate: candidate.mean(main.name) * main.sign)
    shown = members
    if len(members) > MAX_MEMBERS_SHOWN:  # evenly spaced, with both ends
        shown = [members[round(index)]
                 for index in np.linspace(0, len(members) - 1, MAX_MEMBERS_SHOWN)]
    rows = tuple(FrontMember(member.number, member.first.label, member.first.architecture,
                             member.completed_seeds, dict(zip(view.meta.directions, values)))
                 for member, values in zip(shown, view.means(shown).tolist()))
    if not view.candidates:
        return FrontSummary(view.meta.directions, main.name, 0, rows, None)
    # hypervolume of the front, and its growth by the latest member
    ends = [candidate.first.ended_at
            and datetime.fromisoformat(candidate.first.ended_at).timestamp()
            for candidate in view.candidates]
    # Ranks instead of times: trials that ended in the same millisecond are ordered by number.
    order = np.argsort(np.argsort([-1.0 if end is None else end for end in ends], kind="stable"))
    latest = int(np.flatnonzero(view.on_front)[order[view.on_front].argmax()])
    before = view.values[order < order[latest]]
    value = view.hypervolume(view.values[view.on_front])
    gain = value - view.hypervolume(before[pareto_front(before, view.directions)])
    hypervolume = FrontHypervolume(
        value, dict(zip(view.meta.directions, view.reference_point)), gain,
        view.candidates[latest].number, ends[latest] or None)
    return FrontSummary(view.meta.directions, main.name, len(members), rows, hypervolume)


def rung_summaries(trials: Trials, meta: StudyMeta) -> tuple[RungSummary, ...]:
    """Summarize all rungs and, last, the end; empty for a study without rungs."""
    rungs = meta.rungs
    main = meta.main_objective.name
    sign = meta.main_objective.sign
    if not rungs.n_pauses:
        return ()
    pausing = [trial for trial in trials if meta.pauses_at_rungs(trial.origin)]
    rows = []
    for rung, share in enumerate(rungs.shares[:-1]):
        reached = [trial for trial in pausing if len(trial.rungs) > rung]
        stayed = Counter(trial.state for trial in reached if len(trial.rungs) == rung + 1)
        paused = stayed[State.PAUSED]
        failed = stayed[State.FAILED]
        best_loss = min((trial.losses[rung] for trial in reached), default=None)
        complete = [trial for trial in reached if trial.state == State.COMPLETE and trial.values]
        rho = None
        if len(complete) >= MIN_TRIALS_FOR_CORRELATION:
            rho = spearman_rho([trial.losses[rung] for trial in complete],
                               [sign * (trial.values or {})[main] for trial in complete])
        rows.append(RungSummary(share, len(reached), len(reached) - paused - failed, paused, failed,
                                best_loss, rho))
    completed = sum(trial.state == State.COMPLETE for trial in pausing)
    return (*rows, RungSummary(1.0, completed, 0, 0, 0, None))
