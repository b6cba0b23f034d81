"""Stacks with a waist: the layers between the first and the last are alike, and of another width (Subformer)."""

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

# of answers, and of those of the outer layers for a layer in the waist
BottleneckLayerFactory = Callable[..., Layer]


def build_bottleneck_stack(a: Config, stack: str, make: BottleneckLayerFactory) -> BottleneckStack:
    """The stack whose ``middle_width`` is not off; of sizes by layer those of the middle must be equal.

    Raises:
        Unbuildable: fewer than 3 layers; middle layers that would differ; scores or a solver of the
            whole stack.
    """
    depth = a[f"{stack}.depth"]
    where = f"{stack}.middle_width"
    if decide(depth < 3):
        raise UnbuildableError(where,
                               f"a middle needs at least 3 layers, and {stack}.depth is {depth}")
    whole_solver = stack == "encoder" and a.get("encoder.solver", "euler") != "euler"
    if a.get(f"{stack}.residual_scores", "none") not in ("none", "previous") or whole_solver:
        raise UnbuildableError(where,
                               f"does not go with {stack}.residual_scores: global or with a solver")
    first, last = (LayerConfig(a, stack, number) for number in (0, -1))
    inside = LayerConfig(ChainMap({"width": a[where]}, a), stack, 1)  # type: ignore[arg-type]  # only read
    middle = make(inside, first)
    for key, sizes in inside.per_layer_values.items():
        if any(decide(size != sizes[1]) for size in sizes[2:-1]):
            raise UnbuildableError(
                key, f"gives the middle layers different sizes, and {where} makes " "them alike")
    repeated = Repeat(middle, depth - 2)
    shared = replace(repeated,
                     ties=build_ties(_middle_config(a, stack, middle), stack, repeated, None))
    steps = bool(a.get(f"{stack}.step_embedding", False))
    last_norm = bool(a.get("last_norm", True))
    return BottleneckStack(Repeat(make(first), 1), shared, Repeat(make(last), 1), steps, last_norm)


def _middle_config(a: Config, stack: str, middle: Layer) -> Config:
    """Answers in which what is shared as a sandwich is one for all middle layers."""
    plans = {f"share.{stack}.{slot}": a.get(f"share.{stack}.{slot}", "own")
             for slot in middle.part_names}
    if any(plan not in ("own", "sandwich") for plan in plans.values()):  # a list names layers
        raise UnbuildableError(f"{stack}.middle_width",
                               "the middle layers are one kind: of what they share, write "
                               f"share.{stack}.{next(iter(middle.part_names))} and the others as "
                               "sandwich, or own")
    one = {path: "one" for path, plan in plans.items() if plan == "sandwich"}
    return ChainMap(one, a)  # type: ignore[arg-type]  # only read
