"""Parallel coordinates: a line per trial through its hyperparameters.

The axes are horizontal and below each other, so that narrow screens show all axes and labels.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, Normalize
from numpy.typing import NDArray

from scalesearch.blocks.sizes import is_number
from scalesearch.report.figures.style import TEXT_COLOR, figure_text, fixed_size_panel
from scalesearch.report.labels import better_direction, format_value, one_line_label
from scalesearch.report.table import HALF_WIDTH_SUFFIX, summarize_trial
from scalesearch.studies.results.page.elements import PageSection, Part, text
from scalesearch.studies.results.page.facts import PageFacts, shown_params
from scalesearch.studies.results.page.svg import PlotMark, picture

MAX_AXES = 12  # maximum number of axes that stay readable
ROW_HEIGHT = 0.42  # inches of an axis with its labels
BAR_HEIGHT = 0.5  # inches of the color bar
MAX_LABEL_LETTERS = 60  # maximum length of all tick labels of an axis
# Without the ends of the color map, which have little contrast on a dark or light page.
COLORS = ListedColormap(matplotlib.colormaps["viridis"](np.linspace(0.2, 0.9, 256)))
MAX_TICKS = 6  # maximum number of numerical ticks; otherwise only the two ends have a tick
UNSET_POSITION = -0.12  # position of trials that do not have the hyperparameter


class ParallelAxis(NamedTuple):
    """Axis of a hyperparameter.

    Attributes:
        name: the hyperparameter.
        positions: (n,) position of each trial on the axis, from 0 to 1.
        ticks: pairs of position and label.
    """

    name: str
    positions: list[float]
    ticks: list[tuple[float, str]]


def parallel_axis(name: str, values: Sequence[Any]) -> ParallelAxis:
    """Create the axis of a hyperparameter.

    Args:
        values: value of each trial; None if unset. Numbers are placed to scale, words at equal
            distances.
    """
    set_values = [value for value in values if value is not None]
    if all(map(is_number, set_values)):
        low = min(set_values)
        high = max(set_values)
        positions = {format_value(value): (value - low) / (high - low) if high > low else 0.5
                     for value in sorted(set_values)}
        ticks = (list(positions) if len(positions) <= MAX_TICKS
                 else [format_value(low), format_value(high)])
    else:
        ticks = sorted({format_value(value) for value in set_values})
        positions = {label: index / max(1, len(ticks) - 1) for index, label in enumerate(ticks)}
    trial_positions = [UNSET_POSITION if value is None else positions[format_value(value)]
                       for value in values]
    return ParallelAxis(name, trial_positions, [(positions[label], label) for label in ticks])


def parallel_axes(facts: PageFacts, rows: pd.DataFrame) -> list[ParallelAxis]:
    """Create the axes of all hyperparameters that differ between ``rows``.

    They have the order of the space; hyperparameters that all trials have come first.
    """
    params = [shown_params(facts.trials[int(number)]) for number in rows["trial"]]
    names = dict.fromkeys(name for trial_params in params
                          for name in trial_params if name in facts.sampled)
    axes = []
    for name in names:
        values = [trial_params.get(name) for trial_params in params]
        if len({format_value(value) for value in values}) > 1:
            axes.append(parallel_axis(name, values))
    return sorted(axes, key=lambda axis: UNSET_POSITION in axis.positions)


def parallel_section(facts: PageFacts) -> PageSection | None:
    """Create the section with the figure, or a note.

    The result is None if the study is not a search.
    """
    if not facts.is_search:
        return None
    rows = facts.finished_rows[[bool(shown_params(facts.trials[int(number)]))
                                for number in facts.finished_rows["trial"]]]
    axes = parallel_axes(facts, rows) if len(rows) > 1 else []
    part = (_picture(facts, rows, axes) if axes
            else text("Fewer than two finished trials differ in any hyperparameter."))
    return PageSection("hyperparameters", "Hyperparameters", [part])


def _picture(facts: PageFacts, rows: pd.DataFrame, all_axes: list[ParallelAxis]) -> Part:
    shown = all_axes[:MAX_AXES]
    hidden = [axis.name for axis in all_axes[MAX_AXES:]]
    scores = rows[facts.main_metric].to_numpy(dtype=float)
    scale = Normalize(scores.min(), scores.max())
    with fixed_size_panel(BAR_HEIGHT + ROW_HEIGHT * len(shown),
                          (0.1, 0.1, 0.1, BAR_HEIGHT)) as (figure, axes):
        points = _draw(axes, shown, scores, scale, rows["trial"].tolist(), facts)
        bar = axes.inset_axes((0.5, len(shown) - 0.5 + 0.1 / ROW_HEIGHT, 0.5, 0.1 / ROW_HEIGHT),
                              transform=axes.transData)
        figure.colorbar(ScalarMappable(scale, COLORS), cax=bar, orientation="horizontal",
                        ticklocation="top")
        axes.annotate(one_line_label(facts.main_metric),
                      (0.48, len(shown) - 0.5 + 0.1 / ROW_HEIGHT), fontsize=8, ha="right",
                      annotation_clip=False)
    columns = [name for name in (facts.main_metric, facts.main_metric + HALF_WIDTH_SUFFIX)
               if name in rows]
    records = rows[["trial", "label", "seeds", *columns]].to_dict("records")
    marks = [PlotMark(int(row["trial"]),
                      summarize_trial(row, {facts.main_metric: facts.main_metric}), axes,
                      list(zip(*points[index])))
             for index, row in enumerate(records)]
    is_maximized = better_direction(facts.main_metric) == "max"
    best_row = (scores if is_maximized else -scores).argmax()
    best = facts.trials[int(rows["trial"].iloc[best_row])]
    params = ", ".join(f"{name} {format_value(value)}"
                       for name, value in shown_params(best).items() if name in facts.sampled)
    caption = (f"{len(rows)} finished trials, each a line from top to bottom, colored by "
               f"{one_line_label(facts.main_metric)}. Thick: on the front. Left of an axis: not "
               "set." + (f" Not shown: {', '.join(hidden)}." if hidden else ""))
    alt = (f"Parallel coordinates of {len(rows)} trials over "
           f"{', '.join(axis.name for axis in shown)}; the best, trial {best.number}: {params}.")
    return picture(figure, "parallel", alt, caption, marks)


def _draw(axes: Axes, shown: list[ParallelAxis], scores: NDArray[np.float64], scale: Normalize,
          numbers: list[int], facts: PageFacts) -> NDArray[np.float64]:
    """Draw axes and lines.

    Args:
        scores: (n,) scores of the trials.
        numbers: numbers of the trials.

    Returns:
        (n, 2, axes) coordinates of each line on each axis.
    """
    heights = np.arange(len(shown))[::-1]
    # so that lines of equal trials do not cover each other
    jitter = 0.008 * (np.array(numbers)[:, None] % 5 - 2)
    positions = np.array([axis.positions for axis in shown]).T + jitter
    # the best trial is drawn last
    order = np.argsort(scores if better_direction(facts.main_metric) == "max" else -scores,
                       kind="stable")
    on_front = np.isin(np.array(numbers)[order], facts.front_members)
    lines = [np.column_stack([positions[row], heights]) for row in order]
    alpha = min(0.55, 60 / len(lines))
    axes.add_collection(LineCollection(lines, colors=COLORS(scale(scores[order])),
                                       linewidths=np.where(on_front, 2.0, 0.8),
                                       alpha=np.where(on_front, 0.95, alpha), zorder=2))
    axes.set(xlim=(UNSET_POSITION - 0.04, 1.04), ylim=(-0.5, len(shown) - 0.5))
    box = {"facecolor": "#ffffff", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}
    for height, axis in zip(heights, shown):
        axes.plot([0, 1], [height, height], color=TEXT_COLOR, linewidth=0.6)
        axes.annotate(figure_text(axis.name), (UNSET_POSITION - 0.03, height), (0, 3),
                      textcoords="offset points", fontsize=8, weight="bold", bbox=box, zorder=5)
        letters = MAX_LABEL_LETTERS // len(axis.ticks)
        for position, label in axis.ticks:
            short = label if len(label) <= letters else f"{label[:letters - 1]}…"
            alignment = "left" if position < 0.1 else "right" if position > 0.9 else "center"
            axes.annotate(figure_text(short), (position, height), (0, -3),
                          textcoords="offset points", fontsize=8, va="top", ha=alignment,
                          bbox=box, zorder=5)
    axes.axis("off")
    return np.stack([positions, np.broadcast_to(heights, positions.shape)], axis=1)
