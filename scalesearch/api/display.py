"""Base class of values that a terminal shows as tables and a notebook as HTML."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import fields
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any, TypeVar

from scalesearch.terminal import (
    MIN_TABLE_WIDTH,
    escape_control_characters,
    make_table,
    open_console,
    print_text,
    to_rich_text,
)

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

T = TypeVar("T")
CELL_STYLE = "white-space: pre-wrap; text-align: "


class Displayable:
    """Base class of values that are displayed as tables and lines of text."""

    def _display_parts(self) -> Iterable[Table | str]:
        """Yield tables and lines."""
        raise NotImplementedError

    def __rich__(self) -> Group:
        from rich.console import Group

        return Group(*(to_rich_text(part) if isinstance(part, str) else part
                       for part in self._display_parts()))

    def __repr__(self) -> str:
        return to_text(self._display_parts())

    def _repr_html_(self) -> str:
        return to_html(self._display_parts())


def to_text(parts: Iterable[Table | str]) -> str:
    """Render tables and lines as text of the width of the terminal."""
    output = StringIO()
    console = open_console(file=output,
                           width=shutil.get_terminal_size((MIN_TABLE_WIDTH, 24)).columns)
    for part in parts:
        print_text(part, console)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()).rstrip()


def to_html(parts: Iterable[Table | str]) -> str:
    """Render tables and lines as HTML; all content is escaped.

    Example:
        >>> to_html(["a < b"])
        '<div><div style="white-space: pre-wrap; text-align: left">a &lt; b</div></div>'
    """
    rendered = (_line(part) if isinstance(part, str) else _table(part) for part in parts)
    return f"<div>{''.join(rendered)}</div>"


def _line(text: str) -> str:
    return f'<div style="{CELL_STYLE}left">{_text(text)}</div>'


def _table(table: Table) -> str:
    heads = "".join(f'<th style="{CELL_STYLE}{column.justify}">{_text(column.header)}</th>'
                    for column in table.columns)
    rows = zip(*(column.cells for column in table.columns))
    sides = [column.justify for column in table.columns]
    body = "".join(
        f"<tr>{''.join(_cell(cell, side, str(row.style)) for cell, side in zip(cells, sides))}</tr>"
        for cells, row in zip(rows, table.rows))
    title = (f'<caption style="{CELL_STYLE}left">{_text(table.title)}</caption>' if table.title
             else "")
    after = _line(str(table.caption)) if table.caption else ""
    return f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{after}"


def _cell(cell: Any, side: str, style: str) -> str:
    bold = "; font-weight: bold" if style == "bold" else ""
    return f'<td style="{CELL_STYLE}{side}{bold}">{_text(cell)}</td>'


def _text(value: Any) -> str:
    return escape(escape_control_characters(value))


def frame_to_table(cells: Any, **options: Any) -> Table:
    """Make a table of a frame of texts."""
    return make_table(cells.columns, cells.itertuples(index=False), **options)


def as_subclass(subclass: type[T], value: Any, **extra_fields: Any) -> T:
    """Convert a dataclass instance to a subclass with further fields."""
    return subclass(**{field.name: getattr(value, field.name) for field in fields(value)} | extra_fields)
