"""Costs by module, as rows of a table; repeated layers are one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scalesearch.cost.ledger import Cost

COLLAPSED = "layers"  # a stack's layers stand for the stack: "encoder.layers.ffn" is shown as "encoder.ffn"


@dataclass(frozen=True)
class Row:
    """One module: its level in the tree, its name, unique params and MACs beneath it, calls a pass if it is a leaf."""

    level: int
    path: str
    params: int
    macs: int
    calls: int | None = None


def rows(cost: Cost, levels: int = 2) -> list[Row]:
    """Rows of modules down to ``levels`` (leaves are 3 or 4), in the model's order."""
    return list(_rows(cost, (), levels))


def _rows(cost: Cost, prefix: tuple[str, ...], levels: int) -> Iterator[Row]:
    children: dict[str, list[tuple[int, int, int, bool]]] = {}
    for entry in cost.entries:
        path = tuple(name for name in entry.path.split(".") if name != COLLAPSED)
        if path[: len(prefix)] == prefix and len(path) > len(prefix):
            leaf = len(path) == len(prefix) + 1
            children.setdefault(path[len(prefix)], []).append((entry.params, entry.macs, entry.calls, leaf))
    for name, entries in children.items():
        params, macs, calls, leaves = (sum(column) for column in zip(*entries))
        path = (*prefix, name)
        yield Row(len(prefix), ".".join(path), params, macs, calls if leaves == len(entries) == 1 else None)
        if len(path) < levels:
            yield from _rows(cost, path, levels)
