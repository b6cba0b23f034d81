"""``scalesearch reference``: reported sizes of papers, recomputed."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import option, print_costs
from scalesearch.errors import UserError
from scalesearch.terminal import make_table, print_text, wide_console

if TYPE_CHECKING:
    from scalesearch.reference import RecomputedCost

HEADINGS = ("table", "model", "quantity", "reported", "recomputed", "result")
COMMON_HEADINGS = ("table", "model", "non-embedding", "params", "GFLOPs")
COMPARED_COSTS = ("params.non_embedding", "params.total", "macs.total", "macs.once", "flops.total")
RESULT_STYLES = {"equal": "green", "rounding": "yellow", "no fit": "red"}


@click.command(name="reference")
@click.option("--paper", metavar="NAME",
              help="partialformer, anthe, edgeformer, or second-tier: other published "
                   "architectures (default: all).")
@option("json")
def command(paper: str | None, as_json: bool) -> None:
    """Recompute the sizes that papers report.

    Each size is computed under the protocol of its paper. A second table gives the costs of all
    models under one common protocol.

    \b
    Example: scalesearch reference --paper partialformer
    """
    from scalesearch.reference import (
        COMMON_PROTOCOL,
        PAPERS,
        excluded_rows,
        load_reported_costs,
        recompute,
    )

    if paper is not None and paper.lower() not in PAPERS:
        matches = difflib.get_close_matches(paper.lower(), PAPERS, 1, 0.4)
        suggestion = f"; did you mean {matches[0]}?" if matches else ""
        raise UserError(f"--paper {paper}: expected one of {', '.join(PAPERS)}{suggestion}",
                        code="unknown-paper")
    papers = PAPERS if paper is None else (paper.lower(),)
    entries_by_paper = {name: [recompute(row) for row in load_reported_costs(name)]
                        for name in papers}
    if as_json:
        print_costs({"common": COMMON_PROTOCOL.facts,
                     "verdicts": {name: _count(entries)
                                  for name, entries in entries_by_paper.items()},
                     "rows": [_record(entry) for entries in entries_by_paper.values()
                              for entry in entries],
                     "left_out": {name: [dict(row) for row in excluded_rows(name)]
                                  for name in papers}}, COMMON_PROTOCOL)
    else:
        _show(entries_by_paper)


def _record(entry: RecomputedCost) -> dict[str, Any]:
    """Return all fields of an entry as JSON values, with exact numbers."""
    reported = entry.reported
    common = entry.common_cost
    return {"paper": reported.paper, "table": reported.table, "model": reported.model_name,
            "file": f"reference/{reported.file}", "overrides": dict(reported.settings),
            "layer": reported.layer, "architecture": entry.architecture.id,
            "quantity": reported.quantity, "protocol": reported.protocol.facts,
            "reported": reported.reported_text,
            "independently_recomputed": reported.recomputed_text, "recomputed": entry.recomputed,
            "agreement": entry.agreement.name, "rounding": entry.agreement.rounding_mode,
            "mismatch_reason": entry.mismatch_reason, "note": reported.note,
            "common": {**{name: common[name] for name in COMPARED_COSTS},
                       "protocol": common.protocol.facts}}


def _count(entries: list[RecomputedCost]) -> dict[str, int]:
    """Count the entries per level of agreement."""
    from scalesearch.reference import AGREEMENT_LEVELS

    counts = Counter(entry.agreement.name for entry in entries)
    return {name: counts[name] for name in AGREEMENT_LEVELS}


def _show(entries_by_paper: dict[str, list[RecomputedCost]]) -> None:
    from scalesearch.reference import COMMON_PROTOCOL

    console = wide_console()
    for entries in entries_by_paper.values():
        print_text(make_table(HEADINGS, map(_cells, entries), left_columns=(0, 1, 2, 5),
                              title=entries[0].reported.paper), console)
        # Mismatch reasons and notes, each text once.
        models_by_remark: dict[str, list[str]] = {}
        for entry in entries:
            remarks = [f"no fit: {entry.mismatch_reason}"] if entry.mismatch_reason else []
            remarks += [entry.reported.note] if entry.reported.note else []
            table = entry.reported.table
            name = f"table {table}" if table.isdigit() else table
            for remark in remarks:
                models_by_remark.setdefault(remark, []).append(
                    f"{name}, {entry.reported.model_name}")
        for remark, models in models_by_remark.items():
            print_text(f"{'; '.join(dict.fromkeys(models))}: {remark}")
        if models_by_remark:
            print_text("")
        common_rows = {tuple(row): row for row in map(_common_cells, entries)}
        print_text(make_table(COMMON_HEADINGS, common_rows.values(), left_columns=(0, 1),
                              title=f"Under protocol {COMMON_PROTOCOL}"), console)
    all_entries = [entry for entries in entries_by_paper.values() for entry in entries]
    protocols = dict.fromkeys(f"{entry.reported.paper}: {entry.reported.protocol.name}"
                              for entry in all_entries)
    for paper, entries in entries_by_paper.items():
        counts = ", ".join(f"{count} {name}" for name, count in _count(entries).items())
        print_text(f"{paper}: {len(entries)} reported numbers: {counts}")
    print_text("equal: at the reported digits; rounding: truncated or rounded up, as elsewhere in "
               "the paper; no fit: differs under the interpretation used (some remarks name one "
               "that agrees)\nrecomputed under the papers' own protocols "
               f"({', '.join(protocols)}; lengths and vocabularies with --json)\nprotocol "
               f"{COMMON_PROTOCOL}: {COMMON_PROTOCOL.conventions}; a decoder-only model "
               "reads S + T tokens")
    for line in COMMON_PROTOCOL.weight_work_lines(
            *(entry.common_cost["macs.once"] for entry in all_entries)):
        print_text(f"of these, {line}")


def _cells(entry: RecomputedCost) -> list[Any]:
    from rich.text import Text

    row = entry.reported
    return [row.table, row.model_name, row.quantity, row.reported_text,
            f"{entry.recomputed:,}",
            Text(str(entry.agreement), RESULT_STYLES[entry.agreement.name])]


def _common_cells(entry: RecomputedCost) -> list[Any]:
    row, common = entry.reported, entry.common_cost
    return [row.table, row.model_name, f"{common['params.non_embedding']:,}",
            f"{common['params.total']:,}", f"{common['flops.total'] / 1e9:.3f}"]
