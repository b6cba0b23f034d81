"""A study's records as tables: for machines, and as texts for people."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scalesearch.pareto.front import pareto_front
from scalesearch.pareto.noise import CONFIDENCE, decimals_for_interval, pool_noise, sample_std
from scalesearch.report.labels import format_value
from scalesearch.report.records import Record, early_measurements, get_cost, get_score, is_replicate
from scalesearch.tasks import COMMON_METRICS, EFFICIENCY_METRICS
from scalesearch.tasks import METRICS as EVERY_METRIC

METRIC_COLUMNS = tuple(EVERY_METRIC)  # of all tasks; on the split that a study chooses by
# on the one that it never sees
TEST_METRIC_COLUMNS = tuple(f"test.{name}"
                            for name in METRIC_COLUMNS if name not in EFFICIENCY_METRICS)
COST_COLUMNS = ("params.total", "params.non_embedding", "params.decoder", "macs.total",
                "flops.total", "memory.weights", "memory.cache", "memory.activations")
# Column to the record's key. Training seconds are the updates alone; wall seconds hold validation
# and decoding too.
TRAINING_COLUMNS = {"seed": "seed", "training_seconds": "seconds", "wall_seconds": "total_seconds",
                    "cpu_seconds": "cpu_seconds", "tokens": "tokens", "device": "device",
                    "dtype": "dtype", "reason": "reason"}
PARAM_PREFIX = "param."  # before the name of a hyperparameter's column
RECIPE_PREFIX = "recipe."  # before the name of a key of the recipe that the study asks
SD_SUFFIX = ".sd"
HALF_WIDTH_SUFFIX = ".half_width"  # after a score's name: the columns of its spread


def trials_frame(records: Iterable[Record], objectives: Mapping[str, str],
                 confidence: float = CONFIDENCE) -> pd.DataFrame:
    """One row a trial, in their order; replicates count for the trial that they repeat.

    Columns: trial, state, front, label, id, is_feasible, is_in_space; metrics; costs; facts of the
    training, rung_loss; its early measurements under ``proxy.`` (see
    :mod:`scalesearch.report.proxies`); hyperparameters under ``param.``; and what
    :func:`average_replicates` adds. Scores of a trial with replicates are means, and its facts
    (seed, seconds, tokens) are those of the first training. ``front``: on the front of the eligible
    rows.
    """
    every = list(records)
    rows = [_row(record, objectives) for record in every if not is_replicate(record)]
    table = pd.DataFrame(rows)
    for name in (name for name in table.columns if name.startswith(PARAM_PREFIX)):
        # As objects: beside a gap, pandas would turn 2 into 2.0.
        table[name] = pd.Series([row.get(name, "") for row in rows], dtype=object)
    if table.empty:
        columns = ["trial", "state", "front", "label", "id", "is_feasible", "is_in_space",
                   *_names(objectives), *TRAINING_COLUMNS, "rung_loss", "seeds"]
        return pd.DataFrame(columns=columns)
    table = table.sort_values("trial", kind="stable").reset_index(drop=True)
    scores = [name
              for name in _names(objectives)
              if name in METRIC_COLUMNS or name in TEST_METRIC_COLUMNS]
    # Copies, since pandas warns of a table that was made column by column.
    table = average_replicates(table.copy(), replicates_frame(every, objectives), scores,
                               confidence).copy()
    values = table[list(objectives)].where(_best_recipes(table, objectives)).to_numpy(dtype=float)
    table.insert(2, "front", pareto_front(values, list(objectives.values())))
    return table


def eligible_mask(table: pd.DataFrame) -> pd.Series:
    """Mask of the rows that may be on the front: trained to the end, feasible, and of the space."""
    return (table["state"]
            == "complete") & table["is_feasible"].astype(bool) & table["is_in_space"].astype(bool)


def _best_recipes(table: pd.DataFrame, objectives: Mapping[str, str]) -> pd.Series:
    """Mask of the eligible rows, of each architecture the best alone, by the first objective that is measured."""
    main = next((name for name in objectives if name in METRIC_COLUMNS), next(iter(objectives)))
    rows = table[eligible_mask(table)].sort_values(
        [main, "trial"], ascending=[objectives[main] == "min", True])
    if not any(RECIPE_PREFIX in name for name in table):
        return eligible_mask(table)
    return pd.Series(table.index.isin(rows.drop_duplicates("id").index), index=table.index)


def replicates_frame(trial_records: Iterable[Record],
                     objectives: Mapping[str, str]) -> pd.DataFrame:
    """One row a replicate: ``original``, the trial that it repeats, and the columns of :func:`trials_frame`."""
    return pd.DataFrame([{"original": one["original"], **_row(one, objectives)}
                         for one in trial_records if is_replicate(one)])


def average_replicates(table: pd.DataFrame, replicates: pd.DataFrame, names: Sequence[str],
                       confidence: float) -> pd.DataFrame:
    """``table`` with means over replicates in place of the scores of the first seed alone.

    Adds the columns ``seeds``, how many trainings a complete trial's scores are the mean of; and
    for each score of which the noise is known, ``.sd`` (the sample standard deviation; missing for
    one seed) and ``.half_width`` (half the interval of the mean, by the noise pooled over all
    trials; also for those of one seed).

    Args:
        table: a row a trial, with a column ``trial``.
        replicates: a row each, with the same columns and ``original``, the trial that was trained
            again.
        names: columns of scores.
    """
    done = replicates[replicates["state"] == "complete"] if len(replicates) else replicates
    complete = (table["state"] == "complete").to_numpy()
    more = {trial: done.index[done["original"] == trial]
            for trial in set(done["original"])} if len(done) else {}
    rows = [more.get(trial, []) for trial in table["trial"]]
    table["seeds"] = [1 + len(extra) if is_done else None for extra, is_done in zip(rows, complete)]
    table["seeds"] = table["seeds"].astype("Int64")
    for name in names if more else ():
        samples = [_sample(value, done.loc[extra, name] if len(extra) else ())
                   for value, extra in zip(table[name], rows)]
        noise = pool_noise(samples)
        if noise.is_known:
            table[name] = [float(np.mean(sample)) if sample else None for sample in samples]
            table[name + SD_SUFFIX] = [sample_std(sample) for sample in samples]
            table[name + HALF_WIDTH_SUFFIX] = [
                noise.interval_half_width(confidence, len(sample)) if sample and is_done else None
                for sample, is_done in zip(samples, complete)]
    return table


def _sample(own: Any, others: Iterable[Any]) -> list[float]:
    """The scores that there are; none where the first training has none."""
    return [] if own is None or pd.isna(own) else [
        float(own), *(float(x) for x in others if pd.notna(x))]


def format_mean(value: float, half: float, seeds: int) -> str:
    """``31.2 ± 0.4 (3)``: a mean to the digits that its interval leaves it, and how many seeds it is of."""
    places = decimals_for_interval(half)
    return f"{value:.{places}f} ± {half:.{places}f} ({seeds})"


def drop_empty_columns(table: pd.DataFrame) -> pd.DataFrame:
    """``table`` without the columns that hold nothing in any row; as it is where it has no rows."""
    empty = table.isna() | (table.astype(object) == "")
    return table if table.empty else table.loc[:, ~empty.all()]


def select_front(table: pd.DataFrame, objectives: Mapping[str, str]) -> pd.DataFrame:
    """The front, from the cheapest: sorted by the first objective that is minimized, else by the first."""
    first = next((name for name, way in objectives.items() if way == "min"), next(iter(objectives)))
    rows = table[table["front"].astype(bool)]
    return rows.sort_values([first, "trial"],
                            ascending=[objectives[first] == "min", True]).reset_index(drop=True)


def format_trials(trials: pd.DataFrame, objectives: Mapping[str, str],
                  *extra_columns: str) -> pd.DataFrame:
    """Cells of a table for people: the trial, what is ``more``, objectives, test score, seconds of training.

    Where the study asks anything of the recipe, its answers follow.
    """
    names = [*objectives, *shown_test_metrics(trials, objectives), "training_seconds"]
    asked = [name for name in trials if RECIPE_PREFIX in name]
    cells = [[trial_name(row, ""), *(str(row[name]) for name in extra_columns),
              *(format_cell(row, name) for name in names),
              *(format_value(row[name]) for name in asked)] for _, row in trials.iterrows()]
    return pd.DataFrame(cells, columns=["trial", *extra_columns, *map(_words, names),
                                        *(name.rpartition(RECIPE_PREFIX)[2] for name in asked)])


def shown_test_metrics(trials: pd.DataFrame, objectives: Iterable[str]) -> list[str]:
    """The test score that is shown beside: of the first objective that is a metric of the task's, or the task's own."""
    names = dict.fromkeys([*(f"test.{name}" for name in objectives if name not in COMMON_METRICS),
                           *TEST_METRIC_COLUMNS])
    return [name for name in names if name in trials and trials[name].notna().any()][:1]


def architecture_lines(trials: pd.DataFrame, params: Iterable[str] | None = None) -> list[str]:
    """A line a row: every one of ``params`` in which rows differ."""
    names = differing_columns(trials, params, len(trials.columns))
    return [f"{trial_name(row)}: "
            + ", ".join(f"{name.removeprefix(PARAM_PREFIX)} " f"{format_value(row[name])}"
                        for name in names if _text(row[name]) != "")
            for _, row in trials.iterrows() if names]


def trial_name(row: Any, prefix: str = "trial ") -> str:
    """A row's trial by its number and label."""
    return f"{prefix}{row['trial']}" + (f" ({row['label']})" if isinstance(row["label"], str)
                                        else "")


def _words(name: str) -> str:
    return name.replace(".", " ").replace("_", " ")


def differing_columns(trials: pd.DataFrame, params: Iterable[str] | None = None,
                      max_columns: int = 6) -> list[str]:
    """The columns of hyperparameters in which ``trials`` differ: at most ``max_columns``, and of
    those ``params`` only."""
    names = [name for name in trials.columns if name.startswith(PARAM_PREFIX)]
    among = {name.removeprefix(PARAM_PREFIX) for name in names} if params is None else set(params)
    return [name
            for name in names
            if name.removeprefix(PARAM_PREFIX) in among
            and trials[name].astype(str).nunique() > 1][:max_columns]


def format_cell(row: Any, name: str) -> str:
    """Text of one column of a row: a number, or a mean with its interval and the number of its seeds."""
    half = row.get(name + HALF_WIDTH_SUFFIX)
    if half is None or pd.isna(half):
        return format_number(row[name], name)
    return format_mean(float(row[name]), float(half), int(row["seeds"]))


def format_number(value: Any, name: str) -> str:
    """Text of a value: costs to the unit with separators, loads to three digits, metrics to two decimals."""
    if value is None or pd.isna(value):
        return ""
    group = name.partition(".")[0]
    if group in ("params", "macs", "flops", "memory", "artifact"):
        return f"{int(value):,}"
    return f"{value:.1f}" if name.endswith(
        "seconds") else f"{value:.3g}" if group == "load" else f"{value:.2f}"


def summarize_trial(row: Any, columns: Mapping[str, str]) -> str:
    """A row in one line: its trial, and ``columns`` (column to words) with their numbers."""
    return "; ".join([trial_name(row),
                      *(f"{words} {format_cell(row, column)}"
                        for column, words in columns.items())])


def _row(record: Record, objectives: Mapping[str, str]) -> dict[str, Any]:
    found = {key: record.get(key)
             for key in ("trial", "state", "label")} | {"id": record.get("architecture")}
    found |= {key: record.get(key) for key in ("is_feasible", "is_in_space")}
    found |= {name: get_score(record, name) if name in METRIC_COLUMNS or name in TEST_METRIC_COLUMNS
              else get_cost(record, name) for name in _names(objectives)}
    found |= {column: record.get(key)
              for column, key in TRAINING_COLUMNS.items()} | early_measurements(record)
    # at the last rung that it has reached
    found["rung_loss"] = (record.get("rungs") or [{}])[-1].get("loss")
    recipe_params = {RECIPE_PREFIX + key: value
                     for key, value in (record.get("recipe_params") or {}).items()}
    config = {**(record.get("config") or {}), **recipe_params}
    return found | {PARAM_PREFIX + path: _text(value) for path, value in config.items()}


def _names(objectives: Mapping[str, str]) -> list[str]:
    return list(dict.fromkeys([*objectives, *METRIC_COLUMNS, *TEST_METRIC_COLUMNS, *COST_COLUMNS]))


def _text(value: Any) -> Any:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    return str(value) if isinstance(value, list | dict) else value
