"""The rows of a scaling study, from records: the scores at each size, or why there are none.

Two labels of one architecture share its trainings: the second is a duplicate of the trial that was trained.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalesearch.errors import UserError
from scalesearch.pareto.noise import CONFIDENCE, Noise, pool_noise, sample_std
from scalesearch.report.records import (
    Record,
    cost_of,
    named,
    replicates_of,
    score_of,
    scores_of,
    scores_there,
    trained_by,
)

USUAL = ("params.total", "macs.total")
SIZES = ("params", "macs", "flops", "memory")  # groups of costs that a score can be drawn against
MAX_REASON = 100  # characters


@dataclass(frozen=True)
class Row:
    """One architecture of the study.

    Attributes:
        cost: name to exact value, by the study's protocol.
        trial: that trained it, shared by rows of one architecture; None before it is started.
        scores: of all its finished trainings; ``why`` there is none.
        missing: its replicates that have no score (yet).
    """

    label: str
    cost: Mapping[str, float]
    trial: int | None = None
    scores: tuple[float, ...] = ()
    missing: int = 0
    why: str = ""

    @property
    def mean(self) -> float:
        """The mean score."""
        return float(np.mean(self.scores))

    @property
    def sd(self) -> float | None:
        """The sample standard deviation between seeds; None of one seed."""
        return sample_std(self.scores)


def costs_of(meta: Mapping[str, Any], records: Sequence[Record], requested: Iterable[str] = ()) -> tuple[str, ...]:
    """The costs that scores are drawn against: params and MACs, the budget's, and what is ``requested``.

    Raises:
        UserError: no record has one that is requested.
    """
    billed = [record for record in records if record.get("costs")]

    def is_size(name: str) -> bool:
        return name.partition(".")[0] in SIZES and (not billed or any(cost_of(record, name) for record in billed))

    wrong = [name for name in requested if not is_size(name)]
    if wrong:
        raise UserError(f"--at {wrong[0]}: no size that a score can be drawn against; take params.total, "
                        "params.non_embedding, macs.total or another cost of these groups", code="unknown-cost")
    limited = [name for name in meta.get("bounds") or {} if is_size(name)]
    return tuple(dict.fromkeys([*USUAL, *limited, *requested]))


def rows_of(records: Sequence[Record], labels: Iterable[str], metric: str, costs: Sequence[str],
            left_out: Mapping[str, str]) -> list[Row]:
    """The rows ``labels``, in their order; ``left_out``: those not to be trained, and the constraints they violate.

    Raises:
        UserError: trainings are finished and none has that metric.
    """
    done = [record for record in records if record["state"] == "complete"]
    if done and all(score_of(record, metric) is None for record in done):
        raise UserError(f"--metric {metric}: no finished training has that score; they have "
                        f"{', '.join(scores_there(done[0]))}", code="unknown-metric")
    found = named(records)
    return [_row(label, found.get(label), records, metric, costs, left_out.get(label)) for label in labels]


def _row(label: str, record: Record | None, records: Sequence[Record], metric: str, costs: Sequence[str],
         left_out: str | None) -> Row:
    why = f"not trained: {left_out}" if left_out else _why(record, records, metric)
    if record is None:
        return Row(label, {}, why=why)
    cost = {name: value for name in costs if (value := cost_of(record, name))}
    trial, scores = trained_by(record), tuple(scores_of(record, records, metric))
    missing = sum(one["state"] != "complete" or score_of(one, metric) is None for one in replicates_of(trial, records))
    return Row(label, cost, trial, scores, missing, "" if scores else why)


def _why(record: Record | None, records: Sequence[Record], metric: str) -> str:
    """Why a record's architecture has no score."""
    if record is None:
        return "not begun"
    if record["state"] == "duplicate":
        return _why(next((one for one in records if one["trial"] == record["of"]), None), records, metric)
    if record["state"] == "failed":
        reason = (str(record.get("reason") or "").splitlines() or [""])[0][:MAX_REASON]
        return f"failed ({reason})" if reason else "failed"
    return {"complete": f"has no {metric}", "infeasible": "infeasible"}.get(record["state"], "in training")


@dataclass(frozen=True)
class Slope:
    """Score a million parameters, and ``half`` its interval; None where the noise between seeds is unknown."""

    value: float
    half: float | None


def per_million(params: tuple[float, float], scores: tuple[float, float], noise: Noise | None = None,
                seeds: tuple[int, int] = (1, 1), confidence: float = CONFIDENCE) -> Slope | None:
    """(score₂ - score₁) / (params₂ - params₁) in millions (PartialFormer, section 6.2); None of equal params."""
    millions = (params[1] - params[0]) / 1e6
    if millions == 0:
        return None
    half = None
    if noise is not None and noise.is_known:
        half = noise.interval_half_width(confidence, *seeds) / abs(millions)
    return Slope((scores[1] - scores[0]) / millions, half)


def noise_of(rows: Iterable[Row]) -> Noise:
    """Noise between seeds, pooled over all rows; rows of one architecture count once."""
    return pool_noise({row.trial: row.scores for row in rows}.values())
