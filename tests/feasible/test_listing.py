"""Listed spaces, estimates by weighted samples, and spellings of one budget."""

import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.feasible.decomposition import Decomposition
from scalesearch.feasible.enumeration import TooManyCandidatesError
from scalesearch.feasible.estimate import estimate_feasibility
from scalesearch.feasible.limits import read_budgets
from scalesearch.feasible.nearest import ProjectedCandidate, find_nearest
from scalesearch.feasible.pieces import NetworkPiece
from scalesearch.feasible.report import FeasibilityReport, analyze_feasibility
from scalesearch.feasible.tables import render_report
from scalesearch.spaces import Space, UnbuildableError

# The branch gelu has eight configurations for each two of relu.
UNEVEN = """
width: 16 | 24
norm: pre | post
encoder:
  depth: 1
  heads: 2
  ffn: { one of: { relu: { hidden: 16 | 32 }, gelu: { hidden: 2..9 } } }
decoder: { depth: 1..3, heads: 2, ffn: { relu: { hidden: 16 } } }
where: [encoder.ffn.gelu.hidden != 9, decoder.depth <= encoder.depth + 1]
cost: { protocol: { source: 8, target: 8, vocab: 200 } }
"""
# The same branches in 1,920 configurations.
LARGE = UNEVEN.replace("heads: 2", "heads: 1 | 2").replace("relu: { hidden: 16 } }",
                                                           "relu: { hidden: 8 | 12 | 16 | 24 } }")
BUDGET = "params.total <= 12k"
SPELLINGS = (BUDGET, "not params.total > 12k", "not not params.total <= 12k",
             "12k >= params.total", "params.total * 2 <= 24k", "params.total <= 12k and width >= 1",
             "params.total <= 12k and artifact.bytes <= 1000M",
             "params.total <= 12k and load.mean >= 0", "1 <= params.total <= 12k",
             "params.total <= 12k or params.total < 0")
PROTOCOL = replace(find_protocol("forward", 8, 8, 200), artifact="ctranslate2-int8")


def analyze(text: str, *budgets: str, n_samples: int = 50) -> FeasibilityReport:
    space = Space.parse(text)
    return analyze_feasibility(space, PROTOCOL, read_budgets(space, budgets), n_samples)


def counts(report: FeasibilityReport) -> tuple[int | None, ...]:
    return (report.n_candidates, report.n_valid, report.n_feasible, report.n_distinct,
            report.n_distinct_feasible)


def front_costs(report: FeasibilityReport) -> list[tuple[int, int]]:
    return [(point.costs["params.non_embedding"], point.costs["macs.total"])
            for point in report.front]


@pytest.mark.parametrize("spelling", SPELLINGS[1:])
def test_spellings_of_a_budget_have_the_same_counts(spelling: str) -> None:
    expected = analyze(UNEVEN, BUDGET)
    report = analyze(UNEVEN, spelling)
    assert counts(report) == counts(expected) and report.exact and 0 < report.share < 1
    assert report.value_shares.equals(expected.value_shares)
    if spelling != "1 <= params.total <= 12k":  # no front within lower bounds of sections
        assert front_costs(report) == front_costs(expected)
        for label, point in report.extremes.items():
            name = label.split()[1]
            assert point.costs[name] == expected.extremes[label].costs[name]


def small_space(rng: random.Random) -> str:
    """The text of a random space of at most 320 configurations."""
    variants = rng.sample(["relu", "gelu", "geglu"], rng.randint(1, 2))
    sizes = [rng.choice(["16", "16 | 32", "8..10", '"[16 | 32, 24]"']) for _ in variants]
    ffn = ", ".join(f"{name}: {{ hidden: {size} }}" for name, size in zip(variants, sizes))
    return f"""
width: 16 | 24
norm: {rng.choice(["pre", "pre | post"])}
last_norm: {rng.choice(["yes", "yes | no if norm == pre else yes"])}
encoder: {{ depth: 1 | 2, heads: 2, ffn: {{ one of: {{ {ffn} }} }} }}
decoder:
  depth: {rng.choice(["1", "1 | 2"])}
  heads: 2
  ffn: {{ relu: {{ hidden: 16 }} }}
share: {{ encoder.ffn: {rng.choice(["own", "own | one"])} }}
where: [{rng.choice(["width >= 16", "decoder.depth <= encoder.depth"])}]
cost: {{ protocol: {{ source: 8, target: 8, vocab: 200 }} }}
"""


@pytest.mark.full
@pytest.mark.parametrize("cost", ["params.total", "macs.total", "memory.activations",
                                  "artifact.bytes", "load.mean"])
def test_spellings_of_a_budget_have_the_counts_of_enumeration_in_random_spaces(cost: str) -> None:
    rng = random.Random(cost)
    text = small_space(rng)
    space = Space.parse(text)
    costs = []
    for config in space.enumerate():
        if not space.violated_constraints(config):
            with suppress(UnbuildableError):
                costs.append(evaluate_cost(space.architecture(config).block, PROTOCOL)[cost])
    limit = rng.choice(costs)
    expected = (space.n_configurations(), len(costs), sum(value <= limit for value in costs))
    for budget in (f"{cost} <= {limit}", f"not {cost} > {limit}", f"{limit} >= {cost}",
                   f"{cost} <= {limit} and {cost} <= {limit} + 1",
                   f"{cost} <= {limit} and width >= 1",
                   f"not {cost} > {limit} and width >= 1"):
        report = analyze(text, budget, n_samples=1)
        assert report.exact and counts(report)[:3] == expected, budget


@pytest.mark.parametrize("budget", [
    "artifact.bytes <= 55000", "load.balance >= 0.9", "artifact.bytes / params.total <= 5",
    "artifact.bytes >= 55000 and load.mean <= 1 and params.total >= 5k", "artifact.bytes <= 1"])
def test_listed_counts_equal_enumeration(budget: str) -> None:
    text = UNEVEN.replace("decoder:", "share: { decoder.ffn: own | one }\ndecoder:")
    report = analyze(text, budget)
    space = Space.parse(text)
    limits = read_budgets(space, [budget])
    n_valid = 0
    n_feasible = 0
    sizes = []
    for params in space.enumerate():
        if space.violated_constraints(params):
            continue
        cost = evaluate_cost(space.architecture(params).block, PROTOCOL)
        n_valid += 1
        n_feasible += all(limit.is_satisfied(cost.__getitem__) for limit in limits)
        sizes.append(cost["artifact.bytes"])
    assert report.estimator == "list"
    assert (report.n_valid, report.n_feasible) == (n_valid, n_feasible)
    assert bool(report.front) == bool(n_feasible)
    assert report.min_costs == ({} if n_feasible else {"artifact.bytes": min(sizes)})


def test_limits_on_parameters_that_a_network_does_not_depend_on_are_counted() -> None:
    """A language model has no encoder: one depth within the limit is enough."""
    text = UNEVEN.replace("depth: 1\n", "depth: 1..3\n").replace(
        "norm: pre | post", "model: encoder-decoder | decoder-only")
    budget = "encoder.depth >= 2"
    space = Space.parse(text)
    limits = read_budgets(space, [budget])
    networks = {space.architecture(params).id for params in space.enumerate()
                if not space.violated_constraints(params)
                and all(limit.is_satisfied(params.__getitem__) for limit in limits)}
    report = analyze(text, budget)
    assert report.estimator == "list"
    assert report.n_distinct_feasible == len(networks)


def test_formats_that_do_not_support_a_network_leave_other_budgets_alone() -> None:
    """Without artifact.bytes in the budget, the export format has no effect."""
    pg = "  pg: { one of: { none: {}, relu: { ratio: 2 } } }\n"
    text = UNEVEN.replace("  heads: 2\n", f"  heads: 2\n{pg}", 1)
    plain = analyze(text, BUDGET)
    assert plain.estimator == "sections"
    listed = analyze(text, BUDGET, "artifact.bytes <= 1000M")
    assert counts(listed)[:2] == counts(plain)[:2]
    assert 0 < listed.n_feasible < plain.n_feasible


@pytest.mark.parametrize("spelling", [BUDGET, "params.total <= 12k and load.mean >= 0"])
@pytest.mark.full
def test_estimates_are_shares_of_configurations(
        spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = analyze(LARGE, BUDGET)
    monkeypatch.setattr("scalesearch.feasible.listing.MAX_LISTED", 10)
    monkeypatch.setattr("scalesearch.feasible.counter.MAX_RIGHT_ROWS", 1)
    report = analyze(LARGE, spelling, n_samples=1500)
    assert report.estimator == "samples" and not report.exact
    assert report.share == pytest.approx(exact.share, abs=0.03)
    assert report.share_low <= exact.share <= report.share_high
    rows = report.value_shares.merge(exact.value_shares, on=["parameter", "value"])
    assert len(rows) == len(exact.value_shares)
    assert rows["share_x"].to_numpy() == pytest.approx(rows["share_y"].to_numpy(), abs=0.16)
    # each branch is sampled equally often
    assert report.sample["fits"].mean() != pytest.approx(exact.n_feasible / exact.n_valid, abs=0.06)


def test_shares_of_values_are_shares_of_valid_configurations() -> None:
    """Decoders of three layers are never valid; all others are equally often."""
    values = analyze(UNEVEN, BUDGET).value_shares.set_index(["parameter", "value"])
    depths = values.loc["decoder.depth"]
    assert depths["candidates"].tolist() == [40, 40, 40]
    assert depths["valid"].tolist() == [36, 36, 0]
    assert depths["share"].tolist() == [*(depths["feasible"] / 36)[:2], 0]
    assert depths["verdict"].tolist()[2] == "never valid"


@pytest.mark.parametrize("comparison", ["params.embedding <= 0.6 * params.total",
                                        "load.mean >= 1"])
@pytest.mark.parametrize("as_budget", [True, False])
def test_limits_that_are_not_bounds_on_sums_are_named(comparison: str, as_budget: bool) -> None:
    text = UNEVEN.replace("width: 16 | 24", f"width: 16..{10**12}")
    if not as_budget:
        text = text.replace("where: [", f"where: [params.total >= 1 and {comparison}, ")
    budget = f"{BUDGET} and {comparison}" if as_budget else BUDGET
    assert f"`{comparison}`" in analyze(text, budget, n_samples=20).inexact_reason


@pytest.mark.parametrize("high", [10**12, 10**15])
def test_long_ranges_are_sampled(high: int) -> None:
    text = UNEVEN.replace("width: 16 | 24", f"width: 16..{high}")
    report = analyze(text, BUDGET, n_samples=20)
    assert report.estimator == "samples" and report.share_high < 1


def test_nearest_costs_of_samples_are_reported_without_table_of_shares() -> None:
    text = UNEVEN.replace("width: 16 | 24", f"width: 16..{10**15}")
    report = analyze(text, "params.total <= 10 and params.encoder >= 1")
    assert report.min_costs == {"params.total": report.sample["params.total"].min()}
    assert report.max_costs == {} and not analyze(text, "params.total >= 1").min_costs
    parts = list(render_report(report))
    assert len(parts) == 4 and f"{report.min_costs['params.total']:,}" in parts[-1]


def test_front_of_samples_has_costs_of_any_size() -> None:
    """Costs of more than 64 bits are exact."""
    text = UNEVEN.replace("width: 16 | 24", f"width: {10**12}..{10**13}")
    front = analyze(text, "params.total <= 1e40", n_samples=100).front
    sizes = [point.costs["params.non_embedding"] for point in front]
    assert sizes[0] > 2**64 and sizes == sorted(set(sizes))


@pytest.mark.parametrize("invalid", [
    UNEVEN.replace("where: [", "where: [params.total <= 10, "),
    UNEVEN + "matrices: { attention: group(5) }"])  # 5 divides neither width
@pytest.mark.parametrize("budget", [BUDGET, "load.mean <= 1"])
def test_spaces_without_valid_candidates_are_counted(invalid: str, budget: str) -> None:
    report = analyze(invalid, budget)
    assert report.exact and counts(report) == (120, 0, 0, 0, 0)


@pytest.mark.full
def test_size_is_estimated_without_bias() -> None:
    space = Space.parse(LARGE)
    estimate = estimate_feasibility(space, PROTOCOL, read_budgets(space, [BUDGET]),
                                    ("params.total",), 1900, 1)
    assert estimate.size == pytest.approx(1920, rel=0.05) and estimate.n_samples == 1900


def test_small_spaces_are_evaluated_instead_of_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = analyze(UNEVEN, BUDGET, n_samples=119)
    assert exact.exact and exact.n_samples == len(exact.sample) == exact.n_valid == 72
    assert exact.sample["fits"].sum() == exact.n_feasible
    for counted in ("Decomposition", "ListedSpace"):
        monkeypatch.setattr(f"scalesearch.feasible.report.{counted}", _raise_too_many)
    report = analyze(UNEVEN, BUDGET, n_samples=120)
    assert not report.exact and report.n_samples == len(report.sample) == 120
    assert report.share == pytest.approx(exact.share)
    assert [point.costs for point in report.front] == [point.costs for point in exact.front]
    assert len(report.front) > 1 and not report.is_front_complete
    assert report.value_shares["share"].tolist() == pytest.approx(
        exact.value_shares["share"].tolist())


def test_sample_of_a_decomposed_space_is_uniform_over_its_valid_configurations() -> None:
    report = analyze(LARGE, BUDGET, n_samples=1000)
    assert report.estimator == "sections" and report.n_samples == len(report.sample) == 1000
    listed = analyze(LARGE, BUDGET, n_samples=2000).sample
    costs = [name for name in listed if name != "fits"]
    expected = listed.value_counts(costs, normalize=True)
    shares = report.sample.value_counts(costs, normalize=True)
    assert set(shares.index) <= set(expected.index) and len(shares) > 0.4 * len(expected)
    assert shares.sub(expected, fill_value=0).abs().max() < 0.02
    share = report.n_feasible / report.n_valid
    assert report.sample["fits"].mean() == pytest.approx(share, abs=0.05)
    assert analyze(LARGE, BUDGET, n_samples=1000).sample.equals(report.sample)


def test_too_many_combinations_are_refused_before_their_costs_are_evaluated(
        monkeypatch: pytest.MonkeyPatch) -> None:
    halves = []
    evaluate_table = Decomposition._evaluate_table

    def record(self: Decomposition, piece: NetworkPiece, *arguments: Any) -> Any:
        halves.append(piece and piece.half)
        return evaluate_table(self, piece, *arguments)

    monkeypatch.setattr(Decomposition, "_evaluate_table", record)
    with pytest.raises(TooManyCandidatesError):
        Decomposition(Space.parse(LARGE), PROTOCOL, ("params.total",), 20)
    assert set(halves) == {"", "mixers"}  # the feed-forward networks have 40 combinations
    assert Decomposition(Space.parse(LARGE), PROTOCOL, ("params.total",), 500)


def _raise_too_many(*args: object) -> None:
    raise TooManyCandidatesError("too many")


@pytest.mark.parametrize(("hidden", "expected"), [(512, 512), (9, 16), (10**16, 10**15)])
def test_nearest_candidates_are_found_in_long_ranges(hidden: int, expected: int) -> None:
    text = UNEVEN.replace("relu: { hidden: 16 | 32 }", f"relu: {{ hidden: 16..{10**15} }}")
    space = Space.parse(text)
    config = {**next(Space.parse(UNEVEN).enumerate()), "encoder.ffn.hidden": hidden}
    start = ProjectedCandidate(space, config)
    assert start.param_values["encoder.ffn.hidden"] == expected
    names = ("params.total",)
    if hidden == 512:
        nearest = find_nearest(start, PROTOCOL, read_budgets(space, ["params.total <= 28k"]), names)
        assert nearest and all(near.costs["params.total"] <= 28_000 for near in nearest)
