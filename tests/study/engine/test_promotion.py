"""A study with rungs over the fake space: who goes on, what is spent, what a restart finds."""

import json
from collections import Counter

import pytest

from scalesearch.schedule.rungs import Rungs
from scalesearch.study.executors.worker import finish, rung_file
from scalesearch.study.trials.history import spent
from scalesearch.study.trials.study_dir import Store
from scalesearch.study.trials.trials import COMPLETE, FAILED, PAUSED, PENDING
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
    ledger = Store(tmp_path).load().ledger
    begun = [trial for trial in ledger.trials.values() if trial.state in (COMPLETE, PAUSED)]
    assert len(begun) > 8 and ledger.having(COMPLETE) and not ledger.having(PENDING)
    assert 6 <= spent(ledger, RUNGS) <= 8 + 1e-9
    assert all(len(trial.rungs) == 2 for trial in ledger.having(COMPLETE))
    for shares in passages(tmp_path).values():  # each share once: nothing is trained again
        assert shares == ["0.1", "0.3"][: len(shares)]
    assert Counter(t.name for t in ledger.having(COMPLETE)) == Counter(
        path.parent.name for path in tmp_path.rglob("result.json"))


@pytest.mark.parametrize("trials", [1, 2, 3])
def test_little_compute_still_brings_somebody_to_the_end(tmp_path, trials):
    driver = make_driver(tmp_path, make_plan(trials, rungs=RUNGS), work=work)
    driver.run()
    assert driver.ledger.having(COMPLETE) and spent(driver.ledger, RUNGS) <= trials + 1e-9


def test_a_restart_after_every_event_ends_as_if_there_had_been_none(tmp_path):
    whole = make_driver(tmp_path / "whole", make_plan(5, rungs=RUNGS), work=work)
    whole.run()
    for _ in range(400):
        driver = make_driver(tmp_path / "cut", make_plan(5, rungs=RUNGS), work=work)
        driver.recover()
        if not (driver._fill() or driver.ledger.having(PENDING)):
            break
        driver.runner.poll(0.1)  # trains one step; that it has ended is never heard
    ours = [(t.number, t.state, t.params, t.rungs) for t in driver.ledger.trials.values()]
    assert ours == [(t.number, t.state, t.params, t.rungs) for t in whole.ledger.trials.values()]
    assert passages(tmp_path / "cut") == passages(tmp_path / "whole")


def test_a_rung_that_was_written_but_not_heard_of_is_taken_in(tmp_path):
    driver = make_driver(tmp_path, make_plan(3, rungs=RUNGS), work=work)
    driver._fill()
    driver.runner.poll(0.1)
    (trial,) = driver.ledger.having(PENDING)
    assert (driver.store.trial_folder(trial) / rung_file(0)).exists()
    again = make_driver(tmp_path, make_plan(3, rungs=RUNGS), work=work)
    again.recover()
    (trial,) = again.ledger.having(PAUSED)
    assert len(trial.rungs) == 1 and trial.attempts == 1


@pytest.mark.parametrize("kind", ["tpe", "local", "random", "nsga2"])
def test_without_rungs_nothing_pauses(tmp_path, kind):
    driver = make_driver(tmp_path, make_plan(6), work=work, kind=kind)
    driver.run()
    assert len(driver.ledger.having(COMPLETE)) == 6 and not driver.ledger.having(PAUSED, FAILED)
    assert not passages(tmp_path)
