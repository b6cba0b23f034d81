"""Recipes with open parameters: the front has each architecture once, with its best recipe."""

import json
import math
from collections import defaultdict
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.config.reader import ConfigReader
from scalesearch.cost import find_protocol
from scalesearch.pareto import Objective
from scalesearch.spaces.syntax.diagnostics import SourceText
from scalesearch.spaces.syntax.yaml_reader import parse_yaml
from scalesearch.studies.executors.worker import finish_job
from scalesearch.studies.replicates.allocation import FrontOrder
from scalesearch.studies.replicates.summary import StudyView
from scalesearch.studies.results.results import load_results, make_results
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Origin, State, Trial
from scalesearch.training.recipe import Recipe
from scalesearch.training.recipe_space import build_recipe_space, extract_parameters, override_keys
from tests.studies.fakes import (
    META,
    OBJECTIVES,
    FakeSpace,
    exported,
    limit,
    make_driver,
    make_plan,
    score,
)
from tests.studies.fakes import fake_result as by_architecture
from tests.studies.quick_studies import study_command

QUESTIONS = "steps: 5\nlr: 1e-3 | 2e-3 | 4e-3\ndropout: 0..0.3 step 0.1\n"


def asking(trials=12):
    """A plan whose recipe has two open parameters."""
    reader = ConfigReader(Recipe)
    closed, leaves = extract_parameters(parse_yaml(SourceText("r.yaml", QUESTIONS))[0], reader)
    space = build_recipe_space(reader.read(closed), leaves)
    evaluator = Evaluator(FakeSpace(), find_protocol("forward", 10, 10, 100), (limit(),), space)
    return make_plan(trials, evaluator=evaluator, recipe=space.base_recipe,
                     record_fields={"recipe": space.base_recipe.model_dump()})


def by_recipe(folder, job):
    """Result of a fake training run; the best learning rate grows with depth."""
    result = by_architecture(folder, job)
    params = json.loads((folder / "architecture.yaml").read_text())
    error = abs(math.log2(job["recipe"]["lr"]["base"] * 1e3)
              - math.log2(params["depth"]) / 2) + job["recipe"]["dropout"]
    return {**result, "metrics": {**result["metrics"], "bleu": score(params) - error}}


def work(folder):
    finish_job(Path(folder), by_recipe)


@pytest.mark.parametrize("kind", ["bayes", "local", "random", "tpe", "nsga2"])
def test_architecture_and_recipe_are_proposed_once(tmp_path, kind):
    plan = asking()
    driver = make_driver(tmp_path / "study", plan, work, kind)
    driver.run()
    trained = driver.trials.with_state(State.COMPLETE)
    assert len(trained) == 12 and len({trial.identity for trial in trained}) == 12
    for trial in trained:
        assert set(trial.params) >= {"width", "recipe.lr.base", "recipe.dropout"}
        assert trial.recipe_params == {"lr.base": trial.params["recipe.lr.base"],
                               "dropout": trial.params["recipe.dropout"]}
        job = json.loads((driver.study.trial_folder(trial) / "job.json").read_text())
        assert job["recipe"] == driver.study.record(trial)["recipe"] == override_keys(
            plan.spec.recipe.model_dump(), trial.recipe_params)
        assert trial.architecture == plan.evaluator.space.architecture(trial.config).id
    copies = exported(driver).get_trials(deepcopy=False)
    assert [dict(trial.params) for trial in copies if trial.params] == [
        dict(trial.params) for trial in driver.trials]


def test_front_has_architecture_with_several_recipes_once(tmp_path):
    driver = make_driver(tmp_path / "study", asking(40), work, "random", seed=3)
    driver.run()
    runs = defaultdict(list)
    for trial in driver.trials.with_state(State.COMPLETE):
        runs[trial.architecture].append(trial)
    assert max(map(len, runs.values())) > 1
    results = make_results(driver.study)
    assert results.front["id"].is_unique
    for _, row in results.front.iterrows():
        assert row["bleu"] == max(trial.values["bleu"] for trial in runs[row["id"]])
        assert row["param.recipe.lr.base"] == driver.trials[row["trial"]].recipe_params["lr.base"]


@pytest.mark.full
def test_proposals_do_not_depend_on_interruptions(tmp_path):
    whole = make_driver(tmp_path / "whole", asking(), work, "bayes")
    whole.run()
    for trials in (5, 12):
        parts = make_driver(tmp_path / "parts", asking(trials), work, "bayes", storage=False)
        parts.run()
    assert [trial.identity for trial in parts.trials] == [trial.identity for trial in whole.trials]


def test_recipe_does_not_change_samples_of_the_space():
    plan = asking()
    without = make_plan()
    for width, depth in ((8, 1), (64, 2), (16, 4)):
        params = {"width": width, "depth": depth, "kind": "plain"}
        alone = without.evaluator.evaluate(params)
        trials = [plan.evaluator.evaluate({**params, "recipe.lr.base": lr, "recipe.dropout": 0.1})
                  for lr in (1e-3, 4e-3)]
        assert {trial.architecture
                for trial in trials} == {alone.architecture} and trials[0].costs == alone.costs
        assert trials[0].constraints == alone.constraints and len(
            {trial.identity for trial in trials}) == 2


RUN_LISTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 6)), min_size=1,
                     max_size=20, unique_by=lambda training_run: training_run[:2])


@given(RUN_LISTS)
@settings(max_examples=60)
def test_front_has_architectures_with_best_recipe(runs):
    sizes = {0: 100, 1: 200, 2: 200, 3: 300, 4: 400}
    trials = [
        Trial(
            number,
            State.COMPLETE,
            architecture=f"a{architecture}",
            recipe_params={"lr.base": recipe},
            costs={"params.total": sizes[architecture]},
            values={"bleu": bleu, "params.total": sizes[architecture]},
        )
        for number, (architecture, recipe, bleu) in enumerate(runs)
    ]
    best = {architecture: max(bleu for other, _, bleu in runs if other == architecture)
            for architecture, _, _ in runs}
    expected = {architecture for architecture in best if not any(
        (sizes[other] <= sizes[architecture] and best[other] >= best[architecture]) and
        (sizes[other] < sizes[architecture] or best[other] > best[architecture]) for other in best)}

    class Fixed(list):
        def replicates(self):
            return []

    view = StudyView(Fixed(trials), META)
    order = FrontOrder(view.candidates, OBJECTIVES, META.seeds)
    for members in (order.front, [member.number for member in view.members]):
        shown = [trials[number] for number in members]
        assert sorted(trial.architecture for trial in shown) == sorted(
            f"a{trial}" for trial in expected
        )
        assert all(trial.values["bleu"] == best[int(trial.architecture[1:])] for trial in shown)


@pytest.mark.parametrize("order", permutations(("latency", "bleu", "params.total")))
def test_best_recipe_does_not_depend_on_order_of_objectives(order):
    """A recipe with BLEU 2 must not replace one with BLEU 30 that is 0.1 ms slower."""
    directions = {"latency": "min", "bleu": "max", "params.total": "min"}
    objectives = tuple(Objective(name, directions[name], name != "params.total") for name in order)
    meta = replace(META, objectives=objectives)
    trials = [Trial(number, State.COMPLETE, architecture="a", recipe_params={"lr.base": number},
                    costs={"params.total": 100.0},
                    values={"latency": latency, "bleu": bleu, "params.total": 100.0})
              for number, (latency, bleu) in enumerate([(10.0, 30.0), (9.9, 2.0)])]

    class Fixed(list):
        def replicates(self):
            return []

    assert [member.number for member in StudyView(Fixed(trials), meta).members] == [0]


# -- Command line

STUDY = """\
study: asked
data: { builtin: grammar, pairs: 300, vocab: 300 }
recipe: { steps: 6, max_tokens: 256, beam: 1, lr: 1e-3 | 2e-3 | 4e-3 }
objectives: { loss: min, params.total: min }
protocol: { source: 12, target: 12 }
space:
  width: 16 | 32
  encoder: { depth: 1..2, heads: 2, head_dim: 8, ffn: { relu: { hidden: 32 } } }
  decoder: { depth: 1, heads: 2, head_dim: 8, ffn: { relu: { hidden: 32 } } }
reference:
  - { name: plain, set: { width: 16, encoder.depth: 1 } }
  - { name: fast, set: { width: 16, encoder.depth: 1 }, recipe: { lr: 4e-3 } }
sampler: random
seeds: { max_per_candidate: 2, extra_runs: 2 }
trials: 5
out: old
"""


def measure(place, job):
    """Return the metrics of a job without training."""
    loss = 1 + abs(job["recipe"]["lr"]["base"] - 2e-3) * 100 + job["seed"] / 1000
    return {"loss": loss, "bleu": 9 - loss, "split": "valid"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def call(tmp_path, monkeypatch, capsys, cache):
    """Function that runs ``study`` in a folder with the study file."""
    return study_command(tmp_path, monkeypatch, capsys, cache, STUDY, measure)


def trained(folder):
    return StudyDir(Path(folder)).load().trials.with_state(State.COMPLETE)


@pytest.mark.full
def test_all_views_show_recipe_parameters(call):
    dry = json.loads(call("run", "s.yaml", "--dry-run", "--json"))
    assert dry["recipe"] == {"lr.base": "0.001 | 0.002 | 0.004"}
    assert all(set(proposal["recipe_params"]) == {"lr.base"} for proposal in dry["proposals"])
    call("run", "s.yaml")
    trials = trained("old")
    assert {
        trial.label: trial.recipe_params["lr.base"]
        for trial in trials
        if trial.label and trial.original is None
    } == {"plain": 1e-3, "fast": 4e-3}
    again = [trial for trial in trials if trial.origin == Origin.REPLICATE]
    firsts = {trial.number: trial for trial in trials}
    assert again and all(
        trial.recipe_params == firsts[trial.original].recipe_params for trial in again
    )
    results = load_results(Path("old"))
    for trial in trials:
        assert results.study.record(trial)["recipe"]["lr"]["base"] == trial.recipe_params["lr.base"]
    front = json.loads(call("front", "old", "--json"))
    rows = front["front"] if isinstance(front, dict) else front
    assert {row["param.recipe.lr.base"] for row in rows} <= {1e-3, 2e-3, 4e-3}
    assert " lr" in call("front", "old") and "& lr" in call("front", "old", "--latex")
    assert "recipe.lr" in call("show", "old", str(rows[0]["trial"]))
    call("report", "old")
    assert "recipe.lr" in Path("old/report.html").read_text()


@pytest.mark.full
def test_warm_start_imports_trials_with_allowed_recipe(call):
    call("run", "s.yaml", "--set", "recipe.lr=2e-3", "--set", "reference=[]", "--set", "trials=3",
         "--set", "out=fixed")
    call("run", "s.yaml", "--set", "reference=[]", "--set", "warm_start=fixed", "--set", "out=warm")
    imported = [trial for trial in trained("warm") if trial.origin == Origin.IMPORTED]
    assert len(imported) == len({trial.architecture for trial in trained("fixed")})
    assert all(trial.recipe_params == {"lr.base": 2e-3} for trial in imported)
    identities = [trial.identity for trial in trained("warm") if trial.original is None]
    assert len(set(identities)) == len(identities)


def test_fixed_architectures_need_a_closed_recipe(call):
    output = call("run", "s.yaml", "--dry-run", "--set", "type=grid", "--set", "sampler=none",
                status=2)
    assert "s.yaml:3:" in output and "recipe.lr" in output
