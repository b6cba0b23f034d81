"""Formatting of the numbers of a scaling study, and sentences on its rankings."""

import math

from scalesearch.pareto.noise import decimals_for_interval, format_percent
from scalesearch.report.labels import DEFAULT_COSTS, SHORT_LABELS
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
from scalesearch.terminal import format_size

MISSING_CELL = "–"
SIZE_SOURCE_LABELS = {SIZE_REQUESTED: "as requested", SIZE_OF_BUDGET: "the budget",
                      SIZE_REACHED: "the largest size that every rule with a law has reached"}
MAX_DECIMALS = 4  # of a score
MAX_PERCENT_DECIMALS = 2  # of a score up to 100


def cost_name(cost: str) -> str:
    """Name of a cost for display: ``params``, ``MACs``, or the unchanged name."""
    return SHORT_LABELS[cost.partition(".")[0]] if cost in DEFAULT_COSTS else cost


def score_decimals(metric: str, half_width: float) -> int:
    """Number of decimals of a score with the given half-width of its interval."""
    definition = METRICS.get(metric.removeprefix("test."))
    is_percent = (definition is None or definition.best_value == 100
                  or definition.label.startswith("Perplexity"))
    return min(MAX_PERCENT_DECIMALS if is_percent else MAX_DECIMALS,
               decimals_for_interval(half_width))


def format_score(metric: str, value: float, half_width: float) -> str:
    """Format a score to the digits that are certain by half its interval."""
    return f"{value:z.{score_decimals(metric, half_width)}f}"  # z: 0.00 instead of -0.00


def format_interval(metric: str, low: float, high: float) -> str:
    """Format an interval: ``30.1 to 31.4``."""
    half_width = (high - low) / 2
    return f"{format_score(metric, low, half_width)} to {format_score(metric, high, half_width)}"


def format_estimate(metric: str, value: float, low: float, high: float) -> str:
    """Format an estimate and its interval: ``30.7 (30.1 to 31.4)``."""
    return f"{format_score(metric, value, (high - low) / 2)} ({format_interval(metric, low, high)})"


def format_prediction(metric: str, prediction: LawPrediction) -> str:
    """Format the prediction of a law and the interval of the law."""
    return format_estimate(metric, prediction.score, prediction.low, prediction.high)


def format_slope(slope: Slope | None) -> str:
    """Format a slope: ``+0.053 ± 0.011``, without ± if the noise is unknown."""
    if slope is None:
        return MISSING_CELL
    if slope.half_width is None:
        return f"{slope.value:+z.3g}"
    decimals = min(MAX_DECIMALS, decimals_for_interval(slope.half_width))
    return f"{slope.value:+z.{decimals}f} ± {slope.half_width:.{decimals}f}"


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
    extrapolated = [
        f"{rule} ({'largest' if ranking.size > trained_size else 'smallest'} "
        f"{format_size(trained_size)})"
        for rule, trained_size in ranking.extrapolated_rules.items()]
    cost = cost_name(ranking.cost)
    rules_by_caveat = {
        "Extrapolated, since no architecture of that size was trained": extrapolated,
        f"Unreliable, since their laws against {cost} failed the check by their largest size":
            ranking.failed_check_rules,
        f"Not ranked, since they have no law against {cost}": ranking.unranked_rules}
    return [_verdict(study, ranking),
            *(f"{caveat}: {', '.join(rules)}." for caveat, rules in rules_by_caveat.items()
              if rules)]


def _verdict(study: ScalingStudy, ranking: Ranking) -> str:
    place = (f"At {format_size(ranking.size)} {cost_name(ranking.cost)} "
             f"({SIZE_SOURCE_LABELS[ranking.size_source]})")
    best = ranking.best_rule
    prediction = (f"its law predicts {study.metric} "
                  f"{format_prediction(study.metric, best.prediction)}")
    if len(ranking.ranked_rules) == 1:
        return f"{place} only {best.rule} has a law, so rules cannot be compared; {prediction}."
    if ranking.is_decided:
        return (f"{place} use {best.rule}: {prediction}, the best of {len(ranking.ranked_rules)} "
                f"rules in {format_share(best.best_share)} of bootstrap resamples.")
    candidates = sorted((ranked for ranked in ranking.ranked_rules if ranked.best_share >= 0.01),
                        key=lambda ranked: -ranked.best_share)
    shares = ", ".join(f"{ranked.rule} in {format_share(ranked.best_share)}"
                       for ranked in candidates)
    return (f"{place} no rule is significantly better than the others, which takes "
            f"{format_percent(ranking.best_share_threshold)} of bootstrap resamples. Best rules: "
            f"{shares}.")

