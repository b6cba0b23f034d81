"""``scalesearch reference``: reported sizes of papers, recomputed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import json_option, print_costs
from scalesearch.errors import UserError
from scalesearch.terminal import make_table, open_console, print_text, wide_console

if TYPE_CHECKING:
    from scalesearch.reference import RecomputedCost

HEADINGS = ("paper", "table", "model", "quantity", "reported", "recomputed", "result",
            "non-embedding", "params", "GFLOPs")
RESULT_STYLES = {"equal": "green", "rounding": "yellow", "no fit": "red"}


@click.command(name="reference")
@click.option("--paper", metavar="NAME",
              help="partialformer, anthe, edgeformer or second-tier (default: all).")
@json_option
def command(paper: str | None, as_json: bool) -> None:
    """Recompute the sizes that papers report.

    Each size is computed under the protocol of its paper. The last columns give the costs of all
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

    papers = PAPERS if paper is None else (_check_paper(paper, PAPERS),)
    entries_by_paper = {name: [recompute(row) for row in load_reported_costs(name)]
                        for name in papers}
    if as_json:
        print_costs({"common": COMMON_PROTOCOL.to_json(),
                     "verdicts": {name: _count(entries)
                                  for name, entries in entries_by_paper.items()},
                     "rows": [entry.to_json() for entries in entries_by_paper.values()
                              for entry in entries],
                     "left_out": {name: [dict(row) for row in excluded_rows(name)]
                                  for name in papers}}, COMMON_PROTOCOL)
    else:
        _show(entries_by_paper)


def _check_paper(paper: str, papers: tuple[str, ...]) -> str:
    """Return the name of a paper. Raises UserError with a suggestion."""
    import difflib

    name = paper.lower()
    if name in papers:
        return name
    matches = difflib.get_close_matches(name, papers, 1, 0.4)
    suggestion = f"; did you mean {matches[0]}?" if matches else ""
    raise UserError(f"--paper {paper}: expected one of {', '.join(papers)}{suggestion}",
                    code="unknown-paper")


def _count(entries: list[RecomputedCost]) -> dict[str, int]:
    """Count the entries per level of agreement."""
    from scalesearch.reference import AGREEMENT_LEVELS

    counts = Counter(entry.agreement.name for entry in entries)
    return {name: counts[name] for name in AGREEMENT_LEVELS}


def _show(entries_by_paper: dict[str, list[RecomputedCost]]) -> None:
    from scalesearch.reference import COMMON_PROTOCOL

    console = open_console() if open_console().is_terminal else wide_console()
    for entries in entries_by_paper.values():
        print_text(make_table(HEADINGS, map(_cells, entries), left_columns=(0, 1, 2, 3, 6)),
                   console)
        _print_remarks(entries)
    all_entries = [entry for entries in entries_by_paper.values() for entry in entries]
    counts = ", ".join(f"{count} {name}" for name, count in _count(all_entries).items())
    protocols = dict.fromkeys(f"{entry.reported.paper}: {entry.reported.protocol.name}"
                              for entry in all_entries)
    print_text(f"{len(all_entries)} reported numbers: {counts}")
    print_text("equal: at the reported digits; rounding: truncated or rounded up, as elsewhere in "
               "the paper; no fit: differs under the interpretation used (some remarks name one "
               "that agrees)\nrecomputed under the papers' own protocols "
               f"({', '.join(protocols)}; lengths and vocabularies with --json)\ncommon columns: "
               f"protocol {COMMON_PROTOCOL}, {COMMON_PROTOCOL.conventions}; a decoder-only model "
               "reads S + T tokens")
    for line in COMMON_PROTOCOL.weight_work_lines(
            *(entry.common_cost["macs.once"] for entry in all_entries)):
        print_text(f"of these, {line}")


def _cells(entry: RecomputedCost) -> list[Any]:
    from rich.text import Text

    row = entry.reported
    common = entry.common_cost
    return [row.paper, row.table, row.model_name, row.quantity, row.reported_text,
            f"{entry.recomputed:,}",
            Text(str(entry.agreement), RESULT_STYLES[entry.agreement.name]),
            *(f"{common[key]:,}" for key in ("params.non_embedding", "params.total")),
            f"{common['flops.total'] / 1e9:.3f}"]  # fmt: skip


def _print_remarks(entries: list[RecomputedCost]) -> None:
    """Print mismatch reasons and notes of the entries, each text once."""
    models_by_remark: dict[str, list[str]] = {}
    for entry in entries:
        remarks = [f"no fit: {entry.mismatch_reason}"] if entry.mismatch_reason else []
        remarks += [entry.reported.note] if entry.reported.note else []
        for remark in remarks:
            model = f"{_table_name(entry.reported.table)}, {entry.reported.model_name}"
            models_by_remark.setdefault(remark, []).append(model)
    for remark, models in models_by_remark.items():
        print_text(f"{'; '.join(dict.fromkeys(models))}: {remark}")
    if models_by_remark:
        print_text("")


def _table_name(table: str) -> str:
    return f"table {table}" if table.isdigit() else table
