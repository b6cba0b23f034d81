"""The figure of a scaling study: trainings, laws with their bands, and what a further size should reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from scalesearch.report.noise import percent
from scalesearch.report.plot import FRONT, REFERENCE, STYLE
from scalesearch.report.scaling import Fit, HeldOut

COLORS = (FRONT, REFERENCE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = "osD^vPX"  # one more than colours, so that 42 rules differ in one or the other
POINTS = 200  # of a curve
ROW = 0.19  # inches, of a legend


def scaling(rules: Mapping[str, Fit], x: str, y: str, ahead: Sequence[float] | Mapping[str, Sequence[float]] = (),
            held: Mapping[str, HeldOut] | None = None) -> Figure:
    """Score against size, a colour a rule.

    Args:
        rules: at least one. x, y: the axes' labels.
        ahead: sizes beyond those trained, of all rules or by rule; forecasts are drawn there, with the interval of one
            training.
        held: by rule, a size that its fit has not seen: drawn as a hollow marker.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for (rule, fit), color, marker in zip(rules.items(), cycle(COLORS), cycle(MARKERS)):
            further = ahead.get(rule, ()) if isinstance(ahead, Mapping) else ahead
            extra = [*further, *([held[rule].forecast.size] if held and rule in held else [])]
            _law(axes, fit, rule, color, marker, extra)
            for size in further:
                found = fit.forecast(size)
                reach = [[found.score - found.training_low], [found.training_high - found.score]]
                axes.errorbar([size], [found.score], yerr=reach, fmt="_", color=color, capsize=3, linewidth=1)
            if held and rule in held:
                axes.plot([held[rule].forecast.size], [held[rule].score], marker, color=color, markersize=6,
                          markerfacecolor="white", markeredgewidth=1.3)
        size_axis(axes)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        sure = percent(next(iter(rules.values())).confidence)
        bars = "; bars: of one training at a further size" if ahead else ""
        legend(figure, axes, f"bands: {sure} of the law{bars}", 2)
    return figure


def _law(axes: Axes, fit: Fit, rule: str, color: str, marker: str, extra: Sequence[float]) -> None:
    """Trainings, curve and band, as far as ``extra`` sizes; the curve is dashed where nothing was trained."""
    first, last = float(fit.sizes.min()), float(fit.sizes.max())
    sizes = np.geomspace(min(first, *extra, first), max(last, *extra, last), POINTS)
    inside = sizes <= last
    axes.fill_between(sizes, *fit.band(sizes), color=color, alpha=0.15, linewidth=0)
    axes.plot(sizes[inside], fit.law(sizes[inside]), color=color, linewidth=1.3)
    axes.plot(sizes[~inside], fit.law(sizes[~inside]), color=color, linewidth=1.3, linestyle=(0, (4, 2)))
    said = f"exponent {fit.law.c:.2f}" if fit.settled else "exponent not settled"
    axes.plot(fit.sizes, fit.scores, marker, color=color, markersize=4, label=f"{rule} ({said})")


def legend(figure: Figure, axes: Axes, title: str, most: int) -> None:
    """The legend of ``axes``, below the whole figure, where it covers nothing; the figure grows by its height.

    It has at most so many columns, and fewer where these would be wider than the figure.
    """
    handles, labels = axes.get_legend_handles_labels()
    for columns in range(min(most, len(labels)), 0, -1):
        made = figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False,
                             title=title or None, title_fontsize=8, handlelength=2.6)
        if columns == 1 or made.get_window_extent().width < figure.bbox.width:
            break
        made.remove()
    rows = -(-len(labels) // columns) + bool(title)
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
