"""Figures of a space under a budget: costs and feasible shares of values."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from scalesearch.feasible.report import bin_values
from scalesearch.report.figures.label_placement import place_labels
from scalesearch.report.figures.style import (
    DASHED_LINE,
    DOMINATED_COLOR,
    FRONT_COLOR,
    LABEL_BACKGROUND,
    LIMIT_COLOR,
    PAPER_WIDTH,
    REFERENCE_COLOR,
    TEXT_COLOR,
    figure_style,
    figure_text,
    freeze_layout,
    is_paper_style,
    new_figure,
    set_log_size_ticks,
)
from scalesearch.report.labels import SHORT_LABELS, axis_label

PLANE_AXES = ("macs.total", "params.non_embedding")  # costs on the horizontal and vertical axis
MAX_BARS = 12  # per parameter; more values of a range are merged into bins
BAR_HEIGHT = 0.16  # inches
MAX_COLUMN_HEIGHT = 8.0  # inches of a column of panels
MIN_EFFECT = 0.005  # difference of shares below which a parameter is omitted
MAX_COLUMNS = 3  # columns of panels on a page
SharePanel = tuple[str, pd.DataFrame]  # a parameter, and a row per value


def plot_cost_plane(sample: pd.DataFrame, front: Sequence[tuple[float, float]],
                    limits: Mapping[str, float], protocol: Mapping[str, Any],
                    references: Sequence[tuple[float, float, str]] = (),
                    is_exact: bool = True) -> Figure:
    """Plot candidates of a space in the plane of two costs, with budget and front.

    Args:
        sample: a row per candidate, with both costs and ``fits``.
        front: (x, y) of the candidates on the front, in the order of ``PLANE_AXES``.
        limits: cost to the largest feasible value.
        protocol: protocol of the costs, as JSON.
        references: (x, y, name) of the references, in the order of ``PLANE_AXES``.
        is_exact: whether the front is that of all candidates, not only of the sample.
    """
    x, y = PLANE_AXES
    with new_figure(5.2, 4.5) as (figure, (axes,)):
        axes.set(xscale="log", yscale="log", xlabel=axis_label(x, protocol),
                 ylabel=axis_label(y, protocol))
        other_limits = [f"{name} over {EngFormatter(sep='')(limit)}"
                        for name, limit in limits.items() if name not in PLANE_AXES]
        has_line = len(other_limits) < len(limits)
        reasons = ", ".join([*["beyond a dashed line"] * has_line, *other_limits,
                             *["violates a constraint"]])
        infeasible = f"infeasible ({reasons})"
        # Thousands of markers are pixels in an SVG, which would be large otherwise.
        infeasible_rows, feasible_rows = sample[~sample["fits"]], sample[sample["fits"]]
        axes.scatter(infeasible_rows[x], infeasible_rows[y], s=6, marker="x", linewidths=0.5,
                     color=DOMINATED_COLOR, alpha=0.7, label=infeasible, rasterized=True, zorder=2)
        axes.scatter(feasible_rows[x], feasible_rows[y], s=5, color=FRONT_COLOR, alpha=0.5,
                     linewidths=0, label="feasible", rasterized=True, zorder=3)
        if front:
            x_name, y_name = (SHORT_LABELS.get(name.partition(".")[0], name) for name in (x, y))
            axes.plot(*zip(*sorted(front)), color=TEXT_COLOR, linewidth=1.1, zorder=5,
                      label=f"maximum {y_name} by {x_name}"
                      + ("" if is_exact else ", of the samples"))
        points = [(point[0], point[1]) for point in references]
        if points:
            axes.scatter(*np.array(points).T, marker="D", s=26, facecolors="white",
                         edgecolors=REFERENCE_COLOR, zorder=6)
        # Shade the area beyond the limits; the axes are extended to contain them.
        spans = [list(axes.get_xlim()), list(axes.get_ylim())]
        for name, span, shade, edge in ((x, spans[0], axes.axvspan, axes.axvline),
                                        (y, spans[1], axes.axhspan, axes.axhline)):
            if name in limits:
                limit = limits[name]
                span[:] = [min(span[0], limit / 1.3), max(span[1], limit * 1.3)]
                shade(limit, span[1], facecolor=LIMIT_COLOR, alpha=0.10, linewidth=0, zorder=1)
                edge(limit, color=LIMIT_COLOR, linewidth=1.0, linestyle=DASHED_LINE, zorder=4,
                     label=f"{name} at most {EngFormatter(sep='')(limit)}")
        axes.set(xlim=spans[0], ylim=spans[1])
        set_log_size_ticks(axes.xaxis)
        set_log_size_ticks(axes.yaxis)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", markerscale=2,
                      fontsize=7)
        freeze_layout(figure)
        place_labels(axes, [(x, y, figure_text(name)) for x, y, name in references], points)
    return figure


def plot_feasible_shares(values: pd.DataFrame, is_exact: bool) -> Figure:
    """Plot the feasible share of each value as bars, with a panel per parameter.

    Parameters are in the order of their effect: the difference between their largest and smallest
    share. Those without effect are omitted, and those with a small effect if room is missing.

    Args:
        values: a row per value, as ``Feasibility.values``.
        is_exact: whether the shares count all configurations; otherwise they are of a sample.
    """
    all_panels = [(str(name), bin_values(rows, MAX_BARS))
                  for name, rows in values.groupby("parameter", sort=False)]
    all_panels = [(name, rows) for name, rows in all_panels if len(rows) > 1]
    panels = _most_influential(all_panels)
    # Columns are at most MAX_COLUMN_HEIGHT high.
    columns: list[list[SharePanel]] = [[]]
    for panel in panels:
        if columns[-1] and sum(_panel_height(rows)
                               for _, rows in (*columns[-1], panel)) > MAX_COLUMN_HEIGHT:
            columns.append([])
        columns[-1].append(panel)
    # of all configurations: those of the parameter that is a choice in most of them
    totals = values.groupby("parameter")[["candidates", "valid", "feasible"]].sum()
    most = totals.loc[totals["candidates"].idxmax()]
    mean_share = 100 * float(most["feasible"] / max(1, most["valid"]))
    max_percent = min(100.0, 125 * max((rows["share"].max() for _, rows in panels), default=0.8))
    max_height = max(1.0, *(sum(_panel_height(rows) for _, rows in column) for column in columns))
    with figure_style():
        width = PAPER_WIDTH if is_paper_style() else max(5.2, 3.6 * len(columns))
        figure = Figure(figsize=(width, max_height + 0.5), layout="constrained")
        FigureCanvasAgg(figure)
        for part, column in zip(figure.subfigures(1, len(columns), squeeze=False)[0], columns):
            heights = [_panel_height(rows) for _, rows in column]
            # an empty panel fills the column, so that all bars have the same height
            heights.append(max(1e-3, max_height - sum(heights)))
            *panel_axes, empty_axes = part.subplots(
                len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
            empty_axes.set_axis_off()
            for axes, (name, rows) in zip(panel_axes, column):
                _draw_shares(axes, name, rows, max_percent, last=axes is panel_axes[-1])
                axes.axvline(mean_share, color=REFERENCE_COLOR, linewidth=0.9,
                             linestyle=DASHED_LINE)
        selection = (f"\n{len(panels)} of {len(all_panels)} parameters, those with the "
                     "largest effect"
                     if len(panels) < len(all_panels) else "")
        population = "valid configurations" if is_exact else "valid sampled configurations"
        figure.supxlabel(f"feasible share of {population} (%); dashed: mean{selection}", fontsize=9)
    return figure


def _panel_height(rows: pd.DataFrame) -> float:
    return len(rows) * BAR_HEIGHT + 0.35  # inches, with the title


def _most_influential(panels: Sequence[SharePanel]) -> list[SharePanel]:
    """Select the panels whose shares differ most and that fit on a page, largest effect first."""
    n_columns = 1 if is_paper_style() else MAX_COLUMNS
    room = n_columns * (MAX_COLUMN_HEIGHT - BAR_HEIGHT * MAX_BARS)
    selected: list[SharePanel] = []
    for panel in sorted(panels, key=lambda panel: -_effect(panel)):
        room -= _panel_height(panel[1])
        if selected and (room < 0 or _effect(panel) < MIN_EFFECT):
            break
        selected.append(panel)
    return selected


def _effect(panel: SharePanel) -> float:
    """Difference between the largest and the smallest share."""
    shares = panel[1]["share"]
    return float(shares.max() - shares.min())


def _draw_shares(axes: Axes, name: str, rows: pd.DataFrame, max_percent: float, last: bool) -> None:
    heights = np.arange(len(rows))[::-1]
    axes.grid(False)
    axes.barh(heights, 100 * rows["share"], color=FRONT_COLOR, height=0.78)
    axes.set_yticks(heights, rows["value"].map(figure_text), fontsize=7)
    axes.set_title(figure_text(name), loc="left", fontsize=8, pad=2)
    axes.set_xlim(0, max_percent)
    axes.tick_params(axis="x", labelbottom=last)
    for height, share, verdict in zip(heights, rows["share"], rows["verdict"]):
        axes.annotate(verdict or f"{100 * share:.3g} %", (100 * share, height), (2, 0),
                      textcoords="offset points", va="center", fontsize=6,
                      bbox={**LABEL_BACKGROUND, "alpha": 1})  # covers the line of the mean
