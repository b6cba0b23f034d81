"""From answers to a network: the blocks that an answer sheet describes, and their identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scalesearch.blocks.attention import Attention
from scalesearch.blocks.core import (
    KEYS,
    MEMORY,
    SEQ,
    SEQ_KEYS,
    SRC,
    SRC_KEYS,
    TGT,
    Axis,
    Block,
    Repeat,
    Tie,
    Use,
    canonical,
    walk,
)
from scalesearch.blocks.embed import TokenEmbedding
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.layers import DecoderLayer, EncoderLayer, Stack
from scalesearch.blocks.seq2seq import DecoderOnly, Embeddings, EncoderDecoder
from scalesearch.blocks.share import SCHEDULES, Borrow, Explicit, Own, Schedule, schedule
from scalesearch.space.problems import Unbuildable
from scalesearch.space.schedules import Call, Reference, parse_schedule

# Where the language's slots are: stack and part of a layer.
SLOTS = {
    "encoder.attention": ("encoder", "attention"),
    "encoder.ffn": ("encoder", "ffn"),
    "decoder.self": ("decoder", "self_attention"),
    "decoder.cross": ("decoder", "cross_attention"),
    "decoder.ffn": ("decoder", "ffn"),
}
ENCODER_ONLY = ("encoder.", "share.encoder.", "share.decoder.cross")

Answered = Mapping[str, Any]


@dataclass(frozen=True)
class Architecture:
    """One network: its answers, its blocks, and an ``id`` that only the blocks decide."""

    answers: Mapping[str, Any]
    block: Block
    id: str

    def to_json(self) -> dict[str, Any]:
        """Id and answers."""
        return {"id": self.id, "answers": dict(self.answers)}

    def to_yaml(self, name: str | None = None) -> str:
        """An architecture file: a space with nothing left to choose."""
        from scalesearch.space.writer import answers_to_yaml

        text: str = answers_to_yaml(self.answers, name or self.id)
        return text


def assemble(answers: Answered) -> Architecture:
    """The network that ``answers`` (dotted path to JSON value) describe.

    Raises:
        Unbuildable: a schedule that does not fit its depth, heads that do not divide, parts that cannot be shared.
    """
    block: Block
    if answers["model"] == "decoder-only":
        kept = {path: value for path, value in answers.items() if not path.startswith(ENCODER_ONLY)}
        block = _decoder_only(kept)
    else:
        kept, block = dict(answers), _encoder_decoder(answers)
    digest = hashlib.sha256(json.dumps(canonical(block), sort_keys=True).encode()).hexdigest()
    return Architecture(kept, block, digest[:12])


def _encoder_decoder(a: Answered) -> EncoderDecoder:
    encoder_layer = EncoderLayer(
        _attention(a, "encoder", SRC, SRC, SRC, cached=False), _ffn(a, "encoder", SRC), a["norm"]
    )
    decoder_layer = DecoderLayer(
        _attention(a, "decoder", TGT, TGT, KEYS),
        _attention(a, "decoder", TGT, MEMORY, SRC_KEYS),
        _ffn(a, "decoder", TGT),
        a["norm"],
        bool(a["decoder.interleaved"]),
    )
    encoder = _repeat(a, "encoder", encoder_layer, None)
    decoder = _repeat(a, "decoder", decoder_layer, encoder)
    shared = "embedding.source.table" if a["embedding.tie"] == "all" else None
    embedding = Embeddings(_embedding(a, SRC), _embedding(a, TGT, shared))
    return EncoderDecoder(embedding, Stack(encoder), Stack(decoder), a["embedding.tie"])


def _decoder_only(a: Answered) -> DecoderOnly:
    layer = DecoderLayer(
        _attention(a, "decoder", SEQ, SEQ, SEQ_KEYS),
        None,
        _ffn(a, "decoder", SEQ),
        a["norm"],
        bool(a["decoder.interleaved"]),
    )
    return DecoderOnly(_embedding(a, SEQ), Stack(_repeat(a, "decoder", layer, None)), a["embedding.tie"])


def _repeat(a: Answered, stack: str, layer: Block, encoder: Repeat | None) -> Repeat:
    """The layers of a stack, with what they share among each other or borrow from the encoder."""
    plain = Repeat(layer, a[f"{stack}.depth"])
    return Repeat(layer, plain.depth, _ties(a, stack, plain, encoder))


def _embedding(a: Answered, axis: Axis, tied: str | None = None) -> TokenEmbedding:
    length = a["embedding.max_length"] if a["embedding.positions"] == "learned" else 0
    return TokenEmbedding(a["width"], (axis,), a["embedding.positions"], length, tied)


def _attention(a: Answered, stack: str, queries: Axis, projected: Axis, keys: Axis, cached: bool = True) -> Attention:
    heads, score_heads = a[f"{stack}.heads"], a[f"{stack}.score_heads"]
    if heads % score_heads:
        raise Unbuildable(f"{stack}.score_heads", f"{score_heads} score heads do not divide {heads} value heads")
    return Attention(a["width"], heads, a[f"{stack}.head_dim"], score_heads, queries, projected, keys, cached)


def _ffn(a: Answered, stack: str, axis: Axis) -> Block:
    prefix = f"{stack}.ffn."
    given = {path.removeprefix(prefix): value for path, value in a.items() if path.startswith(prefix)}
    return FFNS[a[f"{stack}.ffn"]](a["width"], (axis,), **given)  # type: ignore[call-arg]


def _ties(a: Answered, stack: str, own: Repeat, encoder: Repeat | None) -> tuple[Tie, ...]:
    """The sharing of one stack's parts; norms follow if they are to, biases stay own if they are to."""
    ties: list[Tie] = []
    present = own.layer.parts()
    for slot, (where, part) in SLOTS.items():
        text = a.get(f"share.{slot}", "own")
        if where != stack or part not in present:
            continue
        plan = _plan(f"share.{slot}", text, own, part, encoder)
        if isinstance(plan, Own):
            continue
        ties.append(Tie(part, plan, ("bias",) if a["share.biases"] == "own" else ()))
        if a["share.norms"] == "follow":
            norm = plan if isinstance(plan, Schedule) else Borrow(plan.path, f"{plan.part}_norm", plan.layers)
            ties.append(Tie(f"{part}_norm", norm))
    return tuple(ties)


_said = lru_cache(maxsize=4096)(parse_schedule)  # a search reads the same few texts again and again


def _plan(path: str, text: Any, own: Repeat, part: str, encoder: Repeat | None) -> Schedule | Borrow:
    """The schedule or the loan that ``text`` says, checked against the depth and the shapes."""
    said = _said(text) if isinstance(text, str) else tuple(text)
    if isinstance(said, Reference):
        return _borrow(path, said, own, part, encoder)
    if isinstance(said, Call) and said.name not in SCHEDULES:
        raise Unbuildable(path, f"{text}: no such schedule; there are {', '.join(SCHEDULES)}")
    plan = schedule(said.name, said.arguments) if isinstance(said, Call) else Explicit(said)
    reason = plan.misfit(own.depth)
    if reason:
        raise Unbuildable(path, f"{text} {reason}")
    return plan


def _borrow(path: str, loan: Reference, own: Repeat, part: str, encoder: Repeat | None) -> Borrow:
    """``encoder.attention[2*i + 1]``: layer i here uses that layer's weights there."""
    where, lender = SLOTS.get(loan.path, ("", ""))
    if encoder is None or where != "encoder":
        raise Unbuildable(path, f"{loan}: only the decoder can borrow, and only encoder.attention or encoder.ffn")
    layers = [loan.at(i) for i in range(own.depth)]
    wrong = [layer for layer in layers if layer is None or not 0 <= layer < encoder.depth]
    if wrong:
        raise Unbuildable(path, f"{loan} asks for encoder layer {wrong[0]}; there are 0 to {encoder.depth - 1}")
    if _shapes(own.layer, part) != _shapes(encoder.layer, lender):
        raise Unbuildable(path, f"{loan}: the two differ in shape (heads, head_dim or hidden), so they cannot be one")
    ties = {tie.part: tie.schedule for tie in encoder.ties}
    owners = ties[lender].owners(encoder.depth) if lender in ties else list(range(encoder.depth))
    return Borrow("encoder.layers", lender, tuple(owners[layer] for layer in layers if layer is not None))


def _shapes(layer: Block, part: str) -> dict[str, Any]:
    """Weight shapes beneath one part of a layer, by path."""
    use = layer.parts().get(part)
    block = use.block if isinstance(use, Use) else use
    return (
        {} if block is None else {line.path: dict(line.leaf.weights()) for line in walk(block) if line.leaf.weights()}
    )
