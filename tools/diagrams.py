"""Draw the diagrams of the site: ``python tools/diagrams.py [FOLDER]`` (default: docs/figures)."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalesearch.files import write_atomic
from scalesearch.report.figures.style import (
    FRONT_COLOR,
    REFERENCE_COLOR,
    TEXT_COLOR,
    figure_style,
)
from tools.block_diagrams import BLOCKS, GREEN, draw_block

FIGURES = Path(__file__).parents[1] / "docs" / "figures"


class Box(NamedTuple):
    """A box of a diagram, in inches from the lower left of the figure."""

    x: float
    y: float
    width: float
    height: float
    title: str
    text: str
    color: str = FRONT_COLOR


def draw_boxes(width: float, height: float, boxes: Sequence[Box],
               arrows: Sequence[tuple[int, int]]) -> Figure:
    """Draw boxes, and arrows between the boxes with these indices."""
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    for box in boxes:
        _draw_box(axes, box)
    for start, end in arrows:
        _draw_arrow(axes, boxes[start], boxes[end])
    return figure


def _draw_box(axes: Axes, box: Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(FancyBboxPatch((box.x, box.y), box.width, box.height, facecolor=box.color + "14",
                                  boxstyle="round,pad=0,rounding_size=0.06", edgecolor=box.color))
    center = box.x + box.width / 2
    top = box.y + box.height
    axes.text(center, top - 0.1, box.title, ha="center", va="top", fontsize=9, fontweight="bold",
              color=TEXT_COLOR)
    axes.text(center, top - 0.34, box.text, ha="center", va="top", fontsize=7.5, color=TEXT_COLOR,
              linespacing=1.35)


def _draw_arrow(axes: Axes, start: Box, end: Box) -> None:
    """Draw an arrow between the nearest sides of two boxes."""
    if abs((start.y + start.height / 2) - (end.y + end.height / 2)) < 0.3:
        to_right = start.x < end.x
        tail = (start.x + start.width * to_right, start.y + start.height / 2)
        head = (end.x + end.width * (not to_right), start.y + start.height / 2)
    else:
        upwards = start.y < end.y
        x = max(start.x, end.x) + min(start.width, end.width) / 2
        tail = (x, start.y + start.height * upwards)
        head = (x, end.y + end.height * (not upwards))
    axes.annotate("", head, tail, arrowprops={"arrowstyle": "-|>", "color": TEXT_COLOR,
                                              "linewidth": 1, "shrinkA": 2, "shrinkB": 2})


def workflow() -> Figure:
    """Workflow: space, costs, search, front, export."""
    columns = (
        ("Search space", "YAML file:\nwidths, depths, blocks,\nsharing, conditions", FRONT_COLOR),
        ("Exact costs", "params, MACs, memory,\nbytes; counts under\na budget", FRONT_COLOR),
        ("Search", "sampler with exact costs,\nrungs, seeds; CPU cores,\nGPUs or a Ray cluster", GREEN),
        ("Pareto front", "BLEU against costs,\nintervals over seeds,\nreport page", REFERENCE_COLOR),
        ("Export", "verified int8 model:\nCTranslate2, ONNX,\nHugging Face", REFERENCE_COLOR),
    )
    boxes = [Box(0.1 + 1.78 * index, 0.1, 1.5, 1.0, *column)
             for index, column in enumerate(columns)]
    return draw_boxes(0.2 + 1.78 * 4 + 1.5, 1.2, boxes, [(0, 1), (1, 2), (2, 3), (3, 4)])


def search_loop() -> Figure:
    """One step of the sampler ``bayes``."""
    boxes = [
        Box(0.1, 1.3, 1.9, 0.9, "Trials", "losses at rungs, final scores,\npending and paused trials"),
        Box(2.6, 1.3, 1.9, 0.9, "Surrogates",
            "a Gaussian process per level;\ncoordinates, log costs,\nprevious loss"),
        Box(5.1, 1.3, 2.1, 0.9, "Acquisition function",
            "EHVI with exact costs,\nrung look-ahead,\nper compute", GREEN),
        Box(5.1, 2.5, 2.1, 0.9, "Candidate pool",
            "mutations of the front and\nrandom candidates, feasible\nby exact costs"),
        Box(5.1, 0.1, 2.1, 0.9, "Next action",
            "start the best new candidate\nor continue the best\npaused trial", REFERENCE_COLOR),
        Box(0.1, 0.1, 1.9, 0.9, "Training", "to the next rung\nor to the end", REFERENCE_COLOR),
    ]
    figure = draw_boxes(7.3, 3.5, boxes, [(0, 1), (1, 2), (3, 2), (2, 4), (4, 5), (5, 0)])
    figure.axes[0].annotate("", (5.1, 2.95), (1.05, 2.2), arrowprops={
        "arrowstyle": "-|>", "color": TEXT_COLOR, "linewidth": 1, "shrinkA": 2, "shrinkB": 2,
        "connectionstyle": "angle,angleA=90,angleB=0,rad=4"})
    return figure


DIAGRAMS: dict[str, Callable[[], Figure]] = {
    "workflow": workflow, "search-loop": search_loop,
    **{f"block-{name}": partial(draw_block, name) for name in BLOCKS}}


def main() -> None:
    """Write all diagrams as SVG."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURES
    with figure_style():
        for name, draw in DIAGRAMS.items():
            figure = draw()
            write_atomic(folder / f"{name}.svg", partial(figure.savefig, format="svg", metadata={
                "Date": None, "Creator": "scalesearch"}))
            if "--png" in sys.argv:
                figure.savefig(folder / f"{name}.png", dpi=150)


if __name__ == "__main__":
    main()
