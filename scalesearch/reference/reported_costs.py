"""The rows of the papers' tables, read from the YAML files in `tables`.

A file names the paper, its space, how it rounds, its protocol and its vocabularies; then come the
architectures: 

    - { table: 5, row: Transformer, file: baseline, vocab: en-fr, params.total: [62M, 62.176M], why:
      … }

``file`` is an architecture of ``spaces/reference``, ``set`` changes some of its keys, ``layer``
means one layer of that stack alone. A key with a dot is what the table prints: the printed text,
and what an independent recomputation has. ``why`` says what is known of an entry that does not fit
as it is read here, ``note`` what else a reader should know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scalesearch.cost import Protocol, load_protocol

PAPERS = ("partialformer", "anthe", "edgeformer", "second-tier")


@dataclass(frozen=True)
class ReportedCost:
    """One number that a paper prints of one architecture.

    Args:
        space: the shipped space that holds all rows of the paper; empty where there is none.
        settings: keys of the file that differ in this row.
        layer: ``encoder`` or ``decoder`` where the number is that of one layer.
        recomputed_text: what the independent recomputation prints for it.
        allowed_roundings: how the paper rounds besides to the nearest.
        mismatch_reason: what is known of an entry that does not fit as it is read here.
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
    """All rows of a paper (one of ``PAPERS``), in the order of its tables."""
    sheet = read_paper(paper)
    return [row for entry in sheet["rows"] for row in _rows(sheet, entry)]


def excluded_rows(paper: str) -> list[Mapping[str, str]]:
    """Which rows of the paper are not here, and why."""
    found: list[Mapping[str, str]] = read_paper(paper)["left_out"]
    return found


def _rows(sheet: Mapping[str, Any], entry: Mapping[str, Any]) -> Iterator[ReportedCost]:
    """A row for each number that an entry prints."""
    why = entry.get("why", "")
    for quantity in (key for key in entry if "." in key):
        printed, expected = entry[quantity]
        yield ReportedCost(paper=sheet["paper"], space=sheet["space"], table=str(entry["table"]),
                           model_name=entry["row"], file=entry["file"],
                           settings={key: str(value)
                                     for key, value in entry.get("set", {}).items()},
                           layer=entry.get("layer"), quantity=quantity,
                           protocol=_protocol(sheet, entry.get("vocab")), reported_text=printed,
                           recomputed_text=expected, allowed_roundings=tuple(sheet["rounding"]),
                           mismatch_reason=why.get(quantity, "") if isinstance(why, Mapping)
                           else why, note=entry.get("note", ""))


def _protocol(sheet: Mapping[str, Any], vocab: str | None) -> Protocol:
    return load_protocol(sheet["protocol"],
                         vocab=None if vocab is None else sheet["vocabularies"][vocab])


@cache
def read_paper(paper: str) -> Mapping[str, Any]:
    """The tables of a paper as they stand in its file."""
    import yaml

    text = (Path(__file__).parent / "tables" / f"{paper}.yaml").read_text(encoding="utf-8")
    sheet: Mapping[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return sheet
