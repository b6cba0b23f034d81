"""Figures of a scaling study: means by rule (PartialFormer, figure 3), and laws."""

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
from scalesearch.report.scaling.study import ScalingStudy

MARKERS = "osD^vP"  # one fewer than colors, so that 42 pairs of color and marker are different
LINE_STYLES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
N_CURVE_POINTS = 200  # of the curve of a law
LEGEND_ROW_HEIGHT = 0.19  # inches
PANEL_WIDTH = 4.2  # inches
MAX_COLUMNS = 3  # of panels of laws
LAW_PANEL_WIDTH = 2.2  # inches
LAW_PANEL_HEIGHT = 2.1  # inches
TITLE_LINE_LENGTH = 30  # characters on a line of the title of a law's panel


def plot_means(study: ScalingStudy) -> Figure | None:
    """Plot the mean score over the size, with a panel per cost and a line per rule.

    Returns None before a rule has two finished sizes.
    """
    if not any(len(curve.architectures) > 1 for curve in study.curves):
        return None
    with new_figure(PANEL_WIDTH * len(study.costs), 3.3, columns=len(study.costs),
                    sharey=True) as (figure, panels):
        for axes, cost in zip(panels, study.costs):
            for curve, color, marker, line_style in zip(
                    study.curves_for(cost).values(), cycle(COLORS), cycle(MARKERS),
                    cycle(LINE_STYLES)):
                sizes = [architecture.costs[cost] for architecture in curve.architectures]
                means = [architecture.mean_score for architecture in curve.architectures]
                half_widths = None
                if study.noise.is_known:
                    half_widths = [study.noise.interval_half_width(study.confidence,
                                                                   len(architecture.scores))
                                   for architecture in curve.architectures]
                axes.errorbar(sizes, means, yerr=half_widths, color=color, marker=marker,
                              markersize=4, linestyle=line_style, linewidth=1.2, elinewidth=0.8,
                              capsize=2, capthick=0.8, label=figure_text(curve.rule))
            base = next((architecture
                         for architecture in study.finished
                         if architecture.label == study.base and cost in architecture.costs), None)
            if base is not None:
                name = "base" if study.base == "base" else f"base ({figure_text(study.base)})"
                axes.plot([base.costs[cost]], [base.mean_score], "*", color=TEXT_COLOR,
                          markersize=9, zorder=5, label=name)
            _set_up_size_axis(axes)
            axes.set_xlabel(axis_label(cost, study.meta["protocol"]))
        panels[0].set_ylabel(_score_label(study))
        bars_text = f"bars: {format_percent(study.confidence)} interval of the mean, pooled noise"
        _add_legend(figure, panels[0], bars_text if study.noise.is_known else "",
                    3 * len(study.costs))
    return figure


def _score_label(study: ScalingStudy) -> str:
    meta = study.meta
    return y_axis_label(axis_label(study.metric, meta["protocol"]), meta["data"]["name"],
                        bool(meta.get("synthetic")))


def plot_laws(study: ScalingStudy, cost: str) -> Figure | None:
    """Plot the laws over ``cost`` with intervals, checks and next sizes.

    The result is None without laws.
    """
    curves = study.curves_for(cost)
    fits = {rule: curve.fit for rule, curve in curves.items() if curve.fit is not None}
    if not fits:
        return None
    next_sizes = {rule: [curve.next_prediction.size]
                  for rule, curve in curves.items() if curve.next_prediction is not None}
    checks = {rule: curve.holdout_check
              for rule, curve in curves.items() if curve.holdout_check is not None}
    return plot_law_panels(fits, axis_label(cost, study.meta["protocol"]), _score_label(study),
                           next_sizes, checks)


def plot_law_panels(fits: Mapping[str, LawFit], x_label: str, y_label: str,
                    next_sizes: Mapping[str, Sequence[float]],
                    holdout_checks: Mapping[str, HoldoutCheck]) -> Figure:
    """Plot the score over the size, one panel per rule so that bands do not overlap.

    Args:
        fits: rule to its law; at least one.
        x_label, y_label: labels of the axes.
        next_sizes: rule to larger sizes, for which predictions and the prediction interval of one
            training run are drawn.
        holdout_checks: rule to the check of its law.
    """
    columns = min(len(fits), MAX_COLUMNS)
    rows = -(-len(fits) // columns)
    with new_figure(max(3.4, LAW_PANEL_WIDTH * columns), LAW_PANEL_HEIGHT * rows + 0.4, rows,
                    columns, sharex=True, sharey=True) as (figure, panels):
        for axes, (rule, fit), color, marker in zip(
                panels, fits.items(), cycle(COLORS), cycle(MARKERS)):
            check = holdout_checks.get(rule)
            # Runs, law and band, which a dashed curve extends to further sizes.
            further_sizes = [*next_sizes.get(rule, ()), *([check.prediction.size] if check else [])]
            largest = float(fit.sizes.max())
            sizes = np.geomspace(min(*fit.sizes, *further_sizes), max(largest, *further_sizes),
                                 N_CURVE_POINTS)
            is_trained = sizes <= largest
            axes.fill_between(sizes, *fit.interval_at(sizes), color=color, alpha=0.15, linewidth=0)
            axes.plot(sizes[is_trained], fit.law(sizes[is_trained]), color=color, linewidth=1.3,
                      label="power law with interval")
            axes.plot(sizes[~is_trained], fit.law(sizes[~is_trained]), color=color, linewidth=1.3,
                      linestyle=DASHED_LINE)
            axes.plot(fit.sizes, fit.scores, marker, color=color, markersize=4,
                      label="training runs")
            exponent = (f"exponent {fit.law.c:.2f}" if fit.is_identified
                        else "exponent not identified")
            axes.set_title(f"{fill(figure_text(rule), TITLE_LINE_LENGTH)}\n({exponent})",
                           fontsize="small")
            for size in next_sizes.get(rule, ()):
                _draw_prediction(axes, fit.predict(size), color, "next size: one training run")
            if check:
                _draw_prediction(axes, check.prediction, TEXT_COLOR,
                                 "largest size, predicted from the others")
                axes.plot([check.prediction.size], [check.measured_score], "o", color=TEXT_COLOR,
                          markersize=7, markerfacecolor="none", markeredgewidth=1.1,
                          label="largest size, measured", zorder=6)
            _set_up_size_axis(axes)
            axes.tick_params(labelbottom=True)
        for axes in panels[len(fits):]:
            axes.remove()
        figure.supylabel(y_label, fontsize="medium")
        confidence = format_percent(next(iter(fits.values())).confidence)
        # the title of the legend contains the label of the horizontal axis, which all panels share
        _add_legend(figure, panels[0], f"{x_label}\n\nbands and bars: {confidence} intervals", 2)
    return figure


def _draw_prediction(axes: Axes, prediction: LawPrediction, color: str, label: str) -> None:
    # at least 0: the law is refined and its resamples are not, so it can be outside their interval
    errors = [[max(0.0, prediction.score - prediction.training_low)],
              [max(0.0, prediction.training_high - prediction.score)]]
    axes.errorbar([prediction.size], [prediction.score], yerr=errors, fmt="_", color=color,
                  capsize=3, linewidth=1, label=label)


def _add_legend(figure: Figure, axes: Axes, title: str, max_columns: int) -> None:
    """Add the legend of ``axes`` below the figure, and make the figure higher.

    The legend has fewer than ``max_columns`` columns if it would be wider than the figure.
    """
    handles, labels = axes.get_legend_handles_labels()
    for columns in range(min(max_columns, len(labels)), 0, -1):
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns,
                               title=title or None, title_fontsize=8, handlelength=2.6,
                               handletextpad=0.8)
        legend.get_title().set_multialignment("center")
        if columns == 1 or legend.get_window_extent().width < figure.bbox.width:
            break
        legend.remove()
    rows = -(-len(labels) // columns) + (title.count("\n") + 1 if title else 0)
    figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() + LEGEND_ROW_HEIGHT * rows)


def _set_up_size_axis(axes: Axes) -> None:
    """Make the x axis logarithmic with legible ticks.

    Call it after everything is drawn.
    """
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    set_log_size_ticks(axes.xaxis,
                       (1.0, 2.0, 5.0) if high > 8 * low else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
