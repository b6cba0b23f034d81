"""Which hyperparameters decide the score: PED-ANOVA over the feasible finished trials.

Watanabe, Bansal and Hutter (2023), "PED-ANOVA: Efficiently quantifying hyperparameter importance in
arbitrary subspaces", with conditional hyperparameters as in Optuna, whose numbers these are. It
compares the values of the best quarter with a uniform choice. Optuna's own takes half a minute for
the resamples of a thousand trials.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.sizes import is_number
from scalesearch.report.figures.style import FIGURE_WIDTH, FRONT_COLOR, TEXT_COLOR, figure_text, new_figure
from scalesearch.report.labels import better_direction, format_value, one_line_label
from scalesearch.report.table import eligible_mask
from scalesearch.study.results.page.elements import PageSection, Part, text
from scalesearch.study.results.page.facts import PageFacts, shown_params
from scalesearch.study.results.page.svg import picture

Params = Mapping[str, Any]
QUANTILE = 0.25
MIN_TRIALS = 20  # PED-ANOVA needs five in its best quarter
BOOTSTRAP_SAMPLES = 20  # bootstrap resamples of the trials
MAX_CELLS = 50
MIN_SET = 2
MIN_WIDTH = 0.5 / 1.64  # of a range; trials that have a value; of a kernel, in cells (Optuna's)


@dataclass(frozen=True)
class Importance:
    """A hyperparameter's share of all importance, 0 to 1; 90 % of resamples lie in ``low`` to ``high``.

    ``trials``: how many have a value for it.
    """

    name: str
    value: float
    low: float
    high: float
    trials: int


def importances(params: Sequence[Params], losses: Sequence[float]) -> list[Importance]:
    """Importance of each hyperparameter, largest first; ``losses`` (n,): smaller is better."""
    axes = _axes(params)
    if len(params) < MIN_TRIALS or not axes or len(set(losses)) < 2:
        return []
    values = np.array(losses, dtype=float)
    every = np.arange(len(params))
    whole = _shares(axes.values(), values, every)
    draws = [_shares(axes.values(), values, rows)
             for rows in np.random.default_rng(0).integers(len(params),
                                                           size=(BOOTSTRAP_SAMPLES, len(params)))]
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    found = [Importance(name, float(whole[at]), float(low[at]), float(high[at]),
                        int((axis.cells >= 0).sum()))
             for at, (name, axis) in enumerate(axes.items())]
    return sorted(found, key=lambda one: (-one.value, one.name)) if whole.any() else []


class _Axis(NamedTuple):
    """The ``size`` cells of a hyperparameter's values: (n,) the cell of each trial, -1 where it is unset."""

    cells: NDArray[np.int64]
    size: int
    ordered: bool


def _axes(params: Sequence[Params]) -> dict[str, _Axis]:
    """The hyperparameters that have several values: numbers in cells of equal width, words one a cell."""
    axes = {}
    for name in sorted({name for one in params for name in one}):
        known = [(at, one[name]) for at, one in enumerate(params) if name in one]
        values = [value for _, value in known]
        cells = np.full(len(params), -1)
        rows = [at for at, _ in known]
        if all(map(is_number, values)):
            low = min(values)
            high = max(values)
            whole = all(isinstance(value, int) for value in values)
            size = min(int(high - low) + 1, MAX_CELLS) if whole else MAX_CELLS
            if low < high:
                places = (np.array(values, dtype=float) - low) / ((high - low) / (size - 1))
                cells[rows] = np.clip(np.ceil(places - 0.5), 0, size - 1)
                axes[name] = _Axis(cells, size, True)
        else:
            words = sorted({format_value(value) for value in values})
            cells[rows] = [words.index(format_value(value)) for value in values]
            if len(words) > 1:
                axes[name] = _Axis(cells, len(words), False)
    return axes


def _shares(axes: Iterable[_Axis], losses: NDArray[np.float64],
            rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """(axes,) importances by the trials ``rows``, in shares of their sum."""
    drawn = losses[rows]
    last = math.ceil(QUANTILE * len(rows)) - 1
    best = drawn <= np.partition(drawn, last)[last]
    found = []
    for cells, size, ordered in axes:
        mine = cells[rows]
        there = mine >= 0
        counts = np.bincount(mine[best & there], minlength=size)
        if there.sum() < MIN_SET or not counts.any():
            found.append(0.0)
            continue
        density = size * (_density(counts, ordered) + 1e-12)  # over the uniform one
        among_best = counts.sum() / best.sum()
        among_all = there.mean()
        found.append(among_best**2 / among_all * float(((density - 1) ** 2).mean()))
    return np.array(found) / (sum(found) or 1.0)


def _density(counts: NDArray[np.int64], ordered: bool) -> NDArray[np.float64]:
    """(cells,) Parzen estimate, with a prior of one trial; its width on ordered cells is by Scott's rule (1992)."""
    size = len(counts)
    seen = np.flatnonzero(counts)
    n = counts.sum()
    of_each = counts[seen]
    if ordered:
        from scipy.special import ndtr

        mean = seen @ of_each / n
        so_far = np.cumsum(of_each)
        sd = math.sqrt((seen - mean) ** 2 @ of_each / max(1, n - 1))
        quartiles = np.searchsorted(so_far, n // 4, side="left"), np.searchsorted(
            so_far, n * 3 // 4, side="right")
        between = seen[min(len(seen) - 1, quartiles[1])] - seen[quartiles[0]]
        width = max(1.059 * min(between / 1.34, sd) * n**-0.2, MIN_WIDTH)
        centres = np.append(seen, (size - 1) / 2)[:, None]
        widths = np.append(np.full(len(seen), width), size)[:, None]
        below = ndtr((np.arange(size + 1) - 0.5 - centres) / widths)
        kernels = np.diff(below) / (below[:, -1:] - below[:, :1])
    else:
        kernels = np.full((len(seen) + 1, size), 1 / (len(seen) + 1))
        kernels[np.arange(len(seen)), seen] += 1
        kernels /= kernels.sum(axis=1, keepdims=True)
    estimate: NDArray[np.float64] = np.append(of_each, 1) / (n + 1) @ kernels
    return estimate


def importance_section(facts: PageFacts) -> PageSection | None:
    """The figure, or how many trials are missing; None where nothing was sampled."""
    return PageSection("importance", "Hyperparameter importance", [_body(facts)],
                       "Importance") if facts.is_search else None


def _body(facts: PageFacts) -> Part:
    sign = -1.0 if better_direction(facts.main_metric) == "max" else 1.0
    done = facts.finished_rows
    rows = done[eligible_mask(done)]
    pairs = [(shown_params(facts.trials[int(trial)]), sign * float(score)) for trial, score in
             zip(rows["trial"], rows[facts.main_metric])]
    pairs = [(params, loss) for params, loss in pairs
             if params and set(params) <= facts.sampled and np.isfinite(loss)]
    if len(pairs) < MIN_TRIALS:
        return text(f"{MIN_TRIALS} feasible finished trials are needed to say which "
                    f"hyperparameters decide {facts.main_metric}; there are {len(pairs)}.")
    found = importances([params for params, _ in pairs], [loss for _, loss in pairs])
    return _picture(facts, found, len(pairs)) if found else \
        text("All finished trials have the same hyperparameters or the same score.")


def _picture(facts: PageFacts, found: list[Importance], trials: int) -> Part:
    with new_figure(FIGURE_WIDTH, 0.9 + 0.24 * len(found)) as (figure, (axes,)):
        places = np.arange(len(found))[::-1]
        values = np.array([one.value for one in found])
        reach = np.array([[max(0.0, one.value - one.low), max(0.0, one.high - one.value)]
                          for one in found]).T
        axes.barh(places, values, color=FRONT_COLOR, height=0.6)
        axes.errorbar(values, places, xerr=reach, fmt="none", ecolor=TEXT_COLOR, elinewidth=0.8,
                      capsize=2)
        axes.set_yticks(places,
                        [figure_text(one.name) + (f" ({one.trials})" if one.trials < trials else "")
                         for one in found])
        axes.set_xlabel(f"Share of the importance for {one_line_label(facts.main_metric)}")
        axes.set_xlim(left=0)
        axes.grid(False, axis="y")
    words = "; ".join(f"{one.name} {one.value:.2f} ({one.low:.2f} to {one.high:.2f})"
                      for one in found)
    some = " In brackets: trials that have it, where not all do." if any(
        one.trials < trials for one in found) else ""
    caption = (f"PED-ANOVA (Optuna) over {trials} feasible finished trials: how differently the "
               f"best quarter by {one_line_label(facts.main_metric)} chose each hyperparameter. "
               f"Lines: 90 % of {BOOTSTRAP_SAMPLES} bootstrap resamples.{some} It says what goes "
               "with a high score among the trials, and the search did not sample at random.")
    return picture(figure, "importance-figure", f"Bar chart of importances: {words}.", caption)
