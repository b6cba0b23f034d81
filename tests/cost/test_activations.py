"""Costs of memory compared with tensors: saved by autograd, and cached in decoding."""

from random import Random

import pytest
import torch

from scalesearch.blocks.core import Block
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.cost.training import FLOAT32_BYTES
from scalesearch.nn.build import build_model
from scalesearch.spaces import Space
from scalesearch.testing import random_architecture
from scalesearch.testing.checks import activations
from scalesearch.testing.random_models import small_space

S = 20
T = 24
V = 40
BASE = """
width: 32
encoder: {{ depth: 3, heads: 4, ffn: {{ {ffn}: {{ {hidden} }} }}, {both} {encoder} }}
decoder: {{ depth: 3, heads: 4, ffn: {{ {ffn}: {{ {hidden} }} }}, {both} {decoder} }}
{top}
"""
FFN_TYPES = {kind: {"ffn": kind, "hidden": "" if kind in ("self_gated", "none") else "hidden: 64"}
             for kind in ("relu", "gelu", "swish", "geglu", "swiglu", "self_gated", "none")}
GATES = {f"gate {gate}": {"both": f"gate: {gate},"}
         for gate in ("QgV", "KgV", "VgQ", "VgK", "KgQ", "QgK")}
CROSS_GATES = {f"cross {name}": {"decoder": f"cross_{gate['both']}"}
               for name, gate in GATES.items()}
CHAINS = {f"chain {apply} {length}": {"top": f"tensor_chain: {{ layer: 0.2, apply: {apply}, "
                                      f"length: {length} }}"} for apply in ("cores", "matrix")
          for length in (2, 3, 4)}
SCORES = {f"scores {kind}": {"both": f"residual_scores: {kind},"}
          for kind in ("global", "relative", "previous")}
FAMILIES: dict[str, dict[str, str]] = {
    **FFN_TYPES, **GATES, **CROSS_GATES, **CHAINS, **SCORES,
    "mixture": {"ffn": "mixture", "hidden": "expert_hidden: 24, shared: 1"},
    "mixture of products": {"ffn": "mixture", "hidden": "experts: 6, active: 1, expert_hidden: 24",
                            "top": "matrices.ffn: kronecker(2)"},
    "raw": {"both": "projections: identity,"},
    "heads": {"both": "pg: relu,"},
    "heads without a gate": {"both": "pg: { relu: { gate: none } },"},
    "separate heads": {"both": "pg: { geglu: { per_head: yes, gate: tanh } },"},
    "head scaling": {"both": "score_heads: 3, head_scaling: mlp,"},
    "shared scores": {"both": "score_heads: 2,"},
    "grouped queries": {"both": "key_value_heads: 2,"},
    **{f"norm of queries and keys by {norm}": {"both": f"qk_norm: {norm},"}
       for norm in ("head", "width")},
    "norm of heads, grouped": {"both": "qk_norm: head, key_value_heads: 2,"},
    "soft cap": {"both": "soft_cap: 3,"},
    "soft cap of scaled heads": {"both": "soft_cap: 3, score_heads: 3, head_scaling: mlp,"},
    "linear biases": {"both": "alibi: yes,"},
    "scale of scores": {"both": "score_dim: 1, alibi: yes, alibi_scaled: yes,"},
    "scale of normalized scores": {"both": "score_dim: 1, qk_norm: head, rotary: yes,"},
    "residual after norm": {"top": "residual_after_norm: yes"},
    "buckets": {"both": "position_buckets: 8,"},
    "windows": {"both": "window: 5, global_every: 2,"},
    "relative": {"both": "relative_positions: yes,"},
    "solver": {"encoder": "solver: rk2-learned"},
    "waist": {"encoder": "middle_width: 16", "decoder": "middle_width: 20"},
    "waist, gated and post": {"top": "norm: post",
                              "decoder": "middle_width: 20, mixer: mega, cross: gated"},
    "interleaved": {"decoder": "interleaved: yes"},
    "post": {"top": "norm: post"},
    "decoder-only": {"top": "model: decoder-only"},
    "encoder-only": {"top": "model: encoder-only\nembedding.output_transform: yes"},
    "encoder-only, post": {"top": "model: encoder-only\nnorm: post\nembedding.tied_bias: yes"},
    "classes": {"top": "model: encoder-only\nclasses: 3"},
    "h-softpos": {"top": "embedding: { tie: none, "
                         "h-softpos: { levels: 3, roles: 4, level_width: 5 } }"},
    "attentive": {"top": "embedding: { attentive: { rank: 6, heads: 2 } }"},
    "attentive, post": {"top": "norm: post\nembedding: { tie: decoder, attentive: { rank: 20 } }"},
    "factorised": {"top": "embedding: { factorised: { rank: 5 } }"},
    "adaptive": {"top": "embedding: { adaptive: { cutoffs: [10, 20], factor: 2 } }"},
    "table by products": {"top": "embedding.tie: all\nmatrices.embedding: kronecker(2)"},
    "chained and tied": {"top": "embedding.tie: decoder\nmatrices.embedding: chain(0.4)"},
    "output by products": {"top": "embedding.tie: none\n"
                                  "matrices: { output: kronecker(1), embedding: low_rank(6) }"},
    "chained table": {"top": "embedding.tie: none\n"
                             "tensor_chain: { embedding: 0.2, output: 0.2, length: 4 }"},
    "lora": {"top": "adapt: lora"},
    "prompt": {"top": "adapt: prompt"},
    "mask": {"both": "mask: dynamic,"},
    "Mega": {"decoder": "mixer: mega, cross: gated"},
    "SSRU": {"encoder": "local: { ssru: { join: sum } }", "decoder": "mixer: ssru"},
    "linear attention": {"encoder": "local: { linear_attention: { join: before } }",
                         "decoder": "mixer: { linear_attention: { key_dim: 6 } }"},
    "latent attention": {"decoder": "mixer: { latent: { heads: 2, rank: 12, rotary_dim: 4 } }"},
    "latent queries": {
        "decoder": "mixer: { latent: { heads: 2, value_dim: 6, query_rank: 10, rotary_dim: 4 } }"},
    "lift": {"both": "lift: { dextra: { groups: 4 } },"},
    "lifted table": {"top": "embedding: { dextra: { rank: 8, groups: 4 } }"},
    "Macaron": {"encoder": "sublayers: [ffn, attention, ffn]",
                "decoder": "sublayers: [ffn, self, cross, ffn]"},
    "parallel": {"encoder": "sublayers: [[attention, ffn]]",
                 "decoder": "sublayers: [self, [cross, ffn]]"},
    "parallel, post": {"encoder": "sublayers: [[attention, ffn]]",
                       "decoder": "sublayers: [self, [cross, ffn]]", "top": "norm: post"},
    "parallel with a norm each": {"encoder": "sublayers: [[attention, ffn]]",
                                  "both": "parallel_norms: yes,",
                                  "decoder": "sublayers: [self, [cross, ffn]]"},
    "branch norms": {"top": "norm: branch", "encoder": "sublayers: [[attention, ffn]]"},
    "sandwich norms": {"top": "norm: sandwich\nnorm_kind: rms",
                       "decoder": "sublayers: [self, [cross, ffn]], parallel_norms: yes"},
    "post, with a last norm": {"top": "norm: post\npost_last_norm: yes"},
    "GLU": {"encoder": "sublayers: [glu, attention, ffn]",
            "decoder": "sublayers: [self, [glu, cross], ffn]"},
    "branches": {"encoder": "sublayers: [branches, attention, ffn]",
                 "decoder": "sublayers: [self, branches, cross, ffn], "
                            "branches: { left: separable, left_kernel: 11, right: separable, "
                            "right_activation: none, left_activation: swish, multiple: 1 }"},
    "branches without a map of the norm": {
        "encoder": "sublayers: [branches, attention, ffn], "
                   "branches: { left: convolution, right: separable }",
        "decoder": "sublayers: [self, cross, [branches, ffn]], "
                   "branches: { right: dense, right_activation: gelu }"},
    "branches, rms norms and chains": {
        "encoder": "sublayers: [branches, attention, ffn]",
        "decoder": "sublayers: [self, branches, cross, ffn]",
        "top": "norm_kind: rms\ntensor_chain.ffn: 0.3"},
    "no biases": {"both": "projection_bias: no, ffn_bias: no,",
                  "top": "norm_kind: layer-no-bias"},
    "norms without weights, no output bias": {"both": "out_bias: no,",
                                              "top": "norm_kind: layer-no-weights"},
    "norms of embeddings": {"top": "embedding: { tie: inputs, scaled: no, norm: yes }"},
    "an output map of its own": {
        "top": "embedding: { norm: yes, factorised: { rank: 5, own_map: yes } }\nnorm_kind: rms"},
    "limited logits": {"top": "embedding: { output_soft_cap: 3, tie: none }"},
    "bias of a tied output": {"top": "embedding: { tied_bias: yes, factorised: { rank: 5 } }"},
    "no biases of a gated network": {"ffn": "swiglu", "both": "ffn_bias: no,"},
    "heads in parallel": {
        "decoder": "sublayers: [[self, cross], self, cross, ffn], parallel_heads: 2"},
    **{f"norm of {kind} units": {"ffn": kind, "both": "ffn_norm: yes,"}
       for kind in ("relu", "swish", "geglu")},
    "by layer": {"hidden": "hidden: [32, 64, 96]", "encoder": "sublayers: [[attention, ffn]]"},
    "rotary": {"both": "rotary: yes,"},
    "rotary, with norms of grouped heads": {
        "both": "qk_norm: head, key_value_heads: 2, rotary: yes,"},
    "chains after heads": {"top": "matrices.out: chain(0.2, 2)"},
    "chains of primes": {"hidden": "hidden: 67",
                         "top": "tensor_chain: { ffn: 0.2, apply: cores, length: 3 }"},
    "low rank": {"top": "low_rank: { ffn: 4, attention: 3 }"},
}


def family(name: str) -> Block:
    defaults = {"ffn": "relu", "hidden": "hidden: 64", "both": "", "encoder": "", "decoder": "",
                "top": ""}
    return Space.parse(BASE.format(**defaults | FAMILIES[name])).single_architecture().block


@pytest.mark.parametrize("name", FAMILIES)
def test_activations_equal_tensors_saved_by_autograd(name: str) -> None:
    predicted, saved_numbers = activations(family(name), S, T, V)
    assert predicted == pytest.approx(saved_numbers, rel=0.02), name


@pytest.mark.parametrize("keys", [
    "projections: identity,", "gate: VgK,", "gate: KgV,", "gate: QgV, projections: identity,",
    "relative_positions: yes,", "head_scaling: mlp,", "head_scaling: mlp, soft_cap: 2,",
    "projections: identity, relative_positions: yes,", "projections: identity, qk_norm: head,",
    "projections: identity, rotary: yes,"])
def test_activations_of_one_head_equal_tensors_saved_by_autograd(keys: str) -> None:
    """One head reads its input without a copy."""
    text = BASE.format(ffn="relu", hidden="hidden: 64", both=keys, encoder="", decoder="", top="")
    block = Space.parse(text.replace("heads: 4", "heads: 1")).single_architecture().block
    predicted, saved_numbers = activations(block, S, T, V)
    assert predicted == pytest.approx(saved_numbers, rel=0.02)


PROMPTED = [("tensor_chain: { layer: 0.2, apply: cores, length: 3 }", "solver: rk4"),
            ("tensor_chain: { layer: 0.2, apply: cores, length: 4 }", "gate: QgV"),
            ("tensor_chain: { layer: 0.2, apply: matrix, length: 3 }", ""),
            ("tensor_chain: { layer: 0.2, apply: cores, length: 2 }", "gate: VgQ"),
            ("low_rank: { attention: 3 }", "key_value_heads: 2"), ("", "gate: KgV"),
            ("matrices: { attention: kronecker(2) }", ""), ("", "projections: identity")]


@pytest.mark.parametrize(("maps", "encoder"), PROMPTED)
def test_a_prompt_adds_the_tensors_that_autograd_saves_for_it(maps: str, encoder: str) -> None:
    """The differences are exact, unlike the totals of some families."""
    plain, prompted = (
        activations(Space.parse(BASE.format(
            ffn="relu", hidden="hidden: 64", both="", encoder=encoder, decoder="",
            top=f"{maps}\nadapt: {adaptation}")).single_architecture().block, S, T, V)
        for adaptation in ("nothing", "{ prompt: { length: 7 } }"))
    assert prompted[0] - plain[0] == prompted[1] - plain[1] > 0


@pytest.mark.full
def test_activations_of_random_networks_equal_saved_tensors() -> None:
    head_keys = {f"{stack}__{key}": "1 | 2 | 3 | 4" for stack in ("encoder", "decoder")
                 for key in ("heads", "score_heads")}
    rng = Random(3)
    space = small_space(**head_keys, width="8..24 step 4")
    for _ in range(15):
        architecture = random_architecture(rng, space)
        predicted, saved_numbers = activations(architecture.block, S, T, V)
        assert predicted == pytest.approx(saved_numbers, rel=0.05), architecture.config


def cached(block: Block) -> int:
    """Numbers in the cache after T tokens of one sentence."""
    model = build_model(block, vocab=V).eval()
    memory = model.encode(torch.full((1, S), 5))
    cache = model.new_cache()
    for token in torch.full((1, T), 5).split(1, 1):
        model.decode(token, memory, cache)
    return sum(tensor.numel() for entry in cache.entries.values() for tensor in entry)


@torch.no_grad()
@pytest.mark.parametrize("name",
                         ["relu", "gate QgV", "cross gate VgQ", "h-softpos", "scores relative",
                          "decoder-only", "grouped queries", "prompt", "raw", "branches",
                          "windows"])
def test_cache_has_the_size_of_its_cost(name: str) -> None:
    block = family(name)
    assert evaluate_cost(
        block, find_protocol("forward", S, T, V))["memory.cache"] == FLOAT32_BYTES * cached(block)


@pytest.mark.full
@torch.no_grad()
def test_caches_of_random_networks_have_the_size_of_their_cost() -> None:
    rng = Random(4)
    for _ in range(15):
        architecture = random_architecture(rng)
        breakdown = evaluate_cost(architecture.block, find_protocol("forward", S, T, V))
        assert breakdown["memory.cache"] == FLOAT32_BYTES * cached(
            architecture.block), architecture.config
