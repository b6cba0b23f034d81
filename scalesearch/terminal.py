"""Print text and tables on a terminal.

Text is data, never markup or control sequences.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

SIZE_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
MIN_TABLE_WIDTH = 160  # columns of wide tables, which are not folded
MIN_TEXT_WIDTH = 10  # of a column of texts that is narrowed
MAX_TEXT_WIDTH = 40  # of a column of texts in a table that is wider than the terminal
MIN_NUMBER_WIDTH = 8  # of a column of numbers with an interval that is narrowed
# after a dot, hyphen or underscore within a word, but not in a number such as 0.5
HEADING_BREAK = re.compile(r"(?<=[._-])(?<!\d\.(?=\d))(?=[^\W_])")
# Control characters except tab and newline, bidirectional controls, and lone surrogates, which
# cannot be encoded.
CONTROL_CHARACTERS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_control_characters(text: object) -> str:
    r"""``text`` with escaped control characters: ``\x1b`` for ESC."""
    return CONTROL_CHARACTERS.sub(lambda match: ascii(match[0])[1:-1], str(text))


def open_console(stderr: bool = False, width: int | None = None,
                 file: IO[str] | None = None) -> Console:
    """A console without markup that escapes control characters.

    Args:
        file: file for plain text, also in a notebook; by default the terminal or the notebook.
    """
    from rich.console import Console
    from rich.segment import Segment

    class PlainConsole(Console):
        def on_broken_pipe(self) -> None:
            # rich exits with 1, but a reader that closes early, such as head, is not an error
            with suppress(SystemExit):
                super().on_broken_pipe()
            raise SystemExit(0)

        def render(self, *args: Any, **options: Any) -> Iterable[Segment]:
            for segment in super().render(*args, **options):
                yield segment if segment.control else Segment(
                    escape_control_characters(segment.text), segment.style)

    only_text: dict[str, Any] = {"force_jupyter": False, "force_terminal": False,
                                 "color_system": None}
    return PlainConsole(stderr=stderr, width=width, file=file, markup=False, emoji=False,
                        highlight=False, **({} if file is None else only_text))


def print_text(text: Any, console: Console | None = None, style: str | None = None) -> None:
    """Print ``text`` unchanged, or a table followed by an empty line."""
    from rich.table import Table

    console = console or open_console()
    if isinstance(text, Table):
        needed = set_column_widths(text, table_width(console))
        width = console.width
        if needed > width:
            console.width = needed
        console.print(text, "")
        if needed > width:
            console.width = width
    else:
        console.print(to_rich_text(text), style=style, soft_wrap=True)


def print_data(text: str) -> None:
    """Print text for programs: as UTF-8, whatever the encoding of the terminal is."""
    import click

    # a stream in memory has no encoding
    click.echo(text.encode(errors="replace") if hasattr(sys.stdout, "buffer") else text)


def wide_console() -> Console:
    """A console for tables of long numbers: at least ``MIN_TABLE_WIDTH`` columns.

    A table that cannot be narrowed to the terminal is printed as it is.
    """
    return open_console(width=max(MIN_TABLE_WIDTH, open_console().width))


def make_table(headings: Iterable[Any], rows: Iterable[Sequence[Any]],
               left_columns: Collection[int] = (0,), title: str | None = None,
               has_box: bool = False, row_styles: Sequence[str] = ()) -> Table:
    """Create a table of texts; numbers that do not fit are folded, never truncated.

    Args:
        left_columns: indices of left-aligned columns; the others contain numbers.
        has_box: whether to draw a box.
        row_styles: one style per row, or empty.
    """
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.HEAVY_HEAD if has_box else None,
                  header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(to_rich_text(heading),
                         justify="left" if index in left_columns else "right", overflow="fold")
    for index, cells in enumerate(rows):
        table.add_row(*map(to_rich_text, cells), style=row_styles[index] if row_styles else None)
    return table


def make_fitting_table(headings: Sequence[Any], rows: Sequence[Sequence[Any]], title: str,
                       n_required: int, n_most: int) -> tuple[Table, int]:
    """Create a table of numbers with as many of the columns as fit the terminal.

    Args:
        n_required: number of columns that are shown even if they do not fit.
        n_most: greatest number of columns.

    Returns:
        the table, and the number of its columns.
    """
    width = table_width(wide_console())
    n_columns = min(len(headings), n_most)
    while True:
        table = make_table(headings[:n_columns], [row[:n_columns] for row in rows], (), title,
                           has_box=True)
        if n_columns <= n_required or set_column_widths(table, width) <= width:
            return table, n_columns
        n_columns -= 1


def first_fitting_table(*variants: Callable[[], Table]) -> Table:
    """Create the first of several tables that fits the terminal, or else the last one."""
    width = table_width(wide_console())
    for create_table in variants:
        table = create_table()
        if set_column_widths(table, width) <= width:
            break
    return table


def table_width(console: Console) -> int:
    """Columns of the tables that ``console`` prints: those of the terminal, if there is one."""
    screen = open_console()
    is_screen = screen.is_terminal or "COLUMNS" in os.environ
    return min(screen.width, console.width) if is_screen else console.width


def set_column_widths(table: Table, width: int) -> int:
    """Set the column widths of a table that is too wide, so that no number is split over lines.

    Columns of texts are narrowed first, then headings of numbers are split at spaces, then also at
    dots, hyphens and underscores, then columns of numbers with an interval are narrowed. In a table
    that is still too wide, only long texts are folded.

    Returns:
        the number of columns of the terminal that the table needs.
    """
    from rich.cells import cell_len
    from rich.text import Text

    headings = [to_rich_text(column.header).plain for column in table.columns]
    cells = [[to_rich_text(cell).plain for cell in column.cells] for column in table.columns]
    cell_widths = [max((cell_len(line) for text in column for line in text.split("\n")), default=0)
                   for column in cells]
    full_widths = [max(width, *map(cell_len, heading.split("\n")))
                   for heading, width in zip(headings, cell_widths)]
    padding = 3 * len(cells) + 1 if table.box else 2 * len(cells)
    room = width - padding
    if sum(full_widths) <= room:
        return width
    split_headings = [HEADING_BREAK.sub("\n", heading) for heading in headings]
    spaced_widths, heading_widths = (
        [max(map(cell_len, heading.split() or [""])) for heading in texts]
        for texts in (headings, split_headings))
    spaced_widths = [max(pair) for pair in zip(spaced_widths, cell_widths)]
    short_widths = [max(pair) for pair in zip(heading_widths, cell_widths)]
    # with the indentation of the first word
    word_widths = [max((cell_len(word) for text in column
                        for word in re.findall(r"^\s*\S+|\S+", text)), default=0)
                   for column in cells]
    interval_widths = [min(short, max(heading, word, MIN_NUMBER_WIDTH))
                       for short, heading, word in zip(short_widths, heading_widths, word_widths)]
    is_number = [column.justify == "right" for column in table.columns]
    text_columns = sorted((index for index, number in enumerate(is_number) if not number),
                          key=full_widths.__getitem__)
    unsplit_widths = [max(heading, word) for heading, word in zip(heading_widths, word_widths)]
    needed = sum(unsplit_widths[index] for index in text_columns)
    rooms = [room - sum(width for width, number in zip(number_widths, is_number) if number)
             for number_widths in (full_widths, spaced_widths, short_widths, interval_widths)]
    # the widest numbers that leave room for whole words, or else for some text
    choice = next((index for room_for_text in (needed, MIN_TEXT_WIDTH * len(text_columns))
                   for index, left in enumerate(rooms) if left >= room_for_text), None)
    if choice is None:
        widths = [short if is_number_column else min(full, MAX_TEXT_WIDTH)
                  for short, full, is_number_column in zip(short_widths, full_widths, is_number)]
        width = sum(widths) + padding
    else:
        number_widths = (full_widths, spaced_widths, short_widths, interval_widths)[choice]
        widths = [number if is_number_column else 0
                  for number, is_number_column in zip(number_widths, is_number)]
        left = rooms[choice]
        fits_words = needed <= left
        for position, index in enumerate(text_columns):  # narrow ones first
            others = text_columns[position + 1:]
            share = (left - sum(unsplit_widths[other] for other in others) if fits_words
                     else left // (len(others) + 1))
            widths[index] = min(full_widths[index], share)
            left -= widths[index]
    for column, column_width, heading, heading_width in zip(table.columns, widths, headings,
                                                            heading_widths):
        column.width = column_width
        if column.justify == "right" and heading_width <= column_width:
            heading = _split_words(heading, column_width)
            is_split = column.no_wrap and cell_len(heading) > column_width
            column.header = Text(heading.replace(" ", "\n") if is_split else heading)
    return width


def _split_words(heading: str, width: int) -> str:
    """Split the words that are longer than ``width``, at as few of their breaks as possible."""
    from rich.cells import cell_len

    words = []
    for word in re.split(r"([ \n])", heading):
        lines = [""]
        for piece in HEADING_BREAK.split(word):
            if cell_len(lines[-1] + piece) > width and lines[-1]:
                lines.append("")
            lines[-1] += piece
        words.append("\n".join(lines))
    return "".join(words)


def format_share(share: float) -> str:
    """Format a share with three digits; only exact shares become 0 % or 100 %."""
    if 0 < share < 0.0005:
        return f"{100 * share:.2g} %"
    return "over 99.95 %" if 0.9995 < share < 1 else f"{100 * share:.3g} %"


def format_size(size: float) -> str:
    """Format a size to three digits: ``1.23M``, ``2M``."""
    unit, letter = next(((unit, letter) for unit, letter in SIZE_UNITS if size >= 0.9995 * unit),
                        (1.0, ""))
    return f"{size / unit:.3g}{letter}"


def format_sizes(sizes: Iterable[float | None]) -> tuple[list[str], str]:
    """Format a column of sizes in the unit of the largest one, with equal decimals.

    The smallest size has three digits, but at most three decimals. A missing size is an empty text.

    Returns:
        the texts without the unit, and its letter, for example ``["94.5", "213.0"]`` and ``k``.
    """
    sizes = list(sizes)
    finite_sizes = [size for size in sizes if size is not None and math.isfinite(size)]
    largest = max(finite_sizes, default=0.0)
    unit, letter = next((row for row in SIZE_UNITS if largest >= 0.9995 * row[0]), (1.0, ""))
    smallest = min(finite_sizes, default=0.0)
    decimals = min(3, decimals_for_digits(smallest / unit, 3)) if letter else 0
    return ["" if size is None or math.isnan(size) else f"{size / unit:.{decimals}f}"
            for size in sizes], letter


def decimals_for_digits(value: float, digits: int) -> int:
    """Decimals with which ``value`` has at least ``digits`` significant digits."""
    if value == 0 or not math.isfinite(value):
        return digits - 1
    return max(0, digits - 1 - math.floor(math.log10(abs(value))))


def format_bytes(size: float) -> str:
    """Format a number of bytes, as ``12.3 KiB``, ``4.5 MiB``, ``6.7 GiB`` or ``8.9 TiB``."""
    exponent, unit = next((row for row in ((40, "TiB"), (30, "GiB"), (20, "MiB"))
                           if size >= 2**row[0]), (10, "KiB"))
    return f"{size / 2**exponent:,.1f} {unit}"


def format_duration(seconds: float) -> str:
    """``1:23``, or with hours ``1:02:03``."""
    minutes, remaining = divmod(int(seconds), 60)
    return (f"{minutes // 60}:{minutes % 60:02}:{remaining:02}" if minutes >= 60
            else f"{minutes}:{remaining:02}")


def to_rich_text(cell: Any) -> Text:
    """A cell or a line as rich text, unchanged."""
    from rich.text import Text

    return cell if isinstance(cell, Text) else Text(escape_control_characters(cell))


def format_count(count: int, noun: str) -> str:
    """Format a number of things: ``1 candidate``, ``2,400 candidates``, ``3 classes``."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"
