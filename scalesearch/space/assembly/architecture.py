"""From answers to a network: the blocks that an answer sheet describes, and their identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from scalesearch.blocks.core import (
    CROSS_MEMORY,
    SEQ,
    SEQ_KEYS,
    SRC,
    SRC_KEYS,
    TGT,
    TGT_KEYS,
    Axis,
    Block,
    Repeat,
    Use,
    canonical_config,
)
from scalesearch.blocks.ffn.networks import NoFFN
from scalesearch.blocks.layers import SECOND_FFN, DecoderLayer, EncoderLayer, Layer, SublayerOrder
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.mixers import Mixer
from scalesearch.blocks.mixers.projected_cross_attention import ProjectedCrossAttention
from scalesearch.blocks.mixers.scores import GlobalScores
from scalesearch.blocks.multi_path import MultiPathConfig
from scalesearch.blocks.seq2seq import DecoderOnly, Embeddings, EncoderDecoder, ModelSection
from scalesearch.blocks.sizes import decide, require_single_value
from scalesearch.blocks.stacks import BottleneckStack, Stack
from scalesearch.blocks.sublayers import SUBLAYERS
from scalesearch.space.assembly.bottleneck import build_bottleneck_stack
from scalesearch.space.assembly.components import (
    Config,
    build_cross_attention,
    build_ffn,
    build_mixer,
    build_parallel_mixer,
    build_sublayer,
    optional_value,
)
from scalesearch.space.assembly.embeddings import build_embedding, build_output
from scalesearch.space.assembly.layer_config import LayerFactory, build_layers
from scalesearch.space.assembly.weight_sharing import build_ties
from scalesearch.space.syntax.diagnostics import UnbuildableError

ENCODER_ONLY_PREFIXES = ("encoder.", "share.encoder.", "share.decoder.cross", "adapt",
                         "decoder.cross")


@dataclass(frozen=True)
class ModelSpec:
    """One network: its answers, its blocks, an ``id`` that only the blocks decide, and the protocol of its costs."""

    config: Mapping[str, Any]
    block: Block
    id: str
    # as a space's; empty where none is known
    protocol: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def vocab(self) -> int | None:
        """Entries of its own vocabulary; None where protocols and corpora say how many there are."""
        return self.config.get("vocab")

    def to_json(self) -> dict[str, Any]:
        """Id and answers."""
        return {"id": self.id, "config": dict(self.config)}

    def to_yaml(self, name: str | None = None) -> str:
        """An architecture file: a space with nothing left to choose."""
        from scalesearch.space.schema.yaml_writer import config_to_yaml

        text: str = config_to_yaml(self.config, name or self.id, protocol=self.protocol)
        return text


def assemble(config: Config) -> ModelSpec:
    """The network that ``config`` (dotted path to JSON value) describe; of keys that are missing, the plain choice.

    Raises:
        Unbuildable: a schedule that does not fit its depth, heads that do not divide, parts that
            cannot be shared,
            a gate or a chain where sizes do not allow it.
    """
    kept, block = build_blocks(config)
    digest = hashlib.sha256(json.dumps(canonical_config(block),
                                       sort_keys=True).encode()).hexdigest()
    return ModelSpec(kept, block, digest[:12])


def build_blocks(config: Config) -> tuple[Config, Block]:
    """The answers that count, and the blocks; sizes may be arrays (see :mod:`scalesearch.blocks.sizes`).

    Raises:
        Unbuildable: see :func:`assemble`. Split: candidates of a population differ in what decides
            about blocks.
    """
    if config["model"] == "decoder-only":
        kept = {path: value
                for path, value in config.items() if not path.startswith(ENCODER_ONLY_PREFIXES)}
        return kept, _decoder_only(kept)
    return dict(config), _encoder_decoder(config)


LayerT = TypeVar("LayerT", bound=Layer)
SECTION_NAMES = ("embedding", "encoder", "decoder", "output")


def build_section(config: Config, name: str) -> ModelSection:
    """One of ``SECTIONS`` alone: its costs, with those of the others, add up to the network's."""
    only = config["model"] == "decoder-only"
    made: Block | Use | None
    if name == "embedding":
        made = build_embedding(config, SEQ) if only else Embeddings(
            build_embedding(config, SRC), build_embedding(config, TGT, _shared_table(config)))
    elif name == "output":
        made = build_output(config,
                            "embedding.table" if only
                            else _shared_table(config) or "embedding.target.table")
    elif name == "encoder":
        made = None if only else _encoder(config)
    else:
        made = _decoder(config, None) if only else _decoder(config, _tied_encoder_layers(config))
    return ModelSection(name, made)


def _tied_encoder_layers(a: Config) -> Repeat | None:
    """The encoder's layers as far as the decoder may borrow from them: without what no loan is taken from."""
    loans = " ".join(str(a.get(f"share.decoder.{slot}", "own"))
                     for slot in ("self", "cross", "ffn"))
    if "encoder." not in loans:
        return None
    if optional_value(a, "encoder.middle_width") is not None:
        return None
    if "encoder.ffn" in loans:
        return _build_stack(a, "encoder", _encoder_layer, None).layers

    def layer(one: Config) -> EncoderLayer:
        bare = NoFFN(one["width"], (SRC,), DENSE)
        made = EncoderLayer(build_mixer(one, "encoder", (SRC, SRC, SRC)), bare, one["norm"],
                            norm_kind=_norm_type(one))
        return _with_sublayer_order(one, "encoder", made)

    plain = build_layers(a, "encoder", layer)
    return replace(plain, ties=build_ties(a, "encoder", plain, None))


def _shared_table(a: Config) -> str | None:
    return "embedding.source.table" if a["embedding.tie"] == "all" else None


def _encoder_decoder(a: Config) -> EncoderDecoder:
    encoder = _encoder(a)
    shared = _shared_table(a)
    decoder = _decoder(a, encoder.layers if isinstance(encoder, Stack) else None)
    tables = Embeddings(build_embedding(a, SRC), build_embedding(a, TGT, shared))
    return EncoderDecoder(tables, encoder, decoder,
                          build_output(a, shared or "embedding.target.table"))


def _decoder_only(a: Config) -> DecoderOnly:
    return DecoderOnly(build_embedding(a, SEQ), _decoder(a, None),
                       build_output(a, "embedding.table"))


def _decoder(a: Config, lender: Repeat | None) -> Stack | BottleneckStack:
    if optional_value(a, "decoder.middle_width") is None:
        return _build_stack(a, "decoder", _decoder_layer, lender)
    return build_bottleneck_stack(a, "decoder", _decoder_layer)


def _decoder_layer(a: Config, outer: Config | None = None) -> DecoderLayer:
    """``outer``: answers of the layers that the memory is as wide as, if this one is in a waist."""
    only = a["model"] == "decoder-only"
    own = build_mixer(a, "decoder", (SEQ, SEQ, SEQ_KEYS) if only else (TGT, TGT, TGT_KEYS))
    across = None if only else build_cross_attention(
        a if outer is None else outer, (TGT, CROSS_MEMORY, SRC_KEYS))
    if outer is not None and across is not None:
        across = ProjectedCrossAttention(a["width"], TGT, True, DENSE, main=across,
                                         norm_kind=_norm_type(a))
    network = build_ffn(a, "decoder", SEQ if only else TGT)
    # without a network nothing is interleaved
    woven = bool(a["decoder.interleaved"]) and not network.is_absent
    layer = DecoderLayer(own, network, a["norm"], cross_attention=across, interleaved=woven,
                         norm_kind=_norm_type(a))
    return _with_sublayer_order(a, "decoder", layer)


def _encoder(a: Config) -> Stack | BottleneckStack:
    if optional_value(a, "encoder.middle_width") is None:
        return _build_stack(a, "encoder", _encoder_layer, None)
    return build_bottleneck_stack(a, "encoder", _encoder_layer)


def _encoder_layer(a: Config, outer: Config | None = None) -> EncoderLayer:
    both = build_mixer(a, "encoder", (SRC, SRC, SRC)), build_ffn(a, "encoder", SRC)
    return _with_sublayer_order(a, "encoder",
                                EncoderLayer(*both, a["norm"], norm_kind=_norm_type(a)))


def _with_sublayer_order(a: Config, stack: str, layer: LayerT) -> LayerT:
    """``layer`` with its sub-layers as the answers order them; one order has one identity, however it is said."""
    where = f"{stack}.sublayers"
    said = tuple((step,) if isinstance(step, str) else tuple(step)
                 for step in a.get(where, layer.default_order))
    flat = [word for step in said for word in step]
    axis = layer.mixer.queries
    more = tuple((word, build_sublayer(a, stack, word, axis))
                 for word in sorted(SUBLAYERS) if word in flat)
    layer = replace(layer, extra_sublayers=more)
    order = _present_sublayers(layer, said)
    if missing := [word for word in layer.sublayers if word not in flat]:
        raise UnbuildableError(where, f"{missing[0]} is not in the list, and the layers have it")
    if SECOND_FFN in flat and "ffn" not in flat[: flat.index(SECOND_FFN)]:
        raise UnbuildableError(
            where, f"{SECOND_FFN} is the feed-forward network before it, and there is " "none")
    layer = replace(layer, multi_path=_multi_path_config(a, f"{stack}.paths", layer))
    if any(len(step) > 1 and next(iter(layer.sublayers)) in step for step in order):
        layer = replace(
            layer, parallel_mixer=build_parallel_mixer(a, stack, _axes(layer.mixer), layer.mixer))
    if order == _present_sublayers(layer, layer.default_order):
        return layer
    if isinstance(layer, DecoderLayer):
        if layer.interleaved:
            raise UnbuildableError("decoder.interleaved",
                                   f"is short for {where} of its own: say one of the two")
        if order == _present_sublayers(layer, layer.interleaved_order):
            return replace(layer, interleaved=True)
    return replace(layer, sublayer_order=order)


def _axes(main: Mixer) -> tuple[Axis, Axis, Axis]:
    """The axes of a layer's mixer, as :func:`build_mixer` takes them."""
    return main.queries, main.queries, {SEQ: SEQ_KEYS, TGT: TGT_KEYS}.get(main.queries, SRC)


def _multi_path_config(a: Config, where: str, layer: Layer) -> MultiPathConfig | None:
    if (count := require_single_value(a.get(f"{where}.count", 1))) == 1:
        return None
    made = MultiPathConfig(a[f"{where}.of"], count, a[f"{where}.merge"], bool(a[f"{where}.norm"]))
    return made.without_ffn() if layer.ffn.is_absent and not (
        layer.extra_sublayers and made.target == "sublayer") else made


def _present_sublayers(layer: Layer, order: SublayerOrder) -> SublayerOrder:
    """``order`` without words of what the layer has not, parallel ones in the order of its blocks."""
    at = {word: number for number, word in enumerate(layer.sublayers)}
    at |= {SECOND_FFN: at["ffn"]} if "ffn" in at else {}
    steps = (tuple(sorted((word for word in step if word in at), key=at.__getitem__))
             for step in order)
    return tuple(step for step in steps if step)


def _norm_type(a: Config) -> str:
    return str(a.get("norm_kind", "layer"))


def _build_stack(a: Config, stack: str, make: LayerFactory, lender: Repeat | None) -> Stack:
    """The layers of a stack, with what they share among each other or borrow from the encoder."""
    plain = build_layers(a, stack, make)
    tied = replace(plain, ties=build_ties(a, stack, plain, lender))
    solver = a.get(f"{stack}.solver", "euler") if stack == "encoder" else "euler"
    steps = bool(a.get(f"{stack}.step_embedding", False))
    return Stack(tied, _global_scores(a, stack, plain), steps, solver,
                 bool(a.get("last_norm", True)))


def _global_scores(a: Config, stack: str, layers: Repeat) -> GlobalScores | None:
    """PartialFormer's A^G, as wide as the scores that it is added to."""
    kind = a.get(f"{stack}.residual_scores", "none")
    where = f"{stack}.residual_scores"
    if kind == "none":
        return None
    layer: Any = layers.layer
    distinct_layers: Any = layers.distinct_layers
    shapes = [layer.mixer.score_shape for layer in distinct_layers]
    n_heads = [shape and shape.heads for shape in shapes]
    if any(decide(n != n_heads[0]) for n in n_heads):
        raise UnbuildableError(where,
                               f"{kind} scores are of one number of heads, and layers differ in it")
    if kind == "previous":
        return None
    mixer = layer.mixer
    shape = mixer.score_shape
    if shape is None:
        raise UnbuildableError(where, f"{kind} scores need layers that have scores")
    clip = a[f"{stack}.relative_clip"] if kind == "relative" else 0
    return GlobalScores(mixer.d, shape.heads, shape.head_dim, mixer.queries, shape.keys, clip,
                        mixer.decoder, norm_kind=layer.norm_kind)
