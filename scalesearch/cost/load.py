"""Load and balance of parameter groups (EdgeFormer, section 3.2).

A group is the matrices of one part (an attention, a feed-forward network) of the layers that share
them; biases and norms are left out. Its load l is how many times a pass uses it, its size p how
many weights it has. The mean is R = Σ p l / Σ p, and the balance is Jain's index (Σ p l)² / (Σ p ·
Σ p l²): 1 where all loads are equal.
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
    """Weights that some layers share: ``name`` is the owner's path (``(own)``: what stays one a layer)."""

    name: str
    params: int
    load: int


def weight_groups(root: Block) -> list[WeightGroup]:
    """Parameter groups of a model's layers, without empty ones, in the order of first use."""
    groups = _size_and_load_by_group(root).items()
    return [WeightGroup(_name(key), size, load) for key, (size, load) in groups if is_set(size)]


def load_balance(root: Block) -> Mapping[str, float]:
    """``load.mean``, ``load.balance``, ``load.min`` and ``load.max`` of a model's layers; all 1 where it has none."""
    pairs = [(size, load) for size, load in _size_and_load_by_group(root).values() if is_set(size)]
    if not pairs:
        return dict.fromkeys(LOAD_COST_NAMES, 1.0)
    total = sum(p for p, _ in pairs)
    used = sum(p * n for p, n in pairs)
    mean = used / total
    loads = [n for _, n in pairs]
    balance = mean * mean / (sum(p * n**2 for p, n in pairs) / total)
    return dict(zip(LOAD_COST_NAMES, (mean, balance, float(min(loads)), float(max(loads)))))


def _size_and_load_by_group(root: Block) -> dict[Any, list[int]]:
    """Group to its size and its load."""
    groups: dict[Any, list[int]] = {}
    for key, size, times in _uses(root, "", 1):
        groups.setdefault(key, [size, 0])[1] += times
    return groups


def _name(key: tuple[Any, ...]) -> str:
    path, layer, part, *own = key
    return f"{path}.{layer}.{part}" + " (own)" * bool(own)


def _uses(node: Block, path: str, calls: int) -> Iterator[tuple[Any, int, int]]:
    """(group, its size, uses) of every part of every layer beneath ``node``."""
    for name, part in node.parts().items() if not isinstance(node, Repeat) else ():
        use = part if isinstance(part, Use) else Use(part)
        where = join_path(path, name)
        if isinstance(use.block, Repeat):
            yield from _layers(use.block, where, calls * use.calls)
        elif _holds_layers(use.block):
            yield from _uses(use.block, where, calls * use.calls)


def _holds_layers(node: Block) -> bool:
    from scalesearch.blocks.stacks import BottleneckStack, Stack

    return isinstance(node, Stack | BottleneckStack)


def _layers(node: Repeat, path: str, calls: int) -> Iterator[tuple[Any, int, int]]:
    ties = {tie.part: tie for tie in node.ties}
    for name, part in node.layer.parts().items():
        tie = ties.get(name)
        sizes = None if node.distinct_layers else _sizes(part, tie)
        for layer, group in enumerate(_groups(tie, path, name, require_single_value(node.depth))):
            mine = node.layer_at(layer).parts()[name]
            shared, own = sizes or _sizes(mine, tie)
            uses = calls * (mine.calls if isinstance(mine, Use) else 1)
            yield group, shared, uses
            yield (path, layer, name, "own"), own, uses


def _groups(tie: Tie | None, path: str, part: str, depth: int) -> list[Any]:
    """An identifier of the weights of each layer."""
    if tie is None:
        return [(path, layer, part) for layer in range(depth)]
    if isinstance(tie.schedule, CrossStackTie):
        return [(tie.schedule.path, layer, tie.schedule.part) for layer in tie.schedule.layers]
    return [(path, owner, part) for owner in tie.schedule.owners(depth)]


def _sizes(part: Block | Use, tie: Tie | None) -> tuple[int, int]:
    """Weights in a part's matrices: (shared, each layer's own)."""
    sizes: list[Any] = [0, 0]
    for line in iterate_cost_lines(part.block if isinstance(part, Use) else part):
        if not any(work.operation == "norm" for work in line.loop_nests):
            for name, shape in line.weights.items():
                if name != "bias":
                    own = tie is not None and tie.excludes(line.path, name)
                    sizes[own] = sizes[own] + math.prod(shape)
    return sizes[0], sizes[1]
