"""A dry run proposes what the run then does."""

from types import SimpleNamespace

import pytest

from scalesearch.schedule.rungs import FULL
from scalesearch.study.engine.dry_run import first_proposals
from scalesearch.study.trials.plan import Reference
from tests.study.fakes import OBJECTIVES, architecture_of, make_driver, make_plan

NAMED = Reference("named", architecture_of({"width": 24, "depth": 2, "kind": "plain"}), None)


def study_of(plan, trials):
    return SimpleNamespace(space=plan.bill.space, proposer="bayes", proposer_seed=1, startup=None, population=6,
                           rows=None, references=plan.references, objectives=OBJECTIVES, trials=trials, rungs=FULL)


@pytest.mark.parametrize("kind", ["bayes", "local", "tpe", "random"])
@pytest.mark.parametrize("named", [(), (NAMED,)], ids=["alone", "with a reference"])
def test_the_first_proposals_are_those_of_the_run(tmp_path, monkeypatch, kind, named):
    plan = make_plan(4, most=2000, references=named)
    driver, idle = (make_driver(tmp_path / name, plan, kind=kind) for name in ("run", "idle"))
    driver.run()
    monkeypatch.setattr("scalesearch.study.engine.dry_run.references", lambda spec: spec.references)
    monkeypatch.setattr("scalesearch.study.engine.dry_run.searcher", lambda spec, bill: idle.strategy.proposer)
    found = first_proposals(study_of(plan, 4), plan.bill)
    run = [trial for trial in driver.ledger.trials.values() if trial.origin != "reference"]
    assert len(found) == 4 - len(named)  # startup, of which the reference is one
    assert [one.params for one in found] == [trial.params for trial in run[: len(found)]]
    assert [one.reason == "seen before" for one in found] == [trial.state == "duplicate" for trial in run[: len(found)]]


def test_no_more_are_shown_than_would_be_trained():
    plan = make_plan()
    assert [len(first_proposals(study_of(plan, trials), plan.bill)) for trials in (1, 2)] == [1, 2]
