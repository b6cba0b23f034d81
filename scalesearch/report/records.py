"""Reads a study's records: the one place of ``report`` that knows their keys.

A record is a trial's JSON. Replicates (``origin`` is ``replicate``) and duplicates say under ``original``
which trial they repeat.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
TEST_PREFIX = "test."  # before the name of a metric: its score on the test split


def validation_loss_name(config: Mapping[str, Any] | None) -> str:
    """Name of the validation loss by which a study's candidates compare: per character where vocabularies differ."""
    return "validation_loss_per_char" if "vocab" in (config or {}) else "validation_loss"


def is_replicate(record: Record) -> bool:
    """Whether it is of another training of a trial, with a further seed."""
    return record.get("origin") == "replicate"


def labeled_records(records: Iterable[Record]) -> dict[str, Record]:
    """Label to record of each named architecture, in their order; no replicates."""
    return {str(one["label"]): one for one in records if one.get("label") and not is_replicate(one)}


def training_trial(record: Record) -> int:
    """The trial that trained its architecture: another one for a duplicate."""
    return int(record["original"] if record["state"] == "duplicate" else record["trial"])


def find_replicates(trial: int, records: Iterable[Record]) -> list[Record]:
    """The records of the replicates of ``trial``."""
    return [one for one in records if is_replicate(one) and one.get("original") == trial]


def get_cost(record: Record, name: str) -> Any:
    """A cost such as ``params.total``; None if the record has none of that name."""
    return (record.get("costs") or {}).get(name)


def get_score(record: Record, metric: str) -> Any:
    """A score such as ``bleu``, or ``test.bleu`` on the test split; None if the record has none of that name."""
    metrics = record.get("metrics") or {}
    if metric.startswith(TEST_PREFIX):
        return (metrics.get("test") or {}).get(metric.removeprefix(TEST_PREFIX))
    score = metrics.get(metric)
    return (record.get("values") or {}).get(metric) if score is None else score


def score_names(record: Record) -> list[str]:
    """The names of all scores of a record."""
    metrics = record.get("metrics") or {}
    pairs = [*metrics.items(),
             *((TEST_PREFIX + name, value) for name, value in (metrics.get("test") or {}).items())]
    return [name for name, value in pairs if isinstance(value, int | float)]


def scores_over_seeds(record: Record, records: Sequence[Record], metric: str) -> list[float]:
    """The scores of all finished trainings of a record's architecture."""
    trial = training_trial(record)
    trainings = [*(one for one in records if one["trial"] == trial),
                 *find_replicates(trial, records)]
    found = [get_score(one, metric) for one in trainings if one["state"] == "complete"]
    return [float(score) for score in found if score is not None]


def early_measurements(record: Record) -> dict[str, float | None]:
    """Early measurements by column: the first loss, and zero-cost proxies (see train/proxies.py)."""
    zero_cost = (record.get("metrics") or {}).get("proxies") or {}
    return {"proxy.first_loss": _first_loss(record),
            **{f"proxy.{name}": value for name, value in zero_cost.items()}}


def _first_loss(record: Record) -> float | None:
    """The loss at the first rung; in a study without rungs, at the first validation before the end."""
    if record.get("rungs") is not None:
        # a reference passes none
        return float(record["rungs"][0]["loss"]) if record["rungs"] else None
    curve = record.get("curve") or []
    first = curve[0] if len(curve) > 1 else None
    return first.get(
        validation_loss_name(record.get("config"))) if isinstance(first, Mapping) else None
