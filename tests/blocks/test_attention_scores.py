"""Norms of queries and keys, biases of scores by distance, and limits of scores."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from scalesearch.blocks.core import SRC
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.mixers.attention_extras import add_distance_bias
from scalesearch.blocks.mixers.scores import RelativeBuckets
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.data import Batch
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.nn import build_model
from scalesearch.nn.build import build_module
from scalesearch.spaces import UnbuildableError
from scalesearch.testing import check_model
from scalesearch.training.hardware import Hardware
from scalesearch.training.recipe import Recipe
from scalesearch.training.updates.engine import Engine
from tests.blocks.test_window import architecture
from tests.nn.test_static_search import check_equal_translations, sharp_model


def attention(**changes: Any) -> Attention:
    sizes = {"heads": 4, "head_dim": 4, "score_heads": 4, "kv_heads": 2} | changes
    return Attention(8, SRC, False, DENSE, projected_axis=SRC, keys=SRC, **sizes)


def scores(module: Any, x: torch.Tensor) -> torch.Tensor:
    """Scores of one sentence before the softmax, (heads, queries, keys), without a bias."""
    query = module.query(x)[0].view(-1, 4, 4).transpose(0, 1)
    key = module.key(x)[0].view(-1, 2, 4).transpose(0, 1).repeat_interleave(2, 0)
    return query @ key.transpose(1, 2) / 2


def mix(module: Any, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    value = module.value(x)[0].view(-1, 2, 4).transpose(0, 1).repeat_interleave(2, 0)
    return module.out((weights @ value).transpose(0, 1).flatten(1)[None])


@pytest.mark.parametrize(("norm", "params"), [("head", 4 + 4), ("width", 16 + 8)])
def test_norms_remove_the_scale_of_queries_and_keys(norm: str, params: int) -> None:
    block = attention(qk_norm=norm, bias=False)
    module = build_module(block)
    x = torch.randn(1, 5, 8)
    before = module(x, None, None)
    for name in ("query", "key"):
        getattr(module, name).weight.data *= 100
        getattr(module, f"{name}_norm").weight.data.uniform_(0.5, 2)
    assert not torch.allclose(module(x, None, None), before, atol=1e-3)
    for name in ("query", "key"):
        getattr(module, f"{name}_norm").weight.data.fill_(1)
    assert torch.allclose(module(x, None, None), before, atol=1e-3)
    added, plain = (evaluate_cost(part, find_protocol())["params.total"]
                    for part in (block, attention(bias=False)))
    assert added - plain == params


def test_slopes_are_those_of_the_published_code() -> None:
    query = torch.zeros(1, 6, 1, 4)
    for heads, slopes in ((4, [1 / 4, 1 / 16, 1 / 64, 1 / 256]),
                          (6, [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8])):
        assert add_distance_bias(None, query, 3, heads)[:, 0].tolist() == [
            [-2 * slope, -slope, 0] for slope in slopes]


def test_linear_biases_and_limits_of_scores() -> None:
    x = 3 * torch.randn(1, 5, 8)
    distance = (torch.arange(5)[:, None] - torch.arange(5)).abs()
    slopes = torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256])[:, None, None]
    module = build_module(attention(alibi=True))
    weights = (scores(module, x) - slopes * distance).softmax(-1)
    assert torch.allclose(module(x, None, None), mix(module, x, weights), atol=1e-5)
    module = build_module(attention(soft_cap=0.5))
    weights = (0.5 * (scores(module, x) / 0.5).tanh()).softmax(-1)
    assert torch.allclose(module(x, None, None), mix(module, x, weights), atol=1e-5)


def test_scale_of_scores_and_of_linear_biases() -> None:
    x = 3 * torch.randn(1, 5, 8)
    distance = (torch.arange(5)[:, None] - torch.arange(5)).abs()
    slopes = torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256])[:, None, None]
    # `scores` are divided by 2, the root of the features of a head
    for changes, score_factor, slope_factor in (
            ({"score_dim": 1}, 2, 1), ({"score_dim": 64}, 1 / 4, 1),
            ({"alibi_scaled": True}, 1, 1 / 2),
            ({"score_dim": 16, "alibi_scaled": True}, 1 / 2, 1 / 4)):
        module = build_module(attention(alibi=True, **changes))
        weights = (score_factor * scores(module, x) - slope_factor * slopes * distance).softmax(-1)
        assert torch.allclose(module(x, None, None), mix(module, x, weights), atol=1e-5)


def test_scale_of_biases_without_biases_is_not_part_of_the_identity() -> None:
    assert architecture("depth: 2, alibi_scaled: yes").id == architecture("depth: 2").id


@pytest.mark.parametrize(("text", "top"), [
    ("depth: 2, qk_norm: head, rotary: yes", "model: decoder-only\nembedding.positions: none"),
    ("depth: 2, qk_norm: width, key_value_heads: 1", ""),
    ("depth: 2, alibi: yes, window: 3", "embedding.positions: none"),
    ("depth: 2, alibi: yes, soft_cap: [2, 0]", "model: decoder-only"),
    ("depth: 2, alibi: yes, alibi_scaled: yes, score_dim: [1, 9]", ""),
    ("depth: 2, soft_cap: 3, score_heads: 3, head_scaling: mlp, alibi: yes", "adapt: prompt")])
def test_decoding_and_searches_equal_one_pass(text: str, top: str) -> None:
    spec = architecture(text, top)
    check_model(spec, 1)
    check_equal_translations(sharp_model(spec.block), 3)


def test_what_does_not_support_them() -> None:
    with pytest.raises(UnbuildableError) as caught:
        architecture("depth: 2, qk_norm: head", "adapt: prompt")
    assert caught.value.key == "encoder.qk_norm"
    for text in ("qk_norm: head", "alibi: yes", "soft_cap: 2", "position_buckets: 8"):
        assert len(find_unsupported_parts(architecture(f"depth: 2, {text}").block)) == 2
    cross_too = architecture("depth: 2, score_dim: 1").block
    assert len(find_unsupported_parts(cross_too)) == 3


@pytest.mark.parametrize("embedding",
                         ["tie: all", "tie: none", "tied_bias: yes, factorised: { rank: 3 }"])
def test_limited_logits_are_those_of_the_plain_output(embedding: str) -> None:
    plain, limited = (architecture("depth: 1",
                                   f"embedding: {{ {embedding}, output_soft_cap: {cap} }}")
                      for cap in (0, 0.5))
    check_model(limited, 1)
    assert find_unsupported_parts(limited.block)[0].startswith("output:")
    model, other = (build_model(spec.block, vocab=9) for spec in (plain, limited))
    for weight, copied in zip(model.parameters(), other.parameters(), strict=True):
        copied.data.copy_(weight)
    source, target = torch.tensor([[5, 6, 7]]), torch.tensor([[2, 8, 3]])
    logits = model(source, target)
    assert torch.allclose(other(source, target), 0.5 * torch.tanh(2 * logits))
    engine = Engine(other, Recipe(steps=1), Hardware.from_recipe(Recipe(steps=1, precision="fp32")))
    batch = Batch(source.numpy(), target.numpy(), target.numpy(), np.arange(1))
    expected = cross_entropy(0.5 * torch.tanh(2 * logits[0]), target[0], reduction="sum",
                             label_smoothing=0.1)
    assert torch.allclose(engine.loss_sum(batch, 0.1), expected)
    costs, others = (evaluate_cost(spec.block, find_protocol()) for spec in (plain, limited))
    assert dict(costs.values.items() ^ others.values.items()).keys() == {"memory.activations"}


@pytest.mark.parametrize("key", ["output_soft_cap: 3", "output_transform: yes"])
def test_an_adaptive_softmax_has_neither_limit_nor_transform(key: str) -> None:
    with pytest.raises(UnbuildableError) as caught:
        architecture("depth: 1",
                     f"vocab: 40\nembedding: {{ adaptive: {{ cutoffs: [9] }}, {key} }}")
    assert caught.value.key == f"embedding.{key.partition(':')[0]}"


@pytest.mark.full
@pytest.mark.parametrize(("causal", "buckets", "distance"),
                         [(True, 32, 128), (False, 32, 128), (True, 5, 7), (False, 8, 20)])
def test_buckets_are_those_of_t5(causal: bool, buckets: int, distance: int) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", exc_type=ImportError)
    module = build_module(RelativeBuckets(1, buckets, distance, causal))
    module.weight.data = torch.arange(float(buckets))[:, None]
    positions = torch.arange(200)
    expected = t5.T5Attention._relative_position_bucket(
        positions[None, :] - positions[:, None], not causal, buckets, distance)
    assert torch.equal(module(200, 200)[0].long(), expected)
    assert torch.equal(module(1, 200)[0].long(), expected[-1:])


@pytest.mark.parametrize("top", ["", "model: decoder-only", "norm: post"])
def test_all_layers_read_one_table_of_buckets(top: str) -> None:
    text = "depth: 3, position_buckets: 4, bucket_distance: 6, window: [3, 0, 4]"
    spec = architecture(text, top)
    check_model(spec, 1)
    check_equal_translations(sharp_model(spec.block), 3)
    plain = architecture(text.replace("buckets: 4", "buckets: 0"), top)
    added, without = (evaluate_cost(part.block, find_protocol()) for part in (spec, plain))
    assert added["params.decoder"] - without["params.decoder"] == 4 * 2
    assert added["macs.total"] == without["macs.total"]


@pytest.mark.parametrize(("text", "key"), [
    ("depth: 2, position_buckets: 5", "encoder.position_buckets"),
    ("depth: 2, position_buckets: 8, bucket_distance: 2", "encoder.bucket_distance"),
    ("depth: 2, position_buckets: 4, score_heads: [1, 2]", "encoder.position_buckets"),
    ("depth: 3, position_buckets: 4, middle_width: 4", "encoder.middle_width")])
def test_stacks_that_cannot_have_buckets(text: str, key: str) -> None:
    with pytest.raises(UnbuildableError) as caught:
        architecture(text)
    assert caught.value.key == key
