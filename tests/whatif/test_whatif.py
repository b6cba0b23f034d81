"""What if: tables, differences and formulas equal the costs of single architectures, to the unit."""

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.cost import PROTOCOLS, CostBreakdown, evaluate_cost, find_protocol, load_protocol
from scalesearch.library import find_file
from scalesearch.space import Space, UnbuildableError, read_space
from scalesearch.space.assembly.architecture import assemble
from scalesearch.space.syntax.diagnostics import ConfigError
from scalesearch.testing import random_architecture
from scalesearch.whatif import cite, compare_costs, find_crossings, sweep_costs
from scalesearch.whatif.crossings import positive_ranges
from scalesearch.whatif.formulas import Formula, extent_formula
from tests.errors import refuses

TRANSFORMER = read_space(find_file("transformer", "spaces"))
EDGE = {
    "encoder.depth": "12", "decoder.depth": "2", "decoder.interleaved": "yes", "decoder.ffn.hidden": "128",
    "share.encoder.attention": "cycle(4)", "share.encoder.ffn": "6-6", "share.decoder.self": "encoder.attention[2*i]",
}  # fmt: skip


def sheet(space: Space) -> dict[str, object]:
    return dict(space.resolve(lambda *_: None))


def bill(settings: dict[str, str], protocol: object = None) -> CostBreakdown:
    space = TRANSFORMER.with_overrides(settings)
    return evaluate_cost(assemble(sheet(space)).block, protocol or load_protocol(space.protocol))  # type: ignore[arg-type]


# -- sweeps


def test_rows_of_a_grid_are_the_costs_of_each_architecture() -> None:
    over = {"encoder.ffn": "geglu | relu", "width": "64..128 step 32", "source": "5 | 9"}
    found = sweep_costs(TRANSFORMER, over)
    assert [tuple(row[key] for key in over) for row in found.rows] == [
        (kind, width, source) for kind in ("relu", "geglu") for width in (64, 96, 128)
        for source in (5, 9)]
    for row in found.rows:
        mine = bill({"width": str(row["width"]), "encoder.ffn": row["encoder.ffn"]}, find_protocol(
            "forward", row["source"], 30, 32768))
        assert {name: row[name]
                for name in ("params.total", "params.non_embedding", "macs.encoder",
                             "macs.total")} == {
            name: mine[name]
            for name in ("params.total", "params.non_embedding", "macs.encoder", "macs.total")}
    frame = found.frame()
    assert len(frame) == 12 and frame["macs.total"].dtype == "Int64" and frame["error"].isna().all()


def test_bytes_of_the_artifact_that_the_protocol_names_are_a_column() -> None:
    protocol = load_protocol({"vocab": 500, "artifact": "ctranslate2-int8"})
    found = sweep_costs(TRANSFORMER, {"width": "64..128 step 64", "source": "5 | 9"}, protocol)
    for row in found.rows:
        assert row["artifact.bytes"] == bill({"width": str(row["width"])},
                                             protocol)["artifact.bytes"]
    assert found.frame()["artifact.bytes"].dtype == "Int64" and "artifact.bytes" not in sweep_costs(
        TRANSFORMER, {"width": "64"}).columns


def test_what_cannot_be_built_keeps_its_row() -> None:
    found = sweep_costs(TRANSFORMER, {"encoder.score_heads": "3 | 8"})
    assert [
        row["macs.total"] is None for row in found.rows] == [True, False] and found.rows[0]["error"]
    assert found.frame()["macs.total"].isna().tolist() == [True, False]


def test_lists_by_layer_are_swept_in_the_order_of_the_file() -> None:
    found = sweep_costs(TRANSFORMER, {"encoder.heads": "8 | [4, 8, 4, 8, 4, 8] | 4"})
    assert [row["encoder.heads"] for row in found.rows] == [8, [4, 8, 4, 8, 4, 8], 4]


def test_the_quadratic_term_is_what_two_products_of_each_attention_cost() -> None:
    found = sweep_costs(TRANSFORMER, {"length": "10 | 20"})
    assert [row["macs.attention_products"] for row in found.rows] == [
        18 * 2 * 512 * n * n for n in (10, 20)]


@pytest.mark.parametrize(
    ("over", "code"),
    [
        ({"widht": "1..2"}, "unknown-key"),
        ({"width": "a"}, "bad-value"),
        ({"width": "1..100000"}, "too-many-sweep-rows"),
        ({"source": "0..3"}, "below-one"),
        ({"source": "abc"}, "bad-sweep"),
        ({"length": "1..3", "source": "1..3"}, "options-conflict"),
    ],
)
def test_bad_sweeps_are_user_errors(over: dict[str, str], code: str) -> None:
    with refuses(code):
        sweep_costs(TRANSFORMER, over)


@pytest.mark.parametrize(
    "key, text", [("width", "abc"), ("widht", "1..3"), ("encoder.geglu", "{"), ("width", "{a")])
def test_what_is_wrong_with_a_swept_key_is_said_of_the_sweep(key: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        sweep_costs(TRANSFORMER, {key: text})
    assert {problem.position.source.name for problem in raised.value.problems} == {"--sweep"}


def test_a_space_has_to_be_closed_but_for_what_is_swept() -> None:
    space = TRANSFORMER.with_overrides({"encoder.depth": "2..4", "norm": "pre | post"})
    with refuses("open-parameters", place="norm "):
        sweep_costs(space, {"encoder.depth": "2..4"})
    assert len(sweep_costs(space, {"encoder.depth": "2..4", "norm": "pre | post"}).rows) == 6


# -- comparisons


def test_differences_add_up() -> None:
    costs = {"a": bill({}), "b": bill(EDGE), "c": bill({"embedding.tie": "none", "width": "256"})}
    found = compare_costs(costs, 3)
    total = found.rows[-1]
    for quantity in ("params", "macs"):
        tops = [row.differences(quantity) for row in found.rows[:-1] if row.level == 0]
        assert tuple(map(sum, zip(*tops))) == total.differences(quantity)
        assert total.differences(quantity)[0] == costs["b"][f"{quantity}.total"] - costs["a"][
            f"{quantity}.total"]
        for parent in (row
                       for row in found.rows if row.path in ("encoder", "decoder", "embedding")):
            inner = [getattr(row, quantity)
                     for row in found.rows if row.path.rpartition(".")[0] == parent.path]
            assert tuple(map(sum, zip(*inner))) == getattr(parent, quantity)
    frame = found.frame()
    assert (frame["params b - a"] == frame["params b"] - frame["params a"]).all()
    with pytest.raises(ValueError, match="different protocols"):
        compare_costs({"a": bill({}), "b": bill({}, find_protocol("decode"))})


# -- formulas


@pytest.mark.parametrize("name", PROTOCOLS)
def test_formulas_at_numbers_are_costs(name: str) -> None:
    """At the architecture's own sizes, for random architectures of every kind; modules add up."""
    rng = Random(f"formulas {name}")
    for _ in range(12):
        protocol = find_protocol(name, rng.randint(1, 9), rng.randint(1, 9), rng.randint(8, 40))
        drawn = random_architecture(rng)
        found = cite(TRANSFORMER, drawn.config, protocol)
        mine = evaluate_cost(drawn.block, protocol)
        assert {key: formula.evaluate(found.values) for key, formula in found.sections.items()} == {
            key: mine[key] for key in found.sections}
        tops = [formulas for path, formulas in found.modules.items() if "." not in path]
        together = Formula.of(term for _, macs in tops for term in macs.terms.items())
        assert together == found.sections["macs.total"]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(PROTOCOLS)), st.booleans(), st.data())
def test_formulas_hold_for_other_sizes_and_lengths(
        name: str, edge: bool, data: st.DataObject) -> None:
    base = {"encoder.head_dim": "8", "decoder.head_dim": "8"} | (EDGE if edge else {})
    space = TRANSFORMER.with_overrides(base)
    found = cite(space, sheet(space), find_protocol(name))
    keys = ("width", "encoder.ffn.hidden", "encoder.head_dim",
            *(() if edge else ("encoder.depth", "decoder.heads")))
    sizes = {key: data.draw(st.integers(1, 9 if key.endswith(("depth", "heads")) else 30),
                              label=key) for key in keys}
    lengths = {letter: data.draw(st.integers(1, 12), label=letter) for letter in "STV"}
    other = TRANSFORMER.with_overrides(base | {key: str(size) for key, size in sizes.items()})
    answers = sheet(other)
    try:
        mine = evaluate_cost(assemble(answers).block, find_protocol(name, *lengths.values()))
    except UnbuildableError:
        return
    named = {key: answers[key] for key in found.values if key in answers}
    for key, formula in found.sections.items():
        assert formula.evaluate({**named, **lengths}) == mine[key], key


def test_formulas_are_readable() -> None:
    found = cite(TRANSFORMER, sheet(TRANSFORMER), find_protocol("decode"))
    record = found.to_json()
    assert record["costs"]["macs.output"] == {"formula": "T * V * width", "value": 30 * 32000 * 512}
    assert record["modules"]["encoder.ffn"]["params"] == (
        "encoder.depth * (2 * encoder.ffn.hidden * width + encoder.ffn.hidden + width)")
    assert record["where"]["encoder.head_dim"] == "width // encoder.heads" and record[
        "numbers"] == 0
    assert found.evaluate("params.embedding", width=3, V=7) == 21
    assert set(found.frame()["cost"]) == set(found.sections)


@given(st.lists(st.tuples(st.text("abc", max_size=4), st.integers(-6, 6)), max_size=6),
       st.integers(-3, 9))
def test_a_formula_means_what_it_says(terms: list[tuple[str, int]], divisor: int) -> None:
    formula = Formula.of((names, Fraction(factor, divisor or 1)) for names, factor in terms)
    names = {"a": 2, "b": 3, "c": 5}
    for text in (str(formula), formula.to_factored_text(lambda name: name == "a")):
        meant = eval(text.replace("^", "**").replace(",", ""), {},
                     {k: Fraction(v) for k, v in names.items()})
        assert abs(
            Fraction(meant)
            - sum(f * _product(names, k) for k, f in formula.terms.items())) < Fraction(1, 10**9)


def _product(names: dict[str, int], key: tuple[str, ...]) -> int:
    product = 1
    for name in key:
        product *= names[name]
    return product


@pytest.mark.parametrize("name", PROTOCOLS)
def test_extents_are_polynomials_in_the_lengths(name: str) -> None:
    protocol = find_protocol(name, 13, 17, 19)
    for axes in ((), ("src",), ("keys", "tgt"), ("src_keys", "tgt"), ("seq", "seq_keys"),
                 ("tgt", "vocab")):
        assert extent_formula(name,
                              axes).evaluate({"S": 13, "T": 17, "V": 19}) == protocol.extent(axes)


# -- crossings


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-60, 60), max_size=5))
def test_ranges_of_positive_values_are_those_of_trying(factors: list[int]) -> None:
    line = [Fraction(factor) for factor in factors]
    while line and not line[-1]:
        line.pop()
    found = list(positive_ranges(line))
    for n in (*range(1, 90), 10**6):
        value = sum(factor * n**power for power, factor in enumerate(line))
        assert (value > 0) == any(low <= n and (high is None or n <= high) for low, high in found)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_crossings_are_where_costs_cross(name: str) -> None:
    space = TRANSFORMER.with_overrides({"width": "16", "encoder.depth": "2", "decoder.depth": "1"})
    block = assemble(sheet(space)).block
    protocol = find_protocol(name, 6, 5, 400)
    by_length = {one.length: one for one in find_crossings(block, protocol, ("vocab",))}
    ((start, end),) = by_length["vocab"].ranges
    assert end is None
    for vocab in (start - 1, start):
        mine = evaluate_cost(block, find_protocol(name, 6, 5, vocab))
        assert (
            mine["macs.output"] > mine["macs.encoder"] + mine["macs.decoder"]) == (vocab == start)
    (quadratic, _) = find_crossings(block, protocol, ("length",))
    ((start, end),) = quadratic.ranges
    rows = sweep_costs(space, {"length": f"{start - 1} | {start}", "vocab": "400"}, protocol).rows
    assert [2 * row["macs.attention_products"] > row["macs.total"] for row in rows] == [
        False, True] and end is None


def test_no_crossing_over_a_vocabulary_that_shapes_follow_from() -> None:
    space = read_space(find_file("reference/partialformer-lm", "spaces"))
    found = find_crossings(assemble(sheet(space)).block, load_protocol(space.protocol),
                           ("vocab", "length"))
    assert {one.length for one in found} == {"length"}
    frame = found.frame()
    assert frame["part"].tolist() == ["attention's products"] and frame["to"].isna().all()
    assert cite(space, sheet(space), load_protocol(space.protocol)).vocab_bound
