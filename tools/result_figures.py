"""Draw the figures of the results pages: ``python tools/result_figures.py [FOLDER]``.

The numbers are those of the tables in ``benchmarks/RESULTS.md``, and of ``benchmarks/results.json``
and ``benchmarks/latency.json``.
"""

import json
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from scalesearch.report.figures.style import (
    COLORS,
    DASHED_LINE,
    FRONT_COLOR,
    LIMIT_COLOR,
    REFERENCE_COLOR,
    TEXT_COLOR,
    new_figure,
    save_figure,
)
from tools.results import ROOT, half_width, load_results

FIGURES = ROOT / "docs" / "figures"
RAW_RESULTS = ROOT / "benchmarks" / "RESULTS.md"
LATENCIES = ROOT / "benchmarks" / "latency.json"
# Scaling study: standard deviation between seeds, its t quantile (16 degrees of freedom), seeds.
SCALING_HALF_WIDTH = 1.746 * 0.69 / 2**0.5
FLAGSHIP_NAMES = {
    "transformer-tiny-sizes": "Transformer-Tiny's sizes", "conv-1.79m": "conv-1.79m (found)",
    "plain-1.33m": "plain 3-3, width 96", "plain-1.19m": "plain-1.19m (found)",
    "plain-0.87m": "plain-0.87m (found)", "plain-0.74m": "plain-0.74m (found)"}
FLAGSHIP_REFERENCES = ("transformer-tiny-sizes", "plain-1.33m")
RULES = {"deeper": "o", "wider": "s", "heads": "^", "head_dim": "v", "hybrid": "D"}
MAX_LOSS = 0.25  # darkest color of the heat map


def read_table(heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading of the raw results."""
    section = RAW_RESULTS.read_text("utf-8").partition(f"{heading}\n")[2]
    match = re.search(r"^\|[-:| ]+\|\n(?P<rows>(?:\|.*\n)+)", section, re.M)
    assert match is not None, heading
    return [[cell.strip() for cell in row.strip("|").split(" | ")]
            for row in match["rows"].splitlines()]


def parse_number(text: str) -> float:
    """Parse ``1,234``, ``16.7M`` or ``13.4 ± 0.3``."""
    number = text.split(" ± ")[0].replace(",", "").strip("*` ")
    factor = {"M": 1e6, "k": 1e3}.get(number[-1], 1)
    return float(number.rstrip("Mk")) * factor


def label_points(axes: Axes, points: Sequence[tuple[float, float]], names: Sequence[str],
                 offsets: dict[str, tuple[int, int]] | None = None) -> None:
    """Write names to the lower right of points, or at other offsets in points of a font."""
    for point, name in zip(points, names, strict=True):
        offset = (offsets or {}).get(name, (6, -9))
        axes.annotate(name, point, offset, textcoords="offset points", fontsize=7.5,
                      color=TEXT_COLOR, ha="left" if offset[0] >= 0 else "right")


def set_million_ticks(axes: Axes, digits: int = 1) -> None:
    """Label the horizontal axis in millions."""
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:.{digits}f}M")


def flagship_front() -> Figure:
    """Front of the flagship: validation BLEU against params, three seeds."""
    with new_figure(5.2, 3.6) as (figure, (axes,)):
        for name, result in load_results()["flagship"]["front"].items():
            scores = result["validation_bleu"]
            point = (result["params"], statistics.mean(scores))
            is_reference = name in FLAGSHIP_REFERENCES
            axes.errorbar(*point, half_width(scores), capsize=2,
                          fmt="D" if is_reference else "o", markersize=5, elinewidth=0.9,
                          color=REFERENCE_COLOR if is_reference else FRONT_COLOR,
                          markerfacecolor="white" if is_reference else FRONT_COLOR)
            is_last = name == "transformer-tiny-sizes"
            axes.annotate(FLAGSHIP_NAMES[name], point, (-9 if is_last else 7, 6 if is_last else -9),
                          textcoords="offset points", fontsize=8, color=TEXT_COLOR,
                          ha="right" if is_last else "left")
        axes.set(xlabel="Parameters", ylabel="Validation BLEU (tokenized)", xlim=(0.6e6, 2.75e6),
                 ylim=(35.8, 40.6))
        axes.set_xticks([1e6, 1.5e6, 2e6, 2.5e6], ["1M", "1.5M", "2M", "2.5M"])
    return figure


def scaling() -> Figure:
    """BLEU of a small PartialFormer against params and MACs, by rule of growth."""
    rows = read_table("## Scaling of small PartialFormers")
    base = next(row for row in rows if row[0] == "base")
    with new_figure(7.6, 3.4, columns=2, sharey=True) as (figure, panels):
        for color, (rule, marker) in zip(COLORS, RULES.items()):
            sizes = [base, *(row for row in rows if re.split(r"[ :]", row[0])[0] == rule)]
            scores = [parse_number(row[3]) for row in sizes]
            for axes, column in zip(panels, (1, 2)):
                axes.errorbar([parse_number(row[column]) for row in sizes], scores,
                              SCALING_HALF_WIDTH, color=color, marker=marker, markersize=4,
                              linewidth=1.2, elinewidth=0.5, capsize=2, label=rule)
        for axes, digits, label in zip(panels, (2, 1), ("Parameters", "MACs (S=T=15)")):
            axes.set_xlabel(label)
            set_million_ticks(axes, digits)
        panels[0].set_ylabel("Validation BLEU")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    return figure


def papers() -> Figure:
    """BLEU against params without the embedding, of a search over three papers' mechanisms."""
    rows = read_table("A search over the mechanisms of all three papers (`studies/papers-multi30k"
                      ".yaml`; 1,600 updates of 512 tokens, beam 5, 90 %")
    with new_figure(5.2, 3.6) as (figure, (axes,)):
        for row in rows:
            is_front = row[0].startswith("front")
            half_width = float(row[3].split(" ± ")[1]) if is_front else 0
            axes.errorbar(parse_number(row[1]), parse_number(row[3]), half_width, capsize=2,
                          fmt="o" if is_front else "D", markersize=5, elinewidth=0.9,
                          color=FRONT_COLOR if is_front else REFERENCE_COLOR,
                          markerfacecolor=FRONT_COLOR if is_front else "white")
        names = [re.sub(r"front: |, attention in.*|, \d heads", "", row[0]) for row in rows]
        label_points(axes, [(parse_number(row[1]), parse_number(row[3])) for row in rows], names,
                     {"Transformer, 3-3, width 128": (-8, 6),
                      "EdgeFormer, 6-2, width 160": (-7, -4),
                      "PartialFormer, 3-2, width 128": (-7, -4)})
        axes.axvline(1e6, color=LIMIT_COLOR, linestyle=DASHED_LINE, linewidth=1)
        axes.annotate("budget: 1M", (1e6, 27.5), (-4, 0), textcoords="offset points", fontsize=7.5,
                      color=LIMIT_COLOR, ha="right", va="top")
        axes.set(xlim=(0.25e6, 1.06e6), ylim=(21, 27.6), ylabel="Validation BLEU",
                 xlabel="Parameters without the embedding")
        set_million_ticks(axes)
    return figure


def artifacts() -> Figure:
    """BLEU of int8 models against their size and their predicted latency."""
    rows = read_table("## Small exported models")
    scores = [parse_number(row[1]) for row in rows]
    with new_figure(7.6, 3.4, columns=2, sharey=True) as (figure, panels):
        for axes, column, scale, label in zip(
                panels, (3, 4), (1e-6, 1), ("Size of the int8 model (MB)", "Latency (ms per sentence)")):
            costs = [scale * parse_number(row[column]) for row in rows]
            axes.scatter(costs, scores, s=22, color=FRONT_COLOR, zorder=3)
            label_points(axes, list(zip(costs, scores)), [
                "{}, {}, {}".format(*(part.replace(",000", "k") for part in row[0].split(", ")))
                for row in rows], {"64, 8k, 6-2": (-5, 4) if column == 3 else (6, -9),
                                   "96, 4k, 3-3": (6, -4), "192, 4k, 2-2": (-6, 4),
                                   "128, 8k, 2-1": (6, -9) if column == 3 else (-6, 2)})
            axes.set_xlabel(label)
            axes.set_xlim(right=max(costs) * 1.25)
        panels[0].set(ylabel="Validation BLEU of the int8 model", ylim=(20, 32))
    return figure


def fairness() -> Figure:
    """Loss of architectures with ten recipes, above the best of each."""
    rows = read_table("## Fairness of a recipe")
    losses = np.array([[float(cell) for cell in row[1:]] for row in rows])
    with new_figure(6.4, 4.6) as (figure, (axes,)):
        image = axes.imshow(losses, cmap="Blues", vmin=0, vmax=MAX_LOSS, aspect="auto")
        for (row, column), loss in np.ndenumerate(losses):
            axes.text(column, row, f"{loss:.2f}", ha="center", va="center", fontsize=6.5,
                      color="white" if loss > MAX_LOSS / 2 else TEXT_COLOR)
        axes.add_patch(Rectangle((1.5, -0.5), 1, len(rows), fill=False, linewidth=1.6,
                                 edgecolor=REFERENCE_COLOR, clip_on=False))
        axes.set_xticks(range(10), 2 * ["¼", "½", "1", "2", "4"])
        axes.set_yticks(range(len(rows)), [row[0] for row in rows])
        axes.axvline(4.5, color="white", linewidth=4)
        axes.grid(False)
        axes.set_xlabel("Multiple of the study's learning rate (orange: the study's recipe)")
        for center, rule in ((2, "rule layerwise"), (7, "rule none")):
            axes.text(center, -0.8, rule, ha="center", fontsize=8, color=TEXT_COLOR)
        figure.colorbar(image, ax=axes, extend="max", shrink=0.6,
                        label="Loss above the best recipe (nats per character)")
    return figure


def latency() -> Figure:
    """Predicted against measured latency of models that the predictor has not seen."""
    data = json.loads(LATENCIES.read_text("utf-8"))
    measured = np.array(data["measured"])
    predicted = np.array(data["predicted"])
    with new_figure(3.9, 3.6) as (figure, (axes,)):
        limits = (0.9 * min(measured.min(), predicted.min()),
                  1.1 * max(measured.max(), predicted.max()))
        axes.plot(limits, limits, color=TEXT_COLOR, linewidth=0.8, linestyle=DASHED_LINE)
        axes.errorbar(measured, predicted, np.abs(np.array(data["intervals"]).T - predicted),
                      fmt="o", markersize=3.5, color=FRONT_COLOR, elinewidth=0.6)
        axes.set(xlim=limits, ylim=limits, xlabel=f"Measured {data['unit']}",
                 ylabel=f"Predicted {data['unit']}", aspect="equal")
    return figure


DRAWINGS: dict[str, Callable[[], Figure]] = {
    "flagship-front": flagship_front, "scaling-multi30k": scaling, "papers-multi30k": papers,
    "artifact-multi30k": artifacts, "fairness-multi30k": fairness, "latency-prediction": latency}


def main() -> None:
    """Write all figures as SVG; with ``--png`` also as PNG."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURES
    for name, draw in DRAWINGS.items():
        png, _ = save_figure(draw(), folder / name)
        if "--png" not in sys.argv:
            png.unlink()


if __name__ == "__main__":
    main()
