"""A scaling study as JSON values."""

import math
from dataclasses import asdict
from typing import Any

from scalesearch.report.scaling import Slope
from scalesearch.report.scaling_study import Curve, Ranking, ScalingStudy
from scalesearch.report.scaling_tables import notes
from scalesearch.report.scaling_words import sentences


def to_json(study: ScalingStudy) -> dict[str, Any]:
    """All of it as JSON values; what is not known is null."""
    noise, meta = study.noise, study.meta
    return {
        "study": study.name, "metric": study.metric, "direction": study.direction, "base": study.base,
        "rules": {rule: list(labels) for rule, labels in study.rules.items()}, "confidence": study.confidence,
        "protocol": meta["protocol"], "data": meta["data"], "synthetic": bool(meta.get("synthetic")),
        "signature": study.signature,
        "noise": {"sd": noise.sd, "df": noise.df, "rows": noise.candidates} if noise.known else None,
        "rows": [{"label": row.label, "trial": row.trial, "rules": list(study.rules_of(row.label)),
                  "cost": dict(row.cost), "scores": list(row.scores), "mean": row.mean, "sd": row.sd,
                  "missing": row.missing} for row in study.rows],
        "unfinished": [{"label": one.label, "why": one.why, "cost": dict(one.cost)} for one in study.unfinished],
        "curves": [_curve(curve) for curve in study.curves],
        "per_million": [{"rule": gain.rule, "label": gain.label, "before": gain.before,
                         "since_base": _slope(gain.since_base), "since_before": _slope(gain.since_before)}
                        for gain in study.gains],
        "rankings": [_ranking(study, ranking) for ranking in study.rankings],
        "notes": notes(study),
    }


def _curve(curve: Curve) -> dict[str, Any]:
    found: dict[str, Any] = {"rule": curve.rule, "cost": curve.cost, "labels": [row.label for row in curve.rows],
                             "sizes": curve.sizes(), "scores": curve.scores(), "why": curve.why,
                             "unchecked": curve.unchecked, "law": None, "held_out": None, "next": None}
    if curve.fit is not None and curve.ahead is not None:
        found["law"] = {**curve.fit.law.to_json(), "exponent_interval": list(curve.fit.exponent()),
                        "settled": curve.fit.settled, "sd": curve.fit.sd, "df": curve.fit.df}
        found["next"] = asdict(curve.ahead)
    if curve.held is not None:
        found["held_out"] = {"forecast": asdict(curve.held.forecast), "score": curve.held.score,
                             "error": curve.held.error, "inside": curve.held.inside}
    return found


def _slope(found: Slope | None) -> dict[str, float | None] | None:
    if found is None:
        return None
    return {"value": found.value, "half": found.half if math.isfinite(found.half) else None}


def _ranking(study: ScalingStudy, ranking: Ranking) -> dict[str, Any]:
    return {"cost": ranking.cost, "size": ranking.size, "by": ranking.by, "decided": ranking.decided,
            "first": ranking.first.rule,
            "choices": [{"rule": choice.rule, "best": choice.best, "forecast": asdict(choice.forecast)}
                        for choice in ranking.choices],
            "extrapolated": dict(ranking.outside), "missed": list(ranking.missed), "unranked": list(ranking.unranked),
            "sentences": sentences(study, ranking)}
