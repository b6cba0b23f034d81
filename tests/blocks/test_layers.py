"""Lists of sub-layers: computation, ids and invalid lists."""

from typing import Any

import pytest
import torch

from scalesearch.blocks.core import iterate_cost_lines
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.nn import build_model
from scalesearch.spaces import Space
from scalesearch.spaces.assembly.architecture import ModelSpec, assemble
from scalesearch.testing import check_model
from scalesearch.testing.registered_blocks import check_count, tiny_space
from scalesearch.training import Recipe
from scalesearch.training.updates.parametrization import weight_scales
from tests.architectures import transformer_config
from tests.errors import refuses

MACARON = {"encoder__sublayers": ["ffn", "attention", "ffn"],
           "decoder__sublayers": ["ffn", "self", "cross", "ffn"]}
INTERLEAVED = ["self", "ffn", "cross", "ffn_again"]
PROTOCOL = find_protocol("forward", 5, 6, 40)


def architecture(**changes: Any) -> ModelSpec:
    """A small Transformer with ``changes``."""
    return assemble(transformer_config(**changes))


def test_equivalent_orders_have_equal_ids() -> None:
    """The ids are those of files without lists."""
    assert architecture().id == architecture(
        encoder__sublayers=["attention", ["ffn"]]).id == "5532ea87340a"
    assert architecture(decoder__interleaved=True).id == architecture(
        decoder__sublayers=INTERLEAVED).id == "df355ca75b8b"
    without = {"encoder__ffn": "none"}
    assert architecture(
        **without, encoder__sublayers=["ffn", "attention", "ffn"]).id == architecture(**without).id
    ids = [architecture(encoder__sublayers=order).id
           for order in ([["attention", "ffn"]], [["ffn", "attention"]])]
    assert ids[0] == ids[1] != architecture().id


def test_repeated_sublayers_have_own_weights_except_ffn_again() -> None:
    def params(**more: Any) -> int:
        return int(evaluate_cost(architecture(**more).block, PROTOCOL)["params.total"])

    network = 2 * 8 * 16 + 16 + 8
    norm = 2 * 8  # each stack has two layers
    assert params(**MACARON) - params() == 4 * (network + norm)
    assert params(encoder__sublayers=["attention", "ffn", "ffn_again"]) == params()
    assert params(encoder__sublayers=[["attention", "ffn"]]) == params() - 2 * norm
    assert params(**MACARON, share__encoder__ffn="one",
                  share__norms="follow") == params(**MACARON) - (2 * network + 2 * norm)


def test_parallel_sublayers_share_one_normalized_input() -> None:
    layer = build_model(architecture(encoder__sublayers=[["attention", "ffn"]]).block,
                        vocab=40).encoder.layers[0].eval()
    x = torch.randn(2, 5, 8)
    y = layer.attention_norm(x)
    assert torch.allclose(layer(x, None, None), x + layer.attention(y, None, None) + layer.ffn(y))


def test_residual_connections_can_start_after_the_norms() -> None:
    spec = architecture(residual_after_norm=True)
    layer = build_model(spec.block, vocab=30).encoder.layers[0]
    x = torch.randn(2, 5, 8)
    for norm in (layer.attention_norm, layer.ffn_norm):
        norm.weight.data.uniform_(0.5, 2)
    y = layer.attention_norm(x)
    y = layer.ffn_norm(y + layer.attention(y, None, None))
    assert torch.allclose(layer(x, None, None), y + layer.ffn(y), atol=1e-6)
    check_model(spec, 1)
    assert len(find_unsupported_parts(spec.block)) == 2
    for changes in ({"norm": "post"}, {"encoder__sublayers": [["attention", "ffn"]],
                                       "encoder__parallel_norms": True}):
        with refuses("unbuildable", "residual_after_norm"):
            architecture(residual_after_norm=True, **changes)


def test_post_norms_follow_their_sublayer() -> None:
    spec = architecture(norm="post", encoder__sublayers=["ffn", "attention", "ffn"])
    layer = build_model(spec.block, vocab=40).encoder.layers[0].eval()
    x = torch.randn(2, 5, 8)
    y = layer.ffn_norm(x + layer.ffn(x))
    y = layer.attention_norm(y + layer.attention(y, None, None))
    assert torch.allclose(layer(x, None, None), layer.ffn_2_norm(y + layer.ffn_2(y)))


def test_second_ffn_is_tied_to_the_second_ffn_of_the_encoder() -> None:
    share = {"share__decoder__ffn": "encoder.ffn[i]"}
    model = build_model(architecture(**MACARON, **share).block, vocab=40)
    assert model.decoder.layers[1].ffn_2.up.weight is model.encoder.layers[1].ffn_2.up.weight
    with refuses("unbuildable", "encoder.ffn[i]", key="share.decoder.ffn"):
        architecture(**share, decoder__sublayers=MACARON["decoder__sublayers"])


def test_depth_scaling_counts_all_residual_branches() -> None:
    recipe = Recipe(steps=1).replace(residual_scaling="scaled")
    for order, branches in (([["attention", "ffn"]], 2),
                            (["ffn", "attention", "ffn", "ffn_again"], 4)):
        scales = weight_scales(build_model(architecture(encoder__sublayers=order).block, vocab=40),
                               recipe)
        assert scales["encoder.layers.0.attention.out.weight"].init_factor == pytest.approx(
            (2 * branches) ** -0.5)


@pytest.mark.parametrize(("changes", "path"), [
    ({"encoder__sublayers": ["ffn"]}, "encoder.sublayers"),
    ({"decoder__sublayers": ["self", "ffn"]}, "decoder.sublayers"),
    ({"encoder__sublayers": ["ffn_again", "attention", "ffn"]}, "encoder.sublayers"),
    ({"decoder__sublayers": INTERLEAVED, "decoder__interleaved": True}, "decoder.interleaved"),
])
def test_invalid_sublayer_lists_are_unbuildable(changes: Any, path: str) -> None:
    with refuses("unbuildable", key=path):
        architecture(**changes)


@pytest.mark.parametrize(
    "text", ["attention", "[attention, [ffn, [ffn]]]", "[attention, []]", "[attention, fn]"])
def test_malformed_sublayer_lists_are_rejected_with_position(text: str) -> None:
    with refuses("bad-value", place="<string>:2"):
        Space.parse(f"width: 8\nencoder: {{ sublayers: {text} }}")


def test_sublayer_lists_round_trip() -> None:
    spec = architecture(encoder__sublayers=[["attention", "ffn"], "ffn"],
                        decoder__sublayers=INTERLEAVED)
    assert Space.parse(spec.to_yaml()).single_architecture().id == spec.id


@pytest.mark.parametrize(
    ("encoder", "decoder", "more"),
    [({"sublayers": "[attention, ffn] | [ffn, attention, ffn] | [attention, ffn, "
       "ffn_again] | [[attention, ffn]]", "heads": "2 | 4",
       "ffn": {"one of": {"relu": {"hidden": "8 | 16"}, "none": {}}}}, {"heads": 2}, {}),
     ({"heads": 2, "sublayers": "[attention, ffn] | [ffn, attention]"},
      {"sublayers": "[self, cross, ffn] | [[self, cross], ffn] | [self, ffn, cross, ffn_again]",
       "heads": "2 | 4", "interleaved": "yes | no", "ffn": {"relu": {"hidden": "8 | 16"}}},
      {"model": "encoder-decoder | decoder-only",
       "share": {"decoder": {"ffn": "own | encoder.ffn[0]"}}})])
def test_count_equals_enumeration(encoder: Any, decoder: Any, more: Any) -> None:
    check_count(tiny_space(encoder, decoder, **more))


def test_ctranslate2_requires_sequential_sublayers() -> None:
    assert not find_unsupported_parts(architecture(**MACARON).block)
    parallel = architecture(encoder__sublayers=[["attention", "ffn"]]).block
    (reason,) = find_unsupported_parts(parallel)
    assert reason.startswith("encoder: sub-layers in parallel")
    (reason,) = find_unsupported_parts(
        architecture(norm="post", encoder__sublayers=["ffn", "attention"]).block)
    assert reason.startswith("encoder: ffn comes first, but in post-norm models")


def test_cross_attentions_of_a_layer_have_own_caches() -> None:
    block = architecture(decoder__sublayers=["self", "cross", "cross", "ffn"]).block
    caches = [line for line in iterate_cost_lines(block, vocab=40) if line.path.endswith("store")]
    assert [line.path.split(".")[2] for line in caches] == [
        "self_attention", "cross_attention", "cross_attention_2"]
