"""Sampling from the feasible part of a space, and repair of infeasible candidates."""

import math
import random
from collections import Counter
from functools import partial

import pytest

from scalesearch.feasible.budget_sampler import BudgetSampler
from scalesearch.feasible.dominance import DominanceIndex
from scalesearch.feasible.estimate import log_probability
from scalesearch.feasible.limits import as_cost_bounds
from scalesearch.samplers import SAMPLER_NAMES
from scalesearch.samplers.candidate import candidate_key, sample_candidate
from scalesearch.samplers.candidate_facts import FactsCache
from scalesearch.samplers.encoding import decode_params, encode_params, suggest_params
from scalesearch.samplers.feasible_region import MAX_EVALUATIONS
from scalesearch.samplers.space_samplers import ExactFeasibleSampler
from scalesearch.samplers.trial_history import is_infeasible
from scalesearch.spaces import Space
from scalesearch.spaces.syntax.parameters import Choice, FloatRange, IntRange
from tests.samplers.pools import FORWARD, Searched, known_of, region_of
from tests.samplers.pools import SPACE as SMALL
from tests.samplers.test_samplers import GP_MARKS

THIN = Space.parse("""
space: thin
width: 16..128 step 16
norm: pre | post
encoder:
  depth: 1..6
  heads: 2 | 4
  ffn:
    one of:
      relu: { hidden: 16..256 log }
      swiglu: { hidden: 32..256 step 32 }
decoder:
  depth: 1..4
  heads: = encoder.heads
  ffn: { relu: { hidden: 32..256 step 32 } }
share:
  encoder.attention: own | cycle(1..2)
where:
  - decoder.depth <= encoder.depth
cost:
  protocol: { source: 10, target: 10, vocab: 100 }
  budgets:
    thin: params.total <= 12k
    wide: params.total <= 300k and macs.total <= 6M
    low: params.total <= 60k and params.total >= 30k
    impossible: params.total <= 1k
""")
ENDLESS = THIN.with_overrides({"tensor_chain": "{ ffn: off | 0.05..0.5 log, length: 2 }"})
N_SAMPLES = 400


def limits(budget, space=THIN):
    return (*space.constraints, space.budgets[budget])


def region(budget, space=THIN):
    return region_of(space, limits(budget, space))


def budget_sampler(budget):
    return BudgetSampler(THIN, FORWARD,
                         as_cost_bounds(limit for limit in limits(budget) if limit.costs))


def thin_space():
    """Only the budget ``thin``."""
    return Space.parse(THIN.to_yaml().split("  budgets:")[0]
                       + "  budgets:\n    thin: params.total <= 12k\n")


@pytest.mark.full
@pytest.mark.parametrize("budget", ["thin", "wide", "low"])
def test_exact_samples_are_feasible(budget):
    exact = ExactFeasibleSampler.of(THIN, FORWARD, limits(budget))
    rng = random.Random(1)
    feasible = region(budget).is_feasible
    assert all(feasible(exact.sample(rng)) for _ in range(N_SAMPLES))


@pytest.mark.full
@pytest.mark.parametrize("budget",
                         ["params.total <= 60k and macs.total <= 1M", "params.total <= 12k",
                          "params.total >= 9k and params.total <= 16k and macs.total <= 150k"])
def test_budget_samples_are_distributed_as_by_rejection(budget):
    space = SMALL.with_overrides({"width": "16..22 log",
                                  "encoder.ffn.relu.hidden": "= 2 * width | 16"})
    space = Space.parse(space.to_yaml().replace("params.total <= 60k and macs.total <= 1M", budget))
    budgets = tuple(space.budgets.values())
    facts_of = known_of(space, budgets)
    chance = {}  # of each feasible candidate: product over its parameters
    for values in space.enumerate():
        if facts_of(encode_params(space, values)[0]).is_feasible:
            chance[candidate_key(values.params)] = math.prod(
                math.exp(log_probability(parameter, values.params[name]))
                for name, parameter in space.parameters() if name in values.params)
    drawn = BudgetSampler(space, FORWARD, as_cost_bounds(budgets))
    rng = random.Random(2)
    assert len(chance) > 0 and drawn.feasible_share == pytest.approx(sum(chance.values()))
    counts = Counter(candidate_key(drawn.sample(rng)) for _ in range(2000))
    assert set(counts) <= set(chance)
    surprise = sum((counts[key] - 2000 * p / drawn.feasible_share) ** 2
                   / (2000 * p / drawn.feasible_share) for key, p in chance.items())
    # chi-squared: its mean and five deviations
    assert surprise < len(chance) + 5 * math.sqrt(2 * len(chance))


@pytest.mark.full
def test_random_candidates_follow_the_parameter_distribution():
    space = SMALL.with_overrides({"width": "16..22 log"})
    rng = random.Random(4)
    parameter = dict(space.parameters())["width"]
    counts = Counter(sample_candidate(partial(suggest_params, space), rng).params["width"]
                    for _ in range(4000))
    assert [counts[value] / 4000 for value in parameter.values()] == pytest.approx(
        [math.exp(log_probability(parameter, value)) for value in parameter.values()], abs=0.03)


def test_feasible_share_without_a_budget_is_one():
    space = Space.parse(THIN.to_yaml().split("where:")[0])
    assert BudgetSampler(space, FORWARD, []).feasible_share == pytest.approx(1)


def test_impossible_budget_has_share_zero():
    sampler = budget_sampler("impossible")
    assert sampler.feasible_share == 0 and sampler.sample(random.Random(1)) is None


@pytest.mark.parametrize("parameter",
                         [Choice((4, 1, "x")), IntRange(3, 9, 2), IntRange(1, 40, 1, True),
                          FloatRange(0.0, 1.0, 0.25)])
def test_probabilities_of_values_match_samples(parameter):
    rng = random.Random(3)
    values = list(parameter.values())
    counts = Counter(values.index(parameter.sample(rng)) for _ in range(20_000))
    chances = [math.exp(log_probability(parameter, value)) for value in values]
    assert sum(chances) == pytest.approx(1)
    assert all(counts[index] / 20_000 == pytest.approx(chance, abs=0.015)
               for index, chance in enumerate(chances))


@pytest.mark.parametrize("numbers", [0, 1, 2, 3])
def test_weight_within_bounds_equals_a_plain_sum(numbers):
    import numpy as np

    rng = np.random.default_rng(numbers)
    for size in (1, 2, 7, 64, 100):
        points = rng.integers(0, 9, (size, numbers))
        weights = rng.random(size)
        room = rng.integers(-1, 11, (40, numbers))
        plain = [weights[(points <= bounds).all(1)].sum() for bounds in room]
        assert DominanceIndex(points, weights).weight_within(room) == pytest.approx(plain)


@pytest.mark.parametrize("space", [THIN, ENDLESS])
@pytest.mark.parametrize("seed", range(4))
def test_repair_ends_in_the_region_near_its_start(space, seed):
    thin = region("thin", space)
    rng = random.Random(seed)
    candidates = iter(lambda: sample_candidate(thin.define, rng), None)
    start = next(candidate for candidate in candidates if not thin.is_feasible(candidate.params))
    count = []
    facts = thin.facts
    thin.facts = FactsCache(lambda params: count.append(1) or facts(params))
    repaired = thin.repair(start.params, random.Random(seed))
    assert repaired is not None and thin.is_feasible(
        repaired.params) and len(count) <= MAX_EVALUATIONS + 1
    assert repaired == region("thin", space).repair(start.params, random.Random(seed))
    # other values are unchanged
    assert sum(repaired.params.get(name) == value for name, value in start.params.items()) >= 2
    again = thin.repair(start.params, random.Random(seed), {thin.facts.identity(repaired.params)})
    assert again is not None and thin.facts.identity(again.params) != thin.facts.identity(
        repaired.params)


def test_repair_keeps_a_feasible_candidate_and_fails_without_one():
    wide = region("wide")
    candidate = wide.sample_feasible(random.Random(1))
    assert wide.repair(candidate.params, random.Random(1)) == candidate
    assert region("impossible").repair(candidate.params, random.Random(1)) is None


@pytest.mark.full
@pytest.mark.parametrize(("budget", "space", "sparse", "exact"), [
    ("wide", THIN, False, None), ("thin", THIN, True, True), ("thin", ENDLESS, True, False)])
def test_every_sampling_method_returns_feasible_candidates(budget, space, sparse, exact):
    feasible_region = region(budget, space)
    samples = [feasible_region.sample_feasible(random.Random(seed)) for seed in range(8)]
    assert all(feasible_region.is_feasible(candidate.params) for candidate in samples)
    assert feasible_region.is_sparse is sparse
    assert exact is None or (feasible_region.exact_sampler is not None) is exact
    assert region(budget, space).sample_feasible(random.Random(1)) == samples[1]


@pytest.mark.full
def test_impossible_budget_is_recognized():
    assert region("impossible").sample_feasible(
        random.Random(1)) is None and region("impossible").feasible_share == 0
    assert region("impossible", ENDLESS).sample_feasible(random.Random(1)) is None


@pytest.mark.full
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=GP_MARKS if name == "gp" else []) for name in SAMPLER_NAMES])
def test_samplers_waste_few_proposals_in_a_sparse_space(name):
    """About one sample in 200 is feasible; only TPE may propose infeasible ones, and learn."""
    count = 8 if name == "gp" else 16
    search = Searched(name, space=thin_space()).run(count)
    assert budget_sampler("thin").feasible_share < 0.01 and len(search.started) == count
    infeasible = sum(map(is_infeasible, search.trials))
    assert infeasible <= (len(search.started) if name == "tpe" else 0)
    # a grid lists every candidate
    assert name == "grid" or len(search.trials) - len(search.started) - infeasible <= 4


@pytest.mark.parametrize("space", [SMALL, THIN, ENDLESS])
def test_encoding_round_trip(space):
    rng = random.Random(1)
    for _ in range(20):
        candidate = sample_candidate(partial(suggest_params, space), rng)
        values = decode_params(space, candidate.params)
        assert encode_params(space, values) == (candidate.params, candidate.distributions)


def test_two_parameters_with_one_path_are_distinguished():
    few = Choice((1, 2))
    many = IntRange(3, 9)

    class Twice:
        def parameters(self):
            return [("kind", Choice(("few", "many"))), ("size", few), ("size", many)]

        def resolve(self, ask):
            return {"size": ask("size",
                                few if ask("kind", Choice(("few", "many"))) == "few" else many)}

    space = Twice()
    assert encode_params(space, {"kind": "few", "size": 2})[0] == {"kind": "few", "size": 1}
    assert encode_params(space, {"kind": "many", "size": 9})[0] == {"kind": "many", "size#2": 9}
    assert decode_params(space, {"kind": "many", "size#2": 9, "size": 0}) == {"size": 9}
