"""A study's records as tables: pandas for machines, rich for people."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.noise import CONFIDENCE
from scalesearch.report.proxies import proxies_of
from scalesearch.report.seeds import HALF, is_seed, shown, with_seeds
from scalesearch.tasks import MEASURED
from scalesearch.tasks import METRICS as EVERY_METRIC

METRICS = tuple(EVERY_METRIC)  # of all tasks; on the split that a study chooses by
REPORTED = tuple(f"test.{name}" for name in METRICS if name not in MEASURED)  # on the one that it never sees
COSTS = ("params.total", "params.non_embedding", "params.decoder", "macs.total", "flops.total", "memory.weights",
         "memory.cache", "memory.activations")
# Column to the record's key. Training seconds are the updates alone; wall seconds hold validation and decoding too.
FACTS = {"seed": "seed", "training_seconds": "seconds", "wall_seconds": "total_seconds", "cpu_seconds": "cpu_seconds",
         "tokens": "tokens", "device": "device", "dtype": "dtype", "reason": "reason"}


def frame(
    records: Iterable[Mapping[str, Any]], objectives: Mapping[str, str], confidence: float = CONFIDENCE
) -> pd.DataFrame:
    """One row a candidate, in the order of the trials.

    Columns: trial, state, front, label, id, feasible, in_space; metrics; costs; facts of the training; its early signs
    under ``proxy.`` (see :mod:`scalesearch.report.proxies`); the answers under ``answer.``; and what
    :func:`scalesearch.report.seeds.with_seeds` adds. Of a candidate with several seeds the scores are means, and the
    facts (seed, seconds, tokens) are those of its first training. ``front`` is true for what no other complete,
    feasible candidate dominates.
    """
    every = list(records)
    rows = [_row(record, objectives) for record in every if not is_seed(record)]
    table = pd.DataFrame(rows)
    for name in (name for name in table.columns if name.startswith("answer.")):
        # As objects: beside a gap, pandas would turn 2 into 2.0.
        table[name] = pd.Series([row.get(name, "") for row in rows], dtype=object)
    if table.empty:
        columns = ["trial", "state", "front", "label", "id", "feasible", "in_space", *_names(objectives), *FACTS,
                   "seeds"]
        return pd.DataFrame(columns=columns)
    table = table.sort_values("trial", kind="stable").reset_index(drop=True)
    scores = [name for name in _names(objectives) if name in METRICS or name in REPORTED]
    # Copies, since pandas warns of a table that was made column by column.
    table = with_seeds(table.copy(), seed_rows(every, objectives), scores, confidence).copy()
    values = table[list(objectives)].where(eligible(table)).to_numpy(dtype=float)
    table.insert(2, "front", pareto_front(values, list(objectives.values())))
    return table


def eligible(table: pd.DataFrame) -> pd.Series:
    """Mask of the rows that may be on the front: trained to the end, feasible, and of the space."""
    return (table["state"] == "complete") & table["feasible"].astype(bool) & table["in_space"].astype(bool)


def seed_rows(records: Iterable[Mapping[str, Any]], objectives: Mapping[str, str]) -> pd.DataFrame:
    """One row a further training: ``of``, the candidate that it trained again, and the columns of :func:`frame`."""
    return pd.DataFrame([{"of": record["of"], **_row(record, objectives)} for record in records if is_seed(record)])


def filled(table: pd.DataFrame) -> pd.DataFrame:
    """``table`` without the columns that hold nothing in any row; as it is where it has no rows."""
    empty = table.isna() | (table.astype(object) == "")
    return table if table.empty else table.loc[:, ~empty.all()]


def front_rows(table: pd.DataFrame, objectives: Mapping[str, str]) -> pd.DataFrame:
    """The front, from the cheapest: sorted by the first objective that is minimised, else by the first."""
    first = next((name for name, way in objectives.items() if way == "min"), next(iter(objectives)))
    rows = table[table["front"].astype(bool)]
    return rows.sort_values([first, "trial"], ascending=[objectives[first] == "min", True]).reset_index(drop=True)


def to_rich(
    rows: pd.DataFrame, objectives: Mapping[str, str], title: str, asked: Iterable[str] | None = None, width: int = 80
) -> Table:
    """The front as people read it: objectives first, then as many of the ``asked`` answers that differ as fit."""
    table = Table(title=title, title_justify="left")
    reported = [name for name in REPORTED if rows[name].notna().any()][:1]
    names = [*objectives, *reported, "training_seconds"]
    table.add_column("trial", justify="right", no_wrap=True)
    for name in names:
        table.add_column(_words(name), justify="right", no_wrap=len(name) < 8, min_width=_width(rows, name))
    taken = 18 + sum(max(7, _width(rows, name)) + 3 for name in names)
    varying = differing(rows, asked, max(0, (width - taken) // 10))
    for name in varying:
        table.add_column(_words(name.removeprefix("answer.")))
    for _, row in rows.iterrows():
        trial = f"{row['trial']}" + (f" ({row['label']})" if isinstance(row["label"], str) else "")
        table.add_row(trial, *(cell(row, name) for name in names), *(str(_text(row[name])) for name in varying))
    return table


def _words(name: str) -> str:
    """A dotted name as words, so that a narrow column may break it."""
    return name.replace(".", " ").replace("_", " ")


def _width(rows: pd.DataFrame, name: str) -> int:
    """Characters of the widest number of a column, which must not be cut."""
    return max((len(cell(row, name)) for _, row in rows.iterrows()), default=1)


def differing(rows: pd.DataFrame, asked: Iterable[str] | None = None, most: int = 6) -> list[str]:
    """The answers that are not the same in all ``rows``: at most ``most`` of them, and of those ``asked`` only."""
    answers = [name for name in rows.columns if name.startswith("answer.")]
    if asked is not None:
        among = {f"answer.{name}" for name in asked}
        answers = [name for name in answers if name in among]
    return [name for name in answers if rows[name].astype(str).nunique() > 1][:most]


def cell(row: Any, name: str) -> str:
    """What a table shows of one column of a row: a number, or a mean with its interval and the number of its seeds."""
    half = row.get(name + HALF)
    if half is None or pd.isna(half):
        return number(row[name], name)
    return shown(float(row[name]), float(half), int(row["seeds"]))


def number(value: Any, name: str) -> str:
    """A value as a table shows it: costs to the unit with separators, metrics to two digits."""
    if value is None or pd.isna(value):
        return ""
    if name.split(".")[0] in ("params", "macs", "flops", "memory"):
        return f"{int(value):,}"
    return f"{value:.1f}" if name.endswith("seconds") else f"{value:.2f}"


def _row(record: Mapping[str, Any], objectives: Mapping[str, str]) -> dict[str, Any]:
    architecture = record.get("architecture") or {}
    head = {key: record.get(key) for key in ("trial", "state", "label")}
    found = {**head, "id": architecture.get("id")}
    found |= {key: record.get(key) for key in ("feasible", "in_space")}
    found |= {name: _value(record, name) for name in _names(objectives)}
    found |= {column: record.get(key) for column, key in FACTS.items()} | proxies_of(record)
    answers = architecture.get("answers") or {}
    return found | {f"answer.{path}": _text(value) for path, value in answers.items()}


def _names(objectives: Mapping[str, str]) -> list[str]:
    return list(dict.fromkeys([*objectives, *METRICS, *REPORTED, *COSTS]))


def _value(record: Mapping[str, Any], name: str) -> float | None:
    """A metric or cost of a record, which it may not have."""
    if name in METRICS:
        value = (record.get("metrics") or {}).get(name)
        return (record.get("values") or {}).get(name) if value is None else value
    value = record.get("metrics" if name in REPORTED else "cost")
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _text(value: Any) -> Any:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    return str(value) if isinstance(value, list | dict) else value
