"""From answers to a network: the blocks that an answer sheet describes, and their identity."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
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
from scalesearch.errors import UserError

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


class Unbuildable(UserError):
    """Answers that no network fits: ``path`` says which, ``reason`` why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


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


def _plan(path: str, text: Any, own: Repeat, part: str, encoder: Repeat | None) -> Schedule | Borrow:
    """The schedule or the loan that ``text`` says, checked against the depth and the shapes."""
    if isinstance(text, str) and "[" in text.lstrip()[1:]:
        return _borrow(path, text, own, part, encoder)
    plan = parse_schedule(text)
    reason = plan.misfit(own.depth)
    if reason:
        raise Unbuildable(path, f"{text} {reason}")
    return plan


def parse_schedule(text: Any) -> Schedule:
    """``cycle(4)``, ``own``, ``runs(1, 11)`` or a list of groups, as they stand in an answer sheet."""
    if isinstance(text, list | tuple):
        return Explicit(tuple(int(group) for group in text))
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(([\d\s,]*)\))?\s*", text)
    if match and match[1] in SCHEDULES:
        return schedule(match[1], tuple(int(number) for number in (match[2] or "").split(",") if number.strip()))
    numbers = text.strip().strip("[]").replace(" ", "").split(",")
    if all(number.isdigit() for number in numbers):
        return Explicit(tuple(int(number) for number in numbers))
    raise Unbuildable(str(text), f"no such schedule; there are {', '.join(SCHEDULES)}")


def _borrow(path: str, text: str, own: Repeat, part: str, encoder: Repeat | None) -> Borrow:
    """``encoder.attention[2*i + 1]``: layer i here uses that layer's weights there."""
    slot, _, index = text.strip().rstrip("]").partition("[")
    where, lender = SLOTS.get(slot.strip(), ("", ""))
    if encoder is None or where != "encoder":
        raise Unbuildable(path, f"{text}: only the decoder can borrow, and only encoder.attention or encoder.ffn")
    layers = [_index(path, index, i) for i in range(own.depth)]
    wrong = next((layer for layer in layers if not 0 <= layer < encoder.depth), None)
    if wrong is not None:
        raise Unbuildable(path, f"{text} asks for encoder layer {wrong}; there are 0 to {encoder.depth - 1}")
    if _shapes(own.layer, part) != _shapes(encoder.layer, lender):
        raise Unbuildable(path, f"{text}: the two differ in shape (heads, head_dim or hidden), so they cannot be one")
    ties = {tie.part: tie.schedule for tie in encoder.ties}
    owners = ties[lender].owners(encoder.depth) if lender in ties else list(range(encoder.depth))
    return Borrow("encoder.layers", lender, tuple(owners[layer] for layer in layers))


def _index(path: str, text: str, i: int) -> int:
    """A linear index such as ``2*i + 1`` at layer ``i``."""
    match = re.fullmatch(r"(?:(\d+)\*)?i(?:([+-])(\d+))?|(\d+)", text.replace(" ", ""))
    if match is None:
        raise Unbuildable(path, f"[{text}] is no layer index; write one like [i], [2*i], [2*i + 1] or [3]")
    factor, sign, offset, constant = match.groups()
    if constant:
        return int(constant)
    return int(factor or 1) * i + int(f"{sign or '+'}{offset or 0}")


def _shapes(layer: Block, part: str) -> dict[str, Any]:
    """Weight shapes beneath one part of a layer, by path."""
    use = layer.parts().get(part)
    block = use.block if isinstance(use, Use) else use
    return (
        {} if block is None else {line.path: dict(line.leaf.weights()) for line in walk(block) if line.leaf.weights()}
    )
