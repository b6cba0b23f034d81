"""``scalesearch reference``: what papers print, what our ledger gives, and all of them on one ruler."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import json_option, print_costs
from scalesearch.errors import UserError
from scalesearch.terminal import make_table, open_console, print_text, wide_console

if TYPE_CHECKING:
    from scalesearch.reference import RecomputedCost

HEADINGS = ("paper", "table", "row", "quantity", "printed", "recomputed", "verdict",
            "non-embedding", "params", "GFLOPs")
VERDICT_STYLES = {"equal": "green", "rounding": "yellow", "no fit": "red"}


@click.command(name="reference")
@click.option("--paper", metavar="NAME",
              help="partialformer, anthe, edgeformer or second-tier; else all.")
@json_option
def command(paper: str | None, as_json: bool) -> None:
    """Rows of the papers' tables: printed, recomputed under the paper's own protocol, and under a common one."""
    from scalesearch.reference import COMMON_PROTOCOL, PAPERS, excluded_rows, load_reported_costs, recompute

    chosen = PAPERS if paper is None else (_check_paper(paper, PAPERS),)
    found = {name: [recompute(row) for row in load_reported_costs(name)] for name in chosen}
    if as_json:
        entries = [entry for listed in found.values() for entry in listed]
        rest = {name: [dict(item) for item in excluded_rows(name)] for name in chosen}
        counts = {name: _counts(listed) for name, listed in found.items()}
        print_costs({"common": COMMON_PROTOCOL.to_json(), "verdicts": counts,
                     "rows": [e.to_json() for e in entries], "left_out": rest}, COMMON_PROTOCOL)
    else:
        _show(found)


def _check_paper(paper: str, papers: tuple[str, ...]) -> str:
    """``paper`` as it is called here. Raises UserError with a suggestion."""
    import difflib

    name = paper.lower()
    if name in papers:
        return name
    near = difflib.get_close_matches(name, papers, 1, 0.4)
    raise UserError(f"--paper {paper}: there are {', '.join(papers)}"
                    + ("; did you mean " f"{near[0]}?" if near else ""), code="unknown-paper")


def _counts(entries: list[RecomputedCost]) -> dict[str, int]:
    from scalesearch.reference import AGREEMENT_LEVELS

    counted = Counter(entry.agreement.name for entry in entries)
    return {name: counted[name] for name in AGREEMENT_LEVELS}


def _show(found: dict[str, list[RecomputedCost]]) -> None:

    from scalesearch.reference import COMMON_PROTOCOL

    console = open_console() if open_console().is_terminal else wide_console()
    for entries in found.values():
        print_text(make_table(HEADINGS, map(_cells, entries), left_columns=(0, 1, 2, 3, 6)),
                   console)
        _remarks(entries)
    every = [entry for entries in found.values() for entry in entries]
    shown = ", ".join(f"{count} {name}" for name, count in _counts(every).items())
    protocols = dict.fromkeys(f"{e.reported.paper}: {e.reported.protocol.name}" for e in every)
    print_text(f"{len(every)} printed numbers: {shown}")
    print_text("equal: to the nearest at the printed digits; rounding: cut or rounded up, where "
               "the paper does so elsewhere; no fit: not by the reading used (some remarks name "
               "another that fits)\nrecomputed under the papers' own protocols "
               f"({', '.join(protocols)}; lengths and vocabularies with --json)\ncommon columns: "
               f"protocol {COMMON_PROTOCOL}, {COMMON_PROTOCOL.conventions}; a decoder alone reads "
               "S + T tokens")
    for line in COMMON_PROTOCOL.weight_work_lines(
            *(entry.common_cost["macs.once"] for entry in every)):
        print_text(f"of these, {line}")


def _cells(entry: RecomputedCost) -> list[Any]:
    from rich.text import Text

    row = entry.reported
    common = entry.common_cost
    return [row.paper, row.table, row.model_name, row.quantity, row.reported_text, f"{entry.recomputed:,}",
            Text(str(entry.agreement), VERDICT_STYLES[entry.agreement.name]),
            *(f"{common[key]:,}" for key in ("params.non_embedding", "params.total")),
            f"{common['flops.total'] / 1e9:.3f}"]  # fmt: skip


def _remarks(entries: list[RecomputedCost]) -> None:
    """Prints what is known of entries that do not fit, and what else of others; each remark once."""
    places: dict[str, list[str]] = {}
    for entry in entries:
        for text in filter(None,
                           (f"no fit: {entry.mismatch_reason}" if entry.mismatch_reason else "",
                            entry.reported.note)):
            places.setdefault(text, []).append(
                f"{_table_name(entry.reported.table)}, " f"{entry.reported.model_name}")
    for text, where in places.items():
        print_text(f"{'; '.join(dict.fromkeys(where))}: {text}")
    if places:
        print_text("")


def _table_name(table: str) -> str:
    return f"table {table}" if table.isdigit() else table
