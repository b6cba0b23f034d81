"""Writes an analysis to a folder: ``analysis.json``, a CSV file a measure, and its figures as PNG and SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scalesearch.analysis.activations import FFNRow
from scalesearch.analysis.heads import MIN_DIVERSITY, HeadRow
from scalesearch.analysis.run import Analysis
from scalesearch.analysis.tokens import TokenRow
from scalesearch.files import write_json, write_text
from scalesearch.report.figures.style import (
    COLORS,
    DASHED_LINE,
    DOMINATED_COLOR,
    FRONT_COLOR,
    TEXT_COLOR,
    figure_style,
    new_figure,
    save_figure,
)
from scalesearch.report.text_tables import to_csv

MARKERS = "osD^vP"
TABLE_NAMES = ("heads", "tokens", "ffn", "load", "gradients")  # of tables and figures


def write_analysis(analysis: Analysis, header: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write everything into ``folder``, made if need be; files of an earlier analysis are replaced.

    Args:
        header: what the analysis is of, as JSON values; stands in ``analysis.json`` before the
            measures.

    Returns:
        The paths of what was written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "analysis.json"]
    kinds = ("csv", "png", "svg") if paths[0].exists() else ()
    earlier = {folder / f"{name}.{kind}" for name in TABLE_NAMES for kind in kinds}
    write_json(paths[0], {**header, **analysis.to_json()})
    for name, rows in analysis.tables().items():
        if rows:
            paths.append(folder / f"{name}.csv")
            write_text(paths[-1], to_csv(pd.DataFrame(map(asdict, rows), dtype=object)))
    for name, figure in draw_figures(analysis).items():
        paths += save_figure(figure, folder / name)
    for file in earlier - set(paths):
        file.unlink(missing_ok=True)
    return paths


def draw_figures(analysis: Analysis) -> dict[str, Figure]:
    """By the name of the file; of a measure that found nothing there is none."""
    drawn: dict[str, Figure] = {}
    with figure_style():
        if any(row.diversity is not None for row in analysis.heads):
            drawn["heads"] = _heads(analysis.heads)
        if any(row.uniformity is not None for row in analysis.tokens):
            drawn["tokens"] = _tokens(analysis.tokens)
        if any(row.n_act is not None for row in analysis.ffn):
            drawn["ffn"] = _ffn(analysis.ffn)
        if analysis.loads:
            drawn["load"] = _bars([row.group for row in analysis.loads],
                                  [row.load for row in analysis.loads], "Uses a pass",
                                  f"balance {analysis.load['load.balance']:.3f}")
        rows = analysis.gradients.rows
        drawn["gradients"] = _bars([row.group for row in rows], [row.norm for row in rows],
                                   "Gradient norm", f"whole gradient {analysis.gradients.norm:.3g}")
    return drawn


def _heads(rows: Sequence[HeadRow]) -> Figure:
    figure, (axes,) = _panels(1)
    _lines(axes,
           [(f"{row.stack} {row.part} (H={row.heads})", row.layer, row.diversity) for row in rows])
    axes.axhline(MIN_DIVERSITY, color=DOMINATED_COLOR, linewidth=0.8, linestyle=DASHED_LINE)
    for bound in sorted({row.max_diversity for row in rows}):
        axes.axhline(bound, color=DOMINATED_COLOR, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.set_ylabel("Head diversity D (dashed: heads alike,\ndotted: orthogonal)")
    return figure


def _tokens(rows: Sequence[TokenRow]) -> Figure:
    figure, (axes,) = _panels(1)
    _lines(axes, [(row.stack, row.layer, row.uniformity) for row in rows])
    axes.set_ylabel("Token uniformity (mean correlation)")
    return figure


def _ffn(rows: Sequence[FFNRow]) -> Figure:
    figure, (count, ratio) = _panels(2)
    names = [f"{row.stack} {row.part} ({row.hidden} units)" for row in rows]
    _lines(count, [(name, row.layer, row.n_act) for name, row in zip(names, rows)])
    _lines(ratio, [(name, row.layer, row.r_act) for name, row in zip(names, rows)], legend=False)
    count.set_ylabel("Active units a token")
    ratio.set_ylabel("Share of hidden units")
    return figure


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    with new_figure(1.2 + 4 * count, 3.4, columns=count) as (figure, panels):
        for axes in panels:
            axes.set_xlabel("Layer")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure, panels


def _lines(axes: Axes, points: Sequence[tuple[str, int, float | None]],
           legend: bool = True) -> None:
    """One line a name, over layers."""
    for index, name in enumerate(
            dict.fromkeys(name for name, _, value in points if value is not None)):
        mine = [(layer, value)
                for other, layer, value in points if other == name and value is not None]
        axes.plot(*zip(*mine), marker=MARKERS[index % len(MARKERS)],
                  color=COLORS[index % len(COLORS)], markersize=4, linewidth=1.2, label=name)
    if legend:
        axes.legend(loc="best")


def _bars(names: list[str], values: list[Any], label: str, title: str) -> Figure:
    """Horizontal bars, the first on top."""
    with new_figure(5.6, 0.9 + 0.17 * len(names)) as (figure, (axes,)):
        places = range(len(names))
        axes.barh(places, values, color=FRONT_COLOR, height=0.7)
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.margins(y=0.01)
        axes.xaxis.set_major_locator(
            MaxNLocator("auto", integer=all(isinstance(value, int) for value in values)))
        axes.set_xlabel(label)
        axes.set_title(title, fontsize=9, color=TEXT_COLOR, loc="left")
        axes.grid(False, axis="y")
    return figure
