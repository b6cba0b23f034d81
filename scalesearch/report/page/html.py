"""HTML from values: whatever is not markup made here is escaped, so that no label or reason can become any."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

VOID = frozenset(("meta", "input", "br"))


class Html(str):
    """Text that is markup already."""


def safe(value: object) -> Html:
    """``value`` as markup: escaped, unless it is markup."""
    return value if isinstance(value, Html) else Html(html.escape(str(value), quote=True))


def join(parts: Iterable[object], between: str = "") -> Html:
    """All ``parts`` as one piece of markup."""
    return Html(str(safe(between)).join(safe(part) for part in parts))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element; ``class_`` writes ``class``, ``data_x`` writes ``data-x``; what is None or False is left out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value), quote=True)}"'


@dataclass(frozen=True)
class Cell:
    """What a table shows in one place, and the number or text that it is sorted by; None comes last either way.

    ``words``: what is shown is no number, though it is sorted by one.
    """

    shown: object
    key: Any = None
    words: bool = False


GAP = Cell("–")  # a number that is not there


def table(headings: Sequence[object], rows: Iterable[Sequence[Any]], caption: object = "", key: str | None = None,
          marks: Sequence[dict[str, Any]] = ()) -> Html:
    """A table that scrolls by itself where it is wider than the screen, and whose columns can be sorted.

    Args:
        key: the table's id.
        marks: attributes of each row.
    """
    head = tag("tr", *(tag("th", tag("button", heading, type="button", class_="sort"), scope="col",
                           aria_sort="none") for heading in headings))
    body = [tag("tr", *(_cell(value) for value in row), **(marks[at] if marks else {})) for at, row in enumerate(rows)]
    whole = tag("table", tag("thead", head), tag("tbody", *body), id=key, aria_label=caption or None)
    # Not a caption of the table's own, which would be as wide as the table.
    return join((*([tag("p", caption, class_="caption")] if caption else []),
                 tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption or "table")))


def _cell(value: Any) -> Html:
    cell = value if isinstance(value, Cell) else Cell(value, value)
    key = None if cell.key is None or isinstance(cell.key, Html) else cell.key
    kind = "number" if cell is GAP or (isinstance(key, int | float) and not isinstance(key, bool)) else None
    return tag("td", cell.shown, class_=f"{kind} words" if kind and cell.words else kind, data_key=key)


def pairs(items: Iterable[tuple[object, object]]) -> Html:
    """A list of names and what they are."""
    return tag("dl", *(join((tag("dt", name), tag("dd", value))) for name, value in items))


def paragraphs(lines: Iterable[object]) -> Html:
    """Each line as a paragraph."""
    return join(tag("p", line) for line in lines)


@dataclass(frozen=True)
class Section:
    """A part of the page: its id, heading and markup, and what the menu calls it if not by its heading."""

    key: str
    title: str
    body: Html
    short: str = ""

    def render(self) -> Html:
        """As an element that can be linked to."""
        return tag("section", tag("h2", self.title, id=f"{self.key}-heading"), self.body, id=self.key,
                   aria_labelledby=f"{self.key}-heading")
