"""Names of metrics and costs with their units, and numbers as a page writes them."""

import math
from collections.abc import Mapping
from typing import Any

from scalesearch.report.plot import describe
from scalesearch.report.table import cell
from scalesearch.tasks import METRICS

GROUPS = {"params": "params", "macs": "MACs", "flops": "FLOPs"}
LOADS = {"mean": "Mean load (uses of a weight in a pass)", "balance": "Balance of loads (Jain's index, 0 to 1)",
         "min": "Least load (uses of a weight in a pass)", "max": "Greatest load (uses of a weight in a pass)"}


def label(name: str, protocol: Mapping[str, Any], split: bool = True) -> str:
    """A metric or cost with its unit, on one line; costs with their protocol unless ``protocol`` is empty."""
    group, _, section = name.partition(".")
    if group == "load":
        return LOADS.get(section, name)
    if not split and name in METRICS:
        return METRICS[name].words
    return describe(name, protocol).replace("\n", " ")


def heading(name: str) -> str:
    """A metric or cost at the head of a column, whose caption names the protocol: ``BLEU (valid)``, ``MACs``."""
    group, _, section = name.partition(".")
    if group not in GROUPS:
        return label(name, {})
    return GROUPS[group] + ("" if section == "total" else f", {section.replace('_', '-')}")


def under(protocol: Mapping[str, Any]) -> str:
    """The protocol in words: ``forward: 15 source, 15 target tokens, vocabulary 8,000``."""
    return (f"{protocol['name']}: {protocol['source']} source, {protocol['target']} target tokens, vocabulary "
            f"{protocol['vocab']:,}")


def shown(row: Any, name: str) -> str:
    """A table's number of one row, with its interval where it has several seeds."""
    value = row[name]
    if name.startswith("load.") and value is not None:
        return f"{value:.3g}"
    return cell(row, name)


def brief(value: Any) -> str:
    """An answer: numbers to six digits, nothing as a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)) or value == "":
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def tell(row: Any, names: Mapping[str, str]) -> str:
    """A candidate's mark in words: its trial, and each of ``names`` (column to words)."""
    name = f"trial {row['trial']}" + (f" ({row['label']})" if isinstance(row["label"], str) else "")
    return "; ".join([name, *(f"{words} {shown(row, column)}" for column, words in names.items())])
