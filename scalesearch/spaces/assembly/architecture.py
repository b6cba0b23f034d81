"""From a configuration to a network: its blocks and their identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from scalesearch.blocks.core import (
    CROSS_MEMORY,
    KEY_AXES,
    SEQ,
    SEQ_KEYS,
    SRC,
    SRC_KEYS,
    TEXT,
    TGT,
    TGT_KEYS,
    Block,
    Repeat,
    Use,
    canonical_config,
)
from scalesearch.blocks.ffn import FFN, NoFFN
from scalesearch.blocks.layers import (
    INPUT_NORMS,
    SECOND_FFN,
    DecoderLayer,
    EncoderLayer,
    Layer,
    SublayerOrder,
)
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.mixers.composites import ProjectedCrossAttention
from scalesearch.blocks.mixers.scores import GlobalScores, RelativeBuckets
from scalesearch.blocks.multi_path import MultiPathConfig
from scalesearch.blocks.seq2seq import (
    DecoderOnly,
    Embeddings,
    EncoderDecoder,
    EncoderOnly,
    ModelSection,
    read_state_nests,
)
from scalesearch.blocks.sizes import decide, require_single_value
from scalesearch.blocks.stacks import BottleneckStack, Stack
from scalesearch.blocks.sublayers import SUBLAYERS
from scalesearch.spaces.assembly.components import (
    Config,
    build_cross_attention,
    build_ffn,
    build_mixer,
    build_parallel_mixer,
    build_sublayer,
    optional_value,
    validated,
    with_changes,
)
from scalesearch.spaces.assembly.embeddings import build_embedding, build_output
from scalesearch.spaces.assembly.weight_sharing import build_ties
from scalesearch.spaces.parameters.param_values import parse_config, plain_config
from scalesearch.spaces.syntax.diagnostics import UnbuildableError
from scalesearch.spaces.syntax.domains import OWN_WEIGHTS, LayerReference, Schedule, ScheduleCall
from scalesearch.terminal import format_count

LayerFactory = Callable[[Mapping[str, Any]], Block]


class LayerConfig(Mapping[str, Any]):
    """The configuration of one layer of a stack.

    Lists of sizes are replaced by the size of this layer.

    Attributes:
        per_layer_values: the lists that were read, by key.
    """

    def __init__(self, config: Mapping[str, Any], stack: str, layer_index: int) -> None:
        self.config = config
        self.prefix = f"{stack}."
        self.layer_index = layer_index
        self.per_layer_values: dict[str, list[Any]] = {}

    def __getitem__(self, key: str) -> Any:
        value = self.config[key]
        if key == f"{self.prefix}window":
            value = self._windows(value)
        if not (isinstance(value, list) and key.startswith(self.prefix)) or isinstance(
                value[0], str | list):
            return value  # the same for all layers, such as the order of sub-layers
        self.per_layer_values[key] = value
        depth = require_single_value(self.config[f"{self.prefix}depth"])
        if depth != len(value):
            listed = format_count(len(value), "layer")
            raise UnbuildableError(key, f"lists {listed}, and {self.prefix}depth is {depth}")
        return value[self.layer_index]

    def _windows(self, value: Any) -> Any:
        """The window of each layer; every layer of a period's end attends to all positions."""
        period = require_single_value(self.config.get(f"{self.prefix}global_every", 0))
        if not period:
            return value
        depth = require_single_value(self.config[f"{self.prefix}depth"])
        windows = value if isinstance(value, list) else [value] * depth
        return [0 if layer % period == 0 else window for layer, window in enumerate(windows, 1)]

    def __contains__(self, key: object) -> bool:
        return key in self.config

    def __iter__(self) -> Iterator[str]:
        return iter(self.config)

    def __len__(self) -> int:
        return len(self.config)


def build_layers(a: Mapping[str, Any], stack: str, build_layer: LayerFactory) -> Repeat:
    """The layers of a stack without ties.

    There is one block for all layers, or one per layer if sizes differ.

    Raises:
        UnbuildableError: ``build_layer`` raises it, or the length of a list is not the depth.
    """
    first = LayerConfig(a, stack, 0)
    layer = build_layer(first)
    depth = a[f"{stack}.depth"]
    are_equal: Any = True  # or an array, one value per candidate
    for sizes in first.per_layer_values.values():
        for size in sizes[1:]:
            are_equal = are_equal & (size == sizes[0])
    if decide(are_equal):
        return Repeat(layer, depth)
    others = (build_layer(LayerConfig(a, stack, number))
              for number in range(1, require_single_value(depth)))
    return Repeat(layer, require_single_value(depth), distinct_layers=(layer, *others))


# prefixes of keys that a model type does not read
UNUSED_PREFIXES: Mapping[str, tuple[str, ...]] = {
    "encoder-decoder": (),
    "decoder-only": ("encoder.", "share.encoder.", "share.decoder.cross", "adapt", "decoder.cross",
                     "target_vocab"),
    "encoder-only": ("decoder.", "share.decoder.", "target_vocab")}
# keys that a model with classes does not read, because its output is not a vocabulary
OUTPUT_KEYS = ("embedding.tied_bias", "embedding.output_", "matrices.output", "tensor_chain.output")
SINGLE_STACKS = {"decoder-only": ("decoder", SEQ), "encoder-only": ("encoder", SRC)}


@dataclass(frozen=True)
class ModelSpec:
    """One network.

    Attributes:
        config: a value per key, only the keys that the network depends on.
        block: the root of its blocks.
        id: digest of the blocks; equal networks have equal ids.
        protocol: settings of the costs, as a space has them; empty if unknown.
    """

    config: Mapping[str, Any]
    block: Block
    id: str
    protocol: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def vocab(self) -> int | None:
        """Size of its own vocabulary; None if the protocol or the corpus determines it."""
        return self.config.get("vocab")

    @property
    def vocab_sizes(self) -> tuple[int | None, int | None]:
        """``vocab``, and the size of a separate target vocabulary if it has one."""
        return self.vocab, self.config.get("target_vocab")

    def to_dict(self) -> dict[str, Any]:
        """Id and configuration."""
        return {"id": self.id, "config": dict(self.config)}

    def to_yaml(self, name: str | None = None) -> str:
        """The text of an architecture file: a space without open parameters."""
        from scalesearch.spaces.schema.yaml_writer import config_to_yaml

        text: str = config_to_yaml(self.config, name or self.id, protocol=self.protocol)
        return text


def assemble(config: Config) -> ModelSpec:
    """Build the network that ``config`` (dotted path to value) describes.

    Missing keys have their plain values. Schedules may be texts, as in JSON.

    Raises:
        UnbuildableError: a schedule does not fit its depth, the number of heads does not divide the
            width, parts cannot be tied, or sizes do not allow a gate or a tensor chain.
    """
    own_config, block = build_blocks(config)
    digest = hashlib.sha256(json.dumps(canonical_config(block),
                                       sort_keys=True).encode()).hexdigest()
    return ModelSpec(plain_config(own_config), block, digest[:12])


def build_blocks(config: Config) -> tuple[Config, Block]:
    """The keys that the network depends on, and its blocks.

    Sizes may be arrays, one value per candidate (see :mod:`scalesearch.blocks.sizes`).

    Raises:
        UnbuildableError: see :func:`assemble`.
        PopulationSplitError: candidates of a population have different blocks.
    """
    config = parse_config(config)
    model = config["model"]
    unused = UNUSED_PREFIXES[model]
    if config.get("classes") is not None:
        unused += OUTPUT_KEYS
    config = {path: value for path, value in config.items() if not path.startswith(unused)}
    if decide(_decoder_width(config) == config["width"]):
        config.pop("decoder.width", None)
    if model in SINGLE_STACKS:
        name, axis = SINGLE_STACKS[model]
        parts = (build_embedding(config, axis), _build_stack(config, name, None),
                 _build_output(config))
        return config, DecoderOnly(*parts) if model == "decoder-only" else EncoderOnly(*parts)
    encoder = _build_stack(config, "encoder", None)
    decoder = _build_stack(config, "decoder",
                           encoder.layers if isinstance(encoder, Stack) else None)
    return config, EncoderDecoder(_build_embeddings(config), encoder, decoder,
                                  _build_output(config))


LayerT = TypeVar("LayerT", bound=Layer)
SECTION_NAMES = ("embedding", "encoder", "decoder", "output")


def describe_uneven_heads(config: Config) -> list[str]:
    """Describe heads that do not divide the width, so that ``head_dim`` is rounded down."""
    stacks: dict[tuple[int, int], list[str]] = {}
    for stack in ("encoder", "decoder"):
        width = config.get(f"{stack}.width", config.get("width"))
        heads = config.get(f"{stack}.heads")
        if (isinstance(width, int) and isinstance(heads, int) and heads and width % heads
                and config.get(f"{stack}.head_dim") == width // heads):
            stacks.setdefault((width, heads), []).append(stack)
    return [f"{heads} heads do not divide width {width} ({', '.join(names)}); each head has "
            f"{width // heads} features, {heads * (width // heads)} in all"
            for (width, heads), names in stacks.items()]


def describe_unread_encoder(config: Config) -> list[str]:
    """Describe an encoder that no layer of the decoder attends to; empty if one does."""
    heads = config.get("decoder.cross_heads", config.get("decoder.heads"))
    if config["model"] != "encoder-decoder" or config.get("decoder.cross") != "attention" or any(
            heads if isinstance(heads, list) else [heads]):
        return []
    return ["no layer of the decoder has cross-attention (decoder.cross_heads is 0), so the "
            "encoder has no effect and is not trained; costs of training include it. Set "
            "cross_heads, or model: decoder-only"]


def describe_unused(keys: Iterable[str], models: Collection[str]) -> list[str]:
    """Describe keys that no model of these types reads; empty if all are read."""
    unused = [key for key in keys
              if all(key.startswith(UNUSED_PREFIXES[model]) for model in models)]
    return [f"no effect in {' or '.join(sorted(models))} models: {', '.join(unused)}; remove these "
            "keys"] if unused else []


def build_section(config: Config, name: str) -> ModelSection:
    """One section of a network.

    The costs of all sections add up to those of the network.
    """
    single_stack, axis = SINGLE_STACKS.get(config["model"], ("", SRC))
    section: Block | Use | None
    if name == "embedding":
        section = build_embedding(config, axis) if single_stack else _build_embeddings(config)
    elif name == "output":
        section = _build_output(config)
    elif single_stack and name != single_stack:
        section = None
    else:
        encoder_layers = (None if single_stack or name == "encoder"
                          else _tied_encoder_layers(config))
        section = _build_stack(config, name, encoder_layers)
        if single_stack:
            read_axis = TGT if config.get("classes") is None else TEXT
            return ModelSection(name, section, read_state_nests(section, axis, read_axis))
    return ModelSection(name, section)


def _tied_encoder_layers(a: Config) -> Repeat | None:
    """The encoder's layers if decoder layers are tied to them, else None.

    The layers have feed-forward networks only if these are tied, too.
    """
    forms = [a.get(f"share.decoder.{slot}", OWN_WEIGHTS).form for slot in ("self", "cross", "ffn")]
    tied_paths = [form.path for form in forms if isinstance(form, LayerReference)]
    if not any(path.startswith("encoder.") for path in tied_paths):
        return None
    if optional_value(a, "encoder.middle_width") is not None:
        return None
    if "encoder.ffn" in tied_paths:
        encoder = _build_stack(a, "encoder", None)
        assert isinstance(encoder, Stack)
        return encoder.layers

    def build_layer(config: Config) -> Layer:
        no_ffn = NoFFN(config["width"], (SRC,), DENSE)
        return _build_layer(config, "encoder", ffn=no_ffn)

    layers = build_layers(a, "encoder", build_layer)
    return replace(layers, ties=build_ties(a, "encoder", layers, None))


def _build_embeddings(a: Config) -> Embeddings:
    return Embeddings(build_embedding(a, SRC),
                      build_embedding(_target_config(a), TGT, _shared_table(a)))


def _target_config(a: Config) -> Config:
    """``a`` with the vocabulary and the width of the target as ``vocab`` and ``width``.

    A model of one stack has no separate target.

    Raises:
        UnbuildableError: source and target share a table, and differ in one of the two.
    """
    if a["model"] in SINGLE_STACKS:
        return a
    changes = {"vocab": a["target_vocab"]} if "target_vocab" in a else {}
    width = a.get("decoder.width", a["width"])
    if decide(width != a["width"]):
        changes["width"] = width
    if changes and _shared_table(a):
        raise UnbuildableError("decoder.width" if "width" in changes else "target_vocab",
                               "needs a table for each side (embedding.tie: none or decoder), and "
                               f"embedding.tie is {a['embedding.tie']}")
    return with_changes(a, changes) if changes else a


def _decoder_width(a: Config) -> Any:
    """The features between layers of the decoder.

    Raises:
        UnbuildableError: it is the only stack, and they differ from the width of the model.
    """
    width = a.get("decoder.width", a["width"])
    if a["model"] in SINGLE_STACKS and decide(width != a["width"]):
        raise UnbuildableError("decoder.width", f"is {width}, and the width is {a['width']}: only "
                               "model: encoder-decoder has two widths")
    return width


def _build_output(a: Config) -> Use:
    if a.get("classes") is not None and a["model"] != "encoder-only":
        raise UnbuildableError("classes", f"needs model: encoder-only, and model is {a['model']}")
    return build_output(_target_config(a), "embedding.table" if a["model"] in SINGLE_STACKS
                        else _shared_table(a) or "embedding.target.table")


def _shared_table(a: Config) -> str | None:
    """The path of the table that source and target share, if they do."""
    return "embedding.source.table" if a["embedding.tie"] in ("inputs", "all") else None


def _build_layer(a: Config, stack: str, outer: Config | None = None,
                 ffn: FFN | None = None) -> Layer:
    """One layer of a stack.

    Args:
        outer: the configuration of the wider outer layers of a bottleneck, for a middle layer.
        ffn: its feed-forward network, by default that of the configuration.
    """
    norm_type = str(a.get("norm_kind", "layer"))
    if stack == "encoder":
        mixer = build_mixer(a, "encoder", (SRC, SRC, SRC))
        if ffn is None:
            ffn = build_ffn(a, "encoder", SRC)
        encoder_layer = EncoderLayer(mixer, ffn, a["norm"], norm_kind=norm_type)
        return _with_sublayer_order(a, "encoder", encoder_layer)
    only = a["model"] == "decoder-only"
    mixer = build_mixer(a, "decoder", (SEQ, SEQ, SEQ_KEYS) if only else (TGT, TGT, TGT_KEYS))
    cross_attention = None if only else build_cross_attention(
        a if outer is None else outer, (TGT, CROSS_MEMORY, SRC_KEYS))
    if outer is not None and cross_attention is not None:
        cross_attention = ProjectedCrossAttention(a["width"], TGT, True, DENSE,
                                                  main=cross_attention, norm_kind=norm_type)
    ffn = build_ffn(a, "decoder", SEQ if only else TGT)
    # Only a feed-forward network can be interleaved.
    interleaved = bool(a["decoder.interleaved"]) and not ffn.is_absent
    layer = DecoderLayer(mixer, ffn, a["norm"], cross_attention=cross_attention,
                         interleaved=interleaved, norm_kind=norm_type)
    return _with_sublayer_order(a, "decoder", layer)


def _with_sublayer_order(a: Config, stack: str, layer: LayerT) -> LayerT:
    """``layer`` with the further sub-layers, their order and paths of a stack."""
    key = f"{stack}.sublayers"
    order = tuple((step,) if isinstance(step, str) else tuple(step)
                  for step in a.get(key, layer.default_order))
    words = [word for step in order for word in step]
    axis = layer.mixer.queries
    layer = replace(layer, extra_sublayers=tuple((word, build_sublayer(a, stack, word, axis))
                                                 for word in sorted(SUBLAYERS) if word in words))
    if missing := [word for word in layer.sublayers if word not in words]:
        raise UnbuildableError(key, f"{missing[0]} is not in the list, and the layers have it")
    if SECOND_FFN in words and "ffn" not in words[: words.index(SECOND_FFN)]:
        raise UnbuildableError(
            key, f"{SECOND_FFN} repeats a feed-forward network, and the list has none before it")
    order = _present_sublayers(layer, order)
    if not order:
        raise UnbuildableError(f"{stack}.depth", "a layer has neither attention nor a "
                               "feed-forward network: reduce the depth")
    main_word = next(iter(layer.default_order))[0]
    has_parallel_mixer = any(len(step) > 1 and main_word in step for step in order)
    multi_path = None
    path_key = f"{stack}.paths"
    if (count := require_single_value(a.get(f"{path_key}.count", 1))) != 1:
        multi_path = MultiPathConfig(a[f"{path_key}.of"], count, a[f"{path_key}.merge"],
                                     bool(a[f"{path_key}.norm"]))
        has_sublayer_paths = layer.extra_sublayers and multi_path.target == "sublayer"
        if layer.ffn.is_absent and not has_sublayer_paths:
            multi_path = multi_path.without_ffn()
    parallel_mixer = None
    if has_parallel_mixer:
        axes = axis, axis, KEY_AXES.get(axis, SRC)
        parallel_mixer = build_parallel_mixer(a, stack, axes, layer.mixer)
    separate_norms = bool(a.get(f"{stack}.parallel_norms", False)) and any(
        len(step) > 1 for step in order)
    if separate_norms and a["norm"] not in INPUT_NORMS:
        raise UnbuildableError(f"{stack}.parallel_norms", f"needs norms of the input, and norm is "
                               f"{a['norm']}")
    residual_after_norm = bool(a.get("residual_after_norm", False))
    if residual_after_norm and (a["norm"] != "pre" or separate_norms):
        raise UnbuildableError("residual_after_norm", "needs norm: pre, and no parallel_norms")
    if multi_path is not None and multi_path.target == "layer" and (
            residual_after_norm or separate_norms or a["norm"] not in ("pre", "post")):
        raise UnbuildableError(f"{path_key}.of", "paths of whole layers need norm: pre or norm: "
                               f"post, without {stack}.parallel_norms or residual_after_norm")
    layer = replace(layer, multi_path=multi_path, parallel_mixer=parallel_mixer,
                    separate_norms=separate_norms, residual_after_norm=residual_after_norm)
    # Equal orders have equal fields, and therefore equal identities.
    if order == _present_sublayers(layer, layer.default_order):
        return layer
    if isinstance(layer, DecoderLayer):
        if layer.interleaved:
            raise UnbuildableError("decoder.interleaved",
                                   f"is short for a value of {key}: set only one of the two")
        if order == _present_sublayers(layer, layer.interleaved_order):
            return replace(layer, interleaved=True)
    return replace(layer, sublayer_order=order)


def _present_sublayers(layer: Layer, order: SublayerOrder) -> SublayerOrder:
    """``order`` without missing sub-layers.

    Parallel sub-layers are in the order of the layer's blocks.
    """
    ranks = {word: rank for rank, word in enumerate(layer.sublayers)}
    if "ffn" in ranks:
        ranks[SECOND_FFN] = ranks["ffn"]
    steps = (tuple(sorted((word for word in step if word in ranks), key=ranks.__getitem__))
             for step in order)
    return tuple(step for step in steps if step)


def _build_stack(a: Config, stack: str, encoder_layers: Repeat | None) -> Stack | BottleneckStack:
    """The layers of a stack, with ties between them and to ``encoder_layers``."""
    if stack == "decoder":
        a = with_changes(a, {"width": _decoder_width(a), "memory_width": a["width"]})
    if optional_value(a, f"{stack}.middle_width") is not None:
        return _build_bottleneck_stack(a, stack)
    layers = build_layers(a, stack, lambda config: _build_layer(config, stack))
    tied_layers = replace(layers, ties=build_ties(a, stack, layers, encoder_layers))
    solver = a.get(f"{stack}.solver", "euler") if stack == "encoder" else "euler"
    has_step_signals = bool(a.get(f"{stack}.step_embedding", False))
    key = f"{stack}.residual_scores"
    score_type = a.get(key, "none")
    if score_type != "none":
        distinct_layers: Any = layers.distinct_layers
        shapes = [layer.mixer.score_shape for layer in distinct_layers]
        n_heads = [shape and shape.heads for shape in shapes]
        if any(decide(n != n_heads[0]) for n in n_heads):
            raise UnbuildableError(
                key, f"{score_type} scores need the same number of heads in all layers")
    global_scores = None
    if score_type not in ("none", "previous"):
        # A^G, shaped as the layers' scores (PartialFormer, section 3.4)
        first_layer: Any = layers.layer
        mixer = first_layer.mixer
        shape = mixer.score_shape
        if shape is None:
            raise UnbuildableError(key, f"{score_type} scores need layers that have scores")
        clip = a[f"{stack}.relative_clip"] if score_type == "relative" else 0
        global_scores = GlobalScores(mixer.d, shape.heads, shape.head_dim, mixer.queries,
                                     shape.keys, clip, mixer.decoder,
                                     norm_kind=first_layer.norm_kind)
    return Stack(tied_layers, global_scores, has_step_signals, solver,
                 bool(a.get("last_norm", True)), bool(a.get("post_last_norm", False)),
                 _position_bias(a, stack, layers))


def _position_bias(a: Config, stack: str, layers: Repeat) -> RelativeBuckets | None:
    """The biases of scores by distance, with one table for all layers, if the stack has them."""
    key = f"{stack}.position_buckets"
    buckets = require_single_value(a.get(key, 0))
    if not buckets:
        return None
    distinct_layers: Any = layers.layers_by_size
    mixers = [mixer for layer in distinct_layers for mixer in (layer.mixer, layer.parallel_mixer)
              if mixer is not None and not mixer.is_absent]
    shapes = [mixer.score_shape for mixer in mixers]
    if not shapes or None in shapes or any(
            decide(shape.heads != shapes[0].heads) for shape in shapes):
        raise UnbuildableError(key, "needs attention with the same number of heads in all layers")
    return validated(RelativeBuckets(shapes[0].heads, buckets,
                                     require_single_value(a[f"{stack}.bucket_distance"]),
                                     stack == "decoder"), stack)


def _build_bottleneck_stack(a: Config, stack: str) -> BottleneckStack:
    """A Subformer stack: the layers between the first and the last have another width.

    Per-layer sizes of the middle layers must be equal.

    Raises:
        UnbuildableError: the stack has fewer than 3 layers, middle layers that differ, or global
            scores or a solver.
    """
    depth = a[f"{stack}.depth"]
    key = f"{stack}.middle_width"
    if decide(depth < 3):
        raise UnbuildableError(key,
                               f"a middle needs at least 3 layers, and {stack}.depth is {depth}")
    whole_solver = stack == "encoder" and a.get("encoder.solver", "euler") != "euler"
    if require_single_value(a.get(f"{stack}.position_buckets", 0)):
        raise UnbuildableError(key, f"cannot be combined with {stack}.position_buckets")
    if a.get(f"{stack}.residual_scores", "none") not in ("none", "previous") or whole_solver:
        raise UnbuildableError(key,
                               f"cannot be combined with {stack}.residual_scores: global "
                               "or with a solver")
    first, last = (LayerConfig(a, stack, number) for number in (0, -1))
    inside = LayerConfig(with_changes(a, {"width": a[key]}), stack, 1)
    middle = _build_layer(inside, stack, outer=first)
    for size_key, sizes in inside.per_layer_values.items():
        if any(decide(size != sizes[1]) for size in sizes[2:-1]):
            raise UnbuildableError(
                size_key,
                f"has different sizes for the middle layers, and {key} needs equal ones")
    repeated = Repeat(middle, depth - 2)
    schedules = {f"share.{stack}.{slot}": a.get(f"share.{stack}.{slot}", OWN_WEIGHTS)
                 for slot in middle.part_names}
    # A list would refer to layers by number, and the middle layers have no numbers of their own.
    if any(schedule not in ("own", "sandwich") for schedule in schedules.values()):
        raise UnbuildableError(key, "the middle layers are equal: set "
                               f"share.{stack}.{next(iter(middle.part_names))} and the other "
                               "schedules to sandwich or own")
    # the schedule sandwich ties all middle layers
    tied = with_changes(a, {path: Schedule.of(ScheduleCall("one"))
                            for path, schedule in schedules.items() if schedule == "sandwich"})
    shared = replace(repeated, ties=build_ties(tied, stack, repeated, None))
    has_step_signals = bool(a.get(f"{stack}.step_embedding", False))
    last_norm = bool(a.get("last_norm", True))
    return BottleneckStack(Repeat(_build_layer(first, stack), 1), shared,
                           Repeat(_build_layer(last, stack), 1), has_step_signals, last_norm,
                           bool(a.get("post_last_norm", False)))
