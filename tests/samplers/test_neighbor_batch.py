"""Sheets that are billed together: each costs what it costs alone, and is feasible."""

import random

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution

from scalesearch.cost import load_protocol
from scalesearch.feasible.limits import read_budgets
from scalesearch.library import find_file
from scalesearch.samplers.candidate import Candidate, contains
from scalesearch.samplers.encoding import decode_params
from scalesearch.samplers.neighbor_batch import NeighborBatchSampler
from scalesearch.space import read_space
from scalesearch.study.trials.evaluator import Evaluator
from scalesearch.train.recipe_space import EMPTY_RECIPE_SPACE

NAMES = ("params.total", "macs.total")
BUDGET = {"slim": "params.total <= 40M", "papers": "macs.total <= 2G",
          "edge": "params.total <= 10M", "flagship": "params.total <= 1.3M and macs.total <= 30M",
          "hat": "params.total <= 30M", "anthe": "params.total <= 60M"}


def evaluator(name: str) -> Evaluator:
    space = read_space(find_file(name, "spaces"))
    return Evaluator(space, load_protocol({**space.protocol, "vocab": 4000}),
                     read_budgets(space, [BUDGET[name]]), EMPTY_RECIPE_SPACE)


@pytest.mark.full
@pytest.mark.parametrize("name", BUDGET)
def test_each_sheet_costs_what_it_costs_alone(name: str) -> None:
    given = evaluator(name)
    rng = np.random.default_rng(1)
    drawn = random.Random(1)
    bulk = given.feasible_region.neighbor_sampler
    assert bulk is not None
    seen = 0
    for _ in range(4):
        parent = given.feasible_region.sample_feasible(drawn)
        sheets = bulk.sample_neighbors(parent, NAMES, 60, rng)
        for sheet, costs in random.Random(0).sample(sheets, min(6, len(sheets))):
            known = given.evaluate(decode_params(given.space, sheet.params).params)
            assert known.is_feasible and [known.costs[name] for name in NAMES] == costs
            assert all(contains(sheet.distributions[key], value)
                       for key, value in sheet.params.items())
            seen += sheet.key != parent.key
    assert seen > 5


def test_words_are_kept_and_numbers_are_near() -> None:
    given = evaluator("flagship")
    parent = given.feasible_region.sample_feasible(random.Random(2))
    neighbors = given.feasible_region.neighbor_sampler.sample_neighbors(
        parent, NAMES, 200, np.random.default_rng(2))
    sheets = [sheet for sheet, _ in neighbors]
    words = [name
             for name, its in parent.distributions.items()
             if isinstance(its, CategoricalDistribution)]
    assert words and len({sheet.key for sheet in sheets}) > 20
    for sheet in sheets:
        assert all(sheet.params[name] == parent.params[name] for name in words)
    changed = [sum(sheet.params.get(name) != value for name, value in parent.params.items())
               for sheet in sheets]
    assert 0 < np.mean(changed) < len(parent.params) / 2


def test_the_same_generator_gives_the_same_sheets() -> None:
    given = evaluator("edge")
    parent = given.feasible_region.sample_feasible(random.Random(3))
    one, other = ([(sheet.key, costs) for sheet, costs in given.feasible_region.neighbor_sampler.sample_neighbors(
        parent, NAMES, 50, np.random.default_rng(7))] for _ in range(2))
    assert one and one == other


def test_params_that_are_not_the_spaces_stay_as_they_are() -> None:
    given = evaluator("edge")
    parent = given.feasible_region.sample_feasible(random.Random(3))
    more = Candidate({**parent.params, "recipe.lr": 0.004},
                     {**parent.distributions, "recipe.lr": FloatDistribution(0, 1)})
    neighbors = given.feasible_region.neighbor_sampler.sample_neighbors(
        more, NAMES, 20, np.random.default_rng(1))
    sheets = [sheet for sheet, _ in neighbors]
    assert sheets and all(sheet.params["recipe.lr"] == 0.004 for sheet in sheets)
    assert all(sheet.params.keys() == sheet.distributions.keys() for sheet in sheets)


def test_what_has_no_list_of_values_stays_as_it_is() -> None:
    given = evaluator("anthe")
    rng = random.Random(0)  # its chains have any ratio
    parent = next(sheet
                  for _ in range(50)
                  if (sheet := given.feasible_region.sample_feasible(rng))
                  and any(isinstance(its, FloatDistribution)
                          for its in sheet.distributions.values()))
    neighbors = given.feasible_region.neighbor_sampler.sample_neighbors(
        parent, NAMES, 50, np.random.default_rng(1))
    sheets = [sheet for sheet, _ in neighbors]
    ratios = {name
              for name, its in parent.distributions.items() if isinstance(its, FloatDistribution)}
    assert len(sheets) > 10
    for sheet in sheets:
        assert {sheet.params[name] for name in ratios} == {parent.params[name] for name in ratios}
        assert sheet.params.keys() == sheet.distributions.keys()


def test_what_is_no_space_is_billed_sheet_by_sheet() -> None:
    assert NeighborBatchSampler.of(object(), load_protocol({"vocab": 100}), ()) is None
