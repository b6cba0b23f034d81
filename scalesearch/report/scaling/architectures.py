"""The rows of a scaling study, from records: the scores at each size, or why there are none.

Two labels of one architecture share its trainings: the second is a duplicate of the trial that was
trained.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalesearch.errors import UserError
from scalesearch.pareto.noise import CONFIDENCE, Noise, pool_noise, sample_std
from scalesearch.report.records import (
    Record,
    find_replicates,
    get_cost,
    get_score,
    labeled_records,
    score_names,
    scores_over_seeds,
    training_trial,
)

DEFAULT_COSTS = ("params.total", "macs.total")
# groups of costs that a score can be drawn against
SIZE_COST_GROUPS = ("params", "macs", "flops", "memory")
MAX_REASON_LENGTH = 100  # characters


@dataclass(frozen=True)
class ScaledArchitecture:
    """One architecture of the study.

    Attributes:
        costs: name to exact value, by the study's protocol.
        trial: that trained it, shared by rows of one architecture; None before it is started.
        scores: of all its finished trainings; ``missing_reason`` there is none.
        n_missing_replicates: its replicates that have no score (yet).
    """

    label: str
    costs: Mapping[str, float]
    trial: int | None = None
    scores: tuple[float, ...] = ()
    n_missing_replicates: int = 0
    missing_reason: str = ""

    @property
    def mean_score(self) -> float:
        """The mean score."""
        return float(np.mean(self.scores))

    @property
    def sd(self) -> float | None:
        """The sample standard deviation between seeds; None of one seed."""
        return sample_std(self.scores)


def select_costs(meta: Mapping[str, Any], records: Sequence[Record],
                 requested: Iterable[str] = ()) -> tuple[str, ...]:
    """The costs that scores are drawn against: params and MACs, the budget's, and what is ``requested``.

    Raises:
        UserError: no record has one that is requested.
    """
    billed = [record for record in records if record.get("costs")]

    def is_size(name: str) -> bool:
        return name.partition(".")[0] in SIZE_COST_GROUPS and (
            not billed or any(get_cost(record, name) for record in billed))

    wrong = [name for name in requested if not is_size(name)]
    if wrong:
        raise UserError(f"--at {wrong[0]}: no size that a score can be drawn against; take "
                        "params.total, params.non_embedding, macs.total or another cost of these "
                        "groups", code="unknown-cost")
    limited = [name for name in meta.get("bounds") or {} if is_size(name)]
    return tuple(dict.fromkeys([*DEFAULT_COSTS, *limited, *requested]))


def collect_architectures(records: Sequence[Record], labels: Iterable[str], metric: str,
                          costs: Sequence[str],
                          excluded: Mapping[str, str]) -> list[ScaledArchitecture]:
    """The rows ``labels``, in their order; ``excluded``: those not to be trained, and the constraints they violate.

    Raises:
        UserError: trainings are finished and none has that metric.
    """
    done = [record for record in records if record["state"] == "complete"]
    if done and all(get_score(record, metric) is None for record in done):
        raise UserError(f"--metric {metric}: no finished training has that score; they have "
                        f"{', '.join(score_names(done[0]))}", code="unknown-metric")
    found = labeled_records(records)
    return [_row(label, found.get(label), records, metric, costs, excluded.get(label))
            for label in labels]


def _row(label: str, record: Record | None, records: Sequence[Record], metric: str,
         costs: Sequence[str], left_out: str | None) -> ScaledArchitecture:
    why = f"not trained: {left_out}" if left_out else _missing_reason(record, records, metric)
    if record is None:
        return ScaledArchitecture(label, {}, missing_reason=why)
    cost = {name: value for name in costs if (value := get_cost(record, name))}
    trial = training_trial(record)
    scores = tuple(scores_over_seeds(record, records, metric))
    missing = sum(one["state"] != "complete" or get_score(one, metric) is None
                  for one in find_replicates(trial, records))
    return ScaledArchitecture(label, cost, trial, scores, missing, "" if scores else why)


def _missing_reason(record: Record | None, records: Sequence[Record], metric: str) -> str:
    """Why a record's architecture has no score."""
    if record is None:
        return "not begun"
    if record["state"] == "duplicate":
        return _missing_reason(next((one for one in records if one["trial"] == record["original"]), None),
                               records, metric)
    if record["state"] == "failed":
        reason = (str(record.get("reason") or "").splitlines() or [""])[0][:MAX_REASON_LENGTH]
        return f"failed ({reason})" if reason else "failed"
    return {"complete": f"has no {metric}", "infeasible": "infeasible"}.get(
        record["state"], "in training")


@dataclass(frozen=True)
class Slope:
    """Score a million parameters, and ``half_width`` its interval; None where the noise between seeds is unknown."""

    value: float
    half_width: float | None


def slope_per_million(params: tuple[float, float], scores: tuple[float, float],
                      noise: Noise | None = None, seeds: tuple[int, int] = (1, 1),
                      confidence: float = CONFIDENCE) -> Slope | None:
    """(score₂ - score₁) / (params₂ - params₁) in millions (PartialFormer, section 6.2); None of equal params."""
    millions = (params[1] - params[0]) / 1e6
    if millions == 0:
        return None
    half = None
    if noise is not None and noise.is_known:
        half = noise.interval_half_width(confidence, *seeds) / abs(millions)
    return Slope((scores[1] - scores[0]) / millions, half)


def pool_seed_noise(architectures: Iterable[ScaledArchitecture]) -> Noise:
    """Noise between seeds, pooled over all rows; rows of one architecture count once."""
    return pool_noise({row.trial: row.scores for row in architectures}.values())
