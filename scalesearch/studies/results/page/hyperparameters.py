"""Hyperparameters on the report page: parallel coordinates, and importance by PED-ANOVA.

The axes of the parallel coordinates are horizontal and below each other, so that narrow screens
show all axes and labels.

Source of the importance: Watanabe, Bansal and Hutter (2023), "PED-ANOVA: Efficiently quantifying
hyperparameter importance in arbitrary subspaces", as in Optuna. The method compares the
distribution of each hyperparameter in the best quarter of the trials with a uniform distribution.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import optuna
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, Normalize
from numpy.typing import NDArray
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from scalesearch.blocks.sizes import is_number
from scalesearch.report.figures import style
from scalesearch.report.labels import better_direction, format_value, plain_label
from scalesearch.report.table import HALF_WIDTH_SUFFIX, summarize_trial
from scalesearch.studies.results.page.elements import PageSection, Part, PlotMark, picture, text
from scalesearch.studies.results.page.facts import PageFacts, shown_params
from scalesearch.terminal import format_count

MAX_AXES = 12  # maximum number of axes that stay readable
ROW_HEIGHT = 0.42  # inches of an axis with its labels
BAR_HEIGHT = 0.5  # inches of the color bar
NAME_WIDTH = 1.85  # inches to the left of the axes, for their names
NAME_LINE_LENGTH = 26  # characters of each of the two lines of a name
MAX_LABEL_LETTERS = 42  # maximum length of all tick labels of an axis
# Without the ends of the color map, which have little contrast on a dark or light page.
COLORS = ListedColormap(matplotlib.colormaps["viridis"](np.linspace(0.2, 0.9, 256)))
MAX_TICKS = 6  # maximum number of numerical ticks; otherwise only the two ends have a tick
UNSET_POSITION = -0.12  # position of trials that do not have the hyperparameter
QUANTILE = 0.25  # share of the trials that count as the best
MIN_TRIALS = 20  # PED-ANOVA needs five trials in the best quarter
BOOTSTRAP_SAMPLES = 20


# -- parallel coordinates


class ParallelAxis(NamedTuple):
    """Axis of a hyperparameter.

    Attributes:
        name: the hyperparameter.
        positions: (n,) position of each trial on the axis, from 0 to 1.
        ticks: pairs of position and label.
    """

    name: str
    positions: list[float]
    ticks: list[tuple[float, str]]


def parallel_axis(name: str, values: Sequence[Any]) -> ParallelAxis:
    """Create the axis of a hyperparameter.

    Args:
        values: value of each trial; None if unset. Numbers are placed to scale, words at equal
            distances.
    """
    set_values = [value for value in values if value is not None]
    if all(map(is_number, set_values)):
        low = min(set_values)
        high = max(set_values)
        positions = {format_value(value): (value - low) / (high - low) if high > low else 0.5
                     for value in sorted(set_values)}
        ticks = (list(positions) if len(positions) <= MAX_TICKS
                 else [format_value(low), format_value(high)])
    else:
        ticks = sorted({format_value(value) for value in set_values})
        positions = {label: index / max(1, len(ticks) - 1) for index, label in enumerate(ticks)}
    trial_positions = [UNSET_POSITION if value is None else positions[format_value(value)]
                       for value in values]
    return ParallelAxis(name, trial_positions, [(positions[label], label) for label in ticks])


def parallel_section(facts: PageFacts) -> PageSection | None:
    """Create the section with the figure, or a note.

    The axes are those of the hyperparameters that differ, in the order of the space;
    hyperparameters that all trials have come first. None if the study is not a search.
    """
    if not facts.is_search:
        return None
    all_params = [shown_params(facts.trials[int(number)])
                  for number in facts.finished_rows["trial"]]
    rows = facts.finished_rows[list(map(bool, all_params))]
    params = [trial_params for trial_params in all_params if trial_params]
    axes = []
    for name in dict.fromkeys(name for trial_params in params for name in trial_params):
        values = [trial_params.get(name) for trial_params in params]
        if name in facts.sampled and len(set(map(format_value, values))) > 1:
            axes.append(parallel_axis(name, values))
    axes.sort(key=lambda axis: UNSET_POSITION in axis.positions)
    part = (parallel_picture(facts, rows, axes) if axes
            else text("Fewer than two finished trials differ in any hyperparameter."))
    return PageSection("hyperparameters", "Hyperparameters", [part])


def parallel_picture(facts: PageFacts, rows: pd.DataFrame, all_axes: list[ParallelAxis]) -> Part:
    """Figure of a line per trial through its hyperparameters."""
    shown = all_axes[:MAX_AXES]
    hidden = [axis.name for axis in all_axes[MAX_AXES:]]
    main = facts.main_metric
    scores = rows[main].to_numpy(dtype=float)
    scale = Normalize(scores.min(), scores.max())
    with style.fixed_size_panel(BAR_HEIGHT + ROW_HEIGHT * len(shown),
                                (NAME_WIDTH, 0.1, 0.1, BAR_HEIGHT)) as (figure, axes):
        points = draw_parallel_lines(axes, shown, scores, scale, rows["trial"].tolist(), facts)
        bar_height = len(shown) - 0.5 + 0.1 / ROW_HEIGHT
        bar = axes.inset_axes((0.5, bar_height, 0.5, 0.1 / ROW_HEIGHT), transform=axes.transData)
        figure.colorbar(ScalarMappable(scale, COLORS), cax=bar, orientation="horizontal",
                        ticklocation="top")
        axes.annotate(plain_label(main), (0.48, bar_height), fontsize=8, ha="right",
                      annotation_clip=False)
    columns = [name for name in ("trial", "label", "seeds", main, main + HALF_WIDTH_SUFFIX)
               if name in rows]
    marks = [PlotMark(int(row["trial"]), summarize_trial(row, {main: main}), axes,
                      list(zip(*points[index])))
             for index, row in enumerate(rows[columns].to_dict("records"))]
    best_row = (scores if better_direction(main) == "max" else -scores).argmax()
    best = facts.trials[int(rows["trial"].iloc[best_row])]
    params = ", ".join(f"{name} {format_value(value)}"
                       for name, value in shown_params(best).items() if name in facts.sampled)
    caption = (f"{len(rows)} finished trials, each a line from top to bottom, colored by "
               f"{plain_label(main)}. Thick: on the front. Left of an axis: not "
               "set." + (f" Not shown: {', '.join(hidden)}." if hidden else ""))
    alt = (f"Parallel coordinates of {format_count(len(rows), 'trial')} over "
           f"{', '.join(axis.name for axis in shown)}; the best, trial {best.number}: {params}.")
    return picture(figure, "parallel", alt, caption, marks)


def draw_parallel_lines(axes: Axes, shown: list[ParallelAxis], scores: NDArray[np.float64],
                        scale: Normalize, numbers: list[int],
                        facts: PageFacts) -> NDArray[np.float64]:
    """Draw axes and lines.

    Args:
        scores: (n,) scores of the trials.
        numbers: numbers of the trials.

    Returns:
        (n, 2, axes) coordinates of each line on each axis.
    """
    heights = np.arange(len(shown))[::-1]
    # so that lines of equal trials do not cover each other
    jitter = 0.008 * (np.array(numbers)[:, None] % 5 - 2)
    positions = np.array([axis.positions for axis in shown]).T + jitter
    # the best trial is drawn last
    order = np.argsort(scores if better_direction(facts.main_metric) == "max" else -scores,
                       kind="stable")
    on_front = np.isin(np.array(numbers)[order], facts.front_members)
    lines = [np.column_stack([positions[row], heights]) for row in order]
    axes.add_collection(LineCollection(lines, colors=COLORS(scale(scores[order])),
                                       linewidths=np.where(on_front, 2.0, 0.8),
                                       alpha=np.where(on_front, 0.95, min(0.55, 60 / len(lines))),
                                       zorder=2))
    axes.set(xlim=(UNSET_POSITION - 0.04, 1.04), ylim=(-0.5, len(shown) - 0.5))
    text_options: Any = {
        "textcoords": "offset points", "fontsize": 8, "zorder": 5,
        "bbox": {"facecolor": "#ffffff", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}}
    for height, axis in zip(heights, shown):
        axes.plot([0, 1], [height, height], color=style.TEXT_COLOR, linewidth=0.6)
        axes.annotate(axis_name_lines(axis.name), (UNSET_POSITION - 0.04, height), (-4, 0),
                      weight="bold", va="center", ha="right", **text_options)
        letters = MAX_LABEL_LETTERS // len(axis.ticks)
        for position, label in axis.ticks:
            short = label if len(label) <= letters else f"{label[:letters - 1]}…"
            alignment = "left" if position < 0.1 else "right" if position > 0.9 else "center"
            axes.annotate(style.figure_text(short), (position, height), (0, -3), va="top",
                          ha=alignment, **text_options)
    axes.axis("off")
    return np.stack([positions, np.broadcast_to(heights, positions.shape)], axis=1)


def axis_name_lines(name: str) -> str:
    """Name of an axis on at most two lines, split after a dot."""
    text = style.figure_text(name, 2 * NAME_LINE_LENGTH - 4)
    lines = textwrap.wrap(text.replace(".", ". "), NAME_LINE_LENGTH, max_lines=2,
                          placeholder="…")
    return "\n".join(lines).replace(". ", ".")


# -- importance


@dataclass(frozen=True)
class Importance:
    """Importance of a hyperparameter.

    Attributes:
        value: share of the total importance, from 0 to 1.
        low, high: 5 % and 95 % quantiles over bootstrap samples.
        trials: number of trials that have a value.
    """

    name: str
    value: float
    low: float
    high: float
    trials: int


def importances(params: Sequence[Mapping[str, Any]], losses: Sequence[float]) -> list[Importance]:
    """Compute the importance of each hyperparameter with several values, largest first.

    Args:
        params: values of the hyperparameters of each trial.
        losses: (n,) values to minimize.
    """
    distributions: dict[str, Any] = {}
    for name in sorted({name for trial_params in params for name in trial_params}):
        values = [trial_params[name] for trial_params in params if name in trial_params]
        if not all(map(is_number, values)):
            distributions[name] = CategoricalDistribution(sorted(set(map(format_value, values))))
        elif all(isinstance(value, int) for value in values):
            distributions[name] = IntDistribution(min(values), max(values))
        else:
            distributions[name] = FloatDistribution(min(values), max(values))
        if distributions[name].single():
            del distributions[name]
    if len(params) < MIN_TRIALS or not distributions or len(set(losses)) < 2:
        return []
    trials = []
    for trial_params, loss in zip(params, losses):
        varied = {name: distribution for name, distribution in distributions.items()
                  if name in trial_params}
        trial_values = {name: (format_value(trial_params[name])
                               if isinstance(distribution, CategoricalDistribution)
                               else trial_params[name])
                        for name, distribution in varied.items()}
        trials.append(optuna.create_trial(value=loss, params=trial_values, distributions=varied))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=QUANTILE,
                                                              evaluate_on_local=False)

    def importance_shares(rows: Sequence[int]) -> NDArray[np.float64]:
        """(hyperparameters,) importances for some trials, as shares of their sum."""
        study = optuna.create_study()
        study.add_trials([trials[row] for row in rows])
        values = evaluator.evaluate(study)
        return (np.array([values.get(name, 0.0) for name in distributions])
                / (sum(values.values()) or 1.0))

    shares = importance_shares(range(len(trials)))
    if not shares.any():
        return []
    samples = np.random.default_rng(0).integers(len(params), size=(BOOTSTRAP_SAMPLES, len(params)))
    low, high = np.quantile([importance_shares(rows) for rows in samples], [0.05, 0.95], axis=0)
    result = [Importance(name, float(shares[index]), float(low[index]), float(high[index]),
                         sum(name in trial_params for trial_params in params))
              for index, name in enumerate(distributions)]
    return sorted(result, key=lambda importance: (-importance.value, importance.name))


def importance_section(facts: PageFacts) -> PageSection | None:
    """Create the section with the figure, or a note; None if the study is not a search."""
    if not facts.is_search:
        return None
    main = facts.main_metric
    sign = -1.0 if better_direction(main) == "max" else 1.0
    eligible = facts.results.eligible
    pairs = [(shown_params(facts.trials[int(trial)]), sign * score)
             for trial, score in zip(eligible["trial"], eligible[main].astype(float))]
    pairs = [(params, loss) for params, loss in pairs
             if params and set(params) <= facts.sampled and np.isfinite(loss)]
    rows = importances([params for params, _ in pairs], [loss for _, loss in pairs])
    if len(pairs) < MIN_TRIALS:
        part = text(f"{MIN_TRIALS} feasible finished trials are needed for the importance of "
                    f"hyperparameters for {main}; the study has {len(pairs)}.")
    elif not rows:
        part = text("All finished trials have the same hyperparameters or the same score.")
    else:
        part = importance_picture(main, rows, len(pairs))
    return PageSection("importance", "Hyperparameter importance", [part], "Importance")


def importance_picture(metric: str, rows: Sequence[Importance], n_trials: int) -> Part:
    """Figure of importances with their intervals."""
    positions = np.arange(len(rows))[::-1]
    values = np.array([row.value for row in rows])
    errors = np.array([[max(0.0, row.value - row.low), max(0.0, row.high - row.value)]
                       for row in rows]).T
    counts = [f" ({row.trials})" if row.trials < n_trials else "" for row in rows]
    with style.new_figure(style.FIGURE_WIDTH, 0.9 + 0.24 * len(rows)) as (figure, (axes,)):
        axes.barh(positions, values, color=style.FRONT_COLOR, height=0.6)
        axes.errorbar(values, positions, xerr=errors, fmt="none", ecolor=style.TEXT_COLOR,
                      elinewidth=0.8, capsize=2)
        axes.set_yticks(positions, [style.figure_text(row.name) + count
                                    for row, count in zip(rows, counts)])
        axes.set_xlabel(f"Share of the importance for {plain_label(metric)}")
        axes.set_xlim(left=0)
        axes.grid(False, axis="y")
    words = "; ".join(f"{row.name} {row.value:.2f} ({row.low:.2f} to {row.high:.2f})"
                      for row in rows)
    partial = (" In parentheses: number of trials that have the hyperparameter, if not all."
               if any(counts) else "")
    caption = (f"PED-ANOVA (as in Optuna) over {n_trials} feasible finished trials: difference "
               "between the distribution of each hyperparameter in the best quarter by "
               f"{plain_label(metric)} and a uniform distribution. Lines: 90 % of "
               f"{BOOTSTRAP_SAMPLES} bootstrap samples.{partial} The importance describes "
               "associations in these trials, which were not sampled uniformly.")
    return picture(figure, "importance-figure", f"Bar chart of importances: {words}.", caption)
