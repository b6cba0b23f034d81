"""Inverse queries and trade-offs, compared with brute force."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.library import find_file
from scalesearch.spaces import Space, UnbuildableError, read_space
from scalesearch.whatif import find_trade_offs, solve, sweep_costs
from scalesearch.whatif.free_sizes import parse_sizes
from scalesearch.whatif.solve import multiples
from tests.errors import refuses

TRANSFORMER = read_space(find_file("transformer", "spaces"))
SMALL = TRANSFORMER.with_overrides({"width": "16", "encoder.depth": "2", "decoder.depth": "2",
                                    "encoder.heads": "2", "decoder.heads": "2"})
KEYS = ("width", "encoder.depth", "decoder.depth", "encoder.ffn.hidden", "encoder.heads",
        "encoder.head_dim")


def costs_with(space: Space, changes: dict[str, int]) -> dict[str, int] | None:
    """Costs of a single architecture with changed sizes; None if it cannot be built."""
    changed = space.with_overrides({key: str(value) for key, value in changes.items()})
    try:
        breakdown = evaluate_cost(changed.architecture(changed.resolve(lambda *_: None)).block,
                                  load_protocol(space.protocol))
    except UnbuildableError:
        return None
    return {name: breakdown[name] for name in ("params.total", "params.encoder", "macs.total")}


@pytest.mark.full
@settings(max_examples=15)
@given(st.sampled_from(KEYS), st.sampled_from(("params.total", "macs.total", "params.encoder")),
       st.data())
def test_maximum_equals_brute_force(key: str, name: str, data: st.DataObject) -> None:
    reference = costs_with(SMALL, {})
    assert reference is not None
    limit = data.draw(st.integers(reference[name] // 2, 2 * reference[name]))
    (solution,) = solve(SMALL.with_overrides({key: "1..24"}), f"max {key}", f"{name} <= {limit}")
    costs_by_value = {value: costs_with(SMALL, {key: value}) for value in range(1, 25)}
    feasible = [value for value, costs in costs_by_value.items() if costs and costs[name] <= limit]
    assert (solution.best and solution.best.value) == max(feasible, default=None)
    assert solution.n_within_budget == len(feasible) and solution.n_unbuildable == sum(
        costs is None for costs in costs_by_value.values())
    if solution.best:
        assert dict(solution.best.costs).items() <= {
            **(costs_by_value[solution.best.value] or {}), **solution.best.costs}.items()
        cost = (costs_by_value[solution.best.value] or {})[name]
        assert solution.best.limits[0].slack == limit - cost >= 0
    if solution.next:
        (broken,) = solution.next.violated_limits
        assert solution.next.value > max(feasible) and broken.slack == limit - (
            costs_by_value[solution.next.value] or {})[name] < 0
        skipped = range(max(feasible) + 1, solution.next.value)
        assert not any(costs_by_value[value] for value in skipped)


def test_search_without_range_ends_at_the_budget() -> None:
    (solution,) = solve(TRANSFORMER, "max width", "params.total <= 10M and macs.total <= 2G")
    assert solution.best and solution.next
    assert solution.is_monotonic and solution.is_exhaustive and not solution.is_open_ended
    assert (solution.best.value, solution.next.value) == (165, 166)
    for point in (solution.best, solution.next):
        expected = costs_with(TRANSFORMER, {"width": point.value})
        assert expected and {name: expected[name] for name in point.costs} == point.costs
    assert [limit.limit for limit in solution.next.violated_limits] == ["params.total <= 10M"]
    assert solution.changed_values == {
        "encoder.head_dim": 20, "encoder.ffn.relu.hidden": 660,
        "decoder.head_dim": 20, "decoder.ffn.relu.hidden": 660}


@pytest.mark.parametrize(("model", "stack"), [("decoder-only", "decoder"),
                                              ("encoder-only", "encoder")])
def test_computed_values_are_those_of_the_model(model: str, stack: str) -> None:
    (solution,) = solve(TRANSFORMER.with_overrides({"model": model}), "max width",
                        "params.total <= 10M")
    assert {*solution.changed_values} == {f"{stack}.head_dim", f"{stack}.ffn.relu.hidden"}


def test_conditional_range_uses_the_active_branch() -> None:
    space = SMALL.with_overrides({"norm": "pre", "decoder.depth": "2..4 if norm == pre else 6"})
    budget = "params.total <= 100M"
    (conditional,) = solve(space, "max decoder.depth", budget)
    assert conditional.best and conditional.best.value == 4
    (unconditional,) = solve(space.with_overrides({"norm": "post"}), "max decoder.depth", budget)
    assert unconditional.best == solve(SMALL.with_overrides({"norm": "post"}), "max decoder.depth",
                                       budget)[0].best
    with refuses("not-a-size", "norm"):
        parse_sizes(SMALL, {"norm": "pre | post"})


def test_search_continues_after_unbuildable_values() -> None:
    # powers of two are not divisible by twelve heads
    gated = TRANSFORMER.with_overrides({"encoder.gate": "QgV", "encoder.heads": "12"})
    budget = "params.total <= 1G"
    (solution,) = solve(gated, "max width", budget)
    (with_range,) = solve(gated.with_overrides({"width": "12..4092 step 12"}), "max width", budget)
    assert solution.best and with_range.best
    assert solution.best.value == with_range.best.value == 2340


@pytest.mark.parametrize("goal", ["max", "min"])
def test_narrow_two_sided_budget_is_found(goal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = ((costs_with(TRANSFORMER, {"width": width}) or {})["params.total"]
                 for width in (2341, 2343))
    budget = f"params.total >= {low} and params.total <= {high}"
    (solution,) = solve(TRANSFORMER, f"{goal} width", budget)
    assert solution.best and solution.best.value == (
        2343 if goal == "max" else 2341) and solution.n_within_budget == 3
    assert solution.n_evaluated < 10_000
    for name in ("MAX_EXHAUSTIVE_VALUES", "GRID_SIZE"):  # a grid without feasible points
        monkeypatch.setattr(sys.modules["scalesearch.whatif.solve"], name, 100)
    assert solve(TRANSFORMER, f"{goal} width", budget)[0].best == solution.best


def test_non_monotonic_costs_are_enumerated() -> None:
    """Heads have width // heads features, so the product is not monotonic in heads."""
    limit = (costs_with(SMALL, {"encoder.heads": 5}) or {})["params.total"]
    (solution,) = solve(SMALL, "max encoder.heads", f"params.total <= {limit}")
    costs_by_value = {value: costs_with(SMALL, {"encoder.heads": value}) for value in range(1, 33)}
    feasible = [value
                for value, costs in costs_by_value.items()
                if costs and costs["params.total"] <= limit]
    assert solution.is_monotonic is False and solution.is_exhaustive
    assert solution.best and solution.best.value == max(feasible) > 8
    assert solution.n_unbuildable >= 16
    assert solution.n_within_budget == len(feasible) < max(feasible)


def test_bisection_agrees_with_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    # the attribute `solve` of the package is the function
    module = sys.modules["scalesearch.whatif.solve"]
    query = ("max encoder.ffn.hidden", "params.total <= 1M")
    (enumerated,) = solve(SMALL, *query)
    monkeypatch.setattr(module, "MAX_EXHAUSTIVE_VALUES", 100)
    monkeypatch.setattr(module, "GRID_SIZE", 50)
    (searched,) = solve(SMALL, *query)
    assert enumerated.is_exhaustive and not searched.is_exhaustive
    assert searched.n_evaluated < enumerated.n_evaluated / 2
    assert searched.best == enumerated.best and searched.next == enumerated.next
    (heads,) = solve(SMALL.with_overrides({"width": "200"}), "max encoder.heads",
                     "params.total <= 100M")
    assert heads.is_exhaustive  # no grid search if costs decrease or values cannot be built


def test_minimum_for_each_value_of_another_key() -> None:
    solutions = solve(TRANSFORMER, "min width", "params.total >= 68M",
                      {"encoder.depth": range(4, 8)}, step=16)
    frame = solutions.frame()
    assert list(frame["encoder.depth"]) == [4, 5, 6, 7] and frame["width"].is_monotonic_decreasing
    for depth, width, next_width in zip(frame["encoder.depth"], frame["width"], frame["next"]):
        settings_of_widths = [{"width": value, "encoder.depth": depth}
                              for value in (width, next_width)]
        params = [(costs_with(TRANSFORMER, changes) or {})["params.total"]
                  for changes in settings_of_widths]
        assert next_width == width - 16 and params[0] >= 68_000_000 > params[1]


def test_keys_can_include_the_variant() -> None:
    plain = "encoder.ffn.hidden"
    kind = "encoder.ffn.relu.hidden"
    budget = "params.total <= 1M"
    hold = "params.total within 10%"
    space = SMALL
    assert solve(space, f"max {kind}", budget)[0] == solve(space, f"max {plain}", budget)[0]
    for key in (plain, kind):
        assert parse_sizes(space, {key: "8..10"}) == {plain: range(8, 11)} == parse_sizes(
            space, {key: range(8, 11)})
    rows = [find_trade_offs(space, (key, "width"), hold, ranges={plain: range(200, 210)}).trades
            for key in (plain, kind)]
    assert rows[0] == rows[1] and len(rows[0]) > 1
    swept = [sweep_costs(space, {key: "8 | 16"}) for key in (plain, kind)]
    assert swept[0] == swept[1] and [row[kind] for row in swept[0].rows] == [8, 16]
    with refuses("unknown-key", "encoder.ffn.swiglu.hidden"):
        solve(space, "max encoder.ffn.swiglu.hidden", budget)


@pytest.mark.parametrize(("key", "form"),
                         [("vocab", "vocab=1k..64k"), ("source", "--sweep source="),
                                           ("length", "--sweep length=")])
def test_vocabulary_and_lengths_are_get_the_right_form(key: str, form: str) -> None:
    with refuses("unknown-key", form, place=key):
        solve(SMALL, f"max {key}", "params.total <= 1M")
    if key == "vocab":
        space = SMALL.with_overrides({"vocab": "100..64k"})
        assert solve(space, "max vocab", "params.total <= 1M")[0].best


def test_named_budgets_and_constraints_apply() -> None:
    space = Space.parse("width: 32..128 step 32\nencoder: { heads: 4 }\ndecoder: { heads: 4, "
                        "depth: 2 }\nwhere: [width <= 96]\ncost: { budgets: { b: params.total <= "
                        "1G } }\n")
    (solution,) = solve(space, "max width", "b")
    assert solution.best and solution.best.value == 96
    assert solution.next and solution.next.violated_limits[0].limit == "width <= 96"


def test_a_step_selects_values_of_a_range() -> None:
    space = SMALL.with_overrides({"width": "32 | 48 | 64 | 80"})
    values = [solve(space, "max width", "params.total <= 1G", step=step)[0].best
              for step in (1, 32)]
    assert [value and value.value for value in values] == [80, 64]
    with refuses("no-multiple", 1000):
        solve(space, "max width", "params.total <= 1G", step=1000)


def test_infeasible_and_unlimited_queries() -> None:
    (infeasible,) = solve(TRANSFORMER, "max width", "params.total <= 10k")
    assert infeasible.best is None and infeasible.nearest and infeasible.nearest.value == 8
    (unlimited,) = solve(TRANSFORMER, "max decoder.depth", "params.encoder <= 1G")
    assert unlimited.is_open_ended and unlimited.next is None


@pytest.mark.parametrize(
    ("goal", "budget", "code"),
    [
        ("max widht", "params.total <= 1M", "unknown-key"),
        ("max width", "1M", "bad-value"),
        ("max width", "", "bad-syntax"),
        ("width", "params.total <= 1M", "no-goal"),
        ("max norm", "params.total <= 1M", "not-a-size"),
        ("max embedding", "params.total <= 1M", "not-a-size"),
        ("max width", (), "no-limit"),
        ("max width", "params.total >= 1M", "no-limit"),
        ("max width", "width >= 64", "no-limit"),
        ("max width", "params.totl <= 1M", "unknown-name"),
        ("max width", "params.total <= 10Q", "bad-syntax"),
        ("max width", "edge", "unknown-budget"),
        ("max width", "params.total <= 1M and 2M <= params.total", "budgets-contradict"),
        ("max width", ("macs.total < 1M", "macs.total >= 1M"), "budgets-contradict"),
    ],
)
def test_invalid_queries_are_rejected(goal: str, budget: str, code: str) -> None:
    with refuses(code):
        solve(TRANSFORMER, goal, budget)


def test_trade_offs_equal_brute_force() -> None:
    ranges = {"encoder.depth": range(1, 9), "decoder.depth": range(1, 9)}
    trade_offs = find_trade_offs(SMALL, list(ranges),
                                 "macs.total within 6% and params.total within 8%", ranges=ranges)
    reference = costs_with(SMALL, {}) or {}
    expected = []
    for encoder_depth in range(1, 9):
        for decoder_depth in range(1, 9):
            depths = {"encoder.depth": encoder_depth, "decoder.depth": decoder_depth}
            costs = costs_with(SMALL, depths) or {}
            percent = {name: 100 * abs(costs[name] - reference[name]) / reference[name]
                       for name in ("macs.total", "params.total")}
            if percent["macs.total"] <= 6 and percent["params.total"] <= 8:
                expected.append((encoder_depth, decoder_depth, costs["params.total"],
                                 costs["macs.total"]))
    assert [tuple(row.values()) for row in trade_offs.trades] == expected and len(expected) > 3
    assert {(2, 2)} < {row[:2] for row in expected}
    frame = trade_offs.frame()
    zero = frame[(frame["encoder.depth"] == 2) & (frame["decoder.depth"] == 2)]
    assert len(frame) == len(expected) and zero["macs.total %"].tolist() == [0.0]


def test_trade_offs_end_at_the_cost_and_accept_a_reference() -> None:
    keys = ("encoder.depth", "decoder.depth")
    free = find_trade_offs(SMALL, keys, "macs.total within 10%")
    wide = find_trade_offs(SMALL, keys, "macs.total within 10%",
                           ranges=dict.fromkeys(keys, range(1, 60)))
    assert free.trades == wide.trades
    thin = ("width", "encoder.depth")  # with width 1, heads have no features
    free = find_trade_offs(SMALL, thin, "params.encoder within 20%")
    ranges = {"width": range(1, 64), "encoder.depth": range(1, 300)}
    wide = find_trade_offs(SMALL, thin, "params.encoder within 20%", ranges=ranges)
    assert free.trades == wide.trades and len({row["width"] for row in free.trades}) > 5
    assert any((row["width"], row["encoder.depth"]) == (16, 2) for row in free.trades)
    deep = SMALL.with_overrides({"encoder.depth": "7"})
    config = deep.resolve(lambda *_: None)
    other = find_trade_offs(SMALL, keys, "macs.total within 1%", reference=config)
    expected = costs_with(SMALL, {"encoder.depth": 7}) or {}
    assert other.reference["macs.total"] == expected["macs.total"]
    assert {"encoder.depth": 7,
            "decoder.depth": 2}.items() <= next(r for r in other.trades if r[keys[0]] == 7).items()


def test_equal_limits_of_space_and_budget_are_one() -> None:
    space = Space.parse("width: 64\nencoder: { heads: 4 }\ndecoder: { heads: 4 }\n"
                        "where: [params.total <= 5M]\n")
    (solution,) = solve(space, "max width", "params.total <= 5M")
    assert solution.best and [limit.limit for limit in solution.best.limits] == [
        "params.total <= 5M"]


def test_limits_in_bytes_have_binary_units() -> None:
    for budget in ("memory.weights <= 10MiB", "10 MiB >= memory.weights"):
        (solution,) = solve(SMALL, "max width", budget)
        assert solution.best and [limit.limit for limit in solution.best.limits] == [
            "memory.weights <= 10MiB"]


def test_errors_name_option_and_key() -> None:
    with refuses("unknown-key", "`width`"):
        solve(SMALL, "max d_model", "params.total <= 1M")
    with refuses("bad-syntax", "128 | 192", place="--for"):
        parse_sizes(SMALL, {"encoder.depth": "128,192"})


def test_step_of_trade_offs() -> None:
    keys = ("encoder.depth", "encoder.ffn.hidden")
    hold = "params.encoder within 20%"
    ranges = {keys[0]: range(1, 9)}
    fine = find_trade_offs(SMALL, keys, hold, ranges=ranges)
    coarse = find_trade_offs(SMALL, keys, hold, ranges=ranges, step=16)
    hidden = fine.keys[1]
    assert coarse.trades == tuple(row for row in fine.trades if row[hidden] % 16 == 0)
    with refuses("no-multiple", "encoder.depth"):
        find_trade_offs(SMALL, keys, hold, step=10_000)
    with refuses("too-many-sweep-rows", "1,000,000"):
        find_trade_offs(SMALL, keys, hold, ranges={key: range(1, 1001) for key in keys})


@pytest.mark.parametrize(
    ("keys", "hold", "code"),
    [
        (("width",), "macs.total within 1%", "trade-needs-two-sizes"),
        (("width", "encoder.depth"), "macs.totl within 1%", "unknown-cost"),
        (("width", "encoder.depth"), "macs.total within 1", "bad-hold"),
        (("width", "encoder.depth"), "macs.total within 1..2 %", "bad-hold"),
        (("width", "encoder.depth"), (), "hold-missing"),
        (("encoder.depth", "decoder.depth"), "params.embedding within 1%", "no-limit"),
    ],
)
def test_invalid_trade_offs_are_rejected(keys: tuple[str, ...], hold: str, code: str) -> None:
    with refuses(code):
        find_trade_offs(SMALL, keys, hold)


def test_reference_of_trade_offs_has_valid_sizes() -> None:
    invalid = TRANSFORMER.with_overrides({"width": "4"})
    with refuses("unbuildable"):
        find_trade_offs(invalid, ("width", "encoder.depth"), "params.total within 1%")


@pytest.mark.parametrize(
    "keys",
    [("encoder.key_value_heads", "decoder.key_value_heads"), ("low_rank.ffn", "encoder.depth"),
     ("low_rank.attention", "encoder.key_value_heads"), ("width", "encoder.score_heads")],
)
def test_trade_offs_hold_the_costs_of_the_file(keys: tuple[str, str]) -> None:
    """Also if the traded sizes are off in the file."""
    trade_offs = find_trade_offs(TRANSFORMER, keys, "params.total within 1%",
                                 ranges=dict.fromkeys(keys, range(1, 11)))
    reference = costs_with(TRANSFORMER, {})
    assert reference and reference["params.total"] == 60_915_712
    assert trade_offs.reference["params.total"] == 60_915_712
    costs_by_pair = {(a, b): costs_with(TRANSFORMER, {keys[0]: a, keys[1]: b}) for a in (1, 8, 10)
                     for b in (1, 6, 8)}
    within = {pair
              for pair, costs in costs_by_pair.items()
              if costs and abs(costs["params.total"] / 60_915_712 - 1) <= 0.01}
    pairs = {tuple(row[key] for key in keys) for row in trade_offs.trades}
    assert pairs & set(costs_by_pair) == within


def test_key_that_is_off_can_be_solved_for() -> None:
    (solution,) = solve(TRANSFORMER, "max encoder.key_value_heads", "params.total <= 60M")
    assert solution.best and solution.changed_values == {}
    assert solution.best.costs["params.total"] <= 60_000_000


@given(st.integers(1, 60), st.integers(0, 200), st.integers(1, 40), st.integers(1, 50))
def test_multiples_of_a_range_are_those_of_its_list(start, length, step, factor):
    values = range(start, start + length, step)
    selected = multiples(values, factor)
    assert isinstance(selected, range)
    assert list(selected) == multiples(list(values), factor)
