"""Figure of a sweep: params and MACs over a size, by section or by a second size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter

from scalesearch.errors import UserError
from scalesearch.report.figures.style import (
    COLORS,
    DASHED_LINE,
    TEXT_COLOR,
    figure_text,
    new_figure,
)
from scalesearch.report.labels import axis_label

LINE_STYLES = ("-", "--", "-.", ":")
MIN_LOG_RATIO = 20  # of the largest to the smallest swept value, above which axes are logarithmic
MAX_MARKED_POINTS = 40  # longer lines have no markers
SECTION_NAMES = {"total": "total", "non_embedding": "non-embedding", "encoder": "encoder",
                 "decoder": "decoder", "output": "output projection",
                 "attention_products": "attention's products"}
LENGTH_KEYS = ("source", "target", "length", "vocab")
LENGTH_LABELS = {"source": "Source tokens S", "target": "Target tokens T", "length": "Tokens S = T",
                 "vocab": "Vocabulary V"}


def plot_sweep(table: pd.DataFrame, keys: Sequence[str], protocol: Mapping[str, Any],
               annotations: Mapping[int, str] | None = None,
               curve: pd.DataFrame | None = None) -> Figure:
    """Plot the costs of a sweep over the first key, one line per value of the second.

    Args:
        table: table of :meth:`scalesearch.whatif.Sweep.frame`.
        keys: the swept keys.
        protocol: protocol of the costs, as JSON.
        annotations: value of the first key to the text of a vertical line.
        curve: a table with more values of the first key, for lines between the swept values.

    Axes are logarithmic if the swept values cover more than ``MIN_LOG_RATIO``.

    Raises:
        UserError: there are more than two keys, or none of the values can be built.
    """
    if len(keys) > 2:
        raise UserError(f"a figure shows at most two sweeps, not {len(keys)}: {', '.join(keys)}. "
                        "Remove a sweep, or save the table instead", code="too-many-sweeps")
    built = table[table["macs.total"].notna()]
    if built.empty:
        raise UserError("nothing to plot: none of the swept values can be built. Sweep other "
                        "values", code="nothing-to-plot")
    # the protocol without the swept length
    swept = {"source": "S", "target": "T", "length": "ST", "vocab": "V"}.get(keys[0], "")
    lengths = ", ".join(f"{letter}={protocol[name]}" for letter, name
                        in (("S", "source"), ("T", "target"), ("V", "vocab"))
                        if letter not in swept)
    quantities = ("macs",) if keys[0] in LENGTH_KEYS[:3] else ("params", "macs")
    with new_figure(4.4 * len(quantities), 3.4, columns=len(quantities)) as (figure, panels):
        for axes, quantity in zip(panels, quantities):
            _draw_lines(axes, built, keys, quantity, curve)
            axes.set_xlabel(LENGTH_LABELS.get(keys[0], figure_text(keys[0])))
            values = built[keys[0]]
            if (pd.api.types.is_numeric_dtype(values) and values.min() > 0
                    and values.max() / values.min() > MIN_LOG_RATIO):
                axes.set(xscale="log", yscale="log")
            else:
                axes.set_ylim(bottom=0)
                for line in axes.lines:  # points on the axis are drawn whole
                    line.set_clip_on(False)
            axes.yaxis.set_major_formatter(EngFormatter(sep="", places=None))
            if pd.api.types.is_numeric_dtype(values):
                axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
            axes.set_ylabel("Parameters" if quantity == "params"
                            else f"Multiply-accumulates\n({protocol['name']}: {lengths})")
            axes.legend(handlelength=1.8)
            for value, text in (annotations or {}).items() if quantity == "macs" else ():
                if float(values.min()) < value < float(values.max()):
                    axes.axvline(value, color=TEXT_COLOR, linewidth=0.8, linestyle=DASHED_LINE)
                    axes.annotate(figure_text(text), (value, 0.98), (-3, 0),
                                  xycoords=("data", "axes fraction"), textcoords="offset points",
                                  fontsize=7, color=TEXT_COLOR, rotation=90, va="top", ha="right",
                                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})
    return figure


def plot_contexts(table: pd.DataFrame, protocol: Mapping[str, Any]) -> Figure:
    """Plot prefill, decoding step and cache of architectures over the length of the context.

    Args:
        table: table of :meth:`scalesearch.whatif.ContextComparison.frame`.
        protocol: protocol of the costs, as JSON.
    """
    costs = [column for column in table.columns if column not in ("length", "name")]
    with new_figure(4.4 * len(costs), 3.4, columns=len(costs)) as (figure, panels):
        for axes, column in zip(panels, costs):
            for index, (name, rows) in enumerate(table.groupby("name", sort=False)):
                style = LINE_STYLES[index % len(LINE_STYLES)]
                _draw_line(axes, rows, "length", column, figure_text(name), index, style)
            axes.set(xscale="log", yscale="log", xlabel="Tokens of context",
                     ylabel=axis_label(column, protocol))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
            axes.yaxis.set_major_formatter(EngFormatter(sep="", places=None))
            axes.legend(handlelength=1.8)
    return figure


def _draw_lines(axes: Axes, built: pd.DataFrame, keys: Sequence[str], quantity: str,
                curve: pd.DataFrame | None) -> None:
    """Draw a line per value of the second key.

    With a single key, draw a line per section of the cost.
    """
    if len(keys) == 2:
        for index, (value, rows) in enumerate(built.groupby(keys[1], sort=False)):
            style = LINE_STYLES[index % len(LINE_STYLES)]  # keeps lines with equal costs visible
            _draw_line(axes, rows, keys[0], f"{quantity}.total",
                       figure_text(f"{keys[1]} = {value}"), index, style)
        return
    columns = [column for column in built.columns
               if column.removeprefix(f"{quantity}.") in SECTION_NAMES]
    for index, column in enumerate(sorted(columns, key=lambda name: not name.endswith(".total"))):
        if built[column].max() > 0:
            _draw_line(axes, built, keys[0], column, SECTION_NAMES[column.partition(".")[2]],
                       index, LINE_STYLES[0], curve)


def _draw_line(axes: Axes, rows: pd.DataFrame, key: str, column: str, label: str,
               color_index: int, style: str, curve: pd.DataFrame | None = None) -> None:
    # values that are not numbers have one tick each
    x = (rows[key].astype(float) if pd.api.types.is_numeric_dtype(rows[key])
         else rows[key].map(figure_text))
    color = COLORS[color_index % len(COLORS)]
    marker = "o" if len(rows) <= MAX_MARKED_POINTS else ""
    if curve is None:
        axes.plot(x, rows[column].astype(float), style, color=color, label=label, marker=marker,
                  markersize=2.8, linewidth=1.3)
        return
    axes.plot(curve[key].astype(float), curve[column].astype(float), style, color=color,
              label=label, linewidth=1.3)
    axes.plot(x, rows[column].astype(float), marker, color=color, markersize=2.8)
