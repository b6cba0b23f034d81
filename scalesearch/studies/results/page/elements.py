"""Elements of the report page: sections of parts, which ``page.html`` renders, and SVG figures.

A part is a pair of macro name and value. The macros are ``text`` (lines), ``heading``, ``caption``,
``table`` (:func:`table`), ``picture`` (:class:`Picture`), ``panels`` (pictures side by side, id),
``fold`` (title, parts, id), ``names`` (pairs), ``code``, ``links``, ``chooser`` (cost, words,
checked) and ``filter`` (state, words).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, NamedTuple

import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from scalesearch.blocks.sizes import is_number
from scalesearch.report import labels
from scalesearch.report.figures import style

# Colors that follow the light or dark theme of the browser.
CSS_COLORS = {"#000000": "var(--ink)", style.TEXT_COLOR: "var(--ink)", "#ffffff": "var(--page)",
              style.GRID_COLOR: "var(--grid)", style.FRONT_COLOR.lower(): "var(--front)",
              "#8a3a6a": "var(--over)"}
# without metadata, which contains network addresses
NO_METADATA: Any = dict.fromkeys(("Creator", "Date", "Format", "Type"))

Part = tuple[str, Any]


class PageSection(NamedTuple):
    """Section of the page.

    Attributes:
        key: HTML id.
        title: heading.
        menu_title: name in the menu; the heading if empty.
    """

    key: str
    title: str
    parts: Sequence[Part]
    menu_title: str = ""


class PageLink(NamedTuple):
    """Link; ``trial`` is the trial whose marks in figures it highlights, or None."""

    text: str
    href: str
    trial: int | None = None


@dataclass(frozen=True)
class TableCell:
    """Table cell.

    Attributes:
        text: displayed text.
        sort_key: number or text by which rows are sorted; rows without a key come last. Cells with
            a number are aligned to the right.
        left: align a number to the left.
        css: CSS class of the text.
        indent: depth of the text in a tree.
        links: links after the text.
    """

    text: object
    sort_key: Any = None
    left: bool = False
    css: str | None = None
    indent: int = 0
    links: Sequence[PageLink] = ()

    @property
    def align(self) -> str | None:
        """CSS class of numbers and missing numbers, which are aligned to the right."""
        if not is_number(self.sort_key) and self is not MISSING_CELL:
            return None
        return "number left" if self.left else "number"


MISSING_CELL = TableCell(labels.MISSING_CELL)


def number(value: object, form: str = ",") -> TableCell:
    """Cell of a number in the format ``form``; a dash for None and NaN."""
    if value is None or pd.isna(value):
        return MISSING_CELL
    return TableCell(format(value, form), value)


def table(headings: Sequence[str], rows: Iterable[Iterable[Any]], caption: str, key: str,
          attributes: Sequence[Mapping[str, Any]] = ()) -> Part:
    """Sortable table.

    Args:
        headings: one per column.
        rows: values of cells: text, numbers, None, or a :class:`TableCell`. Numbers are displayed
            with thousands separators, None as a dash.
        key: HTML id.
        attributes: HTML attributes of each row.
    """
    def cell(value: object) -> TableCell:
        if isinstance(value, TableCell):
            return value
        return TableCell(value, value or None) if isinstance(value, str) else number(value)

    return "table", {"headings": headings, "rows": [list(map(cell, row)) for row in rows],
                     "caption": caption, "key": key, "attributes": attributes}


def text(*lines: str) -> Part:
    """Paragraphs, one per line."""
    return "text", lines


def fold(title: str, parts: Sequence[Part], key: str | None = None) -> Part:
    """Parts that are hidden until a reader clicks their title."""
    return "fold", (title, parts, key)


@dataclass(frozen=True)
class Picture:
    """SVG figure.

    Attributes:
        key: HTML id.
        alt: description for readers that cannot see the figure.
        marks: ``[trial, text, [[x, y], ...]]`` in coordinates of the SVG: points or lines that
            show the text on hover.
        cost: cost on the horizontal axis, if readers can select costs.
    """

    svg: Markup
    key: str
    alt: str
    caption: str
    marks: Sequence[Any] = ()
    cost: str | None = None


class PlotMark(NamedTuple):
    """Point or line of a trial in data coordinates, with a text shown on hover."""

    trial: int
    text: str
    axes: Axes
    points: Sequence[tuple[float, float]]


def picture(figure: Figure, key: str, alt: str, caption: str, marks: Sequence[PlotMark] = (),
            cost: str | None = None) -> Part:
    """Convert a figure to a part of the page.

    Args:
        key: HTML id. It is also the prefix of all ids in the SVG, so that ids are unique.
        cost: see :class:`Picture`.
    """
    with style.figure_style({"svg.fonttype": "none", "svg.hashsalt": key}):
        figure.set_dpi(72)  # SVG user units, so that marks have the coordinates of the drawing
        style.freeze_layout(figure)
        artists = figure.findobj()
        texts = [artist for artist in artists if isinstance(artist, Text)]
        # frames and arrows of texts, which `findobj` does not return
        patches = [patch for artist in texts
                   for patch in (artist.get_bbox_patch(), getattr(artist, "arrow_patch", None))
                   if patch is not None]
        for index, artist in enumerate([*artists, *patches]):
            artist.set_gid(f"{key}-{index}")
        file = StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata=NO_METADATA)
    svg = file.getvalue()
    svg = svg[svg.index("<svg"):]
    for color, variable in CSS_COLORS.items():
        svg = svg.replace(color, variable)
    placed = []
    for mark in marks:  # in SVG coordinates (y downwards), rounded to 0.1 points
        points = mark.axes.transData.transform(mark.points) * (1, -1) + (0, figure.bbox.height)
        placed.append([mark.trial, mark.text, points.round(1).tolist()])
    return "picture", Picture(Markup(svg), key, alt, caption, placed, cost)
