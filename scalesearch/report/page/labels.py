"""Labels of metrics and costs with their units, and numbers as a page writes them."""

import math
from collections.abc import Mapping
from typing import Any

from scalesearch.report.plot import describe
from scalesearch.report.table import cell

GROUPS = {"params": "params", "macs": "MACs", "flops": "FLOPs"}
LOADS = {"mean": "Mean load (uses of a weight in a pass)", "balance": "Balance of loads (Jain's index, 0 to 1)",
         "min": "Least load (uses of a weight in a pass)", "max": "Greatest load (uses of a weight in a pass)"}


def label(name: str, protocol: Mapping[str, Any] | None = None) -> str:
    """Label of a metric or cost with its unit on one line, of costs with their ``protocol`` if it is given."""
    group, _, section = name.partition(".")
    return LOADS.get(section, name) if group == "load" else describe(name, protocol or {}).replace("\n", " ")


def heading(name: str) -> str:
    """Heading of a column whose caption names the protocol: ``BLEU (valid)``, ``MACs``, ``params, non-embedding``."""
    group, _, section = name.partition(".")
    if group not in GROUPS:
        return label(name)
    return GROUPS[group] + ("" if section == "total" else f", {section.replace('_', '-')}")


def protocol_words(protocol: Mapping[str, Any]) -> str:
    """The protocol: ``forward: 15 source, 15 target tokens, vocabulary 8,000``."""
    return (f"{protocol['name']}: {protocol['source']} source, {protocol['target']} target tokens, vocabulary "
            f"{protocol['vocab']:,}")


def shown(row: Any, name: str) -> str:
    """A row's number in column ``name``, with its interval where it has several seeds."""
    return f"{row[name]:.3g}" if name.startswith("load.") and row[name] is not None else cell(row, name)


def brief(value: Any) -> str:
    """A hyperparameter's value: numbers to six digits, a gap as a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)) or value == "":
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def summary(row: Any, columns: Mapping[str, str]) -> str:
    """A trial in one line: its name, and ``columns`` (column to words) with their numbers."""
    name = f"trial {row['trial']}" + (f" ({row['label']})" if isinstance(row["label"], str) else "")
    return "; ".join([name, *(f"{words} {shown(row, column)}" for column, words in columns.items())])
