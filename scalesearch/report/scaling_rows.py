"""The rows of a scaling study: what was trained at each size, and what is not finished, from records.

Two labels of one architecture share its trainings: the second is a ``duplicate``, ``of`` the trial that was trained.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalesearch.errors import UserError
from scalesearch.pareto.noise import Noise, pooled, spread
from scalesearch.report.ablation import scores_of

USUAL = ("params.total", "macs.total")
SIZES = ("params", "macs", "flops", "memory")  # groups of costs that a score can be drawn against
TEST = "test."
LONGEST = 100  # characters of a reason
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """An architecture with at least one finished training.

    Attributes:
        label: as the study file has it.
        trial: that trained it; rows with the same one are twins.
        cost: cost's name to the exact value, by the study's protocol.
        scores: of all its finished trainings.
        missing: further trainings of it that were begun and have no score (yet).
    """

    label: str
    trial: int
    cost: Mapping[str, float]
    scores: tuple[float, ...]
    missing: int = 0

    @property
    def mean(self) -> float:
        """Of the scores."""
        return float(np.mean(self.scores))

    @property
    def sd(self) -> float | None:
        """The sample standard deviation between seeds; None of one seed."""
        return spread(self.scores)


@dataclass(frozen=True)
class Unfinished:
    """A row without a score: why, and its costs where they are known."""

    label: str
    why: str
    cost: Mapping[str, float]


def costs_of(meta: Mapping[str, Any], records: Iterable[Record], asked: Iterable[str] = ()) -> tuple[str, ...]:
    """The costs that scores are drawn against: params and MACs, what the budget limits, what is ``asked`` for.

    Raises:
        UserError: no record has one that is asked for.
    """
    bills = [record["cost"] for record in records if record.get("cost")]

    def is_size(name: str) -> bool:
        return name.partition(".")[0] in SIZES and (not bills or any(_value(bill, name) for bill in bills))

    wrong = [name for name in asked if not is_size(name)]
    if wrong:
        raise UserError(f"--at {wrong[0]}: no size that a score can be drawn against; take params.total, "
                        "params.non_embedding, macs.total or another cost of these groups")
    limited = [name for name in meta.get("bounds") or {} if is_size(name)]
    return tuple(dict.fromkeys([*USUAL, *limited, *asked]))


def rows_of(records: Sequence[Record], labels: Iterable[str], metric: str, costs: Sequence[str],
            left_out: Mapping[str, str]) -> tuple[tuple[Row, ...], tuple[Unfinished, ...]]:
    """The rows ``labels``, in their order: those with a ``metric``, and the others.

    Args:
        left_out: rows that were not to be trained, and the limits that they miss.

    Raises:
        UserError: trainings are finished and none has that metric.
    """
    every = _on_test(records) if metric.startswith(TEST) else list(records)
    name = metric.removeprefix(TEST)
    named = {str(record["label"]): record for record in every if record.get("label") and record.get("origin") != "seed"}
    _check(records, every, metric)
    rows, others = [], []
    for label in labels:
        record = named.get(label)
        scores = () if record is None else tuple(scores_of(record, every, name))
        cost = {} if record is None else _sizes(record, costs)
        if record is not None and scores:
            rows.append(Row(label, trained(record), cost, scores, _missing(trained(record), every, name)))
        else:
            why = f"not trained: {left_out[label]}" if label in left_out else _why(record, every, metric)
            others.append(Unfinished(label, why, cost))
    return tuple(rows), tuple(others)


def noise_of(rows: Iterable[Row]) -> Noise:
    """Between seeds, pooled over all rows; twins count once."""
    return pooled({row.trial: row.scores for row in rows}.values())


def trained(record: Record) -> int:
    """The trial that trained a record's architecture: another's, where it is a duplicate."""
    return int(record["of"] if record["state"] == "duplicate" else record["trial"])


def _on_test(records: Iterable[Record]) -> list[Record]:
    """``records`` with the scores of the test split in place of those of the one that is chosen by."""
    return [{**record, "values": None, "metrics": (record.get("metrics") or {}).get("test")} for record in records]


def _check(records: Sequence[Record], every: Sequence[Record], metric: str) -> None:
    """Raises UserError where trainings are finished and none has the metric."""
    done = [record for record in every if record["state"] == "complete"]
    if done and not any(_has(record, metric.removeprefix(TEST)) for record in done):
        there = _scores_there(next(record for record in records if record["state"] == "complete"))
        raise UserError(f"--metric {metric}: no finished training has that score; they have {', '.join(there)}")


def _has(record: Record, name: str) -> bool:
    return any((record.get(place) or {}).get(name) is not None for place in ("values", "metrics"))


def _scores_there(record: Record) -> list[str]:
    """The names of all scores of a record."""
    metrics = record.get("metrics") or {}
    found = [name for name, value in metrics.items() if isinstance(value, int | float)]
    test = [TEST + name for name, value in (metrics.get("test") or {}).items() if isinstance(value, int | float)]
    return found + test


def _sizes(record: Record, costs: Iterable[str]) -> dict[str, float]:
    found = {name: _value(record.get("cost") or {}, name) for name in costs}
    return {name: value for name, value in found.items() if value}


def _value(cost: Mapping[str, Any], name: str) -> Any:
    group, _, section = name.partition(".")
    return (cost.get(group) or {}).get(section)


def _missing(trial: int, every: Iterable[Record], name: str) -> int:
    again = [record for record in every if record.get("origin") == "seed" and record.get("of") == trial]
    return sum(record["state"] != "complete" or not _has(record, name) for record in again)


def _why(record: Record | None, every: Sequence[Record], metric: str) -> str:
    """Why a row has no score."""
    if record is None:
        return "not begun"
    if record["state"] == "duplicate":
        return _why(next((one for one in every if one["trial"] == record["of"]), None), every, metric)
    if record["state"] == "failed":
        said = (str(record.get("reason") or "").splitlines() or [""])[0][:LONGEST]
        return f"failed ({said})" if said else "failed"
    if record["state"] == "complete":
        return f"has no {metric}"
    return "beyond the budget" if record["state"] == "infeasible" else "in training"
