"""Figures of a study's trade-off: a metric against a cost, with front, other trials, budget and references."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from scalesearch.pareto.front import front_staircase
from scalesearch.pareto.noise import CONFIDENCE, format_percent
from scalesearch.report.figures.label_placement import place_labels
from scalesearch.report.figures.style import (
    DASHED_LINE,
    DOMINATED_COLOR,
    FRONT_COLOR,
    LIMIT_COLOR,
    MARGINS,
    REFERENCE_COLOR,
    TEXT_COLOR,
    figure_text,
    fixed_size_panel,
    set_log_size_ticks,
    y_axis_label,
)
from scalesearch.report.labels import axis_label
from scalesearch.report.table import HALF_WIDTH_SUFFIX, eligible_mask

MAX_FRONT_LABELS = 15  # members of the front up to which each has its number
LOSS_METRIC = "loss"
# the metric that a rung has as well; share of the axes at which the others' trials stand
STOPPED_HEIGHT_SHARE = 0.03
# a budget up to so many times the largest cost is drawn, with what lies beyond it
MAX_BOUND_RATIO = 3


@dataclass(frozen=True)
class FigureContext:
    """What a figure is about, beside its points.

    Attributes:
        objectives: name to ``min`` or ``max``.
        protocol: of the costs, as JSON (name, source, target, vocab).
        bounds: cost to the largest value that the study allows.
        corpus: the name of the data, and whether it is ``synthetic``.
        signature: of the metrics.
        confidence: of the intervals that bars show.
    """

    objectives: Mapping[str, str]
    protocol: Mapping[str, Any] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)
    corpus: str = ""
    synthetic: bool = False
    signature: str = ""
    confidence: float = CONFIDENCE


def plot_tradeoff(table: pd.DataFrame, context: FigureContext, x: str, y: str = "bleu",
                  label_front: bool = True) -> Figure:
    """Figure of the metric ``y`` against the cost ``x`` of the trials in ``table`` (see ``report.table.frame``).

    References have their labels, and if they are ``label_front``, members of the front their
    numbers where these fit. Trials that stopped at a rung are drawn lightly: see
    :func:`stopped_heights`.
    """
    with fixed_size_panel(4.1, (*MARGINS[:3], 0.7)) as (figure, axes):
        done = table[(table["state"] == "complete") & table[x].notna() & table[y].notna()]
        barred = _barred(done, x, y)
        _axis(axes, done, barred, table[paused_mask(table, x)], context, x, y)
        _limit(axes, context.bounds.get(x))
        _bars(axes, barred, context, x, y)
        _points(axes, table, done, context, x, y)
        _stopped(axes, stopped_heights(table, axes, x, y), table[x], y)
        members = done["front"].astype(bool) & (
            label_front and done["front"].sum() <= MAX_FRONT_LABELS)
        marked = done[done["label"].notna() | members]
        labels = [(float(row[x]), float(row[y]),
                   figure_text(row["trial"] if pd.isna(row["label"]) else row["label"]))
                  for _, row in marked.iterrows()]
        place_labels(axes, labels, list(zip(done[x].astype(float), done[y].astype(float))))
        if len(done):
            axes.legend(loc="lower left", bbox_to_anchor=(-0.12, 1), ncols=2, labelspacing=0.25, columnspacing=1,
                        borderaxespad=0.3)  # above the axes, where it covers nothing
    return figure


def paused_mask(table: pd.DataFrame, x: str) -> pd.Series:
    """Mask of the trials that stopped at a rung, and whose cost ``x`` is known."""
    return (table["state"] == "paused") & table[x].notna()


def stopped_heights(table: pd.DataFrame, axes: Axes, x: str, y: str) -> pd.Series:
    """Height in a figure of ``y`` of each trial that stopped at a rung.

    A loss stands where it was at the rung. Of any other metric a part of a training says nothing:
    what is known is the cost alone, and the trial stands at the foot of the axes.
    """
    rows = table[paused_mask(table, x)]
    low, high = axes.get_ylim()
    return rows["rung_loss"].astype(float) if y == LOSS_METRIC else pd.Series(
        low + STOPPED_HEIGHT_SHARE * (high - low), rows.index)


def _stopped(axes: Axes, heights: pd.Series, costs: pd.Series, y: str) -> None:
    if len(heights):
        words = "its loss there" if y == LOSS_METRIC else "cost alone is known"
        axes.scatter(costs[heights.index], heights, s=14, marker="x", color=DOMINATED_COLOR,
                     linewidths=0.7, alpha=0.7, zorder=2.2, label=f"stopped at a rung: {words}")


def _axis(axes: Axes, done: pd.DataFrame, barred: pd.DataFrame, early: pd.DataFrame,
          subject: FigureContext, x: str, y: str) -> None:
    axes.set(xlabel=axis_label(x, subject.protocol),
             ylabel=y_axis_label(axis_label(y, subject.protocol), subject.corpus,
                                 subject.synthetic))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if done.empty:
        return
    costs = np.concatenate([done[x], early[x]]).astype(float)
    bound = subject.bounds.get(x)
    if costs.min() > 0 and costs.max() / costs.min() > 10:
        axes.set(xscale="log", xlim=(costs.min() / 1.25, max(costs.max(), bound or 0) * 1.25))
        set_log_size_ticks(axes.xaxis)
    else:
        spread = max(np.ptp(costs), 0.05 * costs.max())
        right = max(costs.max(), bound if bound and bound <= MAX_BOUND_RATIO * costs.max() else 0)
        axes.set_xlim(max(0, costs.min() - 0.08 * spread),
                      right + 0.1 * max(spread, right - costs.min()))
    reach = [barred[y] + way * barred[y + HALF_WIDTH_SUFFIX].fillna(0)
             for way in (-1, 1) if y + HALF_WIDTH_SUFFIX in barred]
    scores = np.concatenate([done[y], *reach,
                             early["rung_loss"] if y == LOSS_METRIC else []]).astype(float)
    margin = 0.12 * max(np.ptp(scores), 0.5)
    axes.set_ylim(max(0.0, scores.min() - margin), scores.max() + margin)


def _limit(axes: Axes, bound: float | None) -> None:
    """Shades what lies beyond the budget, where the figure reaches that far."""
    left, right = axes.get_xlim()
    if bound is None or not left < bound < right:
        return
    axes.axvspan(bound, right, facecolor=LIMIT_COLOR, alpha=0.13, hatch="//", edgecolor=LIMIT_COLOR,
                 linewidth=0)
    axes.axvline(bound, color=LIMIT_COLOR, linewidth=0.9, linestyle=DASHED_LINE)
    axes.annotate("over budget", (bound, 0.02), (3, 0), xycoords=("data", "axes fraction"),
                  textcoords="offset points", fontsize=7, color="#8a3a6a", rotation=90, va="bottom")


def _barred(done: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Those that are drawn with bars: all of several seeds, and the front's of a single one."""
    if not any(name + HALF_WIDTH_SUFFIX in done for name in (x, y)):
        return done.iloc[:0]
    return done[(done["seeds"] > 1).to_numpy(dtype=bool) | done["front"].to_numpy(dtype=bool)]


def _bars(axes: Axes, barred: pd.DataFrame, subject: FigureContext, x: str, y: str) -> None:
    """The interval of each mean, by the noise between seeds that is pooled over all trials."""
    if not len(barred):
        return
    xerr, yerr = (barred[name + HALF_WIDTH_SUFFIX].to_numpy(dtype=float)
                  if name + HALF_WIDTH_SUFFIX in barred else None for name in (x, y))
    axes.errorbar(barred[x].to_numpy(dtype=float), barred[y].to_numpy(dtype=float), xerr=xerr,
                  yerr=yerr, fmt="none", ecolor=TEXT_COLOR, elinewidth=0.8, capsize=2, capthick=0.8,
                  zorder=2.5,
                  label=f"{format_percent(subject.confidence)} interval of the mean, pooled noise")


def _points(axes: Axes, table: pd.DataFrame, done: pd.DataFrame, subject: FigureContext, x: str,
            y: str) -> None:
    mine = done[eligible_mask(done)]
    marked = done[done["label"].notna()]
    on_front = mine["front"].astype(bool)
    best = mine[on_front]
    rest = mine[~on_front & mine["label"].isna()]
    if len(rest):
        axes.scatter(rest[x], rest[y], s=16, facecolors="white", edgecolors=DOMINATED_COLOR,
                     linewidths=0.9, label="dominated", zorder=3)
    if len(best):
        if y in subject.objectives:  # the front is not one by any other score
            draw_front_steps(axes, best, x, y, subject.objectives[y], FRONT_COLOR,
                             subject.bounds.get(x), "front of these two")
        plain = best[best["label"].isna()]
        others = f"front of all {len(subject.objectives)} objectives" if len(
            subject.objectives) > 2 else "on the front"
        axes.scatter(plain[x], plain[y], s=22, color=FRONT_COLOR, label=others, zorder=4)
    if len(marked):
        colors = [FRONT_COLOR if inside else "white" for inside in marked.index.isin(best.index)]
        axes.scatter(marked[x], marked[y], s=34, marker="D", c=colors, edgecolors=REFERENCE_COLOR,
                     linewidths=1.3, label="reference", zorder=5)
    infeasible = table[(table["state"] == "infeasible") & table[x].notna()]
    shown = infeasible[infeasible[x].astype(float).between(*axes.get_xlim())]
    if len(shown):
        axes.plot(shown[x], np.full(len(shown), 0.0), "|", color=LIMIT_COLOR, markersize=5,
                  markeredgewidth=0.7, transform=axes.get_xaxis_transform(), clip_on=False,
                  label="infeasible, not trained")


def draw_front_steps(axes: Axes, trials: pd.DataFrame, x: str, y: str, direction: str, color: str,
                     bound: float | None = None, label: str | None = None) -> None:
    """Draws the front of the two columns: the best ``y`` (``direction``: min or max) to be had at up to each ``x``."""
    corners_x, corners_y = front_staircase(trials[x].to_numpy(float), trials[y].to_numpy(float),
                                           ("min", direction))
    right = axes.get_xlim()[1]
    end = min(right, bound) if bound is not None and bound >= corners_x[-1] else right
    steps_x = np.concatenate([corners_x[:1], corners_x, [end]])
    steps_y = np.concatenate([[axes.get_ylim()[0 if direction == "max" else 1]], corners_y,
                              corners_y[-1:]])
    axes.step(steps_x, steps_y, where="post", color=color, linewidth=1.3, label=label, zorder=2)
