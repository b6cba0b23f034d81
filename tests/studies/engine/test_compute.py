"""Searches with a compute budget: charged compute, end of the search, and progress."""

import pytest

from scalesearch.schedule import NO_RUNGS
from scalesearch.studies.monitor.snapshot import StudyWatcher
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State
from scalesearch.studies.trials.trials import full_run_cpu_seconds
from tests.studies.engine.test_promotion import RUNGS, work
from tests.studies.fakes import efforts_to, fake_work, make_driver, make_plan

EACH = sum(
    effort["cpu_seconds"] for effort in efforts_to(1.0).values()
)  # CPU-seconds of a full-budget run


def spent(folder):
    trials = StudyDir(folder).load().trials
    return sum(effort.cpu_seconds for effort in trials.efforts().values())


@pytest.mark.parametrize(("count", "runs"),
                         [(1, "1 candidate"), (2.5, "2 candidates"), (5, "5 candidates")])
def test_no_run_starts_that_would_exceed_compute(tmp_path, count, runs):
    driver = make_driver(tmp_path, make_plan(50, compute=count * EACH))
    assert driver.run() == f"{runs} trained (compute budget used up)"
    assert spent(tmp_path) <= max(1, count) * EACH + 1e-9


def test_number_of_trials_ends_search_first(tmp_path):
    assert make_driver(tmp_path, make_plan(3, compute=50 * EACH)).run() == "3 candidates trained"


def test_each_rung_transition_is_charged(tmp_path):
    make_driver(tmp_path, make_plan(50, rungs=RUNGS, compute=6 * EACH), work=work).run()
    trials = StudyDir(tmp_path).load().trials
    assert 4 * EACH <= spent(tmp_path) <= 6 * EACH + 1e-9
    assert len(trials.with_state(State.COMPLETE,
                                 State.PAUSED)) > 6 and trials.with_state(State.COMPLETE)


def test_study_resumes_with_more_compute(tmp_path):
    make_driver(tmp_path, make_plan(50, compute=2 * EACH)).run()
    make_driver(tmp_path, make_plan(50, compute=2 * EACH)).run()
    assert len(StudyDir(tmp_path).load().trials.with_state(State.COMPLETE)) == 2
    make_driver(tmp_path, make_plan(50, compute=4 * EACH), work=fake_work).run()
    assert len(StudyDir(tmp_path).load().trials.with_state(State.COMPLETE)) == 4


def test_allowed_runs_follow_measured_cost(tmp_path):
    driver = make_driver(tmp_path, make_plan(3))
    assert driver.trials.full_runs_allowed(NO_RUNGS, 20, EACH) == 20
    driver.run()
    assert driver.trials.full_runs_allowed(NO_RUNGS, 20, 7 * EACH) == pytest.approx(7)
    assert driver.trials.full_runs_allowed(
        NO_RUNGS, 5, 7 * EACH) == 5 and driver.trials.full_runs_allowed(NO_RUNGS, 20, None) == 20


def test_progress_is_relative_to_compute(tmp_path):
    driver = make_driver(tmp_path, make_plan(50, compute=2 * EACH))
    driver.study.update_meta(compute=2 * EACH)
    driver.run()
    done = StudyWatcher(tmp_path).snapshot().progress
    assert done.candidates == pytest.approx((2, 2)) and done.share == pytest.approx(1)


@pytest.mark.parametrize("compute", [None, 50 * EACH])
def test_samplers_get_compute_if_it_is_limited(tmp_path, compute):
    driver = make_driver(tmp_path, make_plan(6, rungs=RUNGS, compute=compute), work=work)
    driver.run()
    history = [trial for trial in driver.search.history() if trial.user_attrs.get("rungs")]
    compute_values = [trial.user_attrs.get("compute") for trial in history]
    if compute is None:
        assert compute_values and not any(compute_values)
        return
    assert all(compute_values) and {
        value for trial, value in zip(history, compute_values) if trial.state.name == "COMPLETE"
    } == {EACH}
    assert compute_values == [full_run_cpu_seconds(trial)
                    for trial in driver.trials.candidates() if trial.rungs]
