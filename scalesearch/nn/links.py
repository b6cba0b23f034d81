"""Which axes of two blocks of one kind correspond: for each part the features that it reads and those that it writes.

``links(child, parent, link, weight)`` names the parts of two composites that have a counterpart in each other, each
with its :class:`Link`; a part that is not named starts afresh. ``weight(path)`` is a weight of the parent's block.
A kind that is not told of here is inherited where it is the same block, and starts afresh elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import torch

from scalesearch.blocks.adapt import Adapter
from scalesearch.blocks.attention import Attention
from scalesearch.blocks.core import Block
from scalesearch.blocks.embed import AdaptiveOutput, AdaptiveTable, FactorisedTable, TokenEmbedding
from scalesearch.blocks.embed.adaptive import Bands
from scalesearch.blocks.embed.factorised import FactorisedOutput
from scalesearch.blocks.ffn.dense import TwoLayer
from scalesearch.blocks.ffn.gated import Gated
from scalesearch.blocks.layers import DecoderLayer, EncoderLayer
from scalesearch.blocks.partial import PartialFFN
from scalesearch.blocks.scores import GlobalScores, Scores
from scalesearch.blocks.seq2seq import DecoderOnly, Embeddings, EncoderDecoder
from scalesearch.blocks.sites import DENSE, IDENTITY, Factors
from scalesearch.blocks.stacks import Stack, WaistedStack
from scalesearch.nn.places import ZERO, Link, Places, centred, first, nested, spread, strongest, twice

Weight = Callable[[str], Any]
Links = dict[str, Link]


@singledispatch
def links(child: Block, parent: Any, link: Link, weight: Weight) -> Links | None:
    """Part to link; None where nothing is known of such blocks."""
    return None


def root_link(child: Block, parent: Block, vocab: int) -> Link:
    """Of two whole models: the tokens, and the width of the vectors between the layers."""
    tokens, widths = first(vocab, vocab), (_table(parent).d, _table(child).d)
    kinds = {_table(block).positions for block in (parent, child) if isinstance(_table(block), TokenEmbedding)}
    return Link(tokens, spread(*widths) if kinds == {"sinusoidal"} else first(*widths))


def _table(model: Any) -> Any:
    return model.embedding.source if isinstance(model, EncoderDecoder) else model.embedding


# -- whole models: a link from the tokens to the width


@links.register(EncoderDecoder)
@links.register(DecoderOnly)
def _model(child: Any, parent: Any, link: Link, weight: Weight) -> Links:
    width = link.writes
    through, out = Link(width, width), Link(width, link.reads)
    return {"embedding": link, "encoder": through, "decoder": through, "output": out}


@links.register
def _embeddings(child: Embeddings, parent: Embeddings, link: Link, weight: Weight) -> Links:
    return {"source": link, "target": link}


@links.register
def _token_embedding(child: TokenEmbedding, parent: TokenEmbedding, link: Link, weight: Weight) -> Links:
    """New features of the width start at zero, or a tied table would disturb all scores of tokens."""
    width = Places(link.writes.parent, tuple(at if at >= 0 else ZERO for at in link.writes.places))
    return {"table": link.to(width), "position": Link(first(parent.max_length, child.max_length), width)}


@links.register
def _factorised(child: FactorisedTable, parent: FactorisedTable, link: Link, weight: Weight) -> Links:
    rank = first(parent.rank, child.rank)
    return {"table": link.to(rank), "up": Link(rank, link.writes)}


@links.register
def _factorised_output(child: FactorisedOutput, parent: FactorisedOutput, link: Link, weight: Weight) -> Links:
    rank = first(parent.rank, child.rank)
    return {"down": link.to(rank), "table": Link(rank, link.writes)}


@links.register
def _adaptive(child: AdaptiveTable, parent: AdaptiveTable, link: Link, weight: Weight) -> Links:
    found: Links = {}
    for i, (rows, width) in enumerate(_bands(child, parent)):
        found |= {f"table{i}": Link(rows, width), f"up{i}": Link(width, link.writes)}
    return found


@links.register
def _adaptive_output(child: AdaptiveOutput, parent: AdaptiveOutput, link: Link, weight: Weight) -> Links:
    found: Links = {}
    for i, (rows, width) in enumerate(bands := _bands(child, parent)):
        found |= {f"down{i}": link.to(width), f"table{i}": Link(width, rows)}
    return found | ({"clusters": link.to(first(len(bands) - 1, len(bands) - 1))} if bands else {})


def _bands(child: Bands, parent: Bands) -> list[tuple[Places, Places]]:
    """Rows and features of each band; none where the bands lie elsewhere."""
    if (child.cutoffs, child.factor) != (parent.cutoffs, parent.factor):
        return []
    return [(first(end - start, end - start), first(its, mine))
            for (start, end, mine), (_, _, its) in zip(child.bands(), parent.bands())]


# -- stacks and layers: a link from the width to the width


@links.register
def _stack(child: Stack, parent: Stack, link: Link, weight: Weight) -> Links:
    one = first(1, 1)
    return {"layers": link, "scores": link, "gate": Link(twice(link.reads), one), "norm": link}


@links.register
def _waisted(child: WaistedStack, parent: WaistedStack, link: Link, weight: Weight) -> Links:
    inner = first(*(block.middle.layer.main.d for block in (parent, child)))  # type: ignore[attr-defined]
    return {"first": link, "enter": link.to(inner), "middle": Link(inner, inner), "leave": Link(inner, link.writes),
            "last": link, "norm": link}


@links.register(EncoderLayer)
@links.register(DecoderLayer)
def _layer(child: Any, parent: Any, link: Link, weight: Weight) -> Links:
    return dict.fromkeys(child.parts(), link)


@links.register(TwoLayer)
@links.register(Gated)
def _ffn(child: Any, parent: Any, link: Link, weight: Weight) -> Links | None:
    if type(child) is not type(parent):
        return None
    hidden = first(parent.hidden, child.hidden)
    if child.hidden < parent.hidden and parent.site == DENSE:
        down, ups = weight("down.weight"), [weight(f"{name}.weight") for name in parent.parts() if name != "down"]
        writes = torch.stack([up.float().norm(dim=1) for up in ups]).prod(0)
        hidden = strongest(writes * down.float().norm(dim=0), child.hidden)
    inward = Link(link.reads, hidden, link.heads)
    return {"gate": inward, "up": inward, "down": Link(hidden, link.writes, link.heads)}


@links.register
def _partial(child: PartialFFN, parent: PartialFFN, link: Link, weight: Weight) -> Links:
    """``link`` reads the width, writes all heads' features, and has the heads beside."""
    assert link.heads is not None
    dims = first(parent.head_dim, child.head_dim)
    return {"ffn": Link(dims, dims, link.heads), "gate": Link(link.reads, link.writes)}


# -- attention


@links.register
def _attention(child: Attention, parent: Attention, link: Link, weight: Weight) -> Links | None:
    """Scores are divided by √head_dim, so queries are scaled where that changes, and new features of them are zero."""
    raw = [block.gate != "none" or block.site == IDENTITY for block in (parent, child)]
    if any(raw) and _shape(parent) != _shape(child):
        return None  # raw features of the width are heads there
    sizes, scale = (parent.head_dim, child.head_dim), (child.head_dim / parent.head_dim) ** 0.5
    dims = first(*sizes)
    sets = first(parent.bias_heads, child.bias_heads)
    within = first(parent.heads // parent.bias_heads, child.heads // child.bias_heads)
    heads = nested(sets, within)
    values = nested(heads, dims)
    width, out = link.reads, {
        "query": nested(first(parent.score_heads, child.score_heads), first(*sizes, ZERO)),
        "key": nested(_served(parent, child, "score_heads"), dims),
        "value": nested(nested(_served(parent, child, "bias_heads"), within), dims),
    }
    found = {slot: Link(width, axis, None, scale if slot == "query" else 1.0) for slot, axis in out.items()}
    if any(raw):
        same = first(child.d, child.d)
        found = {slot: Link(same, first(size, size)) for slot, size in _raw(child).items()} if width.same else {}
    return {**found, "core": Link(dims, sets), "partial": Link(width, values, heads), "out": Link(values, link.writes),
            **{f"{slot}_adapter": one for slot, one in found.items()}, "out_adapter": Link(values, link.writes),
            "prompt": Link(first(parent.prompt, child.prompt), width)}


def _shape(block: Attention) -> tuple[Any, ...]:
    return block.d, block.heads, block.head_dim, block.score_heads, block.kv_heads, block.gate, block.cross


def _raw(block: Attention) -> dict[str, int]:
    """Slot to the features that its map writes, where gates decide what the slots are, or there is no matrix."""
    parts = block.parts()
    return {slot: getattr(parts[slot], "d_out", block.d) for slot in ("query", "key", "value")}


def _served(parent: Attention, child: Attention, by: str) -> Places:
    """Heads of keys or values, of which each serves some consecutive ones of the heads ``by``."""
    mine, its = getattr(child, by), getattr(parent, by)
    groups, before = child.kv_heads or mine, parent.kv_heads or its
    heads = first(its, mine).places
    return Places(before, tuple(at if at < 0 else at * before // its for at in heads[:: mine // groups]))


@links.register
def _scores(child: Scores, parent: Scores, link: Link, weight: Weight) -> Links:
    """``link`` reads the features of a head, and writes the sets of scores."""
    sets, distances = link.writes, centred(2 * parent.clip + 1, 2 * child.clip + 1)
    return {"relative": Link(distances, link.reads), "widen": Link(first(parent.heads, child.heads), sets),
            "deepen": Link(sets, sets)}


@links.register
def _global_scores(child: GlobalScores, parent: GlobalScores, link: Link, weight: Weight) -> Links:
    heads, sizes = first(parent.heads, child.heads), (parent.head_dim, child.head_dim)
    dims, scale = first(*sizes), (child.head_dim / parent.head_dim) ** 0.5
    return {"norm": Link(link.reads, link.reads), "key": Link(link.reads, nested(heads, dims)),
            "query": Link(link.reads, nested(heads, first(*sizes, ZERO)), None, scale),
            "relative": Link(centred(2 * parent.clip + 1, 2 * child.clip + 1), dims)}


@links.register(Adapter)
@links.register(Factors)
def _low_rank(child: Any, parent: Any, link: Link, weight: Weight) -> Links:
    rank = first(parent.rank, child.rank)
    return {"down": Link(link.reads, rank), "up": Link(rank, link.writes, None, link.scale)}
