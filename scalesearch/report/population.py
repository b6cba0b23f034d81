"""Figures of a space under a budget: its candidates in the plane of two costs, and which answers leave room."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalesearch.feasible.answer import binned
from scalesearch.report.label_placement import place
from scalesearch.report.labels import SHORT, describe
from scalesearch.report.style import DASHED, FRONT, INK, LIMIT, REFERENCE, REST, canvas, lay_out, log_sizes, name_in

MAX_BARS = 12  # of one parameter; more values of a range are put together
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
    with canvas(5.2, 3.9) as (figure, (axes,)):
        axes.set(xscale="log", yscale="log", xlabel=describe(x, protocol), ylabel=describe(y, protocol))
        for fits, color, label in ((False, REST, "does not fit"), (True, FRONT, "fits")):
            rows = sample[sample["fits"] == fits]
            axes.scatter(rows[x], rows[y], s=5, color=color, alpha=0.5, linewidths=0, label=label, zorder=2 + fits)
        if front:
            short = [SHORT.get(name.partition(".")[0], name) for name in (y, x)]
            axes.plot(*zip(*sorted(front)), color=INK, linewidth=1.1, zorder=5,
                      label="most {} for the {}".format(*short))
        points = [(point[0], point[1]) for point in references]
        if points:
            axes.scatter(*np.array(points).T, marker="D", s=26, facecolors="white", edgecolors=REFERENCE, zorder=6)
        _box(axes, limits.get(x), limits.get(y))
        log_sizes(axes.xaxis)
        log_sizes(axes.yaxis)
        lay_out(figure)
        place(axes, [(x, y, name_in(name)) for x, y, name in references], points)
        axes.legend(loc="best", markerscale=2)
    return figure


def _box(axes: Axes, right: float | None, top: float | None) -> None:
    """The budget: what lies beyond it is shaded."""
    x_limits, y_limits = axes.get_xlim(), axes.get_ylim()
    for bound, (low, high), shade, edge in ((right, x_limits, axes.axvspan, axes.axvline),
                                            (top, y_limits, axes.axhspan, axes.axhline)):
        if bound is not None and low < bound < high:
            shade(bound, high, facecolor=LIMIT, alpha=0.10, linewidth=0, zorder=1)
            edge(bound, color=LIMIT, linewidth=1.0, linestyle=DASHED, zorder=4)
    axes.set(xlim=x_limits, ylim=y_limits)


def shares(values: pd.DataFrame, exact: bool) -> Figure:
    """The feasible share of every answer, as bars, a panel a parameter; ``values`` as ``Feasibility.values``."""
    panels = [(str(name), binned(rows, MAX_BARS)) for name, rows in values.groupby("parameter", sort=False)]
    panels = [(name, rows) for name, rows in panels if len(rows) > 1]
    heights = [len(rows) * ROW + 0.35 for _, rows in panels] or [1]
    with canvas(5.2, max(1.5, sum(heights) + 0.5), len(heights), height_ratios=heights) as (figure, drawn):
        for axes, (name, rows) in zip(drawn, panels):
            places = np.arange(len(rows))[::-1]
            axes.grid(False)
            axes.barh(places, 100 * rows["share"], color=FRONT, height=0.78)
            axes.set_yticks(places, rows["answer"].map(name_in), fontsize=7)
            axes.set_title(name_in(name), loc="left", fontsize=8, pad=2)
            axes.set_xlim(0, 100)
            axes.tick_params(axis="x", labelbottom=axes is drawn[-1])
            for at, share, verdict in zip(places, rows["share"], rows["verdict"]):
                axes.annotate(verdict or f"{100 * share:.3g} %", (100 * share, at), (2, 0),
                              textcoords="offset points", va="center", fontsize=6)
        figure.supxlabel(f"feasible share of {'answer sheets' if exact else 'draws'} (%)", fontsize=9)
    return figure
