"""The figures of a scaling study: means a rule in the manner of PartialFormer's Figure 3, and the laws through them."""

from itertools import cycle

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from scalesearch.pareto.noise import percent
from scalesearch.report.plot import INK, STYLE, describe
from scalesearch.report.scaling_plot import COLORS, MARKERS, legend, scaling, size_axis
from scalesearch.report.scaling_study import Curve, ScalingStudy

LINES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
PANEL = 4.2  # inches


def curves(study: ScalingStudy) -> Figure | None:
    """A panel a cost: score against size, a line a rule through the means; None before a second size is finished."""
    drawn = {cost: [curve for curve in study.of(cost).values() if len(curve.rows) > 1] for cost in study.costs}
    if not any(drawn.values()):
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(PANEL * len(study.costs), 3.3), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(study.costs), sharey=True, squeeze=False)[0]
        for axes, cost in zip(panels, study.costs):
            _panel(axes, study, cost)
        panels[0].set_ylabel(_score(study))
        bars = f"bars: {percent(study.confidence)} interval of the mean, pooled noise" if study.noise.known else ""
        legend(figure, panels[0], bars, 3 * len(study.costs))
    return figure


def laws(study: ScalingStudy, cost: str) -> Figure | None:
    """The laws against ``cost`` with their bands and checks, each to its next size; None where there is none."""
    found = {rule: curve for rule, curve in study.of(cost).items() if curve.fit is not None}
    if not found:
        return None
    fits = {rule: curve.fit for rule, curve in found.items() if curve.fit is not None}
    ahead = {rule: [curve.ahead.size] for rule, curve in found.items() if curve.ahead is not None}
    held = {rule: curve.held for rule, curve in found.items() if curve.held is not None}
    return scaling(fits, describe(cost, study.meta["protocol"]), _score(study), ahead, held)


def _panel(axes: Axes, study: ScalingStudy, cost: str) -> None:
    styles = list(zip(study.rules, cycle(COLORS), cycle(MARKERS), cycle(LINES)))
    found = study.of(cost)
    for rule, color, marker, line in styles:
        _path(axes, study, found[rule], color, marker, line)
    base = next((row for row in study.rows if row.label == study.base and cost in row.cost), None)
    if base is not None:
        axes.plot([base.cost[cost]], [base.mean], "*", color=INK, markersize=9, zorder=5, label=f"base ({study.base})"
                  if study.base != "base" else "base")
    size_axis(axes)
    axes.set_xlabel(describe(cost, study.meta["protocol"]))


def _path(axes: Axes, study: ScalingStudy, curve: Curve, color: str, marker: str, line: object) -> None:
    """The means of one rule, with the interval of each where the noise between seeds is known."""
    sizes, means = [row.cost[curve.cost] for row in curve.rows], [row.mean for row in curve.rows]
    noise = study.noise
    halves = [noise.half(study.confidence, len(row.scores)) for row in curve.rows] if noise.known else None
    axes.errorbar(sizes, means, yerr=halves, color=color, marker=marker, markersize=4, linestyle=line, linewidth=1.2,
                  elinewidth=0.8, capsize=2, capthick=0.8, label=curve.rule)


def _score(study: ScalingStudy) -> str:
    """The axis of the score; in two lines, since some are long."""
    meta = study.meta
    return f"{describe(study.metric, meta['protocol'])}\non {meta['data']['name']}" + (
        " (synthetic)" if meta.get("synthetic") else "")
