"""Tables in Markdown, LaTeX and CSV, in which every cell is data: no markup, no formula."""

import pandas as pd

from scalesearch.terminal import escape_control_characters

FORMULA_PREFIXES = ("=", "+", "-", "@", "\t")  # what spreadsheets run begins with one of these


def to_markdown(texts: pd.DataFrame, n_left_aligned: int = 1) -> str:
    """Markdown table of cells that are text; the first ``n_left_aligned`` columns are set to the left."""
    align = ["left" if at < n_left_aligned else "right" for at in range(texts.shape[1])]
    cells = texts.map(_in_markdown).rename(columns=_in_markdown)
    return str(cells.to_markdown(index=False, colalign=align, disable_numparse=True))


def to_latex(texts: pd.DataFrame) -> str:
    """``tabular`` with the rules of the booktabs package; the first column is set to the left."""
    cells = texts.map(one_line).rename(columns=one_line)
    style = cells.style.hide(axis="index").format(escape="latex").format_index(
        escape="latex", axis="columns")
    text = style.to_latex(hrules=True, column_format="l" + "r" * (texts.shape[1] - 1))
    return str(text).replace("±", r"$\pm$").replace("–", "--")


def to_csv(table: pd.DataFrame) -> str:
    """CSV; what a spreadsheet would run begins with an apostrophe."""
    texts = table.select_dtypes(["object", "string"]).map(_in_csv)
    return str(table.assign(**texts).rename(columns=_in_csv).to_csv(index=False))


def one_line(text: object) -> str:
    """Text on one line, in which nothing steers a terminal."""
    return " ".join(escape_control_characters(text).split())


def _in_markdown(text: str) -> str:
    return one_line(text).replace("|", r"\|").replace("<", "&lt;")


def _in_csv(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = escape_control_characters(value)
    return f"'{text}" if text.startswith(FORMULA_PREFIXES) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
