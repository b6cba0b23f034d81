"""Extra sub-layers and the Evolved Transformer."""

from typing import Any

import pytest
import torch
from torch.nn.functional import conv1d, layer_norm, pad, silu

from scalesearch.blocks.core import SRC, TGT
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.sublayers import EvolvedBranches, GatedLinearUnit
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.library import find_file
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.nn import build_model
from scalesearch.nn.build import build_module
from scalesearch.spaces import Space, UnbuildableError, read_space
from scalesearch.spaces.assembly.architecture import ModelSpec, assemble
from scalesearch.testing import check_sublayer
from scalesearch.testing.registered_blocks import check_count, tiny_space
from tests.architectures import transformer_config

PLAIN = {"left": "dense", "left_kernel": 3, "left_multiple": 2, "left_activation": "relu",
         "right": "convolution", "right_kernel": 3, "right_multiple": 0.5,
         "right_activation": "none", "kernel": 5, "multiple": 0.75}
KEYS = {f"encoder__branches__{key}": value for key, value in PLAIN.items()}


@pytest.mark.slow
@pytest.mark.parametrize("word", ["glu", "branches"])
def test_built_in_sublayers_pass_the_public_check(word: str) -> None:
    check_sublayer(word)


def branches(decoder: bool = False, **changes: Any) -> EvolvedBranches:
    return EvolvedBranches(8, TGT if decoder else SRC, decoder, DENSE, **PLAIN | changes)


def architecture(**changes: Any) -> ModelSpec:
    """A small Transformer with ``changes``."""
    return assemble(transformer_config(**changes))


def convolved(x: torch.Tensor, weight: torch.Tensor, decoder: bool,
              bias: torch.Tensor | None = None) -> torch.Tensor:
    """PyTorch's convolution of (batch, positions, d), grouped according to the weight."""
    kernel = weight.shape[2]
    groups = x.shape[2] // weight.shape[1]
    before = kernel - 1 if decoder else kernel // 2
    return conv1d(pad(x.mT, (before, kernel - 1 - before)), weight, bias, groups=groups).mT


@torch.no_grad()
@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize("kernel", [1, 2, 5])
def test_branches_equal_pytorch_convolutions(decoder: bool, kernel: int) -> None:
    block = branches(decoder, right_kernel=kernel, left="separable", left_activation="swish")
    module = build_module(block)
    x = torch.randn(2, 7, 8)
    left = silu(module.left(convolved(x, module.left_rows.weight[:, None], decoder)))
    # taps are the outer axis of the input features
    wide = module.right.weight.unflatten(1, (kernel, 8)).mT
    right = convolved(x, wide.contiguous(), decoder, module.right.bias)
    y = layer_norm(left + pad(right, (0, 12)), (16,))
    y = module.out(convolved(y, module.rows.weight[:, None], decoder))
    assert torch.allclose(module(x, None, None), pad(y, (0, 2)), atol=1e-5)


@torch.no_grad()
def test_padding_does_not_change_results() -> None:
    module = build_module(branches(left="separable")).eval()
    x = torch.randn(1, 5, 8)
    for weight in module.parameters():
        weight.add_(0.3)  # also biases, so that maps of zeros are not zero
    padded = torch.cat([x, torch.randn(1, 4, 8)], 1)
    token_mask = (torch.arange(9) < 5)[None]
    assert torch.allclose(module(padded, token_mask, None)[:, :5], module(x, None, None), atol=1e-5)


def test_gated_linear_unit_equals_pytorch() -> None:
    module = build_module(GatedLinearUnit(8, SRC, False, DENSE))
    x = torch.randn(2, 5, 8)
    both = torch.cat([module.value(x), module.gate(x)], -1)
    assert torch.allclose(module(x, None, None), torch.nn.functional.glu(both), atol=1e-6)


def test_ids_ignore_unused_branch_keys() -> None:
    order = {"encoder__sublayers": ["branches", "attention", "ffn"]}
    ids = {architecture(**order, **KEYS | {"encoder__branches__left_kernel": kernel}).id
           for kernel in (1, 3, 9)}
    # keys of sub-layers that are not in the list have no effect
    assert len(ids) == 1 and architecture(**KEYS).id == architecture().id
    assert architecture(**order, **KEYS | {"encoder__branches__right_kernel": 2}).id not in ids


def test_evolved_transformer_has_the_costs_of_the_reference() -> None:
    network = read_space(find_file("reference/evolved", "spaces")).single_architecture().block
    breakdown = evaluate_cost(network, find_protocol("forward", 30, 30, 33_312))
    assert breakdown["params.encoder"] == 3 * 5_668_864 + 1024 and breakdown[
        "params.decoder"] == 4 * 7_503_104 + 1024
    assert breakdown["params.non_embedding"] == 47_021_056
    assert breakdown["params.total"] == 64_076_800
    assert breakdown["macs.total"] == 1_936_588_800 and breakdown["macs.encoder"] + breakdown[
        "macs.decoder"] == 1_424_916_480
    assert breakdown["memory.cache"] == 4 * (30 * 8_192 + 30 * 8_192 + 45_056)


def test_other_evolved_transformers_have_the_params_of_the_reference() -> None:
    for width, body in ((128, 2_981_632), (432, 33_505_056), (768, 105_626_112),
                        (1024, 187_627_520)):
        space = read_space(find_file("reference/evolved",
                                     "spaces")).with_overrides({"width": str(width)})
        assert evaluate_cost(space.single_architecture().block,
                             find_protocol("forward", 30, 30, 40))["params.non_embedding"] == body


def test_parallel_attention_has_its_own_heads() -> None:
    keys = {"decoder__sublayers": [["self", "cross"], "self", "cross", "ffn"]}
    parts = architecture(**keys, decoder__parallel_heads=4).block.decoder.layers.layer.parts()
    heads = {name: (parts[name].block.heads, parts[name].block.head_dim)
             for name in parts if name.endswith(("attention", "attention_2"))}
    assert heads == {"self_attention": (4, 2), "cross_attention": (2, 4),
                     "self_attention_2": (2, 4), "cross_attention_2": (2, 4)}
    assert architecture(**keys).id == architecture(**keys, decoder__parallel_heads=2).id
    assert architecture(decoder__parallel_heads=4).id == architecture().id


def test_layers_share_extra_sublayers() -> None:
    keys = {**KEYS, "encoder__sublayers": ["glu", "branches", "attention", "ffn"]}
    spec = architecture(**keys, share__encoder__glu="one", share__encoder__branches="one")
    first, second = build_model(spec.block, vocab=40).encoder.layers
    assert first.glu.value.weight is second.glu.value.weight
    assert first.branches.rows.weight is second.branches.rows.weight
    assert first.branches_norm.weight is not second.branches_norm.weight


def test_ffn_norm_normalizes_hidden_units() -> None:
    spec = architecture(encoder__ffn_norm=True)
    layer = build_model(spec.block, vocab=40).encoder.layers[0]
    x = torch.randn(2, 5, 8)
    assert torch.allclose(layer.ffn(x), layer.ffn.down(layer.ffn.norm(layer.ffn.up(x).relu())),
                          atol=1e-6)
    assert architecture(encoder__ffn="none",
                        encoder__ffn_norm=True).id == architecture(encoder__ffn="none").id


@pytest.mark.parametrize(
    ("changes", "path"),
    [({"encoder__ffn": "self_gated", "encoder__ffn_norm": True}, "encoder.ffn_norm"),
     ({"encoder__ffn": "self_gated", "encoder__ffn_bias": False}, "encoder.ffn_bias"),
     ({**KEYS, "encoder__sublayers": ["branches", "attention", "ffn"],
       "encoder__branches__multiple": 0.1}, "encoder.branches.multiple"),
     ({"encoder__sublayers": [["attention", "ffn"]], "encoder__parallel_heads": 3},
      "encoder.parallel_heads"),
     ({"encoder__sublayers": [["attention", "ffn"]], "encoder__parallel_heads": 4,
       "encoder__residual_scores": "previous"}, "encoder.parallel_heads")])
def test_inconsistent_settings_are_unbuildable(changes: Any, path: str) -> None:
    with pytest.raises(UnbuildableError) as caught:
        architecture(**changes)
    assert caught.value.key == path


def test_ctranslate2_reports_unsupported_sublayers() -> None:
    spec = architecture(**KEYS, encoder__sublayers=["glu", "branches", "attention", "ffn"],
                        decoder__ffn_norm=True)
    reasons = find_unsupported_parts(spec.block)
    assert [reason.partition(":")[0] for reason in reasons] == [
        "encoder.branches", "encoder.glu", "decoder.ffn"]
    assert not find_unsupported_parts(
        architecture(encoder__projection_bias=False, decoder__projection_bias=False).block)


@pytest.mark.full
def test_count_equals_enumeration() -> None:
    check_count(
        tiny_space({"sublayers": "[glu, attention, ffn] | [attention, ffn] | [[attention, "
                    "glu], branches, ffn]",
                    "branches": {"left_kernel": "1 | 3", "left": "dense | separable",
                                 "left_multiple": "1 | 2"}, "parallel_heads": "off | 2", "heads": 2,
                    "depth": 2, "ffn": "relu | none", "projection_bias": "yes | no"}, {},
                   share={"encoder": {"glu": "own | one"}}, tensor_chain={"ffn": "off | 0.3"}))


def test_branch_sizes_can_differ_per_layer() -> None:
    space = Space.parse("width: 8\nencoder: { depth: 2, sublayers: [branches, attention, ffn], "
                        "branches: { kernel: '[3, 5]', left_multiple: 'ramp(1, 2)' } "
                        "}\ndecoder.depth: 1")
    layers = space.single_architecture().block.encoder.layers.distinct_layers
    assert [dict(layer.extra_sublayers)["branches"].kernel for layer in layers] == [3, 5]
