"""Matplotlib figures as inline SVG in the page's colors, with the marks that its script shows on hover."""

from collections.abc import Sequence
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from scalesearch.report.figures.style import FRONT_COLOR, GRID_COLOR, TEXT_COLOR, figure_style, freeze_layout
from scalesearch.study.results.page.elements import Part, Picture

# Colors of a figure that follow the reader's light or dark theme.
CSS_COLORS = {"#000000": "var(--ink)", TEXT_COLOR: "var(--ink)", "#ffffff": "var(--page)",
              GRID_COLOR: "var(--grid)", FRONT_COLOR.lower(): "var(--front)",
              "#8a3a6a": "var(--over)"}
# would name addresses on the network
NO_METADATA: Any = dict.fromkeys(("Creator", "Date", "Format", "Type"))


class PlotMark(NamedTuple):
    """A point or a line of a trial, in data coordinates of ``axes``, and what it shows on hover."""

    trial: int
    text: str
    axes: Axes
    points: Sequence[tuple[float, float]]


def picture(figure: Figure, key: str, alt: str, caption: str, marks: Sequence[PlotMark] = (),
            **rest: Any) -> Part:
    """``figure`` as a part of the page; ``rest``: further attributes of :class:`Picture`.

    ``key`` is its id, with which all ids within the SVG begin, so that no two figures share one.
    """
    with figure_style({"svg.fonttype": "none", "svg.hashsalt": key}):
        figure.set_dpi(72)  # of SVG's user units, so that marks lie where the drawing does
        freeze_layout(figure)
        for at, artist in enumerate([*figure.findobj(), *_patches(figure)]):
            artist.set_gid(f"{key}-{at}")
        text = StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata=NO_METADATA)
    svg = text.getvalue()
    svg = svg[svg.index("<svg"):]
    for color, variable in CSS_COLORS.items():
        svg = svg.replace(color, variable)
    placed = [_placed(mark, figure.bbox.height) for mark in marks]
    return "picture", Picture(Markup(svg), key, alt, caption, placed, **rest)


def _patches(figure: Figure) -> list[Artist]:
    """Frames and arrows of texts, which matplotlib does not list among a figure's artists."""
    texts: Any = figure.findobj(Text)
    found = [patch for text in texts
             for patch in (text.get_bbox_patch(), getattr(text, "arrow_patch", None))]
    return [patch for patch in found if patch is not None]


def _placed(mark: PlotMark, height: float) -> list[Any]:
    """A mark in SVG coordinates, whose y axis points down, to a tenth of a point."""
    spots = mark.axes.transData.transform(
        np.asarray(mark.points, dtype=float)) * (1, -1) + (0, height)
    return [mark.trial, mark.text, spots.round(1).tolist()]
