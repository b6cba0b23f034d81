"""The named architectures of a study as a table: cost, score over seeds, difference to the base."""

from scalesearch.report.ablation import UNKNOWN, Row
from scalesearch.report.page.facts import Facts
from scalesearch.report.page.labels import label, protocol_words
from scalesearch.report.page.parts import MISSING, Cell, Link, Section, Text, table


def section(facts: Facts) -> Section | None:
    """The table and what its numbers mean; None where there are not two to compare."""
    found = facts.named
    if found is None or len(found.rows) < 2:
        return None
    headings = [label(name) if name == found.metric else name for name in found.headings()]
    rows = [_row(facts, row, texts) for row, texts in zip(found.rows, found.cells())]
    caption = f"{len(rows)} named architectures; costs under {protocol_words(facts.subject.protocol)}."
    return Section("named", "Named architectures", [table(headings, rows, caption, "named-table"), Text(found.notes())])


def _row(facts: Facts, row: Row, texts: tuple[str, ...]) -> list[Cell]:
    keys = (row.params, row.macs, row.score, row.seeds, row.difference)
    trial = next((one for one in facts.own if one.label == row.name), None)
    linked = trial is not None and trial.state not in ("infeasible", "duplicate")
    name = Cell("", links=(Link(row.name, f"#trial-{trial.number}"),)) if trial and linked else Cell(row.name)
    return [name, *(MISSING if text == UNKNOWN else Cell(text, key) for text, key in zip(texts[1:], keys))]
