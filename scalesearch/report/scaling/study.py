"""Results of a scaling study: a law per rule and cost, checks, slopes, rankings.

A rule (deeper, wider, more heads, …) is a sequence of sizes that starts with the base. Its law is
fitted to all of its training runs (see :mod:`scalesearch.report.scaling.laws`). Unless the study
file disables it, the law is checked: a second fit without the largest size predicts that size. The
score per million parameters is defined in PartialFormer, section 6.2.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from scalesearch.errors import UserError
from scalesearch.pareto.noise import CONFIDENCE, Noise, pool_noise
from scalesearch.report.records import Record
from scalesearch.report.scaling.architectures import (
    ScaledArchitecture,
    Slope,
    collect_architectures,
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
MIN_RUNS_TEXT = f"but a law needs at least {N_LAW_PARAMETERS + 1} runs of {N_LAW_PARAMETERS} sizes"
# sources of the sizes at which rules are ranked
SIZE_REQUESTED = "requested"
SIZE_OF_BUDGET = "budget"
SIZE_REACHED = "reached"


@dataclass(frozen=True)
class Curve:
    """Scores of one rule over one cost.

    Attributes:
        architectures: those with a score; the base first, then in the order of the study file.
        fit: law of all their training runs; None if they are too few.
        no_fit_reason: the reason if ``fit`` is None, else empty.
        holdout_check: check of the law with the largest size; None if it is not possible.
        no_check_reason: the reason if ``holdout_check`` is None, else empty.
        next_prediction: prediction for the next size (see :func:`next_size`).
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
        """(size, score) of each training run; equal architectures count once."""
        first_by_trial = {architecture.trial: architecture
                          for architecture in reversed(self.architectures)}
        return [(architecture.costs[self.cost], score)
                for architecture in self.architectures
                if first_by_trial[architecture.trial] is architecture
                for score in architecture.scores]

    @property
    def sizes(self) -> list[float]:
        """Size of each training run."""
        return [size for size, _ in self.size_score_pairs]


@dataclass(frozen=True)
class SlopesPerMillion:
    """Score per million parameters.

    It is relative to the base and to the previous architecture.

    A slope is None if both architectures have the same number of parameters, or if the base is not
    finished.
    """

    rule: str
    label: str
    previous_label: str
    slope_from_base: Slope | None
    slope_from_previous: Slope | None


@dataclass(frozen=True)
class Ranking:
    """Ranking of rules at one size.

    Attributes:
        cost: the cost that measures the size.
        size_source: ``requested``, ``budget``, or ``reached`` by every rule with a law.
        ranked_rules: the best predicted score first.
        extrapolated_rules: rule to the closest trained size, if ``size`` is outside its range.
        failed_check_rules: rules whose law failed its check.
        unranked_rules: rules without a law.
        confidence: confidence level of the intervals.
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
        """The rule that is best in most resamples."""
        return max(self.ranked_rules, key=lambda ranked: ranked.best_share)

    @property
    def best_share_threshold(self) -> float:
        """Share of resamples above which the interval of a difference excludes 0."""
        return 0.5 + self.confidence / 2

    @property
    def is_decided(self) -> bool:
        """Whether one rule is significantly better than the others."""
        return len(self.ranked_rules) > 1 and self.best_rule.best_share >= self.best_share_threshold


@dataclass(frozen=True)
class ScalingStudy:
    """Results of a scaling study.

    Attributes:
        costs: costs that measure the size.
        rules: rule to its labels, without that of the base.
        finished, unfinished: architectures with and without a score, in the order of the study
            file.
        curves, slopes, rankings: sorted by cost, then by rule.
        meta: study.json.
        signature: signature of the metric.
        teacher: description of the teacher; empty without a teacher.
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
        """The rules that contain a label; empty for the base."""
        return tuple(rule for rule, labels in self.rules.items() if label in labels)


def analyze_scaling(records: Iterable[Record], meta: Mapping[str, Any], metric: str, direction: str,
                    confidence: float = CONFIDENCE, ranking_sizes: Sequence[tuple[str, float]] = (),
                    signature: str = "", teacher: str = "") -> ScalingStudy:
    """Analyze the records of a scaling study, which may be unfinished.

    Args:
        records: all records of the study.
        meta: study.json.
        metric: name of the score, such as ``bleu`` or ``test.bleu``.
        direction: ``min`` or ``max`` of the metric.
        confidence: confidence level of all intervals.
        ranking_sizes: (cost, size) at which rules are ranked. By default, it is the budget, or
            the largest size that all rules with a law have reached.
        signature: signature of the metric.
        teacher: description of the teacher.

    Raises:
        UserError: the study has another type, or the metric or a cost is unknown.
    """
    if meta.get("type") != SCALING_TYPE or not meta.get("scaling"):
        raise UserError(f"{meta.get('name', 'the study')}: this study has the type "
                        f"{meta.get('type', 'search')}, not scaling",
                        help="a scaling study's file has `type: scaling`, a base and rules",
                        code="wrong-type")
    plan = meta["scaling"]
    base = str(plan["base"])
    rules = {str(rule): tuple(labels) for rule, labels in plan["rules"].items()}
    records = list(records)
    costs = select_costs(meta, records, [cost for cost, _ in ranking_sizes])
    labels = dict.fromkeys([base, *meta.get("architectures", ()),
                            *(label for rule_labels in rules.values() for label in rule_labels)])
    architectures = collect_architectures(records, labels, metric, costs,
                                          meta.get("excluded") or {})
    finished = {architecture.label: architecture
                for architecture in architectures if architecture.scores}
    unfinished = tuple(architecture for architecture in architectures if not architecture.scores)
    noise = pool_noise({architecture.trial: architecture.scores  # equal architectures count once
                        for architecture in finished.values()}.values())
    finished_by_rule = {rule: [finished[label] for label in (base, *rule_labels)
                               if label in finished]
                        for rule, rule_labels in rules.items()}
    is_checked = plan.get("held_out", HELD_OUT_LARGEST) == HELD_OUT_LARGEST
    curves = []
    for cost in costs:
        for rule, rule_architectures in finished_by_rule.items():
            with_cost = tuple(architecture for architecture in rule_architectures
                              if cost in architecture.costs)
            curves.append(_fit_curve(Curve(rule, cost, with_cost), direction, confidence,
                                     is_checked))
    slopes = tuple(slopes for rule, rule_architectures in finished_by_rule.items()
                   for slopes in _slopes(rule, rule_architectures, base, noise, confidence))
    rankings = tuple(
        ranking for cost in costs
        for ranking in _rankings(cost, [curve for curve in curves if curve.cost == cost],
                                 meta.get("bounds") or {}, ranking_sizes, confidence))
    return ScalingStudy(str(meta.get("name", "")), metric, direction, base, costs, rules,
                        tuple(finished.values()), unfinished, noise, tuple(curves), slopes,
                        rankings, confidence, meta, signature, teacher)


def next_size(sizes: Iterable[float]) -> float:
    """The largest size times the ratio of the two largest different sizes."""
    largest, second = sorted(set(sizes), reverse=True)[:2]
    return largest * largest / second


def _fit_curve(curve: Curve, direction: str, confidence: float, is_checked: bool) -> Curve:
    """Add law, check and prediction to a curve, or the reasons why they are missing."""
    sizes = curve.sizes
    scores = [score for _, score in curve.size_score_pairs]
    shortage = describe_shortage(sizes)
    if shortage:
        return replace(curve, no_fit_reason=f"there are {shortage}, {MIN_RUNS_TEXT}",
                       no_check_reason="the rule has no law")
    law = fit_power_law(sizes, scores, direction, confidence)
    shortage = describe_shortage([size for size in sizes if size < max(sizes)])
    no_check_reason = ""
    if not is_checked:
        no_check_reason = "the study file disables the check"
    elif shortage:
        no_check_reason = f"{shortage} remain without the largest size, {MIN_RUNS_TEXT}"
    holdout_check = None if no_check_reason else check_largest_size(
        sizes, scores, direction=direction, confidence=confidence)
    return replace(curve, fit=law, holdout_check=holdout_check, no_check_reason=no_check_reason,
                   next_prediction=law.predict(next_size(sizes)))


def _slopes(rule: str, architectures: Sequence[ScaledArchitecture], base_label: str, noise: Noise,
            confidence: float) -> list[SlopesPerMillion]:
    def slope(first: ScaledArchitecture, second: ScaledArchitecture) -> Slope | None:
        return slope_per_million((first.costs[TOTAL_PARAMS], second.costs[TOTAL_PARAMS]),
                                 (first.mean_score, second.mean_score), noise,
                                 (len(first.scores), len(second.scores)), confidence)

    has_base = bool(architectures) and architectures[0].label == base_label
    return [SlopesPerMillion(rule, architecture.label, previous.label,
                             slope(architectures[0], architecture) if has_base else None,
                             slope(previous, architecture))
            for previous, architecture in pairwise(architectures)]


def _rankings(cost: str, curves: Sequence[Curve], bounds: Mapping[str, float],
              requested_sizes: Sequence[tuple[str, float]], confidence: float) -> list[Ranking]:
    """Rank the rules by one cost; empty without laws."""
    fits = {curve.rule: curve.fit for curve in curves if curve.fit is not None}
    if not fits:
        return []
    if requested_sizes:
        sizes = [(size, SIZE_REQUESTED) for name, size in requested_sizes if name == cost]
    elif cost in bounds:
        sizes = [(float(bounds[cost]), SIZE_OF_BUDGET)]
    else:
        sizes = [(min(float(fit.sizes.max()) for fit in fits.values()), SIZE_REACHED)]
    failed_check = tuple(curve.rule
                         for curve in curves
                         if curve.holdout_check is not None
                         and not curve.holdout_check.is_inside_interval)
    unranked = tuple(curve.rule for curve in curves if curve.fit is None)
    trained_ranges = {rule: (float(fit.sizes.min()), float(fit.sizes.max()))
                      for rule, fit in fits.items()}
    rankings = []
    for size, source in sizes:
        extrapolated = {rule: min(max(size, smallest), largest)
                        for rule, (smallest, largest) in trained_ranges.items()
                        if not smallest <= size <= largest}
        rankings.append(Ranking(cost, size, source, tuple(rank_rules(fits, size)), extrapolated,
                                failed_check, unranked, confidence))
    return rankings
