"""The figures of a scaling study: means by rule, as in PartialFormer's Figure 3, and the laws through them."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalesearch.pareto.noise import format_percent
from scalesearch.report.figures.style import (
    COLORS,
    DASHED_LINE,
    TEXT_COLOR,
    figure_text,
    new_figure,
    set_log_size_ticks,
    y_axis_label,
)
from scalesearch.report.labels import axis_label
from scalesearch.report.scaling.laws import HoldoutCheck, LawFit, LawPrediction
from scalesearch.report.scaling.study import Curve, ScalingStudy

MARKERS = "osD^vP"  # one less than colors, so that 42 rules differ in one or the other
LINE_STYLES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
N_CURVE_POINTS = 200  # of a curve
LEGEND_ROW_HEIGHT = 0.19  # inches, of a legend
PANEL_WIDTH = 4.2  # inches
MAX_COLUMNS = 3
LAW_PANEL_WIDTH = 2.2
LAW_PANEL_HEIGHT = 2.1
TITLE_LINE_LENGTH = 30  # panels beside each other, inches of one, letters in a line of its title


def plot_means(study: ScalingStudy) -> Figure | None:
    """A panel a cost: score against size, a line a rule through the means; None before a second size is finished."""
    if not any(len(curve.architectures) > 1 for curve in study.curves):
        return None
    with new_figure(PANEL_WIDTH * len(study.costs), 3.3, columns=len(study.costs),
                    sharey=True) as (figure, panels):
        for axes, cost in zip(panels, study.costs):
            for curve, color, mark, line in zip(study.curves_for(cost).values(), cycle(COLORS),
                                                cycle(MARKERS), cycle(LINE_STYLES)):
                _means(axes, study, curve, color, mark, line)
            base = next((row
                         for row in study.finished
                         if row.label == study.base and cost in row.costs), None)
            if base is not None:
                name = "base" if study.base == "base" else f"base ({figure_text(study.base)})"
                axes.plot([base.costs[cost]], [base.mean_score], "*", color=TEXT_COLOR,
                          markersize=9, zorder=5, label=name)
            _size_axis(axes)
            axes.set_xlabel(axis_label(cost, study.meta["protocol"]))
        panels[0].set_ylabel(_score(study))
        interval = f"bars: {format_percent(study.confidence)} interval of the mean, pooled noise"
        bars = interval if study.noise.is_known else ""
        _legend(figure, panels[0], bars, 3 * len(study.costs))
    return figure


def _means(axes: Axes, study: ScalingStudy, curve: Curve, color: str, marker: str,
           line: object) -> None:
    """The means of one rule, with the interval of each where the noise between seeds is known."""
    sizes = [row.costs[curve.cost] for row in curve.architectures]
    means = [row.mean_score for row in curve.architectures]
    noise = study.noise
    halves = None
    if noise.is_known:
        halves = [noise.interval_half_width(study.confidence, len(row.scores))
                  for row in curve.architectures]
    axes.errorbar(sizes, means, yerr=halves, color=color, marker=marker, markersize=4,
                  linestyle=line, linewidth=1.2, elinewidth=0.8, capsize=2, capthick=0.8,
                  label=figure_text(curve.rule))


def _score(study: ScalingStudy) -> str:
    """The axis of the score."""
    meta = study.meta
    return y_axis_label(axis_label(study.metric, meta["protocol"]), meta["data"]["name"],
                        bool(meta.get("synthetic")))


def plot_laws(study: ScalingStudy, cost: str) -> Figure | None:
    """The laws against ``cost`` with their bands and checks, each to its next size; None where there is none."""
    found = study.curves_for(cost)
    fits = {rule: curve.fit for rule, curve in found.items() if curve.fit is not None}
    if not fits:
        return None
    ahead = {rule: [curve.next_prediction.size]
             for rule, curve in found.items() if curve.next_prediction is not None}
    held = {rule: curve.holdout_check
            for rule, curve in found.items() if curve.holdout_check is not None}
    return plot_law_panels(fits, axis_label(cost, study.meta["protocol"]), _score(study), ahead,
                           held)


def plot_law_panels(fits: Mapping[str, LawFit], x_label: str, y_label: str,
                    next_sizes: Mapping[str, Sequence[float]],
                    holdout_checks: Mapping[str, HoldoutCheck]) -> Figure:
    """Score against size, a panel a rule: bands of several laws in one would hide each other.

    Args:
        fits: at least one. x, y: the axes' labels.
        next_sizes: by rule, sizes beyond those trained; forecasts are drawn there, with the
            interval of one training.
        holdout_checks: by rule, the check by a size that the fit had not seen: what was measured,
            and the interval.
    """
    columns = min(len(fits), MAX_COLUMNS)
    lines = -(-len(fits) // columns)
    with new_figure(max(3.4, LAW_PANEL_WIDTH * columns), LAW_PANEL_HEIGHT * lines + 0.4, lines,
                    columns, sharex=True, sharey=True) as made:
        figure, panels = made
        for axes, (rule, fit), color, marker in zip(
                panels, fits.items(), cycle(COLORS), cycle(MARKERS)):
            check = holdout_checks.get(rule)
            _law(axes, fit, rule, color, marker,
                 [*next_sizes.get(rule, ()), *([check.prediction.size] if check else [])])
            for size in next_sizes.get(rule, ()):
                _forecast(axes, fit.predict(size), color, "next size: one training")
            if check:
                _forecast(axes, check.prediction, TEXT_COLOR,
                          "largest size, predicted from the others")
                axes.plot([check.prediction.size], [check.measured_score], "o", color=TEXT_COLOR,
                          markersize=7, markerfacecolor="none", markeredgewidth=1.1,
                          label="measured there", zorder=6)
            _size_axis(axes)
            axes.tick_params(labelbottom=True)
        for axes in panels[len(fits):]:
            axes.remove()
        figure.supylabel(y_label, fontsize="medium")
        sure = format_percent(next(iter(fits.values())).confidence)
        # The label of the horizontal axis stands in the legend, where a common one would.
        _legend(figure, panels[0], f"{x_label}\n\nbands and bars: {sure} intervals", 2)
    return figure


def _law(axes: Axes, fit: LawFit, rule: str, color: str, marker: str,
         extra: Sequence[float]) -> None:
    """Trainings, curve and band, as far as ``extra`` sizes; the curve is dashed where nothing was trained."""
    last = float(fit.sizes.max())
    sizes = np.geomspace(min(*fit.sizes, *extra), max(last, *extra), N_CURVE_POINTS)
    inside = sizes <= last
    axes.fill_between(sizes, *fit.interval_at(sizes), color=color, alpha=0.15, linewidth=0)
    axes.plot(sizes[inside], fit.law(sizes[inside]), color=color, linewidth=1.3,
              label="power law and its band")
    axes.plot(sizes[~inside], fit.law(sizes[~inside]), color=color, linewidth=1.3,
              linestyle=DASHED_LINE)
    axes.plot(fit.sizes, fit.scores, marker, color=color, markersize=4, label="trainings")
    exponent = f"exponent {fit.law.c:.2f}" if fit.is_identified else "exponent not identified"
    axes.set_title(f"{fill(figure_text(rule), TITLE_LINE_LENGTH)}\n({exponent})", fontsize="small")


def _forecast(axes: Axes, found: LawPrediction, color: str, label: str) -> None:
    # The law is fitted more finely than those that the interval is of, so it can lie beyond a
    # narrow one.
    reach = [[max(0.0, found.score - found.training_low)],
             [max(0.0, found.training_high - found.score)]]
    axes.errorbar([found.size], [found.score], yerr=reach, fmt="_", color=color, capsize=3,
                  linewidth=1, label=label)


def _legend(figure: Figure, axes: Axes, title: str, most: int) -> None:
    """The legend of ``axes``, below the whole figure, where it covers nothing; the figure grows by its height.

    It has at most so many columns, and fewer where these would be wider than the figure.
    """
    handles, labels = axes.get_legend_handles_labels()
    for columns in range(min(most, len(labels)), 0, -1):
        made = figure.legend(handles, labels, loc="outside lower center", ncols=columns,
                             title=title or None, title_fontsize=8, handlelength=2.6,
                             handletextpad=0.8)
        made.get_title().set_multialignment("center")
        if columns == 1 or made.get_window_extent().width < figure.bbox.width:
            break
        made.remove()
    rows = -(-len(labels) // columns) + (title.count("\n") + 1 if title else 0)
    figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() + LEGEND_ROW_HEIGHT * rows)


def _size_axis(axes: Axes) -> None:
    """A logarithmic axis with as many ticks within a decade as can be read; call it after all is drawn."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    set_log_size_ticks(axes.xaxis,
                       (1.0, 2.0, 5.0) if high > 8 * low else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
