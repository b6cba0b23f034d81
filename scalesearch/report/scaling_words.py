"""Numbers and sentences of a scaling study, as people read them."""

import math

from scalesearch.pareto.noise import percent
from scalesearch.report.scaling import Forecast, Slope
from scalesearch.report.scaling_study import ASKED, BUDGET, REACHED, Ranking, ScalingStudy
from scalesearch.report.seeds import decimals
from scalesearch.tasks import METRICS

UNKNOWN = "–"
WORDS = {"params.total": "params", "macs.total": "MACs"}
SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
FROM = {ASKED: "as asked", BUDGET: "the budget", REACHED: "the largest size that every rule with a law has reached"}
FINEST = 4  # digits after the point of any score


def cost_word(cost: str) -> str:
    """``params``, ``MACs``, or another cost's own name."""
    return WORDS.get(cost, cost)


def amount(size: float) -> str:
    """A size to three digits: ``1.23M``, ``2M``."""
    unit, letter = next(((unit, letter) for unit, letter in SCALES if size >= 0.9995 * unit), (1.0, ""))
    return f"{size / unit:.3g}{letter}"


def places(metric: str, half: float) -> int:
    """Digits after the point of a score with ``half`` an interval: two at most of a score up to 100."""
    known = METRICS.get(metric.removeprefix("test."))
    most = 2 if known is None or known.best == 100 or known.words.startswith("Perplexity") else FINEST
    return min(most, decimals(half))


def score(metric: str, value: float, half: float) -> str:
    """A score to the digits that half its interval leaves it."""
    return f"{value:z.{places(metric, half)}f}"  # z: no -0.00


def interval(metric: str, low: float, high: float) -> str:
    """``30.1 to 31.4``."""
    half = (high - low) / 2
    return f"{score(metric, low, half)} to {score(metric, high, half)}"


def of_law(metric: str, found: Forecast) -> str:
    """``30.7 (30.1 to 31.4)``: a law's score and its interval."""
    half = (found.high - found.low) / 2
    return f"{score(metric, found.score, half)} ({interval(metric, found.low, found.high)})"


def of_training(metric: str, found: Forecast) -> str:
    """``30.7 (29.9 to 31.6)``: the same, with the interval of trainings."""
    half = (found.training_high - found.training_low) / 2
    return f"{score(metric, found.score, half)} ({interval(metric, found.training_low, found.training_high)})"


def exponent(value: float, low: float, high: float) -> str:
    """``0.34 (0.12 to 0.80)``."""
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def slope(found: Slope | None) -> str:
    """``+0.053 ± 0.011``; what is not known is a dash."""
    if found is None:
        return UNKNOWN
    if not math.isfinite(found.half):
        return f"{found.value:+z.3g} ± {UNKNOWN}"
    digits = min(FINEST, decimals(found.half))
    return f"{found.value:+z.{digits}f} ± {found.half:.{digits}f}"


def share(part: float) -> str:
    """Of draws, which are too few to say that it is all or none; cut, so that 95 % is never less than that."""
    return "< 1 %" if part < 0.01 else "> 99 %" if part > 0.99 else f"{math.floor(100 * part + 1e-9)} %"


def sentences(study: ScalingStudy, ranking: Ranking) -> list[str]:
    """Whom to follow at a size, and what speaks against believing it."""
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
    said = ", ".join(f"{choice.rule} in {share(choice.best)}" for choice in some)
    return f"{where} no rule can be called best, which takes {percent(ranking.least)} of draws: {said}."


def _doubts(ranking: Ranking) -> list[str]:
    word = cost_word(ranking.cost)
    beyond = [f"{rule} ({'largest' if ranking.size > end else 'smallest'} {amount(end)})"
              for rule, end in ranking.outside.items()]
    lines = [f"Extrapolated, since nothing of that size was trained: {', '.join(beyond)}."] if beyond else []
    if ranking.missed:
        lines.append(f"Doubtful, since their laws against {word} did not foresee their largest size: "
                     f"{', '.join(ranking.missed)}.")
    if ranking.unranked:
        lines.append(f"Not ranked, without a law against {word}: {', '.join(ranking.unranked)}.")
    return lines
