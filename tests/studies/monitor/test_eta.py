"""Progress and remaining time of a study, compared with values computed by hand."""

import pytest

from scalesearch.schedule.rungs import Rungs
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.monitor.eta import (
    PlannedWork,
    full_run_seconds,
    makespan,
    study_progress,
    time_left,
)
from scalesearch.studies.monitor.snapshot import StudyWatcher
from tests.studies.event_study import EventStudy, rendered


def test_time_left_is_makespan_of_candidates(event_study):
    event_study.propose(0).end(0, 100).propose(1).end(1, 140)
    state = event_study.progress_state(PlannedWork(7, 0))
    assert full_run_seconds(state) == 120
    assert time_left(state, 1).seconds == pytest.approx(5 * 120)
    assert time_left(state, 2).seconds == pytest.approx(3 * 120)  # five candidates on two workers
    assert time_left(state, 9).seconds == pytest.approx(120)
    event_study.propose(2)
    event_study.write_worker_files(2, share=0.75, seconds=90)
    state = event_study.progress_state(PlannedWork(4, 0))
    # 30 s of the third candidate while the fourth is trained
    assert time_left(state, 2).seconds == pytest.approx(120)
    assert time_left(state, 1).seconds == pytest.approx(150)
    assert (study_progress(state).done, study_progress(state).share) == (2.75, 2.75 / 4)


def test_time_left_uses_pace_of_running_trials(event_study):
    assert time_left(event_study.progress_state(PlannedWork(3, 0)), 1).seconds is None
    event_study.propose(0)
    assert time_left(event_study.progress_state(PlannedWork(3, 0)), 1).seconds is None
    event_study.write_worker_files(0, share=0.25, seconds=20)
    eta = time_left(event_study.progress_state(PlannedWork(3, 0)), 1)
    assert eta.seconds == pytest.approx(60 + 2 * 80)


def test_failed_runs_increase_time_left(event_study):
    event_study.propose(0).end(0, 100).propose(1).end(1, 50, state="failed")
    eta = time_left(event_study.progress_state(PlannedWork(3, 0)), 1)
    assert eta.seconds == pytest.approx(2 * 150)


def test_trials_at_rungs_count_with_their_share(event_study):
    event_study.propose(0).rung(0, 0, 0.1, 20).propose(1).rung(1, 0, 0.1, 30).study.append(
        "started", 1, attempt=2)
    event_study.end(1, 215)
    state = event_study.progress_state(PlannedWork(4, 0), rungs=Rungs((0.1, 1.0), 2))
    full = (20 + 215) / (0.1 + 1.0)
    assert full_run_seconds(state) == pytest.approx(full)
    assert time_left(state, 1).seconds == pytest.approx((4 - 1.1) * full)
    assert study_progress(state).candidates == (pytest.approx(1.1), 4.0)


def test_progress_of_references_and_their_seeds(event_study):
    event_study.propose(0, origin="reference", label="a", is_in_space=False).end(0, 60)
    seeds = Seeds(1, 0, references=3)
    state = event_study.progress_state(PlannedWork(0, 2), seeds=seeds)
    done = study_progress(state)
    assert (done.done, done.total, done.references, done.reference_seeds) == (1, 6, (1, 2), (0, 4))
    assert time_left(state, 1).seconds == pytest.approx(60 + 4 * 60)
    # the seeds start after the second reference
    assert time_left(state, 4).seconds == pytest.approx(60 + 60)
    event_study.propose(1, origin="reference", label="b", is_in_space=False).end(1, 100)
    event_study.propose(2, origin="replicate", original=0, seed=2).end(2, 70).propose(
        3, origin="replicate", original=1, seed=2)
    state = event_study.progress_state(PlannedWork(0, 2), seeds=seeds)
    full = (60 + 100 + 70) / 3
    assert study_progress(state).reference_seeds == (1, 4)
    # the running replicate, and the third seed of both references
    assert time_left(state, 1).seconds == pytest.approx(full + 60 + 100)
    snapshot = StudyWatcher(event_study.study.folder).snapshot()
    assert snapshot.front.size == 0 and snapshot.front.hypervolume is None
    means = {row.label: (row.seeds, row.values["bleu"]) for row in snapshot.front.members}
    assert means == {"a": (2, 10.0), "b": (1, 10.0)}


def test_seeds_of_duplicate_reference_repeat_its_original(event_study):
    event_study.propose(0, origin="imported").end(0, 60).propose(
        1, origin="reference", label="a", state="duplicate", original=0)
    event_study.propose(2).end(2, 80)
    state = event_study.progress_state(PlannedWork(1, 1), seeds=Seeds(1, 0, references=3))
    assert study_progress(state).reference_seeds == (0, 2) and study_progress(state).share < 1
    assert time_left(state, 1).seconds == pytest.approx(2 * 60)
    event_study.propose(3, origin="replicate", original=0, seed=2).end(3, 60)
    state = event_study.progress_state(PlannedWork(1, 1), seeds=Seeds(1, 0, references=3))
    progress = study_progress(state)
    assert (progress.reference_seeds, progress.front_seeds) == ((1, 2), (0, 0))


def test_front_seeds_are_upper_bound(event_study):
    event_study.propose(0).end(0, 100)
    eta = time_left(event_study.progress_state(PlannedWork(2, 0), seeds=Seeds(3, 4)), 2)
    assert (eta.seconds, eta.front_seeds) == (pytest.approx(100 + 200), pytest.approx(200))
    event_study.propose(1).end(1, 100).propose(2, origin="replicate", original=0, seed=2)
    state = event_study.progress_state(PlannedWork(5, 0), seeds=Seeds(3, 4))
    # the search starts no trials while further seeds are in training
    assert time_left(state, 2).seconds == pytest.approx(200)
    assert study_progress(state).front_seeds == (1, 4)


def test_progress_without_planned_work(tmp_path):
    event_study = EventStudy(tmp_path, total_trials=0)
    event_study.write_owner(candidates=0, references=0)
    snapshot = StudyWatcher(tmp_path).snapshot()
    assert (snapshot.progress.share, snapshot.progress.total) == (0.0, 0.0)
    assert snapshot.eta.seconds is None
    assert "0 % · 0 of 0 runs" in rendered(snapshot, 80)


def test_makespan():
    assert makespan([1.0] * 20_001, 2) == pytest.approx(10_000.5)
    assert makespan([], 3) == 0 and makespan([5.0, 3.0, 3.0], 2) == 6.0


def test_resumed_study_uses_plan_of_last_start(event_study):
    event_study.propose(0).end(0, 10)
    assert StudyWatcher(event_study.study.folder).snapshot().progress.candidates == (1.0, 6.0)
    event_study.write_owner(candidates=9, references=0)
    snapshot = StudyWatcher(event_study.study.folder).snapshot()
    assert snapshot.progress.candidates == (1.0, 9.0)
    assert snapshot.eta.seconds == pytest.approx(4 * 10)
