"""A dry run lists the first proposals of the run."""

import pytest

from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.engine.dry_run import first_proposals
from scalesearch.studies.trials.trial import State
from tests.studies.fakes import architecture_of, make_driver, make_plan, make_sampler_of

NAMED = FixedArchitecture("named", architecture_of({"width": 24, "depth": 2, "kind": "plain"}),
                          None)


@pytest.mark.parametrize("kind", ["bayes", "local", "tpe", "random"])
@pytest.mark.parametrize("named", [(), (NAMED,)], ids=["alone", "with a reference"])
def test_dry_run_lists_first_proposals_of_run(tmp_path, kind, named):
    plan = make_plan(4, most=2000, references=named)
    driver = make_driver(tmp_path / "run", plan, kind=kind)
    driver.run()
    proposals = first_proposals(plan.spec, plan.evaluator, make_sampler_of(plan, kind))
    run = [trial for trial in driver.trials if trial.origin != "reference"]
    assert len(proposals) == 4 - len(named)  # startup trials include the reference
    assert [trial.params for trial in proposals] == [
        trial.params for trial in run[: len(proposals)]
    ]
    states = {State.COMPLETE: State.PENDING}
    assert [trial.state for trial in proposals] == [states.get(trial.state, trial.state)
                                            for trial in run[: len(proposals)]]


def test_number_of_proposals_is_limited():
    for trials in (1, 2):
        plan = make_plan(trials)
        assert len(first_proposals(plan.spec, plan.evaluator, make_sampler_of(plan))) == trials
