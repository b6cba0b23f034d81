"""Table of trials on the report page, with links to files.

It can be sorted and filtered.
"""

from typing import Any

import pandas as pd

from scalesearch.blocks.sizes import is_number
from scalesearch.report.labels import column_heading, format_protocol, format_value
from scalesearch.report.table import differing_columns, format_cell, shown_test_metrics
from scalesearch.studies.results.page.elements import (
    MISSING_CELL,
    PageLink,
    PageSection,
    TableCell,
    number,
    text,
)
from scalesearch.studies.results.page.elements import table as table_of
from scalesearch.studies.results.page.facts import PageFacts, trial_name
from scalesearch.studies.trials.trial import State, Trial

MAX_PARAMS = 12  # maximum number of columns of hyperparameters


def trials_section(facts: PageFacts) -> PageSection:
    """Create the section with all trials except infeasible ones and duplicates."""
    table = facts.results.table
    rows = table[~table["state"].isin([State.INFEASIBLE, State.DUPLICATE])]
    rows = rows.sort_values("front", ascending=False, kind="stable")  # members of the front first
    if rows.empty:
        return PageSection("trials", "Trials", [text("No trial has started.")])
    metrics = _metric_columns(facts)
    params = differing_columns(rows, facts.sampled, MAX_PARAMS)
    rungs = bool(facts.meta.rungs.n_pauses)
    headings = ["trial", "state", *["front"] * facts.has_front, *map(column_heading, metrics),
                "seeds", "training seconds", *["loss at rungs"] * rungs,
                *(name.partition(".")[2] for name in params), "files"]
    records = rows.to_dict("records")
    cells = [_row(facts, row, metrics, params, rungs) for row in records]
    attributes = [{"id": f"trial-{row['trial']}", "data-trial": row["trial"],
                   "data-state": row["state"], "class": "front" if row["front"] else None}
                  for row in records]
    caption = (f"{len(rows)} trials; costs under {format_protocol(facts.meta.protocol)}. Click a "
               "heading to sort. Training seconds include only updates, for the first seed.")
    states = [*[("front", "on the front")] * facts.has_front,
              *((state, state) for state in sorted(set(rows["state"])))]
    return PageSection("trials", "Trials",
                       [("filter", states),
                        table_of(headings, cells, caption, "trials-table", attributes)])


def _metric_columns(facts: PageFacts) -> list[str]:
    """Columns of objectives, main metric and its test score, params and MACs."""
    table = facts.results.table
    names = dict.fromkeys([*facts.results.objectives, facts.main_metric,
                           *shown_test_metrics(table, [facts.main_metric]), "params.total",
                           "macs.total"])
    return [name for name in names if name in table]


def _row(facts: PageFacts, row: Any, metrics: list[str], params: list[str],
         rungs: bool) -> list[Any]:
    trial = facts.trials[int(row["trial"])]
    losses = trial.losses
    at_rungs = TableCell(", ".join(f"{loss:.3f}" for loss in losses),
                         losses[-1]) if losses else MISSING_CELL
    return [
        TableCell(trial_name(trial).removeprefix("trial "), trial.number, left=True),
        TableCell(trial.state, trial.state, css=trial.state),
        *[TableCell("yes" if row["front"] else "", "1" if row["front"] else "0")] * facts.has_front,
        *(MISSING_CELL if pd.isna(row[column])
          else TableCell(format_cell(row, column), float(row[column])) for column in metrics),
        number(row["seeds"]), number(row["training_seconds"], ",.1f"), *[at_rungs] * rungs,
        *(_param(row[column]) for column in params), TableCell("", links=trial_links(facts, trial))]


def _param(value: Any) -> TableCell:
    has_number = is_number(value) and pd.notna(value)
    return TableCell(format_value(value), value if has_number else format_value(value))


def trial_links(facts: PageFacts, trial: Trial) -> list[PageLink]:
    """Links to the files of a trial, and to its costs and curve on the page."""
    number = trial.number
    return [*(PageLink(name, address) for name, address in facts.links(trial).items()),
            *[PageLink("costs", f"#costs-{number}")] * (number in facts.itemized),
            *[PageLink("curve", "#curves", number)] * (number in facts.plotted_numbers)]
