"""Tables of a scaling study: text for terminal and Markdown, data frame, and JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from scalesearch.pareto.noise import format_percent
from scalesearch.report.labels import MISSING_CELL, describe_costs
from scalesearch.report.scaling.formatting import (
    SIZE_SOURCE_LABELS,
    cost_name,
    format_interval,
    format_predictions,
    format_score,
    format_share,
    format_slopes,
    ranking_sentences,
    score_decimals,
)
from scalesearch.report.scaling.laws import N_RESAMPLES, LawFit, LawPrediction
from scalesearch.report.scaling.study import Curve, ScalingStudy
from scalesearch.report.text_tables import to_markdown as markdown_table
from scalesearch.terminal import format_count, format_size


@dataclass(frozen=True)
class TitledTable:
    """Table of text cells with a title, footnotes and left-aligned columns."""

    title: str
    cells: pd.DataFrame
    n_left_aligned: int = 2
    footnotes: tuple[str, ...] = ()


def scaling_tables(study: ScalingStudy) -> list[TitledTable]:
    """Text tables of sizes, laws, checks, next sizes, slopes and rankings.

    The scores in a column have equal decimals.
    """
    metric = study.metric
    slopes = study.slopes
    tables = [_sizes_table(study), _laws_table(study), _checks_table(study), _next_table(study),
              TitledTable(f"{metric} per million parameters", pd.DataFrame({
                  "rule": [slope.rule for slope in slopes],
                  "label": [slope.label for slope in slopes],
                  "from the base": format_slopes([slope.slope_from_base for slope in slopes]),
                  "from the previous size": format_slopes([slope.slope_from_previous
                                                           for slope in slopes])}))]
    for ranking in study.rankings:
        curves_by_rule = study.curves_for(ranking.cost)
        rules = ranking.ranked_rules
        cells = {"rule": [ranked.rule for ranked in rules],
                 "law": format_predictions(metric, [ranked.prediction for ranked in rules]),
                 "best in": [format_share(ranked.best_share) for ranked in rules],
                 "trained up to": [format_size(max(curves_by_rule[ranked.rule].sizes))
                                   for ranked in rules]}
        title = (f"Rules at {format_size(ranking.size)} {cost_name(ranking.cost)} "
                 f"({SIZE_SOURCE_LABELS[ranking.size_source]})")
        tables.append(TitledTable(title, pd.DataFrame(cells), 1,
                                  tuple(ranking_sentences(study, ranking))))
    return [table for table in tables if len(table.cells)]


def _curve_columns(curves: Iterable[Curve]) -> dict[str, list[str]]:
    return {"rule": [curve.rule for curve in curves],
            "cost": [cost_name(curve.cost) for curve in curves]}


def _sizes_table(study: ScalingStudy) -> TitledTable:
    noise = study.noise
    architectures = study.finished
    n_seeds = [len(architecture.scores) for architecture in architectures]
    decimals = score_decimals(study.metric, [noise.standard_error(n) for n in n_seeds]
                              if noise.is_known else ())
    scores = [format_score(architecture.mean_score, decimals) for architecture in architectures]
    if noise.is_known:
        scores = [f"{score} ± {noise.interval_half_width(study.confidence, n):.{decimals}f}"
                  for score, n in zip(scores, n_seeds)]
    costs = {cost_name(cost): [f"{architecture.costs[cost]:,.0f}" if cost in architecture.costs
                               else MISSING_CELL for architecture in architectures]
             for cost in study.costs}
    return TitledTable("Sizes", pd.DataFrame({
        "label": [architecture.label for architecture in architectures],
        "rules": [", ".join(study.rules_containing(architecture.label)) or "base"
                  for architecture in architectures],
        **costs, study.metric: scores, "seeds": [*map(str, n_seeds)]}))


def _laws_table(study: ScalingStudy) -> TitledTable:
    decimals = score_decimals(study.metric, [curve.fit.sd for curve in study.curves if curve.fit])
    fits = []
    for curve in study.curves:
        cells = dict.fromkeys(("exponent", "sd", "identified"), MISSING_CELL)
        if curve.fit is not None:
            low, high = curve.fit.exponent_interval
            cells = {"exponent": f"{curve.fit.law.c:.2f} ({low:.2f} to {high:.2f})",
                     "sd": format_score(curve.fit.sd, decimals),
                     "identified": _yes_or_no(curve.fit.is_identified)}
        fits.append({"runs": str(len(curve.sizes)), "sizes": str(len(set(curve.sizes))), **cells})
    return TitledTable("Laws", pd.DataFrame(_curve_columns(study.curves)).join(pd.DataFrame(fits)))


def _checks_table(study: ScalingStudy) -> TitledTable:
    curves = [curve for curve in study.curves if curve.holdout_check]
    checks = [curve.holdout_check for curve in curves if curve.holdout_check]
    predictions = [check.prediction for check in checks]
    decimals = _training_decimals(study, predictions)
    return TitledTable("Checks: the largest size, predicted from the others", pd.DataFrame({
        **_curve_columns(curves), "size": [format_size(check.prediction.size) for check in checks],
        "predicted": [f"{format_score(prediction.score, decimals)} "
                      f"({_training_interval(prediction, decimals)})"
                      for prediction in predictions],
        "measured": [format_score(check.measured_score, decimals) for check in checks],
        "inside": [_yes_or_no(check.is_inside_interval) for check in checks]}))


def _next_table(study: ScalingStudy) -> TitledTable:
    curves = [curve for curve in study.curves if curve.next_prediction]
    predictions = [curve.next_prediction for curve in curves if curve.next_prediction]
    decimals = _training_decimals(study, predictions)
    return TitledTable("Next size", pd.DataFrame({
        **_curve_columns(curves),
        "size": [format_size(prediction.size) for prediction in predictions],
        "law": format_predictions(study.metric, predictions),
        "one run": [_training_interval(prediction, decimals) for prediction in predictions]}))


def _training_decimals(study: ScalingStudy, predictions: Iterable[LawPrediction]) -> int:
    return score_decimals(study.metric,
                          [(prediction.training_high - prediction.training_low) / 2
                           for prediction in predictions])


def _training_interval(prediction: LawPrediction, decimals: int) -> str:
    return format_interval(prediction.training_low, prediction.training_high, decimals)


def _yes_or_no(condition: bool) -> str:
    return "yes" if condition else "NO"


def notes(study: ScalingStudy) -> list[str]:
    """Sentences on the setup, the meaning of the numbers, and missing results."""
    data = study.meta["data"]
    synthetic = (" (a synthetic corpus: scores compare architectures, but do not transfer to "
                 "real text)")
    # Missing results; curves with equal reasons share a line.
    curves_by_reason: dict[str, list[str]] = {}
    for curve in study.curves:
        reasons = [f"Not checked, since {curve.no_check_reason}"] if curve.no_check_reason else []
        if curve.fit is None:
            reasons = [f"No law, since {curve.no_fit_reason}"]
        elif not curve.fit.is_identified:
            reasons.insert(0, f"Exponent not identified, since {_unidentified_reason(curve.fit)}")
        for reason in reasons:
            name = f"{curve.rule} against {cost_name(curve.cost)}"
            curves_by_reason.setdefault(reason, []).append(name)
    unfinished = [f"{architecture.label}: {architecture.missing_reason}"
                  for architecture in study.unfinished]
    replicates = [f"{architecture.label} ({architecture.n_missing_replicates})"
                  for architecture in study.finished if architecture.n_missing_replicates]
    return [describe_costs(study.meta["protocol"]),
            f"Data: {data['name']}, hash "
            f"{data['hash']}{synthetic if study.meta.get('synthetic') else ''}.",
            *([study.teacher] if study.teacher else []),
            *([f"{study.metric}: {study.signature}"] if study.signature else []),
            *_definitions(study),
            *(f"{reason}: {', '.join(curves)}." for reason, curves in curves_by_reason.items()),
            *([f"Without a score, and therefore not part of a law: {'; '.join(unfinished)}."]
              if unfinished else []),
            *([f"Replicates without a score: {', '.join(replicates)}."] if replicates else [])]


def _definitions(study: ScalingStudy) -> list[str]:
    noise = study.noise
    confidence = format_percent(study.confidence)
    sentences = [
        f"± is the {confidence} interval of a mean, or of a score per million parameters, by the "
        "noise between seeds.",
        (f"Noise between seeds: standard deviation {noise.sd:.2g}, pooled over "
         f"{format_count(noise.n_candidates, 'architecture')}, "
         f"{format_count(noise.df, 'degree')} of freedom."
         if noise.is_known
         else "No architecture has a second seed, so scores per million parameters have no "
              "interval.")]
    if not any(curve.fit for curve in study.curves):
        return sentences
    sign = "-" if study.direction == "max" else "+"
    return [
        *sentences,
        f"A law is {study.metric} = a {sign} b · size^-c with the exponent c. It is fitted by "
        "least squares to all training runs of a rule, including the base. The power law is an "
        "assumption, which only the checks test. Intervals do not include deviations from it, for "
        "example because the data are exhausted.",
        f"Intervals of a law are {confidence} intervals from {N_RESAMPLES:,} bootstrap resamples, "
        "without a correction for multiple comparisons. The column \"one run\" is the prediction "
        "interval of one training run. The interval of a check is that of the mean of the held-out "
        f"runs; a correct law fails its check in {format_percent(1 - study.confidence)} of "
        "studies.",
        "The next size is the largest size times the ratio of the two largest sizes.",
        "\"Best in\" is the share of resamples in which the law of a rule is the best. Rules are "
        "resampled independently, although they share the runs of the base."]


def _unidentified_reason(fit: LawFit) -> str:
    if fit.law.is_identified:
        return ("its interval reaches an end of the exponent grid, where scores grow like a "
                "logarithm or are constant after the smallest size")
    if fit.law.b <= 0:
        return "scores do not improve with size"
    return ("scores grow like a logarithm of the size, or faster" if fit.law.c < 1
            else "scores are constant after the smallest size")


def to_markdown(study: ScalingStudy) -> str:
    """Format all tables and notes as Markdown."""
    parts = [f"# {study.name}: {study.metric} by size"]
    if study.unfinished:
        parts.append(f"{len(study.unfinished)} of {len(study.finished) + len(study.unfinished)} "
                     "architectures have no score; see the notes.")
    for table in scaling_tables(study):
        parts += [f"## {table.title}", markdown_table(table.cells, table.n_left_aligned),
                  *table.footnotes]
    return "\n\n".join([*parts, "## Notes", "\n".join(f"- {note}" for note in notes(study))]) + "\n"


def scaling_frame(study: ScalingStudy) -> pd.DataFrame:
    """Data frame with a row per cost, rule and label, with score and law.

    The base has a row for each rule. Unfinished architectures have rows without a score.
    """
    rows: list[dict[str, Any]] = []
    for curve in study.curves:
        for architecture in curve.architectures:
            size = architecture.costs[curve.cost]
            row = {"cost": curve.cost, "rule": curve.rule, "label": architecture.label,
                   "trial": architecture.trial, "size": size, "seeds": len(architecture.scores),
                   "score": architecture.mean_score, "sd": architecture.sd}
            if curve.fit is not None:
                low, high = curve.fit.interval_at(size)[:, 0].tolist()
                row |= {"law": float(curve.fit.law(size)), "law_low": low, "law_high": high}
            rows.append(row)
    rows += [{"cost": cost, "rule": rule, "label": architecture.label,
              "size": architecture.costs.get(cost), "seeds": 0,
              "note": architecture.missing_reason}
             for cost in study.costs
             for rule, labels in study.rules.items()
             for architecture in study.unfinished if architecture.label in (study.base, *labels)]
    columns = ["cost", "rule", "label", "trial", "size", "seeds", "score", "sd", "law", "law_low",
               "law_high", "note"]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype({"trial": "Int64"})


def scaling_to_json(study: ScalingStudy) -> dict[str, Any]:
    """Convert all results to JSON values; unknown values are null."""
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
            "per_million": [asdict(slopes) for slopes in study.slopes],
            "rankings": [asdict(ranking)
                         | {"decided": ranking.is_decided, "first": ranking.best_rule.rule,
                            "sentences": ranking_sentences(study, ranking)}
                         for ranking in study.rankings], "notes": notes(study)}


def _curve_json(curve: Curve) -> Mapping[str, Any]:
    law = curve.fit and {
        "a": curve.fit.law.a, "b": curve.fit.law.absolute_b, "c": curve.fit.law.c,
        "exponent_interval": list(curve.fit.exponent_interval),
        "identified": curve.fit.is_identified, "sd": curve.fit.sd, "df": curve.fit.df}
    check = curve.holdout_check and {**asdict(curve.holdout_check),
                                     "error": curve.holdout_check.error,
                                     "inside": curve.holdout_check.is_inside_interval}
    return {"rule": curve.rule, "cost": curve.cost,
            "labels": [row.label for row in curve.architectures], "sizes": curve.sizes,
            "scores": [score for _, score in curve.size_score_pairs], "why": curve.no_fit_reason,
            "unchecked": curve.no_check_reason, "law": law, "held_out": check,
            "next": curve.next_prediction and asdict(curve.next_prediction)}
