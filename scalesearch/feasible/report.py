"""Feasibility of a space under a budget: counts, shares, reasons, front and extremes, as pandas frames."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.costed_candidates import IndexedCandidate
from scalesearch.feasible.counter import FeasibleCounter, ProgressCallback
from scalesearch.feasible.decomposition import Decomposition
from scalesearch.feasible.enumeration import ContinuousRangeError, TooManyCandidatesError
from scalesearch.feasible.estimate import Estimate, estimate_feasibility
from scalesearch.feasible.extremes import Extremes, NoExtremeError
from scalesearch.feasible.limits import as_cost_bounds
from scalesearch.space import Space
from scalesearch.space.parameters.constraints import Constraint
from scalesearch.space.parameters.count import UncountableSpaceError, count_configurations
from scalesearch.space.syntax.parameters import format_constant

DEFAULT_FRONT_COSTS = ("params.non_embedding", "macs.total")
# combinations of answers listed only to say how many sheets there are: some two seconds
MAX_LISTED_COMBINATIONS = 20_000


@dataclass(frozen=True)
class FeasibilityReport:
    """What fits.

    Attributes:
        exact: whether everything was counted; otherwise ``inexact_reason`` says why not, and shares
            are those of draws.
        n_candidates: answer sheets; None where a continuous range makes them endless, or where
            conditions tie
            too many answers together to count them.
        n_valid: of them, networks that can be built and that the space's own constraints allow.
        n_feasible: of those, within the budgets. distinct, distinct_fitting: networks, each once.
        share, share_low, share_high: feasible share of the sheets (of draws, with a 95 % interval,
            unless exact).
        value_shares: a row for each parameter and answer: parameter, answer, sheets, fitting,
            share, verdict.
        violations: a row for each set of budgets that sound candidates violate: broken, count,
            share.
        front: candidates with most ``AXES[0]`` for fewest ``AXES[1]``; extremes: the cheapest and
            dearest that fit.
        sample: costs of some candidates, and whether each fits: what a figure shows.
        min_costs: where nothing fits, the least of each bounded cost that any sound candidate has.
    """

    exact: bool
    share: float
    share_low: float
    share_high: float
    value_shares: pd.DataFrame
    violations: pd.DataFrame
    sample: pd.DataFrame
    n_samples: int
    strata: str
    inexact_reason: str = ""
    n_candidates: int | None = None
    n_valid: int | None = None
    n_feasible: int | None = None
    n_distinct: int | None = None
    n_distinct_feasible: int | None = None
    front: list[IndexedCandidate] = field(default_factory=list)
    is_front_complete: bool = True
    extremes: dict[str, IndexedCandidate] = field(default_factory=dict)
    min_costs: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def analyze_feasibility(space: Space, protocol: Protocol, budgets: tuple[Constraint, ...],
                        n_samples: int = 4000, seed: int = 1,
                        progress: ProgressCallback = lambda text: None) -> FeasibilityReport:
    """What of ``space`` fits ``budgets`` under ``protocol``; exact where the space can be counted.

    Args:
        budgets: constraints over costs (those over answers stand in the space).
        n_samples: candidates drawn for the figure, and for estimates where nothing can be counted.
        progress: called with each step, and with the share of long ones that is done.
    """
    costly = tuple(constraint for constraint in space.constraints if constraint.costs)
    bounds = as_cost_bounds(budgets)
    required = as_cost_bounds(costly)
    names = tuple(dict.fromkeys([*DEFAULT_FRONT_COSTS,
                                 *(cost for c in (*budgets, *costly) for cost in sorted(c.costs))]))
    progress("drawing candidates")
    drawn = estimate_feasibility(space, protocol, budgets, names, n_samples, seed)
    try:
        if bounds is None or required is None:
            raise TooManyCandidatesError("a budget is no bound on a sum of costs")
        progress("listing sections")
        return _exact_report(FeasibleCounter(Decomposition(space, protocol, names), bounds,
                                             required, progress), drawn, n_samples)
    except (TooManyCandidatesError, ContinuousRangeError) as reason:
        return _estimated_report(space, drawn, str(reason), n_samples)


def _exact_report(counter: FeasibleCounter, estimate: Estimate,
                  n_samples: int) -> FeasibilityReport:
    share = counter.n_feasible / counter.n_candidates
    notes: list[str] = []
    try:
        reasons = [(" and ".join(broken), count)
                   for broken, count in counter.count_violations().items()]
    except TooManyCandidatesError as many:
        reasons = [("", counter.n_feasible)]
        notes = [f"{many}: which of them binds is not counted"]
    distinct = counter.count_distinct(counter.required)
    distinct_fitting = counter.count_distinct()
    counter.progress("looking for the front and the extremes")
    front, whole, extremes = _front_and_extremes(counter, notes)
    return FeasibilityReport(True, share, share, share, _values(counter), _reasons(reasons, counter.n_valid),
                       estimate.sample.drop(columns="violated"), n_samples, estimate.strata, n_candidates=counter.n_candidates,
                       n_valid=counter.n_valid, n_feasible=counter.n_feasible, n_distinct=distinct,
                       n_distinct_feasible=distinct_fitting, front=front, is_front_complete=whole, extremes=extremes,
                       # fmt: skip
                       min_costs=_min_costs(counter) if not counter.n_feasible else {}, notes=notes)


def _front_and_extremes(counter: FeasibleCounter, notes: list[str]) -> tuple[
        list[IndexedCandidate], bool, dict[str, IndexedCandidate]]:
    """Front and extremes; a note where there are none."""
    extremes: dict[str, IndexedCandidate] = {}
    try:
        search = Extremes(counter, counter.bounds)
        for name in DEFAULT_FRONT_COSTS:
            for word, point in (("least", search.cheapest(name)),
                                ("most", search.most_expensive(name))):
                extremes |= {f"{word} {name}": point} if point else {}
        return *search.front(*DEFAULT_FRONT_COSTS), extremes
    except NoExtremeError as error:
        notes.append(f"Not all extremes and no front: {error}. Upper bounds on "
                     f"{', on '.join(DEFAULT_FRONT_COSTS)} and on params.total have both.")
        return [], True, extremes


def _min_costs(counter: FeasibleCounter) -> dict[str, int]:
    """The least of each bounded cost that any sound candidate has: what a budget would have to be at least."""
    try:
        search = Extremes(counter, counter.required)
        points = {bound.name: search.cheapest(bound.name)
                  for bound in counter.budgets if bound.sign > 0}
    except NoExtremeError:
        return {}
    return {name: point.costs[name] for name, point in points.items() if point}


def _values(counter: FeasibleCounter) -> pd.DataFrame:
    dimensions = dict(counter.decomposition.space.parameters())
    rows = []
    for parameter, counts in counter.count_by_value().items():
        options = dimensions[parameter].values()
        assert options is not None
        rows += [(parameter, format_constant(options[index]), sheets, fits)
                 for index, (sheets, fits) in sorted(counts.items())]
    return _with_verdicts(pd.DataFrame(rows, columns=["parameter", "value", "candidates", "feasible"]),
                          list(dimensions), True)


def _with_verdicts(frame: pd.DataFrame, order: list[str], exact: bool) -> pd.DataFrame:
    """With share and verdict: ``dead`` and ``always`` only of what was counted."""
    frame["share"] = frame["feasible"] / frame["candidates"]
    words = {0.0: "dead" if exact else "none drawn fits",
             1.0: "always" if exact else "all drawn fit"}
    frame["verdict"] = [words.get(share, "") for share in frame["share"]]
    places = {name: place for place, name in enumerate(order)}
    return frame.sort_values("parameter", key=lambda column: column.map(places),
                             kind="stable").reset_index(drop=True)


def _reasons(counts: list[tuple[str, int]], n_valid: int) -> pd.DataFrame:
    frame = pd.DataFrame(counts, columns=["violated", "count"])
    frame["share"] = frame["count"] / max(1, n_valid)
    return frame


def _estimated_report(space: Space, estimate: Estimate, why: str,
                      n_samples: int) -> FeasibilityReport:
    try:
        sheets = count_configurations(space.parameter_space, MAX_LISTED_COMBINATIONS)
    except UncountableSpaceError:
        sheets = None
    broken = [(str(text), int(often))
              for text, often in estimate.sample["violated"].value_counts().items()]
    values = _with_verdicts(estimate.value_shares, [name for name, _ in space.parameters()], False)
    return FeasibilityReport(False, estimate.share, estimate.share_low, estimate.share_high, values,
                             _reasons(broken, len(estimate.sample)),
                             estimate.sample.drop(columns="violated"), n_samples, estimate.strata,
                             why, sheets)


def bin_values(rows: pd.DataFrame, max_rows: int) -> pd.DataFrame:
    """One parameter's answers in at most ``max_rows`` rows: neighboring values of a long range are one."""
    if len(rows) <= max_rows:
        return rows
    bins = np.arange(len(rows)) * max_rows // len(rows)
    merged = rows.groupby(bins).agg(
        parameter=("parameter", "first"),
        value=("value", lambda column: "..".join(dict.fromkeys(column.iloc[[0, -1]]))),
        candidates=("candidates", "sum"), feasible=("feasible", "sum"),
        verdict=("verdict", lambda one: one.iloc[0] if one.nunique() == 1 else ""))
    return merged.assign(share=merged["feasible"] / merged["candidates"])
