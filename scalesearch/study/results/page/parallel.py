"""Parallel coordinates: each finished trial a line through its hyperparameters, coloured by its score."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, Normalize

from scalesearch.report.labels import brief, direction, label
from scalesearch.report.style import INK, canvas, name_in
from scalesearch.report.table import summary
from scalesearch.study.results.page.facts import Facts, params_of
from scalesearch.study.results.page.parts import Part, Section, text
from scalesearch.study.results.page.svg import Mark, picture

MAX_AXES = 12  # more cannot be read
# Without the ends of the scale, which a dark or a light page would swallow.
COLORS = ListedColormap(matplotlib.colormaps["viridis"](np.linspace(0.2, 0.9, 256)))
FEW = 6  # numbers up to which each is a tick
UNSET = -0.12  # where a line passes the axis of a hyperparameter that its trial does not have


class Coordinate(NamedTuple):
    """One axis: a hyperparameter, each trial's height on it (n,), 0 to 1, and its ticks as (height, words)."""

    name: str
    heights: list[float]
    ticks: list[tuple[float, str]]


def coordinate(name: str, values: Sequence[Any]) -> Coordinate:
    """Axis of a hyperparameter: numbers to scale, words evenly spaced; a value of None is unset."""
    known = [value for value in values if value is not None]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        low, high = min(known), max(known)
        places = {brief(value): (value - low) / (high - low) if high > low else 0.5 for value in sorted(known)}
        ticks = list(places) if len(places) <= FEW else [brief(low), brief(high)]
    else:
        ticks = sorted({brief(value) for value in known})
        places = {words: at / max(1, len(ticks) - 1) for at, words in enumerate(ticks)}
    heights = [UNSET if value is None else places[brief(value)] for value in values]
    return Coordinate(name, heights, [(places[words], words) for words in ticks])


def coordinates(facts: Facts, rows: pd.DataFrame) -> list[Coordinate]:
    """The hyperparameters in which ``rows`` differ, in the space's order; those that all have come first."""
    params = [params_of(facts.trials[int(number)]) for number in rows["trial"]]
    names = dict.fromkeys(name for one in params for name in one if name in facts.sampled)
    found = [coordinate(name, [one.get(name) for one in params]) for name in names
             if len({brief(one.get(name)) for one in params}) > 1]
    return sorted(found, key=lambda one: UNSET in one.heights)


def section(facts: Facts) -> Section | None:
    """The figure, or why there is none; None where nothing was sampled."""
    if not facts.searched:
        return None
    rows = facts.done[[bool(params_of(facts.trials[int(number)])) for number in facts.done["trial"]]]
    axes = coordinates(facts, rows) if len(rows) > 1 else []
    return Section("hyperparameters", "Hyperparameters", [_picture(facts, rows, axes) if axes else text(
        "Fewer than two finished trials differ in any hyperparameter.")])


def _picture(facts: Facts, rows: pd.DataFrame, every: list[Coordinate]) -> Part:
    shown, left_out = every[:MAX_AXES], [one.name for one in every[MAX_AXES:]]
    scores = rows[facts.main].to_numpy(dtype=float)
    scale = Normalize(scores.min(), scores.max())
    with canvas(min(13.0, 2.5 + 1.15 * len(shown)), 4.2) as (figure, (axes,)):
        heights = _draw(axes, shown, scores, scale, rows["trial"].tolist(), facts)
        figure.colorbar(ScalarMappable(scale, COLORS), ax=axes, label=label(facts.main), fraction=0.03, pad=0.03)
    marks = [Mark(int(row["trial"]), summary(row, {facts.main: facts.main}), axes, list(enumerate(heights[at])))
             for at, (_, row) in enumerate(rows.iterrows())]
    best = facts.trials[int(rows["trial"].iloc[(scores if direction(facts.main) == "max" else -scores).argmax()])]
    params = ", ".join(f"{name} {brief(value)}" for name, value in params_of(best).items() if name in facts.sampled)
    caption = (f"{len(rows)} finished trials, coloured by {label(facts.main)}; below an axis: not set."
               + (f" Not shown: {', '.join(left_out)}." if left_out else ""))
    alt = (f"Parallel coordinates of {len(rows)} trials over {', '.join(one.name for one in shown)}; the best, trial "
           f"{best.number}: {params}.")
    return picture(figure, "parallel", alt, caption, marks, wide=True)


def _draw(axes: Axes, shown: list[Coordinate], scores: Any, scale: Normalize, numbers: list[int], facts: Facts) -> Any:
    """Draws axes and lines; returns the height of each line on each axis (n, axes)."""
    across = np.arange(len(shown))
    jitter = 0.012 * (np.array(numbers)[:, None] % 5 - 2)  # so that equal trials are seen beside each other
    heights = np.array([one.heights for one in shown]).T + jitter
    order = np.argsort(scores if direction(facts.main) == "max" else -scores, kind="stable")  # the best on top
    best = np.isin(np.array(numbers)[order], facts.members)
    lines = [np.column_stack([across, heights[at]]) for at in order]
    axes.add_collection(LineCollection(lines, colors=COLORS(scale(scores[order])), linewidths=np.where(best, 2.0, 0.8),
                                       alpha=np.where(best, 0.95, 0.55), zorder=2))
    axes.set_ylim(min(UNSET, heights.min()) - 0.05, 1.05)
    for place, one in enumerate(shown):
        axes.axvline(place, color=INK, linewidth=0.6)
        for height, words in one.ticks:
            axes.annotate(name_in(words), (place, height), (3, 2), textcoords="offset points", fontsize=7,
                          bbox={"facecolor": "#ffffff", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}, zorder=5)
    axes.set_xticks(across, [name_in(one.name).replace(".", ".\n") for one in shown], fontsize=7)
    axes.set(yticks=[], xlim=(-0.1, len(shown) - 0.4))
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    return heights
