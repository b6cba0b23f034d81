"""Architectures side by side: params and MACs of every module, and how they differ from the first one's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalesearch.cost import Cost
from scalesearch.cost.modules import rows

if TYPE_CHECKING:
    import pandas as pd

QUANTITIES = ("params", "macs")
TOTAL = "total"


@dataclass(frozen=True)
class ModuleRow:
    """One module in all architectures; a module that an architecture lacks costs 0 there.

    Attributes:
        path: the module; ``total`` for the whole.
        params, macs: one number for each architecture.
    """

    path: str
    params: tuple[int, ...]
    macs: tuple[int, ...]

    @property
    def level(self) -> int:
        """Its depth in the tree of modules."""
        return self.path.count(".")

    def differences(self, quantity: str) -> tuple[int, ...]:
        """Of the second and later architectures to the first."""
        first, *others = getattr(self, quantity)
        return tuple(other - first for other in others)

    def shares(self, quantity: str) -> tuple[float | None, ...]:
        """The differences in percent of the first; None where that is 0."""
        first = getattr(self, quantity)[0]
        return tuple(100 * difference / first if first else None for difference in self.differences(quantity))


@dataclass(frozen=True)
class Comparison:
    """Costs side by side, under one protocol; the last row is the total."""

    costs: Mapping[str, Cost]
    rows: tuple[ModuleRow, ...]

    def frame(self) -> pd.DataFrame:
        """One row for each module: ``params A``, ``params B``, ``params B - A``, ``params B - A %`` and so on."""
        import pandas as pd

        return pd.DataFrame([self._record(row) for row in self.rows])

    def _record(self, row: ModuleRow) -> dict[str, Any]:
        first, *others = self.costs
        record: dict[str, Any] = {"module": row.path}
        for quantity in QUANTITIES:
            record |= {f"{quantity} {label}": size for label, size in zip(self.costs, getattr(row, quantity))}
            for label, difference, share in zip(others, row.differences(quantity), row.shares(quantity)):
                name = f"{quantity} {label} - {first}"
                record |= {name: difference, f"{name} %": share}
        return record

    def to_json(self) -> dict[str, Any]:
        """For ``--json``: each architecture's costs, and the modules."""
        modules = [
            {"path": row.path, "params": list(row.params), "macs": list(row.macs),
             "differences": {q: list(row.differences(q)) for q in QUANTITIES},
             "percent": {q: list(row.shares(q)) for q in QUANTITIES}}
            for row in self.rows
        ]  # fmt: skip
        whole = [{"name": name} | cost.to_json() for name, cost in self.costs.items()]
        return {"protocol": whole[0]["protocol"], "architectures": whole, "modules": modules}


def compare(costs: Mapping[str, Cost], levels: int = 2) -> Comparison:
    """Every module of any of them down to ``levels``, in the order of the models, and the total.

    Args:
        costs: by the name that each architecture is to have; the first is what the others are compared with.

    Raises:
        ValueError: the costs are stated under different protocols.
    """
    if len({str(cost.protocol) for cost in costs.values()}) > 1:
        raise ValueError("costs under different protocols cannot be compared")
    tables = [{row.path: row for row in rows(cost, levels)} for cost in costs.values()]
    modules = [
        ModuleRow(path, *(tuple(getattr(t[path], q) if path in t else 0 for t in tables) for q in QUANTITIES))
        for path in _merged([list(table) for table in tables])
    ]
    totals = (tuple(int(cost[f"{quantity}.total"]) for cost in costs.values()) for quantity in QUANTITIES)
    return Comparison(costs, (*modules, ModuleRow(TOTAL, *totals)))


def _merged(orders: Sequence[Sequence[str]]) -> list[str]:
    """All names, in an order that fits every list as far as they agree: a new one follows the one before it."""
    merged = list(orders[0])
    for order in orders[1:]:
        at = -1
        for name in order:
            if name in merged:
                at = merged.index(name)
            else:
                at += 1
                merged.insert(at, name)
    return merged
