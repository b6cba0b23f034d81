"""Importance of hyperparameters: PED-ANOVA over the feasible finished trials.

Source: Watanabe, Bansal and Hutter (2023), "PED-ANOVA: Efficiently quantifying hyperparameter
importance in arbitrary subspaces". The method compares the distribution of each hyperparameter in
the best quarter of the trials with a uniform distribution.

Conditional hyperparameters are handled as in Optuna, and the results are identical to Optuna's.
Optuna's implementation is not used because it takes half a minute for the bootstrap samples of 1000
trials.

Notation: n is the number of trials. A cell is an interval of a numerical hyperparameter, or a value
of a categorical one.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.sizes import is_number
from scalesearch.report.figures.style import (
    FIGURE_WIDTH,
    FRONT_COLOR,
    TEXT_COLOR,
    figure_text,
    new_figure,
)
from scalesearch.report.labels import better_direction, format_value, one_line_label
from scalesearch.studies.results.page.elements import PageSection, Part, text
from scalesearch.studies.results.page.facts import PageFacts, shown_params
from scalesearch.studies.results.page.svg import picture

Params = Mapping[str, Any]
QUANTILE = 0.25  # share of the trials that count as the best
MIN_TRIALS = 20  # PED-ANOVA needs five trials in the best quarter
BOOTSTRAP_SAMPLES = 20
MAX_CELLS = 50  # maximum number of cells of a numerical hyperparameter (as in Optuna)
MIN_SET = 2  # minimum number of trials that have a value (as in Optuna)
MIN_WIDTH = 0.5 / 1.64  # minimum bandwidth of a kernel, in cells (as in Optuna)


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


def importances(params: Sequence[Params], losses: Sequence[float]) -> list[Importance]:
    """Compute the importance of each hyperparameter, largest first.

    Args:
        params: values of the hyperparameters of each trial.
        losses: (n,) values to minimize.
    """
    axes = _axes(params)
    if len(params) < MIN_TRIALS or not axes or len(set(losses)) < 2:
        return []
    values = np.array(losses, dtype=float)
    shares = _shares(axes.values(), values, np.arange(len(params)))
    if not shares.any():
        return []
    samples = np.random.default_rng(0).integers(len(params), size=(BOOTSTRAP_SAMPLES, len(params)))
    sample_shares = [_shares(axes.values(), values, rows) for rows in samples]
    low, high = np.quantile(sample_shares, [0.05, 0.95], axis=0)
    result = [Importance(name, float(shares[index]), float(low[index]), float(high[index]),
                         int((axis.cells >= 0).sum()))
              for index, (name, axis) in enumerate(axes.items())]
    return sorted(result, key=lambda importance: (-importance.value, importance.name))


class _Axis(NamedTuple):
    """Cells of a hyperparameter.

    Attributes:
        cells: (n,) cell of each trial, -1 if it has no value.
        size: number of cells.
        ordered: whether the hyperparameter is numerical.
    """

    cells: NDArray[np.int64]
    size: int
    ordered: bool


def _axes(params: Sequence[Params]) -> dict[str, _Axis]:
    """Divide the values of each hyperparameter with several values into cells."""
    axes = {}
    for name in sorted({name for trial_params in params for name in trial_params}):
        rows = [row for row, trial_params in enumerate(params) if name in trial_params]
        values = [params[row][name] for row in rows]
        cells = np.full(len(params), -1)
        if all(map(is_number, values)):
            low = min(values)
            high = max(values)
            is_integer = all(isinstance(value, int) for value in values)
            size = min(int(high - low) + 1, MAX_CELLS) if is_integer else MAX_CELLS
            if low < high:
                positions = (np.array(values, dtype=float) - low) / ((high - low) / (size - 1))
                cells[rows] = np.clip(np.ceil(positions - 0.5), 0, size - 1)
                axes[name] = _Axis(cells, size, True)
        else:
            words = sorted({format_value(value) for value in values})
            cells[rows] = [words.index(format_value(value)) for value in values]
            if len(words) > 1:
                axes[name] = _Axis(cells, len(words), False)
    return axes


def _shares(axes: Iterable[_Axis], losses: NDArray[np.float64],
            rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Importances (axes,) for the trials ``rows``, as shares of their sum."""
    sample_losses = losses[rows]
    last = math.ceil(QUANTILE * len(rows)) - 1
    is_best = sample_losses <= np.partition(sample_losses, last)[last]
    importance = []
    for cells, size, ordered in axes:
        sample_cells = cells[rows]
        has_value = sample_cells >= 0
        counts = np.bincount(sample_cells[is_best & has_value], minlength=size)
        if has_value.sum() < MIN_SET or not counts.any():
            importance.append(0.0)
            continue
        density_ratio = size * (_density(counts, ordered) + 1e-12)  # to the uniform distribution
        share_of_best = counts.sum() / is_best.sum()
        share_of_all = has_value.mean()
        importance.append(share_of_best**2 / share_of_all
                          * float(((density_ratio - 1) ** 2).mean()))
    return np.array(importance) / (sum(importance) or 1.0)


def _density(counts: NDArray[np.int64], ordered: bool) -> NDArray[np.float64]:
    """Parzen density estimate (cells,) with a uniform prior that counts as one trial.

    The bandwidth for ordered cells follows Scott's rule (Scott, 1992).
    """
    size = len(counts)
    used = np.flatnonzero(counts)
    n = counts.sum()
    weights = counts[used]
    if ordered:
        from scipy.special import ndtr

        mean = used @ weights / n
        cumulative = np.cumsum(weights)
        sd = math.sqrt((used - mean) ** 2 @ weights / max(1, n - 1))
        lower = np.searchsorted(cumulative, n // 4, side="left")
        upper = np.searchsorted(cumulative, n * 3 // 4, side="right")
        interquartile_range = used[min(len(used) - 1, upper)] - used[lower]
        bandwidth = max(1.059 * min(interquartile_range / 1.34, sd) * n**-0.2, MIN_WIDTH)
        centers = np.append(used, (size - 1) / 2)[:, None]
        bandwidths = np.append(np.full(len(used), bandwidth), size)[:, None]
        cdf = ndtr((np.arange(size + 1) - 0.5 - centers) / bandwidths)
        kernels = np.diff(cdf) / (cdf[:, -1:] - cdf[:, :1])
    else:
        kernels = np.full((len(used) + 1, size), 1 / (len(used) + 1))
        kernels[np.arange(len(used)), used] += 1
        kernels /= kernels.sum(axis=1, keepdims=True)
    estimate: NDArray[np.float64] = np.append(weights, 1) / (n + 1) @ kernels
    return estimate


def importance_section(facts: PageFacts) -> PageSection | None:
    """Create the section with the figure, or a note.

    The result is None if the study is not a search.
    """
    if not facts.is_search:
        return None
    return PageSection("importance", "Hyperparameter importance", [_body(facts)], "Importance")


def _body(facts: PageFacts) -> Part:
    sign = -1.0 if better_direction(facts.main_metric) == "max" else 1.0
    rows = facts.results.eligible
    pairs = [(shown_params(facts.trials[int(trial)]), sign * float(score))
             for trial, score in zip(rows["trial"], rows[facts.main_metric].astype(float))]
    pairs = [(params, loss) for params, loss in pairs
             if params and set(params) <= facts.sampled and np.isfinite(loss)]
    if len(pairs) < MIN_TRIALS:
        return text(f"{MIN_TRIALS} feasible finished trials are needed for the importance of "
                    f"hyperparameters for {facts.main_metric}; the study has {len(pairs)}.")
    result = importances([params for params, _ in pairs], [loss for _, loss in pairs])
    if not result:
        return text("All finished trials have the same hyperparameters or the same score.")
    return _picture(facts, result, len(pairs))


def _picture(facts: PageFacts, rows: list[Importance], trials: int) -> Part:
    with new_figure(FIGURE_WIDTH, 0.9 + 0.24 * len(rows)) as (figure, (axes,)):
        positions = np.arange(len(rows))[::-1]
        values = np.array([row.value for row in rows])
        errors = np.array([[max(0.0, row.value - row.low), max(0.0, row.high - row.value)]
                           for row in rows]).T
        axes.barh(positions, values, color=FRONT_COLOR, height=0.6)
        axes.errorbar(values, positions, xerr=errors, fmt="none", ecolor=TEXT_COLOR,
                      elinewidth=0.8, capsize=2)
        axes.set_yticks(positions,
                        [figure_text(row.name) + (f" ({row.trials})" if row.trials < trials else "")
                         for row in rows])
        axes.set_xlabel(f"Share of the importance for {one_line_label(facts.main_metric)}")
        axes.set_xlim(left=0)
        axes.grid(False, axis="y")
    words = "; ".join(f"{row.name} {row.value:.2f} ({row.low:.2f} to {row.high:.2f})"
                      for row in rows)
    partial = (" In parentheses: number of trials that have the hyperparameter, if not all."
               if any(row.trials < trials for row in rows) else "")
    caption = (f"PED-ANOVA (as in Optuna) over {trials} feasible finished trials: difference "
               "between the distribution of each hyperparameter in the best quarter by "
               f"{one_line_label(facts.main_metric)} and a uniform distribution. Lines: 90 % of "
               f"{BOOTSTRAP_SAMPLES} bootstrap samples.{partial} The importance describes "
               "associations in these trials, which were not sampled uniformly.")
    return picture(figure, "importance-figure", f"Bar chart of importances: {words}.", caption)
