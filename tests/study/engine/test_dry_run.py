"""A dry run proposes what the run then does."""

from types import SimpleNamespace

import pytest

from scalesearch.samplers import SamplerSpec
from scalesearch.schedule.rungs import FULL
from scalesearch.study.config.rows import Reference
from scalesearch.study.engine import setup
from scalesearch.study.engine.dry_run import first_proposals
from scalesearch.study.trials.trial import State
from tests.study.fakes import OBJECTIVES, architecture_of, make_driver, make_plan, make_sampler_of

NAMED = Reference("named", architecture_of({"width": 24, "depth": 2, "kind": "plain"}), None)


def study_of(plan, trials):
    return SimpleNamespace(space=plan.evaluator.space, proposer=SamplerSpec(),
                           rows=None, references=plan.references, objectives=OBJECTIVES, trials=trials, rungs=FULL)


@pytest.mark.parametrize("kind", ["bayes", "local", "tpe", "random"])
@pytest.mark.parametrize("named", [(), (NAMED,)], ids=["alone", "with a reference"])
def test_the_first_proposals_are_those_of_the_run(tmp_path, monkeypatch, kind, named):
    plan = make_plan(4, most=2000, references=named)
    driver = make_driver(tmp_path / "run", plan, kind=kind)
    driver.run()
    monkeypatch.setattr(setup, "references", lambda spec: spec.references)
    monkeypatch.setattr(setup, "sampler_of", lambda spec, evaluator: make_sampler_of(plan, kind))
    found = first_proposals(study_of(plan, 4), plan.evaluator)
    run = [trial for trial in driver.trials if trial.origin != "reference"]
    assert len(found) == 4 - len(named)  # startup, of which the reference is one
    assert [one.params for one in found] == [trial.params for trial in run[: len(found)]]
    states = {State.COMPLETE: State.PENDING}
    assert [one.state for one in found] == [states.get(one.state, one.state) for one in run[: len(found)]]


def test_no_more_are_shown_than_would_be_trained(monkeypatch):
    monkeypatch.setattr(setup, "references", lambda spec: spec.references)
    plan = make_plan()
    assert [len(first_proposals(study_of(plan, trials), plan.evaluator)) for trials in (1, 2)] == [1, 2]
