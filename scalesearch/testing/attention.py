"""Specimens of attention, of its scores and of feed-forward networks."""

from __future__ import annotations

from random import Random
from typing import Any

from scalesearch.blocks.core import MEMORY, SRC, SRC_KEYS, TGT, Axis, Block
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.mixers import MIXERS
from scalesearch.blocks.mixers.adapt import ADAPTED
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.mixers.gates import GATES
from scalesearch.blocks.mixers.partial import HEAD_GATES, PartialFFN
from scalesearch.blocks.mixers.scores import GlobalScores, HeadMixer, RelativeKeys, Scores
from scalesearch.blocks.options import options
from scalesearch.blocks.sites import DENSE, IDENTITY, PER_HEAD
from scalesearch.testing.specimen import LENGTH, Specimen, fitting, site, size, sources, specimen


@specimen("head_mixer")
def head_mixer(rng: Random) -> Specimen:
    """Draw an affine map across heads of scores."""
    heads = size(rng)
    return Specimen(HeadMixer(heads, size(rng), TGT, SRC_KEYS), ((heads, TGT, SRC_KEYS),))


@specimen("scores")
def scores(rng: Random) -> Specimen:
    """Draw scores that may be expanded over heads and relative."""
    heads, dim, value = size(rng), size(rng), size(rng)
    out = rng.choice([0, size(rng)])
    inputs = ((heads, SRC, dim), (heads, SRC, dim), (out or heads, SRC, value), None)
    return Specimen(Scores(heads, dim, value, SRC, SRC, out, rng.choice([0, 2])), inputs)


@specimen("relative_keys")
def relative_keys(rng: Random) -> Specimen:
    """Draw the scores of clipped distances."""
    heads, dim = size(rng), size(rng)
    return Specimen(RelativeKeys(heads, dim, rng.randint(1, 4), SRC), ((heads, SRC, dim),), more=(LENGTH,))


@specimen("global_scores")
def global_scores(rng: Random) -> Specimen:
    """Draw A^G, the scores of a whole stack."""
    d = size(rng)
    return Specimen(GlobalScores(d, size(rng), size(rng), SRC, SRC, rng.choice([0, 2])), sources(d))


def attention_block(
    rng: Random, d: int, axes: tuple[Axis, Axis, Axis], decoder: bool = True, cross: bool = False
) -> Attention:
    """Draw any attention whose sizes fit: a gate and raw features need heads x head_dim = d."""
    over: dict[str, Any] = {"projected": axes[1], "keys": axes[2], "cross": cross}
    if rng.random() < 0.3:
        heads = rng.choice([n for n in range(1, d + 1) if d % n == 0])
        sizes = {"heads": heads, "head_dim": d // heads, "score_heads": heads}
        made = rng.choice([site(rng), IDENTITY])
        return Attention(d, axes[0], decoder, made, **sizes, **over, gate=rng.choice(GATES))
    score_heads, expand = rng.randint(1, 3), rng.random() < 0.4
    heads, head_dim = (rng.randint(1, 7) if expand else score_heads * rng.randint(1, 3)), size(rng)
    shared = rng.random() < 0.3 and (expand or heads == score_heads)
    kv_heads = rng.choice([n for n in range(1, 8) if heads % n == score_heads % n == 0]) if shared else 0
    encoder = axes[0] == axes[2]
    adapt = rng.choice(["none", "lora", "prompt"]) if encoder else "none"
    return Attention(
        d, axes[0], decoder, site(rng), heads=heads, head_dim=head_dim, score_heads=score_heads, **over,
        expand=expand,
        kv_heads=kv_heads,
        clip=rng.choice([0, 3]) if encoder else 0,
        partial=partial_block(rng, d, heads, head_dim, axes[0]) if rng.random() < 0.5 else None,
        adapters=tuple(rng.sample(ADAPTED, 2)) if adapt == "lora" else (),
        rank=size(rng),
        prompt=rng.randint(1, 4) if adapt == "prompt" else 0,
    )


@specimen("attention")
def attention(rng: Random) -> Specimen:
    """Draw a cross-attention."""
    block = attention_block(rng, size(rng), (TGT, MEMORY, SRC_KEYS), cross=True)
    return Specimen(block, ((TGT, block.d), None, None, None, None, (SRC, block.d)))


def partial_block(rng: Random, d: int, heads: int, head_dim: int, axis: Axis) -> PartialFFN:
    """Draw feed-forward networks inside heads."""
    kind = rng.choice([kind for kind in FFNS.values() if "hidden" in options(kind)])
    inner = fitting(rng, kind, head_dim, (axis, heads), rng.choice([DENSE, PER_HEAD]))
    return PartialFFN(d, heads, head_dim, axis, inner, rng.choice(HEAD_GATES), rng.random() < 0.5)


@specimen("partial_ffn")
def partial_ffn(rng: Random) -> Specimen:
    """Draw feed-forward networks inside heads, with the query stream that gates them."""
    d, heads, dim = size(rng), size(rng), size(rng)
    return Specimen(partial_block(rng, d, heads, dim, SRC), ((SRC, heads * dim), (SRC, d)))


def ffn_block(rng: Random, kind: str, d: int, axis: str) -> Block:
    """Draw a feed-forward network of one kind."""
    return fitting(rng, FFNS[kind], d, (axis,), site(rng))


def feed_forward(rng: Random, kind: str) -> Specimen:
    """Draw a feed-forward network of one kind over source positions."""
    d = size(rng)
    return Specimen(ffn_block(rng, kind, d, SRC), sources(d))


def mixing(rng: Random, name: str) -> Specimen:
    """Draw a mixer of one kind, of an encoder or of a decoder."""
    d, decoder = size(rng), rng.random() < 0.5
    axis = TGT if decoder else SRC
    return Specimen(fitting(rng, MIXERS[name], d, axis, decoder, site(rng)), ((axis, d), None, None))
