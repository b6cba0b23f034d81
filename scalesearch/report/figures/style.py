"""The style of all figures: palette, canvas, axes of sizes, and how they are saved."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from scalesearch.files import write_atomic
from scalesearch.report.text_tables import one_line

# Okabe and Ito's palette, which readers with any color vision can tell apart.
FRONT_COLOR = "#0072B2"
DOMINATED_COLOR = "#999999"
REFERENCE_COLOR = "#D55E00"
LIMIT_COLOR = "#CC79A7"
TEXT_COLOR = "#222222"
GRID_COLOR = "#e6e6e6"
COLORS = (FRONT_COLOR, REFERENCE_COLOR, "#009E73", LIMIT_COLOR, "#E69F00", "#56B4E9",
          DOMINATED_COLOR)
DASHED_LINE = (0, (4, 2))
RC_PARAMS: Any = {
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID_COLOR,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handletextpad": 0.4,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that a figure is the same everywhere
    "svg.fonttype": "path",
    "svg.hashsalt": "scalesearch",
    "pdf.fonttype": 42,
    "text.parse_math": False,  # a `$` is a dollar
}
MAX_NAME_LENGTH = 60  # of a name in a figure
MAX_Y_LABEL_LENGTH = 36  # that fit along an upright axis
FIGURE_WIDTH = 5.2  # inches of a figure in a column, at which its letters can be read on a phone
MAX_TICKS = 5  # steps of an axis at most: drawing them is most of what a small figure takes
# inches left and below (labels of two lines, ticks of five digits), right, above
MARGINS = (0.9, 0.63, 0.1, 0.11)


@contextmanager
def figure_style(rc_params: Any = ()) -> Iterator[None]:
    """Context in which figures are drawn: the style, with ``rc_params`` of matplotlib's settings.

    A letter that no font has is drawn as a box, and what leaves no room is cut; matplotlib need not
    warn of either.
    """
    with matplotlib.rc_context(RC_PARAMS | dict(rc_params)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph|constrained_layout not applied", UserWarning)
        yield


@contextmanager
def new_figure(width: float, height: float, rows: int = 1, columns: int = 1,
               **subplot_options: Any) -> Iterator[tuple[Figure, list[Axes]]]:
    """Figure of so many inches and its panels, row by row; ``shared``: as for ``Figure.subplots``."""
    with figure_style():
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, list(figure.subplots(rows, columns, squeeze=False, **subplot_options).ravel())


@contextmanager
def fixed_size_panel(
        height: float = 3.6,
        margins: tuple[float, float, float, float] = MARGINS) -> Iterator[tuple[Figure, Axes]]:
    """Figure of a column's width whose axes leave ``margins`` (inches), so that those of neighbors stand in line.

    Fitting the axes into it, as :func:`new_figure` does, takes half of all the time that a small
    figure does.
    """
    left, below, right, above = margins
    with figure_style():
        figure = Figure(figsize=(FIGURE_WIDTH, height))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((left / FIGURE_WIDTH, below / height,
                                1 - (left + right) / FIGURE_WIDTH, 1 - (below + above) / height))
        axes.locator_params(nbins=MAX_TICKS)
        yield figure, axes


def freeze_layout(figure: Figure) -> None:
    """Places the axes of a finished figure for good, so that what is put beside them stays there."""
    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine(None)  # a placeholder would have it drawn twice


def figure_text(text: object) -> str:
    """A user's text for a figure: one line that a font can draw and that leaves room for the figure."""
    line = one_line(text)
    line = line if len(line) <= MAX_NAME_LENGTH else line[:MAX_NAME_LENGTH - 1] + "…"
    return f" {line}" if line.startswith("_") else line  # which would keep it out of legends


def y_axis_label(label: str, corpus: object, is_synthetic: bool = False) -> str:
    """Words for an upright axis: ``label`` on a corpus, if any, in two lines where one would be
    longer than the axis."""
    where = f"on {figure_text(corpus)}{' (synthetic)' * is_synthetic}" if corpus else ""
    return label + ("\n" if len(label + where) > MAX_Y_LABEL_LENGTH else " ") * bool(where) + where


def set_log_size_ticks(axis: Axis, subs: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Ticks of a logarithmic axis of sizes, such as ``2M``; ``subs``: those within a decade."""
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(EngFormatter(sep=""))
    axis.set_minor_formatter(NullFormatter())


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Writes ``stem.png`` (300 dpi) and ``stem.svg`` (the same bytes for the same figure); returns their paths."""
    files = [stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "svg")]
    metadata: list[Any] = [{"Software": "scalesearch"}, {"Date": None, "Creator": "scalesearch"}]
    for file, facts in zip(files, metadata):
        with figure_style():
            write_atomic(file,
                         partial(figure.savefig, format=file.suffix[1:], dpi=300, metadata=facts))
    return files
