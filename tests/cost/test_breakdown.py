"""Cost breakdowns: sums, names and protocols."""

from dataclasses import replace
from random import Random

import pytest

from scalesearch.cost import PROTOCOLS, evaluate_cost, find_protocol, load_protocol
from scalesearch.cost.breakdown import module_costs
from scalesearch.spaces import Space
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.spaces.schema.cost_names import COST_NAMES, COST_PARTS
from scalesearch.testing import random_architecture
from tests.architectures import transformer_config
from tests.cost.fits import fit_file
from tests.errors import refuses


def test_embedding_lookup_has_no_macs() -> None:
    for changes in ({}, {"embedding__positions": "learned"}, {"model": "decoder-only"}):
        assert evaluate_cost(assemble(transformer_config(**changes)).block,
                             find_protocol())["macs.embedding"] == 0


@pytest.mark.parametrize("name", PROTOCOLS)
def test_costs_of_sections_add_up(name: str) -> None:
    rng = Random(1)
    for _ in range(12):
        costs = evaluate_cost(random_architecture(rng).block,
                              find_protocol(name, rng.randint(1, 9), rng.randint(1, 9), 20))
        for quantity in ("params", "macs"):
            parts = [costs[f"{quantity}.{section}"]
                     for section in ("embedding", "encoder", "decoder", "output")]
            total = costs[f"{quantity}.total"]
            assert sum(parts) == total
            assert sum(getattr(entry, quantity) for entry in costs.leaf_costs) == total
            assert costs[f"{quantity}.non_embedding"] == total - costs[f"{quantity}.embedding"]
        # only multiply-adds are doubled
        single_weights = {operation: weight
                          for operation, weight in costs.protocol.work_weights.items()
                          if operation in ("norm", "bias")}
        single = evaluate_cost(costs.block, replace(costs.protocol, work_weights=single_weights))
        assert all(costs[f"flops.{part}"] == 2 * costs[f"macs.{part}"] - single[f"macs.{part}"]
                   for part in COST_PARTS)
        assert sum(row.macs for row in module_costs(costs, 1)) == costs["macs.total"]
        assert all(row.params >= 0 and row.macs >= 0 for row in module_costs(costs, 4))


@pytest.mark.parametrize("changes", [
    {"embedding__tie": "none"}, {"embedding__tie": "all"}, {"vocab": 50},
    {"embedding": "factorised", "embedding__rank": 3}])
def test_shortlist_is_the_number_of_output_rows_in_decoding(changes) -> None:
    block = assemble(transformer_config(**changes)).block
    vocab = "own" if "vocab" in changes else 50
    costs, limited = (evaluate_cost(block, load_protocol({
        "name": "decode", "source": 5, "target": 4, "vocab": vocab, "shortlist": shortlist}))
        for shortlist in (None, 20))
    features = 3 if "embedding" in changes else block.decoder.layer.mixer.d
    saved = 4 * features * (50 - 20)
    assert costs["macs.output"] - limited["macs.output"] == saved
    assert costs["macs.total"] - limited["macs.total"] == saved
    same = {name for name in costs.values if not name.startswith(("macs", "flops"))}
    assert all(costs[name] == limited[name] for name in same)
    with refuses("bad-value", "forward"):
        load_protocol({"shortlist": 20})


def test_all_cost_names_are_costs(tmp_path) -> None:
    breakdown = evaluate_cost(assemble(transformer_config()).block,
                              load_protocol({"artifact": "torch", "latency": fit_file(tmp_path),
                                             "optimizer": "soap", "max_tokens": 90, "steps": 9,
                                             "length": 9}))
    assert set(COST_NAMES) == {*breakdown.values, *breakdown.load_balance, *breakdown.latency,
                               "refusals.ctranslate2"}
    nested = breakdown.by_quantity
    for name in COST_NAMES:
        group, _, part = name.partition(".")
        assert nested[group][part] == breakdown[name]


def test_sharing_changes_params_but_not_macs() -> None:
    rng = Random(2)
    for _ in range(12):
        architecture = random_architecture(rng)
        plain = {
            path: ("own" if path.startswith("share.") and path.count(".") == 2 else value)
            for path, value in architecture.config.items()
        }
        shared, own = (evaluate_cost(spec.block, find_protocol())
                       for spec in (architecture, assemble(plain)))
        assert shared["macs.total"] == own["macs.total"]
        assert shared["params.total"] <= own["params.total"]


def test_costs_of_protocols_are_ordered() -> None:
    """With a cache, decoding computes less than one forward pass; without it, more."""
    for model in ("encoder-decoder", "decoder-only"):
        block = assemble(transformer_config(model=model)).block
        once, cached, rerun = (
            evaluate_cost(block, find_protocol(name, 6, 8, 30))["macs.total"]
            for name in ("forward", "decode", "decode-uncached")
        )
        assert cached < once < rerun


@pytest.mark.parametrize("changes", [{}, {"decoder__window": 4}, {"decoder__rotary": True},
                                     {"decoder__mixer": "average", "decoder__mixer__dims": 4}])
def test_decoding_a_context_is_the_sum_of_its_steps(changes: dict[str, object]) -> None:
    """Prefill is a pass with logits of one token; its length has no separate prompt."""
    block = assemble(transformer_config(model="decoder-only", **changes)).block
    steps = [evaluate_cost(block, find_protocol("forward", vocab=30, length=n)) for n in (1, 2, 7)]
    decoded = [evaluate_cost(block, find_protocol("decode", vocab=30, length=n))["macs.total"]
               for n in (1, 2, 6, 7)]
    assert steps[0]["macs.decode_step"] == steps[0]["macs.prefill"] == decoded[0]
    assert steps[1]["macs.decode_step"] == decoded[1] - decoded[0]
    assert steps[2]["macs.decode_step"] == decoded[3] - decoded[2]
    reading = evaluate_cost(block, find_protocol("forward", 6, 1, 30))
    assert steps[2]["macs.prefill"] == reading["macs.total"]
    assert steps[2]["memory.cache"] == reading["memory.cache"]
    assert steps[2]["macs.total"] - reading["macs.total"] == 6 * steps[2]["macs.output"] // 7


def test_prefill_of_an_encoder_decoder_reads_the_source() -> None:
    block = assemble(transformer_config()).block
    costs = evaluate_cost(block, find_protocol("train", vocab=30, length=7))
    first = evaluate_cost(block, find_protocol("decode", 7, 1, 30))
    before, after = (evaluate_cost(block, find_protocol("decode", 7, t, 30))["macs.total"]
                     for t in (6, 7))
    assert costs["macs.prefill"] == first["macs.total"]
    assert costs["macs.decode_step"] == after - before


@pytest.mark.parametrize(("cache", "ratio"), [("float32", 1), ("bf16", 2), ("int8", 4)])
def test_cache_is_counted_in_the_bytes_of_its_type(cache: str, ratio: int) -> None:
    block = assemble(transformer_config()).block
    protocol = load_protocol({"length": 16, "cache": cache})
    costs = evaluate_cost(block, protocol)
    plain = evaluate_cost(block, load_protocol({"source": 16, "target": 16}))
    assert ratio * costs["memory.cache"] == plain["memory.cache"]
    assert costs["memory.activations"] == plain["memory.activations"]
    for again in (load_protocol(protocol.settings), protocol.with_vocab(99)):
        assert (again.length, again.cache) == (16, cache)
    assert load_protocol(protocol.settings, source=3).length is None


def test_protocols_agree_for_one_target_token() -> None:
    block = assemble(transformer_config()).block
    costs = {evaluate_cost(block, find_protocol(name, 6, 1, 30))["macs.total"]
             for name in ("forward", "decode", "decode-uncached")}
    assert len(costs) == 1


def test_memory_of_a_small_model() -> None:
    """2 + 2 layers, width 8: keys and values of 2 decoder layers, T + S positions, 4 bytes."""
    block = assemble(transformer_config()).block
    breakdown = evaluate_cost(block, find_protocol("forward", 5, 7, 30))
    assert breakdown["memory.weights"] == 4 * breakdown["params.total"]
    assert breakdown["memory.cache"] == 4 * 2 * (8 + 8) * (7 + 5)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: find_protocol("foward"), ("unknown-protocol", "did you mean forward")),
        (lambda: find_protocol("forward", 0), ("below-one", "source is 0")),
        (lambda: find_protocol("forward", 1, 1, -5), ("below-one", "vocab is -5")),
        (lambda: find_protocol("forward", length=0), ("below-one", "length is 0")),
        (lambda: load_protocol({"length": 9, "source": 3}), ("given-twice", "length")),
        (lambda: load_protocol({"cache": "int3"}), ("unknown-cache-type", "int3")),
        (lambda: evaluate_cost(assemble(transformer_config()).block,
                               find_protocol())["macs.prefill"], ("length-missing", "--length")),
        (lambda: evaluate_cost(assemble(transformer_config()).block,
                               find_protocol())["params.totl"], ("unknown-cost", "`params.total`")),
        (lambda: evaluate_cost(assemble(transformer_config()).block,
                               find_protocol())["load.sum"], ("unknown-cost", "`load.mean`")),
    ],
)
def test_invalid_protocols_are_rejected_with_help(call, error: tuple[str, str]) -> None:
    with refuses(*error):
        call()


def test_arguments_override_the_protocol_of_the_file() -> None:
    chosen = load_protocol({"name": "decode", "source": 10, "vocab": 99}, name=None, source=4,
                           target=None, vocab=None)
    assert (chosen.name, chosen.source, chosen.target, chosen.vocab) == ("decode", 4, 30, 99)
    assert str(
        find_protocol("edgeformer")) == "edgeformer (S=30, T=30, V=32768, +5 per norm element)"


@pytest.mark.parametrize(("embedding", "tables"), [
    ("plain: {}", 40 * 32), ("factorised: { rank: 5 }", 40 * 5),
    ("adaptive: { cutoffs: [10, 20], factor: 2 }", 10 * 32 + 10 * 16 + 20 * 8)])
def test_tables_exclude_other_units_of_the_embedding(embedding: str, tables: int) -> None:
    space = Space.parse("width: 32\nencoder: { depth: 1, heads: 2, ffn: { relu: { hidden: 16 } "
                        "} }\n"
                        "decoder: { depth: 1, heads: 2, ffn: { relu: { hidden: 16 } } }\n"
                        f"embedding: {{ {embedding}, tie: all }}\n")
    costs = evaluate_cost(space.single_architecture().block, find_protocol("forward", 3, 3, 40))
    assert costs["params.tables"] == tables
    assert (costs["params.embedding"] > tables) == (embedding != "plain: {}")
