"""Costs as tables for people: by module, by section, and a line of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalesearch.cost.breakdown import QUANTITIES, CostBreakdown
from scalesearch.cost.latency import latency_interval
from scalesearch.cost.modules import module_costs
from scalesearch.space.schema.cost_names import COST_PARTS
from scalesearch.terminal import make_table

if TYPE_CHECKING:
    from rich.table import Table


def make_cost_tables(result: CostBreakdown, max_level: int = 2) -> tuple[Table, Table]:
    """Two tables: params and MACs of modules down to ``max_level``, and every quantity by section."""
    return _modules(result, max_level), _totals(result)


def _modules(result: CostBreakdown, max_level: int) -> Table:
    listed = module_costs(result, max_level)
    cells = [("  " * row.level + row.path.rsplit(".", 1)[-1],
              "" if row.calls is None else row.calls, f"{row.params:,}",
              _share(row.params, result["params.total"]), f"{row.macs:,}",
              _share(row.macs, result["macs.total"])) for row in listed]
    styles = ["" if row.level else "bold" for row in listed]
    return make_table(("module", "calls", "params", "%", "MACs", "%"), cells, row_styles=styles)


def _totals(result: CostBreakdown) -> Table:
    return make_table(("", *QUANTITIES),
                      [(section.replace("_", "-"),
                        *(f"{result[f'{quantity}.{section}']:,}" for quantity in QUANTITIES))
                       for section in COST_PARTS])


def memory_line(result: CostBreakdown) -> str:
    """Bytes of weights, cache and activations, with the artifact's and the predicted latency where there are any."""
    held = ", ".join(f"{name} {result[f'memory.{name}'] / 2**20:,.1f} MiB"
                     for name in ("weights", "cache"))
    kept = result["memory.activations"] / 2**20
    first = (f"memory in float32: {held}; a sentence's activations in training: about {kept:,.1f} "
             "MiB")
    return "\n".join([first, *artifact_lines(result)])


def artifact_lines(result: CostBreakdown) -> list[str]:
    """Bytes and predicted latency of the artifact that the protocol names; none where it names none."""
    artifact = result.protocol.artifact
    lines = list[str]()
    if artifact:
        lines.append(f"artifact.bytes {result['artifact.bytes']:,} of {artifact}")
    if result.latency:
        low, high = latency_interval(result.block, result.protocol)
        lines.append(f"latency.predicted {result['latency.predicted']:.3g} ms a sentence (90 %: "
                     f"{low:.3g} to {high:.3g})")
    return lines


def _share(part: int | float, whole: int | float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"
