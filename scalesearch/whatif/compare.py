"""Comparison of architectures: params and MACs of modules, and their differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalesearch.cost import CostBreakdown
from scalesearch.cost.breakdown import module_costs

if TYPE_CHECKING:
    import pandas as pd

QUANTITIES = ("params", "macs")


@dataclass(frozen=True)
class ModuleRow:
    """Costs of one module in all architectures, 0 if an architecture does not have it.

    Attributes:
        path: path of the module, or ``total``.
        params, macs: one number per architecture.
        exists: whether each architecture has the module.
    """

    path: str
    params: tuple[int, ...]
    macs: tuple[int, ...]
    exists: tuple[bool, ...]

    @property
    def differences(self) -> dict[str, tuple[int, ...]]:
        """Quantity to the differences of the other architectures to the first one."""
        return {quantity: tuple(other - first for other in others)
                for quantity, (first, *others) in (("params", self.params), ("macs", self.macs))}

    @property
    def percent(self) -> dict[str, tuple[float | None, ...]]:
        """The same in percent of the first one; None if its cost is 0."""
        first = {"params": self.params[0], "macs": self.macs[0]}
        return {quantity: tuple(100 * difference / first[quantity] if first[quantity] else None
                                for difference in differences)
                for quantity, differences in self.differences.items()}

    @property
    def level(self) -> int:
        """Depth in the tree of modules."""
        return self.path.count(".")


@dataclass(frozen=True)
class CostComparison:
    """Costs of several architectures under one protocol; the last row is the total."""

    costs: Mapping[str, CostBreakdown]
    rows: tuple[ModuleRow, ...]

    def frame(self) -> pd.DataFrame:
        """Data frame with a row per module and columns such as ``params B - A %``."""
        import pandas as pd

        first, *others = self.costs
        columns: dict[str, list[Any]] = {"module": [row.path for row in self.rows]}
        for quantity in QUANTITIES:
            for index, label in enumerate(self.costs):
                columns[f"{quantity} {label}"] = [getattr(row, quantity)[index]
                                                  for row in self.rows]
            for index, label in enumerate(others):
                name = f"{quantity} {label} - {first}"
                columns[name] = [row.differences[quantity][index] for row in self.rows]
                columns[f"{name} %"] = [row.percent[quantity][index] for row in self.rows]
        return pd.DataFrame(columns)


def compare_costs(costs: Mapping[str, CostBreakdown], max_level: int = 2) -> CostComparison:
    """Compare the costs of all modules down to ``max_level``, and the totals.

    Args:
        costs: label to costs; all architectures are compared with the first one.

    Raises:
        ValueError: the costs have different protocols.
    """
    if len({cost.protocol.name for cost in costs.values()}) > 1:  # vocabularies may differ
        raise ValueError("costs under different protocols cannot be compared")
    tables = [{row.path: row for row in module_costs(cost, max_level)} for cost in costs.values()]
    paths: list[str] = []
    for table in tables:  # a new module is inserted after the module that precedes it
        position = -1
        for path in table:
            position = paths.index(path) if path in paths else position + 1
            if path not in paths:
                paths.insert(position, path)
    rows = []
    for path in paths:
        params, macs = (tuple(getattr(table[path], quantity) if path in table else 0
                              for table in tables) for quantity in QUANTITIES)
        rows.append(ModuleRow(path, params, macs, tuple(path in table for table in tables)))
    params, macs = (tuple(int(cost[f"{quantity}.total"]) for cost in costs.values())
                    for quantity in QUANTITIES)
    return CostComparison(costs, (*rows, ModuleRow("total", params, macs, (True,) * len(costs))))
