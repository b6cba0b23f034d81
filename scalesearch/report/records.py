"""Access to the records of a study.

Other modules of ``report`` do not use their keys.

A record is the JSON of a trial. Replicates (``origin`` is ``replicate``) and duplicates have the
number of the trial that they repeat under ``original``.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from scalesearch.blocks.sizes import is_number
from scalesearch.errors import UserError, option

Record = Mapping[str, Any]
# Units of the validation losses by which trials are compared.
LOSS_UNITS = {"validation_loss": "nats per token",
              "validation_loss_per_char": "nats per character"}
TEST_PREFIX = "test."  # prefix of the name of a metric for its score on the test split


def validation_loss_name(config: Mapping[str, Any] | None) -> str:
    """Name of the comparable validation loss: per character if vocabularies differ."""
    return "validation_loss_per_char" if "vocab" in (config or {}) else "validation_loss"


def is_replicate(record: Record) -> bool:
    """Whether the record belongs to a further seed of another trial."""
    return record.get("origin") == "replicate"


def labeled_records(records: Iterable[Record]) -> dict[str, Record]:
    """Label to record of each named architecture, in the order of ``records``.

    Replicates are left out.
    """
    return {str(record["label"]): record
            for record in records if record.get("label") and not is_replicate(record)}


def training_trial(record: Record) -> int:
    """Number of the trial that trained the architecture, also for a duplicate."""
    return int(record["original"] if record["state"] == "duplicate" else record["trial"])


def find_replicates(trial: int, records: Iterable[Record]) -> list[Record]:
    """Find the records of the replicates of ``trial``."""
    return [record
            for record in records if is_replicate(record) and record.get("original") == trial]


def get_cost(record: Record, name: str) -> Any:
    """Cost such as ``params.total``; None if the record does not have it."""
    return (record.get("costs") or {}).get(name)


def get_score(record: Record, metric: str) -> Any:
    """Score such as ``bleu``, or ``test.bleu`` on the test split.

    The result is None if it is missing.
    """
    metrics = record.get("metrics") or {}
    if metric.startswith(TEST_PREFIX):
        return (metrics.get("test") or {}).get(metric.removeprefix(TEST_PREFIX))
    score = metrics.get(metric)
    return (record.get("values") or {}).get(metric) if score is None else score


def score_names(record: Record) -> list[str]:
    """Names of all scores of a record."""
    metrics = record.get("metrics") or {}
    pairs = [*metrics.items(),
             *((TEST_PREFIX + name, value) for name, value in (metrics.get("test") or {}).items())]
    return [name for name, value in pairs if is_number(value)]


def scores_by_trial(records: Iterable[Record], metric: str) -> defaultdict[int, list[float]]:
    """Trial number to the scores of its finished training runs, of which replicates are a part."""
    scores: defaultdict[int, list[float]] = defaultdict(list)
    for record in records:
        score = get_score(record, metric)
        if record["state"] == "complete" and score is not None:
            trial = record["original"] if is_replicate(record) else record["trial"]
            scores[trial].append(float(score))
    return scores


def check_metric(records: Iterable[Record], metric: str) -> None:
    """Raise a UserError if training runs are finished, and none of them has the metric."""
    complete = [record for record in records if record["state"] == "complete"]
    if complete and not any(is_number(get_score(record, metric)) for record in complete):
        raise UserError(f"{option('metric', metric)}: no finished training run has that score; use "
                        f"one of {', '.join(score_names(complete[0]))}", code="unknown-metric")


def early_measurements(record: Record) -> dict[str, float | None]:
    """Column to early measurement: losses at rungs, zero-cost proxies and predictions.

    The first loss is that of the first rung, or else of the first validation before the end.
    """
    zero_cost = (record.get("metrics") or {}).get("proxies") or {}
    rungs = record.get("rungs")
    curve = record.get("curve") or []
    first_loss = None
    if rungs:  # an empty list for references, which are not stopped at rungs
        first_loss = float(rungs[0]["loss"])
    elif rungs is None and len(curve) > 1 and isinstance(curve[0], Mapping):
        first_loss = curve[0].get(validation_loss_name(record.get("config")))
    return {"proxy.first_loss": first_loss,
            **{f"proxy.rung_loss_{number}": float(rung["loss"])
               for number, rung in enumerate((rungs or ())[1:], 2)},
            **{f"proxy.{name}": value for name, value in zero_cost.items()},
            **{name: value for name, value in (record.get("costs") or {}).items()
               if name.startswith("predicted.")}}
