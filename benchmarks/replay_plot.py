"""Plots of replay.py: regret over compute, with one panel per table.

    python benchmarks/replay_plot.py STEM      # from the committed benchmarks/results.json
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

# Color per sampler. Lines are solid with rungs, dashed without.
COLORS = {"random": "#999999", "tpe": "#D55E00", "nsga2": "#CC79A7", "gp": "#009E73",
          "grid": "#000000", "local": "#56B4E9", "bayes": "#0072B2", "botorch": "#009E73"}
RESULTS = Path(__file__).with_name("results.json")
COMMITTED_SEARCHES = {"bayes + rungs": "bayes with rungs", "bayes": "bayes",
                      "tpe + rungs": "TPE with rungs", "tpe": "TPE",
                      "random": "random", "botorch": "BoTorch qLogEHVI"}
COLUMNS = 4
T_20_SEEDS = 1.73  # half width of a 90 % interval in standard errors, for 20 seeds
MIN_REGRET = 0.01  # smaller regrets are drawn here, because the axis is logarithmic


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
        axes.plot(places, np.maximum(middle, MIN_REGRET), color=color, linewidth=1.4,
                  label=search.name, linestyle="-" if "rungs" in search.name else (0, (4, 2)))
        axes.fill_between(places, np.maximum(low, MIN_REGRET), np.maximum(high, MIN_REGRET),
                          color=color, alpha=0.15, linewidth=0)
    axes.set(xscale="log", yscale="log", title=name, ylim=(0.05, 110), xlim=(0.5, compute))
    axes.grid(True, color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)


def plot_committed(replays: Mapping[str, Any]) -> Any:
    """Plot mean regrets and their 90 % intervals at the ends of the committed replays.

    Args:
        replays: the value of ``replays`` in ``benchmarks/results.json``.
    """
    from scalesearch.report.figures.style import DASHED_LINE, new_figure

    tables = replays["tables"]
    rows = -(-len(tables) // COLUMNS)
    with new_figure(2.3 * COLUMNS, 2.3 * rows, rows, COLUMNS, sharex=True, sharey=True) as (
            figure, panels):
        for axes, (name, table) in zip(panels, tables.items()):
            for search, label in COMMITTED_SEARCHES.items():
                means, errors = np.array(table["regret"][search]).T
                half_widths = T_20_SEEDS * errors
                color = COLORS[search.split()[0]]
                axes.plot(replays["ends"], np.maximum(means, MIN_REGRET), color=color, label=label,
                          linewidth=1.4, marker="o", markersize=2.5,
                          linestyle="-" if "rungs" in search else DASHED_LINE)
                axes.fill_between(replays["ends"], np.maximum(means - half_widths, MIN_REGRET),
                                  np.maximum(means + half_widths, MIN_REGRET), color=color,
                                  alpha=0.12, linewidth=0)
            title = f"{name} (held out)" if table["held_out"] else name
            axes.set_title(title, fontsize=9)
            axes.set(xscale="log", yscale="log", ylim=(0.1, 60))
            axes.set_xticks(replays["ends"], [str(end) for end in replays["ends"]])
            axes.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
            axes.minorticks_off()
        handles, labels = panels[0].get_legend_handles_labels()
        spare = panels[len(tables):]
        for axes in spare:
            axes.set_axis_off()
            panels[panels.index(axes) - COLUMNS].tick_params(labelbottom=True)
        if spare:
            spare[0].legend(handles, labels, loc="center")
        figure.supxlabel("Full-budget runs", fontsize=9)
        figure.supylabel("Hypervolume not found (%)", fontsize=9)
    return figure


def main() -> None:
    """Write STEM.png and STEM.svg."""
    from scalesearch.report.figures.style import save_figure

    replays = json.loads(RESULTS.read_text("utf-8"))["replays"]
    save_figure(plot_committed(replays), Path(sys.argv[1]))


if __name__ == "__main__":
    main()
