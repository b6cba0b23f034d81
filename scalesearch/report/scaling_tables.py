"""The tables of a scaling study: as text for terminal and Markdown, as a data frame, and as JSON."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from scalesearch.pareto.noise import percent
from scalesearch.report.scaling import DRAWS, Fit
from scalesearch.report.scaling_rows import Row
from scalesearch.report.scaling_study import Curve, Ranking, ScalingStudy
from scalesearch.report.scaling_words import (
    FROM,
    UNKNOWN,
    amount,
    cost_word,
    exponent,
    interval,
    of_law,
    of_training,
    places,
    score,
    sentences,
    share,
    slope,
)


@dataclass(frozen=True)
class Sheet:
    """One table: a title, the columns' headings, the first ``left`` of them set to the left, and text in cells.

    ``under``: sentences that belong below it.
    """

    title: str
    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    left: int = 2
    under: tuple[str, ...] = ()


def sheets(study: ScalingStudy) -> list[Sheet]:
    """Sizes, laws, checks, next sizes, score a million, and the rules at each size; those with nothing to say not."""
    found = [_sizes(study), _laws(study), _checks(study), _ahead(study), _gains(study),
             *(_ranked(study, ranking) for ranking in study.rankings)]
    return [sheet for sheet in found if sheet.cells]


def _sizes(study: ScalingStudy) -> Sheet:
    costs = [cost_word(cost) for cost in study.costs]
    cells = tuple((row.label, ", ".join(study.rules_of(row.label)) or "base",
                   *(f"{row.cost[cost]:,.0f}" if cost in row.cost else UNKNOWN for cost in study.costs),
                   _mean(study, row), str(len(row.scores))) for row in study.rows)
    return Sheet("Sizes", ("row", "rules", *costs, study.metric, "seeds"), cells)


def _mean(study: ScalingStudy, row: Row) -> str:
    digits = places(study.metric, study.noise.error(len(row.scores)) if study.noise.known else math.inf)
    return f"{row.mean:z.{digits}f}" + (f" ± {row.sd:.{digits}f}" if row.sd is not None else "")


def _laws(study: ScalingStudy) -> Sheet:
    return Sheet("Laws", ("rule", "against", "trainings", "sizes", "exponent", "sd", "settled"),
                 tuple((curve.rule, cost_word(curve.cost), *_law(study, curve)) for curve in study.curves))


def _law(study: ScalingStudy, curve: Curve) -> tuple[str, ...]:
    sizes = curve.sizes()
    counts = (str(len(sizes)), str(len(set(sizes))))
    if curve.fit is None:
        return (*counts, UNKNOWN, UNKNOWN, UNKNOWN)
    sd = score(study.metric, curve.fit.sd, curve.fit.sd)
    return (*counts, exponent(curve.fit.law.c, *curve.fit.exponent()), sd, "yes" if curve.fit.settled else "no")


def _checks(study: ScalingStudy) -> Sheet:
    cells = tuple((curve.rule, cost_word(curve.cost), amount(curve.held.forecast.size),
                   of_training(study.metric, curve.held.forecast), _came(study, curve),
                   "yes" if curve.held.inside else "NO") for curve in study.curves if curve.held is not None)
    return Sheet("Checks: the largest size, foretold from the others", ("rule", "against", "size", "foretold", "came",
                                                                        "inside"), cells)


def _came(study: ScalingStudy, curve: Curve) -> str:
    assert curve.held is not None
    found = curve.held.forecast
    return score(study.metric, curve.held.score, (found.training_high - found.training_low) / 2)


def _ahead(study: ScalingStudy) -> Sheet:
    cells = tuple((curve.rule, cost_word(curve.cost), amount(curve.ahead.size), of_law(study.metric, curve.ahead),
                   interval(study.metric, curve.ahead.training_low, curve.ahead.training_high))
                  for curve in study.curves if curve.ahead is not None)
    return Sheet("The next size", ("rule", "against", "size", "law", "one training"), cells)


def _gains(study: ScalingStudy) -> Sheet:
    cells = tuple((gain.rule, gain.label, slope(gain.since_base), slope(gain.since_before)) for gain in study.gains)
    return Sheet(f"{study.metric} per million parameters", ("rule", "row", "since the base", "since the size before"),
                 cells)


def _ranked(study: ScalingStudy, ranking: Ranking) -> Sheet:
    reached = {rule: max(curve.sizes(), default=0) for rule, curve in study.of(ranking.cost).items()}
    cells = tuple((choice.rule, of_law(study.metric, choice.forecast), share(choice.best),
                   amount(reached[choice.rule])) for choice in ranking.choices)
    title = f"The rules at {amount(ranking.size)} {cost_word(ranking.cost)} ({FROM[ranking.by]})"
    return Sheet(title, ("rule", "law", "best in", "trained up to"), cells, 1, tuple(sentences(study, ranking)))


def notes(study: ScalingStudy) -> list[str]:
    """What the numbers mean, under which conditions they were had, and what is missing."""
    return [*_conditions(study), *_meaning(study), *_missing(study)]


def _conditions(study: ScalingStudy) -> list[str]:
    meta, protocol = study.meta, study.meta["protocol"]
    extra = {kind: n for kind, n in protocol.get("counts", {}).items() if kind in ("norm", "bias")}
    counted = "".join(f", plus {n} per {kind} element" for kind, n in extra.items())
    made = " (a synthetic corpus: scores on it compare architectures, and say nothing of real text)"
    return [
        f"Costs: protocol {protocol['name']}, {protocol['source']} source and {protocol['target']} target tokens, "
        f"vocabulary {protocol['vocab']:,}{counted}.",
        f"Data: {meta['data']['name']}, hash {meta['data']['hash']}{made if meta.get('synthetic') else ''}.",
        *([study.taught] if study.taught else []),
        *([f"{study.metric}: {study.signature}"] if study.signature else []),
    ]


def _meaning(study: ScalingStudy) -> list[str]:
    noise, sure = study.noise, percent(study.confidence)
    seeds = (f"Noise between seeds: standard deviation {noise.sd:.2g}, pooled over {noise.candidates} rows, {noise.df} "
             "degrees of freedom." if noise.known else
             "No row has a second seed, so nothing per million parameters has an interval.")
    sign = "-" if study.direction == "max" else "+"
    fitted = [curve for curve in study.curves if curve.fit is not None]
    laws = [
        f"A law is {study.metric} = a {sign} b · size^-c, c the exponent, by least squares over all trainings of a "
        "rule, the base's among them. That scores follow a power law is an assumption; only the checks test it, and "
        "no interval holds what lies beyond it, such as data that runs out.",
        f"Intervals of a law: {DRAWS:,} bootstrap draws of its trainings, {sure}, each for itself. They are of the "
        "law, and where it says so of one training; of the mean of as many as were left out in a check, which a law "
        f"that holds fails in {percent(1 - study.confidence)} of studies.",
        "The next size is the largest one times the ratio of the two largest.",
        "\"Best in\" is the share of draws in which a rule's law is the best of all; rules that share trainings, such "
        "as the base's, are drawn as if they did not.",
    ] if fitted else []
    return ["The ± of a score is the standard deviation between its seeds; that of a score per million parameters is "
            f"half its {sure} interval, by the noise between seeds.", seeds, *laws]


def _missing(study: ScalingStudy) -> list[str]:
    """What is not known and why, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for curve in study.curves:
        for reason in _reasons(curve):
            reasons.setdefault(reason, []).append(f"{curve.rule} against {cost_word(curve.cost)}")
    again = [f"{row.label} ({row.missing})" for row in study.rows if row.missing]
    undone = [f"{one.label}: {one.why}" for one in study.unfinished]
    return [*(f"{reason}: {', '.join(curves)}." for reason, curves in reasons.items()),
            *([f"Without a score, and so in no law: {'; '.join(undone)}."] if undone else []),
            *([f"Further trainings without a score: {', '.join(again)}."] if again else [])]


def _reasons(curve: Curve) -> list[str]:
    """Why there is no law, or it says little."""
    if curve.fit is None:
        return [f"No law, since {curve.why}"]
    found = [] if curve.fit.settled else [f"Exponent not settled, since {_unsettled(curve.fit)}"]
    return [*found, *([f"Not checked, since {curve.unchecked}"] if curve.unchecked else [])]


def _unsettled(fit: Fit) -> str:
    law = fit.law
    if law.settled:
        return "its interval reaches an end of what is tried, where scores grow like a logarithm or level off at once"
    if law.b <= 0:
        return "scores do not get better with size"
    return "scores grow like a logarithm of the size, or faster" if law.c < 1 else "scores level off at once"


def to_markdown(study: ScalingStudy) -> str:
    """All tables and notes."""
    parts = [f"# {study.name}: {study.metric} by size"]
    if study.unfinished:
        parts.append(f"{len(study.unfinished)} of {len(study.rows) + len(study.unfinished)} rows have no score; see "
                     "the notes.")
    for sheet in sheets(study):
        parts += [f"## {sheet.title}", _table(sheet), *sheet.under]
    parts += ["## Notes", "\n".join(f"- {note}" for note in notes(study))]
    return "\n\n".join(parts) + "\n"


def _table(sheet: Sheet) -> str:
    rule = tuple("---" if number < sheet.left else "---:" for number in range(len(sheet.headings)))
    lines: Sequence[tuple[str, ...]] = (sheet.headings, rule, *sheet.cells)
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def frame(study: ScalingStudy) -> pd.DataFrame:
    """One row a (cost, rule, row), the base in each, with what the law says there; the unfinished without a score."""
    rows = [_point(study, curve, row) for curve in study.curves for row in curve.rows]
    labels = {rule: (study.base, *steps) for rule, steps in study.rules.items()}
    rows += [{"cost": cost, "rule": rule, "label": one.label, "size": one.cost.get(cost), "seeds": 0, "note": one.why}
             for cost in study.costs for rule, steps in labels.items() for one in study.unfinished
             if one.label in steps]
    columns = ["cost", "rule", "label", "trial", "size", "seeds", "score", "sd", "law", "law_low", "law_high", "note"]
    table = pd.DataFrame(rows, columns=columns)
    table["trial"] = table["trial"].astype("Int64")
    return table


def _point(study: ScalingStudy, curve: Curve, row: Row) -> dict[str, Any]:
    size = row.cost[curve.cost]
    found = {"cost": curve.cost, "rule": curve.rule, "label": row.label, "trial": row.trial, "size": size,
             "seeds": len(row.scores), "score": row.mean, "sd": row.sd}
    if curve.fit is None:
        return found
    low, high = curve.fit.band([size])
    return found | {"law": float(curve.fit.law(size)), "law_low": float(low[0]), "law_high": float(high[0])}
