"""The keys of an architecture: what a space file may say, read off the catalogue wherever the catalogue knows."""

from __future__ import annotations

from collections.abc import Mapping

from scalesearch.blocks.core import Block, options
from scalesearch.blocks.embed import POSITIONS
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.layers import NORMS
from scalesearch.blocks.seq2seq import TYINGS
from scalesearch.blocks.share import SCHEDULES, schedule
from scalesearch.space.schema_types import CallSpec, Field, Group

MODELS = ("encoder-decoder", "decoder-only")


def _fits(name: str, arguments: tuple[int, ...], depth: int) -> str | None:
    return schedule(name, arguments).misfit(depth)


def _calls() -> dict[str, CallSpec]:
    """Every schedule as a call of the language."""

    def spec(name: str) -> CallSpec:
        low, high = SCHEDULES[name].arguments
        return CallSpec(low, high, lambda arguments, depth: _fits(name, arguments, depth))

    return {name: spec(name) for name in SCHEDULES}


def _shared(depth: str, what: str) -> Field:
    return Field("schedule", default="own", calls=_calls(), fits=depth, doc=f"which layers share their {what}")


def _kind(block: type[Block]) -> Group:
    """A block's options as keys."""
    fields: dict[str, Field | Group] = {
        name: Field("size", default=meta["default"], low=meta["low"], words=meta["words"], doc=meta["doc"])
        for name, meta in options(block).items()
    }
    return Group(fields, doc=(block.__doc__ or "").split("\n")[0])


def _stack(name: str, depth: str, extra: Mapping[str, Field | Group]) -> Group:
    ffn = Group({}, {kind: _kind(block) for kind, block in FFNS.items()}, default_variant="relu")
    fields: dict[str, Field | Group] = {
        "depth": Field("size", default=depth, low=1, doc="layers"),
        "heads": Field("size", default="8", low=1, doc="value heads"),
        "head_dim": Field("size", default=f"= width // {name}.heads", low=1, doc="width of a head"),
        "score_heads": Field("size", default=f"= {name}.heads", low=1, doc="sets of attention scores"),
        **extra,
        "ffn": ffn,
    }
    return Group(fields, doc=f"the {name}'s layers")


def _share() -> Group:
    encoder = {
        "attention": _shared("encoder.depth", "self-attention"),
        "ffn": _shared("encoder.depth", "feed-forward"),
    }
    decoder = {
        "self": _shared("decoder.depth", "self-attention"),
        "cross": _shared("decoder.depth", "cross-attention"),
        "ffn": _shared("decoder.depth", "feed-forward"),
    }
    fields: dict[str, Field | Group] = {
        "encoder": Group(encoder),
        "decoder": Group(decoder),
        "norms": Field("word", ("own", "follow"), default="own", doc="norms of layers that share the rest"),
        "biases": Field("word", ("follow", "own"), default="follow", doc="biases of matrices that are shared"),
    }
    return Group(fields, doc="parameter sharing: which layers use the same weights")


def _embedding() -> Group:
    fields: dict[str, Field | Group] = {
        "tie": Field("word", TYINGS, default="all", doc="which of source table, target table, output are one"),
        "positions": Field("word", POSITIONS, default="sinusoidal"),
        "max_length": Field("size", default="1024", low=1, doc="positions that are learned, if they are"),
    }
    return Group(fields)


SCHEMA = Group(
    {
        "model": Field("word", MODELS, default="encoder-decoder"),
        "width": Field("size", low=1, doc="d_model: features of a position between layers"),
        "norm": Field("word", NORMS, default="pre", doc="normalise before each sub-layer, or after"),
        "embedding": _embedding(),
        "encoder": _stack("encoder", "6", {}),
        "decoder": _stack(
            "decoder",
            "6",
            {"interleaved": Field("flag", default="no", doc="feed-forward after each of the two attentions")},
        ),
        "share": _share(),
    }
)
