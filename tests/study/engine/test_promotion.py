"""A study with rungs over the fake space: who goes on, what is spent, what a restart finds."""

import json
from collections import Counter
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.errors import UserError
from scalesearch.samplers.hypervolume_gp import HypervolumeGP
from scalesearch.schedule.rungs import Rungs
from scalesearch.study.config.fixed_architectures import FixedArchitecture
from scalesearch.study.config.objectives import parse_objective
from scalesearch.study.config.sections import Seeds
from scalesearch.study.executors.base import JobCrashed, JobDone
from scalesearch.study.executors.local import InProcessRunner
from scalesearch.study.executors.worker import finish_job
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import EventType, State
from scalesearch.study.trials.trials import Trials
from scalesearch.train.effort import Effort
from tests.study import fakes
from tests.study.fakes import architecture_of, efforts_to, fake_result, make_driver, make_plan, score

RUNGS = Rungs((0.1, 0.3, 1.0), 3)


def rung_result(folder, job):
    """What training would leave at a rung, or at its end."""
    if "until_share" not in job:
        return fake_result(folder, job)
    answers = json.loads((folder / "architecture.yaml").read_text())
    with (folder / "paused").open("a") as file:
        file.write(f"{job['until_share']}\n")
    loss = (50 - score(answers)) / 10 / job["until_share"] ** 0.1
    return {"state": "paused", "metrics": {"validation_loss": loss, "share": job["until_share"], "step": 1},
            "efforts": efforts_to(job["until_share"])}


def work(folder):
    from pathlib import Path

    finish_job(Path(folder), rung_result)


def passages(folder):
    """Candidate to the shares at which it was trained up to, in order."""
    return {path.parent.name: path.read_text().split() for path in folder.rglob("paused")}


def test_bayes_promotes_by_its_acquisition_function(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(HypervolumeGP, "acquisition_values",
                        lambda self, trials: asked.append(len(trials)))
    make_driver(tmp_path, make_plan(4, rungs=RUNGS), kind="bayes", work=work).run()
    assert asked


def test_the_compute_of_full_trainings_goes_to_more_candidates(tmp_path):
    driver = make_driver(tmp_path, make_plan(8, rungs=RUNGS), work=work)
    driver.run()
    trials = StudyDir(tmp_path).load().trials
    begun = [trial for trial in trials if trial.state in (State.COMPLETE, State.PAUSED)]
    assert len(begun) > 8 and trials.with_state(State.COMPLETE) and not trials.with_state(
        State.PENDING)
    assert 6 <= trials.full_runs_spent(RUNGS) <= 8 + 1e-9
    assert all(len(trial.rungs) == 2 for trial in trials.with_state(State.COMPLETE))
    for shares in passages(tmp_path).values():  # each share once: nothing is trained again
        assert shares == ["0.1", "0.3"][: len(shares)]
    assert Counter(t.folder for t in trials.with_state(State.COMPLETE)) == Counter(
        path.parent.name for path in tmp_path.rglob("result.json"))


def test_what_the_trainings_took_adds_up(tmp_path):
    """Of each, what it had taken at its last rung or its end; with further seeds; the same when read again."""
    driver = make_driver(tmp_path, make_plan(6, rungs=RUNGS, seeds=Seeds(2, 2)), work=work)
    driver.run()
    trials = StudyDir(tmp_path).load().trials
    assert len(trials.replicates()) == 2
    shares = [1.0 if trial.state == State.COMPLETE else RUNGS.shares[len(trial.rungs) - 1]
              for trial in trials.with_state(State.COMPLETE, State.PAUSED)]
    found = trials.efforts()
    complete = len(trials.with_state(State.COMPLETE))
    assert found == driver.trials.efforts()
    assert found["updates"].cpu_seconds == pytest.approx(60 * sum(shares))
    assert found["scoring"] == Effort(60 * complete, 30 * complete)
    assert found["other"].seconds == 2 * len(shares)
    assert all(driver.study.record(trial)["efforts"] == efforts_to(1.0)
               for trial in trials.with_state(State.COMPLETE))


def test_a_candidate_that_is_named_as_a_reference_goes_on_from_its_rung_to_the_end(tmp_path):
    make_driver(tmp_path, make_plan(8, rungs=RUNGS), work=work).run()
    waits = StudyDir(tmp_path).load().trials.with_state(State.PAUSED)[-1]
    named = (FixedArchitecture("named", architecture_of(waits.params), waits.params),)
    before = len(StudyDir(tmp_path).load().trials)
    make_driver(tmp_path, make_plan(8, rungs=RUNGS, references=named), work=work).run()
    trials = StudyDir(tmp_path).load().trials
    *_, named = trials
    assert (named.label, named.state, named.original) == ("named", State.DUPLICATE, waits.number)
    assert trials.resolve_duplicate(named).state == State.COMPLETE and len(trials) == before + 1
    assert passages(tmp_path)[waits.folder] == ["0.1", "0.3"], "on from where it was"


@pytest.mark.parametrize("trials", [1, 2, 3])
def test_little_compute_still_brings_somebody_to_the_end(tmp_path, trials):
    driver = make_driver(tmp_path, make_plan(trials, rungs=RUNGS), work=work)
    driver.run()
    assert driver.trials.with_state(State.COMPLETE) and driver.trials.full_runs_spent(RUNGS) <= trials + 1e-9


@pytest.mark.parametrize("kind", ["tpe", "local", "random", "nsga2"])
def test_without_rungs_nothing_pauses(tmp_path, kind):
    driver = make_driver(tmp_path, make_plan(6), work=work, kind=kind)
    driver.run()
    assert len(driver.trials.with_state(State.COMPLETE)) == 6 and not driver.trials.with_state(
        State.PAUSED, State.FAILED)
    assert not passages(tmp_path)


@pytest.mark.parametrize("kind", ["tpe", "gp", "random", "nsga2", "bayes"])
def test_a_reference_without_rungs_is_no_trouble_to_any_sampler(tmp_path, kind):
    """Until enough trials with rungs are complete, what it would come to is not on their scale."""
    inside = {"width": 16, "depth": 2, "kind": "plain"}
    plan = make_plan(5, rungs=RUNGS,
                     references=(FixedArchitecture("base", architecture_of(inside), inside),))
    make_driver(tmp_path, plan, work=work, kind=kind).run()
    assert len(StudyDir(tmp_path).load().trials.with_state(State.COMPLETE)) > 2


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_where_nothing_new_is_left_all_that_was_begun_comes_to_its_end(tmp_path, slots):
    class Several(InProcessRunner):
        pass

    Several.slots = slots
    driver = make_driver(tmp_path, make_plan(12, most=300, rungs=RUNGS), kind="bayes",
                         runner=Several(work))
    ended = driver.run()
    assert len(driver.trials.with_state(State.COMPLETE)) == 8 and not driver.trials.with_state(
        State.PAUSED), ended
    assert "8 of 12 candidates trained" in ended


@pytest.mark.parametrize("rungs", [RUNGS, Rungs((1.0,), 3)])
def test_objectives_that_are_all_exact_costs_are_searched_to_the_end(tmp_path, rungs, monkeypatch):
    monkeypatch.setattr(fakes, "OBJECTIVES",
                        (parse_objective("params.total", "min"),
                         parse_objective("macs.total", "min")))
    for trials in (8, 9):
        driver = make_driver(tmp_path, make_plan(trials, rungs=rungs), work=work, kind="bayes")
        driver.run()
        assert len(driver.trials.with_state(State.COMPLETE)) > 3


class Shuffled(InProcessRunner):
    """Two workers that end in any order, at any loss, or fail; interrupted after so many polls."""

    slots = 2

    def __init__(self, rng, polls):
        super().__init__(self.leave)
        self.rng = rng
        self.polls = polls

    def leave(self, folder, job):
        losses = {"validation_loss": self.rng.randint(1, 9) / 2, "share": job.get("until_share"), "step": 1}
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


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.lists(st.integers(3, 8), min_size=3, max_size=3))
def test_nobody_is_promoted_before_one_that_dominates_it(tmp_path_factory, seed, each):
    """``each``: what ``trials`` is set to when the study is begun and resumed."""
    folder = tmp_path_factory.mktemp("study")
    rng = Random(seed)
    for trials in each:
        runner = Shuffled(rng, rng.randint(3, 16))
        plan = make_plan(trials, rungs=Rungs.geometric())
        with suppress(KeyboardInterrupt, UserError):  # interrupted, or too many have failed
            make_driver(folder, plan, kind="random", runner=runner, storage=False).run()
    known = Trials()
    for event in StudyDir(folder).log:
        before = known.get(event.trial)
        if event.type == EventType.STARTED and before.state == State.PAUSED:
            now = [(one.losses[-1], one.costs["params.total"])
                   for one in (before, *known.with_state(State.PAUSED))
                   if len(one.losses) == len(before.losses)]
            assert not any(one != now[0] and one[0] <= now[0][0] and one[1] <= now[0][1]
                           for one in now)
        known.apply(event)
