"""The named architectures of a study as a table: cost, score over seeds, difference to the first of them."""

from scalesearch.report.ablation import UNKNOWN, Row
from scalesearch.report.page.facts import Facts
from scalesearch.report.page.html import GAP, Cell, Html, Section, join, paragraphs, table, tag
from scalesearch.report.page.words import label, under


def section(facts: Facts) -> Section | None:
    """The table and what its numbers mean; None where there are not two to compare."""
    found = facts.named
    if found is None or len(found.rows) < 2:
        return None
    headings = [name if name != found.metric else label(name, {}) for name in found.headings()]
    rows = [_row(facts, row, said) for row, said in zip(found.rows, found.cells())]
    caption = f"{len(rows)} named architectures; costs under {under(facts.subject.protocol)}."
    return Section("named", "Named architectures", join((table(headings, rows, caption, "named-table"),
                                                         paragraphs(found.notes()))))


def _row(facts: Facts, row: Row, said: tuple[str, ...]) -> list[Cell]:
    keys = (None, row.params, row.macs, row.score, row.seeds, row.difference)
    numbers = [GAP if text == UNKNOWN else Cell(text, key) for text, key in zip(said[1:], keys[1:])]
    return [Cell(_name(facts, row.name), None), *numbers]


def _name(facts: Facts, name: str) -> Html:
    """The name, with a link to its row in the table of candidates."""
    number = next((one.number for one in facts.candidates.values() if one.label == name and one.origin != "seed"), None)
    return tag("a", name, href=f"#trial-{number}") if number is not None and _has_row(facts, number) else tag("b", name)


def _has_row(facts: Facts, number: int) -> bool:
    return facts.candidates[number].state not in ("infeasible", "duplicate")
