"""Draw the figure on top of the README: ``python tools/hero.py [STEM]`` (default: docs/figures/hero).

Left: random configurations of a space in the plane of params and MACs, with a budget. Right: the
rows of the board (``docs/results/board.md``).
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
    LIMIT_COLOR,
    REFERENCE_COLOR,
    TEXT_COLOR,
    new_figure,
    save_figure,
    set_log_size_ticks,
)
from tools.results import BOARD_TEST, ROOT, board_rows, half_width, load_results

STEM = ROOT / "docs" / "figures" / "hero"
N_SAMPLES = 700
MAX_PARAMS = 2.6e6
MAX_MACS = 40e6
MARKERS = {"search": ("o", FRONT_COLOR), "block replacement": ("^", LIMIT_COLOR),
           "hand": ("D", REFERENCE_COLOR)}
LABELS = {"search": "found by the search", "block replacement": "compressed by block replacement",
          "hand": "sized by hand"}
OFFSETS = {"factorised-0.40m": ((7, -2), "left"), "plain-2.54m": ((-8, 4), "right")}


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
    axes.set(xscale="log", yscale="log", xlabel="Parameters", ylabel="MACs per example",
             title="Search space: every cost is exact before training")
    left, bottom = axes.get_xlim()[0], axes.get_ylim()[0]
    axes.add_patch(Rectangle((left, bottom), budget[0] - left, budget[1] - bottom,
                             edgecolor=REFERENCE_COLOR, facecolor="none", linewidth=1.4, zorder=4))
    axes.annotate("budget: 2.6M params, 40M MACs", (budget[0], budget[1]), (-4, 5), fontsize=8,
                  textcoords="offset points", ha="right", va="bottom", color=REFERENCE_COLOR,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85})
    set_log_size_ticks(axes.xaxis)
    set_log_size_ticks(axes.yaxis)


def draw_board(axes: Axes, rows: Mapping[str, Any], published: Mapping[str, float]) -> None:
    """Draw test BLEU against params: means of three seeds, with 90 % intervals.

    Rows with a higher validation BLEU than all smaller ones are labeled.
    """
    best = 0.0
    for name, row in rows.items():
        scores = row["tests"][BOARD_TEST]["tokenized_bleu"]
        validation_bleu = statistics.mean(row["validation_bleu"])
        is_best = validation_bleu > best
        best = max(best, validation_bleu)
        marker, color = MARKERS[row["method"]]
        axes.errorbar(row["params"], statistics.mean(scores), half_width(scores), capsize=2, fmt=marker,
                      color=color, markersize=5, elinewidth=0.9, alpha=1 if is_best else 0.3,
                      markerfacecolor="white" if row["method"] == "hand" else color)
        if is_best:
            offset, align = OFFSETS.get(name, ((7, -9), "left"))
            axes.annotate(name, (row["params"], statistics.mean(scores)), offset, ha=align,
                          textcoords="offset points", fontsize=7.5, color=TEXT_COLOR)
    point = (1e6 * published["params_millions"], published["test_bleu"])
    axes.plot(*point, "x", color=TEXT_COLOR, markersize=6)
    axes.annotate("Transformer-Tiny (published)", point, (0, -12), ha="right", fontsize=7.5,
                  textcoords="offset points", color=TEXT_COLOR)
    for method, (marker, color) in MARKERS.items():
        axes.plot([], [], marker, color=color, label=LABELS[method],
                  markerfacecolor="white" if method == "hand" else color)
    axes.legend(loc="lower right", fontsize=7.5, frameon=False)
    axes.set(xlabel="Parameters", ylabel="Test BLEU (tokenized)", xlim=(0.25e6, 2.75e6),
             title="Result: best models by size, Multi30k En–De")
    axes.set_xticks([0.5e6, 1e6, 1.5e6, 2e6, 2.5e6], ["0.5M", "1M", "1.5M", "2M", "2.5M"])


def draw_hero(costs: NDArray[np.float64], results: Mapping[str, Any]) -> Figure:
    """Draw both panels."""
    with new_figure(9.6, 3.6, columns=2) as (figure, (left, right)):
        draw_space(left, costs, (MAX_PARAMS, MAX_MACS))
        draw_board(right, board_rows(results), results["flagship"]["published"])
        for axes in (left, right):
            axes.title.set(fontsize=9, fontweight="bold")
    return figure


def main() -> None:
    """Write STEM.png and STEM.svg."""
    stem = Path(sys.argv[1]) if len(sys.argv) > 1 else STEM
    figure = draw_hero(sample_costs(N_SAMPLES), load_results())
    save_figure(figure, stem)


if __name__ == "__main__":
    main()
