"""The table of candidates, with links to their files; it can be sorted and filtered."""

from typing import Any

import pandas as pd

from scalesearch.report.page.curves import drawn
from scalesearch.report.page.facts import Candidate, Facts
from scalesearch.report.page.html import GAP, Cell, Html, Section, join, table, tag
from scalesearch.report.page.svg import POINT
from scalesearch.report.page.words import brief, heading, shown, under
from scalesearch.report.table import REPORTED, differing

SKIPPED = ("infeasible", "duplicate")  # proposals that were never trained; failures.py counts them
ANSWERS = 12  # columns of answers at most


def columns_of(facts: Facts) -> list[str]:
    """The scores and costs shown: the objectives, the main score and its report, params, MACs."""
    reported = [name for name in REPORTED if name in facts.table and facts.table[name].notna().any()][:1]
    names = dict.fromkeys([*facts.subject.objectives, facts.main, *reported, "params.total", "macs.total"])
    return [name for name in names if name in facts.table]


def section(facts: Facts) -> Section:
    """All candidates but those that were refused untrained."""
    rows = facts.table[~facts.table["state"].isin(SKIPPED)]
    if not len(rows):
        return Section("candidates", "Candidates", tag("p", "No candidate has been taken up for training yet."))
    names, answers = columns_of(facts), differing(rows, facts.asked, ANSWERS)
    headings = ["trial", "state", *(["front"] if facts.ranked else []), *(heading(name) for name in names), "seeds",
                "training seconds",
                *(["loss at rungs"] if facts.meta.get("rungs") else []),
                *(name.removeprefix("answer.") for name in answers), "files"]
    cells, marks, curves = [], [], drawn(facts)
    for _, row in rows.iterrows():
        cells.append(_row(facts, row, names, answers, curves))
        number = str(row["trial"])
        marks.append({"id": f"trial-{number}", "data_trial": number, "data_state": row["state"],
                      "class_": "front" if row["front"] else None})
    caption = (f"{len(rows)} candidates; costs under {under(facts.subject.protocol)}. Press a heading to sort. "
               "Training seconds are the updates alone, of the first seed.")
    whole = table(headings, cells, caption, "candidates-table", marks)
    return Section("candidates", "Candidates", join((_tools(facts, rows), whole)))


def _row(facts: Facts, row: Any, names: list[str], answers: list[str], curves: set[int]) -> list[Any]:
    number = int(row["trial"])
    one = facts.candidates[number]
    name = f"{number}" + (f" ({row['label']})" if isinstance(row["label"], str) else "")
    seeds = None if pd.isna(row["seeds"]) else int(row["seeds"])
    seconds = row["training_seconds"]
    return [Cell(name, number, words=True), Cell(tag("span", row["state"], class_=row["state"]), str(row["state"])),
            *([Cell("yes" if row["front"] else "", "1" if row["front"] else "0")] if facts.ranked else []),
            *(_score(row, column) for column in names),
            GAP if seeds is None else seeds,
            GAP if _missing(seconds) else Cell(f"{seconds:,.1f}", float(seconds)),
            *([_rungs(one)] if facts.meta.get("rungs") else []),
            *(_answer(row[column]) for column in answers), Cell(links_of(facts, number, curves))]


def _rungs(one: Candidate) -> Cell:
    return Cell(", ".join(f"{loss:.3f}" for _, loss in one.rungs), one.rungs[-1][1]) if one.rungs else GAP


def _score(row: Any, name: str) -> Cell:
    return GAP if _missing(row[name]) else Cell(shown(row, name), float(row[name]))


def _answer(value: Any) -> Cell:
    plain = isinstance(value, int | float) and not isinstance(value, bool) and not _missing(value)
    return Cell(brief(value), value if plain else brief(value))


def _missing(value: Any) -> bool:
    return value is None or bool(pd.isna(value))


def links_of(facts: Facts, number: int, curves: set[int] | None = None) -> Html:
    """Links to a candidate's files, as far as there are any, and to its ledger and its curve on this page."""
    there = [tag("a", name, href=address) for name, address in facts.candidates[number].links.items()]
    if number in facts.billed:
        there.append(tag("a", "ledger", href=f"#ledger-{number}"))
    if curves and number in curves:
        there.append(tag("a", "curve", href=f"#curves-{POINT}{number}"))
    return tag("span", join(there, ", "), class_="files")


def _tools(facts: Facts, rows: pd.DataFrame) -> Html:
    states = [tag("option", state, value=state) for state in sorted(set(rows["state"]))]
    front = [tag("option", "on the front", value="front")] if facts.ranked else []
    choice = tag("select", tag("option", "all", value=""), *front, *states, id="filter-state")
    return tag("div", tag("label", "Filter ", tag("input", type="search", id="filter-words", placeholder="words")),
               tag("label", "State ", choice),
               tag("span", "", id="filter-count", role="status"), id="filter-tools", class_="tools", hidden=True)
