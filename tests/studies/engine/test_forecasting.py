"""Forecasts of small studies, compared with the times that fake training reports."""

import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from scalesearch.cost import evaluate_cost
from scalesearch.files import write_json
from scalesearch.schedule.rungs import NO_RUNGS, Rungs
from scalesearch.studies.config.sections import SINGLE_SEED, Seeds
from scalesearch.studies.engine.forecasting import (
    PlannedRuns,
    TrainingTimeModel,
    forecast_by_measuring,
    forecast_from_speeds,
    load_or_make_forecast,
    rung_transitions,
)
from scalesearch.studies.executors.worker import finish_job
from scalesearch.studies.monitor.forecast import (
    FORECAST_FILE,
    describe_forecast,
    forecast_status,
    read_forecast,
    total_effort,
)
from scalesearch.studies.monitor.format import format_duration
from scalesearch.studies.monitor.snapshot import StudyWatcher
from scalesearch.training.effort import TRAINING_PARTS, Effort
from tests.schedule.test_scheduler import RUNGS as LADDER
from tests.schedule.test_scheduler import simulated
from tests.studies.engine.test_promotion import RUNGS, work
from tests.studies.event_study import rendered
from tests.studies.fakes import architecture_of, efforts_to, fake_result, make_driver, make_plan


def spec(trials, rungs=NO_RUNGS, seeds=SINGLE_SEED, workers=1):
    """Attributes of a study file that a forecast reads."""
    return SimpleNamespace(compute=None, trials=trials, rungs=rungs, seeds=seeds, workers=workers,
                           architectures=None, sampler=SimpleNamespace(seed=1))


def slow(macs):
    """Seconds of a training run with ``macs``: the time of an update grows with them."""
    return {part: Effort(**{**took,
                            "cpu_seconds": took["cpu_seconds"]
                            * (macs / 1e5 if part == "updates" else 1)})
            for part, took in efforts_to(1.0).items()}


def slow_work(folder):
    """Write a result without training, whose time grows with the model."""
    def run(place, job):
        block = architecture_of(json.loads((place / "architecture.yaml").read_text())).block
        took = slow(evaluate_cost(block, PLAN.evaluator.protocol)["macs.total"])
        return {**fake_result(place, job),
                "efforts": {part: {"seconds": effort.seconds, "cpu_seconds": effort.cpu_seconds}
                            for part, effort in took.items()}}

    finish_job(Path(folder), run)


PLAN = make_plan(24)


def measure(architecture, seconds):
    return slow(evaluate_cost(architecture.block, PLAN.evaluator.protocol)["macs.total"])


def test_forecast_equals_time_of_study(tmp_path):
    forecast = forecast_by_measuring(spec(24), PLAN.evaluator, [], measure, 1.0)
    driver = make_driver(tmp_path, PLAN, slow_work, kind="random", storage=False)
    driver.run()
    spent = driver.trials.efforts()
    assert forecast.cpu_seconds_low <= total_effort(spent).cpu_seconds <= forecast.cpu_seconds_high
    assert all(forecast.efforts[part] == spent[part]
               for part in TRAINING_PARTS if part != "updates")
    assert forecast.wall_seconds == pytest.approx(total_effort(spent).seconds)
    assert "random candidates" in " ".join(describe_forecast(forecast))
    write_json(tmp_path / FORECAST_FILE, msgspec.to_builtins(forecast))
    assert read_forecast(tmp_path) == forecast
    shown = StudyWatcher(tmp_path).snapshot()
    assert shown.forecast_status.spent == shown.forecast_status.expected == spent
    assert shown.to_json()["forecast_status"]["forecast"] == msgspec.to_builtins(forecast)
    screen = rendered(shown, 120)
    assert all(word in screen
               for word in (*TRAINING_PARTS, "wall-clock time",
                            format_duration(total_effort(spent).cpu_seconds)))


def test_forecast_of_references_and_replicates_uses_their_size():
    line = TrainingTimeModel((1e5, slow(1e5)), (3e5, slow(3e5)))
    plan = PlannedRuns.of(spec(4, seeds=Seeds(2, 3, references=2)), 2)
    forecast = forecast_from_speeds(plan, [2e5, 2e5], [1e5, 3e5], line, 2, "here")
    assert forecast.efforts["updates"].cpu_seconds == pytest.approx(
        60 * (2 * (1 + 3) + (4 + 3) * 2))
    assert forecast.efforts["scoring"].cpu_seconds == pytest.approx(
        30 * 11) and plan.full_runs == plan.completed_runs == 11
    assert forecast.cpu_seconds_low == pytest.approx(
        forecast.cpu_seconds - 3 * (2 * 60 + 6 + 30 + 1))
    # two at a time: 6 training runs, and then 5 seeds
    assert forecast.wall_seconds == pytest.approx((3 + 3) * 2 * 97)


def test_rungs_start_many_and_complete_few_trials():
    assert rung_transitions(NO_RUNGS, 5) == (5, 5)
    ends, starts = rung_transitions(LADDER, 60.0)
    trials, _ = simulated(60.0, LADDER)
    assert sum(trial.state.name == "COMPLETE" for trial in trials) == pytest.approx(ends, rel=0.1)
    assert sum(len(trial.user_attrs["rungs"]) for trial in trials) == pytest.approx(starts, rel=0.1)


def test_forecast_changes_only_with_number_of_trials(tmp_path):
    """If ``trials`` changes on resume, measured times replace the first forecast."""
    plan = make_plan(6, rungs=RUNGS)
    driver = make_driver(tmp_path, plan, work, kind="random", storage=False)
    assert load_or_make_forecast(driver.study, spec(6, RUNGS), plan.evaluator, plan, None,
                                 0.0) == ""
    assert read_forecast(tmp_path) is None
    driver.run()
    forecast = load_or_make_forecast(driver.study, spec(9, RUNGS), plan.evaluator, plan, None, 0.0)
    assert forecast == read_forecast(tmp_path)
    assert forecast.efforts["updates"].cpu_seconds == pytest.approx(60 * 9)
    assert forecast.efforts["scoring"].cpu_seconds == pytest.approx(
        30 * rung_transitions(RUNGS, 9)[0])
    assert load_or_make_forecast(driver.study, spec(9, RUNGS), plan.evaluator, plan, None,
                                 0.0) == forecast
    driver = make_driver(tmp_path, make_plan(9, rungs=RUNGS), work, kind="random", storage=False)
    before = forecast_status(forecast, driver.trials, RUNGS)
    assert before.expected["updates"].cpu_seconds == pytest.approx(60 * 9)
    driver.run()
    after = forecast_status(forecast, driver.trials, RUNGS)
    assert after.spent == driver.trials.efforts() and after.wall_seconds > before.wall_seconds
    assert all(after.expected[part].cpu_seconds >= after.spent[part].cpu_seconds > 0
               for part in TRAINING_PARTS)
    assert after.expected["updates"].cpu_seconds == pytest.approx(60 * 9)


def test_remaining_time_is_the_forecast_before_first_result(tmp_path):
    forecast = forecast_by_measuring(spec(24, Rungs()), PLAN.evaluator, [], measure, 1.0)
    driver = make_driver(tmp_path, PLAN, storage=False)
    budget = forecast_status(forecast, driver.trials, NO_RUNGS)
    assert total_effort(budget.expected).cpu_seconds == pytest.approx(forecast.cpu_seconds)
    assert total_effort(budget.spent) == Effort()
    assert budget.expected_wall_seconds == pytest.approx(forecast.wall_seconds)
