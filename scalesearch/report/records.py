"""Reads a study's records: the one place of ``report`` that knows their keys.

A record is a trial's JSON. Replicates (``origin`` is ``replicate``) and duplicates say under ``of`` which trial they
repeat.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
TEST = "test."  # before the name of a metric: its score on the test split


def loss_name(answers: Mapping[str, Any] | None) -> str:
    """Name of the validation loss by which a study's candidates compare: per character where vocabularies differ."""
    return "valid_loss_per_char" if "vocab" in (answers or {}) else "valid_loss"


def is_replicate(record: Record) -> bool:
    """Whether it is of another training of a trial, with a further seed."""
    return record.get("origin") == "replicate"


def named(records: Iterable[Record]) -> dict[str, Record]:
    """Label to record of each named architecture, in their order; no replicates."""
    return {str(one["label"]): one for one in records if one.get("label") and not is_replicate(one)}


def trained_by(record: Record) -> int:
    """The trial that trained its architecture: another one for a duplicate."""
    return int(record["of"] if record["state"] == "duplicate" else record["trial"])


def replicates_of(trial: int, records: Iterable[Record]) -> list[Record]:
    """The records of the replicates of ``trial``."""
    return [one for one in records if is_replicate(one) and one.get("of") == trial]


def cost_of(record: Record, name: str) -> Any:
    """A cost such as ``params.total``; None if the record has none of that name."""
    return (record.get("costs") or {}).get(name)


def score_of(record: Record, metric: str) -> Any:
    """A score such as ``bleu``, or ``test.bleu`` on the test split; None if the record has none of that name."""
    metrics = record.get("metrics") or {}
    if metric.startswith(TEST):
        return (metrics.get("test") or {}).get(metric.removeprefix(TEST))
    score = metrics.get(metric)
    return (record.get("values") or {}).get(metric) if score is None else score


def scores_there(record: Record) -> list[str]:
    """The names of all scores of a record."""
    metrics = record.get("metrics") or {}
    pairs = [*metrics.items(), *((TEST + name, value) for name, value in (metrics.get("test") or {}).items())]
    return [name for name, value in pairs if isinstance(value, int | float)]


def scores_of(record: Record, records: Sequence[Record], metric: str) -> list[float]:
    """The scores of all finished trainings of a record's architecture."""
    trial = trained_by(record)
    trainings = [*(one for one in records if one["trial"] == trial), *replicates_of(trial, records)]
    found = [score_of(one, metric) for one in trainings if one["state"] == "complete"]
    return [float(score) for score in found if score is not None]


def proxies_of(record: Record) -> dict[str, float | None]:
    """Early measurements by column: the first loss, and zero-cost proxies (see train/proxies.py)."""
    zero_cost = (record.get("metrics") or {}).get("proxies") or {}
    return {"proxy.first_loss": _first_loss(record), **{f"proxy.{name}": value for name, value in zero_cost.items()}}


def _first_loss(record: Record) -> float | None:
    """The loss at the first rung; in a study without rungs, at the first validation before the end."""
    if record.get("rungs") is not None:
        return float(record["rungs"][0]["loss"]) if record["rungs"] else None  # a reference passes none
    curve = record.get("curve") or []
    first = curve[0] if len(curve) > 1 else None
    return first.get(loss_name(record.get("answers"))) if isinstance(first, Mapping) else None
