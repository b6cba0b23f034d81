"""Further sub-layers, and what the Evolved Transformer needs beside them: what they compute, and what is refused."""

from typing import Any

import pytest
import torch
from torch.nn.functional import conv1d, layer_norm, pad, silu

from scalesearch.blocks.core import SRC, TGT
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.sublayers.evolved_branches import EvolvedBranches
from scalesearch.blocks.sublayers.glu import GatedLinearUnit
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.library import find_file
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.nn import build_model
from scalesearch.nn.build import build_module
from scalesearch.space import Space, UnbuildableError, read_space
from scalesearch.space.assembly.architecture import ModelSpec, assemble
from scalesearch.testing import check_sublayer
from scalesearch.testing.registered_blocks import check_count, tiny_space
from tests.architectures import transformer_config

PLAIN = {"left": "dense", "left_kernel": 3, "left_multiple": 2, "left_activation": "relu",
         "right": "convolution", "right_kernel": 3, "right_multiple": 0.5,
         "right_activation": "none", "kernel": 5, "multiple": 0.75}
KEYS = {f"encoder__branches__{key}": value for key, value in PLAIN.items()}


@pytest.mark.slow
@pytest.mark.parametrize("word", ["glu", "branches"])
def test_every_word_passes_what_those_of_others_have_to(word: str) -> None:
    check_sublayer(word)


def branches(decoder: bool = False, **changes: Any) -> EvolvedBranches:
    return EvolvedBranches(8, TGT if decoder else SRC, decoder, DENSE, **PLAIN | changes)


def architecture(**changes: Any) -> ModelSpec:
    """A small Transformer with ``changes``."""
    return assemble(transformer_config(**changes))


def convolved(x: torch.Tensor, weight: torch.Tensor, decoder: bool,
              bias: torch.Tensor | None = None) -> torch.Tensor:
    """PyTorch's convolution of (batch, positions, d): by channels where the weight has one of them."""
    kernel = weight.shape[2]
    groups = x.shape[2] // weight.shape[1]
    before = kernel - 1 if decoder else kernel // 2
    return conv1d(pad(x.mT, (before, kernel - 1 - before)), weight, bias, groups=groups).mT


@torch.no_grad()
@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize("kernel", [1, 2, 5])
def test_branches_are_pytorch_s_convolutions(decoder: bool, kernel: int) -> None:
    block = branches(decoder, right_kernel=kernel, left="separable", left_activation="swish")
    made = build_module(block)
    x = torch.randn(2, 7, 8)
    left = silu(made.left(convolved(x, made.left_rows.weight[:, None], decoder)))
    wide = made.right.weight.unflatten(1, (kernel, 8)).mT  # taps lie outside of features
    right = convolved(x, wide.contiguous(), decoder, made.right.bias)
    y = layer_norm(left + pad(right, (0, 12)), (16,))
    y = made.out(convolved(y, made.rows.weight[:, None], decoder))
    assert torch.allclose(made(x, None, None), pad(y, (0, 2)), atol=1e-5)


@torch.no_grad()
def test_padding_changes_nothing() -> None:
    made = build_module(branches(left="separable")).eval()
    x = torch.randn(1, 5, 8)
    for weight in made.parameters():
        weight.add_(0.3)  # biases too: what a map makes of zeros is not zero
    padded = torch.cat([x, torch.randn(1, 4, 8)], 1)
    there = (torch.arange(9) < 5)[None]
    assert torch.allclose(made(padded, there, None)[:, :5], made(x, None, None), atol=1e-5)


def test_a_gated_unit_is_pytorch_s() -> None:
    made = build_module(GatedLinearUnit(8, SRC, False, DENSE))
    x = torch.randn(2, 5, 8)
    both = torch.cat([made.value(x), made.gate(x)], -1)
    assert torch.allclose(made(x, None, None), torch.nn.functional.glu(both), atol=1e-6)


def test_the_kernel_of_a_dense_map_is_no_part_of_a_network() -> None:
    order = {"encoder__sublayers": ["branches", "attention", "ffn"]}
    ids = {architecture(**order, **KEYS | {"encoder__branches__left_kernel": kernel}).id
           for kernel in (1, 3, 9)}
    # nor are keys of what is not in the list
    assert len(ids) == 1 and architecture(**KEYS).id == architecture().id
    assert architecture(**order, **KEYS | {"encoder__branches__right_kernel": 2}).id not in ids


def test_the_cells_have_the_weights_that_the_reference_gives() -> None:
    found = read_space(find_file("reference/evolved", "spaces")).single_architecture().block
    bill = evaluate_cost(found, find_protocol("forward", 30, 30, 33_312))
    assert bill["params.encoder"] == 3 * 5_668_864 + 1024 and bill[
        "params.decoder"] == 4 * 7_503_104 + 1024
    assert bill["params.non_embedding"] == 47_021_056 and bill["params.total"] == 64_076_800
    assert bill["macs.total"] == 1_936_588_800 and bill["macs.encoder"] + bill[
        "macs.decoder"] == 1_424_916_480
    assert bill["memory.cache"] == 4 * (30 * 8_192 + 30 * 8_192 + 45_056)


def test_a_small_evolved_transformer_has_the_weights_of_the_reference() -> None:
    for width, body in ((128, 2_981_632), (432, 33_505_056), (768, 105_626_112),
                        (1024, 187_627_520)):
        space = read_space(find_file("reference/evolved",
                                     "spaces")).with_overrides({"width": str(width)})
        assert evaluate_cost(space.single_architecture().block,
                             find_protocol("forward", 30, 30, 40))["params.non_embedding"] == body


def test_attention_in_parallel_has_heads_of_its_own() -> None:
    keys = {"decoder__sublayers": [["self", "cross"], "self", "cross", "ffn"]}
    parts = architecture(**keys, decoder__parallel_heads=4).block.decoder.layers.layer.parts()
    heads = {name: (parts[name].block.heads, parts[name].block.head_dim)
             for name in parts if name.endswith(("attention", "attention_2"))}
    assert heads == {"self_attention": (4, 2), "cross_attention": (2, 4),
                     "self_attention_2": (2, 4), "cross_attention_2": (2, 4)}
    assert architecture(**keys).id == architecture(**keys, decoder__parallel_heads=2).id
    assert architecture(decoder__parallel_heads=4).id == architecture().id


def test_layers_share_further_sublayers() -> None:
    keys = {**KEYS, "encoder__sublayers": ["glu", "branches", "attention", "ffn"]}
    made = architecture(**keys, share__encoder__glu="one", share__encoder__branches="one")
    first, second = build_model(made.block, vocab=40).encoder.layers
    assert first.glu.value.weight is second.glu.value.weight
    assert first.branches.rows.weight is second.branches.rows.weight
    assert first.branches_norm.weight is not second.branches_norm.weight


def test_norms_of_hidden_units_are_of_networks_that_have_some() -> None:
    made = architecture(encoder__ffn_norm=True)
    layer = build_model(made.block, vocab=40).encoder.layers[0]
    x = torch.randn(2, 5, 8)
    assert torch.allclose(layer.ffn(x), layer.ffn.down(layer.ffn.norm(layer.ffn.up(x).relu())),
                          atol=1e-6)
    assert architecture(encoder__ffn="none",
                        encoder__ffn_norm=True).id == architecture(encoder__ffn="none").id


@pytest.mark.parametrize(
    ("changes", "path"),
    [({"encoder__ffn": "self_gated", "encoder__ffn_norm": True}, "encoder.ffn_norm"),
     ({**KEYS, "encoder__sublayers": ["branches", "attention", "ffn"],
       "encoder__branches__multiple": 0.1}, "encoder.branches.multiple"),
     ({"encoder__sublayers": [["attention", "ffn"]], "encoder__parallel_heads": 3},
      "encoder.parallel_heads"),
     ({"encoder__sublayers": [["attention", "ffn"]], "encoder__parallel_heads": 4,
       "encoder__residual_scores": "previous"}, "encoder.parallel_heads")])
def test_what_does_not_go_together_is_refused(changes: Any, path: str) -> None:
    with pytest.raises(UnbuildableError) as caught:
        architecture(**changes)
    assert caught.value.key == path


def test_what_the_runtime_has_not_is_said() -> None:
    made = architecture(**KEYS, encoder__sublayers=["glu", "branches", "attention", "ffn"],
                        decoder__ffn_norm=True)
    found = find_unsupported_parts(made.block)
    assert [reason.partition(":")[0] for reason in found] == [
        "encoder.branches", "encoder.glu", "decoder.ffn"]
    assert not find_unsupported_parts(
        architecture(encoder__projection_bias=False, decoder__projection_bias=False).block)


def test_counts_are_those_of_a_list() -> None:
    check_count(
        tiny_space({"sublayers": "[glu, attention, ffn] | [attention, ffn] | [[attention, "
                    "glu], branches, ffn]",
                    "branches": {"left_kernel": "1 | 3", "left": "dense | separable",
                                 "left_multiple": "1 | 2"}, "parallel_heads": "off | 2", "heads": 2,
                    "depth": 2, "ffn": "relu | none", "projection_bias": "yes | no"}, {},
                   share={"encoder": {"glu": "own | one"}}, tensor_chain={"ffn": "off | 0.3"}))


def test_sizes_by_layer_are_those_of_branches_too() -> None:
    space = Space.parse("width: 8\nencoder: { depth: 2, sublayers: [branches, attention, ffn], "
                        "branches: { kernel: '[3, 5]', left_multiple: 'ramp(1, 2)' } "
                        "}\ndecoder.depth: 1")
    layers = space.single_architecture().block.encoder.layers.distinct_layers
    assert [dict(one.extra_sublayers)["branches"].kernel for one in layers] == [3, 5]
