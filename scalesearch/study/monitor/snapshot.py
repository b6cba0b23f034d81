"""Snapshots of a study, behind ``study run``, ``watch`` and ``status``; they only read."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from scalesearch.study.monitor.eta import Eta, PlannedWork, ProgressState, StudyProgress, study_progress, time_left
from scalesearch.study.monitor.events import LogFollower, LoggedEvent
from scalesearch.study.monitor.expected_gain import ExpectedGain, read_gain
from scalesearch.study.monitor.forecast import ForecastStatus, forecast_status, read_forecast
from scalesearch.study.monitor.front import FrontSnapshot, front_snapshot
from scalesearch.study.monitor.heartbeat import RUNNING, Owner, read_owner
from scalesearch.study.monitor.running import RunningTeacher, RunningTrial, running_teacher, running_trials
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.study_meta import StudyMeta
from scalesearch.study.trials.trial import Origin, State
from scalesearch.study.trials.trials import Trials

MAX_EVENTS_SHOWN = 5
MIN_TRIALS_FOR_CORRELATION = 5  # complete trials of which a rank correlation is stated


@dataclass(frozen=True)
class RungSummary:
    """Trials of a rung: those that ``reached`` it, ``promoted``, are ``paused`` or ``failed``.

    ``best_loss`` is the lowest validation loss there. ``rank_correlation``: what the rung says of
    the end, as Spearman's correlation of losses there with the main objective of complete trials;
    from +1, the same order, to -1. None of fewer than FEWEST. The last row is the end, where no
    trial is paused and no loss is kept.
    """

    share: float
    reached: int
    promoted: int
    paused: int
    failed: int
    best_loss: float | None
    rank_correlation: float | None = None


@dataclass(frozen=True)
class StudySnapshot:
    """A study at a moment.

    Attributes:
        time: of the look, in seconds since the epoch.
        counts: state to number of candidates, further seeds left out.
        events: the latest, the last one last.
        problem: why the log cannot be read on; empty where it can.
        forecast_status: how the forecast held; None where there is none.
        expected_gain: what further trainings are expected to bring; None where that cannot be said.
    """

    study: str
    folder: str
    time: float
    owner: Owner
    progress: StudyProgress
    eta: Eta
    counts: dict[str, int]
    running: tuple[RunningTrial, ...]
    teacher: RunningTeacher | None
    rungs: tuple[RungSummary, ...]
    front: FrontSnapshot
    events: tuple[LoggedEvent, ...]
    problem: str
    forecast_status: ForecastStatus | None = None
    expected_gain: ExpectedGain | None = None

    def to_json(self) -> dict[str, object]:
        """JSON of all fields."""
        return msgspec.to_builtins(self)


class SnapshotBuilder:
    """Takes snapshots of ``study``; the front is computed anew only where something has happened."""

    def __init__(self, study: StudyDir) -> None:
        self.study = study
        self._front: tuple[int, FrontSnapshot, ForecastStatus | None] | None = None

    def take(self, owner: Owner, events: Sequence[LoggedEvent] = (),
             problem: str = "") -> StudySnapshot:
        """The study as it is now."""
        study = self.study
        meta = self.study.meta
        trials = self.study.trials
        training = running_trials(study)
        teacher = running_teacher(study)
        now = ProgressState(trials, planned_work(meta, trials, owner), meta, training)
        taught = teacher is None or teacher.stage == "done" or len(trials) > 0
        eta = (time_left(now, owner.workers or max(1, len(training)))
               if taught and owner.state == RUNNING else Eta())
        if self._front is None or self._front[0] != trials.events:
            forecast = read_forecast(study.folder)
            budget = forecast and forecast_status(forecast, trials, meta.rungs)
            self._front = trials.events, front_snapshot(meta, trials), budget
        return StudySnapshot(
            meta.name, str(study.folder), time.time(), owner, study_progress(now), eta,
            _counts(trials), tuple(training), teacher, rung_summaries(trials, meta), self._front[1],
            tuple(events)[-MAX_EVENTS_SHOWN:], problem, self._front[2], read_gain(study.folder))


class StudyWatcher:
    """Watches the study in ``folder``. Each look reads what was appended to the log since the last.

    Raises:
        UserError: there is no study, also later where it was taken away.
    """

    def __init__(self, folder: Path) -> None:
        self._begin(StudyDir(folder))

    def _begin(self, study: StudyDir) -> None:
        self.study = study
        self.follower = LogFollower(study)
        self._snapshots = SnapshotBuilder(study)
        self.study.read_meta()

    def snapshot(self) -> StudySnapshot:
        """The study as it is now."""
        known = self.study.meta.id
        self.study.read_meta()
        if self.study.meta.id != known:  # another study in the same place
            self._begin(StudyDir(self.study.folder))
        self.follower.update()
        return self._snapshots.take(read_owner(self.study.folder), tuple(self.follower.events),
                                    self.follower.problem)


def planned_work(meta: StudyMeta, trials: Trials, owner: Owner) -> PlannedWork:
    """Trainings that the study wants: as its last start says, else as it was begun."""
    if owner.candidates is not None and owner.references is not None:
        candidates = owner.candidates
        references = owner.references
    else:
        references = len(trials.with_origin(Origin.REFERENCE))
        candidates = max(0, meta.total_trials - references)
    return PlannedWork(trials.full_runs_allowed(meta.rungs, candidates, meta.compute), references)


def _counts(trials: Trials) -> dict[str, int]:
    counts = Counter(trial.state for trial in trials.candidates())
    return {str(state): counts[state] for state in State}


def rung_summaries(trials: Trials, meta: StudyMeta) -> tuple[RungSummary, ...]:
    """Rows of all rungs, the end last; none in a study without rungs."""
    rungs = meta.rungs
    main = meta.main_objective
    if not rungs.n_pauses:
        return ()
    charged = [trial for trial in trials if trial.origin.charged]
    rows = []
    for rung, share in enumerate(rungs.shares[:-1]):
        there = [trial for trial in charged if len(trial.rungs) > rung]
        stayed = Counter(trial.state for trial in there if len(trial.rungs) == rung + 1)
        paused = stayed[State.PAUSED]
        failed = stayed[State.FAILED]
        best = min((trial.losses[rung] for trial in there), default=None)
        told = _rank_correlation([(trial.losses[rung], trial.values[main]) for trial in there
                      if trial.state == State.COMPLETE and trial.values], meta.directions[main])
        rows.append(RungSummary(share, len(there), len(there) - paused - failed, paused, failed,
                                best, told))
    ended = sum(trial.state == State.COMPLETE for trial in charged)
    return (*rows, RungSummary(1.0, ended, 0, 0, 0, None))


def _rank_correlation(pairs: Sequence[tuple[float, float]], way: str) -> float | None:
    """Spearman's correlation of losses and final values, positive where the lower loss ends better."""
    if len(pairs) < MIN_TRIALS_FOR_CORRELATION:
        return None
    losses, values = (_ranks(column) for column in np.array(pairs, float).T)
    if not np.ptp(losses) or not np.ptp(values):
        return None
    return float(np.corrcoef(losses, values)[0, 1]) * (-1 if way == "max" else 1)


def _ranks(column: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks, of equal ones their mean."""
    ordered = np.sort(column)
    return (np.searchsorted(ordered, column, "left")
            + np.searchsorted(ordered, column, "right")) / 2
