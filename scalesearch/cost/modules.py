"""Costs by module, as table rows. The layers of a stack are one module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scalesearch.cost.breakdown import CostBreakdown

# This path component is omitted: "encoder.layers.ffn" is shown as "encoder.ffn".
COLLAPSED_MODULE = "layers"


@dataclass(frozen=True)
class ModuleCost:
    """Cost of one module and everything inside it.

    Attributes:
        level: depth in the tree of modules.
        calls: calls per forward pass; None if the module is not a single leaf block.
    """

    level: int
    path: str
    params: int
    macs: int
    calls: int | None = None


def module_costs(cost: CostBreakdown, max_level: int = 2) -> list[ModuleCost]:
    """Costs of modules down to ``max_level``, in the order of the model.

    Leaf blocks are at level 3 or 4.
    """
    return list(_rows(cost, (), max_level))


def _rows(cost: CostBreakdown, prefix: tuple[str, ...], max_level: int) -> Iterator[ModuleCost]:
    children: dict[str, list[tuple[int, int, int, bool]]] = {}
    for leaf in cost.leaf_costs:
        path = tuple(name for name in leaf.path.split(".") if name != COLLAPSED_MODULE)
        if path[: len(prefix)] == prefix and len(path) > len(prefix):
            is_child = len(path) == len(prefix) + 1
            children.setdefault(path[len(prefix)],
                                []).append((leaf.params, leaf.macs, leaf.calls, is_child))
    for name, leaves in children.items():
        params, macs, calls, n_children = (sum(column) for column in zip(*leaves))
        path = (*prefix, name)
        yield ModuleCost(len(prefix), ".".join(path), params, macs,
                         calls if n_children == len(leaves) == 1 else None)
        if len(path) < max_level:
            yield from _rows(cost, path, max_level)
