"""Bottleneck stacks (Subformer): the layers between the first and the last have another width."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from dataclasses import replace

from scalesearch.blocks.core import Repeat
from scalesearch.blocks.layers import Layer
from scalesearch.blocks.sizes import decide
from scalesearch.blocks.stacks import BottleneckStack
from scalesearch.space.assembly.components import Config
from scalesearch.space.assembly.layer_config import LayerConfig
from scalesearch.space.assembly.weight_sharing import build_ties
from scalesearch.space.syntax.diagnostics import UnbuildableError

# Arguments: the configuration; for a middle layer, also that of the outer layers.
BottleneckLayerFactory = Callable[..., Layer]


def build_bottleneck_stack(a: Config, stack: str,
                           build_layer: BottleneckLayerFactory) -> BottleneckStack:
    """The stack if ``middle_width`` is not off. Per-layer sizes of the middle layers must be equal.

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
    if a.get(f"{stack}.residual_scores", "none") not in ("none", "previous") or whole_solver:
        raise UnbuildableError(key,
                               f"cannot be combined with {stack}.residual_scores: global "
                               "or with a solver")
    first, last = (LayerConfig(a, stack, number) for number in (0, -1))
    inner_config = ChainMap({"width": a[key]}, a)  # type: ignore[arg-type]  # only read
    inside = LayerConfig(inner_config, stack, 1)
    middle = build_layer(inside, first)
    for size_key, sizes in inside.per_layer_values.items():
        if any(decide(size != sizes[1]) for size in sizes[2:-1]):
            raise UnbuildableError(
                size_key,
                f"has different sizes for the middle layers, and {key} needs equal ones")
    repeated = Repeat(middle, depth - 2)
    shared = replace(repeated,
                     ties=build_ties(_middle_config(a, stack, middle), stack, repeated, None))
    has_step_signals = bool(a.get(f"{stack}.step_embedding", False))
    last_norm = bool(a.get("last_norm", True))
    return BottleneckStack(Repeat(build_layer(first), 1), shared, Repeat(build_layer(last), 1),
                           has_step_signals, last_norm)


def _middle_config(a: Config, stack: str, middle: Layer) -> Config:
    """The configuration of the middle layers: ``sandwich`` schedules tie all of them."""
    schedules = {f"share.{stack}.{slot}": a.get(f"share.{stack}.{slot}", "own")
                 for slot in middle.part_names}
    # A list would refer to layers by number, and the middle layers have no numbers of their own.
    if any(schedule not in ("own", "sandwich") for schedule in schedules.values()):
        raise UnbuildableError(f"{stack}.middle_width",
                               "the middle layers are equal: set "
                               f"share.{stack}.{next(iter(middle.part_names))} and the other "
                               "schedules to sandwich or own")
    tied = {path: "one" for path, schedule in schedules.items() if schedule == "sandwich"}
    return ChainMap(tied, a)  # type: ignore[arg-type]  # only read
