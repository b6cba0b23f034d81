"""Architectures of a scaling study with their scores, from its records.

Labels with the same architecture share its training runs: all but the first are duplicates of the
trial that was trained.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalesearch.errors import UserError, option
from scalesearch.pareto.noise import CONFIDENCE, Noise, sample_std
from scalesearch.report.labels import DEFAULT_COSTS, SIZE_COST_GROUPS
from scalesearch.report.records import (
    Record,
    check_metric,
    find_replicates,
    get_cost,
    get_score,
    labeled_records,
    scores_by_trial,
    training_trial,
)

MAX_REASON_LENGTH = 100  # characters


@dataclass(frozen=True)
class ScaledArchitecture:
    """Labeled architecture of a scaling study.

    Attributes:
        costs: name to exact value under the study's protocol.
        trial: number of the trial that trained it, equal for labels with the same architecture;
            None before it is started.
        scores: scores of all finished training runs.
        n_missing_replicates: number of replicates without a score.
        missing_reason: the reason why ``scores`` is empty.
    """

    label: str
    costs: Mapping[str, float]
    trial: int | None = None
    scores: tuple[float, ...] = ()
    n_missing_replicates: int = 0
    missing_reason: str = ""

    @property
    def mean_score(self) -> float:
        """Mean score over seeds."""
        return float(np.mean(self.scores))

    @property
    def sd(self) -> float | None:
        """Sample standard deviation between seeds; None for one seed."""
        return sample_std(self.scores)


def select_costs(meta: Mapping[str, Any], records: Sequence[Record],
                 requested: Iterable[str] = ()) -> tuple[str, ...]:
    """Select the costs that measure size: params, MACs, limited and requested costs.

    Args:
        meta: study.json.
        records: all records of the study.
        requested: names of further costs.

    Raises:
        UserError: a requested cost is not a size, or no record has it.
    """
    records_with_costs = [record for record in records if record.get("costs")]

    def is_size(name: str) -> bool:
        return name.partition(".")[0] in SIZE_COST_GROUPS and (
            not records_with_costs or any(get_cost(record, name) for record in records_with_costs))

    invalid = [name for name in requested if not is_size(name)]
    if invalid:
        raise UserError(f"{option('at', invalid[0])}: not a size of the study's architectures; use "
                        "params.total, params.non_embedding, macs.total or another cost of these "
                        "groups", code="unknown-cost")
    limited = [name for name in meta.get("bounds") or {} if is_size(name)]
    return tuple(dict.fromkeys([*DEFAULT_COSTS, *limited, *requested]))


def collect_architectures(records: Sequence[Record], labels: Iterable[str], metric: str,
                          costs: Sequence[str],
                          excluded: Mapping[str, str]) -> list[ScaledArchitecture]:
    """Collect the architectures with the given labels, in the order of ``labels``.

    Args:
        costs: names of the costs to read.
        excluded: label of an untrained architecture to the constraint that it violates.

    Raises:
        UserError: training runs are finished, and none of them has the metric.
    """
    check_metric(records, metric)
    records_by_label = labeled_records(records)
    scores_of = scores_by_trial(records, metric)
    architectures = []
    for label in labels:
        record = records_by_label.get(label)
        reason = (f"not trained: {excluded[label]}" if excluded.get(label)
                  else _missing_reason(record, records, metric))
        if record is None:
            architectures.append(ScaledArchitecture(label, {}, missing_reason=reason))
            continue
        values = {name: get_cost(record, name) for name in costs}
        trial = training_trial(record)
        scores = tuple(scores_of[trial])
        n_missing = sum(replicate["state"] != "complete" or get_score(replicate, metric) is None
                        for replicate in find_replicates(trial, records))
        architectures.append(ScaledArchitecture(
            label, {name: value for name, value in values.items() if value}, trial, scores,
            n_missing, "" if scores else reason))
    return architectures


def _missing_reason(record: Record | None, records: Sequence[Record], metric: str) -> str:
    """The reason why a record's architecture has no score."""
    if record is None:
        return "not started"
    if record["state"] == "duplicate":
        original = next((other for other in records if other["trial"] == record["original"]), None)
        return _missing_reason(original, records, metric)
    if record["state"] == "failed":
        reason = (str(record.get("reason") or "").splitlines() or [""])[0][:MAX_REASON_LENGTH]
        return f"failed ({reason})" if reason else "failed"
    return {"complete": f"has no {metric}", "infeasible": "infeasible"}.get(
        record["state"], "in training")


@dataclass(frozen=True)
class Slope:
    """Score per million parameters, and half its interval (None if unknown)."""

    value: float
    half_width: float | None


def slope_per_million(params: tuple[float, float], scores: tuple[float, float],
                      noise: Noise | None = None, seeds: tuple[int, int] = (1, 1),
                      confidence: float = CONFIDENCE) -> Slope | None:
    """Slope (scores[1] - scores[0]) / (params[1] - params[0]) per million parameters.

    Source: PartialFormer, section 6.2.

    Args:
        noise: noise between seeds; without it, the slope has no interval.
        seeds: number of seeds of each score.

    Returns:
        None if both numbers of parameters are equal.
    """
    millions = (params[1] - params[0]) / 1e6
    if millions == 0:
        return None
    half_width = None
    if noise is not None and noise.is_known:
        half_width = noise.interval_half_width(confidence, *seeds) / abs(millions)
    return Slope((scores[1] - scores[0]) / millions, half_width)
