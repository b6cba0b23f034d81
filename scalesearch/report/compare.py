"""Two studies beside each other: their hypervolumes up to one corner, and the interval of the difference.

A hypervolume depends on its reference point, so both studies are measured against one that is
computed over the trials of both together. It is given as the share of the box between that corner
and the best value that either study has in each objective, so that it has no unit and lies between
0 and 1.

The interval is a percentile bootstrap (Efron and Tibshirani, 1993, chapter 13): trials are drawn
with replacement within each study, as many as it has, and the difference is taken again, with
corner and box as they are. It says how much hinges on single trials. It does not repeat the
searches, whose trials depend on each other: for that, run each study again with another seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from numpy.typing import NDArray

from scalesearch.errors import UserError
from scalesearch.pareto.front import to_losses
from scalesearch.pareto.hypervolume import default_reference_point, hypervolume
from scalesearch.pareto.noise import CONFIDENCE, format_percent
from scalesearch.report.figures.plot import draw_front_steps
from scalesearch.report.figures.style import COLORS, TEXT_COLOR, figure_text, new_figure, y_axis_label
from scalesearch.report.labels import axis_label, better_direction, describe_costs, format_protocol, weight_only_lines
from scalesearch.report.table import eligible_mask

ObjectiveValues = NDArray[np.float64]
N_RESAMPLES = 2000
STUDY_MARKERS = ("o", "s")
AXIS_MARGIN = 0.06  # of the range, around what is drawn


@dataclass(frozen=True)
class ComparedStudy:
    """One of two studies.

    Attributes:
        name: in texts and figures.
        table: its trials (see ``report.table.frame``).
        objectives: name to ``min`` or ``max``.
        protocol: of its costs, as JSON.
        data_hash: hash of its corpus.
        signature: of its metrics; empty before a trial is finished.
        recipe: of its trainings; another one is no obstacle, but is noted.
        teacher: from whose translations they learn, in words; likewise.
        weight_only_macs: ``macs.once`` of each member of its front.
    """

    name: str
    table: pd.DataFrame
    objectives: Mapping[str, str]
    protocol: Mapping[str, Any]
    data_hash: str
    signature: str = ""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    teacher: str = ""
    weight_only_macs: Sequence[int] = ()

    @property
    def eligible_trials(self) -> pd.DataFrame:
        """Its trials that may be on the front."""
        return self.table[
            eligible_mask(self.table) & self.table[list(self.objectives)].notna().all(axis=1)]

    def objective_values(self, objectives: Mapping[str, str]) -> ObjectiveValues:
        """(n, objectives) of the counted trials, in the order of ``objectives``."""
        values: ObjectiveValues = self.eligible_trials[list(objectives)].to_numpy(dtype=float)
        return values


@dataclass(frozen=True)
class StudyHypervolume:
    """One study's hypervolume, as a share of the box and in the objectives' units; its counted trials and front."""

    name: str
    hypervolume: float
    hypervolume_in_units: float
    n_trials: int
    front_size: int


@dataclass(frozen=True)
class StudyComparison:
    """Two studies measured against one corner.

    Attributes:
        objectives: of both, name to direction.
        reference_point: the reference point, a value an objective.
        ideal_point: the best value of either study in each objective.
        cost_notes: what is counted in them, and what is not: lines.
        low, high: the interval of the difference.
        confidence, n_resamples, seed: of the interval.
        other_differences: what else is not the same in both.
    """

    studies: tuple[StudyHypervolume, StudyHypervolume]
    objectives: Mapping[str, str]
    reference_point: list[float]
    ideal_point: list[float]
    cost_notes: list[str]
    low: float
    high: float
    confidence: float
    n_resamples: int
    seed: int
    other_differences: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """The first study's hypervolume less the second's: positive where the first is better."""
        return self.studies[0].hypervolume - self.studies[1].hypervolume

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval: of one trial, drawn again and again, there is none."""
        return all(study.n_trials > 1 for study in self.studies)

    def lines(self) -> list[str]:
        """Lines for the terminal."""
        one, other = (study.name for study in self.studies)
        corner, best = (", ".join(f"{name} {value:,.6g}"
                                  for name, value in zip(self.objectives, values))
                        for values in (self.reference_point, self.ideal_point))
        return [*(f"{study.name}: hypervolume {study.hypervolume:.4f}, front of {study.front_size} "
                  f"among {study.n_trials} trials" for study in self.studies),
                f"Hypervolumes are shares of the box from the corner ({corner}), which lies beyond "
                f"the worst of both together, to the best of both ({best}).",
                *self._verdict(one, other), *self.cost_notes, *self.other_differences]

    def _verdict(self, one: str, other: str) -> list[str]:
        found = f"Difference, {one} less {other}: {self.difference:+.4f}"
        if not self.has_interval:
            return [f"{found}. A study of one trial has no interval, so neither is shown to be "
                    "better."]
        verdict = ("0 is inside, so neither is shown to be better" if self.low <= 0 <= self.high
                   else f"{one if self.low > 0 else other} is better")
        return [f"{found}, {format_percent(self.confidence)} interval {self.low:+.4f} to "
                f"{self.high:+.4f}: {verdict}.",
                f"The interval is a percentile bootstrap of {self.n_resamples:,} draws (seed "
                f"{self.seed}): trials are drawn with replacement within each study. It does not "
                "repeat the searches; other seeds of them would."]

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {"studies": [asdict(study) for study in self.studies],
                "objectives": dict(self.objectives), "reference": self.reference_point,
                "best": self.ideal_point, "difference": self.difference,
                "interval": {"low": self.low, "high": self.high, "confidence": self.confidence,
                             "draws": self.n_resamples, "seed": self.seed,
                             "method": "percentile bootstrap",
                             "resampled": "finished trials within each study, with replacement"}
                if self.has_interval else None, "differ": list(self.other_differences),
                "conventions": " ".join(self.cost_notes)}


def compare_studies(first: ComparedStudy, second: ComparedStudy, n_resamples: int = N_RESAMPLES,
                    confidence: float = CONFIDENCE, seed: int = 1) -> StudyComparison:
    """Measures two studies against one corner.

    Raises:
        UserError: their numbers do not compare, or one has nothing finished.
    """
    check_comparable(first, second)
    sides = (first, second)
    ways = list(first.objectives.values())
    values = [side.objective_values(first.objectives) for side in sides]
    for side, points in zip(sides, values):
        if not len(points):
            raise UserError(f"{side.name}: no candidate of its space is finished within its budget "
                            "yet, so there is nothing to compare", code="nothing-finished")
    every = np.vstack(values)
    corner = default_reference_point(every, ways)
    best = to_losses(every, ways).min(axis=0)
    box = float(np.prod(to_losses(np.array(corner), ways)[0] - best))
    volumes = [hypervolume(points, corner, ways) for points in values]
    streams = [np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(2)]
    one, other = (np.array([hypervolume(points[rows], corner, ways) for rows in
                            rng.integers(len(points), size=(n_resamples, len(points)))])
                  for points, rng in zip(values, streams))
    low, high = np.quantile((one - other) / box, [(1 - confidence) / 2, (1 + confidence) / 2])
    measured = [StudyHypervolume(side.name, volume / box, volume, len(points),
                                 int(side.eligible_trials["front"].sum()))
                for side, volume, points in zip(sides, volumes, values)]
    return StudyComparison((measured[0], measured[1]), dict(first.objectives), corner,
                           [float(value) for value in to_losses(best, ways)[0]], _counted(sides),
                           float(low), float(high), confidence, n_resamples, seed,
                           tuple(_differing(first, second)))


def _counted(sides: tuple[ComparedStudy, ComparedStudy]) -> list[str]:
    """What costs are of and leave out, and the work on weights alone of what is on the fronts."""
    protocol = sides[0].protocol
    work = [work for side in sides for work in side.weight_only_macs]
    return [describe_costs(protocol), *weight_only_lines(protocol, *work)]


def check_comparable(first: ComparedStudy, second: ComparedStudy) -> None:
    """Raises UserError where the numbers of two studies mean different things, naming all that differs."""
    facts = [
        {"objectives": ", ".join(f"{name}: {way}" for name, way in sorted(side.objectives.items())),
         "protocol": format_protocol(side.protocol).removeprefix("protocol "),
         "data": f"hash {side.data_hash}", "metric": side.signature} for side in (first, second)]
    wrong = [f"  {name}: {one} in {first.name}, {other} in {second.name}" for (name, one), other
             in zip(facts[0].items(), facts[1].values()) if one != other and one and other]
    if wrong:
        raise UserError(f"{first.name} and {second.name} do not compare, since their numbers mean "
                        "different things:\n" + "\n".join(wrong) + "\n  Compare studies with the "
                        "same data, objectives and protocol, such as two samplers or two spaces",
                        code="not-comparable")


def _differing(first: ComparedStudy, second: ComparedStudy) -> list[str]:
    """What a reader must know that is not the same in both, though the numbers compare."""
    keys = sorted(key
                  for key in {*first.recipe, *second.recipe}
                  if first.recipe.get(key) != second.recipe.get(key))
    values = ", ".join(f"{key} {first.recipe.get(key)} and {second.recipe.get(key)}"
                       for key in keys)
    lines = [f"Their recipes differ: {values}."] if keys else []
    if first.teacher != second.teacher:
        lines += [f"{side.name}: {side.teacher or 'no teacher.'}" for side in (first, second)]
    return lines


def plot_comparison(studies: tuple[ComparedStudy, ComparedStudy], comparison: StudyComparison,
                    x: str, y: str, corpus: str = "") -> Figure:
    """Figure of ``y`` against the cost ``x``, of two studies that compare."""
    rows = [side.eligible_trials.dropna(subset=[x, y]) for side in studies]
    corner = {name: value
              for name, value in zip(comparison.objectives, comparison.reference_point)
              if {x, y} <= set(comparison.objectives)}
    with new_figure(5.2, 3.6) as (figure, (axes,)):
        for name, limit in ((x, axes.set_xlim), (y, axes.set_ylim)):
            values = [*pd.concat(rows)[name].astype(float), *([corner[name]] if corner else [])]
            room = AXIS_MARGIN * (max(values) - min(values) or 1.0)
            limit(min(values) - room, max(values) + room)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlabel(axis_label(x, studies[0].protocol))
        axes.set_ylabel(y_axis_label(axis_label(y, studies[0].protocol), corpus))
        for side, mine, color, marker in zip(studies, rows, COLORS, STUDY_MARKERS):
            best = mine["front"].astype(bool)
            words = f"{figure_text(side.name)}: front of {int(best.sum())} among {len(mine)}"
            for some, fill, size, alpha, label in (
                    (mine[~best], "white", 12, 0.55, None),
                    (mine[best], color, 22, 1.0, words)):
                axes.scatter(some[x], some[y], s=size, facecolors=fill, edgecolors=color,
                             linewidths=0.9, alpha=alpha, marker=marker, label=label,
                             zorder=4 if label else 3)
            draw_front_steps(axes, mine, x, y, side.objectives.get(y, better_direction(y)), color)
        if corner:
            axes.plot(corner[x], corner[y], "x", color=TEXT_COLOR, markersize=6,
                      label="reference corner of both", zorder=5)
        axes.legend(loc="best")
    return figure
