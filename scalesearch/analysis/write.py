"""Output of an analysis: JSON file, CSV file per measure, PNG and SVG figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scalesearch.analysis.heads import MIN_DIVERSITY
from scalesearch.analysis.run import Analysis
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
    """Write tables and figures to ``folder``; replace those of an earlier analysis.

    Args:
        header: description of model and data, as JSON values; precedes the measures in
            ``analysis.json``.

    Returns:
        The paths of the written files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "analysis.json"]
    suffixes = ("csv", "png", "svg") if paths[0].exists() else ()
    earlier_files = {folder / f"{name}.{suffix}" for name in TABLE_NAMES for suffix in suffixes}
    write_json(paths[0], {**header, **asdict(analysis)})
    for name, rows in analysis.tables().items():
        if rows:
            paths.append(folder / f"{name}.csv")
            write_text(paths[-1], to_csv(pd.DataFrame(map(asdict, rows), dtype=object)))
    for name, figure in draw_figures(analysis).items():
        paths += save_figure(figure, folder / name)
    for file in earlier_files - set(paths):
        file.unlink(missing_ok=True)
    return paths


def draw_figures(analysis: Analysis) -> dict[str, Figure]:
    """Draw figures by file name, without figures for empty measures."""
    figures: dict[str, Figure] = {}
    with figure_style():
        heads = analysis.heads
        if any(row.diversity is not None for row in heads):
            figures["heads"], (axes,) = _layer_panels(1)
            _draw_lines(axes, [(f"{row.stack} {row.part} (H={row.heads})", row.layer, row.diversity)
                               for row in heads])
            axes.axhline(MIN_DIVERSITY, color=DOMINATED_COLOR, linewidth=0.8, linestyle=DASHED_LINE)
            for bound in sorted({row.max_diversity for row in heads}):
                axes.axhline(bound, color=DOMINATED_COLOR, linewidth=0.8, linestyle=(0, (1, 2)))
            axes.set_ylabel("Head diversity D (dashed: equal heads,\ndotted: orthogonal)")
        if any(row.uniformity is not None for row in analysis.tokens):
            figures["tokens"], (axes,) = _layer_panels(1)
            _draw_lines(axes, [(row.stack, row.layer, row.uniformity) for row in analysis.tokens])
            axes.set_ylabel("Token uniformity (mean correlation)")
        if any(row.n_act is not None for row in analysis.ffn):
            figures["ffn"], (axes, share_axes) = _layer_panels(2)
            names = [f"{row.stack} {row.part} ({row.hidden} units)" for row in analysis.ffn]
            _draw_lines(axes, [(name, row.layer, row.n_act)
                               for name, row in zip(names, analysis.ffn)])
            _draw_lines(share_axes, [(name, row.layer, row.r_act)
                                     for name, row in zip(names, analysis.ffn)], legend=False)
            axes.set_ylabel("Active units per token")
            share_axes.set_ylabel("Share of hidden units")
        loads = analysis.load.groups
        if loads:
            figures["load"] = _draw_bars([row.group for row in loads], [row.load for row in loads],
                                         "Uses per pass", f"balance {analysis.load.balance:.3f}")
        gradients = analysis.gradients.groups
        figures["gradients"] = _draw_bars(
            [row.group for row in gradients], [row.norm for row in gradients], "Gradient norm",
            f"whole gradient {analysis.gradients.norm:.3g}")
    return figures


def _layer_panels(count: int) -> tuple[Figure, list[Axes]]:
    """Make a figure of ``count`` panels with layers on the x axis."""
    with new_figure(1.2 + 4 * count, 3.4, columns=count) as (figure, panels):
        for axes in panels:
            axes.set_xlabel("Layer")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure, panels


def _draw_lines(axes: Axes, points: Sequence[tuple[str, int, float | None]],
                legend: bool = True) -> None:
    """Draw points (name, layer, value) as one line per name."""
    values_by_name: dict[str, list[tuple[int, float]]] = {}
    for name, layer, value in points:
        if value is not None:
            values_by_name.setdefault(name, []).append((layer, value))
    for index, (name, values) in enumerate(values_by_name.items()):
        axes.plot(*zip(*values), marker=MARKERS[index % len(MARKERS)],
                  color=COLORS[index % len(COLORS)], markersize=4, linewidth=1.2, label=name)
    if legend:
        axes.legend(loc="best")


def _draw_bars(names: list[str], values: list[Any], label: str, title: str) -> Figure:
    """Draw horizontal bars, the first on top."""
    with new_figure(5.6, 0.9 + 0.17 * len(names)) as (figure, (axes,)):
        positions = range(len(names))
        axes.barh(positions, values, color=FRONT_COLOR, height=0.7)
        axes.set_yticks(positions, names)
        axes.invert_yaxis()
        axes.margins(y=0.01)
        axes.xaxis.set_major_locator(
            MaxNLocator("auto", integer=all(isinstance(value, int) for value in values)))
        axes.set_xlabel(label)
        axes.set_title(title, fontsize=9, color=TEXT_COLOR, loc="left")
        axes.grid(False, axis="y")
    return figure
