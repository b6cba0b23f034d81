"""The named architectures of a study as a table: cost, score over seeds, difference to the base."""

from scalesearch.report.ablation import UNKNOWN
from scalesearch.report.labels import label, protocol_words
from scalesearch.report.page.facts import Facts
from scalesearch.report.page.parts import MISSING, Cell, Link, Section, table, text


def section(facts: Facts) -> Section | None:
    """The table and what its numbers mean; None where there are not two to compare."""
    found = facts.named
    if found is None or len(found.rows) < 2:
        return None
    texts = found.texts()
    rows = []
    for row, cells in zip(found.rows, texts.itertuples(index=False)):
        keys = (row.params, row.macs, row.score, row.seeds, row.difference)
        rows.append([_name(facts, row.name), *(MISSING if cell == UNKNOWN else Cell(cell, key)
                                               for cell, key in zip(cells[1:], keys))])
    headings = [label(name) if name == found.metric else name for name in texts]
    caption = f"{len(rows)} named architectures; costs under {protocol_words(facts.subject.protocol)}."
    return Section("named", "Named architectures", [table(headings, rows, caption, "named-table"),
                                                    text(*found.notes())])


def _name(facts: Facts, name: str) -> Cell:
    """The name, with a link to its row in the table of trials."""
    trial = next((one for one in facts.own if one.label == name and not one.untrained), None)
    return Cell("", links=[Link(name, f"#trial-{trial.number}")]) if trial else Cell(name)
