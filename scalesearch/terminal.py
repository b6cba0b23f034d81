"""Prints text and tables on a terminal: nothing is read as markup, nothing is cut short."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDEST = 160  # columns of a table that does not fold


def say(text: Any, console: Console | None = None, style: str | None = None) -> None:
    """Prints ``text`` as it is, or a table with an empty line after it."""
    from rich.console import Console
    from rich.table import Table

    console = console or Console()
    if isinstance(text, Table):
        console.print(text, "")
    else:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def wide_console() -> Console:
    """A console for tables of long numbers: at least ``WIDEST`` columns, whatever the terminal has."""
    from rich.console import Console

    return Console(width=max(WIDEST, Console().width))


def make_table(
    headings: Iterable[Any], rows: Iterable[Sequence[Any]], left: Collection[int] = (0,), title: str | None = None,
    lines: bool = False, styles: Sequence[str] = (),
) -> Table:  # fmt: skip
    """A table of texts; numbers that do not fit are folded, never cut.

    Args:
        left: the columns that are aligned to the left; the others hold numbers.
        lines: draw a box; else columns stand apart only.
        styles: of each row.
    """
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.HEAVY_HEAD if lines else None, header_style="bold")
    for at, heading in enumerate(headings):
        table.add_column(_text(heading), justify="left" if at in left else "right", overflow="fold")
    for at, cells in enumerate(rows):
        table.add_row(*map(_text, cells), style=styles[at] if styles else None)
    return table


def _text(cell: Any) -> Any:
    from rich.text import Text

    return cell if isinstance(cell, Text) else Text(str(cell))
