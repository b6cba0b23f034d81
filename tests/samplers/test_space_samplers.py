"""Candidates whose costs are evaluated in one batch: costs as evaluated singly, all feasible."""

import random

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution

from scalesearch.cost import load_protocol
from scalesearch.feasible.limits import read_budgets
from scalesearch.library import find_file
from scalesearch.samplers.candidate import Candidate, contains
from scalesearch.samplers.encoding import decode_params
from scalesearch.samplers.space_samplers import NeighborBatchSampler
from scalesearch.spaces import read_space
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.training.recipe_space import EMPTY_RECIPE_SPACE

NAMES = ("params.total", "macs.total")
BUDGET = {"slim": "params.total <= 40M", "papers": "macs.total <= 2G",
          "edge": "params.total <= 10M", "flagship": "params.total <= 1.3M and macs.total <= 30M",
          "hat": "params.total <= 30M", "anthe": "params.total <= 60M"}


def evaluator_of(name: str) -> Evaluator:
    space = read_space(find_file(name, "spaces"))
    return Evaluator(space, load_protocol({**space.protocol, "vocab": 4000}),
                     read_budgets(space, [BUDGET[name]]), EMPTY_RECIPE_SPACE)


@pytest.mark.full
@pytest.mark.parametrize("name", BUDGET)
def test_batch_costs_equal_single_costs(name: str) -> None:
    evaluator = evaluator_of(name)
    rng = np.random.default_rng(1)
    rng_of_parents = random.Random(1)
    bulk = evaluator.feasible_region.neighbor_sampler
    assert bulk is not None
    n_neighbors = 0
    for _ in range(4):
        parent = evaluator.feasible_region.sample_feasible(rng_of_parents)
        candidates = bulk.sample_neighbors(parent, NAMES, 60, rng)
        for candidate, costs in random.Random(0).sample(candidates, min(6, len(candidates))):
            facts = evaluator.evaluate(decode_params(evaluator.space, candidate.params).params)
            assert facts.is_feasible and [facts.costs[name] for name in NAMES] == costs
            assert all(contains(candidate.distributions[key], value)
                       for key, value in candidate.params.items())
            n_neighbors += candidate.key != parent.key
    assert n_neighbors > 5


def test_categories_are_kept_and_numbers_stay_near() -> None:
    evaluator = evaluator_of("flagship")
    parent = evaluator.feasible_region.sample_feasible(random.Random(2))
    neighbors = evaluator.feasible_region.neighbor_sampler.sample_neighbors(
        parent, NAMES, 200, np.random.default_rng(2))
    candidates = [candidate for candidate, _ in neighbors]
    words = [name for name, distribution in parent.distributions.items()
             if isinstance(distribution, CategoricalDistribution)]
    assert words and len({candidate.key for candidate in candidates}) > 20
    for candidate in candidates:
        assert all(candidate.params[name] == parent.params[name] for name in words)
    changed = [sum(candidate.params.get(name) != value for name, value in parent.params.items())
               for candidate in candidates]
    assert 0 < np.mean(changed) < len(parent.params) / 2


def test_equal_generators_sample_equal_candidates() -> None:
    evaluator = evaluator_of("edge")
    parent = evaluator.feasible_region.sample_feasible(random.Random(3))
    sampler = evaluator.feasible_region.neighbor_sampler
    first, second = (sampler.sample_neighbors(parent, NAMES, 50, np.random.default_rng(7))
                     for _ in range(2))
    assert first and [(candidate.key, costs) for candidate, costs in first] == [
        (candidate.key, costs) for candidate, costs in second]


def test_parameters_outside_the_space_are_kept() -> None:
    evaluator = evaluator_of("edge")
    parent = evaluator.feasible_region.sample_feasible(random.Random(3))
    more = Candidate({**parent.params, "recipe.lr": 0.004},
                     {**parent.distributions, "recipe.lr": FloatDistribution(0, 1)})
    neighbors = evaluator.feasible_region.neighbor_sampler.sample_neighbors(
        more, NAMES, 20, np.random.default_rng(1))
    candidates = [candidate for candidate, _ in neighbors]
    assert candidates
    for candidate in candidates:
        assert candidate.params["recipe.lr"] == 0.004
        assert candidate.params.keys() == candidate.distributions.keys()


def test_continuous_parameters_are_kept() -> None:
    evaluator = evaluator_of("anthe")
    rng = random.Random(0)  # its chains have any ratio
    parent = next(candidate
                  for _ in range(50)
                  if (candidate := evaluator.feasible_region.sample_feasible(rng))
                  and any(isinstance(distribution, FloatDistribution)
                          for distribution in candidate.distributions.values()))
    neighbors = evaluator.feasible_region.neighbor_sampler.sample_neighbors(
        parent, NAMES, 50, np.random.default_rng(1))
    candidates = [candidate for candidate, _ in neighbors]
    ratios = [name for name, distribution in parent.distributions.items()
              if isinstance(distribution, FloatDistribution)]
    assert len(candidates) > 10
    for candidate in candidates:
        assert all(candidate.params[name] == parent.params[name] for name in ratios)
        assert candidate.params.keys() == candidate.distributions.keys()


def test_no_batch_sampler_without_a_space() -> None:
    assert NeighborBatchSampler.of(object(), load_protocol({"vocab": 100}), ()) is None
