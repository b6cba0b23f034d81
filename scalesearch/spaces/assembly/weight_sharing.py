"""Weight tying: parts that layers share, within a stack or across stacks.

A schedule such as ``cycle(2)`` ties layers of one stack. A reference such as ``encoder.ffn[i]``
ties decoder layers to encoder layers: the encoder's part is the tied source, the decoder's the
target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalesearch.blocks.core import Block, Repeat, Tie, Use, iterate_cost_lines
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.mixers import MIXERS
from scalesearch.blocks.multi_path import MultiPath
from scalesearch.blocks.options import option_fields
from scalesearch.blocks.sizes import decide, map_values, require_single_value
from scalesearch.blocks.weight_sharing import (
    SCHEDULES,
    CrossStackTie,
    ExplicitSharing,
    NoSharing,
    SharingSchedule,
    make_schedule,
)
from scalesearch.spaces.assembly.components import Config
from scalesearch.spaces.syntax.diagnostics import UnbuildableError
from scalesearch.spaces.syntax.domains import OWN_WEIGHTS, LayerReference, Schedule, ScheduleCall

# Keys of a stack that determine the shapes of its mixer's weights.
MULTI_PATH_KEYS = ("paths.of", "paths.count", "paths.merge", "paths.norm")
MIXER_SHAPE_KEYS = ("mixer", "local", "local.join", "local.channels", "heads", "head_dim",
                    "score_heads", "qk_norm", "key_value_heads", "attention_rank", "projections",
                    "projection_bias", "out_bias", "parallel_heads", "head_scaling", "gate",
                    "mask", "mask.clip", "lift", "cross", "cross.head_dim", "cross.clip",
                    "relative_positions", "relative_clip", "pg", "pg.on", "pg.ratio",
                    "pg.per_head", *MULTI_PATH_KEYS)
FFN_SHAPE_KEYS = ("ffn", "ffn_bias", "ffn_rank", "ffn_groups", "ffn_products", *MULTI_PATH_KEYS)


def build_ties(a: Config, stack: str, layers: Repeat, encoder: Repeat | None) -> tuple[Tie, ...]:
    """The ties between the layers of a stack, and from its layers to the encoder's.

    Norms follow the part that they belong to if ``share.norms`` is ``follow``. Biases (if
    ``share.biases`` is ``own``) and adapters are excluded from the ties.
    """
    ties: list[Tie] = []
    # A sub-layer may be absent in some layers.
    parts: dict[str, Any] = {}
    part_names: dict[str, list[str]] = {}
    for layer in layers.layers_by_size:
        parts = {**layer.parts(), **parts}
        part_names = {**layer.part_names, **part_names}  # type: ignore[attr-defined]
    for slot, number, part in ((slot, *pair) for slot, names in part_names.items()
                               for pair in enumerate(names)):
        schedule = _sharing_schedule(a, f"share.{stack}.{slot}", layers, part, number, encoder)
        if isinstance(schedule, NoSharing):
            continue
        # Adapters of the encoder's layers differ, so a tie across stacks excludes them, too.
        adapters = (adapter_names(a) if stack == "encoder" or isinstance(schedule, CrossStackTie)
                    else ())
        excluded = *("bias",) * (a["share.biases"] == "own"), *adapters, *path_norms(a, parts[part])
        ties.append(Tie(part, schedule, tuple(dict.fromkeys(excluded))))
        for suffix in ("_norm", "_norm_out") if a["share.norms"] == "follow" else ():
            norm = f"{part}{suffix}"
            if norm in parts and isinstance(schedule, SharingSchedule):
                ties.append(Tie(norm, schedule))
            elif norm in parts and encoder is not None and isinstance(schedule, CrossStackTie):
                source = f"{schedule.part}{suffix}"
                if not _shapes_differ(layers.layer, norm, encoder.layer, source):
                    ties.append(Tie(norm, CrossStackTie(schedule.path, source, schedule.layers)))
    return tuple(ties)


def path_norms(a: Config, part: Any) -> list[str]:
    """Names of the norms at the end of a part's paths, if layers have their own norms."""
    if a["share.norms"] != "own" or not isinstance(part.block, MultiPath):
        return []
    merge = part.block.merge
    return [] if merge is None else merge.path_norms


def adapter_names(a: Config) -> tuple[str, ...]:
    """Names of the weights that layer adaptation adds to each encoder layer."""
    adaptation = a.get("adapt", "nothing")
    if adaptation == "lora":
        return tuple(f"{name}_adapter" for name in dict.fromkeys(a["adapt.on"]))
    return {"bias": ("bias",), "prompt": ("prompt",)}.get(adaptation, ())


def _sharing_schedule(a: Config, path: str, layers: Repeat, part: str, number: int,
                      encoder: Repeat | None) -> SharingSchedule | CrossStackTie:
    """The validated schedule or cross-stack tie at ``path``.

    It is checked against the depth and the shapes.
    """
    value: Schedule = a.get(path, OWN_WEIGHTS)
    form = value.form
    if isinstance(form, LayerReference):
        return _cross_stack_tie(a, path, form, layers, part, number, encoder)
    if isinstance(form, ScheduleCall) and form.name not in SCHEDULES:
        raise UnbuildableError(path, f"{value}: no such schedule; there are {', '.join(SCHEDULES)}")
    schedule = (make_schedule(form.name, form.arguments) if isinstance(form, ScheduleCall)
                else ExplicitSharing(form))
    if isinstance(schedule, NoSharing):
        return schedule
    if decide(map_values(layers.depth, lambda depth: schedule.validate(depth) is not None)):
        reason = schedule.validate(require_single_value(layers.depth))
        raise UnbuildableError(path, f"{value} {reason}")
    if layers.distinct_layers:
        for layer, owner in enumerate(schedule.owners(len(layers.distinct_layers))):
            if _shapes_differ(layers.layer_at(layer), part, layers.layer_at(owner), part):
                raise UnbuildableError(
                    path, f"{value} ties layers {owner} and {layer}, whose sizes differ")
    return schedule


def _cross_stack_tie(a: Config, path: str, reference: LayerReference, layers: Repeat, part: str,
                     number: int, encoder: Repeat | None) -> CrossStackTie:
    """The tie of ``encoder.attention[2*i + 1]``.

    Layer i uses the weights of this encoder layer.

    Args:
        number: position of ``part`` among the parts of the same slot; it is tied to the encoder's
            part at this position.
    """
    stack, _, slot = reference.path.partition(".")
    if encoder is None or stack != "encoder" or slot not in ("attention", "ffn"):
        raise UnbuildableError(path,
                               f"{reference}: only decoder layers can be tied to another stack, "
                               "and only to encoder.attention or encoder.ffn")
    sources = encoder.layer.part_names.get(slot, [""])  # type: ignore[attr-defined]
    if number >= len(sources):
        raise UnbuildableError(path,
                               f"{reference}: a decoder layer has more of these parts than an "
                               f"encoder layer, which has {len(sources)}")
    source = sources[number]
    depth = require_single_value(encoder.depth)
    indices = [reference.layer_index(i) for i in range(require_single_value(layers.depth))]
    invalid = [index for index in indices if index is None or not 0 <= index < depth]
    if invalid:
        raise UnbuildableError(
            path, f"{reference} refers to encoder layer {invalid[0]}; there are 0 to {depth - 1}")
    pairs = [(layers.layer_at(i), encoder.layer_at(index))
             for i, index in enumerate(indices) if index is not None]
    pairs = pairs if layers.distinct_layers or encoder.distinct_layers else pairs[:1]
    if any(_shapes_differ(layer, part, encoder_layer, source) for layer, encoder_layer in pairs):
        target = path.removeprefix("share.")
        raise UnbuildableError(path,
                               f"{reference}: {reference.path} and {target} differ in shape, so "
                               f"they cannot be tied: "
                               f"{_describe_difference(a, reference.path, target)}")
    schedules = {tie.part: tie.schedule for tie in encoder.ties}
    owners = schedules[source].owners(depth) if source in schedules else list(range(depth))
    return CrossStackTie("encoder.layers", source,
                         tuple(owners[index] for index in indices if index is not None))


def _describe_difference(a: Config, source: str, target: str) -> str:
    """The keys in which two parts differ: ``encoder.heads is 4, decoder.heads is 8``."""
    is_ffn = target.endswith(".ffn")
    if source.endswith(".ffn") != is_ffn:
        return "only one of them is a feed-forward network"
    classes: Mapping[str, type[Block]] = FFNS if is_ffn else MIXERS
    options = [f"{key}.{name}" for key in (("ffn",) if is_ffn else ("mixer", "local"))
               for block_class in classes.values() for name in option_fields(block_class)]
    names = {*(FFN_SHAPE_KEYS if is_ffn else MIXER_SHAPE_KEYS), *options}
    # Test each name: the configuration of a whole population cannot be iterated.
    keys = sorted(key for key in names if f"encoder.{key}" in a or f"decoder.{key}" in a)
    cross_keys = {"gate": "cross_gate", "attention_rank": "cross_rank",
                  "key_value_heads": "cross_key_value_heads"} if target.endswith(".cross") else {}
    differences = []
    if a.get("memory_width", a["width"]) != a["width"]:
        differences.append(f"width is {a['memory_width']}, decoder.width is {a['width']}")
    for key in keys:
        encoder_key = f"encoder.{key}"
        decoder_key = f"decoder.{cross_keys.get(key, key)}"
        if encoder_key.count(".") > 1 and not (encoder_key in a and decoder_key in a):
            continue  # an option that only one of them has: the key above it differs, too
        encoder_value = require_single_value(a.get(encoder_key, "none"))
        decoder_value = require_single_value(a.get(decoder_key, "none"))
        if encoder_value != decoder_value:
            differences.append(
                f"{encoder_key} is {encoder_value}, {decoder_key} is {decoder_value}")
    return "; ".join(differences) or "adapters, or gates, that only one of them has"


def _shapes_differ(layer: Block, part: str, other_layer: Block, other_part: str) -> bool:
    """Whether the weights of two parts of layers have other names or shapes."""
    first = _weight_shapes(layer, part)
    second = _weight_shapes(other_layer, other_part)
    return first.keys() != second.keys() or any(
        decide(size != other_size) for weight in first
        for size, other_size in zip(first[weight], second[weight]))


def _weight_shapes(layer: Block, part: str) -> dict[tuple[str, str], Any]:
    """Weight shapes below one part of a layer, by path and name.

    Adapters are left out, because they are never tied.
    """
    use = layer.parts().get(part)
    block = use.block if isinstance(use, Use) else use
    if block is None:
        return {}
    return {(line.path, name): shape for line in iterate_cost_lines(block)
            if not any(part_name == "prompt" or part_name.endswith("_adapter")
                       for part_name in line.path.split("."))
            for name, shape in line.weights.items()}
