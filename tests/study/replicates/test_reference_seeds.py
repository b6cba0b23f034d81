"""Further seeds of the references, as the rows of a table need them."""

from dataclasses import replace

import pytest

from scalesearch.study.config.rows import Reference
from scalesearch.study.config.sections import Seeds
from tests.study.fakes import architecture_of, make_driver, make_plan
from tests.study.noisy import noisy_work

ROWS = {"base": {"width": 8, "depth": 1, "kind": "plain"}, "far": {"width": 64, "depth": 4, "kind": "plain"}}
NAMED = tuple(Reference(name, architecture_of(one), one if name == "base" else None) for name, one in ROWS.items())


def seeds_of(driver):
    """Trial to the seeds of its further trainings."""
    again = {}
    for trial in driver.trials.replicates():
        again.setdefault(trial.of, []).append(trial.seed)
    return again


def test_each_reference_has_its_seeds_and_nobody_else(tmp_path):
    driver = make_driver(tmp_path, make_plan(2, references=NAMED, seeds=Seeds(1, 0, references=3)), work=noisy_work)
    driver.run()
    assert seeds_of(driver) == {0: [2, 3], 1: [2, 3]}
    again = make_driver(tmp_path, driver.plan, work=noisy_work)
    again.run()
    assert len(again.trials) == len(driver.trials), "nothing is trained twice"


@pytest.mark.parametrize("trials", [0, 3])
def test_they_take_nothing_from_the_front(tmp_path, trials):
    plan = make_plan(4, references=NAMED, seeds=Seeds(3, trials, references=3))
    driver = make_driver(tmp_path / "with", plan, work=noisy_work)
    driver.run()
    found = seeds_of(driver)
    assert {len(found[0]), len(found[1])} == {2}
    others = sum(len(seeds) for number, seeds in found.items() if number > 1)
    assert others <= trials and (others > 0) == (trials > 0)
    alone = make_driver(tmp_path / "without", replace(plan, seeds=replace(plan.seeds, references=1)), work=noisy_work)
    alone.run()
    assert len(alone.trials.replicates()) <= trials
