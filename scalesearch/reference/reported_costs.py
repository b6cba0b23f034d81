"""Costs that papers report in their tables, from the YAML files in ``tables``.

A file has the paper, its space, its rounding, its protocol and its vocabularies, then entries::

    - { table: 5, row: Transformer, file: baseline, vocab: en-fr, params.total: [62M, 62.176M], why:
      … }

``file`` is an architecture of ``spaces/reference``, ``set`` changes some of its keys, and ``layer``
selects a single layer of that stack. A key with a dot is a reported cost: its value is the reported
text and the result of an independent recomputation. ``why`` is the likely reason of a mismatch, and
``note`` a remark for readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scalesearch.cost import Protocol, load_protocol

PAPERS = ("partialformer", "anthe", "edgeformer", "second-tier")


@dataclass(frozen=True)
class ReportedCost:
    """A number that a paper reports for an architecture.

    Args:
        space: the shipped space that contains all models of the paper, or an empty text.
        settings: keys of the file that differ for this model.
        layer: ``encoder`` or ``decoder`` if the number is for a single layer of it.
        recomputed_text: the result of an independent recomputation.
        allowed_roundings: rounding modes of the paper, in addition to the nearest.
        mismatch_reason: the likely reason if the numbers differ.
    """

    paper: str
    space: str
    table: str
    model_name: str
    file: str
    settings: Mapping[str, str]
    layer: str | None
    quantity: str
    protocol: Protocol
    reported_text: str
    recomputed_text: str
    allowed_roundings: tuple[str, ...]
    mismatch_reason: str
    note: str


def load_reported_costs(paper: str) -> list[ReportedCost]:
    """All reported costs of a paper (one of ``PAPERS``), in the order of its tables."""
    table_file = read_paper(paper)
    costs = []
    for entry in table_file["rows"]:
        vocab = entry.get("vocab")
        protocol = load_protocol(table_file["protocol"], vocab=None if vocab is None
                                 else table_file["vocabularies"][vocab])
        reason = entry.get("why", "")
        settings = {key: str(value) for key, value in entry.get("set", {}).items()}
        for quantity in (key for key in entry if "." in key):
            reported_text, recomputed_text = entry[quantity]
            costs.append(ReportedCost(
                paper=table_file["paper"], space=table_file["space"], table=str(entry["table"]),
                model_name=entry["row"], file=entry["file"], settings=settings,
                layer=entry.get("layer"), quantity=quantity, protocol=protocol,
                reported_text=reported_text, recomputed_text=recomputed_text,
                allowed_roundings=tuple(table_file["rounding"]),
                mismatch_reason=reason.get(quantity, "") if isinstance(reason, Mapping) else reason,
                note=entry.get("note", "")))
    return costs


def excluded_rows(paper: str) -> list[Mapping[str, str]]:
    """The rows of the paper that are excluded, with reasons."""
    rows: list[Mapping[str, str]] = read_paper(paper)["left_out"]
    return rows


@cache
def read_paper(paper: str) -> Mapping[str, Any]:
    """The content of the file with the tables of a paper."""
    import yaml

    text = (Path(__file__).parent / "tables" / f"{paper}.yaml").read_text(encoding="utf-8")
    table_file: Mapping[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return table_file
