"""What a page is made of, as plain values: sections of texts, tables and figures. ``page.html`` marks them up."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import pandas as pd
from markupsafe import Markup


class Link(NamedTuple):
    """A link; ``trial``: whose marks in the figures it highlights."""

    text: str
    href: str
    trial: int | None = None


@dataclass(frozen=True)
class Cell:
    """A table cell.

    Attributes:
        text: what is shown.
        key: number or text to sort by; rows without one come last. A number is set to the right.
        left: set a number to the left.
        css: class of the text.
        indent: depth of the text in a tree.
        links: shown after the text.
    """

    text: object
    key: Any = None
    left: bool = False
    css: str | None = None
    indent: int = 0
    links: tuple[Link, ...] = ()

    @property
    def align(self) -> str | None:
        """CSS class by which a number, or its absence, is set to the right."""
        is_number = isinstance(self.key, int | float) and not isinstance(self.key, bool)
        return "number" + " left" * self.left if is_number or self is MISSING else None


MISSING = Cell("–")


def number(value: Any, form: str = ",") -> Cell:
    """Cell of a number in the format ``form``; a dash for None and NaN."""
    return MISSING if value is None or pd.isna(value) else Cell(format(value, form), value)


@dataclass(frozen=True)
class Text:
    """Paragraphs, the last of them followed by ``links``."""

    kind: ClassVar[str] = "text"
    lines: Sequence[str]
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class Table:
    """A sortable table; ``attributes``: HTML attributes of each row."""

    kind: ClassVar[str] = "table"
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str
    key: str
    attributes: Sequence[Mapping[str, Any]] = ()


def table(headings: Sequence[str], rows: Iterable[Iterable[Any]], caption: str, key: str,
          attributes: Sequence[Mapping[str, Any]] = ()) -> Table:
    """Table of values: text as it is, numbers with separators, gaps as dashes, a :class:`Cell` as it says."""
    return Table(headings, [[_cell(value) for value in row] for row in rows], caption, key, attributes)


def _cell(value: Any) -> Cell:
    if isinstance(value, Cell):
        return value
    return Cell(value, value or None) if isinstance(value, str) else number(value)


@dataclass(frozen=True)
class Picture:
    """An SVG figure.

    Attributes:
        alt: what someone who cannot see it must know.
        cost: the cost on its horizontal axis, where readers choose among several.
        marks: ``[trial, text, [[x, y], ...]]`` in the SVG's coordinates: a point or line that shows the text on hover.
    """

    kind: ClassVar[str] = "picture"
    svg: Markup
    key: str
    alt: str
    caption: str
    marks: Sequence[Any] = ()
    cost: str | None = None
    wide: bool = False


@dataclass(frozen=True)
class Panels:
    """Figures side by side."""

    kind: ClassVar[str] = "panels"
    pictures: Sequence[Picture]
    key: str | None = None


@dataclass(frozen=True)
class Fold:
    """Parts that are hidden until their title is clicked."""

    kind: ClassVar[str] = "fold"
    title: str
    parts: Sequence[Any]
    key: str | None = None


@dataclass(frozen=True)
class Names:
    """A list of names and what they stand for."""

    kind: ClassVar[str] = "names"
    items: Sequence[tuple[str, Any]]


@dataclass(frozen=True)
class Code:
    """Text in lines of its own."""

    kind: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True)
class CostChooser:
    """A checkbox for each cost that a figure may have on its horizontal axis: (column, words, checked)."""

    kind: ClassVar[str] = "chooser"
    costs: Sequence[tuple[str, str, bool]]


@dataclass(frozen=True)
class Filter:
    """Search field and choice of a state above the table of trials: (value, words)."""

    kind: ClassVar[str] = "filter"
    states: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Section:
    """A section of the page: its id, heading and parts; ``short``: its name in the menu."""

    key: str
    title: str
    parts: Sequence[Any] = field(default_factory=tuple)
    short: str = ""
