"""Load and load balance of parameter groups (EdgeFormer, section 3.2).

A group is the matrices of one part (attention or feed-forward network) of all layers that share
them, without biases and norms.

Notation:
    p: number of weights of a group.
    l: load of a group, the number of times that a forward pass uses it.
    Mean load: R = Σ p l / Σ p.
    Load balance: Jain's index (Σ p l)² / (Σ p · Σ p l²), 1 if all loads are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scalesearch.blocks.core import Block, Repeat, Tie, Use, iterate_cost_lines, join_path
from scalesearch.blocks.sizes import is_set, require_single_value
from scalesearch.blocks.weight_sharing import CrossStackTie

LOAD_COST_NAMES = ("load.mean", "load.balance", "load.min", "load.max")


@dataclass(frozen=True)
class WeightGroup:
    """Weights that some layers share.

    Attributes:
        name: path of the owner; it ends with ``(own)`` for weights that are not shared.
        params: number of weights.
        load: uses per forward pass.
    """

    name: str
    params: int
    load: int


def weight_groups(root: Block) -> list[WeightGroup]:
    """Non-empty parameter groups of the layers, in the order of first use."""
    groups = []
    for (path, layer, part, *own), (size, load) in _size_and_load_by_group(root).items():
        if is_set(size):
            groups.append(WeightGroup(f"{path}.{layer}.{part}" + " (own)" * bool(own), size, load))
    return groups


def load_balance(root: Block) -> Mapping[str, float]:
    """Mean, balance, minimum and maximum of the loads; all 1 without layers."""
    groups = [(size, load) for size, load in _size_and_load_by_group(root).values() if is_set(size)]
    if not groups:
        return dict.fromkeys(LOAD_COST_NAMES, 1.0)
    n_weights = sum(size for size, _ in groups)
    n_uses = sum(size * load for size, load in groups)
    mean = n_uses / n_weights
    loads = [load for _, load in groups]
    balance = mean * mean / (sum(size * load**2 for size, load in groups) / n_weights)
    return dict(zip(LOAD_COST_NAMES, (mean, balance, float(min(loads)), float(max(loads)))))


def _size_and_load_by_group(root: Block) -> dict[Any, list[int]]:
    """Size and load of each group."""
    groups: dict[Any, list[int]] = {}
    for key, size, uses in _uses(root, "", 1):
        groups.setdefault(key, [size, 0])[1] += uses
    return groups


def _uses(node: Block, path: str, calls: int) -> Iterator[tuple[Any, int, int]]:
    """Group, size and number of uses of each part of each layer inside ``node``."""
    from scalesearch.blocks.stacks import BottleneckStack, Stack

    for name, part in node.parts().items() if not isinstance(node, Repeat) else ():
        use = part if isinstance(part, Use) else Use(part)
        part_path = join_path(path, name)
        if isinstance(use.block, Stack | BottleneckStack):
            yield from _uses(use.block, part_path, calls * use.calls)
        if not isinstance(use.block, Repeat):
            continue
        stack = use.block
        depth = require_single_value(stack.depth)
        ties = {tie.part: tie for tie in stack.ties}
        first_parts = {name: part for layer in reversed(stack.layers_by_size)
                       for name, part in layer.parts().items()}
        for layer_part_name, first_part in first_parts.items():
            tie = ties.get(layer_part_name)
            if tie is None:
                groups = [(part_path, layer, layer_part_name) for layer in range(depth)]
            elif isinstance(tie.schedule, CrossStackTie):
                groups = [(tie.schedule.path, layer, tie.schedule.part)
                          for layer in tie.schedule.layers]
            else:
                groups = [(part_path, owner, layer_part_name)
                          for owner in tie.schedule.owners(depth)]
            sizes = None if stack.distinct_layers else _sizes(first_part, tie)
            for layer, group in enumerate(groups):
                layer_part = stack.layer_at(layer).parts().get(layer_part_name)
                if layer_part is None:  # absent in this layer
                    continue
                shared, own = sizes or _sizes(layer_part, tie)
                uses = calls * use.calls * (layer_part.calls if isinstance(layer_part, Use) else 1)
                yield group, shared, uses
                yield (part_path, layer, layer_part_name, "own"), own, uses


def _sizes(part: Block | Use, tie: Tie | None) -> tuple[int, int]:
    """Numbers of shared and of unshared weights in the matrices of a part."""
    sizes: list[Any] = [0, 0]  # indexed by whether each layer has its own
    for line in iterate_cost_lines(part.block if isinstance(part, Use) else part):
        if not any(work.operation == "norm" for work in line.loop_nests):
            for name, shape in line.weights.items():
                if name != "bias":
                    own = tie is not None and tie.excludes(line.path, name)
                    sizes[own] = sizes[own] + math.prod(shape)
    return sizes[0], sizes[1]
