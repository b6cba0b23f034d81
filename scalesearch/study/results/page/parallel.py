"""Parallel coordinates: each finished trial a line through its hyperparameters, colored by its score.

The axes lie beneath each other, so that a narrow screen shows all of them, with room for their
words.
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

from scalesearch.blocks.sizes import is_number
from scalesearch.report.figures.style import TEXT_COLOR, figure_text, fixed_size_panel
from scalesearch.report.labels import better_direction, format_value, one_line_label
from scalesearch.report.table import HALF_WIDTH_SUFFIX, summarize_trial
from scalesearch.study.results.page.elements import PageSection, Part, text
from scalesearch.study.results.page.facts import PageFacts, shown_params
from scalesearch.study.results.page.svg import PlotMark, picture

MAX_AXES = 12  # more cannot be read
ROW_HEIGHT = 0.42
BAR_HEIGHT = 0.5  # inches of an axis with its words, and of the scale of colors above them
MAX_LABEL_LETTERS = 60  # of all words below an axis
# Without the ends of the scale, which a dark or a light page would swallow.
COLORS = ListedColormap(matplotlib.colormaps["viridis"](np.linspace(0.2, 0.9, 256)))
MAX_TICKS = 6  # numbers up to which each is a tick
# where a line passes beside the axis of a hyperparameter that its trial does not have
UNSET_POSITION = -0.12


class ParallelAxis(NamedTuple):
    """One axis: a hyperparameter, each trial's place on it (n,), 0 to 1, and its ticks as (place, words)."""

    name: str
    positions: list[float]
    ticks: list[tuple[float, str]]


def parallel_axis(name: str, values: Sequence[Any]) -> ParallelAxis:
    """Axis of a hyperparameter: numbers to scale, words evenly spaced; a value of None is unset."""
    known = [value for value in values if value is not None]
    if all(map(is_number, known)):
        low = min(known)
        high = max(known)
        places = {format_value(value): (value - low) / (high - low) if high > low else 0.5
                  for value in sorted(known)}
        ticks = list(places) if len(places) <= MAX_TICKS else [
            format_value(low), format_value(high)]
    else:
        ticks = sorted({format_value(value) for value in known})
        places = {words: at / max(1, len(ticks) - 1) for at, words in enumerate(ticks)}
    crossed = [UNSET_POSITION if value is None else places[format_value(value)] for value in values]
    return ParallelAxis(name, crossed, [(places[words], words) for words in ticks])


def parallel_axes(facts: PageFacts, rows: pd.DataFrame) -> list[ParallelAxis]:
    """The hyperparameters in which ``rows`` differ, in the space's order; those that all have come first."""
    params = [shown_params(facts.trials[int(number)]) for number in rows["trial"]]
    names = dict.fromkeys(name for one in params for name in one if name in facts.sampled)
    found = [parallel_axis(name, [one.get(name) for one in params]) for name in names
             if len({format_value(one.get(name)) for one in params}) > 1]
    return sorted(found, key=lambda one: UNSET_POSITION in one.positions)


def parallel_section(facts: PageFacts) -> PageSection | None:
    """The figure, or why there is none; None where nothing was sampled."""
    if not facts.is_search:
        return None
    rows = facts.finished_rows[[bool(shown_params(facts.trials[int(number)]))
                                for number in facts.finished_rows["trial"]]]
    axes = parallel_axes(facts, rows) if len(rows) > 1 else []
    return PageSection("hyperparameters", "Hyperparameters",
                       [_picture(facts, rows, axes) if axes
                        else text("Fewer than two finished " "trials differ in any "
                                  "hyperparameter.")])


def _picture(facts: PageFacts, rows: pd.DataFrame, every: list[ParallelAxis]) -> Part:
    shown = every[:MAX_AXES]
    left_out = [one.name for one in every[MAX_AXES:]]
    scores = rows[facts.main_metric].to_numpy(dtype=float)
    scale = Normalize(scores.min(), scores.max())
    with fixed_size_panel(BAR_HEIGHT + ROW_HEIGHT * len(shown),
                          (0.1, 0.1, 0.1, BAR_HEIGHT)) as (figure, axes):
        spots = _draw(axes, shown, scores, scale, rows["trial"].tolist(), facts)
        bar = axes.inset_axes((0.5, len(shown) - 0.5 + 0.1 / ROW_HEIGHT, 0.5, 0.1 / ROW_HEIGHT),
                              transform=axes.transData)
        figure.colorbar(ScalarMappable(scale, COLORS), cax=bar, orientation="horizontal",
                        ticklocation="top")
        axes.annotate(one_line_label(facts.main_metric),
                      (0.48, len(shown) - 0.5 + 0.1 / ROW_HEIGHT), fontsize=8, ha="right",
                      annotation_clip=False)
    columns = [
        name for name in (facts.main_metric, facts.main_metric + HALF_WIDTH_SUFFIX) if name in rows]
    marks = [
        PlotMark(int(row["trial"]), summarize_trial(row, {facts.main_metric: facts.main_metric}),
                 axes, list(zip(*spots[at])))
        for at, row in enumerate(rows[["trial", "label", "seeds", *columns]].to_dict("records"))]
    best = facts.trials[
        int(rows["trial"].iloc[(scores if better_direction(facts.main_metric) == "max"
                                else -scores).argmax()])]
    params = ", ".join(f"{name} {format_value(value)}"
                       for name, value in shown_params(best).items() if name in facts.sampled)
    caption = (f"{len(rows)} finished trials, each a line downwards, colored by "
               f"{one_line_label(facts.main_metric)}; thick: on the front; left of an axis: not "
               "set." + (f" Not shown: {', '.join(left_out)}." if left_out else ""))
    alt = (f"Parallel coordinates of {len(rows)} trials over "
           f"{', '.join(one.name for one in shown)}; the best, trial {best.number}: {params}.")
    return picture(figure, "parallel", alt, caption, marks)


def _draw(axes: Axes, shown: list[ParallelAxis], scores: Any, scale: Normalize, numbers: list[int],
          facts: PageFacts) -> Any:
    """Draws axes and lines from the top downwards; returns where each line crosses each axis (n, 2, axes)."""
    down = np.arange(len(shown))[::-1]
    # so that equal trials are seen beside each other
    jitter = 0.008 * (np.array(numbers)[:, None] % 5 - 2)
    across = np.array([one.positions for one in shown]).T + jitter
    # the best on top
    order = np.argsort(scores if better_direction(facts.main_metric) == "max" else -scores,
                       kind="stable")
    best = np.isin(np.array(numbers)[order], facts.front_members)
    lines = [np.column_stack([across[at], down]) for at in order]
    faint = min(0.55, 60 / len(lines))
    axes.add_collection(LineCollection(lines, colors=COLORS(scale(scores[order])),
                                       linewidths=np.where(best, 2.0, 0.8),
                                       alpha=np.where(best, 0.95, faint), zorder=2))
    axes.set(xlim=(UNSET_POSITION - 0.04, 1.04), ylim=(-0.5, len(shown) - 0.5))
    box = {"facecolor": "#ffffff", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}
    for place, one in zip(down, shown):
        axes.plot([0, 1], [place, place], color=TEXT_COLOR, linewidth=0.6)
        axes.annotate(figure_text(one.name), (UNSET_POSITION - 0.03, place), (0, 3),
                      textcoords="offset points", fontsize=8, weight="bold", bbox=box, zorder=5)
        letters = MAX_LABEL_LETTERS // len(one.ticks)
        for at, words in one.ticks:
            short = words if len(words) <= letters else f"{words[:letters - 1]}…"
            axes.annotate(figure_text(short), (at, place), (0, -3), textcoords="offset points",
                          fontsize=8, va="top",
                          ha="left" if at < 0.1 else "right" if at > 0.9 else "center", bbox=box,
                          zorder=5)
    axes.axis("off")
    return np.stack([across, np.broadcast_to(down, across.shape)], axis=1)
