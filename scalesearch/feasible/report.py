"""Feasibility of a space under a budget: counts, shares, front and extremes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.costed_candidates import (
    CostedCandidate,
    IndexedCandidate,
    SampledCandidate,
    evaluate_costs,
)
from scalesearch.feasible.counter import FeasibleCounter, ProgressCallback
from scalesearch.feasible.decomposition import Decomposition
from scalesearch.feasible.enumeration import ContinuousRangeError, TooManyCandidatesError
from scalesearch.feasible.estimate import Estimate, estimate_feasibility
from scalesearch.feasible.extremes import Extremes, NoExtremeError
from scalesearch.feasible.limits import (
    CostBound,
    as_cost_bounds,
    cost_names,
    join_limits,
)
from scalesearch.feasible.listing import MAX_LISTED, ListedSpace
from scalesearch.spaces import Space
from scalesearch.spaces.parameters.constraints import Constraint, split_constraint
from scalesearch.spaces.parameters.count import (
    HOPELESS_FACTOR,
    UncountableSpaceError,
    count_configurations,
)
from scalesearch.spaces.syntax.parameters import format_constant

DEFAULT_FRONT_COSTS = ("params.non_embedding", "macs.total")
WEIGHT_WORK_COST = "macs.once"
# How configurations are counted.
ESTIMATORS = {"sections": "all configurations, counted section by section",
              "list": "all configurations, listed",
              "samples": "samples, weighted to be uniform over configurations"}
MAX_FRONT_ROWS = 12  # candidates of a front that are printed
MAX_LISTED_COMBINATIONS = 20_000  # to count configurations, about two seconds


@dataclass(frozen=True)
class FeasibilityReport:
    """Numbers and examples of the feasible candidates of a space.

    Attributes:
        estimator: a key of ``ESTIMATORS``.
        share, share_low, share_high: feasible share of all configurations; if it is estimated,
            with a 95 % interval.
        value_shares: a row per parameter and value, with columns parameter, value, candidates,
            valid, feasible, share (among valid configurations) and verdict.
        violations: a row per set of budgets that valid candidates violate, with columns violated,
            count and share.
        sample: costs of random candidates, and whether each fits, for figures.
        n_samples: number of random candidates, including those that cannot be built.
        strata: how they were sampled.
        inexact_reason: why not all candidates were counted.
        n_candidates: number of configurations; None if there are infinitely many, or if too many
            parameters depend on each other.
        n_valid: configurations that can be built and meet the space's constraints.
        n_feasible: valid configurations within the budgets.
        n_distinct, n_distinct_feasible: distinct networks among these.
        front: non-dominated candidates: the largest ``DEFAULT_FRONT_COSTS[0]`` for the smallest
            ``DEFAULT_FRONT_COSTS[1]``; of the samples, if the candidates were not counted.
        is_front_complete: whether the front has all of these candidates.
        extremes: cheapest and most expensive feasible candidate of each cost.
        min_costs: if no candidate, or no sample, is feasible, the smallest value of each cost that
            is over its limit in all of them.
        max_costs: likewise, the largest value of each cost that is below its limit in all of them.
    """

    estimator: str
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
    front: Sequence[IndexedCandidate | SampledCandidate] = field(default_factory=list)
    is_front_complete: bool = True
    extremes: dict[str, IndexedCandidate] = field(default_factory=dict)
    min_costs: dict[str, int] = field(default_factory=dict)
    max_costs: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        """Whether all candidates were counted."""
        return self.estimator != "samples"


def analyze_feasibility(space: Space, protocol: Protocol, budgets: tuple[Constraint, ...],
                        n_samples: int = 4000, seed: int = 1,
                        progress: ProgressCallback = lambda text: None) -> FeasibilityReport:
    """Analyze which candidates of ``space`` meet ``budgets`` under ``protocol``.

    The result is exact if the space can be decomposed, or has at most ``MAX_LISTED``
    configurations. Otherwise it is an estimate.

    Args:
        budgets: constraints on costs, in addition to the constraints of the space.
        n_samples: random candidates, for figures and for estimates; all candidates of a smaller
            space.
        seed: random seed.
        progress: called with a text for each step, and with its progress if it is long.
    """
    cost_constraints = tuple(constraint for constraint in space.constraints if constraint.costs)
    bounded = [cost for constraint in (*budgets, *cost_constraints)
               for cost in sorted(constraint.costs)]
    names = tuple(dict.fromkeys([*DEFAULT_FRONT_COSTS, *bounded]))
    try:
        report = _report_by_sections(space, protocol, budgets, names, n_samples, seed, progress)
    except (TooManyCandidatesError, ContinuousRangeError) as error:
        progress("sampling candidates")
        estimate = estimate_feasibility(space, protocol, budgets, names, n_samples, seed)
        try:
            report = _report_by_listing(space, protocol, budgets, names, estimate, progress)
        except (TooManyCandidatesError, ContinuousRangeError) as listing_error:
            reason = "; ".join(dict.fromkeys([str(error), str(listing_error)]))
            report = _report_by_samples(space, budgets, estimate, reason)
    printed = [*select_spread_points(report.front), *report.extremes.values()]
    candidates = evaluate_costs([CostedCandidate.from_param_values(candidate.param_values)
                                 for candidate in printed], protocol, [WEIGHT_WORK_COST])
    report.notes.extend(protocol.weight_work_lines(*(candidate.costs[WEIGHT_WORK_COST]
                                                     for candidate in candidates
                                                     if candidate.costs)))
    return report


def select_spread_points(points: Sequence[IndexedCandidate | SampledCandidate]
                         ) -> list[IndexedCandidate | SampledCandidate]:
    """Select up to ``MAX_FRONT_ROWS`` candidates that are spread evenly over a front."""
    count = min(MAX_FRONT_ROWS, len(points))
    step = (len(points) - 1) / max(1, count - 1)
    return [points[round(index * step)] for index in range(count)]


def _report_by_sections(space: Space, protocol: Protocol, budgets: tuple[Constraint, ...],
                        names: tuple[str, ...], n_samples: int, seed: int,
                        progress: ProgressCallback) -> FeasibilityReport:
    """Report on all configurations, counted section by section.

    Raises:
        TooManyCandidatesError: the space cannot be decomposed, or is too large.
        ContinuousRangeError: the space has a continuous range.
    """
    counter = _decompose(space, protocol, budgets, names, progress)
    sample = pd.DataFrame(counter.sample_costs(n_samples, np.random.default_rng(seed)),
                          columns=list(names))
    fits = np.ones(len(sample), bool)
    for bound in counter.bounds:
        fits &= bound.sign * sample[bound.name].to_numpy() <= bound.limit
    return _exact_report("sections", counter, sample.assign(fits=fits), len(sample),
                         "uniform over valid configurations")


def _report_by_listing(space: Space, protocol: Protocol, budgets: tuple[Constraint, ...],
                       names: tuple[str, ...], estimate: Estimate,
                       progress: ProgressCallback) -> FeasibilityReport:
    """Report on all configurations, listed.

    Raises:
        TooManyCandidatesError: the space is too large.
        ContinuousRangeError: the space has a continuous range.
    """
    if estimate.size > HOPELESS_FACTOR * MAX_LISTED:
        raise TooManyCandidatesError("the space has too many configurations to list them")
    progress("listing all configurations")
    listed = ListedSpace(space, protocol, names, budgets)
    counter = FeasibleCounter(listed, listed.bounds, listed.required, progress)
    return _exact_report("list", counter, estimate.sample.drop(columns=["violated", "weight"]),
                         estimate.n_samples, estimate.strata)


def _report_by_samples(space: Space, budgets: tuple[Constraint, ...], estimate: Estimate,
                       inexact_reason: str) -> FeasibilityReport:
    """Report on random candidates."""
    n_candidates = None
    with suppress(UncountableSpaceError):
        n_candidates = count_configurations(space.parameter_space, MAX_LISTED_COMBINATIONS)
    sample = estimate.sample
    weights = sample.groupby("violated")["weight"].agg(["size", "sum"])
    violations = pd.DataFrame({"violated": weights.index.astype(str), "count": weights["size"],
                               "share": weights["sum"] / sample["weight"].sum()})
    violations = violations.sort_values("count", ascending=False).reset_index(drop=True)
    names_in_order = [name for name, _ in space.parameters()]
    unmet_costs = _unmet_costs_of_samples(estimate, budgets)
    return FeasibilityReport(
        "samples", estimate.share, estimate.share_low, estimate.share_high,
        _with_verdicts(estimate.value_shares, names_in_order, False), violations,
        sample.drop(columns=["violated", "weight"]), estimate.n_samples, estimate.strata,
        inexact_reason, n_candidates, front=_sampled_front(estimate.feasible),
        is_front_complete=False, min_costs=unmet_costs[1], max_costs=unmet_costs[-1])


def _decompose(space: Space, protocol: Protocol, budgets: tuple[Constraint, ...],
               names: tuple[str, ...], progress: ProgressCallback) -> FeasibleCounter:
    """Counter of a decomposed space.

    Raises:
        TooManyCandidatesError: the space cannot be decomposed, or is too large.
        ContinuousRangeError: the space has a continuous range.
    """
    constraints = [constraint for constraint in space.constraints if constraint.costs]
    for limit in (*budgets, *constraints):
        for part in split_constraint(limit):
            if as_cost_bounds([part]) is None:
                raise TooManyCandidatesError(f"`{part.label}` is not a bound on a sum of costs")
    bounds = as_cost_bounds(budgets)
    required = as_cost_bounds(constraints)
    assert bounds is not None and required is not None, "checked above"
    progress("listing the candidates of each section")
    return FeasibleCounter(Decomposition(space, protocol, names), bounds, required, progress)


def _exact_report(estimator: str, counter: FeasibleCounter, sample: pd.DataFrame, n_samples: int,
                  strata: str) -> FeasibilityReport:
    share = counter.n_feasible / counter.n_candidates
    notes: list[str] = []
    try:
        violations = [(join_limits(violated), count)
                      for violated, count in counter.count_violations().items()]
    except TooManyCandidatesError as error:
        violations = [("", counter.n_feasible)]
        notes = [f"{error}: violations are not counted"]
    n_distinct = _count_distinct(counter, counter.required)
    n_distinct_feasible = _count_distinct(counter, counter.bounds)
    counter.progress("searching the front and the extremes")
    front, is_complete, extremes = _front_and_extremes(counter, notes)
    unmet_costs = {} if counter.n_feasible else _unmet_costs(counter)
    parameters = dict(counter.decomposition.space.parameters())
    rows = []
    for name, counts in counter.count_by_value().items():
        values = parameters[name].values()
        assert values is not None
        rows += [(name, format_constant(values[index]), *numbers)
                 for index, numbers in sorted(counts.items())]
    frame = pd.DataFrame(rows, columns=["parameter", "value", "candidates", "valid", "feasible"])
    violation_frame = pd.DataFrame(violations, columns=["violated", "count"])
    violation_frame["share"] = violation_frame["count"] / max(1, counter.n_valid)
    return FeasibilityReport(
        estimator, share, share, share, _with_verdicts(frame, list(parameters), True),
        violation_frame, sample, n_samples, strata, n_candidates=counter.n_candidates,
        n_valid=counter.n_valid, n_feasible=counter.n_feasible, n_distinct=n_distinct,
        n_distinct_feasible=n_distinct_feasible, front=front, is_front_complete=is_complete,
        extremes=extremes, min_costs=unmet_costs.get(1, {}), max_costs=unmet_costs.get(-1, {}),
        notes=notes)


def _count_distinct(counter: FeasibleCounter, bounds: list[CostBound]) -> int:
    """Count distinct networks within ``bounds``.

    In a listed space, a limit may read parameters that a network does not depend on. Configurations
    of one network then differ in the limit, so those outside the bounds are left out first.
    """
    space = counter.decomposition
    if isinstance(space, ListedSpace):
        return FeasibleCounter(space.within(bounds), []).count_distinct()
    return counter.count_distinct(bounds)


def _sampled_front(feasible: list[SampledCandidate]) -> list[SampledCandidate]:
    """Non-dominated candidates of a sample; costs may have more than 64 bits."""
    maximized, minimized = DEFAULT_FRONT_COSTS
    front: list[SampledCandidate] = []
    for candidate in sorted(feasible, key=lambda candidate: (candidate.costs[minimized],
                                                             -candidate.costs[maximized])):
        if not front or candidate.costs[maximized] > front[-1].costs[maximized]:
            front.append(candidate)
    return front


def _front_and_extremes(
        counter: FeasibleCounter, notes: list[str]
) -> tuple[list[IndexedCandidate], bool, dict[str, IndexedCandidate]]:
    """Front, whether it is complete, and extremes; adds a note if they are missing."""
    extremes: dict[str, IndexedCandidate] = {}
    try:
        search = _search_extremes(counter, counter.bounds)
        for name, other in (DEFAULT_FRONT_COSTS, DEFAULT_FRONT_COSTS[::-1]):
            for word, candidate in (("least", search.cheapest(name, other)),
                                    ("most", search.most_expensive(name, other))):
                if candidate:
                    extremes[f"{word} {name}"] = candidate
        return *search.front(*DEFAULT_FRONT_COSTS), extremes
    except NoExtremeError as error:
        notes.append(f"The front and some extremes are missing: {error}. They are available for "
                     f"upper bounds on {', '.join(DEFAULT_FRONT_COSTS)} and params.total.")
        return [], True, extremes


def _search_extremes(counter: FeasibleCounter, bounds: list[CostBound]) -> Extremes:
    """Extremes within ``bounds``; of a listed space, the other candidates are left out first."""
    space = counter.decomposition
    if isinstance(space, ListedSpace):
        return Extremes(FeasibleCounter(space.within(bounds), []), [])
    return Extremes(counter, bounds)


def min_costs(space: Space, protocol: Protocol, budgets: tuple[Constraint, ...]) -> dict[str, int]:
    """Smallest value of each cost that exceeds its limit in all valid candidates.

    Empty if it is unknown.
    """
    names = cost_names((*budgets, *space.constraints))
    try:
        return _unmet_costs(_decompose(space, protocol, budgets, names,
                                       lambda text: None))[1]
    except (TooManyCandidatesError, ContinuousRangeError):
        return {}


def _unmet_costs(counter: FeasibleCounter) -> dict[int, dict[str, int]]:
    """Nearest value of each cost whose bound no valid candidate meets, however large the others.

    Returns:
        sign of the bounds (1: upper bounds, -1: lower bounds) to values by name of the cost.
    """
    nearest: dict[int, dict[str, int]] = {1: {}, -1: {}}
    with suppress(NoExtremeError):
        search = _search_extremes(counter, counter.required)
        for bound in counter.budgets:
            if bound.name in counter.decomposition.names:
                find = search.cheapest if bound.sign > 0 else search.most_expensive
                candidate = find(bound.name)
                if candidate and bound.sign * candidate.costs[bound.name] > bound.limit:
                    nearest[bound.sign][bound.name] = candidate.costs[bound.name]
    return nearest


def _unmet_costs_of_samples(estimate: Estimate,
                            budgets: tuple[Constraint, ...]) -> dict[int, dict[str, int]]:
    """The same among samples."""
    nearest: dict[int, dict[str, int]] = {1: {}, -1: {}}
    for bound in as_cost_bounds(budgets) or ():
        values = [bound.sign * int(value) for value in estimate.sample[bound.name]]
        if min(values, default=bound.limit) > bound.limit:
            nearest[bound.sign][bound.name] = bound.sign * min(values)
    return nearest


def _with_verdicts(frame: pd.DataFrame, order: list[str], exact: bool) -> pd.DataFrame:
    """Add the columns share and verdict, and sort the parameters in this order."""
    frame["share"] = _shares_of_valid(frame)
    verdicts = {0.0: "never feasible" if exact else "no sample fits",
                1.0: "always feasible" if exact else "all samples fit"}
    frame["verdict"] = [verdicts.get(share, "") for share in frame["share"]]
    frame.loc[frame["valid"] == 0, "verdict"] = "never valid" if exact else "no valid sample"
    positions = {name: position for position, name in enumerate(order)}
    return frame.sort_values("parameter", key=lambda column: column.map(positions),
                             kind="stable").reset_index(drop=True)


def _shares_of_valid(frame: pd.DataFrame) -> pd.Series:
    """Feasible share among valid configurations, or 0."""
    return frame["feasible"] / frame["valid"].where(frame["valid"] > 0, 1)


def bin_values(rows: pd.DataFrame, max_rows: int) -> pd.DataFrame:
    """Merge neighboring values of one parameter into at most ``max_rows`` rows."""
    if len(rows) <= max_rows:
        return rows
    bins = np.arange(len(rows)) * max_rows // len(rows)
    merged = rows.groupby(bins).agg(
        parameter=("parameter", "first"),
        value=("value", lambda column: "..".join(dict.fromkeys(
            map(shorten_fraction, column.iloc[[0, -1]])))),
        candidates=("candidates", "sum"), valid=("valid", "sum"), feasible=("feasible", "sum"),
        verdict=("verdict", lambda column: column.iloc[0] if column.nunique() == 1 else ""))
    return merged.assign(share=_shares_of_valid(merged))


def shorten_fraction(text: str) -> str:
    """Round a value of a continuous range, which has up to 17 digits, for a table."""
    try:
        return f"{float(text):.4g}" if "." in text else text
    except ValueError:
        return text
