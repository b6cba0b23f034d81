"""Cost tables for the terminal: by module and by section, and a line on memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalesearch.cost.artifact import tokenizer_bytes
from scalesearch.cost.breakdown import QUANTITIES, CostBreakdown, module_costs
from scalesearch.cost.latency import latency_interval
from scalesearch.spaces.schema.cost_names import COST_PARTS
from scalesearch.terminal import format_bytes, make_table

if TYPE_CHECKING:
    from rich.table import Table


def make_cost_tables(result: CostBreakdown, max_level: int = 2) -> tuple[Table, Table]:
    """Make tables of params and MACs by module, and of all costs by section."""
    modules = module_costs(result, max_level)
    cells = [("  " * row.level + row.path.rsplit(".", 1)[-1],
              "" if row.calls is None else row.calls, f"{row.params:,}",
              _share(row.params, result["params.total"]), f"{row.macs:,}",
              _share(row.macs, result["macs.total"])) for row in modules]
    styles = ["" if row.level else "bold" for row in modules]
    totals = [(section.replace("_", "-"),
               *(f"{result[f'{quantity}.{section}']:,}" for quantity in QUANTITIES))
              for section in COST_PARTS]
    return (make_table(("module", "calls", "params", "%", "MACs", "%"), cells, row_styles=styles),
            make_table(("", *QUANTITIES), totals))


def memory_line(result: CostBreakdown) -> str:
    """Memory of weights, cache and activations, and :func:`artifact_lines`."""
    weights, cache, activations = (format_bytes(result[f"memory.{name}"])
                                   for name in ("weights", "cache", "activations"))
    protocol = result.protocol
    cache_type = f" in {protocol.cache}" if protocol.cache != "float32" else ""
    line = (f"memory in float32: weights {weights}, cache {cache}{cache_type}; training "
            f"activations per {'text' if protocol.length else 'sentence'}: about {activations}")
    decodes = "decode_step" in result.by_quantity["macs"]
    context = [f"context of {protocol.length:,} tokens: prefill {result['macs.prefill']:,} MACs, "
               f"decoding step {result['macs.decode_step']:,} MACs, cache {cache}{cache_type}"
               ] if decodes else []
    active = [f"params.active {result['params.active']:,}: those that one token uses"
              ] if result["params.active"] != result["params.total"] else []
    return "\n".join([line, *active, *context, *training_lines(result), *artifact_lines(result)])


def training_lines(result: CostBreakdown) -> list[str]:
    """MACs and memory of training, if the protocol has a recipe."""
    values = result.values
    macs = [f"{name} {values[name]:,}" for name in ("macs.update", "macs.run") if name in values]
    memory = [f"{name} {format_bytes(values[name])}"
              for name in ("memory.optimizer", "memory.training") if name in values]
    return [f"training: {', '.join([*macs, *memory])}"] if macs or memory else []


def artifact_lines(result: CostBreakdown) -> list[str]:
    """Bytes and predicted latency of the exported model, if the protocol has them."""
    artifact = result.protocol.artifact
    lines = list[str]()
    if artifact:
        tokenizer = ("" if artifact == "torch" else "; the folder also contains tokenizer.model, "
                     f"about {tokenizer_bytes(result.block, result.protocol):,} bytes")
        lines.append(f"artifact.bytes {result['artifact.bytes']:,} of {artifact}{tokenizer}")
    if result.latency:
        low, high = latency_interval(result.block, result.protocol)
        lines.append(f"latency.predicted {result['latency.predicted']:.3g} ms per sentence (90 % "
                     f"interval: {low:.3g} to {high:.3g})")
    return lines


def _share(part: int | float, whole: int | float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"
