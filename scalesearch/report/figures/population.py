"""Figures of a space under a budget: its candidates in the plane of two costs, and which answers leave room."""

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
    LIMIT_COLOR,
    REFERENCE_COLOR,
    TEXT_COLOR,
    figure_style,
    figure_text,
    freeze_layout,
    new_figure,
    set_log_size_ticks,
)
from scalesearch.report.labels import SHORT_LABELS, axis_label

PLANE_AXES = ("macs.total", "params.non_embedding")  # costs on its horizontal and vertical axis
MAX_BARS = 12  # of one parameter; more values of a range are put together
BAR_HEIGHT = 0.16  # inches a bar takes
MAX_COLUMN_HEIGHT = 8.0
MAX_COLUMNS = 3  # inches of a column of panels, and columns of a page
SharePanel = tuple[str, pd.DataFrame]  # a parameter and its answers


def plot_cost_plane(sample: pd.DataFrame, front: Sequence[tuple[float, float]],
                    limits: Mapping[str, float], protocol: Mapping[str, Any],
                    references: Sequence[tuple[float, float, str]] = ()) -> Figure:
    """Candidates of a space by two costs, the budget's box, the front, and named points; all on log axes.

    Args:
        sample: a row a candidate, with both costs and ``fits``.
        front, references: (x, y) and (x, y, name) in the order of ``PLANE``.
        limits: cost to the most that is allowed.
    """
    x, y = PLANE_AXES
    with new_figure(5.2, 4.5) as (figure, (axes,)):
        axes.set(xscale="log", yscale="log", xlabel=axis_label(x, protocol),
                 ylabel=axis_label(y, protocol))
        over = [f"{name} over {EngFormatter(sep='')(most)}"
                for name, most in limits.items() if name not in PLANE_AXES]
        gray = f"does not fit ({', or '.join(['beyond the box', *over])}, or a constraint)"
        for fits, color, label in ((False, DOMINATED_COLOR, gray), (True, FRONT_COLOR, "fits")):
            rows = sample[sample["fits"] == fits]
            axes.scatter(rows[x], rows[y], s=5, color=color, alpha=0.5, linewidths=0, label=label,
                         zorder=2 + fits)
        if front:
            short = [SHORT_LABELS.get(name.partition(".")[0], name) for name in (y, x)]
            axes.plot(*zip(*sorted(front)), color=TEXT_COLOR, linewidth=1.1, zorder=5,
                      label="most {} for the {}".format(*short))
        points = [(point[0], point[1]) for point in references]
        if points:
            axes.scatter(*np.array(points).T, marker="D", s=26, facecolors="white",
                         edgecolors=REFERENCE_COLOR, zorder=6)
        _box(axes,
             *((f"{name} at most {EngFormatter(sep='')(limits[name])}", limits[name])
               if name in limits else None for name in PLANE_AXES))
        set_log_size_ticks(axes.xaxis)
        set_log_size_ticks(axes.yaxis)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", markerscale=2,
                      fontsize=7)
        freeze_layout(figure)
        place_labels(axes, [(x, y, figure_text(name)) for x, y, name in references], points)
    return figure


def _box(axes: Axes, right: tuple[str, float] | None, top: tuple[str, float] | None) -> None:
    """The budget, each limit with its words, inside the axes whatever the candidates have; beyond it is shaded."""
    spans = [list(axes.get_xlim()), list(axes.get_ylim())]
    for limit, span, shade, edge in ((right, spans[0], axes.axvspan, axes.axvline),
                                     (top, spans[1], axes.axhspan, axes.axhline)):
        if limit is not None:
            label, bound = limit
            span[:] = [min(span[0], bound / 1.3), max(span[1], bound * 1.3)]
            shade(bound, span[1], facecolor=LIMIT_COLOR, alpha=0.10, linewidth=0, zorder=1)
            edge(bound, color=LIMIT_COLOR, linewidth=1.0, linestyle=DASHED_LINE, zorder=4,
                 label=label)
    axes.set(xlim=spans[0], ylim=spans[1])


def plot_feasible_shares(values: pd.DataFrame, is_exact: bool) -> Figure:
    """The feasible share of every answer, as bars, a panel a parameter; ``values`` as ``Feasibility.values``.

    A page holds those parameters whose answers differ most.
    """
    every = [(str(name), bin_values(rows, MAX_BARS))
             for name, rows in values.groupby("parameter", sort=False)]
    every = [(name, rows) for name, rows in every if len(rows) > 1]
    panels = _most_influential(every)
    columns = _in_columns(panels)
    tallest = max(1.0, *(sum(_height(rows) for _, rows in column) for column in columns))
    with figure_style():
        figure = Figure(figsize=(max(5.2, 3.6 * len(columns)), tallest + 0.5), layout="constrained")
        FigureCanvasAgg(figure)
        for part, column in zip(figure.subfigures(1, len(columns), squeeze=False)[0], columns):
            heights = [_height(rows) for _, rows in column]
            # an empty one, so that bars are as high everywhere
            heights.append(max(1e-3, tallest - sum(heights)))
            *drawn, rest = part.subplots(
                len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
            rest.set_axis_off()
            for axes, (name, rows) in zip(drawn, column):
                _draw_shares(axes, name, rows, last=axes is drawn[-1])
        rest = f"; the {len(panels)} of {len(every)} parameters that matter most" if len(
            panels) < len(every) else ""
        figure.supxlabel(f"feasible share of {'answer sheets' if is_exact else 'draws'} (%){rest}",
                         fontsize=9)
    return figure


def _height(rows: pd.DataFrame) -> float:
    return len(rows) * BAR_HEIGHT + 0.35


def _most_influential(panels: Sequence[SharePanel]) -> list[SharePanel]:
    """The panels, in their order, whose shares differ most and that a page has room for."""
    room = MAX_COLUMNS * (MAX_COLUMN_HEIGHT - BAR_HEIGHT * MAX_BARS)
    kept = set()
    for name, rows in sorted(panels,
                             key=lambda panel: panel[1]["share"].min() - panel[1]["share"].max()):
        room -= _height(rows)
        if room < 0 and kept:
            break
        kept.add(name)
    return [panel for panel in panels if panel[0] in kept]


def _in_columns(panels: Sequence[SharePanel]) -> list[list[SharePanel]]:
    """Panels in their order, in columns within ``HIGHEST``."""
    columns: list[list[SharePanel]] = [[]]
    for panel in panels:
        if columns[-1] and sum(_height(rows)
                               for _, rows in (*columns[-1], panel)) > MAX_COLUMN_HEIGHT:
            columns.append([])
        columns[-1].append(panel)
    return columns


def _draw_shares(axes: Axes, name: str, rows: pd.DataFrame, last: bool) -> None:
    places = np.arange(len(rows))[::-1]
    axes.grid(False)
    axes.barh(places, 100 * rows["share"], color=FRONT_COLOR, height=0.78)
    axes.set_yticks(places, rows["value"].map(figure_text), fontsize=7)
    axes.set_title(figure_text(name), loc="left", fontsize=8, pad=2)
    axes.set_xlim(0, 100)
    axes.tick_params(axis="x", labelbottom=last)
    for at, share, verdict in zip(places, rows["share"], rows["verdict"]):
        axes.annotate(verdict or f"{100 * share:.3g} %", (100 * share, at), (2, 0),
                      textcoords="offset points", va="center", fontsize=6)
