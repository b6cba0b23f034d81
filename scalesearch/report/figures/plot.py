"""Figures of a study's trade-off between a metric and a cost."""

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
    is_paper_style,
    set_log_size_ticks,
    y_axis_label,
)
from scalesearch.report.labels import axis_label
from scalesearch.report.table import HALF_WIDTH_SUFFIX

MAX_FRONT_LABELS = 15  # the trials on a larger front have no labels
LOSS_METRIC = "loss"  # the metric that is also measured at rungs
STOPPED_HEIGHT_SHARE = 0.03  # height of stopped trials without a score, as a share of the axes
MAX_BOUND_RATIO = 3  # a budget is drawn if it is at most this multiple of the largest cost


@dataclass(frozen=True)
class FigureContext:
    """Settings of the study that a figure shows.

    Attributes:
        objectives: name to ``min`` or ``max``.
        protocol: protocol of the costs, as JSON (name, source, target, vocab).
        bounds: cost to the largest feasible value.
        corpus: name of the data.
        synthetic: whether the data are synthetic.
        signature: signature of the metrics.
        confidence: confidence level of the error bars.
        architecture_noun: noun for a named architecture in the legend.
    """

    objectives: Mapping[str, str]
    protocol: Mapping[str, Any] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)
    corpus: str = ""
    synthetic: bool = False
    signature: str = ""
    confidence: float = CONFIDENCE
    architecture_noun: str = "reference"


def plot_tradeoff(table: pd.DataFrame, context: FigureContext, x: str, y: str = "bleu",
                  label_front: bool = True) -> Figure:
    """Plot the metric ``y`` against the cost ``x`` of the trials of a study.

    Trials that stopped at a rung are drawn as light crosses (see :func:`stopped_heights`). Trials
    with several seeds and those on the front have error bars.

    Args:
        table: a row per trial (see :func:`scalesearch.report.table.trials_frame`).
        label_front: whether to print the names of the trials on the front, if there are at most
            ``MAX_FRONT_LABELS``; references always have labels.
    """
    with fixed_size_panel(4.1, (*MARGINS[:3], 0.7)) as (figure, axes):
        complete = table[(table["state"] == "complete") & table[x].notna() & table[y].notna()]
        with_bars = complete.iloc[:0]
        if any(name + HALF_WIDTH_SUFFIX in complete for name in (x, y)):
            with_bars = complete[(complete["seeds"] > 1).to_numpy(dtype=bool)
                                 | complete["front"].to_numpy(dtype=bool)]
        _set_up_axes(axes, complete, with_bars, table[paused_mask(table, x)], context, x, y)
        left, right = axes.get_xlim()
        bound = context.bounds.get(x)
        if bound is not None and left < bound < right:
            axes.axvspan(bound, right, facecolor=LIMIT_COLOR, alpha=0.13, hatch="//",
                         edgecolor=LIMIT_COLOR, linewidth=0)
            axes.axvline(bound, color=LIMIT_COLOR, linewidth=0.9, linestyle=DASHED_LINE)
            axes.annotate("over budget", (bound, 0.02), (3, 0),
                          xycoords=("data", "axes fraction"), textcoords="offset points",
                          fontsize=7, color="#8a3a6a", rotation=90, va="bottom")
        if len(with_bars):
            xerr, yerr = (with_bars[name + HALF_WIDTH_SUFFIX].to_numpy(dtype=float)
                          if name + HALF_WIDTH_SUFFIX in with_bars else None for name in (x, y))
            interval = f"{format_percent(context.confidence)} interval of the mean, pooled noise"
            axes.errorbar(with_bars[x].to_numpy(dtype=float), with_bars[y].to_numpy(dtype=float),
                          xerr=xerr, yerr=yerr, fmt="none", ecolor=TEXT_COLOR, elinewidth=0.8,
                          capsize=2, capthick=0.8, zorder=2.5, label=interval)
        _draw_points(axes, table, complete, context, x, y)
        heights = stopped_heights(table, axes, x, y)
        if len(heights):
            height_label = "loss at the rung" if y == LOSS_METRIC else "only the cost is known"
            axes.scatter(table[x][heights.index], heights, s=14, marker="x",
                         color=DOMINATED_COLOR, linewidths=0.7, alpha=0.7, zorder=2.2,
                         label=f"stopped at a rung: {height_label}")
        front = complete["front"].astype(bool) & (
            label_front and complete["front"].sum() <= MAX_FRONT_LABELS)
        labeled = complete[complete["label"].notna() | front]
        labels = [(float(row[x]), float(row[y]),
                   figure_text(model_name(row) if pd.isna(row["label"]) else row["label"]))
                  for _, row in labeled.iterrows()]
        points = [*zip(complete[x].astype(float), complete[y].astype(float)),
                  *zip(table[x][heights.index].astype(float), heights)]
        place_labels(axes, labels, points)
        if len(complete):  # above the axes, so that the legend does not cover points
            axes.legend(loc="lower left", bbox_to_anchor=(-0.12, 1),
                        ncols=1 if is_paper_style() else 2, labelspacing=0.25,
                        columnspacing=1, borderaxespad=0.3)
    return figure


def model_name(row: pd.Series) -> str:
    """Name of a trial in figures: its number, and its depths and width if they are parameters.

    For example ``8: 2-1, width 96``, with two encoder layers and one decoder layer.
    """
    depths = [str(row[name]) for name in ("param.encoder.depth", "param.decoder.depth")
              if row.get(name, "") not in ("", None)]
    width = row.get("param.width", "")
    sizes = ["-".join(depths)] * bool(depths) + [f"width {width}"] * (width not in ("", None))
    return f"{row['trial']}: {', '.join(sizes)}" if sizes else f"trial {row['trial']}"


def paused_mask(table: pd.DataFrame, x: str) -> pd.Series:
    """Mask of the trials that stopped at a rung and have the cost ``x``."""
    return (table["state"] == "paused") & table[x].notna()


def stopped_heights(table: pd.DataFrame, axes: Axes, x: str, y: str) -> pd.Series:
    """Heights in a figure of ``y`` of the trials that stopped at a rung.

    For the loss, it is the loss at the rung. Other metrics are not measured at rungs, so the
    trials are drawn at the bottom of the axes.
    """
    rows = table[paused_mask(table, x)]
    low, high = axes.get_ylim()
    return rows["rung_loss"].astype(float) if y == LOSS_METRIC else pd.Series(
        low + STOPPED_HEIGHT_SHARE * (high - low), rows.index)


def _set_up_axes(axes: Axes, complete: pd.DataFrame, with_bars: pd.DataFrame, paused: pd.DataFrame,
                 context: FigureContext, x: str, y: str) -> None:
    """Set labels, scales and limits for the complete and paused trials."""
    axes.set(xlabel=axis_label(x, context.protocol),
             ylabel=y_axis_label(axis_label(y, context.protocol), context.corpus,
                                 context.synthetic))
    label = axes.xaxis.label
    center = (axes.bbox.x0 + axes.bbox.x1) / 2
    if center + label.get_window_extent().width / 2 > axes.figure.bbox.x1:
        label.set_fontsize("small")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if complete.empty:
        return
    costs = np.concatenate([complete[x], paused[x]]).astype(float)
    bound = context.bounds.get(x)
    if costs.min() > 0 and costs.max() / costs.min() > 10:
        axes.set(xscale="log", xlim=(costs.min() / 1.25, max(costs.max(), bound or 0) * 1.25))
        set_log_size_ticks(axes.xaxis)
    else:
        spread = max(np.ptp(costs), 0.05 * costs.max())
        right = max(costs.max(), bound if bound and bound <= MAX_BOUND_RATIO * costs.max() else 0)
        axes.set_xlim(max(0, costs.min() - 0.08 * spread),
                      right + 0.1 * max(spread, right - costs.min()))
    bar_ends = [with_bars[y] + sign * with_bars[y + HALF_WIDTH_SUFFIX].fillna(0)
                for sign in (-1, 1) if y + HALF_WIDTH_SUFFIX in with_bars]
    scores = np.concatenate([complete[y], *bar_ends,
                             paused["rung_loss"] if y == LOSS_METRIC else []]).astype(float)
    margin = 0.12 * max(np.ptp(scores), 0.5)
    axes.set_ylim(max(0.0, scores.min() - margin), scores.max() + margin)


def _draw_points(axes: Axes, table: pd.DataFrame, complete: pd.DataFrame, context: FigureContext,
                 x: str, y: str) -> None:
    """Draw dominated trials, front, references, and the costs of infeasible trials.

    Points on an axis, such as a BLEU of 0, are drawn whole.
    """
    references = complete[complete["label"].notna()]
    on_front = complete["front"].astype(bool)
    front = complete[on_front]
    dominated = complete[~on_front & complete["label"].isna()]
    if len(dominated):
        axes.scatter(dominated[x], dominated[y], s=16, facecolors="white",
                     edgecolors=DOMINATED_COLOR, linewidths=0.9, label="dominated", zorder=3,
                     clip_on=False)
    if len(front):
        if y in context.objectives:  # other scores do not define the front
            draw_front_steps(axes, front, x, y, context.objectives[y], FRONT_COLOR,
                             context.bounds.get(x), "Pareto front")
        unlabeled = front[front["label"].isna()]
        front_label = f"front of all {len(context.objectives)} objectives" if len(
            context.objectives) > 2 else "on the front"
        axes.scatter(unlabeled[x], unlabeled[y], s=22, color=FRONT_COLOR, label=front_label,
                     zorder=4, clip_on=False)
    if len(references):
        colors = [FRONT_COLOR if is_on_front else "white"
                  for is_on_front in references.index.isin(front.index)]
        axes.scatter(references[x], references[y], s=34, marker="D", c=colors,
                     edgecolors=REFERENCE_COLOR, linewidths=1.3, label=context.architecture_noun,
                     zorder=5, clip_on=False)
    infeasible = table[(table["state"] == "infeasible") & table[x].notna()]
    shown = infeasible[infeasible[x].astype(float).between(*axes.get_xlim())]
    if len(shown):
        axes.plot(shown[x], np.full(len(shown), 0.0), "|", color=LIMIT_COLOR, markersize=5,
                  markeredgewidth=0.7, transform=axes.get_xaxis_transform(), clip_on=False,
                  label="infeasible, not trained")


def draw_front_steps(axes: Axes, trials: pd.DataFrame, x: str, y: str, direction: str, color: str,
                     bound: float | None = None, label: str | None = None) -> None:
    """Draw a front as steps: the best ``y`` at a cost of at most ``x``.

    Args:
        direction: ``min`` or ``max`` of ``y``; ``x`` is minimized.
        bound: budget at which the last step ends; by default it ends at the edge of the axes.
    """
    front_x, front_y = front_staircase(trials[x].to_numpy(float), trials[y].to_numpy(float),
                                       ("min", direction))
    right = axes.get_xlim()[1]
    end = min(right, bound) if bound is not None and bound >= front_x[-1] else right
    steps_x = np.concatenate([front_x[:1], front_x, [end]])
    steps_y = np.concatenate([[axes.get_ylim()[0 if direction == "max" else 1]], front_y,
                              front_y[-1:]])
    axes.step(steps_x, steps_y, where="post", color=color, linewidth=1.3, label=label, zorder=2)
