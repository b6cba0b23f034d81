"""Studies with rungs in the fake space: promotion, compute and resume."""

import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.errors import UserError
from scalesearch.samplers.hypervolume_gp import HypervolumeGP
from scalesearch.schedule import Rungs
from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.objectives import parse_objective
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.executors.base import JobCrashed, JobDone
from scalesearch.studies.executors.local import InProcessRunner
from scalesearch.studies.executors.worker import finish_job
from scalesearch.studies.forecast import read_gain
from scalesearch.studies.monitor.heartbeat import Heartbeat
from scalesearch.studies.monitor.snapshot import StudyWatcher
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Callback, EventType, State
from scalesearch.studies.trials.trials import Trials
from scalesearch.training.effort import Effort
from tests.studies import fakes
from tests.studies.fakes import (
    architecture_of,
    efforts_to,
    fake_result,
    make_driver,
    make_plan,
    score,
)

RUNGS = Rungs((0.1, 0.3, 1.0), 3)


def rung_result(folder, job):
    """Result of a fake training run at a rung or at its end."""
    if "until_share" not in job:
        return fake_result(folder, job)
    params = json.loads((folder / "architecture.yaml").read_text())
    with (folder / "paused").open("a") as file:
        file.write(f"{job['until_share']}\n")
    loss = (50 - score(params)) / 10 / job["until_share"] ** 0.1
    return {
        "state": "paused",
        "metrics": {"validation_loss": loss, "share": job["until_share"], "step": 1},
        "efforts": efforts_to(job["until_share"]),
    }


def work(folder):
    finish_job(Path(folder), rung_result)


def rung_shares(folder):
    """Folder name of each candidate to the shares at which it paused, in order."""
    return {path.parent.name: path.read_text().split() for path in folder.rglob("paused")}


def test_bayes_promotes_by_acquisition_function(tmp_path, monkeypatch):
    batch_sizes = []
    monkeypatch.setattr(HypervolumeGP, "acquisition_values",
                        lambda self, trials: batch_sizes.append(len(trials)))
    make_driver(tmp_path, make_plan(4, rungs=RUNGS), kind="bayes", work=work).run()
    assert batch_sizes


def test_paused_trials_remain_if_those_that_reach_the_end_fail(tmp_path):
    def work_that_fails_at_the_end(folder):
        if "until_share" not in json.loads((Path(folder) / "job.json").read_text()):
            raise RuntimeError("out of memory")
        work(folder)

    driver = make_driver(tmp_path, make_plan(2, rungs=RUNGS, attempts=1),
                         work=work_that_fails_at_the_end)
    driver.run()
    assert driver.trials.with_state(State.FAILED) and driver.trials.with_state(State.PAUSED)
    assert not driver.trials.with_state(State.COMPLETE)


def test_rungs_start_more_candidates_within_compute(tmp_path):
    driver = make_driver(tmp_path, make_plan(8, rungs=RUNGS), work=work)
    driver.run()
    trials = StudyDir(tmp_path).load().trials
    started = [trial for trial in trials if trial.state in (State.COMPLETE, State.PAUSED)]
    assert len(started) > 8 and trials.with_state(State.COMPLETE) and not trials.with_state(
        State.PENDING)
    assert 6 <= trials.full_runs_spent(RUNGS) <= 8 + 1e-9
    assert all(len(trial.rungs) == 2 for trial in trials.with_state(State.COMPLETE))
    for shares in rung_shares(tmp_path).values():  # each share once: no rung is repeated
        assert shares == ["0.1", "0.3"][: len(shares)]
    assert Counter(t.folder for t in trials.with_state(State.COMPLETE)) == Counter(
        path.parent.name for path in tmp_path.rglob("result.json"))


def test_reason_of_paused_trials(tmp_path):
    driver = make_driver(tmp_path, make_plan(8, rungs=RUNGS), work=work)
    driver.run()
    paused = driver.trials.with_state(State.PAUSED)
    assert paused
    for trial in paused:
        rung = len(trial.rungs) - 1
        reached = [other for other in driver.trials.candidates() if len(other.rungs) > rung]
        better = [other for other in reached if other.rungs[rung].loss < trial.rungs[rung].loss]
        smaller = [other for other in better
                   if other.costs["params.total"] <= trial.costs["params.total"]]
        reason = driver.trials.describe_pause(trial, {"params.total": "min"})
        numbers = [int(number) for number in re.findall(r"\d+", reason)]
        assert numbers == [rung + 1, len(better) + 1, len(reached), len(smaller)]


@pytest.mark.full
def test_values_of_paused_trials_and_counts_at_the_end(tmp_path):
    reference = FixedArchitecture("outside",
                                  architecture_of({"width": 16, "depth": 1, "kind": "plain"}))
    driver = make_driver(tmp_path, make_plan(16, rungs=RUNGS, references=(reference,)),
                         kind="bayes", work=work)
    driver.study.update_meta(rungs=RUNGS)
    ended = driver.run()
    paused = driver.trials.with_state(State.PAUSED)
    gain = read_gain(tmp_path)
    assert gain.new >= 0 and set(gain.paused) == {str(trial.number) for trial in paused}
    complete = driver.trials.with_state(State.COMPLETE)
    counted = driver.trials.describe_complete(is_search=True)
    assert counted == f"{len(complete) - 1} candidates and 1 reference" and counted in ended
    Heartbeat(tmp_path, {"candidates": 16, "references": 1}).finish(ended)
    snapshot = StudyWatcher(tmp_path).snapshot()
    assert snapshot.complete == counted and snapshot.progress.share == 1
    assert snapshot.progress.total == pytest.approx(driver.trials.full_runs_spent(RUNGS) + 1)


def test_efforts_of_trials_add_up(tmp_path):
    """Sum over trials of the effort up to the last rung or the end, with replicates."""
    driver = make_driver(tmp_path, make_plan(6, rungs=RUNGS, seeds=Seeds(2, 2)), work=work)
    driver.run()
    trials = StudyDir(tmp_path).load().trials
    assert len(trials.replicates()) == 2
    shares = [1.0 if trial.state == State.COMPLETE else RUNGS.shares[len(trial.rungs) - 1]
              for trial in trials.with_state(State.COMPLETE, State.PAUSED)]
    efforts = trials.efforts()
    complete = len(trials.with_state(State.COMPLETE))
    assert efforts == driver.trials.efforts()
    assert efforts["updates"].cpu_seconds == pytest.approx(60 * sum(shares))
    assert efforts["scoring"] == Effort(60 * complete, 30 * complete)
    assert efforts["other"].seconds == 2 * len(shares)
    assert all(driver.study.record(trial)["efforts"] == efforts_to(1.0)
               for trial in trials.with_state(State.COMPLETE))


def test_paused_trial_named_as_reference_is_completed(tmp_path):
    make_driver(tmp_path, make_plan(8, rungs=RUNGS), work=work).run()
    waits = StudyDir(tmp_path).load().trials.with_state(State.PAUSED)[-1]
    named = (FixedArchitecture("named", architecture_of(waits.params), waits.params),)
    before = len(StudyDir(tmp_path).load().trials)
    make_driver(tmp_path, make_plan(8, rungs=RUNGS, references=named), work=work).run()
    trials = StudyDir(tmp_path).load().trials
    *_, named = trials
    assert (named.label, named.state, named.original) == ("named", State.DUPLICATE, waits.number)
    assert trials.resolve_duplicate(named).state == State.COMPLETE and len(trials) == before + 1
    assert rung_shares(tmp_path)[waits.folder] == ["0.1", "0.3"], "continues from its rung"


@pytest.mark.parametrize("trials", [1, 2, 3])
def test_small_compute_completes_a_trial(tmp_path, trials):
    driver = make_driver(tmp_path, make_plan(trials, rungs=RUNGS), work=work)
    driver.run()
    assert (
        driver.trials.with_state(State.COMPLETE)
        and driver.trials.full_runs_spent(RUNGS) <= trials + 1e-9
    )


@pytest.mark.parametrize("kind", ["tpe", "local", "random", "nsga2"])
def test_no_trial_pauses_without_rungs(tmp_path, kind):
    driver = make_driver(tmp_path, make_plan(6), work=work, kind=kind)
    driver.run()
    assert len(driver.trials.with_state(State.COMPLETE)) == 6 and not driver.trials.with_state(
        State.PAUSED, State.FAILED)
    assert not rung_shares(tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["tpe", "gp", "random", "nsga2", "bayes"])
def test_samplers_accept_reference_without_rungs(tmp_path, kind):
    """The loss of a reference is not on the scale of trials with rungs at first."""
    inside = {"width": 16, "depth": 2, "kind": "plain"}
    plan = make_plan(5, rungs=RUNGS,
                     references=(FixedArchitecture("base", architecture_of(inside), inside),))
    make_driver(tmp_path, plan, work=work, kind=kind).run()
    assert len(StudyDir(tmp_path).load().trials.with_state(State.COMPLETE)) > 2


@pytest.mark.full
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_exhausted_space_completes_paused_trials(tmp_path, slots):
    class ParallelRunner(InProcessRunner):
        pass

    ParallelRunner.slots = slots
    driver = make_driver(tmp_path, make_plan(12, most=300, rungs=RUNGS), kind="bayes",
                         runner=ParallelRunner(work))
    ended = driver.run()
    assert len(driver.trials.with_state(State.COMPLETE)) == 8 and not driver.trials.with_state(
        State.PAUSED), ended
    assert "8 of 12 candidates trained" in ended


class CountingRunner(InProcessRunner):
    """Sixteen workers; ``n_in_training``: their jobs before each end of one."""

    slots = 16

    def __init__(self):
        super().__init__(work)
        self.n_in_training = []

    def poll(self, timeout):
        self.n_in_training.append(len(self._waiting))
        return super().poll(timeout)


@pytest.mark.parametrize(("kind", "counts"), [
    ("bayes", [5] + [4] * 4 + [3] * 4 + [2] * 10 + [1]),  # a quarter of 20, 19, … runs
    ("random", [16] * 5 + [*range(15, 0, -1)])])
def test_workers_wait_for_results_if_few_runs_are_left(tmp_path, kind, counts):
    messages = []
    view = Callback()
    view.message = messages.append
    runner = CountingRunner()
    driver = make_driver(tmp_path, make_plan(20), kind=kind, runner=runner, view=view)
    driver.run()
    assert len(driver.trials.with_state(State.COMPLETE)) == 20
    assert runner.n_in_training == counts
    assert sum("fewer workers" in message for message in messages) == (kind == "bayes")


@pytest.mark.parametrize("rungs", [RUNGS, Rungs((1.0,), 3)])
def test_objectives_can_all_be_exact_costs(tmp_path, rungs, monkeypatch):
    monkeypatch.setattr(fakes, "OBJECTIVES",
                        (parse_objective("params.total", "min"),
                         parse_objective("macs.total", "min")))
    for trials in (8, 9):
        driver = make_driver(tmp_path, make_plan(trials, rungs=rungs), work=work, kind="bayes")
        driver.run()
        assert len(driver.trials.with_state(State.COMPLETE)) > 3


class Shuffled(InProcessRunner):
    """Two workers with random order, losses and failures; interrupted after ``polls`` polls."""

    slots = 2

    def __init__(self, rng, polls):
        super().__init__(self.leave)
        self.rng = rng
        self.polls = polls

    def leave(self, folder, job):
        losses = {
            "validation_loss": self.rng.randint(1, 9) / 2,
            "share": job.get("until_share"),
            "step": 1,
        }
        return fake_result(folder, job) if "until_share" not in job else {
            "state": "paused", "metrics": losses}

    def poll(self, timeout):
        self.polls -= 1
        if not self.polls:
            raise KeyboardInterrupt
        self._waiting.rotate(self.rng.randint(0, 1))
        job = self._waiting.popleft()
        if self.rng.random() < 0.05:
            return [JobCrashed(job, "it broke", can_retry=False)]
        finish_job(job.folder, self.leave)
        return [JobDone(job)]


@pytest.mark.full
@settings(max_examples=20)
@given(st.integers(0, 999), st.lists(st.integers(3, 8), min_size=3, max_size=3))
def test_dominating_trials_are_promoted_first(tmp_path_factory, seed, n_trials):
    """``n_trials``: values of ``trials`` at the start and at each resume."""
    folder = tmp_path_factory.mktemp("study")
    rng = Random(seed)
    for trials in n_trials:
        runner = Shuffled(rng, rng.randint(3, 16))
        plan = make_plan(trials, rungs=Rungs.geometric())
        with suppress(KeyboardInterrupt, UserError):  # interrupted, or too many have failed
            make_driver(folder, plan, kind="random", runner=runner, storage=False).run()
    replayed = Trials()
    for event in StudyDir(folder).log:
        before = replayed.get(event.trial)
        if event.type == EventType.STARTED and before.state == State.PAUSED:
            now = [(trial.losses[-1], trial.costs["params.total"])
                   for trial in (before, *replayed.with_state(State.PAUSED))
                   if len(trial.losses) == len(before.losses)]
            assert not any(
                objectives != now[0] and objectives[0] <= now[0][0] and objectives[1] <= now[0][1]
                for objectives in now
            )
        replayed.apply(event)
