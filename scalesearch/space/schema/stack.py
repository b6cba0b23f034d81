"""The keys of a stack: its mixers and feed-forward networks as they are registered, and attention's own keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from scalesearch.blocks.core import Block, LinearFactory
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.layers import SECOND_FFN
from scalesearch.blocks.mixers import MIXERS
from scalesearch.blocks.mixers.attention_extras import HEAD_GATES
from scalesearch.blocks.mixers.dual_mixer import JOIN_MODES
from scalesearch.blocks.mixers.gates import GATES
from scalesearch.blocks.mixers.scores import RESIDUAL_SCORES
from scalesearch.blocks.multi_path import MERGE_METHODS, PATH_TARGETS
from scalesearch.blocks.options import Option, option_fields
from scalesearch.blocks.sublayers import SUBLAYERS
from scalesearch.space.schema.types import Beside, Field, Group

OFF = ("off",)
OF_WHOLE_STACK = ("depth", "middle_width", "relative_clip", "paths")  # which layers cannot differ in
MAX_DEPTH = 10_000  # each layer takes time and memory to list, even where all share their weights
# Keys of attention, written beside `mixer`; those of self-attention alone.
OF_SELF_ATTENTION = frozenset({"relative_positions", "relative_clip", "rotary", "residual_scores", "gate", "mask",
                               "lift", "parallel_heads"})
OF_ATTENTION = OF_SELF_ATTENTION | {
    "heads", "head_dim", "score_heads", "head_scaling", "key_value_heads", "projections", "projection_bias", "pg"}


def flag(default: str, doc: str) -> Field:
    """Yes or no."""
    return Field("flag", default=default, doc=doc)


def count(doc: str) -> Field:
    """A whole number, or off."""
    return Field("size", default="off", low=1, also=OFF, doc=doc)


def sublayers(*words: str) -> Field:
    """The order of sub-layers, of which any may come again."""
    return Field("list", (*words, SECOND_FFN, *SUBLAYERS), default=f"[{', '.join(words)}]", nested=True,
                 doc="sub-layers in their order, each with weights of its own; an inner list is in parallel")


def stack(name: str, depth: str, extra: Mapping[str, Field | Group]) -> Group:
    """The keys of encoder or decoder, with ``extra`` of its own."""
    ffn = Group({}, {kind: keys_of_kind(block) for kind, block in FFNS.items()}, default_variant="relu",
                doc="the feed-forward network of each layer")
    fields: dict[str, Field | Group] = {
        "depth": Field("size", default=depth, low=1, high=MAX_DEPTH, doc="layers"),
        "mixer": _mixers(),
        "local": _local(),
        "heads": Field("size", default="8", low=1, doc="value heads"),
        "head_dim": Field("size", default=f"= width // {name}.heads", low=1, doc="width of a head"),
        "score_heads": Field("size", default=f"= {name}.heads", low=1, doc="sets of attention scores"),
        "head_scaling": Field("word", ("none", "mlp"), default="none", doc="score heads expanded to value heads"),
        "key_value_heads": count("heads of keys and values, each serving several"),
        "relative_positions": flag("no", "relative keys in self-attention (Shaw et al. 2018)"),
        "relative_clip": Field("size", default="8", low=1, doc="distance from which positions look alike"),
        "rotary": flag("no", "queries and keys of self-attention turned by their places (Su et al. 2021)"),
        "mask": _mask(),
        "lift": Group({}, {"none": Group(doc="attention reads the layer's input"), "dextra": dextra("width")},
                      default_variant="none", doc="a unit before self-attention, which then reads fewer features"),
        "residual_scores": Field("word", RESIDUAL_SCORES, default="none", doc="A^G of a stack, or RealFormer's"),
        "gate": Field("word", GATES, default="none", doc="Anthe's gate between query, key and value"),
        "projections": Field("word", ("matrices", "identity"), default="matrices", doc="of query, key and value"),
        "projection_bias": flag("yes", "biases on the maps of query, key, value and output"),
        "parallel_heads": count("heads of self-attention where it stands in parallel, of as many features in all"),
        "step_embedding": flag("no", "a sinusoid of the layer's number before each layer (Universal Transformer)"),
        "middle_width": count("width of all layers but the first and last (Subformer)"),
        **extra,
        **{word: keys_of_kind(kind) for word, kind in SUBLAYERS.items() if option_fields(kind)},
        "paths": _paths(),
        "pg": _partial(name == "decoder"),
        "ffn": ffn,
        "ffn_norm": flag("no", "a norm of its hidden units (Evolved Transformer)"),
    }
    alone = OF_SELF_ATTENTION if name == "decoder" else OF_ATTENTION  # cross-attention has the others as well
    each = {key: child if key in OF_WHOLE_STACK else _by_layer(child, f"{name}.depth") for key, child in fields.items()}
    return Group(each, beside=Beside("mixer", "attention", OF_ATTENTION, alone), doc=f"the {name}'s layers")


def _by_layer(child: Field | Group, depth: str) -> Field | Group:
    """A key, or a group of keys, whose sizes may be given layer by layer."""
    if isinstance(child, Field):
        return replace(child, layers=depth) if child.kind in ("size", "number") else child
    inner = {name: _by_layer(one, depth) for name, one in child.fields.items()}
    kinds = {name: _by_layer(one, depth) for name, one in child.variants.items()}
    return replace(child, fields=inner, variants=kinds)  # type: ignore[arg-type]


def _mixers() -> Group:
    kinds = {name: keys_of_kind(kind) for name, kind in MIXERS.items()}
    return Group({}, kinds, default_variant="attention", doc="how positions of a sequence meet")


def dextra(of: str) -> Group:
    """The keys of DeLighT's unit; ``of``: the features that the multiplier multiplies."""
    return Group({
        "depth": Field("size", default="4", low=1, high=64, doc="grouped maps"),
        "multiplier": Field("number", default="2", low=1, high=64, doc=f"widest of them, in multiples of {of}"),
        "groups": Field("size", default="16", low=1, doc="of the map in the middle, at most; a power of two"),
    }, doc="grouped maps that grow and shrink again (DeLighT, Mehta et al. 2021)")


def _mask() -> Group:
    clip = Field("size", default="16", low=1, doc="distance from which positions look alike")
    kinds = {"none": Group(doc="of padding and later positions alone"),
             "dynamic": Group({"clip": clip}, doc="of content, distance and head, in a layer's first self-attention")}
    return Group({}, kinds, default_variant="none", doc="a learned mask added to scores (DMAN, Fan et al. 2021)")


def cross() -> Group:
    """The kinds of attention across sequences."""
    gated = {"head_dim": Field("size", default="= max(1, width // 4)", low=1, doc="features of queries and keys"),
             "clip": Field("size", default="1024", low=1, doc="distance from which positions look alike")}
    kinds = {"attention": Group(doc="with the decoder's heads"), "gated": Group(gated, doc="one head, gated (Mega)")}
    return Group({}, kinds, default_variant="attention", doc="how targets meet sources")


def _local() -> Group:
    """The mixers that can stand beside another: all that have no scores, which that one may have."""
    fields: dict[str, Field | Group] = {
        "join": Field("word", JOIN_MODES, default="split", doc="channels of its own, added up, or the mixer reads it"),
        "channels": Field("size", default="= width // 2", low=0, doc="of a split: how many; the mixer has the others"),
    }
    kinds = {kind: Group(_with(fields, block, f"mixer {kind}"), called=(*_keys(block), *fields), doc=_first_line(block))
             for kind, block in MIXERS.items() if not block.has_scores}
    none = Group(doc="the mixer alone")
    return Group({}, {"none": none, **kinds}, default_variant="none", doc="a second way to meet, beside the mixer")


def _paths() -> Group:
    fields: dict[str, Field | Group] = {
        "of": Field("word", PATH_TARGETS, default="sublayer", doc="what there are several of: attention is any mixer"),
        "count": Field("size", default="1", low=1, doc="paths, each with weights of its own"),
        "merge": Field("word", MERGE_METHODS, default="mean", doc="how they meet; gated: by weights of each position"),
        "norm": flag("no", "a norm at the end of each path"),
    }
    return Group(fields, clears=True, doc="several paths in the place of one (MAT, MUTE, Multi-Path)")


def _partial(decoder: bool) -> Group:
    """The feed-forward networks inside heads, by their kind."""
    fields: dict[str, Field | Group] = {
        "ratio": Field("size", default="2" if decoder else "4", low=1, doc="hidden units, in multiples of head_dim"),
        "gate": Field("word", HEAD_GATES, default="relu", doc="what the head-specific gate goes through"),
        "residual": flag("yes", "add what the network was given (as released, not in equation 5)"),
        "per_head": flag("no", "a network for each head, not one for all"),
    }
    if decoder:
        fields["on"] = Field("word", ("both", "self", "cross"), default="both", doc="in which attention")
    kinds = {}
    for kind, block in FFNS.items():
        if "hidden" in option_fields(block):  # or nothing that ratio could set
            more = _with(fields, block, f"ffn {kind}", "on")
            del more["hidden"]
            kinds[kind] = Group(more, doc=_first_line(block))
    off = Group(doc="no network inside heads")
    return Group({}, {"none": off, **kinds}, default_variant="none", doc="PartialFormer's FFNs inside heads")


def keys_of_kind(block: type[Block] | type[LinearFactory]) -> Group:
    """The options of a block or a site as keys."""
    return Group(_keys(block), doc=_first_line(block))


def _keys(block: type[Block] | type[LinearFactory]) -> dict[str, Field | Group]:
    return {name: _key(meta) for name, meta in option_fields(block).items()}


def _with(fields: Mapping[str, Field | Group], block: type[Block], what: str, *others: str) -> dict[str, Field | Group]:
    """``fields`` and a block's options. Raises ValueError where one is both, or one of the ``others``."""
    more = _keys(block)
    if taken := sorted({*fields, *others} & set(more)):
        raise ValueError(f"{what}: there is a key {taken[0]} beside it; give that option another name")
    return {**fields, **more}


def _key(meta: Option) -> Field:
    """An option as a key."""
    if meta.type == "word":
        return Field("word", meta.choices, default=meta.default, doc=meta.doc)
    return Field(meta.type, default=meta.default, low=meta.minimum, high=meta.maximum, among=meta.choices, doc=meta.doc)


def _first_line(block: type[Block] | type[LinearFactory]) -> str:
    return (block.__doc__ or "").split("\n")[0]
