"""Counts, violations, extremes and fronts of spaces, compared with enumeration."""

import random
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest

from scalesearch.cost import Protocol, evaluate_cost, find_protocol
from scalesearch.cost.training import TrainingRun
from scalesearch.feasible.counter import FeasibleCounter
from scalesearch.feasible.decomposition import Decomposition
from scalesearch.feasible.enumeration import TooManyCandidatesError
from scalesearch.feasible.extremes import Extremes
from scalesearch.feasible.limits import ADDITIVE_COSTS, CostBound, parse_budget
from scalesearch.feasible.report import analyze_feasibility
from scalesearch.spaces import Space, UnbuildableError
from scalesearch.spaces.schema.builtin import MODELS
from scalesearch.spaces.schema.cost_names import CONTEXT_COSTS, PROTOCOL_NAMES
from scalesearch.spaces.syntax.diagnostics import ConfigError
from scalesearch.spaces.syntax.nodes import scalar_from_text
from scalesearch.testing import check_count, random_architecture

PROTOCOL = find_protocol("forward", 16, 16, 2000)
OPEN_SIZES = ("width", "depth", "heads", "hidden", "head_dim", "rank")
PARAMS = "params.non_embedding"
MACS = "macs.total"

SPACES = {
    "plain": """
width: 32..48 step 16
norm: pre
encoder:
  depth: 1..3
  heads: 2 | 4
  head_dim: 16 | 32
  ffn:
    one of:
      relu: { hidden: 64..192 step 64 }
      geglu: { hidden: 64 }
      none: {}
decoder:
  depth: 1 | 2
  heads: = encoder.heads
  head_dim: = encoder.head_dim
  ffn: { relu: { hidden: 64 | 128 } }
share:
  encoder.ffn: own | one
  decoder.ffn: own | one
where:
  - decoder.depth <= encoder.depth
""",
    "edge": """
width: 32 | 48
norm: pre
encoder:
  depth: 2 | 4
  heads: 2 | 3
  head_dim: = width // encoder.heads
  gate: none | QgV
  ffn: { relu: { hidden: 64 | 192 } }
decoder:
  depth: 1 | 2
  interleaved: yes | no
  heads: = encoder.heads
  head_dim: = encoder.head_dim
  ffn: { relu: { hidden: = width // 4 } }
share:
  encoder.attention: own | cycle(1..2)
  encoder.ffn: one | load(1, 1) | load(2, 2)
  decoder.self: own | encoder.attention[2*i]
  decoder.cross: own | encoder.attention[2*i + 1]
adapt: nothing | bias
where:
  - encoder.ffn.hidden <= 4 * width
""",
    "chains": """
width: 32 | 64
norm: pre
embedding:
  one of:
    plain: {}
    h-softpos: { levels: 2 }
  tie: none
encoder:
  depth: 1..2
  heads: 2
  pg:
    one of:
      none: {}
      relu: { ratio: 1 | 2, per_head: yes | no }
  residual_scores: none | global
  ffn:
    one of:
      none: {}
      relu: { hidden: 48..64 step 16 }
decoder:
  depth: 1
  heads: 2
  ffn: { relu: { hidden: 64 } }
tensor_chain:
  length: 2 | 3
  attention: off | 0.1..0.3 step 0.2
  output: off | 0.3
""",
    "decoder-only": """
model: decoder-only | encoder-decoder
width: 32 | 64
norm: pre
encoder: { depth: 1 | 2, heads: 2 }
decoder: { depth: 1..3, heads: 2 | 4, ffn: { relu: { hidden: 64 | 96 } } }
""",
    "encoder-only": """
model: encoder-only | encoder-decoder
width: 32 | 64
norm: post
embedding: { output_transform: no | yes }
encoder: { depth: 1..3, heads: 2 | 4, ffn: { relu: { hidden: 64 | 96 } } }
decoder: { depth: 1 | 2, heads: 2 }
""",
    "vocab": """
width: 32 | 48
vocab: 500 | 1k | 2k
embedding:
  one of:
    plain: {}
    factorised: { rank: 8 | 16 }
    adaptive: { cutoffs: [600] }
  tie: all | none
encoder: { depth: 1 | 2, heads: 2, ffn: { relu: { hidden: 64 | 96 } } }
decoder: { depth: 1, heads: 2, ffn: { relu: { hidden: 64 } } }
tensor_chain: { output: off | 0.3 }
where:
  - vocab <= 32 * width
""",
    "by-layer": """
width: 32
norm: pre
encoder:
  depth: 1..3
  heads: [2 | 4, 4, 2 | 4]
  residual_scores: none | previous
  ffn: { relu: { hidden: "32 | [32, 32 | 64, 64]" } }
decoder:
  depth: 1..2
  heads: 2
  mixer: { lightweight: { kernel: "ramp(3 | 5, 3)", heads: 2 } }
  ffn: { relu: { hidden: "ramp(16 | 64, 64)" } }
share:
  encoder.ffn: own | one | runs(1, 2)
where:
  - encoder.ffn.hidden <= width + 32
""",
    "parallel": """
width: 16 | 32
encoder:
  depth: 1 | 2
  heads: 4
  sublayers: "[attention, ffn] | [[attention, ffn]]"
  parallel_heads: off | 1 | 3 | 8
  ffn: relu | none
decoder: { depth: 1, heads: 4, ffn: relu }
""",
    "unused values": """
model: decoder-only
width: 32 | 64
encoder: { heads: 3 | 4, head_dim: = width / heads }
decoder: { depth: 1 | 2, heads: 4, ffn: relu }
""",
    "unused infeasible size": """
model: decoder-only
width: 32 | 48
encoder: { heads: 3, head_dim: = width / heads }
decoder: { depth: 1 | 2, heads: 4, ffn: relu }
""",
    "depths without parts": """
width: 16 | 32
encoder: { depth: 1 | 2 | 3, heads: 4, ffn: none }
decoder: { depth: 1, heads: 4, ffn: relu }
share: { encoder.ffn: "own | runs(1, 1) | cycle(2)" }
""",
    "unused schedules": """
width: 16 | 32
encoder: { depth: 1 | 2, heads: 4, ffn: relu | none }
decoder: { depth: 1, heads: 4, ffn: relu }
share: { encoder.ffn: "own | runs(1, 1)" }
""",
    "tied across stacks": """
width: 24
norm: pre
encoder: { depth: 2 | 4, heads: 2, head_dim: [4 | 8, 8, 4, 8], ffn: { relu: { hidden: 16 } } }
decoder:
  depth: 1 | 2
  heads: 2
  head_dim: "8 | [4 | 8, 4]"
  ffn: { relu: { hidden: [8 | 16, 8..16 step 8] } }
share:
  encoder.attention: own | cycle(2)
  decoder.self: own | encoder.attention[i] | encoder.attention[2*i]
  decoder.ffn: own | one
""",
}
SPACES["lengths"] = SPACES["vocab"]  # the protocol has longer sentences for smaller vocabularies
OWN_VOCAB = find_protocol("forward", 16, 16, "own")
PROTOCOLS = {"vocab": OWN_VOCAB,
             "lengths": replace(OWN_VOCAB,
                                lengths_by_vocab={500: (24, 26), 1000: (19, 20), 2000: (15, 17)})}
BUDGETS = {"plain": [[CostBound(PARAMS, 1, 90_000), CostBound(MACS, 1, 3_600_000)],
                     [CostBound("params.total", 1, 230_000)]],
           "edge": [[CostBound(PARAMS, 1, 70_000), CostBound(MACS, 1, 3_000_000),
                     CostBound("params.encoder", -1, -30_000)]],
           "chains": [[CostBound(PARAMS, 1, 140_000), CostBound(MACS, 1, 3_500_000)], []],
           "decoder-only": [[CostBound("params.total", 1, 160_000), CostBound(MACS, 1, 3_000_000)]],
           "encoder-only": [[CostBound("params.total", 1, 160_000), CostBound(MACS, 1, 3_000_000)]],
           "by-layer": [[CostBound(PARAMS, 1, 60_000), CostBound(MACS, 1, 2_000_000)]],
           "tied across stacks": [[CostBound(PARAMS, 1, 16_000)]],
           "vocab": [[CostBound("params.total", 1, 90_000), CostBound(MACS, 1, 1_500_000)]],
           "lengths": [[CostBound("params.total", 1, 90_000), CostBound(MACS, 1, 1_500_000)]]}
LARGE_SPACES = {"plain", "edge", "chains", "tied across stacks", "by-layer"}  # take seconds


def marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.full] if name in LARGE_SPACES else []


CASES = [pytest.param(name, bounds, marks=marks(name))
         for name, budgets in BUDGETS.items() for bounds in budgets]
NAMES = [pytest.param(name, marks=marks(name)) for name in SPACES]


def protocol(name: str) -> Protocol:
    return PROTOCOLS.get(name, PROTOCOL)


@cache
def enumerated(name: str) -> list[tuple[dict, object]]:
    """All configurations with (id, costs) of the network, or None if it cannot be built."""
    space = Space.parse(SPACES[name])
    rows = []
    for config in space.enumerate():
        network = None
        if not space.violated_constraints(config):
            with suppress(UnbuildableError):
                architecture = space.architecture(config)
                candidate_protocol = protocol(name).for_candidates(config)
                network = (architecture.id, evaluate_cost(architecture.block, candidate_protocol))
        rows.append((dict(config.params), network))
    return rows


def within(costs, bounds: list[CostBound]) -> bool:
    return all(bound.sign * costs[bound.name] <= bound.limit for bound in bounds)


@cache
def decomposition(name: str, names: tuple[str, ...]) -> Decomposition:
    return Decomposition(Space.parse(SPACES[name]), protocol(name), names)


def counter(name: str, bounds: list[CostBound], *more: str) -> FeasibleCounter:
    names = dict.fromkeys([*(bound.name for bound in bounds), *more])
    return FeasibleCounter(decomposition(name, tuple(names)), bounds)


@pytest.mark.parametrize(("name", "bounds"), CASES)
def test_counts_equal_enumeration(name: str, bounds: list[CostBound]) -> None:
    rows = enumerated(name)
    count = counter(name, bounds, PARAMS)
    buildable = [entry for _, entry in rows if entry]
    fitting = [entry for entry in buildable if within(entry[1], bounds)]
    assert (count.n_candidates, count.n_valid, count.n_feasible) == (
        len(rows), len(buildable), len(fitting))
    assert count.count_distinct([]) == len({number for number, _ in buildable})
    assert count.count_distinct() == len({number for number, _ in fitting})
    assert count.n_candidates == Space.parse(SPACES[name]).n_configurations()


@pytest.mark.parametrize("name", NAMES)
def test_costs_equal_to_the_budget_are_feasible(name: str) -> None:
    pairs = sorted((entry[1][PARAMS], entry[1][MACS]) for _, entry in enumerated(name) if entry)
    params, macs = pairs[len(pairs) // 2]
    count = counter(name, [CostBound(PARAMS, 1, params), CostBound(MACS, 1, macs)])
    assert count.n_feasible == sum(entry[0] <= params and entry[1] <= macs for entry in pairs)


@pytest.mark.parametrize(("name", "bounds"), CASES)
def test_counts_per_value_equal_enumeration(name: str, bounds: list[CostBound]) -> None:
    counts: dict[tuple[str, str], list[int]] = {}
    for params, entry in enumerated(name):
        for parameter, value in params.items():
            numbers = counts.setdefault((parameter, str(value)), [0, 0, 0])
            numbers[0] += 1
            numbers[1] += bool(entry)
            numbers[2] += bool(entry and within(entry[1], bounds))
    dimensions = dict(Space.parse(SPACES[name]).parameters())
    result = {(name, str(dimensions[name].values()[index])): list(numbers)
              for name, values in counter(name, bounds, PARAMS).count_by_value().items()
              for index, numbers in values.items()}
    assert result == counts


@pytest.mark.parametrize(("name", "bounds"), CASES)
def test_violation_counts_equal_enumeration(name: str, bounds: list[CostBound]) -> None:
    counts: dict[int, int] = {}
    for _, entry in enumerated(name):
        if entry:
            violated = sum(2**i
                           for i, bound in enumerate(bounds)
                           if bound.sign * entry[1][bound.name] > bound.limit)
            counts[violated] = counts.get(violated, 0) + 1
    result = counter(name, bounds, PARAMS).count_violations()
    assert sorted(count for count in result.values() if count) == sorted(counts.values())
    assert result[()] == counts.get(0, 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("bounded", [
    (PARAMS, MACS), ("params.total",), (PARAMS, "params.total", MACS), ("flops.total",),
    ("macs.encoder", "params.total"), ("params.decoder", MACS, "params.embedding"),
])
def test_extremes_and_front_equal_enumeration(
        name: str, share: float, bounded: tuple[str, ...]) -> None:
    """The limits are quantiles of each cost, which some, few or no candidates meet."""
    breakdowns = [breakdown[1] for _, breakdown in enumerated(name) if breakdown]
    rank = min(len(breakdowns) - 1, int(share * len(breakdowns)))
    limits = {cost: sorted(breakdown[cost] for breakdown in breakdowns)[rank] for cost in bounded}
    bounds = [CostBound(cost, 1, limit) for cost, limit in limits.items()]
    fitting = {(breakdown[PARAMS], breakdown[MACS])
               for breakdown in breakdowns
               if within(breakdown, bounds)}
    extremes = Extremes(counter(name, bounds, PARAMS, MACS), bounds)
    for names, costs in (((PARAMS, MACS), fitting),
                         ((MACS, PARAMS), {(macs, params) for params, macs in fitting})):
        endpoints = [extremes.cheapest(*names), extremes.most_expensive(*names)]
        expected = [min(costs, default=None),
                    min(costs, key=lambda pair: (-pair[0], pair[1]), default=None)]
        assert [end and tuple(end.costs[name] for name in names) for end in endpoints] == expected
    points, is_complete = extremes.front(PARAMS, MACS)
    best = {c
            for c in fitting if not any(d != c and d[0] >= c[0] and d[1] <= c[1] for d in fitting)}
    assert is_complete and {(p.costs[PARAMS], p.costs[MACS]) for p in points} == best
    for point in points[:5]:
        breakdown = evaluate_cost(Space.parse(SPACES[name]).architecture(point.param_values).block,
                                  protocol(name).for_candidates(point.param_values))
        assert {cost_name: breakdown[cost_name] for cost_name in point.costs} == point.costs


@pytest.mark.parametrize("name", [
    "encoder-only", *(pytest.param(name, marks=pytest.mark.full) for name in ("plain", "chains"))])
def test_valid_candidates_satisfy_cost_constraints(name: str) -> None:
    entries = [entry for _, entry in enumerated(name) if entry]
    medians = {cost: sorted(entry[1][cost] for entry in entries)[len(entries) // 2]
               for cost in ("macs.total", "params.total")}
    limit = f"macs.total <= {medians['macs.total']}"
    space = Space.parse(
        SPACES[name] + (f"  - {limit}\n" if "where:" in SPACES[name] else f"where: ['{limit}']\n"))
    budget = parse_budget(space,
                          scalar_from_text("", "", f"params.total <= {medians['params.total']}"))
    result = analyze_feasibility(space, PROTOCOL, (budget,), n_samples=100)
    buildable = [entry for entry in entries if entry[1]["macs.total"] <= medians["macs.total"]]
    fitting = [entry for entry in buildable if entry[1]["params.total"] <= medians["params.total"]]
    assert result.exact and (result.n_valid, result.n_feasible) == (len(buildable), len(fitting))
    assert result.n_distinct == len({number for number, _ in buildable})
    assert result.n_distinct_feasible == len({number for number, _ in fitting})
    violated = result.violations["violated"].str.replace(",", "")
    reasons = dict(zip(violated, result.violations["count"]))
    assert reasons == {"": len(fitting), budget.text: len(buildable) - len(fitting)}
    assert all("macs.once" in note for note in result.notes)
    assert result.front and len(result.extremes) == 4


@pytest.mark.full
def test_counter_reports_progress_and_keeps_little_memory() -> None:
    """Indices of all groups per set of bounds would take gigabytes in a large space."""
    bounds = BUDGETS["edge"][0]
    parts = decomposition("edge", tuple(bound.name for bound in bounds))
    steps: list[str] = []
    for progress in (steps.append, None, None, None):  # the first fill the caches of libraries
        count = FeasibleCounter(parts, bounds[:2], progress=progress or (lambda step: None))
        rows = sum(map(len, count.left_groups)) + sum(map(len, count.right_groups))
        tracemalloc.start()
        try:
            assert sum(count.count_violations().values()) == count.n_valid
            assert count.count_by_value()
            n_bytes = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert n_bytes < 40 * rows
    assert steps[0] == "counting: 0%" and len(set(steps)) > 10


@pytest.mark.full
def test_counting_has_limits_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits on rows of sections, on their combinations, and on cached columns of extremes."""
    space = Space.parse(SPACES["plain"])
    budget = parse_budget(space, scalar_from_text("", "", "params.total <= 200k"))
    exact = analyze_feasibility(space, PROTOCOL, (budget,), n_samples=100)
    assert exact.exact and exact.front
    # less than the column of one group
    monkeypatch.setattr("scalesearch.feasible.extremes.MAX_CACHED_VALUES", 20)
    result = analyze_feasibility(space, PROTOCOL, (budget,), n_samples=100)
    assert [point.costs for point in result.front] == [point.costs for point in exact.front]
    assert {word: p.costs for word, p in result.extremes.items()} == {
        word: p.costs for word, p in exact.extremes.items()}
    monkeypatch.setattr("scalesearch.feasible.counter.MAX_RIGHT_ROWS", 3)
    result = analyze_feasibility(space, PROTOCOL, (budget,), n_samples=100)
    assert not result.exact and "more than 3" in result.inexact_reason
    with pytest.raises(TooManyCandidatesError):
        Decomposition(space, PROTOCOL, (PARAMS,), 3)


def random_space(rng: random.Random, model: str) -> Space:
    """A random architecture with up to three open sizes."""
    while True:
        architecture = random_architecture(rng, model=model)
        sizes = {key: f"{value} | {value + 2}" for key, value in architecture.config.items()
                 if type(value) is int and key.rsplit(".")[-1] in OPEN_SIZES}
        opened = rng.sample(sorted(sizes), min(3, len(sizes)))
        with suppress(ConfigError):  # some architectures set keys of other mixers
            return Space.parse(architecture.to_yaml()).with_overrides(
                {key: sizes[key] for key in opened})


@pytest.mark.parametrize("seed", [
    0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 12))])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("protocol_name", PROTOCOL_NAMES)
def test_costs_of_random_spaces_equal_cost(protocol_name: str, model: str, seed: int) -> None:
    space = random_space(random.Random(f"{protocol_name} {model} {seed}"), model)
    random_protocol = replace(find_protocol(protocol_name, 5, 4, 30), training=TrainingRun(
        steps=9, max_tokens=30, optimizer="soap"))
    names = tuple(name for name in ADDITIVE_COSTS if name not in CONTEXT_COSTS)
    count = FeasibleCounter(Decomposition(space, random_protocol, names), [])
    candidates = [count.candidate_at(cell, left, right)
                  for cell in count.cells if cell.is_allowed
                  for left in range(int(count.left_groups[cell.left].is_valid.sum()))
                  for right in range(int(count.right_groups[cell.right].is_valid.sum()))]
    for candidate in candidates:
        cost = evaluate_cost(space.architecture(candidate.param_values).block, random_protocol)
        assert candidate.costs == {name: cost[name] for name in names}
    check_count(space)


def test_activations_of_decoder_only_models_equal_cost() -> None:
    """The output layer stores no states of the source."""
    space = Space.parse("model: decoder-only\nwidth: 32\n"
                        "decoder: {depth: 1, heads: 1, ffn: {relu: {hidden: 32 | 33}}}\n")
    bounds = [CostBound("memory.activations", 1, 10_636)]
    names = ("memory.activations",)
    forward = find_protocol("forward", 3, 4, 50)
    assert FeasibleCounter(Decomposition(space, forward, names), bounds).n_feasible == 1


def test_equal_encoders_of_two_models_have_their_own_activations() -> None:
    """The output layer of an encoder-only model stores other states."""
    space = Space.parse("model: encoder-only | encoder-decoder\nwidth: 24\nnorm: pre\n"
                        "encoder: { depth: 1 | 2, heads: 4, ffn: relu | none }\n"
                        "decoder: { depth: 1, heads: 4 }\n")
    forward = find_protocol("forward", 6, 5, 100)
    name = "memory.activations"
    networks = [space.architecture(params) for params in space.enumerate()]
    costs = {network.id: evaluate_cost(network.block, forward)[name] for network in networks}
    counted = Decomposition(space, forward, (name,))
    for limit in set(costs.values()):
        count = FeasibleCounter(counted, [CostBound(name, 1, limit)])
        assert count.count_distinct() == sum(cost <= limit for cost in costs.values())
