"""The figure of two studies: quality against cost, with the front of each and the corner they are measured from."""

from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from scalesearch.pareto.front import staircase
from scalesearch.report.compare import Compared, Side
from scalesearch.report.plot import INK, STYLE, describe, direction

COLORS, MARKERS = ("#0072B2", "#D55E00"), ("o", "s")  # Okabe and Ito's; told apart by shape too
ROOM = 0.06  # of the range, around what is drawn


def both(sides: tuple[Side, Side], found: Compared, x: str, y: str, corpus: str = "") -> Figure:
    """A figure of ``y`` against the cost ``x``, of two studies that compare."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        rows = [side.counted.dropna(subset=[x, y]) for side in sides]
        corner = _corner(found, x, y)
        _axis(axes, pd.concat(rows), corner, x, y)
        axes.set_xlabel(describe(x, sides[0].protocol))
        axes.set_ylabel(describe(y, sides[0].protocol) + (f" on {corpus}" if corpus else ""))
        for side, mine, name, color, marker in zip(sides, rows, found.names, COLORS, MARKERS):
            _draw(axes, mine, x, y, side.objectives.get(y, direction(y)), name, color, marker)
        if corner is not None:
            axes.plot(*corner, "x", color=INK, markersize=6, label="reference corner of both", zorder=5)
        axes.legend(frameon=False, loc="best", handletextpad=0.4)
    return figure


def _corner(found: Compared, x: str, y: str) -> tuple[float, float] | None:
    """The reference point in the plane shown; None where it has no value on one of its axes."""
    at = dict(zip(found.objectives, found.corner))
    return (at[x], at[y]) if x in at and y in at else None


def _axis(axes: Axes, rows: pd.DataFrame, corner: tuple[float, float] | None, x: str, y: str) -> None:
    for name, at, limit in ((x, 0, axes.set_xlim), (y, 1, axes.set_ylim)):
        values = [*rows[name].astype(float), *([corner[at]] if corner else [])]
        room = ROOM * (max(values) - min(values) or 1.0)
        limit(min(values) - room, max(values) + room)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(True, color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)


def _draw(axes: Axes, rows: pd.DataFrame, x: str, y: str, way: str, name: str, color: str, marker: str) -> None:
    """All candidates of one study, hollow where dominated, and the stairs of its front in the plane shown."""
    best = rows["front"].astype(bool)
    common: dict[str, Any] = {"marker": marker, "edgecolors": color, "linewidths": 0.9}
    axes.scatter(rows[~best][x], rows[~best][y], s=12, facecolors="white", alpha=0.55, zorder=3, **common)
    axes.scatter(rows[best][x], rows[best][y], s=22, facecolors=color, zorder=4,
                 label=f"{name}: front of {int(best.sum())} among {len(rows)}", **common)
    corners_x, corners_y = staircase(rows[x].to_numpy(float), rows[y].to_numpy(float), ("min", way))
    bottom, top = axes.get_ylim()
    steps_x = np.concatenate([[corners_x[0]], corners_x, [axes.get_xlim()[1]]])
    steps_y = np.concatenate([[bottom if way == "max" else top], corners_y, [corners_y[-1]]])
    axes.step(steps_x, steps_y, where="post", color=color, linewidth=1.3, zorder=2)
