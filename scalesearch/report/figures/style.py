"""Common style of figures: palette, canvas, axes of sizes, and saving."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
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
from scalesearch.report.figures import FIGURE_METADATA
from scalesearch.report.text_tables import one_line

# Okabe and Ito's palette, which readers with color vision deficiency can distinguish
FRONT_COLOR = "#0072B2"
DOMINATED_COLOR = "#999999"
REFERENCE_COLOR = "#D55E00"
LIMIT_COLOR = "#CC79A7"
TEXT_COLOR = "#222222"
GRID_COLOR = "#e6e6e6"
COLORS = (FRONT_COLOR, REFERENCE_COLOR, "#009E73", LIMIT_COLOR, "#E69F00", "#56B4E9",
          DOMINATED_COLOR)
DASHED_LINE = (0, (4, 2))
LABEL_BACKGROUND = {"boxstyle": "square,pad=0.1", "facecolor": "white", "alpha": 0.75,
                    "linewidth": 0}
RC_PARAMS: Any = {
    "font.size": 9,
    "text.hinting": "no_hinting",  # texts have the same size at every resolution, for the labels
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
    "font.family": "DejaVu Sans",  # part of matplotlib, so that figures do not depend on the system
    "svg.fonttype": "path",
    "svg.hashsalt": "scalesearch",
    "pdf.fonttype": 42,
    "text.parse_math": False,  # `$` is an ordinary character
}
# The style `paper`: figures as wide as one column of a paper, with smaller text.
PAPER_WIDTH = 3.3  # inches
MIN_LEGEND_HEIGHT = 0.5  # inches above the axes, if a legend is there
PAPER_PANEL_HEIGHT = 2.3  # inches of each of several panels, which are below each other
PAPER_RC_PARAMS: Any = {"font.size": 7, "axes.labelsize": 7, "axes.titlesize": 7,
                        "legend.fontsize": 6, "xtick.labelsize": 6, "ytick.labelsize": 6}
_formats: ContextVar[tuple[str, ...]] = ContextVar("formats", default=("png", "svg"))
_is_paper: ContextVar[bool] = ContextVar("is_paper", default=False)
MAX_NAME_LENGTH = 60  # characters of a name in a figure
MAX_Y_LABEL_LENGTH = 36  # characters of a label on one line of the vertical axis
FIGURE_WIDTH = 5.2  # inches; text is still legible on a phone
MAX_TICKS = 5  # per axis; drawing ticks takes most of the time of a small figure
# inches to the left and below (labels of two lines, ticks of five digits), to the right (half a
# tick label), above
MARGINS = (0.9, 0.63, 0.2, 0.11)


@contextmanager
def paper_style() -> Iterator[None]:
    """Context in which figures are as wide as one column of a paper."""
    token = _is_paper.set(True)
    try:
        yield
    finally:
        _is_paper.reset(token)


def is_paper_style() -> bool:
    """Whether figures are drawn for one column of a paper."""
    return _is_paper.get()


@contextmanager
def figure_style(rc_params: Any = ()) -> Iterator[None]:
    """Context in which figures have the common style.

    Matplotlib's warnings on missing glyphs (drawn as boxes) and on layouts without enough room are
    suppressed.

    Args:
        rc_params: further settings of matplotlib.
    """
    paper = PAPER_RC_PARAMS if is_paper_style() else {}
    with matplotlib.rc_context(RC_PARAMS | paper | dict(rc_params)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph|constrained_layout not applied", UserWarning)
        yield


@contextmanager
def new_figure(width: float, height: float, rows: int = 1, columns: int = 1,
               **subplot_options: Any) -> Iterator[tuple[Figure, list[Axes]]]:
    """Context with a new figure and its panels in row-major order.

    Args:
        width, height: size in inches.
        rows, columns: grid of panels.
        subplot_options: options of ``Figure.subplots``.

    In the style `paper`, panels are below each other.
    """
    if is_paper_style():
        height = height * PAPER_WIDTH / width if rows * columns == 1 else (
            PAPER_PANEL_HEIGHT * rows * columns)
        height = max(height, PAPER_PANEL_HEIGHT)
        width = PAPER_WIDTH
        rows *= columns
        columns = 1
    with figure_style():
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, list(figure.subplots(rows, columns, squeeze=False, **subplot_options).ravel())


@contextmanager
def fixed_size_panel(
        height: float = 3.6,
        margins: tuple[float, float, float, float] = MARGINS) -> Iterator[tuple[Figure, Axes]]:
    """Context with a new figure of fixed width and its axes with fixed ``margins``.

    Fixed margins align the axes of neighboring figures. They also take half the time of the
    automatic layout of :func:`new_figure`.

    Args:
        height: inches.
        margins: inches to the left, below, to the right and above.
    """
    left, below, right, above = margins
    width = FIGURE_WIDTH
    if is_paper_style():
        width = PAPER_WIDTH
        left, below = 0.75 * left, 0.85 * below
        has_legend = above > MIN_LEGEND_HEIGHT  # its entries are below each other
        above = above * 1.25 if has_legend else above
        height = height * PAPER_WIDTH / FIGURE_WIDTH + has_legend * above / 2
    with figure_style():
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((left / width, below / height, 1 - (left + right) / width,
                                1 - (below + above) / height))
        axes.locator_params(nbins=MAX_TICKS)
        yield figure, axes


def freeze_layout(figure: Figure) -> None:
    """Fix the positions of the axes, so that labels keep theirs."""
    engine = figure.get_layout_engine()
    if engine:
        engine.execute(figure)
        figure.set_layout_engine(None)  # a placeholder engine would draw the figure twice


def figure_text(text: object, max_length: int = MAX_NAME_LENGTH) -> str:
    """Convert a user's text to one line of at most ``max_length`` characters."""
    line = one_line(text)
    line = line if len(line) <= max_length else line[:max_length - 1] + "…"
    return f" {line}" if line.startswith("_") else line  # legends omit names that start with _


def y_axis_label(label: str, corpus: object, is_synthetic: bool = False) -> str:
    """Label of a vertical axis with the corpus, if any.

    It has two lines if one is too short; a longer name of a corpus is shortened.
    """
    if not corpus:
        return label
    note = " (synthetic)" if is_synthetic else ""
    room = MAX_Y_LABEL_LENGTH - len("on ") - len(note)
    suffix = f"on {figure_text(corpus, room)}{note}"
    separator = "\n" if len(label + suffix) > MAX_Y_LABEL_LENGTH else " "
    return label + separator + suffix


def set_log_size_ticks(axis: Axis, subs: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Set ticks such as ``2M`` on a logarithmic axis.

    ``subs`` are the ticks within a decade.
    """
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(EngFormatter(sep=""))
    axis.set_minor_formatter(NullFormatter())


@contextmanager
def figure_formats(formats: Sequence[str]) -> Iterator[None]:
    """Context in which :func:`save_figure` writes these of ``FIGURE_METADATA``."""
    token = _formats.set(tuple(formats))
    try:
        yield
    finally:
        _formats.reset(token)


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem.png`` (300 dpi), ``stem.svg`` and ``stem.pdf``, and return their paths.

    :func:`figure_formats` selects the formats, by default PNG and SVG. Equal figures give equal
    bytes.
    """
    files = []
    for name in _formats.get():
        files.append(stem.with_name(f"{stem.name}.{name}"))
        with figure_style():
            write_atomic(files[-1], partial(figure.savefig, format=name, dpi=300,
                                            metadata=FIGURE_METADATA[name]))
    return files
