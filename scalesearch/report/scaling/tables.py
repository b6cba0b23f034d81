"""The tables of a scaling study: text for terminal and Markdown, a data frame, and JSON."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from scalesearch.pareto.noise import format_percent
from scalesearch.report.labels import describe_costs
from scalesearch.report.scaling.architectures import ScaledArchitecture
from scalesearch.report.scaling.formatting import (
    MISSING_CELL,
    SIZE_SOURCE_LABELS,
    cost_name,
    format_estimate,
    format_interval,
    format_prediction,
    format_score,
    format_share,
    format_size,
    format_slope,
    ranking_sentences,
    score_decimals,
)
from scalesearch.report.scaling.laws import N_RESAMPLES, LawFit
from scalesearch.report.scaling.study import Curve, Ranking, ScalingStudy
from scalesearch.report.text_tables import to_markdown as markdown_table


@dataclass(frozen=True)
class TitledTable:
    """One table of text: title, cells, the number of columns set to the left, and sentences ``footnotes`` it."""

    title: str
    cells: pd.DataFrame
    n_left_aligned: int = 2
    footnotes: tuple[str, ...] = ()


def scaling_tables(study: ScalingStudy) -> list[TitledTable]:
    """Sizes, laws, checks, next sizes, score a million, and the rules at each size; no empty ones."""
    metric = study.metric
    curves = study.curves
    found = [
        TitledTable("Sizes", pd.DataFrame([_size(study, row) for row in study.finished])),
        TitledTable("Laws", pd.DataFrame([_law(metric, curve) for curve in curves])),
        TitledTable("Checks: the largest size, predicted from the others", pd.DataFrame([
            _against(curve, curve.holdout_check.prediction.size) | _check(metric, curve) for curve in curves if curve.holdout_check])),  # noqa: E501
        TitledTable("The next size", pd.DataFrame([
            _against(curve, curve.next_prediction.size) | {"law": format_prediction(metric, curve.next_prediction), "one training": format_interval(  # noqa: E501
                metric, curve.next_prediction.training_low, curve.next_prediction.training_high)} for curve in curves if curve.next_prediction])),  # noqa: E501
        TitledTable(f"{metric} per million parameters", pd.DataFrame([
            {"rule": gain.rule, "row": gain.label, "since the base": format_slope(gain.slope_from_base),
             "since the size before": format_slope(gain.slope_from_previous)} for gain in study.slopes])),
        *(_ranked(study, ranking) for ranking in study.rankings)]
    return [sheet for sheet in found if len(sheet.cells)]


def _against(curve: Curve, size: float | None = None) -> dict[str, str]:
    return {"rule": curve.rule,
            "against": cost_name(curve.cost)} | ({"size": format_size(size)} if size else {})


def _size(study: ScalingStudy, row: ScaledArchitecture) -> dict[str, str]:
    digits = score_decimals(study.metric,
                            study.noise.standard_error(len(row.scores)) if study.noise.is_known
                            else math.inf)
    costs = {cost_name(cost): f"{row.costs[cost]:,.0f}" if cost in row.costs else MISSING_CELL
             for cost in study.costs}
    mean = f"{row.mean_score:z.{digits}f}" + (
        f" ± {row.sd:.{digits}f}" if row.sd is not None else "")
    return {"row": row.label, "rules": ", ".join(study.rules_containing(row.label)) or "base",
            **costs, study.metric: mean, "seeds": str(len(row.scores))}


def _law(metric: str, curve: Curve) -> dict[str, str]:
    counts = _against(curve) | {"trainings": str(len(curve.sizes)),
                                "sizes": str(len(set(curve.sizes)))}
    if curve.fit is None:
        return counts | dict.fromkeys(("exponent", "sd", "identified"), MISSING_CELL)
    low, high = curve.fit.exponent_interval
    return counts | {"exponent": f"{curve.fit.law.c:.2f} ({low:.2f} to {high:.2f})",
                     "sd": format_score(metric, curve.fit.sd, curve.fit.sd),
                     "identified": _yes(curve.fit.is_identified)}


def _check(metric: str, curve: Curve) -> dict[str, str]:
    assert curve.holdout_check is not None
    found = curve.holdout_check.prediction
    measured = curve.holdout_check.measured_score
    low = found.training_low
    high = found.training_high
    return {"predicted": format_estimate(metric, found.score, low, high),
            "measured": format_score(metric, measured, (high - low) / 2),
            "inside": _yes(curve.holdout_check.is_inside_interval)}


def _yes(holds: bool) -> str:
    return "yes" if holds else "NO"


def _ranked(study: ScalingStudy, ranking: Ranking) -> TitledTable:
    curves = study.curves_for(ranking.cost)
    texts = pd.DataFrame([{"rule": choice.rule,
                           "law": format_prediction(study.metric, choice.prediction),
                           "best in": format_share(choice.best_share),
                           "trained up to": format_size(max(curves[choice.rule].sizes))}
                          for choice in ranking.ranked_rules])
    title = (f"The rules at {format_size(ranking.size)} {cost_name(ranking.cost)} "
             f"({SIZE_SOURCE_LABELS[ranking.size_source]})")
    return TitledTable(title, texts, 1, tuple(ranking_sentences(study, ranking)))


def notes(study: ScalingStudy) -> list[str]:
    """What the numbers mean, under which conditions they were measured, and what is missing."""
    return [*_conditions(study), *_meaning(study), *_missing(study)]


def _conditions(study: ScalingStudy) -> list[str]:
    data = study.meta["data"]
    synthetic = (" (a synthetic corpus: scores on it compare architectures, and say nothing of "
                 "real text)")
    return [describe_costs(study.meta["protocol"]),
            f"Data: {data['name']}, hash "
            f"{data['hash']}{synthetic if study.meta.get('synthetic') else ''}.",
            *([study.teacher] if study.teacher else []),
            *([f"{study.metric}: {study.signature}"] if study.signature else [])]


def _meaning(study: ScalingStudy) -> list[str]:
    noise = study.noise
    sure = format_percent(study.confidence)
    seeds = (f"Noise between seeds: standard deviation {noise.sd:.2g}, pooled over "
             f"{noise.n_candidates} rows, {noise.df} degrees of freedom." if noise.is_known
             else "No row has a second seed, so nothing per million parameters has an interval.")
    sign = "-" if study.direction == "max" else "+"
    laws = [f"A law is {study.metric} = a {sign} b · size^-c, c the exponent, by least squares "
            "over all trainings of a rule, the base's among them. That scores follow a power law "
            "is an assumption; only the checks test it, and no interval holds what lies beyond it, "
            "such as data that runs out.",
            f"Intervals of a law: {N_RESAMPLES:,} bootstrap draws of its trainings, {sure}, each "
            "for itself. They are of the law, and where it says so of one training; of the mean "
            "of as many as were left out in a check, which a law that holds fails in "
            f"{format_percent(1 - study.confidence)} of studies.",
            "The next size is the largest one times the ratio of the two largest.",
            "\"Best in\" is the share of draws in which a rule's law is the best of all; rules "
            "that share trainings, such " "as the base's, are drawn as if they did not."] if any(
        curve.fit for curve in study.curves) else []
    return ["The ± of a score is the standard deviation between its seeds; that of a score per "
            f"million parameters is half its {sure} interval, by the noise between seeds.", seeds,
            *laws]


def _missing(study: ScalingStudy) -> list[str]:
    """What is not known and why, curves of one reason together."""
    reasons: dict[str, list[str]] = {}
    for curve in study.curves:
        for reason in _reasons(curve):
            reasons.setdefault(reason, []).append(f"{curve.rule} against {cost_name(curve.cost)}")
    undone = [f"{row.label}: {row.missing_reason}" for row in study.unfinished]
    again = [f"{row.label} ({row.n_missing_replicates})"
             for row in study.finished if row.n_missing_replicates]
    return [*(f"{reason}: {', '.join(curves)}." for reason, curves in reasons.items()),
            *([f"Without a score, and so in no law: {'; '.join(undone)}."] if undone else []),
            *([f"Replicates without a score: {', '.join(again)}."] if again else [])]


def _reasons(curve: Curve) -> list[str]:
    """Why there is no law, or it says little."""
    if curve.fit is None:
        return [f"No law, since {curve.no_fit_reason}"]
    return [*([] if curve.fit.is_identified
              else ["Exponent not identified, since " f"{_unidentified(curve.fit)}"]),
            *([f"Not checked, since {curve.no_check_reason}"] if curve.no_check_reason else [])]


def _unidentified(fit: LawFit) -> str:
    if fit.law.is_identified:
        return ("its interval reaches an end of what is tried, where scores grow like a logarithm "
                "or level off at once")
    if fit.law.b <= 0:
        return "scores do not get better with size"
    return ("scores grow like a logarithm of the size, or faster" if fit.law.c < 1
            else "scores level off at once")


def to_markdown(study: ScalingStudy) -> str:
    """All tables and notes."""
    parts = [f"# {study.name}: {study.metric} by size"]
    if study.unfinished:
        parts.append(f"{len(study.unfinished)} of {len(study.finished) + len(study.unfinished)} "
                     "rows have no score; see the notes.")
    for sheet in scaling_tables(study):
        parts += [f"## {sheet.title}", markdown_table(sheet.cells, sheet.n_left_aligned),
                  *sheet.footnotes]
    return "\n\n".join([*parts, "## Notes", "\n".join(f"- {note}" for note in notes(study))]) + "\n"


def scaling_frame(study: ScalingStudy) -> pd.DataFrame:
    """One row a (cost, rule, row), the base in each, with what the law says there; the unfinished without a score."""
    rows = [_point(curve, row) for curve in study.curves for row in curve.architectures]
    rows += [{"cost": cost, "rule": rule, "label": row.label, "size": row.costs.get(cost),
              "seeds": 0, "note": row.missing_reason} for cost in study.costs
             for rule, steps in study.rules.items()
             for row in study.unfinished if row.label in (study.base, *steps)]
    columns = ["cost", "rule", "label", "trial", "size", "seeds", "score", "sd", "law", "law_low",
               "law_high", "note"]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype({"trial": "Int64"})


def _point(curve: Curve, row: ScaledArchitecture) -> dict[str, Any]:
    size = row.costs[curve.cost]
    found = {"cost": curve.cost, "rule": curve.rule, "label": row.label, "trial": row.trial,
             "size": size, "seeds": len(row.scores), "score": row.mean_score, "sd": row.sd}
    if curve.fit is None:
        return found
    low, high = curve.fit.interval_at(size)[:, 0].tolist()
    return found | {"law": float(curve.fit.law(size)), "law_low": low, "law_high": high}


def to_json(study: ScalingStudy) -> dict[str, Any]:
    """All of it as JSON values; what is not known is null."""
    noise = study.noise
    meta = study.meta
    return {"study": study.name, "metric": study.metric, "direction": study.direction,
            "base": study.base,
            "rules": {rule: list(labels) for rule, labels in study.rules.items()},
            "confidence": study.confidence, "protocol": meta["protocol"], "data": meta["data"],
            "synthetic": bool(meta.get("synthetic")), "signature": study.signature,
            "noise": {"sd": noise.sd, "df": noise.df, "rows": noise.n_candidates} if noise.is_known
            else None,
            "rows": [asdict(row)
                     | {"rules": list(study.rules_containing(row.label)), "mean": row.mean_score,
                        "sd": row.sd} for row in study.finished],
            "unfinished": [{"label": row.label, "why": row.missing_reason, "cost": dict(row.costs)}
                           for row in study.unfinished],
            "curves": [_curve_json(curve) for curve in study.curves],
            "per_million": [asdict(gain) for gain in study.slopes],
            "rankings": [asdict(ranking)
                         | {"decided": ranking.is_decided, "first": ranking.best_rule.rule,
                            "sentences": ranking_sentences(study, ranking)}
                         for ranking in study.rankings], "notes": notes(study)}


def _curve_json(curve: Curve) -> Mapping[str, Any]:
    law = curve.fit and {
        **curve.fit.law.to_json(), "exponent_interval": list(curve.fit.exponent_interval),
        "identified": curve.fit.is_identified, "sd": curve.fit.sd, "df": curve.fit.df}
    held = curve.holdout_check and {**asdict(curve.holdout_check),
                                    "error": curve.holdout_check.error,
                                    "inside": curve.holdout_check.is_inside_interval}
    return {"rule": curve.rule, "cost": curve.cost,
            "labels": [row.label for row in curve.architectures], "sizes": curve.sizes,
            "scores": [score for _, score in curve.size_score_pairs], "why": curve.no_fit_reason,
            "unchecked": curve.no_check_reason, "law": law, "held_out": held,
            "next": curve.next_prediction and asdict(curve.next_prediction)}
