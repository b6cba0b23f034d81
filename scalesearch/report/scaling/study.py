"""A scaling study's results: a power law by rule, its check, the next size, score a million, and a ranking of rules.

A rule (deeper, wider, more heads, …) is a curve of sizes that begins with the base. Its law is
fitted to all trainings on it (see :mod:`scalesearch.report.scaling.laws`); where the study says so,
the largest size is left out once to check what the others predict of it. Score a million parameters
is that of PartialFormer's section 6.2.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from scalesearch.errors import UserError
from scalesearch.pareto.noise import CONFIDENCE, Noise
from scalesearch.report.records import Record
from scalesearch.report.scaling.architectures import (
    ScaledArchitecture,
    Slope,
    collect_architectures,
    pool_seed_noise,
    select_costs,
    slope_per_million,
)
from scalesearch.report.scaling.laws import (
    N_LAW_PARAMETERS,
    HoldoutCheck,
    LawFit,
    LawPrediction,
    RankedRule,
    check_largest_size,
    describe_shortage,
    fit_power_law,
    rank_rules,
)

SCALING_TYPE = "scaling"
HELD_OUT_LARGEST = "largest"
TOTAL_PARAMS = "params.total"
MIN_RUNS_TEXT = f"a law takes at least {N_LAW_PARAMETERS + 1} of {N_LAW_PARAMETERS}"
SIZE_REQUESTED = "requested"
SIZE_OF_BUDGET = "budget"
SIZE_REACHED = "reached"  # where a size comes from that rules are ranked at


@dataclass(frozen=True)
class Curve:
    """One rule against one cost.

    Attributes:
        architectures: with a score, the base first, then in the order of the study file.
        fit: to all their trainings; None where there are too few, and ``no_fit_reason`` says so.
        holdout_check: the check by the largest size; None where there is none, and
            ``no_check_reason`` says why.
        next_prediction: forecast for the next size (:func:`next_size`).
    """

    rule: str
    cost: str
    architectures: tuple[ScaledArchitecture, ...]
    fit: LawFit | None = None
    no_fit_reason: str = ""
    holdout_check: HoldoutCheck | None = None
    no_check_reason: str = ""
    next_prediction: LawPrediction | None = None

    @property
    def size_score_pairs(self) -> list[tuple[float, float]]:
        """(size, score) of every training; those of rows with one architecture once."""
        apart = {row.trial: row for row in reversed(self.architectures)}
        return [(row.costs[self.cost], score)
                for row in self.architectures if apart[row.trial] is row for score in row.scores]

    @property
    def sizes(self) -> list[float]:
        """The size of every training."""
        return [size for size, _ in self.size_score_pairs]


@dataclass(frozen=True)
class SlopesPerMillion:
    """Score per million parameters of a row, since the base and since the row ``previous_label`` it on its curve.

    A slope is None where both have as many parameters, or the base is not finished.
    """

    rule: str
    label: str
    previous_label: str
    slope_from_base: Slope | None
    slope_from_previous: Slope | None


@dataclass(frozen=True)
class Ranking:
    """The rules at one size of one cost, the best first.

    Attributes:
        size_source: where the size comes from: ``requested``, ``budget``, or ``reached`` by every
            rule with a law.
        extrapolated_rules: rules for which the size lies outside of what was trained, and the end
            that it lies beyond.
        failed_check_rules: rules whose law failed its check. unranked: rules without a law.
    """

    cost: str
    size: float
    size_source: str
    ranked_rules: tuple[RankedRule, ...]
    extrapolated_rules: Mapping[str, float]
    failed_check_rules: tuple[str, ...]
    unranked_rules: tuple[str, ...]
    confidence: float

    @property
    def best_rule(self) -> RankedRule:
        """The rule that is best in most draws."""
        return max(self.ranked_rules, key=lambda choice: choice.best_share)

    @property
    def best_share_threshold(self) -> float:
        """Share of draws that makes a rule the best: 0 is then outside the interval of the difference."""
        return 0.5 + self.confidence / 2

    @property
    def is_decided(self) -> bool:
        """Whether one rule can be called the best."""
        return len(self.ranked_rules) > 1 and self.best_rule.best_share >= self.best_share_threshold


@dataclass(frozen=True)
class ScalingStudy:
    """All results.

    Attributes:
        costs: that scores are drawn against.
        rules: rule to its labels, without the base's.
        finished, unfinished: those with a score and the others, in the order of the study file.
        curves, slopes, rankings: by cost, then by rule.
        meta: study.json. teacher: whom the rows learned from, in words; empty without.
    """

    name: str
    metric: str
    direction: str
    base: str
    costs: tuple[str, ...]
    rules: Mapping[str, tuple[str, ...]]
    finished: tuple[ScaledArchitecture, ...]
    unfinished: tuple[ScaledArchitecture, ...]
    noise: Noise
    curves: tuple[Curve, ...]
    slopes: tuple[SlopesPerMillion, ...]
    rankings: tuple[Ranking, ...]
    confidence: float
    meta: Mapping[str, Any]
    signature: str = ""
    teacher: str = ""

    def curves_for(self, cost: str) -> dict[str, Curve]:
        """Rule to its curve against ``cost``."""
        return {curve.rule: curve for curve in self.curves if curve.cost == cost}

    def rules_containing(self, label: str) -> tuple[str, ...]:
        """The rules that a row belongs to; none of the base."""
        return tuple(rule for rule, labels in self.rules.items() if label in labels)


def analyze_scaling(records: Iterable[Record], meta: Mapping[str, Any], metric: str, direction: str,
                    confidence: float = CONFIDENCE, ranking_sizes: Sequence[tuple[str, float]] = (),
                    signature: str = "", teacher: str = "") -> ScalingStudy:
    """Results of a study's records by its rules; the study may be unfinished.

    Args:
        meta: its study.json.
        metric: the score, such as ``bleu`` or ``test.bleu``.
        ranking_sizes: costs and sizes to rank the rules at; the budget's, or what all rules have
            reached, unless given.

    Raises:
        UserError: it is no scaling study, or there is no such metric or cost.
    """
    plan = read_scaling_plan(meta)
    base = str(plan["base"])
    rules = {str(rule): tuple(labels) for rule, labels in plan["rules"].items()}
    every = list(records)
    costs = select_costs(meta, every, [cost for cost, _ in ranking_sizes])
    labels = dict.fromkeys([base, *meta.get("architectures", ()),
                            *(label for steps in rules.values() for label in steps)])
    rows = collect_architectures(every, labels, metric, costs, meta.get("excluded") or {})
    done = {row.label: row for row in rows if row.scores}
    noise = pool_seed_noise(done.values())
    paths = {rule: [done[label] for label in (base, *steps) if label in done]
             for rule, steps in rules.items()}
    check = plan.get("held_out", HELD_OUT_LARGEST) == HELD_OUT_LARGEST
    curves = tuple(_fitted(Curve(rule, cost, tuple(row for row in path if cost in row.costs)),
                           direction, confidence, check) for cost in costs
                   for rule, path in paths.items())
    gains = tuple(gain for rule, path in paths.items()
                  for gain in _gains(rule, path, base, noise, confidence))
    rankings = tuple(
        ranking for cost in costs
        for ranking in _rankings(cost, [curve for curve in curves if curve.cost == cost],
                                 meta.get("bounds") or {}, ranking_sizes, confidence))
    return ScalingStudy(str(meta.get("name", "")), metric, direction, base, costs, rules,
                        tuple(done.values()), tuple(row for row in rows if not row.scores), noise,
                        curves, gains, rankings, confidence, meta, signature, teacher)


def read_scaling_plan(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Base, rules and check. Raises UserError where it is another kind of study."""
    if meta.get("type") != SCALING_TYPE or not meta.get("scaling"):
        raise UserError(f"{meta.get('name', 'the study')}: this study has the type "
                        f"{meta.get('type', 'search')}, not scaling",
                        help="a scaling study's file has `type: scaling`, a base and rules",
                        code="wrong-type")
    plan: Mapping[str, Any] = meta["scaling"]
    return plan


def next_size(sizes: Iterable[float]) -> float:
    """The largest size times the ratio of the two largest different ones."""
    last, before = sorted(set(sizes), reverse=True)[:2]
    return last * last / before


def _fitted(bare: Curve, direction: str, confidence: float, check: bool) -> Curve:
    """``bare`` with its law, check and forecast, or the reasons why there are none."""
    sizes = bare.sizes
    scores = [score for _, score in bare.size_score_pairs]
    if few := describe_shortage(sizes):
        return replace(bare, no_fit_reason=f"there are {few}, where {MIN_RUNS_TEXT}",
                       no_check_reason="there is no law")
    law = fit_power_law(sizes, scores, direction, confidence)
    left = describe_shortage([size for size in sizes if size < max(sizes)])
    unchecked = "the study file asks for no check" if not check else \
        f"{left} are left without the largest, where {MIN_RUNS_TEXT}" if left else ""
    held = None if unchecked else check_largest_size(
        sizes, scores, direction=direction, confidence=confidence)
    return replace(bare, fit=law, holdout_check=held, no_check_reason=unchecked,
                   next_prediction=law.predict(next_size(sizes)))


def _gains(rule: str, path: Sequence[ScaledArchitecture], base: str, noise: Noise,
           confidence: float) -> list[SlopesPerMillion]:
    def slope(first: ScaledArchitecture, last: ScaledArchitecture) -> Slope | None:
        return slope_per_million((first.costs[TOTAL_PARAMS], last.costs[TOTAL_PARAMS]),
                                 (first.mean_score, last.mean_score), noise,
                                 (len(first.scores), len(last.scores)), confidence)

    start = path[0] if path and path[0].label == base else None
    return [SlopesPerMillion(rule, row.label, before.label, slope(start, row) if start else None,
                             slope(before, row)) for before, row in pairwise(path)]


def _rankings(cost: str, curves: Sequence[Curve], bounds: Mapping[str, float],
              at: Sequence[tuple[str, float]], confidence: float) -> list[Ranking]:
    """Rankings against one cost; none where no rule has a law against it."""
    fits = {curve.rule: curve.fit for curve in curves if curve.fit is not None}
    if not fits:
        return []
    if at:
        places = [(size, SIZE_REQUESTED) for name, size in at if name == cost]
    elif cost in bounds:
        places = [(float(bounds[cost]), SIZE_OF_BUDGET)]
    else:
        places = [(min(float(found.sizes.max()) for found in fits.values()), SIZE_REACHED)]
    missed = tuple(curve.rule
                   for curve in curves
                   if curve.holdout_check is not None
                   and not curve.holdout_check.is_inside_interval)
    unranked = tuple(curve.rule for curve in curves if curve.fit is None)
    ends = {rule: (float(found.sizes.min()), float(found.sizes.max()))
            for rule, found in fits.items()}

    def ranking(size: float, by: str) -> Ranking:
        beyond = {rule: min(max(size, low), high)
                  for rule, (low, high) in ends.items() if not low <= size <= high}
        return Ranking(cost, size, by, tuple(rank_rules(fits, size)), beyond, missed, unranked,
                       confidence)

    return [ranking(size, by) for size, by in places]
