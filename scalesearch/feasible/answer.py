"""Feasibility of a space under a budget: counts, shares, reasons, front and extremes, as pandas frames."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.candidates import Point
from scalesearch.feasible.count import Counter, Progress
from scalesearch.feasible.estimate import Estimate, estimate
from scalesearch.feasible.extremes import Extremes, NotFound
from scalesearch.feasible.grid import Endless, TooMany
from scalesearch.feasible.limits import bounds_of
from scalesearch.feasible.sections import Decomposition
from scalesearch.space import Space
from scalesearch.space.parameters.constraints import Constraint
from scalesearch.space.parameters.count import UncountableSpaceError, count_configurations
from scalesearch.space.syntax.parameters import format_constant

AXES = ("params.non_embedding", "macs.total")
MOST_TANGLED = 20_000  # combinations of answers listed only to say how many sheets there are: some two seconds


@dataclass(frozen=True)
class Feasibility:
    """What fits.

    Attributes:
        exact: whether everything was counted; otherwise ``why`` says why not, and shares are those of draws.
        sheets: answer sheets; None where a continuous range makes them endless, or where conditions tie
            too many answers together to count them.
        sound: of them, networks that can be built and that the space's own constraints allow.
        fitting: of those, within the budgets. distinct, distinct_fitting: networks, each once.
        share, low, high: feasible share of the sheets (of draws, with a 95 % interval, unless exact).
        values: a row for each parameter and answer: parameter, answer, sheets, fitting, share, verdict.
        reasons: a row for each set of budgets that sound candidates violate: broken, count, share.
        front: candidates with most ``AXES[0]`` for fewest ``AXES[1]``; extremes: the cheapest and dearest that fit.
        sample: costs of some candidates, and whether each fits: what a figure shows.
        least: where nothing fits, the least of each bounded cost that any sound candidate has.
    """

    exact: bool
    share: float
    low: float
    high: float
    values: pd.DataFrame
    reasons: pd.DataFrame
    sample: pd.DataFrame
    draws: int
    strata: str
    why: str = ""
    sheets: int | None = None
    sound: int | None = None
    fitting: int | None = None
    distinct: int | None = None
    distinct_fitting: int | None = None
    front: list[Point] = field(default_factory=list)
    front_whole: bool = True
    extremes: dict[str, Point] = field(default_factory=dict)
    least: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def feasible(space: Space, protocol: Protocol, budgets: tuple[Constraint, ...], draws: int = 4000, seed: int = 1,
             progress: Progress = lambda text: None) -> Feasibility:
    """What of ``space`` fits ``budgets`` under ``protocol``; exact where the space can be counted.

    Args:
        budgets: constraints over costs (those over answers stand in the space).
        draws: candidates drawn for the figure, and for estimates where nothing can be counted.
        progress: called with each step, and with the share of long ones that is done.
    """
    costly = tuple(constraint for constraint in space.constraints if constraint.costs)
    bounds, required = bounds_of(budgets), bounds_of(costly)
    names = tuple(dict.fromkeys([*AXES, *(cost for c in (*budgets, *costly) for cost in sorted(c.costs))]))
    progress("drawing candidates")
    drawn = estimate(space, protocol, budgets, names, draws, seed)
    try:
        if bounds is None or required is None:
            raise TooMany("a budget is no bound on a sum of costs")
        progress("listing sections")
        return _counted(Counter(Decomposition(space, protocol, names), bounds, required, progress), drawn, draws)
    except (TooMany, Endless) as reason:
        return _estimated(space, drawn, str(reason), draws)


def _counted(counter: Counter, drawn: Estimate, draws: int) -> Feasibility:
    share = counter.fitting / counter.sheets
    notes: list[str] = []
    try:
        reasons = [(" and ".join(broken), count) for broken, count in counter.reasons().items()]
    except TooMany as many:
        reasons, notes = [("", counter.fitting)], [f"{many}: which of them binds is not counted"]
    distinct, distinct_fitting = counter.distinct(counter.required), counter.distinct()
    counter.progress("looking for the front and the extremes")
    front, whole, extremes = _ends(counter, notes)
    return Feasibility(True, share, share, share, _values(counter), _reasons(reasons, counter.sound),
                       drawn.sample.drop(columns="broken"), draws, drawn.strata, sheets=counter.sheets,
                       sound=counter.sound, fitting=counter.fitting, distinct=distinct,
                       distinct_fitting=distinct_fitting, front=front, front_whole=whole, extremes=extremes,
                       least=_least(counter) if not counter.fitting else {}, notes=notes)  # fmt: skip


def _ends(counter: Counter, notes: list[str]) -> tuple[list[Point], bool, dict[str, Point]]:
    """Front and extremes; a note where there are none."""
    extremes: dict[str, Point] = {}
    try:
        search = Extremes(counter, counter.bounds)
        for name in AXES:
            for word, point in (("least", search.cheapest(name)), ("most", search.dearest(name))):
                extremes |= {f"{word} {name}": point} if point else {}
        return *search.front(*AXES), extremes
    except NotFound as error:
        notes.append(f"Not all extremes and no front: {error}. Upper bounds on {', on '.join(AXES)} and on "
                     "params.total have both.")
        return [], True, extremes


def _least(counter: Counter) -> dict[str, int]:
    """The least of each bounded cost that any sound candidate has: what a budget would have to be at least."""
    try:
        search = Extremes(counter, counter.required)
        points = {bound.name: search.cheapest(bound.name) for bound in counter.budgets if bound.sign > 0}
    except NotFound:
        return {}
    return {name: point.costs[name] for name, point in points.items() if point}


def _values(counter: Counter) -> pd.DataFrame:
    dimensions = dict(counter.decomposition.space.parameters())
    rows = []
    for parameter, counts in counter.by_value().items():
        options = dimensions[parameter].values()
        assert options is not None
        rows += [(parameter, format_constant(options[index]), sheets, fits) for index, (sheets, fits) in sorted(counts.items())]
    return _judged(pd.DataFrame(rows, columns=["parameter", "answer", "sheets", "fitting"]), list(dimensions), True)


def _judged(frame: pd.DataFrame, order: list[str], exact: bool) -> pd.DataFrame:
    """With share and verdict: ``dead`` and ``always`` only of what was counted."""
    frame["share"] = frame["fitting"] / frame["sheets"]
    words = {0.0: "dead" if exact else "none drawn fits", 1.0: "always" if exact else "all drawn fit"}
    frame["verdict"] = [words.get(share, "") for share in frame["share"]]
    places = {name: place for place, name in enumerate(order)}
    return frame.sort_values("parameter", key=lambda column: column.map(places), kind="stable").reset_index(drop=True)


def _reasons(counts: list[tuple[str, int]], sound: int) -> pd.DataFrame:
    frame = pd.DataFrame(counts, columns=["broken", "count"])
    frame["share"] = frame["count"] / max(1, sound)
    return frame


def _estimated(space: Space, drawn: Estimate, why: str, draws: int) -> Feasibility:
    try:
        sheets = count_configurations(space.parameter_space, MOST_TANGLED)
    except UncountableSpaceError:
        sheets = None
    broken = [(str(text), int(often)) for text, often in drawn.sample["broken"].value_counts().items()]
    values = _judged(drawn.values, [name for name, _ in space.parameters()], False)
    return Feasibility(False, drawn.share, drawn.low, drawn.high, values, _reasons(broken, len(drawn.sample)),
                       drawn.sample.drop(columns="broken"), draws, drawn.strata, why, sheets)


def binned(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """One parameter's answers in at most ``most`` rows: neighbouring values of a long range are one."""
    if len(rows) <= most:
        return rows
    bins = np.arange(len(rows)) * most // len(rows)
    merged = rows.groupby(bins).agg(
        parameter=("parameter", "first"), answer=("answer", lambda one: "..".join(dict.fromkeys(one.iloc[[0, -1]]))),
        sheets=("sheets", "sum"), fitting=("fitting", "sum"),
        verdict=("verdict", lambda one: one.iloc[0] if one.nunique() == 1 else ""))
    return merged.assign(share=merged["fitting"] / merged["sheets"])
