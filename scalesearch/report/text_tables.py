"""Tables for terminals, and in Markdown, LaTeX and CSV.

Cells are escaped, so they contain no markup or formula.
"""

import re
from textwrap import wrap
from typing import Any

import pandas as pd

from scalesearch.terminal import escape_control_characters, make_table

MINUS = re.compile(r"(?<![\w$-])-(?=\d)")  # the sign of a number
MAX_LATEX_HEADING = 12  # characters of a line of a heading
FORMULA_PREFIXES = ("=", "+", "-", "@", "\t")  # first characters of formulas in spreadsheets


def to_markdown(texts: pd.DataFrame, n_left_aligned: int = 1) -> str:
    """Format text cells as a Markdown table.

    The first ``n_left_aligned`` columns align left.
    """
    align = ["left" if column < n_left_aligned else "right" for column in range(texts.shape[1])]
    cells = texts.map(_in_markdown).rename(columns=_in_markdown)
    return str(cells.to_markdown(index=False, colalign=align, disable_numparse=True))


def to_latex(texts: pd.DataFrame) -> str:
    """Format text cells as a ``tabular`` for the booktabs package.

    The first column aligns left. Headings are split over several rows, at least before a unit, so
    that columns are as narrow as their cells.
    """
    lines = []
    for heading in texts.columns:
        parts = one_line(heading).replace(" (", "\n(").split("\n")
        lines.append([line for part in parts
                      for line in wrap(part, MAX_LATEX_HEADING, break_long_words=False)])
    n_rows = max(1, *map(len, lines))
    headings = [[""] * (n_rows - len(column)) + column for column in lines]
    cells = texts.map(one_line).set_axis(pd.MultiIndex.from_tuples(map(tuple, headings)),
                                         axis="columns")
    style = cells.style.hide(axis="index").format(escape="latex").format_index(
        escape="latex", axis="columns")
    text = style.to_latex(hrules=True, sparse_columns=False,
                          column_format=f"@{{}}l{'r' * (texts.shape[1] - 1)}@{{}}")
    with_minus = MINUS.sub("$-$", str(text))
    return with_minus.replace("±", r"$\pm$").replace("–", "--")


def frame_to_table(texts: pd.DataFrame, **options: Any) -> Any:
    """Make a table for the terminal; ``options`` are those of :func:`.make_table`."""
    return make_table(texts.columns, texts.itertuples(index=False), **options)


def to_csv(table: pd.DataFrame) -> str:
    """Format as CSV.

    An apostrophe precedes cells that a spreadsheet would take for formulas.
    """
    texts = table.select_dtypes(["object", "string"]).map(_in_csv)
    return str(table.assign(**texts).rename(columns=_in_csv).to_csv(index=False))


def one_line(text: object) -> str:
    """Convert to text on one line, with control characters escaped."""
    return " ".join(escape_control_characters(text).split())


def _in_markdown(text: str) -> str:
    return one_line(text).replace("|", r"\|").replace("<", "&lt;")


def _in_csv(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = escape_control_characters(value)
    if not text.startswith(FORMULA_PREFIXES):
        return text
    try:
        float(text)  # a negative number is not a formula
    except ValueError:
        return f"'{text}"
    return text
