"""Every block, drawn at random sizes with the inputs it takes: what the contract tests run over.

A block that is here is checked against independent counters without a test of its own. Feed-forward kinds are here by
being registered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from scalesearch.blocks.attention import Attention
from scalesearch.blocks.core import KEYS, MEMORY, SRC, SRC_KEYS, TGT, Axis, Block, Repeat, Shape, options
from scalesearch.blocks.embed import POSITIONS, TokenEmbedding
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.layers import NORMS, DecoderLayer, EncoderLayer, Stack
from scalesearch.blocks.leaves import (
    Contraction,
    Convolution,
    Embedding,
    FusedAttention,
    LayerNorm,
    Linear,
    PositionTable,
)


@dataclass(frozen=True)
class Specimen:
    """A block and its inputs' shapes after the batch axis; ``ids``: token ids; None: an absent input."""

    block: Block
    inputs: tuple[Shape | None, ...]
    ids: bool = False


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


def _attention_block(rng: Random, d: int, axes: tuple[Axis, Axis, Axis], cached: bool = True) -> Attention:
    score_heads = rng.randint(1, 3)
    return Attention(d, score_heads * rng.randint(1, 3), _size(rng), score_heads, *axes, cached)


def _attention(rng: Random) -> Specimen:
    block = _attention_block(rng, _size(rng), (TGT, MEMORY, SRC_KEYS))
    return Specimen(block, ((TGT, block.d), (SRC, block.d), None))


def _token_embedding(rng: Random) -> Specimen:
    block = TokenEmbedding(_size(rng), (SRC,), rng.choice(POSITIONS), 8)
    return Specimen(block, ((SRC,), (SRC,)), ids=True)


def _ffn_block(rng: Random, kind: str, d: int, axis: str) -> Block:
    block = FFNS[kind]
    return block(d, (axis,), **{name: _size(rng) for name in options(block)})  # type: ignore[call-arg]


def _feed_forward(kind: str) -> Callable[[Random], Specimen]:
    def draw(rng: Random) -> Specimen:
        d = _size(rng)
        return Specimen(_ffn_block(rng, kind, d, SRC), ((SRC, d),))

    return draw


def _encoder_layer_block(rng: Random) -> EncoderLayer:
    attention = _attention_block(rng, _size(rng), (SRC, SRC, SRC), cached=False)
    ffn = _ffn_block(rng, rng.choice(list(FFNS)), attention.d, SRC)
    return EncoderLayer(attention, ffn, rng.choice(NORMS))


def _encoder_layer(rng: Random) -> Specimen:
    block = _encoder_layer_block(rng)
    return Specimen(block, ((SRC, block.attention.d), None))


def _decoder_layer(rng: Random) -> Specimen:
    d = _size(rng)
    block = DecoderLayer(
        _attention_block(rng, d, (TGT, TGT, KEYS)),
        _attention_block(rng, d, (TGT, MEMORY, SRC_KEYS)) if rng.random() < 0.8 else None,
        _ffn_block(rng, rng.choice(list(FFNS)), d, TGT),
        rng.choice(NORMS),
        rng.random() < 0.5,
    )
    return Specimen(block, ((TGT, d), None, (SRC, d), None, None))


def _stack(rng: Random) -> Specimen:
    layer = _encoder_layer_block(rng)
    return Specimen(Stack(Repeat(layer, rng.randint(1, 3))), ((SRC, layer.attention.d), None))


CATALOGUE: dict[str, Callable[[Random], Specimen]] = {
    "linear": _linear,
    "embedding": _embedding,
    "position_table": _position_table,
    "layer_norm": _layer_norm,
    "contraction": _contraction,
    "fused_attention": _fused_attention,
    "convolution": _convolution,
    "attention": _attention,
    "token_embedding": _token_embedding,
    **{f"ffn.{kind}": _feed_forward(kind) for kind in FFNS if kind != "none"},
    "encoder_layer": _encoder_layer,
    "decoder_layer": _decoder_layer,
    "stack": _stack,
}
