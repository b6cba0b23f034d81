"""What a scaling study has come to: a power law a rule, its check, the next size, score a million, whom to follow.

A rule (deeper, wider, more heads, …) is a curve of sizes that begins with the base. Its law is fitted to all trainings
on it (see :mod:`scalesearch.report.scaling`); where the study says so, the largest size is left out once to check what
the others say of it. Score a million parameters is that of PartialFormer's section 6.2.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from scalesearch.errors import UserError
from scalesearch.pareto.noise import CONFIDENCE, Noise
from scalesearch.report.scaling import (
    PARAMETERS,
    Choice,
    Fit,
    Forecast,
    HeldOut,
    Slope,
    fit,
    held_out,
    per_million,
    rank,
)
from scalesearch.report.scaling_rows import Record, Row, Unfinished, costs_of, noise_of, rows_of

KIND, LARGEST, PARAMS = "scaling", "largest", "params.total"
LEAST = f"a law takes at least {PARAMETERS + 1} of {PARAMETERS}"
ASKED, BUDGET, REACHED = "asked", "budget", "reached"  # where a size comes from that rules are ranked at


@dataclass(frozen=True)
class Curve:
    """One rule against one cost.

    Attributes:
        rows: finished ones, the base first, then in the order of the study file.
        fit: to all their trainings; None where there are too few, and ``why`` says so.
        held: the check by the largest size; None where there is none, and ``unchecked`` says why.
        ahead: the next size, :func:`next_size`.
    """

    rule: str
    cost: str
    rows: tuple[Row, ...]
    fit: Fit | None = None
    why: str = ""
    held: HeldOut | None = None
    unchecked: str = ""
    ahead: Forecast | None = None

    def sizes(self) -> list[float]:
        """A training each; those of twins once."""
        return [row.cost[self.cost] for row in _apart(self.rows) for _ in row.scores]

    def scores(self) -> list[float]:
        """Of the same trainings."""
        return [score for row in _apart(self.rows) for score in row.scores]


@dataclass(frozen=True)
class Gain:
    """What a row brought for its parameters: since the base, and since the row ``before`` it on its curve.

    A slope is None where both have as many parameters, or the base is not finished.
    """

    rule: str
    label: str
    before: str
    since_base: Slope | None
    since_before: Slope | None


@dataclass(frozen=True)
class Ranking:
    """The rules at one size of one cost, the best first.

    Attributes:
        by: where the size comes from: ``asked``, ``budget``, or ``reached`` by every rule with a law.
        choices: of the rules with a law.
        outside: those for which the size lies outside of what was trained, and the end that it lies beyond.
        missed: those whose law was wrong about its held-out size.
        unranked: the rules without a law.
    """

    cost: str
    size: float
    by: str
    choices: tuple[Choice, ...]
    outside: Mapping[str, float]
    missed: tuple[str, ...]
    unranked: tuple[str, ...]
    confidence: float

    @property
    def first(self) -> Choice:
        """The rule that is best in most draws."""
        return max(self.choices, key=lambda choice: choice.best)

    @property
    def least(self) -> float:
        """The share of draws that it takes to be called the best: 0 is then outside the interval of the difference."""
        return 0.5 + self.confidence / 2

    @property
    def decided(self) -> bool:
        """Whether one rule can be called the best."""
        return len(self.choices) > 1 and self.first.best >= self.least


@dataclass(frozen=True)
class ScalingStudy:
    """All of it.

    Attributes:
        name: the study's. direction: ``max`` or ``min`` of the metric. costs: that scores are drawn against.
        rules: rule to its labels, without the base's.
        rows, unfinished: all rows, in the order of the study file.
        noise: between seeds.
        curves: by cost, then by rule. gains, rankings: likewise.
        meta: study.json. signature: of the metrics. taught: from whom the rows learned, in words; empty without.
    """

    name: str
    metric: str
    direction: str
    base: str
    costs: tuple[str, ...]
    rules: Mapping[str, tuple[str, ...]]
    rows: tuple[Row, ...]
    unfinished: tuple[Unfinished, ...]
    noise: Noise
    curves: tuple[Curve, ...]
    gains: tuple[Gain, ...]
    rankings: tuple[Ranking, ...]
    confidence: float
    meta: Mapping[str, Any]
    signature: str = ""
    taught: str = ""

    def of(self, cost: str) -> dict[str, Curve]:
        """Rule to its curve against ``cost``."""
        return {curve.rule: curve for curve in self.curves if curve.cost == cost}

    def rules_of(self, label: str) -> tuple[str, ...]:
        """The rules that a row belongs to; none of the base."""
        return tuple(rule for rule, labels in self.rules.items() if label in labels)


def scaling_study(records: Iterable[Record], meta: Mapping[str, Any], metric: str, direction: str,
                  confidence: float = CONFIDENCE, at: Sequence[tuple[str, float]] = (), signature: str = "",
                  taught: str = "") -> ScalingStudy:
    """What the records of a study say of its rules; the study may be unfinished.

    Args:
        records: of all its trials.
        meta: its study.json.
        metric: the score, such as ``bleu`` or ``test.bleu``. direction: ``max`` or ``min``: which is better.
        at: costs and sizes to rank the rules at; the budget's, or what all rules have reached, unless given.

    Raises:
        UserError: it is no scaling study, or there is no such metric or cost.
    """
    plan = plan_of(meta)
    base, rules = str(plan["base"]), {str(rule): tuple(labels) for rule, labels in plan["rules"].items()}
    every = list(records)
    costs = costs_of(meta, every, [cost for cost, _ in at])
    labels = dict.fromkeys([base, *meta.get("rows", ()), *(label for steps in rules.values() for label in steps)])
    rows, unfinished = rows_of(every, labels, metric, costs, meta.get("left_out") or {})
    found, noise = {row.label: row for row in rows}, noise_of(rows)
    paths = {rule: tuple(found[label] for label in (base, *steps) if label in found) for rule, steps in rules.items()}
    check = plan.get("held_out", LARGEST) == LARGEST
    curves = tuple(_curve(rule, cost, path, direction, confidence, check)
                   for cost in costs for rule, path in paths.items())
    gains = tuple(gain for rule, path in paths.items() for gain in _gains(rule, path, base, noise, confidence))
    rankings = tuple(ranking for cost in costs for ranking in _rankings(
        cost, [curve for curve in curves if curve.cost == cost], meta.get("bounds") or {}, at, confidence))
    return ScalingStudy(str(meta.get("name", "")), metric, direction, base, costs, rules, rows, unfinished, noise,
                        curves, gains, rankings, confidence, meta, signature, taught)


def plan_of(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Base, rules and check. Raises UserError where it is another kind of study."""
    if meta.get("kind") != KIND or not meta.get("scaling"):
        raise UserError(f"{meta.get('name', 'the study')}: is no scaling study but of the kind "
                        f"{meta.get('kind', 'search')}; a scaling study's file says `kind: scaling`, with a base and "
                        "rules by which it grows")
    plan: Mapping[str, Any] = meta["scaling"]
    return plan


def next_size(sizes: Iterable[float]) -> float:
    """The largest times the ratio of the two largest different ones."""
    last, before = sorted(set(sizes), reverse=True)[:2]
    return last * last / before


def _apart(rows: Iterable[Row]) -> list[Row]:
    """One of each group of twins."""
    found: dict[int, Row] = {}
    for row in rows:
        found.setdefault(row.trial, row)
    return list(found.values())


def _curve(rule: str, cost: str, rows: tuple[Row, ...], direction: str, confidence: float, check: bool) -> Curve:
    known = tuple(row for row in rows if cost in row.cost)
    bare = Curve(rule, cost, known)
    sizes, scores = bare.sizes(), bare.scores()
    few = _too_few(sizes)
    if few:
        return Curve(rule, cost, known, why=f"there are {few}, where {LEAST}", unchecked="there is no law")
    law = fit(sizes, scores, direction, confidence)
    unchecked = _unchecked(sizes) if check else "the study file asks for no check"
    held = None if unchecked else held_out(sizes, scores, direction=direction, confidence=confidence)
    return Curve(rule, cost, known, law, "", held, unchecked, law.forecast(next_size(sizes)))


def _unchecked(sizes: Sequence[float]) -> str:
    """Why no law can be fitted without the largest size; empty where one can."""
    left = _too_few([size for size in sizes if size < max(sizes)])
    return f"{left} are left without the largest, where {LEAST}" if left else ""


def _too_few(sizes: Sequence[float]) -> str:
    """What there is, where that is too little for a law; empty where it is enough."""
    different = len(set(sizes))
    if different >= PARAMETERS and len(sizes) > PARAMETERS:
        return ""
    words = [f"{count} {word}{'s' * (count != 1)}" for count, word in ((len(sizes), "training"), (different, "size"))]
    return f"{words[0]} of {words[1]}"


def _gains(rule: str, path: Sequence[Row], base: str, noise: Noise, confidence: float) -> list[Gain]:
    start = next((row for row in path if row.label == base), None)
    return [Gain(rule, row.label, before.label, _slope(start, row, noise, confidence) if start else None,
                 _slope(before, row, noise, confidence)) for before, row in pairwise(path)]


def _slope(first: Row, last: Row, noise: Noise, confidence: float) -> Slope | None:
    params = (first.cost[PARAMS], last.cost[PARAMS])
    if params[0] == params[1]:
        return None
    return per_million(params, (first.mean, last.mean), noise, (len(first.scores), len(last.scores)), confidence)


def _rankings(cost: str, curves: Sequence[Curve], bounds: Mapping[str, float], at: Sequence[tuple[str, float]],
              confidence: float) -> list[Ranking]:
    """Of one cost; none where no rule has a law against it."""
    fits = {curve.rule: curve.fit for curve in curves if curve.fit is not None}
    if not fits:
        return []
    if at:
        places = [(size, ASKED) for name, size in at if name == cost]
    elif cost in bounds:
        places = [(float(bounds[cost]), BUDGET)]
    else:
        places = [(min(float(found.sizes.max()) for found in fits.values()), REACHED)]
    missed = tuple(curve.rule for curve in curves if curve.held is not None and not curve.held.inside)
    unranked = tuple(curve.rule for curve in curves if curve.fit is None)
    return [Ranking(cost, size, by, tuple(rank(fits, size)), _outside(fits, size), missed, unranked, confidence)
            for size, by in places]


def _outside(fits: Mapping[str, Fit], size: float) -> dict[str, float]:
    ends = {rule: (float(found.sizes.min()), float(found.sizes.max())) for rule, found in fits.items()}
    return {rule: high if size > high else low for rule, (low, high) in ends.items() if not low <= size <= high}
