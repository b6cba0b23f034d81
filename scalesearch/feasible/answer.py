"""Feasibility of a space under a budget: counts, shares, reasons, front and extremes, as pandas frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.count import Counter
from scalesearch.feasible.estimate import Estimate, by_value, estimate
from scalesearch.feasible.extremes import Extremes, NotTwo, Point, only
from scalesearch.feasible.grid import Endless, TooMany
from scalesearch.feasible.limits import Bound, bounds_of
from scalesearch.feasible.sections import Decomposition
from scalesearch.space import Space
from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.questionnaire.count import TooTangled, count
from scalesearch.space.syntax.parameters import say

AXES = ("params.non_embedding", "macs.total")
MOST_TANGLED = 20_000  # combinations of answers listed only to say how many sheets there are: some two seconds
Progress = Callable[[str], None]


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
    """

    exact: bool
    why: str
    sheets: int | None
    sound: int | None
    fitting: int | None
    distinct: int | None
    distinct_fitting: int | None
    share: float
    low: float
    high: float
    values: pd.DataFrame
    reasons: pd.DataFrame
    front: list[Point]
    front_whole: bool
    extremes: dict[str, Point]
    sample: pd.DataFrame
    least: dict[str, int]
    draws: int = 0
    strata: str = ""
    notes: list[str] = field(default_factory=list)


def feasible(
    space: Space,
    protocol: Protocol,
    budgets: tuple[Constraint, ...],
    draws: int = 4000,
    seed: int = 1,
    progress: Progress = lambda text: None,
) -> Feasibility:
    """What of ``space`` fits ``budgets`` under ``protocol``; exact where the space can be counted.

    Args:
        budgets: constraints over costs (those over answers stand in the space).
        draws: candidates drawn for the figure, and for estimates where nothing can be counted.
        progress: called with the name of each step.
    """
    costly = tuple(constraint for constraint in space.where if constraint.costs)
    bounds = bounds_of((*budgets, *costly))
    names = tuple(dict.fromkeys([*AXES, *(cost for c in (*budgets, *costly) for cost in sorted(c.costs))]))
    progress("drawing candidates")
    drawn = estimate(space, protocol, budgets, names, draws, seed)
    try:
        if bounds is None:
            raise TooMany("a budget is no bound on a sum of costs")
        progress("listing sections")
        counter = Counter(Decomposition(space, protocol, names), bounds)
        return _counted(counter, bounds, drawn, progress)
    except (TooMany, Endless) as reason:
        return _estimated(space, drawn, str(reason), draws)


def _counted(counter: Counter, bounds: list[Bound], drawn: Estimate, progress: Progress) -> Feasibility:
    progress("counting")
    share = counter.fitting / counter.sheets
    notes: list[str] = []
    try:
        reasons = [(" and ".join(broken), count) for broken, count in counter.reasons().items()]
    except TooMany as many:
        reasons, notes = [("", counter.fitting)], [f"{many}: which of them binds is not counted"]
    progress("counting networks")
    distinct, distinct_fitting = counter.distinct([]), counter.distinct()
    progress("looking for the front and the extremes")
    front, whole, extremes = _ends(counter, bounds, notes)
    least = _least(counter, bounds) if not counter.fitting else {}
    return Feasibility(True, "", counter.sheets, counter.sound, counter.fitting, distinct, distinct_fitting, share,
                       share, share, _values(counter), _reasons(reasons, counter.sound), front, whole, extremes,
                       _sample(drawn), least, len(drawn.draws), drawn.strata, notes)


def _ends(counter: Counter, bounds: list[Bound], notes: list[str]) -> tuple[list[Point], bool, dict[str, Point]]:
    """Front and extremes under the bounds on the two axes; a note where there are others."""
    search = Extremes(counter)
    extremes: dict[str, Point] = {}
    names = {bound.name for bound in bounds}
    try:
        if any(bound.sign < 0 for bound in bounds):
            raise NotTwo("budgets from below")
        tight = only(bounds, *names)
        for name in AXES:
            for word, point in (("least", search.cheapest(name, tight)), ("most", search.dearest(name, tight))):
                extremes |= {f"{word} {name}": point} if point else {}
        if not names <= set(AXES):
            raise NotTwo(f"a budget on {', '.join(sorted(names - set(AXES)))}")
        return *search.front(*AXES, tight), extremes
    except NotTwo as error:
        notes.append(f"Not all extremes and no front: {error}. A budget of upper bounds on {' and '.join(AXES)} "
                     "alone has both.")
        return [], True, extremes


def _least(counter: Counter, bounds: list[Bound]) -> dict[str, int]:
    """The least of each bounded cost that any sound candidate has: what a budget would have to be at least."""
    search = Extremes(counter)
    points = {bound.name: search.cheapest(bound.name, []) for bound in bounds if bound.sign > 0}
    return {name: point.costs[name] for name, point in points.items() if point}


def _values(counter: Counter) -> pd.DataFrame:
    dimensions = dict(counter.decomposition.space.dimensions())
    rows = []
    for parameter, counts in counter.by_value().items():
        options = dimensions[parameter].values()
        assert options is not None
        rows += [(parameter, say(options[index]), sheets, fits) for index, (sheets, fits) in sorted(counts.items())]
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
    rows = [(name, value, both[0], both[1]) for name, values in by_value(drawn.draws).items()
            for value, both in sorted(values.items(), key=lambda item: _sortable(item[0]))]
    values = _judged(pd.DataFrame(rows, columns=["parameter", "answer", "sheets", "fitting"]),
                     [name for name, _ in space.dimensions()], False)
    sound = [draw for draw in drawn.draws if draw.costs is not None]
    broken = pd.Series([" and ".join(draw.broken) for draw in sound], dtype=object).value_counts()
    try:
        sheets = count(space.form, MOST_TANGLED)
    except TooTangled:
        sheets = None
    return Feasibility(False, why, sheets, None, None, None, None, drawn.share, drawn.low, drawn.high, values,
                       _reasons([(str(k), int(v)) for k, v in broken.items()], len(sound)), [], True, {},
                       _sample(drawn), {}, draws, drawn.strata)


def _sortable(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text


def _sample(drawn: Estimate) -> pd.DataFrame:
    rows: list[dict[str, Any]] = [{**draw.costs, "fits": draw.fits} for draw in drawn.draws if draw.costs is not None]
    return pd.DataFrame(rows, columns=[*(rows[0] if rows else [*AXES, "fits"])])


def binned(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """One parameter's answers in at most ``most`` rows: neighbouring values of a long range are one."""
    if len(rows) <= most:
        return rows
    bins = np.arange(len(rows)) * most // len(rows)
    merged = []
    for _, group in rows.groupby(bins):
        sheets, fitting = int(group["sheets"].sum()), int(group["fitting"].sum())
        verdicts = set(group["verdict"])
        merged.append({"parameter": group["parameter"].iloc[0],
                      "answer": "..".join(dict.fromkeys(group["answer"].iloc[[0, -1]])), "sheets": sheets,
                      "fitting": fitting, "share": fitting / sheets,
                      "verdict": verdicts.pop() if len(verdicts) == 1 else ""})
    return pd.DataFrame(merged)
