"""Further seeds of references."""

from dataclasses import replace

import pytest

from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.replicates.summary import propose_replicate
from scalesearch.studies.results.results import load_results
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Origin, State, Trial
from tests.studies.fakes import META, architecture_of, make_driver, make_plan
from tests.studies.noisy import noisy_work

ROWS = {"base": {"width": 8, "depth": 1, "kind": "plain"},
        "large": {"width": 64, "depth": 4, "kind": "plain"}}
NAMED = tuple(FixedArchitecture(name, architecture_of(config), config if name == "base" else None)
              for name, config in ROWS.items())


def seeds_of(driver):
    """Trial to its further seeds."""
    again = {}
    for trial in driver.trials.replicates():
        again.setdefault(trial.original, []).append(trial.seed)
    return again


def test_only_references_have_further_seeds(tmp_path):
    plan = make_plan(2, references=NAMED, seeds=Seeds(1, 0, references=3))
    driver = make_driver(tmp_path, plan, work=noisy_work)
    driver.run()
    assert seeds_of(driver) == {0: [2, 3], 1: [2, 3]}
    again = make_driver(tmp_path, plan, work=noisy_work)
    again.run()
    assert len(again.trials) == len(driver.trials), "nothing is trained twice"


@pytest.mark.parametrize("trials", [0, 3])
def test_reference_seeds_are_added_to_those_of_the_front(tmp_path, trials):
    plan = make_plan(4, references=NAMED, seeds=Seeds(3, trials, references=3))
    driver = make_driver(tmp_path / "with", plan, work=noisy_work)
    driver.run()
    seeds = seeds_of(driver)
    assert {len(seeds[0]), len(seeds[1])} == {2}
    others = sum(len(trained) for number, trained in seeds.items() if number > 1)
    assert others <= trials and (others > 0) == (trials > 0)
    alone = make_driver(tmp_path / "without",
                        make_plan(4, references=NAMED,
                                  seeds=replace(plan.spec.seeds, references=1)), work=noisy_work)
    alone.run()
    assert len(alone.trials.replicates()) <= trials


def test_noise_of_an_infeasible_reference_counts(tmp_path):
    make_driver(tmp_path, make_plan(2, references=NAMED, seeds=Seeds(1, 0, references=3)),
                work=noisy_work).run()
    results = load_results(tmp_path)
    base, large = (results.study.trials[number] for number in (0, 1))
    assert base.is_eligible and not large.is_feasible
    noise = results.seed_analysis.front_order.noise["bleu"]
    assert (noise.df, noise.n_candidates) == (4, 2)
    halves = {row["trial"]: row["bleu.half_width"]
              for row in results.table.to_dict("records") if row["seeds"] == 3}
    assert halves == {number: noise.interval_half_width(results.seed_analysis.confidence, 3)
                      for number in (0, 1)}


def test_reference_trained_under_another_name_has_its_seeds(tmp_path):
    searched = make_driver(tmp_path, make_plan(6), work=noisy_work)
    searched.run()
    trained = next(trial for trial in searched.trials
                   if trial.origin == Origin.SAMPLER and trial.state == State.COMPLETE)
    late = FixedArchitecture("late", architecture_of(trained.params), trained.params)
    plan = make_plan(6, references=(late,), seeds=Seeds(1, 0, references=3))
    driver = make_driver(tmp_path, plan, work=noisy_work)
    driver.run()
    assert seeds_of(driver) == {trained.number: [2, 3]}


def test_imported_seed_is_not_trained_again(tmp_path):
    plan = make_plan(1, references=NAMED[:1], seeds=Seeds(1, 0, references=3))
    driver = make_driver(tmp_path, make_plan(1, references=NAMED[:1]), work=noisy_work)
    driver.run()
    first = driver.trials[0]
    driver.study.propose(first.replace(number=driver.trials.next_number, origin=Origin.REPLICATE,
                                 original=0, seed=3))
    driver = make_driver(tmp_path, plan, work=noisy_work)
    driver.run()
    assert seeds_of(driver) == {0: [3, 2]}


def test_seeds_of_a_recipe_that_is_no_longer_best_count(tmp_path):
    study = StudyDir(tmp_path)
    study.create(META, "width: 8\n")
    costs = {"params.total": 5.0}
    first = Trial(0, State.COMPLETE, origin=Origin.SAMPLER, architecture="a",
                  recipe_params={"recipe.lr": 1}, costs=costs, values={"bleu": 20.0, **costs},
                  ended_at="2026-01-01T00:00:00+00:00")
    best = first.replace(number=1, recipe_params={"recipe.lr": 2}, values={"bleu": 30.0, **costs})
    again = first.replace(number=2, origin=Origin.REPLICATE, original=0, seed=2)
    for trial in (first, best, again):
        study.propose(trial)
    study.update_meta(seeds=Seeds(3, 1))
    assert propose_replicate(study) is None
    study.update_meta(seeds=Seeds(3, 2))
    replicate = propose_replicate(study)
    assert (replicate.original, replicate.ended_at) == (1, None)
