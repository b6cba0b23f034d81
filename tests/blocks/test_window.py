"""Attention in a window: hidden keys, layers by schedule, decoding with a bounded cache."""

from typing import Any

import pytest
import torch

from scalesearch.blocks.core import SRC, TGT, TGT_KEYS
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.nn import build_model
from scalesearch.nn.build import build_module
from scalesearch.nn.model import DecodingCache
from scalesearch.spaces import Space, UnbuildableError
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.testing import check_model
from scalesearch.whatif import find_crossings
from tests.nn.test_static_search import check_equal_translations, sharp_model

WINDOW = 3


def attention(decoder: bool, **changes: Any) -> Attention:
    axes = (TGT, TGT_KEYS) if decoder else (SRC, SRC)
    return Attention(8, axes[0], decoder, DENSE, heads=2, head_dim=4, score_heads=2,
                     projected_axis=axes[0], keys=axes[1], **{"window": WINDOW, **changes})


def architecture(text: str, top: str = "") -> ModelSpec:
    return Space.parse(f"width: 8\n{top}\n" + "".join(
        f"{stack}: {{ heads: 2, ffn: {{ relu: {{ hidden: 12 }} }}, {text} }}\n"
        for stack in ("encoder", "decoder"))).single_architecture()


@pytest.mark.parametrize("decoder", [True, False])
def test_positions_attend_to_those_in_the_window(decoder: bool) -> None:
    module = build_module(attention(decoder))
    bias = torch.full((9, 9), -torch.inf).triu(1) if decoder else None
    x = torch.randn(1, 9, 8, requires_grad=True)
    output = module(x, None, bias)
    for position in range(9):
        (grad,) = torch.autograd.grad(output[0, position].sum(), x, retain_graph=True)
        read = {key for key in range(9) if grad[0, key].any()}
        last = position if decoder else position + WINDOW - 1
        assert read == set(range(max(0, position - WINDOW + 1), min(8, last) + 1))


def test_a_wide_window_changes_nothing() -> None:
    narrow = build_module(attention(False, window=9))
    plain = build_module(attention(False, window=0))
    plain.load_state_dict(narrow.state_dict())
    x = torch.randn(2, 9, 8)
    assert torch.allclose(narrow(x, None, None), plain(x, None, None), atol=1e-6)


def test_cache_and_products_are_bounded() -> None:
    block = attention(True)
    module = build_module(block)
    cache = DecodingCache()
    for _ in range(9):
        module(torch.randn(1, 1, 8), None, None, cache)
    assert [tensor.shape[2] for tensor in cache[module]] == [WINDOW - 1] * 2
    assert cache.cached_length(module) == 9
    costs = evaluate_cost(block, find_protocol("forward", 1, 9, 40))
    assert costs["memory.cache"] == 4 * 2 * 8 * (WINDOW - 1)
    matrices = 4 * 8 * 8 * 9
    assert costs["macs.total"] == matrices + 2 * 8 * 9 * WINDOW
    steps = evaluate_cost(block, find_protocol("decode", 1, 9, 40))
    assert steps["macs.total"] == matrices + 2 * 8 * (1 + 2 + 7 * WINDOW)


def test_every_nth_layer_attends_to_all_positions() -> None:
    for text, windows in (("depth: 5, window: 4, global_every: 2", [4, 0, 4, 0, 4]),
                          ("depth: 3, window: [4, 0, 2]", [4, 0, 2]),
                          ("depth: 3, window: [4, 6, 2], global_every: 3", [4, 6, 0]),
                          ("depth: 2, window: 4, global_every: 3", [4, 4]),
                          ("depth: 2, window: 4, global_every: 1", [0, 0]),
                          ("depth: 2, global_every: 2", [0, 0])):
        layers = architecture(text).block.decoder.layers  # type: ignore[attr-defined]
        assert [layers.layer_at(number).mixer.window
                for number in range(layers.depth)] == windows
    assert architecture("depth: 2, global_every: 2").id == architecture("depth: 2").id


@pytest.mark.parametrize(("text", "top"), [
    ("depth: 2, window: 3, global_every: 2", ""), ("depth: 2, window: 1", ""),
    ("depth: 2, window: 2, key_value_heads: 1", "model: decoder-only"),
    ("depth: 3, window: 3, rotary: yes, global_every: 3",
     "model: decoder-only\nembedding.positions: none"),
    ("depth: 3, window: [2, 0, 5], relative_positions: yes", ""),
    ("depth: 2, window: 2, residual_scores: global", ""),
    ("depth: 2, window: 3, mask: dynamic", "adapt: prompt")])
def test_decoding_and_searches_equal_one_pass(text: str, top: str) -> None:
    spec = architecture(text, top)
    check_model(spec, 1)
    network = sharp_model(spec.block)
    for beam in (1, 3):
        check_equal_translations(network, beam)


def test_layers_with_and_without_a_window_share_weights() -> None:
    shared = architecture("depth: 4, window: 3, global_every: 2",
                          "share: { encoder.attention: one }")
    plain = architecture("depth: 4, window: 3, global_every: 2")
    params = [evaluate_cost(spec.block, find_protocol())["params.encoder"]
              for spec in (shared, plain)]
    assert params[1] - params[0] == 3 * 4 * (64 + 8)
    build_model(shared.block, vocab=20)


def test_what_does_not_support_windows() -> None:
    with pytest.raises(UnbuildableError) as caught:
        architecture("depth: 2, window: 3, residual_scores: previous")
    assert caught.value.key == "encoder.window"
    block = architecture("depth: 2, window: [0, 3]").block
    assert any("window" in reason for reason in find_unsupported_parts(block))
    assert find_crossings(block, find_protocol()) == ()
