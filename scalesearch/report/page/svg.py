"""Matplotlib figures as inline SVG in the page's colours, with the marks that its script shows on hover."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from scalesearch.report.page.parts import Picture
from scalesearch.report.plot import FRONT, STYLE

GRID = "#e6e6e6"
# Colours of a figure that follow the reader's light or dark theme.
THEME = {"#000000": "var(--ink)", "#222222": "var(--ink)", "#ffffff": "var(--page)", GRID: "var(--grid)",
         FRONT.lower(): "var(--front)", "#8a3a6a": "var(--over)"}
NO_METADATA: Any = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # would name addresses on the network


@dataclass(frozen=True)
class Mark:
    """A point or a line of a trial, in data coordinates of ``axes``, and what it shows on hover."""

    trial: int
    text: str
    axes: Axes
    points: Sequence[tuple[float, float]]


@contextmanager
def canvas(width: float, height: float, columns: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """Figure of so many inches in the style of the study's own, and its panels side by side."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, columns, squeeze=False)[0]
        for axes in panels:
            axes.grid(True, color=GRID, linewidth=0.6)
            axes.set_axisbelow(True)
        yield figure, list(panels)


def picture(figure: Figure, key: str, alt: str, caption: str, marks: Sequence[Mark] = (), **rest: Any) -> Picture:
    """``figure`` as a part of the page.

    Args:
        key: the page's name for it; ids within the SVG begin with it, so that no two figures share one.
        rest: further attributes of :class:`Picture`.
    """
    with matplotlib.rc_context({**STYLE, "svg.fonttype": "none", "svg.hashsalt": key}):
        figure.set_dpi(72)  # of SVG's user units, so that marks lie where the drawing does
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for at, artist in enumerate(figure.findobj()):
            artist.set_gid(f"{key}-{at}")
        text = StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata=NO_METADATA)
    svg = text.getvalue()
    svg = svg[svg.index("<svg"):]
    for color, variable in THEME.items():
        svg = svg.replace(color, variable)
    return Picture(Markup(svg), key, alt, caption, [_placed(mark, figure.bbox.height) for mark in marks], **rest)


def _placed(mark: Mark, height: float) -> list[Any]:
    """A mark in SVG coordinates, whose y axis points down, to a tenth of a point."""
    spots = mark.axes.transData.transform(np.asarray(mark.points, dtype=float))
    return [mark.trial, mark.text, [[round(float(x), 1), round(height - float(y), 1)] for x, y in spots]]
