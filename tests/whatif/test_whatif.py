"""Sweeps, comparisons, formulas and crossings, compared with single architectures."""

from fractions import Fraction
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.cost import PROTOCOLS, CostBreakdown, evaluate_cost, find_protocol, load_protocol
from scalesearch.library import find_file
from scalesearch.spaces import Space, UnbuildableError, read_space
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.spaces.schema.bound_tree import build_index
from scalesearch.spaces.syntax.diagnostics import ConfigError
from scalesearch.testing import random_architecture
from scalesearch.whatif import cite, compare_contexts, compare_costs, find_crossings, sweep_costs
from scalesearch.whatif.contexts import CONTEXT_COLUMNS
from scalesearch.whatif.crossings import positive_ranges
from scalesearch.whatif.formulas import Formula, extent_formula
from tests.architectures import transformer_config
from tests.errors import refuses

TRANSFORMER = read_space(find_file("transformer", "spaces"))
EDGE = {
    "encoder.depth": "12", "decoder.depth": "2", "decoder.interleaved": "yes",
    "decoder.ffn.hidden": "128", "share.encoder.attention": "cycle(4)", "share.encoder.ffn": "6-6",
    "share.decoder.self": "encoder.attention[2*i]",
}


def config_of(space: Space) -> dict[str, object]:
    return dict(space.resolve(lambda *_: None))


def breakdown_with(settings: dict[str, str], protocol: object = None) -> CostBreakdown:
    space = TRANSFORMER.with_overrides(settings)
    block = assemble(config_of(space)).block
    return evaluate_cost(block, protocol or load_protocol(space.protocol))  # type: ignore[arg-type]


# -- sweeps


def test_sweep_rows_equal_costs_of_single_architectures() -> None:
    swept = {"encoder.ffn": "geglu | relu", "width": "64..128 step 32", "source": "5 | 9"}
    sweep = sweep_costs(TRANSFORMER, swept)
    assert [tuple(row[key] for key in swept) for row in sweep.rows] == [
        (ffn, width, source) for ffn in ("relu", "geglu") for width in (64, 96, 128)
        for source in (5, 9)]
    for row in sweep.rows:
        breakdown = breakdown_with(
            {"width": str(row["width"]), "encoder.ffn": row["encoder.ffn"]},
            find_protocol("forward", row["source"], 30, 32768))
        for name in ("params.total", "params.non_embedding", "macs.encoder", "macs.total"):
            assert row[name] == breakdown[name]
    frame = sweep.frame()
    assert len(frame) == 12 and frame["macs.total"].dtype == "Int64" and frame["error"].isna().all()


def test_sweep_has_artifact_bytes_of_the_protocol() -> None:
    protocol = load_protocol({"vocab": 500, "artifact": "ctranslate2-int8"})
    sweep = sweep_costs(TRANSFORMER, {"width": "64..128 step 64", "source": "5 | 9"}, protocol)
    for row in sweep.rows:
        assert row["artifact.bytes"] == breakdown_with({"width": str(row["width"])},
                                                       protocol)["artifact.bytes"]
    assert sweep.frame()["artifact.bytes"].dtype == "Int64" and "artifact.bytes" not in sweep_costs(
        TRANSFORMER, {"width": "64"}).columns


def test_sweep_keeps_rows_of_unbuildable_architectures() -> None:
    sweep = sweep_costs(TRANSFORMER, {"encoder.score_heads": "3 | 8"})
    assert [
        row["macs.total"] is None for row in sweep.rows] == [True, False]
    assert sweep.rows[0]["error"].startswith("encoder.score_heads: ")
    assert sweep.frame()["macs.total"].isna().tolist() == [True, False]
    sweep = sweep_costs(TRANSFORMER, {"encoder.score_heads": "3", "length": "5 | 9"})
    assert all(row["error"] for row in sweep.rows) and not sweep.crossings


def test_sweep_keeps_rows_with_invalid_computed_sizes() -> None:
    invalid, valid = sweep_costs(TRANSFORMER, {"width": "4 | 8"}).rows
    assert invalid["macs.total"] is None and valid["macs.total"] and valid["error"] is None
    assert invalid["error"].startswith("encoder.head_dim: ")


def test_sweep_keeps_the_order_of_lists() -> None:
    sweep = sweep_costs(TRANSFORMER, {"encoder.heads": "8 | [4, 8, 4, 8, 4, 8] | 4"})
    assert [row["encoder.heads"] for row in sweep.rows] == [8, [4, 8, 4, 8, 4, 8], 4]


def test_quadratic_term_is_the_cost_of_attention_products() -> None:
    sweep = sweep_costs(TRANSFORMER, {"length": "10 | 20"})
    assert [row["macs.attention_products"] for row in sweep.rows] == [
        18 * 2 * 512 * n * n for n in (10, 20)]


def test_length_of_a_decoder_only_model_is_its_context() -> None:
    space = Space.parse("model: decoder-only\nwidth: 64\nvocab: 100\n"
                        "decoder: { depth: 2, heads: 4 }\n")
    sweep = sweep_costs(space, {"length": "10 | 20"})
    for row in sweep.rows:
        n = row["length"]
        costs = evaluate_cost(space.single_architecture().block,
                              find_protocol("forward", vocab=100, length=n))
        assert row["macs.attention_products"] == 2 * 2 * 64 * n * n
        assert all(row[name] == costs[name] for name in ("macs.total", "macs.prefill",
                                                         "macs.decode_step", "memory.cache"))
    (crossing,) = [crossing for crossing in sweep.crossings if crossing.ranges]
    ((first, end),) = crossing.ranges
    rows = sweep_costs(space, {"length": f"{first - 1} | {first}"}).rows
    assert end is None and [2 * row["macs.attention_products"] > row["macs.total"]
                            for row in rows] == [False, True]


@pytest.mark.parametrize("swept", ["source", "target"])
def test_swept_source_or_target_replaces_the_length_of_a_protocol(swept: str) -> None:
    """Also in the crossings: a decoder-only model then reads the source before the target."""
    space = Space.parse("model: decoder-only\nwidth: 32\ndecoder: { depth: 2, heads: 4 }\n")
    protocol = find_protocol("forward", vocab=20, length=8)
    sweep = sweep_costs(space, {swept: "1..200"}, protocol)
    expected = sweep_costs(space, {swept: "1..200"}, find_protocol("forward", 8, 8, 20))
    assert sweep == expected and "macs.prefill" not in sweep.columns
    crossing = next(crossing for crossing in sweep.crossings if crossing.ranges)
    [(first, _)] = crossing.ranges
    is_larger = [2 * row["macs.attention_products"] > row["macs.total"] for row in sweep.rows]
    assert crossing.part == "attention's products" and is_larger.index(True) == first - 1


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
def test_invalid_sweeps_are_rejected(over: dict[str, str], code: str) -> None:
    with refuses(code):
        sweep_costs(TRANSFORMER, over)


@pytest.mark.parametrize(
    "key, text", [("width", "abc"), ("widht", "1..3"), ("encoder.geglu", "{"), ("width", "{a")])
def test_sweep_reports_invalid_key(key: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        sweep_costs(TRANSFORMER, {key: text})
    assert {problem.position.source.name for problem in raised.value.problems} == {"--sweep"}


def test_sweep_rejects_other_open_parameters() -> None:
    space = TRANSFORMER.with_overrides({"encoder.depth": "2..4", "norm": "pre | post"})
    with refuses("open-parameters", place="norm "):
        sweep_costs(space, {"encoder.depth": "2..4"})
    assert len(sweep_costs(space, {"encoder.depth": "2..4", "norm": "pre | post"}).rows) == 6


# -- comparisons


def test_differences_of_modules_add_up() -> None:
    costs = {"a": breakdown_with({}), "b": breakdown_with(EDGE),
             "c": breakdown_with({"embedding.tie": "none", "width": "256"})}
    comparison = compare_costs(costs, 3)
    total = comparison.rows[-1]
    for quantity in ("params", "macs"):
        tops = [row.differences[quantity] for row in comparison.rows[:-1] if row.level == 0]
        assert tuple(map(sum, zip(*tops))) == total.differences[quantity]
        assert total.differences[quantity][0] == costs["b"][f"{quantity}.total"] - costs["a"][
            f"{quantity}.total"]
        parents = [row for row in comparison.rows
                   if row.path in ("encoder", "decoder", "embedding")]
        for parent in parents:
            inner = [getattr(row, quantity)
                     for row in comparison.rows if row.path.rpartition(".")[0] == parent.path]
            assert tuple(map(sum, zip(*inner))) == getattr(parent, quantity)
    frame = comparison.frame()
    assert (frame["params b - a"] == frame["params b"] - frame["params a"]).all()
    with pytest.raises(ValueError, match="different protocols"):
        compare_costs({"a": breakdown_with({}), "b": breakdown_with({}, find_protocol("decode"))})


# -- formulas


@pytest.mark.full
@pytest.mark.parametrize("name", PROTOCOLS)
def test_formulas_evaluate_to_costs(name: str) -> None:
    """For random architectures; formulas of modules add up to the total."""
    rng = Random(f"formulas {name}")
    for _ in range(12):
        protocol = find_protocol(name, rng.randint(1, 9), rng.randint(1, 9), rng.randint(8, 40))
        architecture = random_architecture(rng, encoder__window=0, decoder__window=0)
        formulas = cite(TRANSFORMER, architecture.config, protocol)
        breakdown = evaluate_cost(architecture.block, protocol)
        for key, formula in formulas.sections.items():
            assert formula.evaluate(formulas.values) == breakdown[key], key
        top_level = [macs for path, (_, macs) in formulas.modules.items() if "." not in path]
        total = Formula.of(term for macs in top_level for term in macs.terms.items())
        assert total == formulas.sections["macs.total"]


@pytest.mark.parametrize("shared", [0, 1, 2])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_formulas_of_mixtures_evaluate_to_costs(stack: str, shared: int) -> None:
    """An absent shared network has no weights, not even those of its bias."""
    mixture = f"{stack}.ffn.mixture"
    space = TRANSFORMER.with_overrides({
        "width": "16", f"{stack}.ffn": "mixture", f"{mixture}.experts": "4",
        f"{mixture}.shared": str(shared)})
    config = config_of(space)
    for name in PROTOCOLS:
        protocol = find_protocol(name, 5, 7, 30)
        formulas = cite(space, config, protocol)
        breakdown = evaluate_cost(assemble(config).block, protocol)
        for key, formula in formulas.sections.items():
            assert formula.evaluate(formulas.values) == breakdown[key], key
    assert formulas.held_sizes[f"{mixture}.experts"] == 4
    assert (f"{mixture}.shared" in formulas.held_sizes) == (shared == 0)


@settings(max_examples=20)
@given(st.sampled_from(sorted(PROTOCOLS)), st.booleans(), st.data())
def test_formulas_evaluate_to_costs_of_other_sizes_and_lengths(
        name: str, edge: bool, data: st.DataObject) -> None:
    base = {"encoder.head_dim": "8", "decoder.head_dim": "8"} | (EDGE if edge else {})
    space = TRANSFORMER.with_overrides(base)
    formulas = cite(space, config_of(space), find_protocol(name))
    keys = ("width", "encoder.ffn.hidden", "encoder.head_dim",
            *(() if edge else ("encoder.depth", "decoder.heads")))
    sizes = {key: data.draw(st.integers(1, 9 if key.endswith(("depth", "heads")) else 30),
                              label=key) for key in keys}
    lengths = {letter: data.draw(st.integers(1, 12), label=letter) for letter in "STV"}
    other = TRANSFORMER.with_overrides(base | {key: str(size) for key, size in sizes.items()})
    config = config_of(other)
    try:
        breakdown = evaluate_cost(assemble(config).block, find_protocol(name, *lengths.values()))
    except UnbuildableError:
        return
    names = build_index(TRANSFORMER.schema).parameter_names(config)
    named = {names[key]: value for key, value in config.items() if names[key] in formulas.values}
    for key, formula in formulas.sections.items():
        assert formula.evaluate({**named, **lengths}) == breakdown[key], key


def test_formulas_are_readable() -> None:
    formulas = cite(TRANSFORMER, config_of(TRANSFORMER), find_protocol("decode"))
    assert formulas.costs["macs.output"] == {"formula": "T * V * width", "value": 30 * 32000 * 512}
    limited = cite(TRANSFORMER, config_of(TRANSFORMER),
                   load_protocol({"name": "decode", "shortlist": 500}))
    assert limited.costs["macs.output"]["value"] == 30 * 500 * 512
    assert formulas.modules["encoder.ffn"][0].to_factored_text() == (
        "encoder.depth * (2 * encoder.ffn.relu.hidden * width + encoder.ffn.relu.hidden + width)")
    assert formulas.where["encoder.head_dim"] == "width // encoder.heads"
    assert formulas.numbers == 0
    assert formulas.evaluate("params.embedding", width=3, V=7) == 21
    assert set(formulas.frame()["cost"]) == set(formulas.sections)


@given(st.lists(st.tuples(st.text("abc", max_size=4), st.integers(-6, 6)), max_size=6),
       st.integers(-3, 9))
def test_text_of_formulas_has_their_value(terms: list[tuple[str, int]], divisor: int) -> None:
    formula = Formula.of((names, Fraction(factor, divisor or 1)) for names, factor in terms)
    names = {"a": 2, "b": 3, "c": 5}
    for text in (str(formula), formula.to_factored_text(lambda name: name == "a")):
        expected = eval(text.replace("^", "**").replace(",", ""), {},
                        {k: Fraction(v) for k, v in names.items()})
        assert abs(
            Fraction(expected)
            - sum(f * _product(names, k) for k, f in formula.terms.items())) < Fraction(1, 10**9)


def _product(names: dict[str, int], key: tuple[str, ...]) -> int:
    product = 1
    for name in key:
        product *= names[name]
    return product


@pytest.mark.parametrize("name", PROTOCOLS)
def test_extent_formulas_equal_extents(name: str) -> None:
    protocol = find_protocol(name, 13, 17, 19)
    for axes in ((), ("src",), ("keys", "tgt"), ("src_keys", "tgt"), ("seq", "seq_keys"),
                 ("tgt", "vocab")):
        assert extent_formula(name,
                              axes).evaluate({"S": 13, "T": 17, "V": 19}) == protocol.extent(axes)


# -- crossings


@settings(max_examples=200)
@given(st.lists(st.integers(-60, 60), max_size=5))
def test_positive_ranges_equal_brute_force(factors: list[int]) -> None:
    polynomial = [Fraction(factor) for factor in factors]
    while polynomial and not polynomial[-1]:
        polynomial.pop()
    ranges = list(positive_ranges(polynomial))
    for n in (*range(1, 90), 10**6):
        value = sum(factor * n**power for power, factor in enumerate(polynomial))
        assert (value > 0) == any(low <= n and (high is None or n <= high) for low, high in ranges)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_costs_cross_at_crossings(name: str) -> None:
    space = TRANSFORMER.with_overrides({"width": "16", "encoder.depth": "2", "decoder.depth": "1"})
    block = assemble(config_of(space)).block
    protocol = find_protocol(name, 6, 5, 400)
    by_length = {crossing.length: crossing
                 for crossing in find_crossings(block, protocol, ("vocab",))}
    ((start, end),) = by_length["vocab"].ranges
    assert end is None
    for vocab in (start - 1, start):
        breakdown = evaluate_cost(block, find_protocol(name, 6, 5, vocab))
        stacks = breakdown["macs.encoder"] + breakdown["macs.decoder"]
        assert (breakdown["macs.output"] > stacks) == (vocab == start)
    (quadratic, _) = find_crossings(block, protocol, ("length",))
    ((start, end),) = quadratic.ranges
    rows = sweep_costs(space, {"length": f"{start - 1} | {start}", "vocab": "400"}, protocol).rows
    assert [2 * row["macs.attention_products"] > row["macs.total"] for row in rows] == [
        False, True] and end is None


def test_no_crossing_over_vocabularies_that_determine_shapes() -> None:
    space = read_space(find_file("reference/partialformer-lm", "spaces"))
    crossings = find_crossings(assemble(config_of(space)).block, load_protocol(space.protocol),
                               ("vocab", "length"))
    assert {crossing.length for crossing in crossings} == {"length"}
    frame = crossings.frame()
    assert frame["part"].tolist() == ["attention's products"] and frame["to"].isna().all()
    assert cite(space, config_of(space), load_protocol(space.protocol)).vocab_bound


# -- the length of the context


def test_crossings_of_contexts_are_those_of_all_lengths() -> None:
    """Windows of 1, 5 and 9 tokens, fewer heads of keys and values, and constant caches."""
    changes = {"full": {}, "window": {"decoder__window": 9}, "own": {"decoder__window": 1},
               "grouped": {"decoder__key_value_heads": 1, "decoder__ffn__hidden": 24},
               "mixed": {"decoder__window": 5, "decoder__global_every": 2},
               "average": {"decoder__mixer": "average", "decoder__mixer__dims": 4},
               "linear": {"decoder__mixer": "linear_attention", "decoder__mixer__heads": 2,
                          "decoder__mixer__key_dim": 3}}
    protocol = find_protocol("forward", vocab=30)
    blocks = {name: (assemble(transformer_config(model="decoder-only", **change)).block, protocol)
              for name, change in changes.items()}
    lengths = range(1, 60)
    comparison = compare_contexts(blocks, lengths)
    frame = comparison.frame()
    assert len(comparison.crossings) > 10 and len(frame) == len(lengths) * len(blocks)
    crossings = {(crossing.cost, crossing.lower, crossing.higher): crossing.ranges
                 for crossing in comparison.crossings}
    assert any(len(ranges) > 1 or ranges[0][1] for ranges in crossings.values())
    for cost in CONTEXT_COLUMNS:
        costs = frame.pivot(index="length", columns="name", values=cost)
        for n in lengths:
            for lower, higher in permutations(blocks, 2):
                ranges = crossings.get((cost, lower, higher), ())
                is_lower = any(low <= n and (high is None or n <= high) for low, high in ranges)
                assert is_lower == (costs[lower][n] < costs[higher][n]), (cost, lower, higher, n)


def test_contexts_need_a_decoder() -> None:
    block = assemble(transformer_config(model="encoder-only")).block
    with refuses("no-decoder", "bert"):
        compare_contexts({"bert": (block, find_protocol())}, [8])
