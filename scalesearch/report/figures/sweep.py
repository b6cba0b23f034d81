"""Curves of cost over a size or a length: params and MACs, by section or for each value of a second size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter

from scalesearch.errors import UserError
from scalesearch.report.figures.style import COLORS, DASHED_LINE, TEXT_COLOR, figure_text, new_figure

LINE_STYLES = ("-", "--", "-.", ":")
SECTION_NAMES = {"total": "total", "non_embedding": "non-embedding", "encoder": "encoder",
                 "decoder": "decoder", "output": "output projection",
                 "attention_products": "attention's products"}
LENGTH_KEYS = ("source", "target", "length", "vocab")
LENGTH_LABELS = {"source": "Source tokens S", "target": "Target tokens T", "length": "Tokens S = T",
                 "vocab": "Vocabulary V"}


def plot_sweep(table: pd.DataFrame, keys: Sequence[str], protocol: Mapping[str, Any],
           annotations: Mapping[int, str] | None = None) -> Figure:
    """A figure of the costs in ``table`` against the first key, a line for each value of the second.

    Args:
        table: as :meth:`scalesearch.whatif.Sweep.frame` has it.
        annotations: values of the first key to draw a line at, and what happens there.

    Raises:
        UserError: more than two keys, or nothing that could be built.
    """
    if len(keys) > 2:
        raise UserError(f"a plot shows one or two sweeps, not {len(keys)}: {', '.join(keys)}",
                        code="too-many-sweeps")
    built = table[table["macs.total"].notna()]
    if built.empty:
        raise UserError("nothing to plot: none of the values can be built", code="nothing-to-plot")
    quantities = ("macs",) if keys[0] in LENGTH_KEYS[:3] else ("params", "macs")
    with new_figure(4.4 * len(quantities), 3.4, columns=len(quantities)) as (figure, panels):
        for axes, quantity in zip(panels, quantities):
            _panel(axes, built, keys, quantity)
            _frame(axes, built, keys[0], quantity, protocol)
            _marks(axes, built[keys[0]], annotations if quantity == "macs" else None)
    return figure


def _panel(axes: Axes, built: pd.DataFrame, keys: Sequence[str], quantity: str) -> None:
    if len(keys) == 2:
        for at, (value, rows) in enumerate(built.groupby(keys[1], sort=False)):
            _line(axes, rows, keys[0], f"{quantity}.total", figure_text(f"{keys[1]} = {value}"), at,
                  at)
        return
    found = [column for column in built.columns if column.startswith(f"{quantity}.")]
    for at, column in enumerate(sorted(found, key=lambda name: not name.endswith(".total"))):
        if built[column].max() > 0:
            _line(axes, built, keys[0], column, SECTION_NAMES[column.partition(".")[2]], at)


def _line(axes: Axes, rows: pd.DataFrame, key: str, column: str, label: str, at: int,
          stroke: int = 0) -> None:
    marker = "o" if len(rows) <= 40 else ""
    style = LINE_STYLES[stroke % len(LINE_STYLES)]  # lines that lie on one another stay visible
    axes.plot(_places(rows[key]), rows[column].astype(float), style, color=COLORS[at % len(COLORS)],
              label=label, marker=marker, markersize=2.8, linewidth=1.3)


def _places(values: pd.Series) -> Any:
    """Numbers as they are; words one after the other."""
    return values.astype(float) if pd.api.types.is_numeric_dtype(values) else values.map(
        figure_text)


def _frame(axes: Axes, built: pd.DataFrame, key: str, quantity: str,
           protocol: Mapping[str, Any]) -> None:
    axes.set_xlabel(LENGTH_LABELS.get(key, figure_text(key)))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(EngFormatter(sep="", places=None))
    if pd.api.types.is_numeric_dtype(built[key]):
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.set_ylabel("Parameters" if quantity == "params"
                    else f"Multiply-accumulates\n({_protocol_text(protocol, key)})")
    axes.legend(handlelength=1.8)


def _protocol_text(protocol: Mapping[str, Any], key: str) -> str:
    """The protocol, without the length that varies."""
    free = {"source": "S", "target": "T", "length": "ST", "vocab": "V"}.get(key, "")
    sizes = (f"{letter}={protocol[name]}"
             for letter, name in (("S", "source"), ("T", "target"), ("V", "vocab"))
             if letter not in free)
    return f"{protocol['name']}: {', '.join(sizes)}"


def _marks(axes: Axes, values: pd.Series, marks: Mapping[int, str] | None) -> None:
    """A line with words at each mark that the figure reaches."""
    for value, words in (marks or {}).items():
        if float(values.min()) < value < float(values.max()):
            axes.axvline(value, color=TEXT_COLOR, linewidth=0.8, linestyle=DASHED_LINE)
            axes.annotate(figure_text(words), (value, 0.98), (-3, 0),
                          xycoords=("data", "axes fraction"), textcoords="offset points",
                          fontsize=7, color=TEXT_COLOR, rotation=90, va="top", ha="right",
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})
