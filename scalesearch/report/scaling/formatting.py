"""Numbers and sentences of a scaling study."""

import math

from scalesearch.pareto.noise import decimals_for_interval, format_percent
from scalesearch.report.scaling.architectures import Slope
from scalesearch.report.scaling.laws import LawPrediction
from scalesearch.report.scaling.study import SIZE_OF_BUDGET, SIZE_REACHED, SIZE_REQUESTED, Ranking, ScalingStudy
from scalesearch.tasks import METRICS

MISSING_CELL = "–"
SIZE_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SIZE_SOURCE_LABELS = {SIZE_REQUESTED: "as requested", SIZE_OF_BUDGET: "the budget",
        SIZE_REACHED: "the largest size that every rule with a law has reached"}
MAX_DECIMALS = 4  # of any score
COST_NAMES = {"params.total": "params", "macs.total": "MACs"}


def cost_name(cost: str) -> str:
    """``params``, ``MACs``, or another cost's own name."""
    return COST_NAMES.get(cost, cost)


def format_size(size: float) -> str:
    """A size to three digits: ``1.23M``, ``2M``."""
    unit, letter = next(((unit, letter) for unit, letter in SIZE_UNITS if size >= 0.9995 * unit),
                        (1.0, ""))
    return f"{size / unit:.3g}{letter}"


def score_decimals(metric: str, half_width: float) -> int:
    """Decimals of a score with ``half_width`` an interval: two at most of a score up to 100."""
    known = METRICS.get(metric.removeprefix("test."))
    most = 2 if known is None or known.best_value == 100 or known.label.startswith(
        "Perplexity") else MAX_DECIMALS
    return min(most, decimals_for_interval(half_width))


def format_score(metric: str, value: float, half_width: float) -> str:
    """A score to the digits that half its interval leaves it."""
    return f"{value:z.{score_decimals(metric, half_width)}f}"  # z: no -0.00


def format_interval(metric: str, low: float, high: float) -> str:
    """``30.1 to 31.4``."""
    half = (high - low) / 2
    return f"{format_score(metric, low, half)} to {format_score(metric, high, half)}"


def format_estimate(metric: str, value: float, low: float, high: float) -> str:
    """``30.7 (30.1 to 31.4)``."""
    return f"{format_score(metric, value, (high - low) / 2)} ({format_interval(metric, low, high)})"


def format_prediction(metric: str, prediction: LawPrediction) -> str:
    """A law's score at a size, and its interval."""
    return format_estimate(metric, prediction.score, prediction.low, prediction.high)


def format_slope(slope: Slope | None) -> str:
    """``+0.053 ± 0.011``; what is not known is a dash."""
    if slope is None:
        return MISSING_CELL
    if slope.half_width is None:
        return f"{slope.value:+z.3g} ± {MISSING_CELL}"
    digits = min(MAX_DECIMALS, decimals_for_interval(slope.half_width))
    return f"{slope.value:+z.{digits}f} ± {slope.half_width:.{digits}f}"


def format_share(share: float) -> str:
    """A share of draws, which are too few to say all or none; rounded down, so that 95 % is never less than that."""
    return ("< 1 %" if share < 0.01 else "> 99 %" if share > 0.99
            else f"{math.floor(100 * share + 1e-9)} %")


def ranking_sentences(study: ScalingStudy, ranking: Ranking) -> list[str]:
    """Which rule to follow at a size, and what speaks against believing it."""
    return [_verdict(study, ranking), *_caveats(ranking)]


def _verdict(study: ScalingStudy, ranking: Ranking) -> str:
    where = (f"At {format_size(ranking.size)} {cost_name(ranking.cost)} "
             f"({SIZE_SOURCE_LABELS[ranking.size_source]})")
    first = ranking.best_rule
    reach = f"its law says {study.metric} {format_prediction(study.metric, first.prediction)}"
    if len(ranking.ranked_rules) == 1:
        return f"{where} there is nothing to choose: only {first.rule} has a law; {reach}."
    if ranking.is_decided:
        return (f"{where} follow {first.rule}: {reach}, the best of {len(ranking.ranked_rules)} "
                f"rules in {format_share(first.best_share)} of draws.")
    some = sorted((choice for choice in ranking.ranked_rules if choice.best_share >= 0.01),
                  key=lambda choice: -choice.best_share)
    shares = ", ".join(f"{choice.rule} in {format_share(choice.best_share)}" for choice in some)
    return (f"{where} no rule can be called best, which takes "
            f"{format_percent(ranking.best_share_threshold)} of draws: {shares}.")


def _caveats(ranking: Ranking) -> list[str]:
    beyond = [f"{rule} ({'largest' if ranking.size > end else 'smallest'} {format_size(end)})"
              for rule, end in ranking.extrapolated_rules.items()]
    doubts = {
        "Extrapolated, since nothing of that size was trained": beyond,
        f"Doubtful, since their laws against {cost_name(ranking.cost)} failed the check by "
        "their largest size": ranking.failed_check_rules,
        f"Not ranked, without a law against {cost_name(ranking.cost)}": ranking.unranked_rules}
    return [f"{reason}: {', '.join(rules)}." for reason, rules in doubts.items() if rules]
