"""Latent attention, compared with DeepSeek-V3 in transformers: outputs, params, MACs and cache."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from scalesearch.blocks.core import SEQ
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.mixers.latent import LatentAttention
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.nn.build import build_module
from scalesearch.nn.model import DecodingCache
from scalesearch.spaces import UnbuildableError
from tests.blocks.test_mixers import architecture
from tests.nn.test_static_search import check_equal_translations, sharp_model

SIZES = {"heads": 3, "rank": 10, "head_dim": 6, "rotary_dim": 4, "value_dim": 5}
LENGTH = 7


def latent(**changes: Any) -> LatentAttention:
    return LatentAttention(12, SEQ, True, DENSE, **{"query_rank": 0, **SIZES, **changes})


def deepseek(query_rank: int) -> tuple[Any, Any]:
    """The module of transformers, and a function from its length to cosines and sines."""
    v3 = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3",
                             exc_type=ImportError)
    from transformers import DeepseekV3Config

    config = DeepseekV3Config(
        hidden_size=12, num_attention_heads=3, num_key_value_heads=3,
        q_lora_rank=query_rank or None, kv_lora_rank=10, qk_nope_head_dim=6,
        qk_rope_head_dim=4, v_head_dim=5,
        rope_interleave=False, rope_theta=10_000.0, num_hidden_layers=1, rms_norm_eps=1e-5)
    config._attn_implementation = "eager"
    module = v3.DeepseekV3Attention(config, 0).double().eval()
    for norm in [name for name in ("q_a_layernorm", "kv_a_layernorm") if getattr(module, name)]:
        getattr(module, norm).variance_epsilon = 1e-5
        torch.nn.init.uniform_(getattr(module, norm).weight, 0.5, 1.5)
    return module, v3.DeepseekV3RotaryEmbedding(config)


@pytest.mark.full
@pytest.mark.parametrize("query_rank", [0, 8])
def test_output_and_costs_equal_transformers(query_rank: int) -> None:
    reference, rotary = deepseek(query_rank)
    block = latent(query_rank=query_rank)
    module = build_module(block, dtype=torch.float64).eval()
    names = {"down": "kv_a_proj_with_mqa", "norm": "kv_a_layernorm", "up": "kv_b_proj",
             "out": "o_proj", **({"query_down": "q_a_proj", "query_norm": "q_a_layernorm",
                                  "query": "q_b_proj"} if query_rank else {"query": "q_proj"})}
    for mine, other in names.items():
        getattr(module, mine).weight.data.copy_(getattr(reference, other).weight)
    x = torch.randn(2, LENGTH, 12, dtype=torch.float64)
    bias = torch.full((LENGTH, LENGTH), -torch.inf, dtype=torch.float64).triu(1)
    cos, sin = rotary(x, torch.arange(LENGTH)[None])
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        expected = reference(x, (cos, sin), bias.expand(2, 1, -1, -1))[0]
    assert torch.allclose(module(x, None, bias), expected, atol=1e-6)  # their angles are float32
    costs = evaluate_cost(block, find_protocol("forward", 3, LENGTH - 3))
    assert costs["params.total"] == sum(weight.numel() for weight in reference.parameters())
    assert counter.get_total_flops() == 2 * 2 * costs["macs.total"]


@pytest.mark.parametrize("query_rank", [0, 8])
def test_the_cache_holds_vectors_of_low_rank(query_rank: int) -> None:
    block = latent(query_rank=query_rank)
    module = build_module(block, dtype=torch.float64).eval()
    x = torch.randn(2, LENGTH, 12, dtype=torch.float64)
    bias = torch.full((LENGTH, LENGTH), -torch.inf, dtype=torch.float64).triu(1)
    cache = DecodingCache()
    steps = [module(x[:, t : t + 1], None, None, cache) for t in range(LENGTH)]
    assert torch.allclose(torch.cat(steps, 1), module(x, None, bias), atol=1e-12)
    cached = sum(tensor.numel() for tensor in cache[module])
    assert cached == 2 * LENGTH * (SIZES["rank"] + SIZES["rotary_dim"])
    costs = evaluate_cost(block, find_protocol("decode", 3, LENGTH - 3))
    assert costs["memory.cache"] == 4 * cached // 2


@pytest.mark.parametrize("changes", [{}, {"query_rank": 3}])
def test_searches_equal_one_pass(changes: dict[str, Any]) -> None:
    spec = architecture(mixer={"latent": {**SIZES, **changes}})
    check_equal_translations(sharp_model(spec.block), 3)


def test_rotary_features_are_pairs() -> None:
    with pytest.raises(UnbuildableError) as caught:
        architecture(encoder__mixer={"latent": {**SIZES, "rotary_dim": 3}})
    assert caught.value.key == "encoder.mixer.latent.rotary_dim"
