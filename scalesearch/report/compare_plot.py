"""The figure of two studies: quality against cost, with the front of each and the corner they are measured from."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from scalesearch.report.compare import Comparison, Side
from scalesearch.report.labels import describe, direction
from scalesearch.report.plot import draw_stairs
from scalesearch.report.style import COLORS, INK, canvas

MARKERS = ("o", "s")
ROOM = 0.06  # of the range, around what is drawn


def both(sides: tuple[Side, Side], found: Comparison, x: str, y: str, corpus: str = "") -> Figure:
    """Figure of ``y`` against the cost ``x``, of two studies that compare."""
    rows = [side.counted.dropna(subset=[x, y]) for side in sides]
    corner = {name: value for name, value in zip(found.objectives, found.corner) if {x, y} <= set(found.objectives)}
    with canvas(5.2, 3.6) as (figure, (axes,)):
        for name, limit in ((x, axes.set_xlim), (y, axes.set_ylim)):
            values = [*pd.concat(rows)[name].astype(float), *([corner[name]] if corner else [])]
            room = ROOM * (max(values) - min(values) or 1.0)
            limit(min(values) - room, max(values) + room)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlabel(describe(x, sides[0].protocol))
        axes.set_ylabel(describe(y, sides[0].protocol) + (f" on {corpus}" if corpus else ""))
        for side, mine, color, marker in zip(sides, rows, COLORS, MARKERS):
            best = mine["front"].astype(bool)
            for some, fill, size, alpha, label in (
                    (mine[~best], "white", 12, 0.55, None),
                    (mine[best], color, 22, 1.0, f"{side.name}: front of {int(best.sum())} among {len(mine)}")):
                axes.scatter(some[x], some[y], s=size, facecolors=fill, edgecolors=color, linewidths=0.9, alpha=alpha,
                             marker=marker, label=label, zorder=4 if label else 3)
            draw_stairs(axes, mine, x, y, side.objectives.get(y, direction(y)), color)
        if corner:
            axes.plot(corner[x], corner[y], "x", color=INK, markersize=6, label="reference corner of both", zorder=5)
        axes.legend(loc="best")
    return figure
