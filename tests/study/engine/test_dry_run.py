"""A dry run proposes what the run then does."""

import pytest

from scalesearch.study.config.fixed_architectures import FixedArchitecture
from scalesearch.study.engine.dry_run import first_proposals
from scalesearch.study.trials.trial import State
from tests.study.fakes import architecture_of, make_driver, make_plan, make_sampler_of

NAMED = FixedArchitecture("named", architecture_of({"width": 24, "depth": 2, "kind": "plain"}),
                          None)


@pytest.mark.parametrize("kind", ["bayes", "local", "tpe", "random"])
@pytest.mark.parametrize("named", [(), (NAMED,)], ids=["alone", "with a reference"])
def test_the_first_proposals_are_those_of_the_run(tmp_path, kind, named):
    plan = make_plan(4, most=2000, references=named)
    driver = make_driver(tmp_path / "run", plan, kind=kind)
    driver.run()
    found = first_proposals(plan, make_sampler_of(plan, kind))
    run = [trial for trial in driver.trials if trial.origin != "reference"]
    assert len(found) == 4 - len(named)  # startup, of which the reference is one
    assert [one.params for one in found] == [trial.params for trial in run[: len(found)]]
    states = {State.COMPLETE: State.PENDING}
    assert [one.state for one in found] == [states.get(one.state, one.state)
                                            for one in run[: len(found)]]


def test_no_more_are_shown_than_would_be_trained():
    for trials in (1, 2):
        plan = make_plan(trials)
        assert len(first_proposals(plan, make_sampler_of(plan))) == trials
