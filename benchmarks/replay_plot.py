"""Plots of replay.py: regret over compute, with one panel per table."""

from pathlib import Path
from typing import Any

import numpy as np

# Color per sampler. Lines are solid with rungs, dashed without.
COLORS = {"random": "#999999", "tpe": "#D55E00", "nsga2": "#CC79A7", "gp": "#009E73",
          "grid": "#000000", "local": "#56B4E9", "bayes": "#0072B2"}


def draw(tables: dict[str, list[Any]], cost: str, compute: float, stem: Path) -> None:
    """Write STEM.png and STEM.svg: median and quartiles of the regret over compute."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from scalesearch.report.figures.style import RC_PARAMS, save_figure

    with matplotlib.rc_context(RC_PARAMS):
        figure = Figure(figsize=(0.6 + 2.9 * len(tables), 3.2), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
        for axes, (name, searches) in zip(panels, tables.items()):
            _panel(axes, name, searches, compute)
        panels[0].set_ylabel(f"Hypervolume not yet found (%; BLEU, {cost})")
        figure.supxlabel("Training compute (mean full-budget runs)", fontsize=9)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=5,
                      frameon=False)
    save_figure(figure, stem)


def _panel(axes: Any, name: str, searches: list[Any], compute: float) -> None:
    places = np.geomspace(0.5, compute, 120)
    for search in searches:
        color = COLORS[search.name.split()[-3 if "rungs" in search.name else -1]]
        low, middle, high = np.percentile(search.regrets("compute", places), [25, 50, 75], axis=0)
        axes.plot(places, np.maximum(middle, 0.01), color=color, linewidth=1.4, label=search.name,
                  linestyle="-" if "rungs" in search.name else (0, (4, 2)))
        axes.fill_between(places, np.maximum(low, 0.01), np.maximum(high, 0.01), color=color,
                          alpha=0.15, linewidth=0)
    axes.set(xscale="log", yscale="log", title=name, ylim=(0.05, 110), xlim=(0.5, compute))
    axes.grid(True, color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
