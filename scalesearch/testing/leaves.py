"""Specimens of leaves and of what stands where a matrix would."""

from __future__ import annotations

from random import Random

from scalesearch.blocks.chains import ChainEmbedding
from scalesearch.blocks.core import SRC, SRC_KEYS, TGT
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
from scalesearch.blocks.mixers.adapt import Adapter
from scalesearch.blocks.sites import PER_HEAD, Chain, LowRank
from scalesearch.testing.specimen import Specimen, size, sources, specimen


@specimen("linear")
def linear(rng: Random) -> Specimen:
    """Draw a linear map, with or without a bias."""
    d = size(rng)
    return Specimen(Linear(d, size(rng), (SRC,), rng.random() < 0.5), sources(d))


@specimen("transposed")
def transposed(rng: Random) -> Specimen:
    """Draw a linear map by a transposed matrix."""
    d = size(rng)
    return Specimen(Transposed(d, size(rng), (SRC,)), sources(d))


@specimen("embedding")
def embedding(rng: Random) -> Specimen:
    """Draw a table of tokens."""
    return Specimen(Embedding(size(rng), (SRC,)), ((SRC,),), ids=True)


@specimen("position_table")
def position_table(rng: Random) -> Specimen:
    """Draw a table of 8 positions."""
    return Specimen(PositionTable(size(rng), 8), ((SRC,),), ids=True)


@specimen("layer_norm")
def layer_norm(rng: Random) -> Specimen:
    """Draw a layer norm."""
    d = size(rng)
    return Specimen(LayerNorm(d, (SRC,)), sources(d))


@specimen("contraction")
def contraction(rng: Random) -> Specimen:
    """Draw a product of queries and keys over at least two features.

    Of a sum of one term einsum makes an elementwise product, which no counter sees.
    """
    heads, dim = size(rng), 1 + size(rng)
    extents = (("h", heads), ("q", TGT), ("k", SRC_KEYS), ("d", dim))
    return Specimen(Contraction("bhqd,bhkd->bhqk", extents), ((heads, TGT, dim), (heads, SRC_KEYS, dim)))


@specimen("mat_mul")
def mat_mul(rng: Random) -> Specimen:
    """Draw a matrix product of two activations."""
    heads, dim = size(rng), size(rng)
    return Specimen(MatMul((heads, TGT), dim, SRC_KEYS), ((heads, TGT, dim), (heads, dim, SRC_KEYS)))


@specimen("fused_attention")
def fused_attention(rng: Random) -> Specimen:
    """Draw softmax attention over given queries, keys and values."""
    heads, dim, value = size(rng), size(rng), size(rng)
    inputs = ((heads, TGT, dim), (heads, SRC_KEYS, dim), (heads, SRC_KEYS, value), None)
    return Specimen(FusedAttention(heads, dim, value, TGT, SRC_KEYS), inputs)


@specimen("convolution")
def convolution(rng: Random) -> Specimen:
    """Draw a causal convolution of up to 4 taps, dilated by up to 3."""
    d, width, dilation = size(rng), rng.randint(1, 4), rng.randint(1, 3)
    return Specimen(Convolution(d, size(rng), width, (SRC,), dilation, rng.random() < 0.5), sources(d))


@specimen("chain_linear")
def chain_linear(rng: Random) -> Specimen:
    """Draw a tensor chain of 2 to 4 cores."""
    d = 2 * size(rng)
    chain = Chain(rng.uniform(0.05, 0.9), rng.randint(2, 4), rng.choice(["cores", "matrix"]))
    return Specimen(chain(d, 2 * size(rng), (SRC,), rng.random() < 0.5), sources(d))


@specimen("chain_embedding")
def chain_embedding(rng: Random) -> Specimen:
    """Draw an embedding table as a tensor chain."""
    return Specimen(ChainEmbedding(size(rng), (SRC,), rng.uniform(0.05, 0.9), rng.randint(2, 4)), ((SRC,),), ids=True)


@specimen("low_rank")
def low_rank(rng: Random) -> Specimen:
    """Draw a product of two matrices."""
    d = size(rng)
    return Specimen(LowRank(size(rng))(d, size(rng), (SRC,)), sources(d))


@specimen("head_linear")
def head_linear(rng: Random) -> Specimen:
    """Draw a matrix for each head."""
    heads, d = size(rng), size(rng)
    return Specimen(PER_HEAD(d, size(rng), (SRC, heads), rng.random() < 0.5), ((SRC, heads, d),))


@specimen("adapter")
def adapter(rng: Random) -> Specimen:
    """Draw a low-rank adapter."""
    d = size(rng)
    return Specimen(Adapter(d, size(rng), size(rng), (SRC,)), sources(d))
