"""Formatting of the numbers of a scaling study, and sentences on its rankings."""

import math
from collections.abc import Iterable, Sequence

from scalesearch.pareto.noise import decimals_for_interval, format_percent
from scalesearch.report.labels import DEFAULT_COSTS, MISSING_CELL, SHORT_LABELS
from scalesearch.report.scaling.architectures import Slope
from scalesearch.report.scaling.laws import LawPrediction
from scalesearch.report.scaling.study import (
    SIZE_OF_BUDGET,
    SIZE_REACHED,
    SIZE_REQUESTED,
    Ranking,
    ScalingStudy,
)
from scalesearch.tasks import METRICS
from scalesearch.terminal import decimals_for_digits, format_size

SIZE_SOURCE_LABELS = {SIZE_REQUESTED: "as requested", SIZE_OF_BUDGET: "the budget",
                      SIZE_REACHED: "the largest size that every rule with a law has reached"}
MAX_DECIMALS = 4  # of a score
MAX_PERCENT_DECIMALS = 2  # of a score up to 100


def cost_name(cost: str) -> str:
    """Name of a cost for display: ``params``, ``MACs``, or the unchanged name."""
    return SHORT_LABELS[cost.partition(".")[0]] if cost in DEFAULT_COSTS else cost


def score_decimals(metric: str, half_widths: Iterable[float]) -> int:
    """Decimals of a column of scores: those of the score with the narrowest interval.

    Args:
        half_widths: half the interval of each score; infinite if it is unknown.
    """
    definition = METRICS.get(metric.removeprefix("test."))
    is_percent = (definition is None or definition.best_value == 100
                  or definition.label.startswith("Perplexity"))
    return min(MAX_PERCENT_DECIMALS if is_percent else MAX_DECIMALS,
               max((decimals_for_interval(half_width) for half_width in half_widths
                    if 0 < half_width < math.inf), default=MAX_PERCENT_DECIMALS))


def format_score(score: float, decimals: int) -> str:
    """Format a score: ``0.00``, not ``-0.00``."""
    return f"{score:z.{decimals}f}"


def format_interval(low: float, high: float, decimals: int) -> str:
    """Format an interval: ``30.1 to 31.4``."""
    return f"{format_score(low, decimals)} to {format_score(high, decimals)}"


def format_predictions(metric: str, predictions: Sequence[LawPrediction]) -> list[str]:
    """Format predictions of laws with the intervals of the laws: ``30.7 (30.1 to 31.4)``."""
    decimals = score_decimals(metric, [(prediction.high - prediction.low) / 2
                                       for prediction in predictions])
    return [f"{format_score(prediction.score, decimals)} "
            f"({format_interval(prediction.low, prediction.high, decimals)})"
            for prediction in predictions]


def format_slopes(slopes: Sequence[Slope | None]) -> list[str]:
    """Format slopes: ``+0.053 ± 0.011``, without ± if the noise is unknown."""
    decimals = min(MAX_DECIMALS, max(
        (decimals_for_digits(slope.value, 3) if slope.half_width is None
         else decimals_for_interval(slope.half_width) for slope in slopes if slope), default=0))
    return [MISSING_CELL if slope is None else f"{slope.value:+z.{decimals}f}"
            + ("" if slope.half_width is None else f" ± {slope.half_width:.{decimals}f}")
            for slope in slopes]


def format_share(share: float) -> str:
    """Format a share of resamples, rounded down to percent.

    It is between ``< 1 %`` and ``> 99 %``.

    It is rounded down so that a share below a threshold is not shown as the threshold.
    """
    if share < 0.01:
        return "< 1 %"
    return "> 99 %" if share > 0.99 else f"{math.floor(100 * share + 1e-9)} %"


def ranking_sentences(study: ScalingStudy, ranking: Ranking) -> list[str]:
    """Sentences on the best rule at a size, followed by caveats."""
    cost = cost_name(ranking.cost)
    place = (f"At {format_size(ranking.size)} {cost} ({SIZE_SOURCE_LABELS[ranking.size_source]})")
    best = ranking.best_rule
    (score,) = format_predictions(study.metric, [best.prediction])
    prediction = f"its law predicts {study.metric} {score}"
    if len(ranking.ranked_rules) == 1:
        verdict = f"{place} only {best.rule} has a law, so rules cannot be compared; {prediction}."
    elif ranking.is_decided:
        verdict = (f"{place} use {best.rule}: {prediction}, the best of "
                   f"{len(ranking.ranked_rules)} rules in {format_share(best.best_share)} of "
                   "bootstrap resamples.")
    else:
        candidates = sorted((ranked for ranked in ranking.ranked_rules
                             if ranked.best_share >= 0.01), key=lambda ranked: -ranked.best_share)
        shares = ", ".join(f"{ranked.rule} in {format_share(ranked.best_share)}"
                           for ranked in candidates)
        verdict = (f"{place} no rule is significantly better than the others, which takes "
                   f"{format_percent(ranking.best_share_threshold)} of bootstrap resamples. Best "
                   f"rules: {shares}.")
    extrapolated = [
        f"{rule} ({'largest' if ranking.size > trained_size else 'smallest'} "
        f"{format_size(trained_size)})"
        for rule, trained_size in ranking.extrapolated_rules.items()]
    rules_by_caveat = {
        "Extrapolated, since no architecture of that size was trained": extrapolated,
        f"Unreliable, since their laws against {cost} failed the check by their largest size":
            ranking.failed_check_rules,
        f"Not ranked, since they have no law against {cost}": ranking.unranked_rules}
    return [verdict, *(f"{caveat}: {', '.join(rules)}."
                       for caveat, rules in rules_by_caveat.items() if rules)]
