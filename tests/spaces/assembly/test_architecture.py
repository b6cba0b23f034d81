"""Assembly of networks from configurations: ids, tying and unbuildable configurations."""

import pytest

from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.nn.verify import verify_costs
from scalesearch.spaces import Space
from scalesearch.spaces.assembly.architecture import ModelSpec, UnbuildableError, assemble
from tests.architectures import transformer_config
from tests.errors import refuses


def identity(**changes) -> str:
    return assemble(transformer_config(**changes)).id


def test_equivalent_configurations_have_equal_ids() -> None:
    assert identity(share__encoder__attention="cycle(2)") == identity()
    assert identity(share__encoder__attention="runs(2)") == identity(
        share__encoder__attention="one")
    assert identity(
        share__encoder__attention=[3, 3]) == identity(share__encoder__attention="sequence(1)")
    assert identity(embedding__max_length=99) == identity(), "sinusoids do not use the length"
    assert identity(model="decoder-only", encoder__depth=9) == identity(model="decoder-only")
    assert identity(decoder__interleaved=True, decoder__ffn="none") == identity(decoder__ffn="none")
    assert identity(
        encoder__key_value_heads=2) == identity(), "the default number of key and value heads"
    tied = {"encoder__depth": 4, "share__encoder__attention": "cycle(2)"}
    assert identity(**tied, share__decoder__self="encoder.attention[2*i]") == identity(
        **tied, share__decoder__self="encoder.attention[0]")


@pytest.mark.parametrize(
    "change",
    [
        {"width": 9},
        {"norm": "post"},
        {"encoder__depth": 3},
        {"encoder__heads": 4},
        {"decoder__head_dim": 5},
        {"decoder__interleaved": True},
        {"encoder__key_value_heads": 1},
        {"embedding__tie": "none"},
        {"embedding__positions": "learned"},
        {"share__decoder__cross": "one"},
        {"share__encoder__ffn": "one", "share__biases": "own"},
        {"encoder__ffn": "gelu"},
    ],
)
def test_different_networks_have_different_ids(change) -> None:
    assert identity(**change) != identity()


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [({"share__encoder__ffn": "runs(1, 11)"}, "share.encoder.ffn",
      "has 12 layers, but there are 2"),
     ({"encoder__score_heads": 3}, "encoder.score_heads", "are not a multiple of 3 score heads"),
     ({"share__decoder__self": "encoder.attention[2*i]"}, "share.decoder.self",
      "refers to encoder layer 2"),
     ({"share__decoder__ffn": "decoder.self[i]"}, "share.decoder.ffn",
      "only decoder layers can be tied"),
     ({"share__decoder__self": "encoder.ffn[i]"}, "share.decoder.self", "only one of them is"),
     ({"share__decoder__self": "encoder.attention[i]", "encoder__heads": 4}, "share.decoder.self",
      "encoder.heads is 4, decoder.heads is 2"),
     ({"share__decoder__cross": "encoder.attention[i]", "encoder__pg": "relu",
       "encoder__pg__on": "both", "encoder__pg__ratio": 2, "encoder__pg__per_head": False,
       "encoder__pg__gate": "none", "encoder__pg__residual": False,
       "encoder__pg__activation": "relu"}, "share.decoder.cross",
      "encoder.pg is relu, decoder.pg is"),
     ({"share__decoder__ffn": "encoder.ffn[i]", "encoder__ffn__hidden": 9}, "share.decoder.ffn",
      "encoder.ffn.hidden is 9, decoder.ffn.hidden is"),
     ({"share__decoder__self": "encoder.attention[i/2]"}, "share.decoder.self",
      "refers to encoder layer None"),
     ({"embedding": "adaptive", "embedding__cutoffs": (40, 10), "embedding__factor": 2,
       "vocab": 100}, "embedding.cutoffs", "cutoffs must increase, unlike [40, 10]"),
     ({"target_vocab": 60}, "target_vocab", "needs a table for each side"),
     ({"decoder__width": 12}, "decoder.width", "needs a table for each side"),
     ({"decoder__width": 12, "model": "decoder-only"}, "decoder.width", "two widths"),
     ({"decoder__width": 12, "embedding__tie": "none", "share__decoder__ffn": "encoder.ffn[i]"},
      "share.decoder.ffn", "width is 8, decoder.width is 12"),
     ({"embedding__tie": "decoder", "decoder__sublayers": [["self", "cross"], "ffn"],
       "norm": "post", "decoder__parallel_norms": True}, "decoder.parallel_norms",
      "norms of the input"),
     ({"norm": "branch", "encoder__paths__of": "layer", "encoder__paths__count": 2,
       "encoder__paths__merge": "mean", "encoder__paths__norm": False}, "encoder.paths.of",
      "norm: pre"),
     ({"embedding": "h-softpos", "embedding__scaled": False, "embedding__tie": "none"},
      "embedding.scaled", "always scaled"),
     ({"encoder__score_heads": 0}, "encoder.score_heads", "2 value heads need at least 1"),
     ({"decoder__score_heads": 0, "decoder__head_scaling": "mlp"}, "decoder.score_heads",
      "2 value heads need at least 1"),
     ({"share__encoder__attention": "cicle(2)"}, "share.encoder.attention", "no such schedule")])
def test_unbuildable_configurations_report_key_and_reason(change, path: str, reason: str) -> None:
    with pytest.raises(UnbuildableError) as caught:
        assemble(transformer_config(**change))
    assert caught.value.key == path
    assert reason in caught.value.reason


def test_decoder_layers_are_tied_to_existing_layers_only() -> None:
    def tied_to(layer: str) -> ModelSpec:
        return assemble(transformer_config(encoder__depth=3, decoder__depth=3,
                                           share__decoder__self=f"encoder.attention[{layer}]"))

    tied_to("i")
    with pytest.raises(UnbuildableError) as caught:
        tied_to("i + 1")
    assert caught.value.key == "share.decoder.self"


def test_tied_attention_is_counted_once() -> None:
    protocol = find_protocol("forward", 4, 4, 10)
    tying = {"share__decoder__self": "encoder.attention[i]",
             "share__decoder__cross": "encoder.attention[i]"}
    untied, tied = (evaluate_cost(assemble(transformer_config(**changes)).block, protocol)
                    for changes in ({}, tying))
    attention = 4 * (8 * 8 + 8)
    assert untied["params.decoder"] - tied["params.decoder"] == 2 * 2 * attention
    assert untied["macs.total"] == tied["macs.total"]


@pytest.mark.parametrize(("tie", "tables"), [("none", 100 + 2 * 60), ("decoder", 100 + 60)])
def test_a_target_vocabulary_has_its_own_table_and_output(tie: str, tables: int) -> None:
    architecture = assemble(transformer_config(vocab=100, target_vocab=60, embedding__tie=tie,
                                               embedding__output_bias=False))
    checks = verify_costs(architecture.block, 3, 4, 100)
    assert all(check.is_equal for check in checks)
    costs = evaluate_cost(architecture.block, find_protocol("forward", 3, 4, 100))
    assert costs["params.embedding"] + costs["params.output"] == 8 * tables
    assert costs["macs.output"] == 4 * 8 * 60


def test_single_architecture_reports_open_parameters():
    space = Space.parse("width: 64\nencoder: {depth: 2 | 4, heads: 2}\ndecoder: {depth: 2, heads: "
                        "2}\n", "small.yaml")
    with refuses("open-parameters", "small.yaml", "encoder.depth"):
        space.single_architecture()
    with refuses("open-parameters", "encoder.depth", place="teacher: it"):
        space.single_architecture("teacher: it")
    closed = space.with_overrides({"encoder.depth": "4"})
    assert closed.single_architecture() == next(
        closed.architecture(params) for params in closed.enumerate())
