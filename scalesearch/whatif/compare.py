"""Architectures side by side: params and MACs of every module, and how they differ from the first one's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalesearch.cost import CostBreakdown
from scalesearch.cost.modules import module_costs

if TYPE_CHECKING:
    import pandas as pd

QUANTITIES = ("params", "macs")


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

    def relative_differences(self, quantity: str) -> tuple[float | None, ...]:
        """The differences in percent of the first; None where that is 0."""
        first = getattr(self, quantity)[0]
        return tuple(100 * difference / first if first else None
                     for difference in self.differences(quantity))

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return vars(self) | {
            "differences": {quantity: self.differences(quantity) for quantity in QUANTITIES},
            "percent": {quantity: self.relative_differences(quantity) for quantity in QUANTITIES}}


@dataclass(frozen=True)
class CostComparison:
    """Costs side by side, under one protocol; the last row is the total."""

    costs: Mapping[str, CostBreakdown]
    rows: tuple[ModuleRow, ...]

    def frame(self) -> pd.DataFrame:
        """One row for each module: ``params A``, ``params B``, ``params B - A``, ``params B - A %`` and so on."""
        import pandas as pd

        first, *others = self.costs
        columns: dict[str, list[Any]] = {"module": [row.path for row in self.rows]}
        for quantity in QUANTITIES:
            for at, label in enumerate(self.costs):
                columns[f"{quantity} {label}"] = [getattr(row, quantity)[at] for row in self.rows]
            for at, label in enumerate(others):
                name = f"{quantity} {label} - {first}"
                columns[name] = [row.differences(quantity)[at] for row in self.rows]
                columns[f"{name} %"] = [row.relative_differences(quantity)[at] for row in self.rows]
        return pd.DataFrame(columns)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``: each architecture's costs, and the modules."""
        whole = [{"name": name} | cost.to_json() for name, cost in self.costs.items()]
        modules = [row.to_json() for row in self.rows]
        return {"protocol": whole[0]["protocol"], "architectures": whole, "modules": modules}


def compare_costs(costs: Mapping[str, CostBreakdown], max_level: int = 2) -> CostComparison:
    """Every module of any of them down to ``max_level``, in the order of the models, and the total.

    Args:
        costs: by the name that each architecture is to have; the first is what the others are
            compared with.

    Raises:
        ValueError: the costs are stated under different protocols.
    """
    if len({str(cost.protocol) for cost in costs.values()}) > 1:
        raise ValueError("costs under different protocols cannot be compared")
    tables = [{row.path: row for row in module_costs(cost, max_level)} for cost in costs.values()]
    paths: list[str] = []
    for table in tables:  # a module that the ones before do not have follows the one before it
        at = -1
        for path in table:
            at = paths.index(path) if path in paths else at + 1
            if path not in paths:
                paths.insert(at, path)
    modules = [ModuleRow(path,
                         *(tuple(getattr(t[path], q) if path in t else 0 for t in tables)
                           for q in QUANTITIES)) for path in paths]
    totals = (tuple(int(cost[f"{quantity}.total"]) for cost in costs.values())
              for quantity in QUANTITIES)
    return CostComparison(costs, (*modules, ModuleRow("total", *totals)))
