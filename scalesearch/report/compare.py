"""Comparison of two studies by hypervolume, with an interval of the difference.

A hypervolume depends on its reference point. Both studies therefore use the same reference point,
computed from the trials of both. Hypervolumes are reported as shares of the box between the
reference point and the ideal point. The ideal point is the best value of either study in each
objective. The shares have no unit and are between 0 and 1.

The interval is a percentile bootstrap (Efron and Tibshirani, 1993, chapter 13). Trials are
resampled with replacement within each study; reference point and box stay fixed. The interval
measures the influence of single trials. It does not repeat the searches, whose trials depend on
each other: to cover that variance, run each study again with another seed.
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
from scalesearch.report.figures.style import (
    COLORS,
    TEXT_COLOR,
    figure_text,
    new_figure,
    y_axis_label,
)
from scalesearch.report.labels import (
    axis_label,
    better_direction,
    describe_costs,
    format_protocol,
    weight_only_lines,
)
from scalesearch.report.table import eligible_mask

ObjectiveValues = NDArray[np.float64]
N_RESAMPLES = 2000
STUDY_MARKERS = ("o", "s")
AXIS_MARGIN = 0.06  # of the range, around what is drawn


@dataclass(frozen=True)
class ComparedStudy:
    """One of the two compared studies.

    Attributes:
        name: name in texts and figures.
        table: its trials (see :func:`scalesearch.report.table.trials_frame`).
        objectives: name to ``min`` or ``max``.
        protocol: protocol of its costs, as JSON.
        data_hash: hash of its corpus.
        signature: signature of its metrics; empty before a trial is finished.
        recipe: training recipe; studies with different recipes compare, with a note.
        teacher: description of the teacher of its trials; likewise.
        weight_only_macs: ``macs.once`` of each trial on its front.
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
        """The trials that may be on the front and have a value in each objective."""
        return self.table[
            eligible_mask(self.table) & self.table[list(self.objectives)].notna().all(axis=1)]

    def objective_values(self, objectives: Mapping[str, str]) -> ObjectiveValues:
        """(n, objectives) values of the eligible trials, in the order of ``objectives``."""
        values: ObjectiveValues = self.eligible_trials[list(objectives)].to_numpy(dtype=float)
        return values


@dataclass(frozen=True)
class StudyHypervolume:
    """Hypervolume of one study.

    Attributes:
        hypervolume: share of the box, from 0 to 1.
        hypervolume_in_units: in the units of the objectives.
        n_trials: number of eligible trials.
        front_size: number of trials on the front.
    """

    name: str
    hypervolume: float
    hypervolume_in_units: float
    n_trials: int
    front_size: int


@dataclass(frozen=True)
class StudyComparison:
    """Hypervolumes of two studies with the same reference point.

    Attributes:
        objectives: objectives of both studies, name to direction.
        reference_point: one value per objective.
        ideal_point: the best value of either study in each objective.
        cost_notes: sentences on the operations that the costs include and exclude.
        low, high: interval of the difference.
        confidence, n_resamples, seed: settings of the interval.
        other_differences: sentences on differences that do not prevent a comparison.
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
        """Hypervolume of the first study minus that of the second."""
        return self.studies[0].hypervolume - self.studies[1].hypervolume

    @property
    def has_interval(self) -> bool:
        """Whether the bootstrap has an interval: each study needs at least two trials."""
        return all(study.n_trials > 1 for study in self.studies)

    def lines(self) -> list[str]:
        """Lines for the terminal."""
        reference_point, ideal_point = (
            ", ".join(f"{name} {value:,.6g}" for name, value in zip(self.objectives, values))
            for values in (self.reference_point, self.ideal_point))
        return [*(f"{study.name}: hypervolume {study.hypervolume:.4f}, front of {study.front_size} "
                  f"among {study.n_trials} trials" for study in self.studies),
                "Hypervolumes are shares of the box between the reference point "
                f"({reference_point}) and the ideal point ({ideal_point}). Both studies use the "
                "same two points.",
                *self._verdict(), *self.cost_notes, *self.other_differences]

    def _verdict(self) -> list[str]:
        first, second = (study.name for study in self.studies)
        difference = f"Difference, {first} minus {second}: {self.difference:+.4f}"
        if not self.has_interval:
            return [f"{difference}. A study with one trial has no interval, so neither is shown to "
                    "be better."]
        verdict = ("0 is inside, so neither is shown to be better" if self.low <= 0 <= self.high
                   else f"{first if self.low > 0 else second} is better")
        return [f"{difference}, {format_percent(self.confidence)} interval {self.low:+.4f} to "
                f"{self.high:+.4f}: {verdict}.",
                f"The interval is a percentile bootstrap with {self.n_resamples:,} resamples (seed "
                f"{self.seed}): trials are resampled with replacement within each study. It does "
                "not cover the variance between repeated searches: for that, run both studies "
                "with several seeds."]

    def to_json(self) -> dict[str, Any]:
        """Convert the comparison to JSON values."""
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
    """Compare the hypervolumes of two studies.

    Args:
        n_resamples: number of bootstrap resamples.
        confidence: confidence level of the interval.
        seed: seed of the bootstrap.

    Raises:
        UserError: the studies are not comparable, or one has no finished candidate.
    """
    check_comparable(first, second)
    studies = (first, second)
    directions = list(first.objectives.values())
    values = [study.objective_values(first.objectives) for study in studies]
    for study, points in zip(studies, values):
        if not len(points):
            raise UserError(f"{study.name}: no candidate of its space is finished within its "
                            "budget yet. Continue the study, then compare again",
                            code="nothing-finished")
    all_values = np.vstack(values)
    reference_point = default_reference_point(all_values, directions)
    ideal_point = to_losses(all_values, directions).min(axis=0)
    box = float(np.prod(to_losses(np.array(reference_point), directions)[0] - ideal_point))
    volumes = [hypervolume(points, reference_point, directions) for points in values]
    rngs = [np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(2)]
    resampled = [_bootstrap_hypervolumes(points, reference_point, directions, n_resamples, rng)
                 for points, rng in zip(values, rngs)]
    low, high = np.quantile((resampled[0] - resampled[1]) / box,
                            [(1 - confidence) / 2, (1 + confidence) / 2])
    measured = [StudyHypervolume(study.name, volume / box, volume, len(points),
                                 int(study.eligible_trials["front"].sum()))
                for study, volume, points in zip(studies, volumes, values)]
    weight_only_macs = [macs for study in studies for macs in study.weight_only_macs]
    cost_notes = [describe_costs(first.protocol),
                  *weight_only_lines(first.protocol, *weight_only_macs)]
    return StudyComparison((measured[0], measured[1]), dict(first.objectives), reference_point,
                           [float(value) for value in to_losses(ideal_point, directions)[0]],
                           cost_notes, float(low), float(high), confidence, n_resamples, seed,
                           tuple(_other_differences(first, second)))


def _bootstrap_hypervolumes(points: ObjectiveValues, reference_point: list[float],
                            directions: list[str], n_resamples: int,
                            rng: np.random.Generator) -> NDArray[np.float64]:
    """(n_resamples,) hypervolumes of resampled ``points`` (n, objectives)."""
    indices = rng.integers(len(points), size=(n_resamples, len(points)))
    return np.array([hypervolume(points[index], reference_point, directions) for index in indices])


def check_comparable(first: ComparedStudy, second: ComparedStudy) -> None:
    """Check that the numbers of two studies have the same meaning.

    Raises:
        UserError: objectives, protocol, data or metric differ; the message lists all of them.
    """
    first_setup = _comparison_setup(first)
    second_setup = _comparison_setup(second)
    differences = [f"  {name}: {value} in {first.name}, {second_setup[name]} in {second.name}"
                   for name, value in first_setup.items()
                   if value and second_setup[name] and value != second_setup[name]]
    if differences:
        raise UserError(f"{first.name} and {second.name} are not comparable, since their numbers "
                        "have different meanings:\n" + "\n".join(differences) + "\n  Compare "
                        "studies with the same data, objectives and protocol, such as two samplers "
                        "or two spaces", code="not-comparable")


def _comparison_setup(study: ComparedStudy) -> dict[str, str]:
    """Name to description of the settings that two comparable studies share."""
    objectives = ", ".join(f"{name}: {direction}"
                           for name, direction in sorted(study.objectives.items()))
    return {"objectives": objectives,
            "protocol": format_protocol(study.protocol).removeprefix("protocol "),
            "data": f"hash {study.data_hash}", "metric": study.signature}


def _other_differences(first: ComparedStudy, second: ComparedStudy) -> list[str]:
    """Differences in recipe and teacher, which do not prevent a comparison."""
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
    """Plot ``y`` against the cost ``x`` of two comparable studies."""
    trials_by_study = [study.eligible_trials.dropna(subset=[x, y]) for study in studies]
    reference_point = dict(zip(comparison.objectives, comparison.reference_point))
    has_reference_point = {x, y} <= set(comparison.objectives)
    with new_figure(5.2, 3.6) as (figure, (axes,)):
        for name, limit in ((x, axes.set_xlim), (y, axes.set_ylim)):
            values = [*pd.concat(trials_by_study)[name].astype(float)]
            if has_reference_point:
                values.append(reference_point[name])
            margin = AXIS_MARGIN * (max(values) - min(values) or 1.0)
            limit(min(values) - margin, max(values) + margin)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlabel(axis_label(x, studies[0].protocol))
        axes.set_ylabel(y_axis_label(axis_label(y, studies[0].protocol), corpus))
        for study, trials, color, marker in zip(studies, trials_by_study, COLORS, STUDY_MARKERS):
            front = trials["front"].astype(bool)
            front_label = (f"{figure_text(study.name)}: front of {int(front.sum())} "
                           f"among {len(trials)}")
            for points, fill, size, alpha, label in (
                    (trials[~front], "white", 12, 0.55, None),
                    (trials[front], color, 22, 1.0, front_label)):
                axes.scatter(points[x], points[y], s=size, facecolors=fill, edgecolors=color,
                             linewidths=0.9, alpha=alpha, marker=marker, label=label,
                             zorder=4 if label else 3)
            draw_front_steps(axes, trials, x, y, study.objectives.get(y, better_direction(y)),
                             color)
        if has_reference_point:
            axes.plot(reference_point[x], reference_point[y], "x", color=TEXT_COLOR, markersize=6,
                      label="reference point of both", zorder=5)
        axes.legend(loc="best")
    return figure
