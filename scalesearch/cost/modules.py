"""Costs by module, as rows of a table; repeated layers are one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scalesearch.cost.breakdown import CostBreakdown

# a stack's layers stand for the stack: "encoder.layers.ffn" is shown as "encoder.ffn"
COLLAPSED_MODULE = "layers"


@dataclass(frozen=True)
class ModuleCost:
    """One module: its level in the tree, its name, unique params and MACs beneath it, calls a pass if it is a leaf."""

    level: int
    path: str
    params: int
    macs: int
    calls: int | None = None


def module_costs(cost: CostBreakdown, max_level: int = 2) -> list[ModuleCost]:
    """Rows of modules down to ``max_level`` (leaves are 3 or 4), in the model's order."""
    return list(_rows(cost, (), max_level))


def _rows(cost: CostBreakdown, prefix: tuple[str, ...], max_level: int) -> Iterator[ModuleCost]:
    children: dict[str, list[tuple[int, int, int, bool]]] = {}
    for entry in cost.leaf_costs:
        path = tuple(name for name in entry.path.split(".") if name != COLLAPSED_MODULE)
        if path[: len(prefix)] == prefix and len(path) > len(prefix):
            leaf = len(path) == len(prefix) + 1
            children.setdefault(path[len(prefix)],
                                []).append((entry.params, entry.macs, entry.calls, leaf))
    for name, entries in children.items():
        params, macs, calls, leaves = (sum(column) for column in zip(*entries))
        path = (*prefix, name)
        yield ModuleCost(len(prefix), ".".join(path), params, macs,
                         calls if leaves == len(entries) == 1 else None)
        if len(path) < max_level:
            yield from _rows(cost, path, max_level)
