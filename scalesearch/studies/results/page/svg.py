"""Matplotlib figures as inline SVG in the colors of the page, with marks."""

from collections.abc import Sequence
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from scalesearch.report.figures.style import (
    FRONT_COLOR,
    GRID_COLOR,
    TEXT_COLOR,
    figure_style,
    freeze_layout,
)
from scalesearch.studies.results.page.elements import Part, Picture

# Colors that follow the light or dark theme of the browser.
CSS_COLORS = {"#000000": "var(--ink)", TEXT_COLOR: "var(--ink)", "#ffffff": "var(--page)",
              GRID_COLOR: "var(--grid)", FRONT_COLOR.lower(): "var(--front)",
              "#8a3a6a": "var(--over)"}
# without metadata, which contains network addresses
NO_METADATA: Any = dict.fromkeys(("Creator", "Date", "Format", "Type"))


class PlotMark(NamedTuple):
    """Point or line of a trial in data coordinates, with a text shown on hover."""

    trial: int
    text: str
    axes: Axes
    points: Sequence[tuple[float, float]]


def picture(figure: Figure, key: str, alt: str, caption: str, marks: Sequence[PlotMark] = (),
            **attributes: Any) -> Part:
    """Convert a figure to a part of the page.

    Args:
        key: HTML id. It is also the prefix of all ids in the SVG, so that ids are unique.
        attributes: further attributes of :class:`Picture`.
    """
    with figure_style({"svg.fonttype": "none", "svg.hashsalt": key}):
        figure.set_dpi(72)  # SVG user units, so that marks have the coordinates of the drawing
        freeze_layout(figure)
        for index, artist in enumerate([*figure.findobj(), *_patches(figure)]):
            artist.set_gid(f"{key}-{index}")
        text = StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata=NO_METADATA)
    svg = text.getvalue()
    svg = svg[svg.index("<svg"):]
    for color, variable in CSS_COLORS.items():
        svg = svg.replace(color, variable)
    placed = [_placed(mark, figure.bbox.height) for mark in marks]
    return "picture", Picture(Markup(svg), key, alt, caption, placed, **attributes)


def _patches(figure: Figure) -> list[Artist]:
    """Frames and arrows of texts, which ``Figure.findobj`` does not return."""
    texts: Any = figure.findobj(Text)
    patches = [patch for text in texts
               for patch in (text.get_bbox_patch(), getattr(text, "arrow_patch", None))]
    return [patch for patch in patches if patch is not None]


def _placed(mark: PlotMark, height: float) -> list[Any]:
    """Convert a mark to SVG coordinates (y downwards), rounded to 0.1 points."""
    points = mark.axes.transData.transform(
        np.asarray(mark.points, dtype=float)) * (1, -1) + (0, height)
    return [mark.trial, mark.text, points.round(1).tolist()]
