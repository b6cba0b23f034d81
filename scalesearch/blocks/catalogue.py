"""Every block, drawn at random sizes with the inputs it takes: what the contract tests run over.

A block that is here is checked against independent counters without a test of its own. Feed-forward kinds are here by
being registered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from scalesearch.blocks.adapt import ADAPTED, Adapter
from scalesearch.blocks.attention import Attention
from scalesearch.blocks.chains import ChainEmbedding
from scalesearch.blocks.core import KEYS, MEMORY, SRC, SRC_KEYS, TGT, Axis, Block, Repeat, Shape, Site, options
from scalesearch.blocks.embed import (
    POSITIONS,
    AdaptiveOutput,
    AdaptiveTable,
    FactorisedTable,
    SoftPOS,
    TokenEmbedding,
)
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.gates import GATES
from scalesearch.blocks.layers import NORMS, DecoderLayer, EncoderLayer
from scalesearch.blocks.leaves import (
    Contraction,
    Convolution,
    Embedding,
    FusedAttention,
    LayerNorm,
    Linear,
    MatMul,
    PositionTable,
    Transposed,
)
from scalesearch.blocks.partial import HEAD_GATES, PartialFFN
from scalesearch.blocks.scores import GlobalScores, HeadMixer, RelativeKeys, Scores
from scalesearch.blocks.sites import DENSE, IDENTITY, PER_HEAD, Chain, LowRank
from scalesearch.blocks.solvers import SOLVERS
from scalesearch.blocks.stacks import Stack, WaistedStack

LENGTH = "length"


@dataclass(frozen=True)
class Specimen:
    """A block and its inputs' shapes after the batch axis; ``ids``: token ids; None: an absent input."""

    block: Block
    inputs: tuple[Shape | None, ...]
    ids: bool = False
    more: tuple[object, ...] = ()  # what else its forward takes; ``LENGTH`` stands for the source's


def _size(rng: Random) -> int:
    return rng.randint(1, 12)


def _linear(rng: Random) -> Specimen:
    d = _size(rng)
    return Specimen(Linear(d, _size(rng), (SRC,), rng.random() < 0.5), ((SRC, d),))


def _embedding(rng: Random) -> Specimen:
    return Specimen(Embedding(_size(rng), (SRC,)), ((SRC,),), ids=True)


def _position_table(rng: Random) -> Specimen:
    return Specimen(PositionTable(_size(rng), 8), ((SRC,),), ids=True)


def _layer_norm(rng: Random) -> Specimen:
    d = _size(rng)
    return Specimen(LayerNorm(d, (SRC,)), ((SRC, d),))


def _contraction(rng: Random) -> Specimen:
    # At least 2 to sum over: of a sum of one term, einsum makes an elementwise product that no counter sees.
    heads, dim = _size(rng), 1 + _size(rng)
    extents = (("h", heads), ("q", TGT), ("k", SRC_KEYS), ("d", dim))
    return Specimen(Contraction("bhqd,bhkd->bhqk", extents), ((heads, TGT, dim), (heads, SRC_KEYS, dim)))


def _fused_attention(rng: Random) -> Specimen:
    heads, dim, value = _size(rng), _size(rng), _size(rng)
    inputs = ((heads, TGT, dim), (heads, SRC_KEYS, dim), (heads, SRC_KEYS, value), None)
    return Specimen(FusedAttention(heads, dim, value, TGT, SRC_KEYS), inputs)


def _convolution(rng: Random) -> Specimen:
    d, width, dilation = _size(rng), rng.randint(1, 4), rng.randint(1, 3)
    return Specimen(Convolution(d, _size(rng), width, (SRC,), dilation, rng.random() < 0.5), ((SRC, d),))


def _mat_mul(rng: Random) -> Specimen:
    heads, dim = _size(rng), _size(rng)
    return Specimen(MatMul((heads, TGT), dim, SRC_KEYS), ((heads, TGT, dim), (heads, dim, SRC_KEYS)))


def _transposed(rng: Random) -> Specimen:
    d = _size(rng)
    return Specimen(Transposed(d, _size(rng), (SRC,)), ((SRC, d),))


# -- sites


def _site(rng: Random) -> Site:
    chain = Chain(rng.uniform(0.05, 0.9), rng.randint(2, 4), rng.choice(["cores", "matrix", "auto"]))
    return rng.choice([DENSE, chain, chain, LowRank(_size(rng))])


def _chain_linear(rng: Random) -> Specimen:
    d = 2 * _size(rng)
    chain = Chain(rng.uniform(0.05, 0.9), rng.randint(2, 4), rng.choice(["cores", "matrix"]))
    return Specimen(chain(d, 2 * _size(rng), (SRC,), rng.random() < 0.5), ((SRC, d),))


def _chain_embedding(rng: Random) -> Specimen:
    return Specimen(ChainEmbedding(_size(rng), (SRC,), rng.uniform(0.05, 0.9), rng.randint(2, 4)), ((SRC,),), ids=True)


def _low_rank(rng: Random) -> Specimen:
    d = _size(rng)
    return Specimen(LowRank(_size(rng))(d, _size(rng), (SRC,)), ((SRC, d),))


def _head_linear(rng: Random) -> Specimen:
    heads, d = _size(rng), _size(rng)
    return Specimen(PER_HEAD(d, _size(rng), (SRC, heads), rng.random() < 0.5), ((SRC, heads, d),))


def _adapter(rng: Random) -> Specimen:
    d = _size(rng)
    return Specimen(Adapter(d, _size(rng), _size(rng), (SRC,)), ((SRC, d),))


# -- scores


def _head_mixer(rng: Random) -> Specimen:
    heads = _size(rng)
    return Specimen(HeadMixer(heads, _size(rng), TGT, SRC_KEYS), ((heads, TGT, SRC_KEYS),))


def _scores(rng: Random) -> Specimen:
    heads, dim, value = _size(rng), _size(rng), _size(rng)
    out = rng.choice([0, _size(rng)])
    inputs = ((heads, SRC, dim), (heads, SRC, dim), (out or heads, SRC, value), None)
    return Specimen(Scores(heads, dim, value, SRC, SRC, out, rng.choice([0, 2])), inputs)


def _relative_keys(rng: Random) -> Specimen:
    heads, dim = _size(rng), _size(rng)
    return Specimen(RelativeKeys(heads, dim, rng.randint(1, 4), SRC), ((heads, SRC, dim),), more=(LENGTH,))


def _global_scores(rng: Random) -> Specimen:
    d = _size(rng)
    return Specimen(GlobalScores(d, _size(rng), _size(rng), SRC, SRC, rng.choice([0, 2])), ((SRC, d),))


# -- attention and layers


def _attention_block(
    rng: Random, d: int, axes: tuple[Axis, Axis, Axis], cached: bool = True, cross: bool = False
) -> Attention:
    """Any attention whose sizes fit: a gate and raw features need heads x head_dim = d."""
    if rng.random() < 0.3:
        heads = rng.choice([n for n in range(1, d + 1) if d % n == 0])
        gate = rng.choice(GATES)
        site = rng.choice([_site(rng), IDENTITY])
        return Attention(d, heads, d // heads, heads, *axes, cached, cross, gate=gate, site=site)
    score_heads, expand = rng.randint(1, 3), rng.random() < 0.4
    heads, head_dim = (rng.randint(1, 7) if expand else score_heads * rng.randint(1, 3)), _size(rng)
    shared = rng.random() < 0.3 and (expand or heads == score_heads)
    kv_heads = rng.choice([n for n in range(1, 8) if heads % n == score_heads % n == 0]) if shared else 0
    encoder = axes[0] == axes[2]
    adapt = rng.choice(["none", "lora", "prompt"]) if encoder else "none"
    return Attention(
        d, heads, head_dim, score_heads, *axes, cached, cross, expand, kv_heads,
        clip=rng.choice([0, 3]) if encoder else 0,
        partial=_partial_block(rng, d, heads, head_dim, axes[0]) if rng.random() < 0.5 else None,
        adapters=tuple(rng.sample(ADAPTED, 2)) if adapt == "lora" else (),
        rank=_size(rng),
        prompt=rng.randint(1, 4) if adapt == "prompt" else 0,
        site=_site(rng),
    )


def _partial_block(rng: Random, d: int, heads: int, head_dim: int, axis: Axis) -> PartialFFN:
    kind = rng.choice([kind for kind, block in FFNS.items() if "hidden" in options(block)])
    inner = FFNS[kind](head_dim, (axis, heads), rng.choice([DENSE, PER_HEAD]), hidden=_size(rng))  # type: ignore[call-arg]
    return PartialFFN(d, heads, head_dim, axis, inner, rng.choice(HEAD_GATES), rng.random() < 0.5)


def _partial(rng: Random) -> Specimen:
    d, heads, dim = _size(rng), _size(rng), _size(rng)
    return Specimen(_partial_block(rng, d, heads, dim, SRC), ((SRC, heads * dim), (SRC, d)))


def _attention(rng: Random) -> Specimen:
    block = _attention_block(rng, _size(rng), (TGT, MEMORY, SRC_KEYS), cross=True)
    return Specimen(block, ((TGT, block.d), (SRC, block.d), None))


def _token_embedding(rng: Random) -> Specimen:
    d = _size(rng)
    tables = [Embedding(d, (SRC,)), FactorisedTable(d, 3, (SRC,), Embedding(3, (SRC,))), _bands(rng, d)]
    block = TokenEmbedding(d, (SRC,), rng.choice(tables), rng.choice(POSITIONS), 8)
    return Specimen(block, ((SRC,), (SRC,)), ids=True)


def _bands(rng: Random, d: int) -> AdaptiveTable:
    cutoffs = tuple(sorted(rng.sample(range(1, 15), 2)))
    return AdaptiveTable(d, cutoffs, rng.randint(2, 4), over=(SRC,))


def _adaptive_output(rng: Random) -> Specimen:
    d = _size(rng)
    bands = _bands(rng, d)
    return Specimen(AdaptiveOutput(d, bands.cutoffs, bands.factor), ((TGT, d),))


def _soft_positions(rng: Random) -> Specimen:
    levels, width = rng.randint(1, 3), rng.randint(1, 4)
    left = rng.randint(1, 6)
    d = left + (2 * levels - 1) * width
    roles = rng.randint(1, min(left, width))
    table = Embedding(left, (SRC,))
    block = SoftPOS(d, (SRC,), table, levels, width, roles, rng.choice(POSITIONS), 8)
    return Specimen(block, ((SRC,), (SRC,)), ids=True)


def _ffn_block(rng: Random, kind: str, d: int, axis: str) -> Block:
    block = FFNS[kind]
    return block(d, (axis,), _site(rng), **{name: _size(rng) for name in options(block)})  # type: ignore[call-arg]


def _feed_forward(kind: str) -> Callable[[Random], Specimen]:
    def draw(rng: Random) -> Specimen:
        d = _size(rng)
        return Specimen(_ffn_block(rng, kind, d, SRC), ((SRC, d),))

    return draw


def _encoder_layer_block(rng: Random, d: int | None = None) -> EncoderLayer:
    attention = _attention_block(rng, d or _size(rng), (SRC, SRC, SRC), cached=False)
    ffn = _ffn_block(rng, rng.choice(list(FFNS)), attention.d, SRC)
    return EncoderLayer(attention, ffn, rng.choice(NORMS))


def _encoder_layer(rng: Random) -> Specimen:
    block = _encoder_layer_block(rng)
    return Specimen(block, ((SRC, block.attention.d), None))


def _decoder_layer(rng: Random) -> Specimen:
    d = _size(rng)
    block = DecoderLayer(
        _attention_block(rng, d, (TGT, TGT, KEYS)),
        _attention_block(rng, d, (TGT, MEMORY, SRC_KEYS), cross=True) if rng.random() < 0.8 else None,
        _ffn_block(rng, rng.choice(list(FFNS)), d, TGT),
        rng.choice(NORMS),
        rng.random() < 0.5,
    )
    return Specimen(block, ((TGT, d), None, (SRC, d), None, None))


def _stack(rng: Random) -> Specimen:
    layer = _encoder_layer_block(rng)
    main = layer.attention
    scores = GlobalScores(main.d, main.bias_heads, _size(rng), SRC, SRC, 0, False) if rng.random() < 0.5 else None
    block = Stack(
        Repeat(layer, rng.randint(1, 3)), scores, rng.random() < 0.5, rng.choice(list(SOLVERS)), rng.random() < 0.5
    )
    return Specimen(block, ((SRC, main.d), (1, SRC, SRC)))


def _waisted_stack(rng: Random) -> Specimen:
    layer, middle = _encoder_layer_block(rng), _encoder_layer_block(rng)
    block = WaistedStack(Repeat(layer, 1), Repeat(middle, rng.randint(1, 3)), Repeat(layer, 1), rng.random() < 0.5)
    return Specimen(block, ((SRC, layer.attention.d), None))


CATALOGUE: dict[str, Callable[[Random], Specimen]] = {
    "linear": _linear,
    "embedding": _embedding,
    "position_table": _position_table,
    "layer_norm": _layer_norm,
    "contraction": _contraction,
    "fused_attention": _fused_attention,
    "convolution": _convolution,
    "mat_mul": _mat_mul,
    "transposed": _transposed,
    "chain_linear": _chain_linear,
    "chain_embedding": _chain_embedding,
    "low_rank": _low_rank,
    "head_linear": _head_linear,
    "adapter": _adapter,
    "head_mixer": _head_mixer,
    "scores": _scores,
    "relative_keys": _relative_keys,
    "global_scores": _global_scores,
    "partial_ffn": _partial,
    "attention": _attention,
    "token_embedding": _token_embedding,
    "soft_positions": _soft_positions,
    "adaptive_output": _adaptive_output,
    **{f"ffn.{kind}": _feed_forward(kind) for kind in FFNS if kind != "none"},
    "encoder_layer": _encoder_layer,
    "decoder_layer": _decoder_layer,
    "stack": _stack,
    "waisted_stack": _waisted_stack,
}
