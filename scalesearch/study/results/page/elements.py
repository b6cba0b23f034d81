"""What a page is made of, as plain values: sections of parts, which ``page.html`` marks up.

A part is (kind, value), the kind one of its macros: ``text`` (lines), ``heading``, ``caption``,
``table`` (:func:`table`), ``picture`` (:class:`Picture`), ``panels`` (pictures side by side, id),
``fold`` (title, parts, id), ``names`` (pairs), ``code``, ``links``, ``chooser`` (cost, words,
checked), ``filter`` (state, words).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
from markupsafe import Markup

from scalesearch.blocks.sizes import is_number

Part = tuple[str, Any]


class PageSection(NamedTuple):
    """A section of the page: its id, heading and parts, and its name in the menu if not the heading."""

    key: str
    title: str
    parts: Sequence[Part]
    menu_title: str = ""


class PageLink(NamedTuple):
    """A link; ``trial``: whose marks in the figures it highlights."""

    text: str
    href: str
    trial: int | None = None


@dataclass(frozen=True)
class TableCell:
    """A table cell.

    Attributes:
        text: what is shown.
        sort_key: number or text to sort by; rows without one come last. A number is set to the
            right.
        left: set a number to the left.
        css: class of the text.
        indent: depth of the text in a tree.
        links: shown after the text.
    """

    text: object
    sort_key: Any = None
    left: bool = False
    css: str | None = None
    indent: int = 0
    links: Sequence[PageLink] = ()

    @property
    def align(self) -> str | None:
        """CSS class by which a number, or its absence, is set to the right."""
        return "number" + " left" * self.left if is_number(
            self.sort_key) or self is MISSING_CELL else None


MISSING_CELL = TableCell("–")


def number(value: Any, form: str = ",") -> TableCell:
    """Cell of a number in the format ``form``; a dash for None and NaN."""
    return MISSING_CELL if value is None or pd.isna(value) else TableCell(
        format(value, form), value)


def table(headings: Sequence[str], rows: Iterable[Iterable[Any]], caption: str, key: str,
          attributes: Sequence[Mapping[str, Any]] = ()) -> Part:
    """Sortable table: text as it is, numbers with separators, gaps as dashes, a :class:`TableCell` as it says.

    ``key``: its id; ``attributes``: HTML attributes of each row.
    """
    cells = [[value if isinstance(value, TableCell) else TableCell(value, value or None)
              if isinstance(value, str) else number(value) for value in row] for row in rows]
    return "table", {"headings": headings, "rows": cells, "caption": caption, "key": key,
                     "attributes": attributes}


def text(*lines: str) -> Part:
    """Paragraphs."""
    return "text", lines


def fold(title: str, parts: Sequence[Part], key: str | None = None) -> Part:
    """Parts that are hidden until their title is clicked."""
    return "fold", (title, parts, key)


@dataclass(frozen=True)
class Picture:
    """An SVG figure.

    Attributes:
        alt: what someone who cannot see it must know.
        marks: ``[trial, text, [[x, y], ...]]`` in the SVG's coordinates: a point or line that shows
            the text on hover.
        cost: the cost on its horizontal axis, where readers choose among several.
    """

    svg: Markup
    key: str
    alt: str
    caption: str
    marks: Sequence[Any] = ()
    cost: str | None = None
