"""Comparison of two studies by hypervolume, with an interval of the difference.

A hypervolume depends on its reference point. Both studies therefore use the same reference point,
computed from the trials of both. Hypervolumes are reported as shares of the box between the
reference point and the ideal point. The ideal point is the best value of either study in each
objective. The shares have no unit and are between 0 and 1.

The interval is a percentile bootstrap (Efron and Tibshirani, 1993, chapter 13), shifted so that the
mean of the resampled differences is the observed difference: resampled hypervolumes are smaller
than the observed ones, most of all those of the study with fewer trials. Trials are resampled with
replacement within each study; reference point and box stay fixed. The interval measures the
influence of single trials. It does not repeat the searches, whose trials depend on each other: to
cover that variance, run each study again with another seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from numpy.typing import NDArray

from scalesearch.errors import UserError
from scalesearch.pareto.front import default_reference_point, hypervolume, to_losses
from scalesearch.pareto.noise import CONFIDENCE, format_percent
from scalesearch.report import labels
from scalesearch.report.figures import style
from scalesearch.report.figures.plot import draw_front_steps
from scalesearch.report.intervals import N_RESAMPLES
from scalesearch.terminal import format_count

STUDY_MARKERS = ("o", "s")
AXIS_MARGIN = 0.06  # of the range, around what is drawn


@dataclass(frozen=True)
class ComparedStudy:
    """One of the two compared studies.

    Attributes:
        name: name in texts and figures.
        trials: rows of its trials that may be on the front (see
            :func:`scalesearch.report.table.trials_frame`).
        objectives: name to ``min`` or ``max``.
        protocol: protocol of its costs, as JSON.
        data_hash: hash of its corpus.
        signature: signature of its metrics; empty before a trial is finished.
        recipe: training recipe; studies with different recipes compare, with a note.
        teacher: description of the teacher of its trials; likewise.
        weight_only_macs: ``macs.once`` of each trial on its front.
    """

    name: str
    trials: pd.DataFrame
    objectives: Mapping[str, str]
    protocol: Mapping[str, Any]
    data_hash: str
    signature: str = ""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    teacher: str = ""
    weight_only_macs: Sequence[int] = ()

    def objective_values(self, objectives: Mapping[str, str]) -> NDArray[np.float64]:
        """(n, objectives) values of the trials that have all values."""
        values: NDArray[np.float64] = self.trials[list(objectives)].dropna().to_numpy(dtype=float)
        return values


class StudyHypervolume(msgspec.Struct, frozen=True):
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


class DifferenceInterval(msgspec.Struct, frozen=True, rename={"n_resamples": "draws"}):
    """Interval of the difference of two hypervolumes."""

    low: float
    high: float
    confidence: float
    n_resamples: int
    seed: int
    method: str = "percentile bootstrap without bias"
    resampled: str = "finished trials within each study, with replacement"


class StudyComparison(msgspec.Struct, frozen=True, rename={
        "reference_point": "reference", "ideal_point": "best", "other_differences": "differ",
        "cost_notes": "conventions"}):
    """Hypervolumes of two studies with the same reference point.

    Attributes:
        objectives: those of both studies, name to direction.
        reference_point: one value per objective.
        ideal_point: the best value of either study in each objective.
        difference: hypervolume of the first study minus that of the second.
        interval: interval of ``difference``; None if a study has only one trial.
        other_differences: sentences on differences that do not prevent a comparison.
        cost_notes: sentences on the operations that the costs include and exclude.
    """

    studies: tuple[StudyHypervolume, StudyHypervolume]
    objectives: dict[str, str]
    reference_point: list[float]
    ideal_point: list[float]
    difference: float
    interval: DifferenceInterval | None
    other_differences: tuple[str, ...]
    cost_notes: str

    def lines(self) -> list[str]:
        """Lines for the terminal."""
        reference_point, ideal_point = (
            ", ".join(f"{name} {value:,.6g}" for name, value in zip(self.objectives, values))
            for values in (self.reference_point, self.ideal_point))
        first, second = (study.name for study in self.studies)
        difference = f"Difference, {first} minus {second}: {self.difference:+.4f}"
        interval = self.interval
        if interval is None:
            verdict = [f"{difference}. A study with one trial has no interval, so neither is shown "
                       "to be better."]
        else:
            outcome = ("0 is inside, so neither is shown to be better"
                       if interval.low <= 0 <= interval.high
                       else f"{first if interval.low > 0 else second} is better")
            verdict = [f"{difference}, {format_percent(interval.confidence)} interval "
                       f"{interval.low:+.4f} to {interval.high:+.4f}: {outcome}.",
                       "The interval is a bootstrap around the difference, with "
                       f"{interval.n_resamples:,} resamples (seed {interval.seed}): trials are "
                       "resampled with replacement "
                       "within each study. It does not cover the variance between repeated "
                       "searches: for that, run both studies with several seeds."]
        return [*self.other_differences,
                *(f"{study.name}: hypervolume {study.hypervolume:.4f}, front of {study.front_size} "
                  f"among {format_count(study.n_trials, 'trial')}" for study in self.studies),
                "Hypervolumes are shares of the box between the reference point "
                f"({reference_point}) and the ideal point ({ideal_point}). Both studies use the "
                "same two points.", *verdict, self.cost_notes]


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
    results = []
    resampled = []  # (n_resamples,) hypervolumes of each study
    for study, points, stream in zip(studies, values, np.random.SeedSequence(seed).spawn(2)):
        volume = hypervolume(points, reference_point, directions)
        results.append(StudyHypervolume(study.name, volume / box, volume, len(points),
                                        int(study.trials["front"].sum())))
        indices = np.random.default_rng(stream).integers(len(points),
                                                         size=(n_resamples, len(points)))
        resampled.append(np.array([hypervolume(points[index], reference_point, directions)
                                   for index in indices]))
    interval = None
    if all(result.n_trials > 1 for result in results):
        differences = (resampled[0] - resampled[1]) / box
        bias = differences.mean() - (results[0].hypervolume - results[1].hypervolume)
        low, high = np.quantile(differences - bias, [(1 - confidence) / 2, (1 + confidence) / 2])
        interval = DifferenceInterval(float(low), float(high), confidence, n_resamples, seed)
    keys = sorted(key for key in {*first.recipe, *second.recipe}
                  if first.recipe.get(key) != second.recipe.get(key))
    recipes = ", ".join(f"{key} {first.recipe.get(key)} and {second.recipe.get(key)}"
                        for key in keys)
    other_differences = [f"Their recipes differ: {recipes}."] if keys else []
    if first.teacher != second.teacher:
        other_differences += [f"{study.name}: {study.teacher or 'no teacher.'}"
                              for study in studies]
    cost_notes = [labels.describe_costs(first.protocol),
                  *labels.weight_only_lines(first.protocol, *first.weight_only_macs,
                                            *second.weight_only_macs)]
    return StudyComparison((results[0], results[1]), dict(first.objectives), reference_point,
                           to_losses(ideal_point, directions)[0].tolist(),
                           results[0].hypervolume - results[1].hypervolume, interval,
                           tuple(other_differences), " ".join(cost_notes))


def check_comparable(first: ComparedStudy, second: ComparedStudy) -> None:
    """Check that the numbers of two studies have the same meaning.

    Raises:
        UserError: objectives, protocol, data or metric differ; the message lists all of them.
    """
    first_setup, second_setup = (
        {"objectives": ", ".join(f"{name}: {direction}"
                                 for name, direction in sorted(study.objectives.items())),
         "protocol": labels.format_protocol(study.protocol).removeprefix("protocol "),
         "data": f"hash {study.data_hash}", "metric": study.signature}
        for study in (first, second))
    differences = [f"  {name}: {value} in {first.name}, {second_setup[name]} in {second.name}"
                   for name, value in first_setup.items()
                   if value and second_setup[name] and value != second_setup[name]]
    if differences:
        raise UserError(f"{first.name} and {second.name} are not comparable, since their numbers "
                        "have different meanings:\n" + "\n".join(differences) + "\n  Compare "
                        "studies with the same data, objectives and protocol, such as two samplers "
                        "or two spaces", code="not-comparable")


def plot_comparison(studies: tuple[ComparedStudy, ComparedStudy], comparison: StudyComparison,
                    x: str, y: str, corpus: str = "") -> Figure:
    """Plot ``y`` against the cost ``x`` of two comparable studies."""
    trials_by_study = [study.trials.dropna(subset=[*study.objectives, x, y]) for study in studies]
    protocol = studies[0].protocol
    reference_point = dict(zip(comparison.objectives, comparison.reference_point))
    has_reference_point = {x, y} <= set(comparison.objectives)
    with style.new_figure(5.2, 3.6) as (figure, (axes,)):
        for name, set_limits in ((x, axes.set_xlim), (y, axes.set_ylim)):
            values = [*pd.concat(trials_by_study)[name].astype(float)]
            if has_reference_point:
                values.append(reference_point[name])
            margin = AXIS_MARGIN * (max(values) - min(values) or 1.0)
            set_limits(min(values) - margin, max(values) + margin)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlabel(labels.axis_label(x, protocol))
        axes.set_ylabel(style.y_axis_label(labels.axis_label(y, protocol), corpus))
        for study, trials, color, marker in zip(studies, trials_by_study, style.COLORS,
                                                STUDY_MARKERS):
            front = trials["front"].astype(bool)
            label = (f"{style.figure_text(study.name)}: front of {int(front.sum())} "
                     f"among {len(trials)}")
            options = {"edgecolors": color, "linewidths": 0.9, "marker": marker}
            dominated = trials[~front]
            axes.scatter(dominated[x], dominated[y], s=12, facecolors="white", alpha=0.55, zorder=3,
                         **options)
            axes.scatter(trials[front][x], trials[front][y], s=22, facecolors=color, label=label,
                         zorder=4, **options)
            direction = study.objectives.get(y, labels.better_direction(y))
            draw_front_steps(axes, trials, x, y, direction, color)
        if has_reference_point:
            axes.plot(reference_point[x], reference_point[y], "x", color=style.TEXT_COLOR,
                      markersize=6, label="reference point of both", zorder=5)
        axes.legend(loc="best")
    return figure
