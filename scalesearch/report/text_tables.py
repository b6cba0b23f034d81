"""Tables of text in Markdown and LaTeX; the first ``left`` columns are set to the left."""

import pandas as pd


def to_markdown(texts: pd.DataFrame, left: int = 1) -> str:
    """Markdown table of cells that are text."""
    align = ["left" if at < left else "right" for at in range(texts.shape[1])]
    cells = texts.map(lambda cell: cell.replace("|", r"\|"))
    return str(cells.to_markdown(index=False, colalign=align, disable_numparse=True))


def to_latex(texts: pd.DataFrame, left: int = 1) -> str:
    """``tabular`` with the rules of the booktabs package, of cells that are text."""
    style = texts.style.hide(axis="index").format(escape="latex").format_index(escape="latex", axis="columns")
    text = style.to_latex(hrules=True, column_format="l" * left + "r" * (texts.shape[1] - left))
    return str(text).replace("±", r"$\pm$").replace("–", "--")
