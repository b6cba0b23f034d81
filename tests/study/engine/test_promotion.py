"""A study with rungs over the fake space: who goes on, what is spent, what a restart finds."""

import json
from collections import Counter

import pytest

from scalesearch.schedule.rungs import Rungs
from scalesearch.study.executors.worker import finish
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import State
from tests.study.fakes import fake_result, make_driver, make_plan, score

RUNGS = Rungs((0.1, 0.3, 1.0), 3)


def rung_result(folder, job):
    """What training would leave at a rung, or at its end."""
    if "until" not in job:
        return fake_result(folder, job)
    answers = json.loads((folder / "architecture.yaml").read_text())
    with (folder / "paused").open("a") as file:
        file.write(f"{job['until']}\n")
    loss = (50 - score(answers)) / 10 / job["until"] ** 0.1
    return {"state": "paused", "metrics": {"valid_loss": loss, "share": job["until"], "step": 1}}


def work(folder):
    from pathlib import Path

    finish(Path(folder), rung_result)


def passages(folder):
    """Candidate to the shares at which it was trained up to, in order."""
    return {path.parent.name: path.read_text().split() for path in folder.rglob("paused")}


def test_the_compute_of_full_trainings_goes_to_more_candidates(tmp_path):
    driver = make_driver(tmp_path, make_plan(8, rungs=RUNGS), work=work)
    driver.run()
    trials = StudyDir(tmp_path).load().trials
    begun = [trial for trial in trials if trial.state in (State.COMPLETE, State.PAUSED)]
    assert len(begun) > 8 and trials.having(State.COMPLETE) and not trials.having(State.PENDING)
    assert 6 <= trials.spent(RUNGS) <= 8 + 1e-9
    assert all(len(trial.rungs) == 2 for trial in trials.having(State.COMPLETE))
    for shares in passages(tmp_path).values():  # each share once: nothing is trained again
        assert shares == ["0.1", "0.3"][: len(shares)]
    assert Counter(t.folder for t in trials.having(State.COMPLETE)) == Counter(
        path.parent.name for path in tmp_path.rglob("result.json"))


@pytest.mark.parametrize("trials", [1, 2, 3])
def test_little_compute_still_brings_somebody_to_the_end(tmp_path, trials):
    driver = make_driver(tmp_path, make_plan(trials, rungs=RUNGS), work=work)
    driver.run()
    assert driver.trials.having(State.COMPLETE) and driver.trials.spent(RUNGS) <= trials + 1e-9


@pytest.mark.parametrize("kind", ["tpe", "local", "random", "nsga2"])
def test_without_rungs_nothing_pauses(tmp_path, kind):
    driver = make_driver(tmp_path, make_plan(6), work=work, kind=kind)
    driver.run()
    assert len(driver.trials.having(State.COMPLETE)) == 6 and not driver.trials.having(State.PAUSED, State.FAILED)
    assert not passages(tmp_path)
