"""Inverse questions: answers are those of brute force, and say truly what breaks next."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.library import find_file
from scalesearch.space import Space, UnbuildableError, read_space
from scalesearch.whatif import find_trade_offs, solve, sweep_costs
from scalesearch.whatif.free_sizes import parse_sizes
from tests.errors import refuses

TRANSFORMER = read_space(find_file("transformer", "spaces"))
SMALL = TRANSFORMER.with_overrides({"width": "16", "encoder.depth": "2", "decoder.depth": "2", "encoder.heads": "2",
                         "decoder.heads": "2"})  # fmt: skip
KEYS = ("width", "encoder.depth", "decoder.depth", "encoder.ffn.hidden", "encoder.heads",
        "encoder.head_dim")


def bill(space: Space, changes: dict[str, int]) -> dict[str, int] | None:
    """Costs with other sizes, by the way that a single architecture takes; None where it cannot be built."""
    changed = space.with_overrides({key: str(value) for key, value in changes.items()})
    try:
        found = evaluate_cost(changed.architecture(changed.resolve(lambda *_: None)).block,
                              load_protocol(space.protocol))
    except UnbuildableError:
        return None
    return {name: found[name] for name in ("params.total", "params.encoder", "macs.total")}


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(KEYS), st.sampled_from(("params.total", "macs.total", "params.encoder")),
       st.data())
def test_the_largest_is_the_one_of_brute_force(key: str, name: str, data: st.DataObject) -> None:
    middle = bill(SMALL, {})
    assert middle is not None
    limit = data.draw(st.integers(middle[name] // 2, 2 * middle[name]))
    (found,) = solve(SMALL.with_overrides({key: "1..24"}), f"max {key}", f"{name} <= {limit}")
    bills = {value: bill(SMALL, {key: value}) for value in range(1, 25)}
    good = [value for value, costs in bills.items() if costs and costs[name] <= limit]
    assert (found.best and found.best.value) == max(good, default=None)
    assert found.n_within_budget == len(good) and found.n_unbuildable == sum(
        costs is None for costs in bills.values())
    if found.best:
        assert dict(found.best.costs).items() <= {
            **(bills[found.best.value] or {}), **found.best.costs}.items()
        assert found.best.limits[0].slack == limit - (bills[found.best.value] or {})[name] >= 0
    if found.next:
        (broken,) = found.next.violated_limits
        assert found.next.value > max(good) and broken.slack == limit - (
            bills[found.next.value] or {})[name] < 0
        assert not any(bills[value] for value in range(max(good) + 1, found.next.value))


def test_without_a_range_the_budget_ends_the_search() -> None:
    (found,) = solve(TRANSFORMER, "max width", "params.total <= 10M and macs.total <= 2G")
    assert found.best and found.next and found.is_monotonic and found.is_exhaustive and not found.is_open_ended
    assert (found.best.value, found.next.value) == (165, 166)
    for point in (found.best, found.next):
        mine = bill(TRANSFORMER, {"width": point.value})
        assert mine and {name: mine[name] for name in point.costs} == point.costs
    assert [limit.text for limit in found.next.violated_limits] == ["params.total <= 10M"]
    assert found.changed_values == {"encoder.head_dim": 20, "encoder.ffn.hidden": 660, "decoder.head_dim": 20,
                             "decoder.ffn.hidden": 660}  # fmt: skip


def test_a_conditional_range_is_the_one_that_holds() -> None:
    space = SMALL.with_overrides({"norm": "pre", "decoder.depth": "2..4 if norm == pre else 6"})
    budget = "params.total <= 100M"
    (found,) = solve(space, "max decoder.depth", budget)
    assert found.best and found.best.value == 4
    (free,) = solve(space.with_overrides({"norm": "post"}), "max decoder.depth", budget)
    assert free.best == solve(SMALL.with_overrides({"norm": "post"}), "max decoder.depth",
                              budget)[0].best
    with refuses("not-a-size", "norm"):
        parse_sizes(SMALL, {"norm": "pre | post"})


def test_values_that_cannot_be_built_do_not_end_the_search() -> None:
    # no power of two has twelve heads
    gated = TRANSFORMER.with_overrides({"encoder.gate": "QgV", "encoder.heads": "12"})
    budget = "params.total <= 1G"
    (found,) = solve(gated, "max width", budget)
    (given,) = solve(gated.with_overrides({"width": "12..4092 step 12"}), "max width", budget)
    assert found.best and given.best and found.best.value == given.best.value == 2340


@pytest.mark.parametrize("way", ["max", "min"])
def test_a_budget_of_two_sides_is_found_however_narrow(
        way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = ((bill(TRANSFORMER, {"width": width}) or {})["params.total"]
                 for width in (2341, 2343))
    budget = f"params.total >= {low} and params.total <= {high}"
    (found,) = solve(TRANSFORMER, f"{way} width", budget)
    assert found.best and found.best.value == (
        2343 if way == "max" else 2341) and found.n_within_budget == 3
    assert found.n_evaluated < 10_000
    for name in ("MAX_EXHAUSTIVE_VALUES", "GRID_SIZE"):  # a grid, none of whose points is within
        monkeypatch.setattr(sys.modules["scalesearch.whatif.solve"], name, 100)
    assert solve(TRANSFORMER, f"{way} width", budget)[0].best == found.best


def test_a_cost_that_does_not_rise_is_enumerated() -> None:
    """Heads of width // heads features: their product goes up and down with the number of heads."""
    limit = (bill(SMALL, {"encoder.heads": 5}) or {})["params.total"]
    (found,) = solve(SMALL, "max encoder.heads", f"params.total <= {limit}")
    bills = {value: bill(SMALL, {"encoder.heads": value}) for value in range(1, 33)}
    good = [value for value, costs in bills.items() if costs and costs["params.total"] <= limit]
    assert found.is_monotonic is False and found.is_exhaustive
    assert found.best and found.best.value == max(good) > 8 and found.n_unbuildable >= 16
    assert found.n_within_budget == len(good) < max(good)


def test_a_long_range_is_closed_in_on_and_agrees_with_all_of_it(
        monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["scalesearch.whatif.solve"]  # the package's `solve` is the function
    question = ("max encoder.ffn.hidden", "params.total <= 1M")
    (whole,) = solve(SMALL, *question)
    monkeypatch.setattr(module, "MAX_EXHAUSTIVE_VALUES", 100)
    monkeypatch.setattr(module, "GRID_SIZE", 50)
    (near,) = solve(SMALL, *question)
    assert whole.is_exhaustive and not near.is_exhaustive and near.n_evaluated < whole.n_evaluated / 2
    assert near.best == whole.best and near.next == whole.next
    (heads,) = solve(SMALL.with_overrides({"width": "200"}), "max encoder.heads",
                     "params.total <= 100M")
    assert heads.is_exhaustive  # a grid is not trusted where costs fall or values cannot be built


def test_the_smallest_and_one_row_for_each() -> None:
    found = solve(TRANSFORMER, "min width", "params.total >= 68M", {"encoder.depth": range(4, 8)},
                  step=16)
    frame = found.frame()
    assert list(frame["encoder.depth"]) == [4, 5, 6, 7] and frame["width"].is_monotonic_decreasing
    for depth, width, after in zip(frame["encoder.depth"], frame["width"], frame["next"]):
        at = [(bill(TRANSFORMER, {"width": w, "encoder.depth": depth}) or {})["params.total"]
              for w in (width, after)]
        assert after == width - 16 and at[0] >= 68_000_000 > at[1]


def test_a_key_may_say_its_kind_as_everywhere_else() -> None:
    plain = "encoder.ffn.hidden"
    kind = "encoder.ffn.relu.hidden"
    budget = "params.total <= 1M"
    hold = "params.total within 10%"
    space = SMALL
    assert solve(space, f"max {kind}", budget)[0] == solve(space, f"max {plain}", budget)[0]
    for key in (plain, kind):
        assert parse_sizes(space, {key: "8..10"}) == {plain: range(8, 11)} == parse_sizes(
            space, {key: range(8, 11)})
    rows = [find_trade_offs(space, (key, "width"), hold, ranges={plain: range(200, 210)}).pairs
            for key in (plain, kind)]
    assert rows[0] == rows[1] and len(rows[0]) > 1
    swept = [sweep_costs(space, {key: "8 | 16"}) for key in (plain, kind)]
    assert swept[0] == swept[1] and [row[plain] for row in swept[0].rows] == [8, 16]
    with refuses("unknown-key", "encoder.ffn.swiglu.hidden"):
        solve(space, "max encoder.ffn.swiglu.hidden", budget)


def test_named_budgets_and_constraints_of_the_file_hold() -> None:
    space = Space.parse("width: 32..128 step 32\nencoder: { heads: 4 }\ndecoder: { heads: 4, "
                        "depth: 2 }\nwhere: [width <= 96]\ncost: { budgets: { b: params.total <= "
                        "1G } }\n")
    (found,) = solve(space, "max width", "b")
    assert found.best and found.best.value == 96 and found.next and found.next.violated_limits[
        0].text == "width <= 96"


def test_nothing_fits_and_nothing_limits() -> None:
    (small,) = solve(TRANSFORMER, "max width", "params.total <= 10k")
    assert small.best is None and small.nearest and small.nearest.value == 8
    (endless,) = solve(TRANSFORMER, "max decoder.depth", "params.encoder <= 1G")
    assert endless.is_open_ended and endless.next is None


@pytest.mark.parametrize(
    ("goal", "budget", "code"),
    [
        ("max widht", "params.total <= 1M", "unknown-key"),
        ("width", "params.total <= 1M", "no-goal"),
        ("max norm", "params.total <= 1M", "not-a-size"),
        ("max embedding", "params.total <= 1M", "not-a-size"),
        ("max width", (), "no-limit"),
        ("max width", "params.totl <= 1M", "unknown-name"),
        ("max width", "params.total <= 10Q", "bad-syntax"),
        ("max width", "edge", "unknown-budget"),
        ("max width", "params.total <= 1M and 2M <= params.total", "budgets-contradict"),
        ("max width", ("macs.total < 1M", "macs.total >= 1M"), "budgets-contradict"),
    ],
)
def test_bad_questions_are_user_errors(goal: str, budget: str, code: str) -> None:
    with refuses(code):
        solve(TRANSFORMER, goal, budget)


def test_trades_are_those_of_brute_force() -> None:
    ranges = {"encoder.depth": range(1, 9), "decoder.depth": range(1, 9)}
    found = find_trade_offs(SMALL, list(ranges), "macs.total within 6% and params.total within 8%",
                            ranges=ranges)
    kept = bill(SMALL, {}) or {}
    wanted = []
    for one in range(1, 9):
        for two in range(1, 9):
            costs = bill(SMALL, {"encoder.depth": one, "decoder.depth": two}) or {}
            near = [100 * abs(costs[n] - kept[n]) / kept[n] for n in ("macs.total", "params.total")]
            if near[0] <= 6 and near[1] <= 8:
                wanted.append((one, two, costs["params.total"], costs["macs.total"]))
    assert [tuple(row.values()) for row in found.pairs] == wanted and len(wanted) > 3
    assert {(2, 2)} < {row[:2] for row in wanted}
    frame = found.frame()
    zero = frame[(frame["encoder.depth"] == 2) & (frame["decoder.depth"] == 2)]
    assert len(frame) == len(wanted) and zero["macs.total %"].tolist() == [0.0]


def test_trades_end_where_the_cost_does_and_hold_another_architecture() -> None:
    keys = ("encoder.depth", "decoder.depth")
    free = find_trade_offs(SMALL, keys, "macs.total within 10%")
    wide = find_trade_offs(SMALL, keys, "macs.total within 10%",
                           ranges=dict.fromkeys(keys, range(1, 60)))
    assert free.pairs == wide.pairs
    thin = "width", "encoder.depth"  # of width 1 no head has a feature left
    free = find_trade_offs(SMALL, thin, "params.encoder within 20%")
    ranges = {"width": range(1, 64), "encoder.depth": range(1, 300)}
    wide = find_trade_offs(SMALL, thin, "params.encoder within 20%", ranges=ranges)
    assert free.pairs == wide.pairs and len({row["width"] for row in free.pairs}) > 5
    assert any((row["width"], row["encoder.depth"]) == (16, 2) for row in free.pairs)
    deep = SMALL.with_overrides({"encoder.depth": "7"})
    sheet = deep.resolve(lambda *_: None)
    other = find_trade_offs(SMALL, keys, "macs.total within 1%", reference=sheet)
    assert other.reference["macs.total"] == (bill(SMALL, {"encoder.depth": 7}) or {})["macs.total"]
    assert {"encoder.depth": 7,
            "decoder.depth": 2}.items() <= next(r for r in other.pairs if r[keys[0]] == 7).items()


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
def test_bad_trades_are_user_errors(keys: tuple[str, ...], hold: str, code: str) -> None:
    with refuses(code):
        find_trade_offs(SMALL, keys, hold)


@pytest.mark.parametrize(
    "keys",
    [("encoder.key_value_heads", "decoder.key_value_heads"), ("low_rank.ffn", "encoder.depth"),
     ("low_rank.attention", "encoder.key_value_heads"), ("width", "encoder.score_heads")],
)  # fmt: skip
def test_a_trade_holds_the_costs_of_the_file_as_it_is(keys: tuple[str, str]) -> None:
    """Whether the traded sizes are off there or not, and every pair within the tolerance of those is one."""
    found = find_trade_offs(TRANSFORMER, keys, "params.total within 1%",
                            ranges=dict.fromkeys(keys, range(1, 11)))
    whole = bill(TRANSFORMER, {})
    assert whole and found.reference["params.total"] == whole["params.total"] == 60_915_712
    bills = {(a, b): bill(TRANSFORMER, {keys[0]: a, keys[1]: b}) for a in (1, 8, 10)
             for b in (1, 6, 8)}
    kept = {pair
            for pair, costs in bills.items()
            if costs and abs(costs["params.total"] / 60_915_712 - 1) <= 0.01}
    assert {tuple(row[key] for key in keys) for row in found.pairs} & set(bills) == kept


def test_a_key_that_is_off_has_no_value_of_its_own() -> None:
    (most,) = solve(TRANSFORMER, "max encoder.key_value_heads", "params.total <= 60M")
    assert most.best and most.changed_values == {} and most.best.costs["params.total"] <= 60_000_000
