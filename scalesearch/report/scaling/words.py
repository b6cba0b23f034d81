"""Numbers and sentences of a scaling study."""

import math

from scalesearch.pareto.noise import decimals_for_interval, format_percent
from scalesearch.report.scaling.laws import Forecast
from scalesearch.report.scaling.rows import Slope
from scalesearch.report.scaling.study import BUDGET, REACHED, REQUESTED, Ranking, ScalingStudy
from scalesearch.tasks import METRICS

UNKNOWN = "–"
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
FROM = {REQUESTED: "as requested", BUDGET: "the budget",
        REACHED: "the largest size that every rule with a law has reached"}
MAX_DECIMALS = 4  # of any score
COSTS = {"params.total": "params", "macs.total": "MACs"}


def cost_word(cost: str) -> str:
    """``params``, ``MACs``, or another cost's own name."""
    return COSTS.get(cost, cost)


def amount(size: float) -> str:
    """A size to three digits: ``1.23M``, ``2M``."""
    unit, letter = next(((unit, letter) for unit, letter in UNITS if size >= 0.9995 * unit), (1.0, ""))
    return f"{size / unit:.3g}{letter}"


def places(metric: str, half: float) -> int:
    """Decimals of a score with ``half`` an interval: two at most of a score up to 100."""
    known = METRICS.get(metric.removeprefix("test."))
    most = 2 if known is None or known.best_value == 100 or known.label.startswith("Perplexity") else MAX_DECIMALS
    return min(most, decimals_for_interval(half))


def score(metric: str, value: float, half: float) -> str:
    """A score to the digits that half its interval leaves it."""
    return f"{value:z.{places(metric, half)}f}"  # z: no -0.00


def interval(metric: str, low: float, high: float) -> str:
    """``30.1 to 31.4``."""
    half = (high - low) / 2
    return f"{score(metric, low, half)} to {score(metric, high, half)}"


def estimate(metric: str, value: float, low: float, high: float) -> str:
    """``30.7 (30.1 to 31.4)``."""
    return f"{score(metric, value, (high - low) / 2)} ({interval(metric, low, high)})"


def of_law(metric: str, found: Forecast) -> str:
    """A law's score at a size, and its interval."""
    return estimate(metric, found.score, found.low, found.high)


def slope(found: Slope | None) -> str:
    """``+0.053 ± 0.011``; what is not known is a dash."""
    if found is None:
        return UNKNOWN
    if found.half is None:
        return f"{found.value:+z.3g} ± {UNKNOWN}"
    digits = min(MAX_DECIMALS, decimals_for_interval(found.half))
    return f"{found.value:+z.{digits}f} ± {found.half:.{digits}f}"


def share(part: float) -> str:
    """A share of draws, which are too few to say all or none; rounded down, so that 95 % is never less than that."""
    return "< 1 %" if part < 0.01 else "> 99 %" if part > 0.99 else f"{math.floor(100 * part + 1e-9)} %"


def sentences(study: ScalingStudy, ranking: Ranking) -> list[str]:
    """Which rule to follow at a size, and what speaks against believing it."""
    return [_verdict(study, ranking), *_doubts(ranking)]


def _verdict(study: ScalingStudy, ranking: Ranking) -> str:
    where = f"At {amount(ranking.size)} {cost_word(ranking.cost)} ({FROM[ranking.by]})"
    first = ranking.first
    reach = f"its law says {study.metric} {of_law(study.metric, first.forecast)}"
    if len(ranking.choices) == 1:
        return f"{where} there is nothing to choose: only {first.rule} has a law; {reach}."
    if ranking.decided:
        return f"{where} follow {first.rule}: {reach}, the best of {len(ranking.choices)} rules in " \
               f"{share(first.best)} of draws."
    some = sorted((choice for choice in ranking.choices if choice.best >= 0.01), key=lambda choice: -choice.best)
    shares = ", ".join(f"{choice.rule} in {share(choice.best)}" for choice in some)
    return f"{where} no rule can be called best, which takes {format_percent(ranking.threshold)} of draws: {shares}."


def _doubts(ranking: Ranking) -> list[str]:
    beyond = [f"{rule} ({'largest' if ranking.size > end else 'smallest'} {amount(end)})"
              for rule, end in ranking.outside.items()]
    doubts = {"Extrapolated, since nothing of that size was trained": beyond,
              f"Doubtful, since their laws against {cost_word(ranking.cost)} failed the check by their largest size":
              ranking.missed,
              f"Not ranked, without a law against {cost_word(ranking.cost)}": ranking.unranked}
    return [f"{reason}: {', '.join(rules)}." for reason, rules in doubts.items() if rules]
