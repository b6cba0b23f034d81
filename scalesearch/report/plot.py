"""Figures one would put in a paper: quality against cost, with the front, the rest, the limit and the references."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from scalesearch.files import write_atomic
from scalesearch.pareto.front import staircase
from scalesearch.pareto.noise import CONFIDENCE, percent
from scalesearch.report.label_placement import place
from scalesearch.report.seeds import HALF
from scalesearch.tasks import MEASURED, METRICS

# Okabe and Ito's palette, which readers with any colour vision can tell apart.
FRONT, REST, REFERENCE, LIMIT, INK = "#0072B2", "#999999", "#D55E00", "#CC79A7", "#222222"
STYLE: Any = {
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that a figure is the same everywhere
    "svg.fonttype": "path",
    "svg.hashsalt": "scalesearch",
    "pdf.fonttype": 42,
}
WORDS = {"params": "parameters", "macs": "multiply-accumulates per sentence pair", "flops": "FLOPs per sentence pair",
         "memory.weights": "Weights (bytes, float32)", "memory.cache": "Key-value cache (bytes, float32)",
         "memory.activations": "Training activations (bytes, float32)"}
SECTIONS = {"total": "", "non_embedding": "non-embedding ", "embedding": "embedding ", "encoder": "encoder ",
            "decoder": "decoder ", "output": "output "}
REACH = 3  # a budget up to so many times the dearest candidate is drawn, with what lies beyond it


@dataclass(frozen=True)
class Subject:
    """What a figure is about, beside its points.

    Attributes:
        objectives: name to ``min`` or ``max``.
        protocol: of the costs, as JSON (name, source, target, vocab).
        bounds: cost to the largest value that the study allows.
        corpus: the name of the data, and whether it is ``synthetic``.
        signature: of the metrics.
        confidence: of the intervals that bars show.
    """

    objectives: Mapping[str, str]
    protocol: Mapping[str, Any] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)
    corpus: str = ""
    synthetic: bool = False
    signature: str = ""
    confidence: float = CONFIDENCE


def describe(name: str, protocol: Mapping[str, Any]) -> str:
    """The axis label of a metric or cost: what it is, its unit, and for work the protocol it is stated under."""
    group, _, section = name.partition(".")
    metric = name.removeprefix("test.")
    if metric in METRICS:
        return _of_split(METRICS[metric].words, "" if metric in MEASURED else "valid" if metric == name else "test")
    if name in WORDS:
        return WORDS[name]
    label = (SECTIONS[section] + WORDS[group]).strip()
    label = label[0].upper() + label[1:]
    if not protocol:
        return label
    if group == "params":
        return f"{label} (vocabulary {protocol['vocab']:,})"
    return (f"{label}\n({protocol['name']}: {protocol['source']} source, {protocol['target']} target tokens, "
            f"vocabulary {protocol['vocab']:,})")


def _of_split(words: str, split: str) -> str:
    """``BLEU (valid)``, ``Loss (nats per token, valid)``."""
    if not split:
        return words
    return f"{words[:-1]}, {split})" if words.endswith(")") else f"{words} ({split})"


def direction(name: str) -> str:
    """``max`` or ``min``: which of a metric, or of a cost, is better."""
    metric = METRICS.get(name.removeprefix("test."))
    return metric.direction if metric else "min"


def tradeoff(table: pd.DataFrame, subject: Subject, x: str, y: str = "bleu") -> Figure:
    """A figure of ``y`` against the cost ``x``, of the candidates in ``table`` (see ``report.table.frame``)."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        done = table[(table["state"] == "complete") & table[x].notna() & table[y].notna()]
        barred = _barred(done, x, y)
        _axis(axes, done, subject, x, y)
        _limit(axes, subject, x)
        _bars(axes, barred, subject, x, y)
        handles_first = _points(axes, table, done, subject, x, y)
        figure.draw_without_rendering()
        marked = done[done["label"].notna()]
        labels = [(float(row[x]), float(row[y]), str(row["label"])) for _, row in marked.iterrows()]
        place(axes, labels, list(zip(done[x].astype(float), done[y].astype(float))))
        if handles_first:
            axes.legend(frameon=False, loc="best", handletextpad=0.4)
    return figure


def save(figure: Figure, stem: Path) -> list[Path]:
    """Writes ``stem.png`` (300 dpi) and ``stem.svg`` (the same bytes for the same figure); returns their paths."""
    files = [stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "svg")]
    facts: list[Any] = [{"Software": "scalesearch"}, {"Date": None, "Creator": "scalesearch"}]
    for file, metadata in zip(files, facts):
        write = partial(figure.savefig, format=file.suffix[1:], dpi=300, metadata=metadata)
        with matplotlib.rc_context(STYLE):
            write_atomic(file, write)
    return files


def _axis(axes: Axes, done: pd.DataFrame, subject: Subject, x: str, y: str) -> None:
    data = f" on {subject.corpus}" + (" (synthetic)" if subject.synthetic else "") if subject.corpus else ""
    axes.set_xlabel(describe(x, subject.protocol))
    axes.set_ylabel(describe(y, subject.protocol) + data)
    costs = done[x].to_numpy(dtype=float)
    bound = subject.bounds.get(x)
    if len(costs) and costs.min() > 0 and costs.max() / costs.min() > 10:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        low, high = costs.min() / 1.25, max(costs.max(), bound or 0) * 1.25
        axes.set_xlim(low, high)
    elif len(costs):
        spread = max(np.ptp(costs), 0.05 * costs.max())
        right = max(costs.max(), bound if bound and bound <= REACH * costs.max() else 0)
        axes.set_xlim(max(0, costs.min() - 0.08 * spread), right + 0.1 * max(spread, right - costs.min()))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    barred = _barred(done, x, y)
    reach = [barred[y] + way * barred[y + HALF].fillna(0) for way in (-1, 1) if y + HALF in barred]
    quality = np.concatenate([done[y], *reach]).astype(float)
    if len(quality):
        spread = max(np.ptp(quality), 0.5)
        axes.set_ylim(max(0.0, quality.min() - 0.12 * spread), quality.max() + 0.12 * spread)
    axes.grid(True, color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)


def _limit(axes: Axes, subject: Subject, x: str) -> None:
    """Shades what lies beyond the budget, where the figure reaches that far."""
    bound = subject.bounds.get(x)
    left, right = axes.get_xlim()
    if bound is None or not left < bound < right:
        return
    axes.axvspan(bound, right, facecolor=LIMIT, alpha=0.13, hatch="//", edgecolor=LIMIT, linewidth=0)
    axes.axvline(bound, color=LIMIT, linewidth=0.9, linestyle=(0, (4, 2)))
    axes.annotate("over budget", (bound, 0.02), (3, 0), xycoords=("data", "axes fraction"), textcoords="offset points",
                  fontsize=7, color="#8a3a6a", rotation=90, va="bottom")


def _barred(done: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Those that are drawn with bars: all of several seeds, and the front's of a single one."""
    if not any(name + HALF in done for name in (x, y)):
        return done.iloc[:0]
    return done[(done["seeds"] > 1).to_numpy(dtype=bool) | done["front"].to_numpy(dtype=bool)]


def _bars(axes: Axes, barred: pd.DataFrame, subject: Subject, x: str, y: str) -> None:
    """The interval of each mean, by the noise between seeds that is pooled over all candidates."""
    if not len(barred):
        return
    xerr, yerr = (barred[name + HALF].to_numpy(dtype=float) if name + HALF in barred else None for name in (x, y))
    axes.errorbar(barred[x].to_numpy(dtype=float), barred[y].to_numpy(dtype=float), xerr=xerr, yerr=yerr, fmt="none",
                  ecolor=INK, elinewidth=0.8, capsize=2, capthick=0.8, zorder=2.5,
                  label=f"{percent(subject.confidence)} interval of the mean, pooled noise")


def _points(axes: Axes, table: pd.DataFrame, done: pd.DataFrame, subject: Subject, x: str, y: str) -> bool:
    mine = done[done["feasible"].astype(bool) & done["in_space"].astype(bool)]
    best = mine[mine["front"].astype(bool)]
    rest = mine[~mine["front"].astype(bool) & mine["label"].isna()]
    if len(rest):
        axes.scatter(rest[x], rest[y], s=16, facecolors="white", edgecolors=REST, linewidths=0.9,
                     label="dominated", zorder=3)
    if len(best):
        if y in subject.objectives:  # what was not chosen by has no front of its own
            _stairs(axes, best, x, y, subject)
        plain = best[best["label"].isna()]
        others = f"front of all {len(subject.objectives)} objectives" if len(subject.objectives) > 2 else "on the front"
        axes.scatter(plain[x], plain[y], s=22, color=FRONT, label=others, zorder=4)
    marked = done[done["label"].notna()]
    if len(marked):
        inside = marked.index.isin(best.index)
        colors = [FRONT if on_front else "white" for on_front in inside]
        axes.scatter(marked[x], marked[y], s=34, marker="D", c=colors, edgecolors=REFERENCE, linewidths=1.3,
                     label="reference", zorder=5)
    refused = table[(table["state"] == "infeasible") & table[x].notna()]
    left, right = axes.get_xlim()
    shown = refused[(refused[x] >= left) & (refused[x] <= right)]
    if len(shown):
        axes.plot(shown[x], np.full(len(shown), 0.0), "|", color=LIMIT, markersize=5, markeredgewidth=0.7,
                  transform=axes.get_xaxis_transform(), clip_on=False, label="infeasible, not trained")
    return bool(len(done))


def _stairs(axes: Axes, best: pd.DataFrame, x: str, y: str, subject: Subject) -> None:
    """The front of the two shown: the best ``y`` to be had at up to each ``x``."""
    way = subject.objectives.get(y, direction(y))
    corners_x, corners_y = staircase(best[x].to_numpy(float), best[y].to_numpy(float), ("min", way))
    bottom, top = axes.get_ylim()
    floor = bottom if way == "max" else top
    bound = subject.bounds.get(x)
    end = min(axes.get_xlim()[1], bound) if bound is not None and bound >= corners_x[-1] else axes.get_xlim()[1]
    steps_x = np.concatenate([[corners_x[0]], corners_x, [end]])
    steps_y = np.concatenate([[floor], corners_y, [corners_y[-1]]])
    axes.step(steps_x, steps_y, where="post", color=FRONT, linewidth=1.3, label="front of these two", zorder=2)
