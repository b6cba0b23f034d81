"""The figure of a scaling study: trainings, laws with their bands, and what a further size should reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from textwrap import fill

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from scalesearch.pareto.noise import percent
from scalesearch.report.plot import FRONT, INK, REFERENCE, STYLE
from scalesearch.report.scaling import Fit, Forecast, HeldOut

COLORS = (FRONT, REFERENCE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = "osD^vPX"  # one more than colours, so that 42 rules differ in one or the other
POINTS = 200  # of a curve
ROW = 0.19  # inches, of a legend
COLUMNS, WIDE, HIGH, NAME = 3, 2.2, 2.1, 30  # panels beside each other, inches of one, letters in a line of its title


def scaling(rules: Mapping[str, Fit], x: str, y: str, ahead: Sequence[float] | Mapping[str, Sequence[float]] = (),
            held: Mapping[str, HeldOut] | None = None) -> Figure:
    """Score against size, a panel a rule: bands of several laws in one would hide each other.

    Args:
        rules: at least one. x, y: the axes' labels.
        ahead: sizes beyond those trained, of all rules or by rule; forecasts are drawn there, with the interval of one
            training.
        held: by rule, a size that a fit without it has foretold: what came, and the interval.
    """
    columns = min(len(rules), COLUMNS)
    lines = -(-len(rules) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(3.4, WIDE * columns), HIGH * lines + 0.4), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axes, (rule, fit), color, marker in zip(panels, rules.items(), cycle(COLORS), cycle(MARKERS)):
            further = ahead.get(rule, ()) if isinstance(ahead, Mapping) else ahead
            check = held.get(rule) if held else None
            _law(axes, fit, rule, color, marker, [*further, *([check.forecast.size] if check else [])])
            for size in further:
                _foretold(axes, fit.forecast(size), color, "next size: one training")
            if check:
                _foretold(axes, check.forecast, INK, "largest size, foretold from the others")
                axes.plot([check.forecast.size], [check.score], "o", color=INK, markersize=7, markerfacecolor="none",
                          markeredgewidth=1.1, label="what came there", zorder=6)
        for axes in panels[len(rules) :]:
            axes.remove()
        for axes in panels[: len(rules)]:
            size_axis(axes)
            axes.tick_params(labelbottom=True)
        figure.supylabel(y, fontsize="medium")
        sure = percent(next(iter(rules.values())).confidence)
        legend(figure, panels[0], f"{x}\n\nbands and bars: {sure} intervals", 2)  # it stands where a common label would
    return figure


def _law(axes: Axes, fit: Fit, rule: str, color: str, marker: str, extra: Sequence[float]) -> None:
    """Trainings, curve and band, as far as ``extra`` sizes; the curve is dashed where nothing was trained."""
    first, last = float(fit.sizes.min()), float(fit.sizes.max())
    sizes = np.geomspace(min(first, *extra, first), max(last, *extra, last), POINTS)
    inside = sizes <= last
    axes.fill_between(sizes, *fit.band(sizes), color=color, alpha=0.15, linewidth=0)
    axes.plot(sizes[inside], fit.law(sizes[inside]), color=color, linewidth=1.3, label="power law and its band")
    axes.plot(sizes[~inside], fit.law(sizes[~inside]), color=color, linewidth=1.3, linestyle=(0, (4, 2)))
    axes.plot(fit.sizes, fit.scores, marker, color=color, markersize=4, label="trainings")
    said = f"exponent {fit.law.c:.2f}" if fit.settled else "exponent not settled"
    axes.set_title(f"{fill(rule, NAME)}\n({said})", fontsize="small")


def _foretold(axes: Axes, found: Forecast, color: str, label: str) -> None:
    reach = [[found.score - found.training_low], [found.training_high - found.score]]
    axes.errorbar([found.size], [found.score], yerr=reach, fmt="_", color=color, capsize=3, linewidth=1, label=label)


def legend(figure: Figure, axes: Axes, title: str, most: int) -> None:
    """The legend of ``axes``, below the whole figure, where it covers nothing; the figure grows by its height.

    It has at most so many columns, and fewer where these would be wider than the figure.
    """
    handles, labels = axes.get_legend_handles_labels()
    for columns in range(min(most, len(labels)), 0, -1):
        made = figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False,
                             title=title or None, title_fontsize=8, handlelength=2.6)
        made.get_title().set_multialignment("center")
        if columns == 1 or made.get_window_extent().width < figure.bbox.width:
            break
        made.remove()
    rows = -(-len(labels) // columns) + (title.count("\n") + 1 if title else 0)
    figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() + ROW * rows)


def size_axis(axes: Axes) -> None:
    """A logarithmic axis of sizes, with as many ticks within a decade as can be read; call it after all is drawn."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high > 8 * low else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(True, color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
