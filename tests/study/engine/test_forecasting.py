"""Forecasts of small studies, against what these then take; by the times that fakes say, not by a clock."""

import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from scalesearch.cost import evaluate_cost
from scalesearch.files import write_json
from scalesearch.schedule.rungs import NO_RUNGS, Rungs
from scalesearch.study.config.sections import ONE, Seeds
from scalesearch.study.engine.forecasting import Line, Trainings, foretell, from_speeds, keep_forecast, passages
from scalesearch.study.executors.worker import finish
from scalesearch.study.monitor.forecast import FILE, budget_of, describe_forecast, read_forecast, total
from scalesearch.study.monitor.format import span
from scalesearch.study.monitor.snapshot import Watch
from scalesearch.train.effort import TRAINING_PARTS, Effort
from tests.schedule.test_scheduler import RUNGS as LADDER
from tests.schedule.test_scheduler import simulated
from tests.study.engine.test_promotion import RUNGS, work
from tests.study.fakes import architecture_of, efforts_to, fake_result, make_driver, make_plan
from tests.study.made import drawn


def spec(trials, rungs=NO_RUNGS, seeds=ONE, workers=1):
    """What a forecast reads of a study file."""
    return SimpleNamespace(compute=None, trials=trials, rungs=rungs, seeds=seeds, workers=workers, rows=None,
                           proposer=SimpleNamespace(seed=1))


def slow(macs):
    """What a training of so many MACs takes: updates grow with them."""
    return {part: Effort(**{**took, "cpu_seconds": took["cpu_seconds"] * (macs / 1e5 if part == "updates" else 1)})
            for part, took in efforts_to(1.0).items()}


def slow_work(folder):
    """Trains in no time, and says that it took longer with a larger model."""
    def run(place, job):
        block = architecture_of(json.loads((place / "architecture.yaml").read_text())).block
        took = slow(evaluate_cost(block, PLAN.evaluator.protocol)["macs.total"])
        return {**fake_result(place, job), "efforts": {part: {"seconds": one.seconds, "cpu_seconds": one.cpu_seconds}
                                                       for part, one in took.items()}}

    finish(Path(folder), run)


PLAN = make_plan(24)


def measure(architecture, seconds):
    return slow(evaluate_cost(architecture.block, PLAN.evaluator.protocol)["macs.total"])


def test_a_study_takes_what_was_foretold(tmp_path):
    forecast = foretell(spec(24), PLAN.evaluator, [], measure, 1.0)
    driver = make_driver(tmp_path, PLAN, slow_work, kind="random", storage=False)
    driver.run()
    spent = driver.trials.efforts()
    assert forecast.low <= total(spent).cpu_seconds <= forecast.high
    assert all(forecast.efforts[part] == spent[part] for part in TRAINING_PARTS if part != "updates")
    assert forecast.seconds == pytest.approx(total(spent).seconds)
    assert "random candidates" in " ".join(describe_forecast(forecast))
    write_json(tmp_path / FILE, msgspec.to_builtins(forecast))
    assert read_forecast(tmp_path) == forecast
    shown = Watch(tmp_path).look()
    assert shown.budget.spent == shown.budget.expected == spent
    assert shown.to_json()["budget"]["forecast"] == msgspec.to_builtins(forecast)
    screen = drawn(shown, 120)
    assert all(word in screen for word in (*TRAINING_PARTS, "on the clock", span(total(spent).cpu_seconds)))


def test_references_and_seeds_are_foretold_by_their_own_sizes():
    line, plan = Line((1e5, slow(1e5)), (3e5, slow(3e5))), Trainings.of(spec(4, seeds=Seeds(2, 3, references=2)), 2)
    forecast = from_speeds(plan, [2e5, 2e5], [1e5, 3e5], line, 2, "here")
    assert forecast.efforts["updates"].cpu_seconds == pytest.approx(60 * (2 * (1 + 3) + (4 + 3) * 2))
    assert forecast.efforts["scoring"].cpu_seconds == pytest.approx(30 * 11) and plan.worth == plan.scored == 11
    assert forecast.low == pytest.approx(forecast.cpu_seconds - 3 * (2 * 60 + 6 + 30 + 1))
    assert forecast.seconds == pytest.approx((3 + 3) * 2 * 97)  # two at a time: 6 trainings, and then 5 seeds


def test_rungs_make_many_starts_and_few_ends():
    assert passages(NO_RUNGS, 5) == (5, 5)
    ends, starts = passages(LADDER, 60.0)
    trials, _ = simulated(60.0, LADDER)
    assert sum(one.state.name == "COMPLETE" for one in trials) == pytest.approx(ends, rel=0.1)
    assert sum(len(one.user_attrs["rungs"]) for one in trials) == pytest.approx(starts, rel=0.1)


def test_what_was_forecast_is_kept_until_more_is_asked_for(tmp_path):
    """On a resume with other ``trials``, the trainings so far say what one takes."""
    plan = make_plan(6, rungs=RUNGS)
    driver = make_driver(tmp_path, plan, work, kind="random", storage=False)
    assert keep_forecast(driver.study, spec(6, RUNGS), plan.evaluator, plan, None, 0.0) == ""
    assert read_forecast(tmp_path) is None
    driver.run()
    forecast = keep_forecast(driver.study, spec(9, RUNGS), plan.evaluator, plan, None, 0.0)
    assert forecast == read_forecast(tmp_path)
    assert forecast.efforts["updates"].cpu_seconds == pytest.approx(60 * 9)
    assert forecast.efforts["scoring"].cpu_seconds == pytest.approx(30 * passages(RUNGS, 9)[0])
    assert keep_forecast(driver.study, spec(9, RUNGS), plan.evaluator, plan, None, 0.0) == forecast
    driver = make_driver(tmp_path, make_plan(9, rungs=RUNGS), work, kind="random", storage=False)
    before = budget_of(forecast, driver.trials, RUNGS)
    assert before.expected["updates"].cpu_seconds == pytest.approx(60 * 9)
    driver.run()
    after = budget_of(forecast, driver.trials, RUNGS)
    assert after.spent == driver.trials.efforts() and after.seconds > before.seconds
    assert all(after.expected[part].cpu_seconds >= after.spent[part].cpu_seconds > 0 for part in TRAINING_PARTS)
    assert after.expected["updates"].cpu_seconds == pytest.approx(60 * 9)


def test_before_anything_has_ended_the_rest_is_as_foretold(tmp_path):
    forecast = foretell(spec(24, Rungs()), PLAN.evaluator, [], measure, 1.0)
    driver = make_driver(tmp_path, PLAN, storage=False)
    budget = budget_of(forecast, driver.trials, NO_RUNGS)
    assert total(budget.expected).cpu_seconds == pytest.approx(forecast.cpu_seconds)
    assert total(budget.spent) == Effort()
    assert budget.expected_seconds == pytest.approx(forecast.seconds)
