"""What layers share: schedules and loans as ties, and what stays each layer's own."""

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
from scalesearch.space.assembly.components import Config
from scalesearch.space.syntax.diagnostics import UnbuildableError
from scalesearch.space.syntax.schedules import LayerReference, ScheduleCall
from scalesearch.space.syntax.value_parser import parse_schedule

# Keys of a stack that decide the shapes of its mixer's weights.
MULTI_PATH_KEYS = ("paths.of", "paths.count", "paths.merge", "paths.norm")
MIXER_SHAPE_KEYS = ("mixer", "local", "local.join", "local.channels", "heads", "head_dim",
                    "score_heads", "key_value_heads", "projections", "projection_bias",
                    "parallel_heads", "head_scaling", "gate", "mask", "mask.clip", "lift", "cross",
                    "cross.head_dim", "cross.clip", "relative_positions", "relative_clip", "pg",
                    "pg.on", "pg.ratio", "pg.per_head", *MULTI_PATH_KEYS)


def build_ties(a: Config, stack: str, own: Repeat, encoder: Repeat | None) -> tuple[Tie, ...]:
    """The sharing of one stack's parts; norms follow if they are to, biases and adapters stay own if they are to."""
    found: list[Tie] = []
    present = own.layer.parts()
    slots: Mapping[str, list[str]] = own.layer.part_names  # type: ignore[attr-defined]
    for slot, number, part in ((slot, *pair) for slot, parts in slots.items()
                               for pair in enumerate(parts)):
        plan = _sharing_schedule(a, f"share.{stack}.{slot}", own, part, number, encoder)
        if isinstance(plan, NoSharing):
            continue
        # What an encoder layer has of its own, a loan has too: there is no one bias left that it
        # could borrow.
        mine = adapter_names(a) if stack == "encoder" or isinstance(plan, CrossStackTie) else ()
        mine = (*("bias",) * (a["share.biases"] == "own"), *mine, *path_norms(a, present[part]))
        found.append(Tie(part, plan, tuple(dict.fromkeys(mine))))
        if a["share.norms"] == "follow" and f"{part}_norm" in present:
            if isinstance(plan, SharingSchedule):
                found.append(Tie(f"{part}_norm", plan))
            elif encoder is not None and not _shapes_differ(
                    _weight_shapes(own.layer, f"{part}_norm"),
                    _weight_shapes(encoder.layer, f"{plan.part}_norm")):
                found.append(Tie(f"{part}_norm",
                                 CrossStackTie(plan.path, f"{plan.part}_norm", plan.layers)))
    return tuple(found)


def path_norms(a: Config, part: Any) -> list[str]:
    """Names of the norms at the end of a part's paths, where layers have norms of their own."""
    merge = part.block.merge if a["share.norms"] == "own" and isinstance(
        part.block, MultiPath) else None
    return [] if merge is None else merge.path_norms


def adapter_names(a: Config) -> tuple[str, ...]:
    """Names of what layer adaptation leaves each encoder layer."""
    kind = a.get("adapt", "nothing")
    if kind == "lora":
        return tuple(f"{name}_adapter" for name in dict.fromkeys(a["adapt.on"]))
    return {"bias": ("bias",), "prompt": ("prompt",)}.get(kind, ())


def _sharing_schedule(a: Config, path: str, own: Repeat, part: str, number: int,
                      encoder: Repeat | None) -> SharingSchedule | CrossStackTie:
    """The schedule or the loan that the answer at ``path`` says, checked against the depth and the shapes."""
    text = a.get(path, "own")
    said = parse_schedule(text) if isinstance(text, str) else tuple(text)
    if isinstance(said, LayerReference):
        return _cross_stack_tie(a, path, said, own, part, number, encoder)
    if isinstance(said, ScheduleCall) and said.name not in SCHEDULES:
        raise UnbuildableError(path, f"{text}: no such schedule; there are {', '.join(SCHEDULES)}")
    plan = make_schedule(
        said.name, said.arguments) if isinstance(said, ScheduleCall) else ExplicitSharing(said)
    if isinstance(plan, NoSharing):
        return plan
    if decide(map_values(own.depth, lambda depth: plan.validate(depth) is not None)):
        raise UnbuildableError(path, f"{text} {plan.validate(require_single_value(own.depth))}")
    for layer, owner in enumerate(
            plan.owners(len(own.distinct_layers))) if own.distinct_layers else ():
        if _shapes_differ(_weight_shapes(own.layer_at(layer), part),
                          _weight_shapes(own.layer_at(owner), part)):
            raise UnbuildableError(
                path, f"{text} makes layers {owner} and {layer} one, whose sizes " "differ")
    return plan


def _cross_stack_tie(a: Config, path: str, loan: LayerReference, own: Repeat, part: str,
                     number: int, encoder: Repeat | None) -> CrossStackTie:
    """``encoder.attention[2*i + 1]``: layer i here uses that layer's weights there, the first one's the first's."""
    where, _, slot = loan.path.partition(".")
    if encoder is None or where != "encoder" or slot not in ("attention", "ffn"):
        raise UnbuildableError(path,
                               f"{loan}: only the decoder can borrow, and only encoder.attention "
                               "or encoder.ffn")
    lenders = encoder.layer.part_names.get(slot, [""])  # type: ignore[attr-defined]
    if number >= len(lenders):
        raise UnbuildableError(path,
                               f"{loan}: a layer here has more of them than one there, which has "
                               f"{len(lenders)}")
    lender = lenders[number]
    depth = require_single_value(encoder.depth)
    layers = [loan.layer_index(i) for i in range(require_single_value(own.depth))]
    wrong = [layer for layer in layers if layer is None or not 0 <= layer < depth]
    if wrong:
        raise UnbuildableError(
            path, f"{loan} asks for encoder layer {wrong[0]}; there are 0 to " f"{depth - 1}")
    pairs = [(own.layer_at(i), encoder.layer_at(layer))
             for i, layer in enumerate(layers) if layer is not None]
    pairs = pairs if own.distinct_layers or encoder.distinct_layers else pairs[:1]
    if any(_shapes_differ(_weight_shapes(mine, part), _weight_shapes(theirs, lender))
           for mine, theirs in pairs):
        taker = path.removeprefix("share.")
        raise UnbuildableError(path,
                               f"{loan}: {loan.path} and {taker} differ in shape, so they cannot "
                               f"be one: {_describe_difference(a, loan.path, taker)}")
    ties = {tie.part: tie.schedule for tie in encoder.ties}
    owners = ties[lender].owners(depth) if lender in ties else list(range(depth))
    return CrossStackTie("encoder.layers", lender,
                         tuple(owners[layer] for layer in layers if layer is not None))


def _describe_difference(a: Config, lender: str, taker: str) -> str:
    """The answers in which two parts differ, with both values: ``encoder.pg is relu, decoder.pg is none``."""
    feed_forward = taker.endswith(".ffn")
    if lender.endswith(".ffn") != feed_forward:
        return "only one of them is a feed-forward network"
    kinds: Mapping[str, type[Block]] = FFNS if feed_forward else MIXERS
    own = [f"{key}.{name}" for key in (("ffn",) if feed_forward else ("mixer", "local"))
           for kind in kinds.values() for name in option_fields(kind)]
    names = {"ffn", *MULTI_PATH_KEYS, *own} if feed_forward else {*MIXER_SHAPE_KEYS, *own}
    # One by one: where candidates are counted, answers cannot be listed.
    keys = sorted(key for key in names if f"encoder.{key}" in a or f"decoder.{key}" in a)
    cross = {"gate": "cross_gate"} if taker.endswith(".cross") else {}
    pairs = [(f"encoder.{key}", f"decoder.{cross.get(key, key)}") for key in keys]
    said = [f"{mine} is {one}, {theirs} is {other}" for mine, theirs in pairs
            # what only one of them has says its own key
            if (mine.count(".") == 1 or (mine in a and theirs in a))
            and (one := require_single_value(a.get(mine, "none"))) != (other := require_single_value(a.get(theirs, "none")))]
    return "; ".join(said) or "adapters, or gates, that only one of them has"


def _shapes_differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two sets of weight shapes do."""
    if one.keys() != other.keys() or any(one[path].keys() != other[path].keys() for path in one):
        return True
    pairs = [pair for path in one for name in one[path]
             for pair in zip(one[path][name], other[path][name])]
    return any(decide(a != b) for a, b in pairs)


def _weight_shapes(layer: Block, part: str) -> dict[str, Any]:
    """Weight shapes beneath one part of a layer, by path; what adapts a layer is not lent."""
    use = layer.parts().get(part)
    block = use.block if isinstance(use, Use) else use
    if block is None:
        return {}
    return {line.path: dict(line.weights)
            for line in iterate_cost_lines(block) if line.weights and not _is_adapter(line.path)}


def _is_adapter(path: str) -> bool:
    return any(name == "prompt" or name.endswith("_adapter") for name in path.split("."))
