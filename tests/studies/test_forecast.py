"""Forecasts, progress and remaining time of small studies.

They are compared with the times that fake training reports, and with values computed by hand.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from scalesearch.cost import evaluate_cost
from scalesearch.files import write_json
from scalesearch.samplers import SamplerSpec
from scalesearch.schedule import NO_RUNGS, Rungs
from scalesearch.spaces.space import Space
from scalesearch.studies.config.sections import SINGLE_SEED, Seeds
from scalesearch.studies.eta import (
    full_run_seconds,
    makespan,
    study_progress,
    time_left,
)
from scalesearch.studies.executors.worker import finish_job
from scalesearch.studies.forecast import (
    FORECAST_FILE,
    forecast_by_measuring,
    forecast_from_trials,
    forecast_status,
    load_or_make_forecast,
    make_forecast,
    read_forecast,
    total_effort,
)
from scalesearch.studies.monitor.format import (
    describe_forecast,
    describe_forecast_status,
    format_duration,
)
from scalesearch.studies.monitor.snapshot import StudyWatcher
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.trials import Trials
from scalesearch.training.effort import TRAINING_PARTS, Effort
from tests.schedule.test_scheduler import RUNGS as LADDER
from tests.schedule.test_scheduler import simulated
from tests.studies.engine.test_promotion import RUNGS, work
from tests.studies.event_study import EventStudy, rendered
from tests.studies.fakes import (
    architecture_of,
    efforts_to,
    fake_result,
    limit,
    make_driver,
    make_plan,
)


def spec(trials, rungs=NO_RUNGS, seeds=SINGLE_SEED, workers=1):
    """Attributes of a study file that a forecast reads."""
    return SimpleNamespace(compute=None, trials=trials, rungs=rungs, seeds=seeds, workers=workers,
                           architectures=None, sampler=SamplerSpec("random"))


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
    assert times_shown(forecast) == 3
    write_json(tmp_path / FORECAST_FILE, msgspec.to_builtins(forecast))
    assert read_forecast(tmp_path) == forecast
    shown = StudyWatcher(tmp_path).snapshot()
    assert shown.forecast_status.spent == shown.forecast_status.expected == spent
    written = msgspec.to_builtins(shown)["forecast_status"]["forecast"]
    assert written == msgspec.to_builtins(forecast)
    screen = rendered(shown, 120)
    assert all(word in screen
               for word in (*TRAINING_PARTS, "wall-clock time",
                            format_duration(total_effort(spent).cpu_seconds)))


def test_forecast_includes_the_time_of_workers_that_wait():
    study = spec(8, workers=8)
    at_once = forecast_by_measuring(study, PLAN.evaluator, [], measure, 1.0)
    study.sampler = SamplerSpec("bayes")  # two of eight runs are in training at once
    waiting = forecast_by_measuring(study, PLAN.evaluator, [], measure, 1.0)
    assert waiting.wall_seconds == pytest.approx(4 * at_once.wall_seconds)


def test_forecast_of_references_and_replicates_uses_their_size():
    candidate = SimpleNamespace(costs={"macs.total": 2e5}, params={})
    evaluator = SimpleNamespace(
        evaluate_architecture=lambda macs: SimpleNamespace(costs={"macs.total": macs}),
        evaluate=lambda params: candidate, architecture=lambda params: 2e5,
        joint_space=SimpleNamespace(resolve=lambda replay: candidate),
        feasible_region=SimpleNamespace(sample_feasible=lambda rng: candidate))
    forecast = forecast_by_measuring(spec(4, seeds=Seeds(2, 3, references=2), workers=2), evaluator,
                                     [1e5, 3e5], lambda macs, seconds: slow(macs), 1.0)
    assert forecast.efforts["updates"].cpu_seconds == pytest.approx(
        60 * (2 * (1 + 3) + (4 + 3) * 2))
    assert forecast.efforts["scoring"].cpu_seconds == pytest.approx(30 * 11)
    assert forecast.full_runs == forecast.completed_runs == 11
    assert forecast.cpu_seconds_low == pytest.approx(
        forecast.cpu_seconds - 3 * (2 * 60 + 6 + 30 + 1))
    # two at a time: 6 training runs, and then 5 seeds
    assert forecast.wall_seconds == pytest.approx((3 + 3) * 2 * 97)


def test_rungs_start_many_and_complete_few_trials():
    assert NO_RUNGS.expected_counts(5) == [5]
    counts = LADDER.expected_counts(60.0)
    trials, _ = simulated(60.0, LADDER)
    assert sum(trial.state.name == "COMPLETE" for trial in trials) == pytest.approx(counts[-1],
                                                                                    rel=0.1)
    assert sum(len(trial.user_attrs["rungs"]) for trial in trials) == pytest.approx(
        sum(counts), rel=0.1)


def test_forecast_changes_only_with_number_of_trials(tmp_path):
    """If ``trials`` changes on resume, measured times replace the first forecast."""
    plan = make_plan(6, rungs=RUNGS)
    driver = make_driver(tmp_path, plan, work, kind="random", storage=False)
    assert load_or_make_forecast(driver.study, plan.spec, plan.evaluator, None, 0.0) == ""
    assert read_forecast(tmp_path) is None
    driver.run()
    longer = make_plan(9, rungs=RUNGS)
    forecast = load_or_make_forecast(driver.study, longer.spec, longer.evaluator, None, 0.0)
    assert forecast == read_forecast(tmp_path)
    assert forecast.efforts["updates"].cpu_seconds == pytest.approx(60 * 9)
    assert forecast.efforts["scoring"].cpu_seconds == pytest.approx(
        30 * RUNGS.expected_counts(9)[-1])
    assert load_or_make_forecast(driver.study, longer.spec, longer.evaluator, None, 0.0) == forecast
    driver = make_driver(tmp_path, longer, work, kind="random", storage=False)
    before = forecast_status(forecast, driver.trials, RUNGS)
    assert before.expected["updates"].cpu_seconds == pytest.approx(60 * 9)
    driver.run()
    after = forecast_status(forecast, driver.trials, RUNGS)
    assert after.spent == driver.trials.efforts() and after.wall_seconds > before.wall_seconds
    assert all(after.expected[part].cpu_seconds >= after.spent[part].cpu_seconds > 0
               for part in TRAINING_PARTS)
    assert after.expected["updates"].cpu_seconds == pytest.approx(60 * 9)


def test_small_space_limits_the_planned_runs(monkeypatch):
    """A search of a space of two configurations trains two, although 20 are requested."""
    space = Space.parse("space: small\nwidth: 8 | 16 | 64\nvocab: 99\nencoder.depth: 1\n"
                        "decoder.depth: 1")
    evaluator = Evaluator(space, PLAN.evaluator.protocol, (limit(most=20_000),))
    assert evaluator.count_feasible(20) == 2
    monkeypatch.setattr("scalesearch.studies.trials.evaluator.enumerate_candidates",
                        lambda define: pytest.fail("the space is enumerated again"))
    assert evaluator.count_feasible(1) == 1
    plan = make_plan(20, evaluator=evaluator)
    forecast = make_forecast(plan.spec, evaluator, [], Trials(), measure, 1.0)
    assert forecast.full_runs == forecast.completed_runs == 2
    monkeypatch.undo()
    assert PLAN.evaluator.count_feasible(20) == 20, "a continuous range"


def test_forecast_under_a_compute_limit_is_kept_on_resume(tmp_path):
    plan = make_plan(6, rungs=RUNGS, compute=300.0)
    driver = make_driver(tmp_path, plan, work, kind="random", storage=False)
    driver.run()
    forecast = load_or_make_forecast(driver.study, plan.spec, plan.evaluator, None, 0.0)
    assert forecast.full_runs < 6
    write_json(tmp_path / FORECAST_FILE,
               msgspec.to_builtins(replace(forecast, basis="the first run")))
    kept = load_or_make_forecast(driver.study, plan.spec, plan.evaluator, None, 0.0)
    assert kept.basis == "the first run"
    other = make_plan(6, rungs=RUNGS, compute=200.0)
    changed = load_or_make_forecast(driver.study, other.spec, other.evaluator, None, 0.0)
    assert changed.full_runs < forecast.full_runs


def test_finished_study_expects_no_more_time(tmp_path):
    """A study may need fewer runs than planned, for example without further seeds."""
    forecast = forecast_by_measuring(spec(24), PLAN.evaluator, [], measure, 1.0)
    driver = make_driver(tmp_path, make_plan(6), slow_work, kind="random", storage=False)
    driver.run()
    stopped = forecast_status(forecast, driver.trials, NO_RUNGS)
    assert "expected at the end" in describe_forecast_status(stopped)
    assert total_effort(stopped.expected).seconds > total_effort(stopped.spent).seconds
    finished = forecast_status(forecast, driver.trials, NO_RUNGS, is_finished=True)
    assert finished.expected == finished.spent == stopped.spent
    assert finished.expected_wall_seconds == finished.wall_seconds
    assert "expected" not in describe_forecast_status(finished)


def test_remaining_time_is_the_forecast_before_first_result(tmp_path):
    forecast = forecast_by_measuring(spec(24, Rungs()), PLAN.evaluator, [], measure, 1.0)
    driver = make_driver(tmp_path, PLAN, storage=False)
    budget = forecast_status(forecast, driver.trials, NO_RUNGS)
    assert total_effort(budget.expected).cpu_seconds == pytest.approx(forecast.cpu_seconds)
    assert total_effort(budget.spent) == Effort()
    assert budget.expected_wall_seconds == pytest.approx(forecast.wall_seconds)


def test_one_run_is_not_plural(tmp_path):
    driver = make_driver(tmp_path, make_plan(1), slow_work, kind="random", storage=False)
    driver.run()
    forecast = forecast_from_trials(spec(1), 0, driver.trials)
    assert forecast.full_runs == 1 and "runs" not in describe_forecast(forecast)[1]


def test_forecast_of_one_network_has_no_range():
    evaluator = SimpleNamespace(
        evaluate_architecture=lambda macs: SimpleNamespace(costs={"macs.total": macs}))
    study = spec(0)
    study.architectures = ()
    forecast = forecast_by_measuring(study, evaluator, [1e5], lambda macs, _: slow(macs), 1.0)
    assert times_shown(forecast) == 1


def times_shown(forecast):
    """Number of totals of CPU time in the line of a forecast: the mean, and a range."""
    return len(re.findall(r"\d+:\d\d:\d\d", describe_forecast(forecast)[0].rpartition(": ")[0]))


def test_time_left_is_makespan_of_candidates(event_study):
    event_study.propose(0).end(0, 100).propose(1).end(1, 140)
    state = event_study.progress_state((7, 0))
    assert full_run_seconds(state) == 120
    assert time_left(state, 1).seconds == pytest.approx(5 * 120)
    assert time_left(state, 2).seconds == pytest.approx(3 * 120)  # five candidates on two workers
    assert time_left(state, 9).seconds == pytest.approx(120)
    waiting = replace(state, meta=replace(state.meta, sampler=SamplerSpec("bayes")))
    assert time_left(waiting, 9).seconds == pytest.approx(3 * 120)  # two at once, the others wait
    event_study.propose(2)
    event_study.write_worker_files(2, share=0.75, seconds=90)
    state = event_study.progress_state((4, 0))
    # 30 s of the third candidate while the fourth is trained
    assert time_left(state, 2).seconds == pytest.approx(120)
    assert time_left(state, 1).seconds == pytest.approx(150)
    assert (study_progress(state).done, study_progress(state).share) == (2.75, 2.75 / 4)


def test_time_left_uses_pace_of_running_trials(event_study):
    assert time_left(event_study.progress_state((3, 0)), 1).seconds is None
    event_study.propose(0)
    assert time_left(event_study.progress_state((3, 0)), 1).seconds is None
    event_study.write_worker_files(0, share=0.25, seconds=20)
    eta = time_left(event_study.progress_state((3, 0)), 1)
    # started 40 s ago, of which 20 s were updates
    assert eta.seconds == pytest.approx((0.75 + 2) * (20 + 80), abs=1)


def test_failed_runs_increase_time_left(event_study):
    event_study.propose(0).end(0, 100).propose(1).end(1, 50, state="failed")
    eta = time_left(event_study.progress_state((3, 0)), 1)
    assert eta.seconds == pytest.approx(2 * 150)


def test_trials_at_rungs_count_with_their_share(event_study):
    event_study.propose(0).rung(0, 0, 0.1, 20).propose(1).rung(1, 0, 0.1, 30).study.append(
        "started", 1, attempt=2)
    event_study.end(1, 215)
    state = event_study.progress_state((4, 0), rungs=Rungs((0.1, 1.0), 2))
    full = (20 + 215) / (0.1 + 1.0)
    assert full_run_seconds(state) == pytest.approx(full)
    assert time_left(state, 1).seconds == pytest.approx((4 - 1.1) * full)
    assert study_progress(state).candidates == (pytest.approx(1.1), 4.0)


def test_time_left_includes_start_and_validation_of_paused_and_running_trials(event_study):
    parts = {"updates": 10, "validation": 20, "other": 10}
    efforts = {part: {"seconds": seconds} for part, seconds in parts.items()}
    event_study.propose(0).rung(0, 0, 0.25, 10, efforts=efforts).propose(1)
    event_study.write_worker_files(1, share=0.125, seconds=5)
    state = event_study.progress_state((4, 0), rungs=Rungs((0.25, 1.0), 2))
    assert full_run_seconds(state) == 40 / 0.25
    assert time_left(state, 1).seconds == pytest.approx((4 - 0.25 - 0.125) * 160)


def test_progress_of_references_and_their_seeds(event_study):
    event_study.propose(0, origin="reference", label="a", is_in_space=False).end(0, 60)
    seeds = Seeds(1, 0, references=3)
    state = event_study.progress_state((0, 2), seeds=seeds)
    done = study_progress(state)
    assert (done.done, done.total, done.references, done.reference_seeds) == (1, 6, (1, 2), (0, 4))
    assert time_left(state, 1).seconds == pytest.approx(60 + 4 * 60)
    # the seeds start after the second reference
    assert time_left(state, 4).seconds == pytest.approx(60 + 60)
    event_study.propose(1, origin="reference", label="b", is_in_space=False).end(1, 100)
    event_study.propose(2, origin="replicate", original=0, seed=2).end(2, 70).propose(
        3, origin="replicate", original=1, seed=2)
    state = event_study.progress_state((0, 2), seeds=seeds)
    full = (60 + 100 + 70) / 3
    assert study_progress(state).reference_seeds == (1, 4)
    # the running replicate, and the third seed of both references
    assert time_left(state, 1).seconds == pytest.approx(full + 60 + 100)
    snapshot = StudyWatcher(event_study.study.folder).snapshot()
    assert snapshot.front_summary.size == 0 and snapshot.front_summary.hypervolume is None
    means = {row.label: (row.seeds, row.values["bleu"]) for row in snapshot.front_summary.members}
    assert means == {"a": (2, 10.0), "b": (1, 10.0)}


def test_seeds_of_duplicate_reference_repeat_its_original(event_study):
    event_study.propose(0, origin="imported").end(0, 60).propose(
        1, origin="reference", label="a", state="duplicate", original=0)
    event_study.propose(2).end(2, 80)
    state = event_study.progress_state((1, 1), seeds=Seeds(1, 0, references=3))
    assert study_progress(state).reference_seeds == (0, 2) and study_progress(state).share < 1
    assert time_left(state, 1).seconds == pytest.approx(2 * 60)
    event_study.propose(3, origin="replicate", original=0, seed=2).end(3, 60)
    state = event_study.progress_state((1, 1), seeds=Seeds(1, 0, references=3))
    progress = study_progress(state)
    assert (progress.reference_seeds, progress.front_seeds) == ((1, 2), (0, 0))


def test_front_seeds_are_upper_bound(event_study):
    event_study.propose(0).end(0, 100)
    eta = time_left(event_study.progress_state((2, 0), seeds=Seeds(3, 4)), 2)
    assert (eta.seconds, eta.front_seeds) == (pytest.approx(100 + 200), pytest.approx(200))
    event_study.propose(1).end(1, 100).propose(2, origin="replicate", original=0, seed=2)
    state = event_study.progress_state((5, 0), seeds=Seeds(3, 4))
    # the search starts no trials while further seeds are in training
    assert time_left(state, 2).seconds == pytest.approx(200)
    assert study_progress(state).front_seeds == (1, 4)


def test_progress_without_planned_work(tmp_path):
    event_study = EventStudy(tmp_path, total_trials=0)
    event_study.write_owner(candidates=0, references=0)
    snapshot = StudyWatcher(tmp_path).snapshot()
    assert (snapshot.progress.share, snapshot.progress.total) == (0.0, 0.0)
    assert snapshot.eta.seconds is None
    assert "0 % · 0 of 0 full-budget runs" in rendered(snapshot, 80)


def test_makespan():
    assert makespan([1.0] * 20_001, 2) == pytest.approx(10_000.5)
    assert makespan([], 3) == 0 and makespan([5.0, 3.0, 3.0], 2) == 6.0
    assert makespan([1.0] * 8, 8) == 1 and makespan([1.0] * 8, 8, 0.5, 2) == 3
    assert makespan([1.0] * 8, 8, 0.25, 2) == 4


def test_resumed_study_uses_plan_of_last_start(event_study):
    event_study.propose(0).end(0, 10)
    assert StudyWatcher(event_study.study.folder).snapshot().progress.candidates == (1.0, 6.0)
    event_study.write_owner(candidates=9, references=0)
    snapshot = StudyWatcher(event_study.study.folder).snapshot()
    assert snapshot.progress.candidates == (1.0, 9.0)
    assert snapshot.eta.seconds == pytest.approx(4 * 10)
