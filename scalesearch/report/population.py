"""Figures of a space under a budget: its candidates in the plane of two costs, and which answers leave room."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from scalesearch.feasible.answer import binned
from scalesearch.report.label_placement import place
from scalesearch.report.plot import FRONT, INK, LIMIT, REFERENCE, REST, STYLE, describe

MOST_BARS = 12  # bars of one question; more values of a range are put together
ROW = 0.16  # inches a bar takes


def plane(
    sample: pd.DataFrame,
    front: Sequence[tuple[float, float]],
    limits: Mapping[str, float],
    protocol: Mapping[str, Any],
    references: Sequence[tuple[float, float, str]] = (),
    axes_names: tuple[str, str] = ("macs.total", "params.non_embedding"),
) -> Figure:
    """Candidates of a space by two costs, the budget's box, the front, and named points; all on log axes.

    Args:
        sample: a row a candidate, with both costs and ``fits``.
        front, references: (x, y) and (x, y, name) in the order of ``axes_names``.
        limits: cost to the most that is allowed.
    """
    x, y = axes_names
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 3.9), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.set(xscale="log", yscale="log", xlabel=describe(x, protocol), ylabel=describe(y, protocol))
        for fits, color, label in ((False, REST, "does not fit"), (True, FRONT, "fits")):
            rows = sample[sample["fits"] == fits]
            axes.scatter(rows[x], rows[y], s=5, color=color, alpha=0.5, linewidths=0, label=label, zorder=2 + fits)
        if front:
            columns = list(zip(*sorted(front)))
            axes.plot(*columns, color=INK, linewidth=1.1, label=f"most {_short(y)} for the {_short(x)}", zorder=5)
        if references:
            points = list(zip(*references))
            axes.scatter(points[0], points[1], marker="D", s=26, facecolors="white", edgecolors=REFERENCE, zorder=6)
        _box(axes, limits.get(x), limits.get(y))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(EngFormatter(sep=""))
            axis.set_minor_formatter(NullFormatter())
        axes.grid(True, color="#e6e6e6", linewidth=0.6)
        axes.set_axisbelow(True)
        figure.draw_without_rendering()
        place(axes, references, [(point[0], point[1]) for point in references])
        axes.legend(frameon=False, loc="best", handletextpad=0.4, markerscale=2)
    return figure


def _short(name: str) -> str:
    return {"params": "parameters", "macs": "MACs", "flops": "FLOPs"}.get(name.partition(".")[0], name)


def _box(axes: Axes, right: float | None, top: float | None) -> None:
    """The budget: what lies beyond it is shaded."""
    left_end, right_end = axes.get_xlim()
    bottom, top_end = axes.get_ylim()
    shade: dict[str, Any] = {"facecolor": LIMIT, "alpha": 0.10, "linewidth": 0, "zorder": 1}
    edge: dict[str, Any] = {"color": LIMIT, "linewidth": 1.0, "linestyle": (0, (4, 2)), "zorder": 4}
    if right is not None and left_end < right < right_end:
        axes.axvspan(right, right_end, **shade)
        axes.axvline(right, **edge)
    if top is not None and bottom < top < top_end:
        axes.axhspan(top, top_end, **shade)
        axes.axhline(top, **edge)
    axes.set(xlim=(left_end, right_end), ylim=(bottom, top_end))


def shares(values: pd.DataFrame, exact: bool) -> Figure:
    """The feasible share of every answer, as bars, a panel a question; ``values`` as ``Feasibility.values``."""
    panels = [(str(name), binned(rows, MOST_BARS)) for name, rows in values.groupby("question", sort=False)]
    panels = [(name, rows) for name, rows in panels if len(rows) > 1]
    heights = [len(rows) * ROW + 0.35 for _, rows in panels]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.2, max(1.5, sum(heights) + 0.5)), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(max(1, len(panels)), 1, height_ratios=heights or [1])
        for row, (name, rows) in enumerate(panels):
            axes = figure.add_subplot(grid[row, 0])
            at = np.arange(len(rows))[::-1]
            axes.barh(at, 100 * rows["share"], color=FRONT, height=0.78)
            axes.set_yticks(at, rows["answer"].astype(str), fontsize=7)
            axes.set_title(name, loc="left", fontsize=8, pad=2)
            axes.set_xlim(0, 100)
            axes.tick_params(axis="x", labelbottom=row == len(panels) - 1)
            for place_, (share, verdict) in zip(at, zip(rows["share"], rows["verdict"])):
                text = verdict or f"{100 * share:.3g} %"
                axes.annotate(text, (100 * share, place_), (2, 0), textcoords="offset points", va="center", fontsize=6)
        figure.supxlabel(f"feasible share of {'answer sheets' if exact else 'draws'} (%)", fontsize=9)
    return figure
