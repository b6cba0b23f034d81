"""Draw the figure on top of the README: ``python tools/hero.py [STEM]`` (default: docs/figures/hero).

Left: random configurations of a space in the plane of params and MACs, with a budget. Right: the
front of the flagship with three seeds, from ``benchmarks/results.json``.
"""

import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

import scalesearch as ss
from scalesearch.report.figures.style import (
    DOMINATED_COLOR,
    FRONT_COLOR,
    REFERENCE_COLOR,
    TEXT_COLOR,
    new_figure,
    save_figure,
    set_log_size_ticks,
)
from tools.results import ROOT, load_results

STEM = ROOT / "docs" / "figures" / "hero"
N_SAMPLES = 700
MAX_PARAMS = 2.6e6
MAX_MACS = 40e6
T_3_SEEDS = 2.92  # half width of a 90 % interval in standard errors, for 3 seeds
NAMES = {"transformer-tiny-sizes": "Transformer-Tiny's sizes", "conv-1.79m": "conv-1.79m (found)",
         "plain-1.33m": "plain 3-3, width 96", "plain-1.19m": "plain-1.19m (found)",
         "plain-0.87m": "plain-0.87m (found)", "plain-0.74m": "plain-0.74m (found)"}
REFERENCES = ("transformer-tiny-sizes", "plain-1.33m")


def sample_costs(count: int) -> NDArray[np.float64]:
    """Params and MACs (count, 2) of random configurations of the space ``flagship``."""
    space = ss.space("flagship")
    costs = (space.sample(seed).cost() for seed in range(count))
    return np.array([[cost["params.total"], cost["macs.total"]] for cost in costs])


def draw_space(axes: Axes, costs: NDArray[np.float64], budget: tuple[float, float]) -> None:
    """Draw configurations in the plane of params and MACs, with the box of the budget."""
    inside = (costs <= budget).all(1)
    for mask, color in ((~inside, DOMINATED_COLOR), (inside, FRONT_COLOR)):
        axes.scatter(*costs[mask].T, s=5, color=color, alpha=0.45, linewidths=0)
    axes.set(xscale="log", yscale="log", xlabel="Parameters", ylabel="MACs per sentence pair",
             title="Search space: every cost is exact before training")
    left, bottom = axes.get_xlim()[0], axes.get_ylim()[0]
    axes.add_patch(Rectangle((left, bottom), budget[0] - left, budget[1] - bottom,
                             edgecolor=REFERENCE_COLOR, facecolor="none", linewidth=1.4, zorder=4))
    axes.annotate("budget: 2.6M params, 40M MACs", (budget[0], budget[1]), (-4, 5), fontsize=8,
                  textcoords="offset points", ha="right", va="bottom", color=REFERENCE_COLOR,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85})
    set_log_size_ticks(axes.xaxis)
    set_log_size_ticks(axes.yaxis)


def draw_front(axes: Axes, front: Mapping[str, Any]) -> None:
    """Draw validation BLEU against params: means of three seeds, with 90 % intervals."""
    for name, result in front.items():
        scores = result["validation_bleu"]
        half_width = T_3_SEEDS * statistics.stdev(scores) / len(scores) ** 0.5
        is_reference = name in REFERENCES
        axes.errorbar(result["params"], statistics.mean(scores), half_width, capsize=2,
                      fmt="D" if is_reference else "o", markersize=5, elinewidth=0.9,
                      color=REFERENCE_COLOR if is_reference else FRONT_COLOR,
                      markerfacecolor="white" if is_reference else FRONT_COLOR)
        is_last = name == "transformer-tiny-sizes"
        axes.annotate(NAMES[name], (result["params"], statistics.mean(scores)),
                      (-9 if is_last else 7, 6 if is_last else -9),
                      textcoords="offset points", fontsize=8, color=TEXT_COLOR,
                      ha="right" if is_last else "left")
    axes.set(xlabel="Parameters", ylabel="Validation BLEU (tokenized)", xlim=(0.6e6, 2.75e6),
             ylim=(35.8, 40.6), title="Result: Pareto front on Multi30k En–De, three seeds")
    axes.set_xticks([1e6, 1.5e6, 2e6, 2.5e6], ["1M", "1.5M", "2M", "2.5M"])


def draw_hero(costs: NDArray[np.float64], front: Mapping[str, Any]) -> Figure:
    """Draw both panels."""
    with new_figure(9.6, 3.6, columns=2) as (figure, (left, right)):
        draw_space(left, costs, (MAX_PARAMS, MAX_MACS))
        draw_front(right, front)
        for axes in (left, right):
            axes.title.set(fontsize=9, fontweight="bold")
    return figure


def main() -> None:
    """Write STEM.png and STEM.svg."""
    stem = Path(sys.argv[1]) if len(sys.argv) > 1 else STEM
    figure = draw_hero(sample_costs(N_SAMPLES), load_results()["flagship"]["front"])
    save_figure(figure, stem)


if __name__ == "__main__":
    main()
