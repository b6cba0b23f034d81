"""Counts, reasons, shares, extremes and fronts of whole spaces, against listing every candidate."""

import tracemalloc
from dataclasses import replace
from functools import cache

import pytest

from scalesearch.cost import Protocol, evaluate_cost, find_protocol
from scalesearch.feasible.counter import FeasibleCounter
from scalesearch.feasible.decomposition import Decomposition
from scalesearch.feasible.enumeration import TooManyCandidatesError
from scalesearch.feasible.extremes import Extremes
from scalesearch.feasible.limits import CostBound, parse_budget
from scalesearch.feasible.report import analyze_feasibility
from scalesearch.space import Space, UnbuildableError
from scalesearch.space.syntax.nodes import scalar_from_text

PROTOCOL = find_protocol("forward", 16, 16, 2000)
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
    "answers that nothing is made of": """
model: decoder-only
width: 32 | 64
encoder: { heads: 3 | 4, head_dim: = width / heads }
decoder: { depth: 1 | 2, heads: 4, ffn: relu }
""",
    "a size of nothing": """
model: decoder-only
width: 32 | 48
encoder: { heads: 3, head_dim: = width / heads }
decoder: { depth: 1 | 2, heads: 4, ffn: relu }
""",
    "depths of nothing": """
width: 16 | 32
encoder: { depth: 1 | 2 | 3, heads: 4, ffn: none }
decoder: { depth: 1, heads: 4, ffn: relu }
share: { encoder.ffn: "own | runs(1, 1) | cycle(2)" }
""",
    "schedules that nothing uses": """
width: 16 | 32
encoder: { depth: 1 | 2, heads: 4, ffn: relu | none }
decoder: { depth: 1, heads: 4, ffn: relu }
share: { encoder.ffn: "own | runs(1, 1)" }
""",
    "loans": """
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
SPACES["lengths"] = SPACES["vocab"]  # whose sentences are longer the smaller the vocabulary is
OWN = find_protocol("forward", 16, 16, "own")
PROTOCOLS = {"vocab": OWN,
             "lengths": replace(OWN,
                                lengths_by_vocab={500: (24, 26), 1000: (19, 20), 2000: (15, 17)})}
BUDGETS = {"plain": [[CostBound(PARAMS, 1, 90_000), CostBound(MACS, 1, 3_600_000)],
                     [CostBound("params.total", 1, 230_000)]],
           "edge": [[CostBound(PARAMS, 1, 70_000), CostBound(MACS, 1, 3_000_000),
                     CostBound("params.encoder", -1, -30_000)]],
           "chains": [[CostBound(PARAMS, 1, 140_000), CostBound(MACS, 1, 3_500_000)], []],
           "decoder-only": [[CostBound("params.total", 1, 160_000), CostBound(MACS, 1, 3_000_000)]],
           "by-layer": [[CostBound(PARAMS, 1, 60_000), CostBound(MACS, 1, 2_000_000)]],
           "loans": [[CostBound(PARAMS, 1, 16_000)]],
           "vocab": [[CostBound("params.total", 1, 90_000), CostBound(MACS, 1, 1_500_000)]],
           "lengths": [[CostBound("params.total", 1, 90_000), CostBound(MACS, 1, 1_500_000)]]}
CASES = [(name, bounds) for name, budgets in BUDGETS.items() for bounds in budgets]


def protocol(name: str) -> Protocol:
    return PROTOCOLS.get(name, PROTOCOL)


@cache
def listed(name: str) -> list[tuple[dict, object]]:
    """Every answer sheet with its network's bill, or None where there is no network."""
    space = Space.parse(SPACES[name])
    found = []
    for answers in space.enumerate():
        try:
            architecture = None if space.violated_constraints(answers) else space.architecture(
                answers)
        except UnbuildableError:
            architecture = None
        bill = architecture and (
            architecture.id,
            evaluate_cost(architecture.block, protocol(name).for_candidates(answers)))
        found.append((dict(answers.params), bill))
    return found


def within(bill, bounds: list[CostBound]) -> bool:
    return all(bound.sign * bill[bound.name] <= bound.limit for bound in bounds)


@cache
def taken(name: str, names: tuple[str, ...]) -> Decomposition:
    return Decomposition(Space.parse(SPACES[name]), protocol(name), names)


def counter(name: str, bounds: list[CostBound], *more: str) -> FeasibleCounter:
    return FeasibleCounter(
        taken(name, tuple(dict.fromkeys([*(bound.name for bound in bounds), *more]))), bounds)


@pytest.mark.parametrize(("name", "bounds"), CASES)
def test_counts_are_those_of_listing(name: str, bounds: list[CostBound]) -> None:
    rows = listed(name)
    count = counter(name, bounds, PARAMS)
    sound = [bill for _, bill in rows if bill]
    fitting = [bill for bill in sound if within(bill[1], bounds)]
    assert (count.n_candidates, count.n_valid, count.n_feasible) == (
        len(rows), len(sound), len(fitting))
    assert count.count_distinct([]) == len({number for number, _ in sound})
    assert count.count_distinct() == len({number for number, _ in fitting})
    assert count.n_candidates == Space.parse(SPACES[name]).n_configurations()


@pytest.mark.parametrize("name", SPACES)
def test_what_costs_exactly_the_budget_fits(name: str) -> None:
    bills = sorted((bill[1][PARAMS], bill[1][MACS]) for _, bill in listed(name) if bill)
    params, macs = bills[len(bills) // 2]
    count = counter(name, [CostBound(PARAMS, 1, params), CostBound(MACS, 1, macs)])
    assert count.n_feasible == sum(bill[0] <= params and bill[1] <= macs for bill in bills)


@pytest.mark.parametrize(("name", "bounds"), CASES)
def test_every_value_has_the_share_that_listing_finds(name: str, bounds: list[CostBound]) -> None:
    counts: dict[tuple[str, str], list[int]] = {}
    for asked, bill in listed(name):
        for parameter, value in asked.items():
            both = counts.setdefault((parameter, str(value)), [0, 0])
            both[0] += 1
            both[1] += bool(bill and within(bill[1], bounds))
    dimensions = dict(Space.parse(SPACES[name]).parameters())
    found = {(name, str(dimensions[name].values()[index])): list(both)
             for name, values in counter(name, bounds, PARAMS).count_by_value().items()
             for index, both in values.items()}
    assert found == counts


@pytest.mark.parametrize(("name", "bounds"), CASES)
def test_reasons_add_up(name: str, bounds: list[CostBound]) -> None:
    counts: dict[int, int] = {}
    for _, bill in listed(name):
        if bill:
            broken = sum(2**i
                         for i, bound in enumerate(bounds)
                         if bound.sign * bill[1][bound.name] > bound.limit)
            counts[broken] = counts.get(broken, 0) + 1
    found = counter(name, bounds, PARAMS).count_violations()
    assert sorted(count for count in found.values() if count) == sorted(counts.values())
    assert found[()] == counts.get(0, 0)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("share", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("bounded", [
    (PARAMS, MACS), ("params.total",), (PARAMS, "params.total", MACS), ("flops.total",),
    ("macs.encoder", "params.total"), ("params.decoder", MACS, "params.embedding"),
])
def test_extremes_and_the_front_are_those_of_listing(
        name: str, share: float, bounded: tuple[str, ...]) -> None:
    """Under limits at this quantile of each cost, met by some, by few or by none."""
    bills = [bill[1] for _, bill in listed(name) if bill]
    limits = {cost: sorted(bill[cost]
                           for bill in bills)[min(len(bills) - 1, int(share * len(bills)))]
              for cost in bounded}
    bounds = [CostBound(cost, 1, limit) for cost, limit in limits.items()]
    fitting = {(bill[PARAMS], bill[MACS]) for bill in bills if within(bill, bounds)}
    found = Extremes(counter(name, bounds, PARAMS, MACS), bounds)
    for i, cost_name in enumerate((PARAMS, MACS)):
        ends = [found.cheapest(cost_name), found.most_expensive(cost_name)]
        expected = [min((c[i] for c in fitting), default=None),
                    max((c[i] for c in fitting), default=None)]
        assert [end and end.costs[cost_name] for end in ends] == expected
    points, whole = found.front(PARAMS, MACS)
    best = {c
            for c in fitting if not any(d != c and d[0] >= c[0] and d[1] <= c[1] for d in fitting)}
    assert whole and {(p.costs[PARAMS], p.costs[MACS]) for p in points} == best
    for point in points[:5]:
        bill = evaluate_cost(Space.parse(SPACES[name]).architecture(point.param_values).block,
                             protocol(name).for_candidates(point.param_values))
        assert {cost_name: bill[cost_name] for cost_name in point.costs} == point.costs


@pytest.mark.parametrize("name", ["plain", "chains"])
def test_what_is_sound_meets_the_spaces_constraints_over_costs(name: str) -> None:
    bills = [bill for _, bill in listed(name) if bill]
    middle = {cost: sorted(bill[1][cost] for bill in bills)[len(bills) // 2]
              for cost in ("macs.total", "params.total")}
    limit = f"macs.total <= {middle['macs.total']}"
    space = Space.parse(
        SPACES[name] + (f"  - {limit}\n" if "where:" in SPACES[name] else f"where: ['{limit}']\n"))
    budget = parse_budget(space,
                          scalar_from_text("", "", f"params.total <= {middle['params.total']}"))
    found = analyze_feasibility(space, PROTOCOL, (budget,), n_samples=100)
    sound = [bill for bill in bills if bill[1]["macs.total"] <= middle["macs.total"]]
    fitting = [bill for bill in sound if bill[1]["params.total"] <= middle["params.total"]]
    assert found.exact and (found.n_valid, found.n_feasible) == (len(sound), len(fitting))
    assert found.n_distinct == len({number for number, _ in sound})
    assert found.n_distinct_feasible == len({number for number, _ in fitting})
    reasons = dict(zip(found.violations["violated"].str.replace(",", ""), found.violations["count"]))
    assert reasons == {"": len(fitting), budget.text: len(sound) - len(fitting)}
    assert not found.notes and found.front and len(found.extremes) == 4


def test_counting_says_how_far_it_is_and_keeps_little() -> None:
    """An index of every group was kept, once for each set of bounds: gigabytes in a large space."""
    (bounds, *_), steps = BUDGETS["edge"], []
    count = FeasibleCounter(taken("edge", tuple(bound.name for bound in bounds)), bounds[:2],
                            progress=steps.append)
    rows = sum(map(len, count.left_groups)) + sum(map(len, count.right_groups))
    tracemalloc.start()
    try:
        assert sum(count.count_violations().values()) == count.n_valid and count.count_by_value()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 40 * rows
    assert steps[0] == "counting: 0%" and len(set(steps)) > 10


def test_what_is_listed_and_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory goes by rows of sections, of their combinations and of columns that the search for extremes keeps."""
    space = Space.parse(SPACES["plain"])
    budget = parse_budget(space, scalar_from_text("", "", "params.total <= 200k"))
    whole = analyze_feasibility(space, PROTOCOL, (budget,), n_samples=100)
    assert whole.exact and whole.front
    # less than one group's column
    monkeypatch.setattr("scalesearch.feasible.extremes.MAX_CACHED_VALUES", 20)
    found = analyze_feasibility(space, PROTOCOL, (budget,), n_samples=100)
    assert [point.costs for point in found.front] == [point.costs for point in whole.front]
    assert {word: p.costs for word, p in found.extremes.items()} == {
        w: p.costs for w, p in whole.extremes.items()}
    monkeypatch.setattr("scalesearch.feasible.counter.MAX_RIGHT_ROWS", 3)
    found = analyze_feasibility(space, PROTOCOL, (budget,), n_samples=100)
    assert not found.exact and "more than 3" in found.inexact_reason
    with pytest.raises(TooManyCandidatesError):
        Decomposition(space, PROTOCOL, (PARAMS,), 3)
