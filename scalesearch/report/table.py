"""Tables of a study's trials: data frames, and text cells for display."""

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

METRIC_COLUMNS = tuple(EVERY_METRIC)  # validation metrics of all tasks
TEST_METRIC_COLUMNS = tuple(f"test.{name}"
                            for name in METRIC_COLUMNS if name not in EFFICIENCY_METRICS)
COST_COLUMNS = ("params.total", "params.non_embedding", "params.decoder", "macs.total",
                "flops.total", "memory.weights", "memory.cache", "memory.activations")
# Column to key of the record. Training seconds cover the updates only; wall seconds also cover
# validation and decoding.
TRAINING_COLUMNS = {"seed": "seed", "training_seconds": "seconds", "wall_seconds": "total_seconds",
                    "cpu_seconds": "cpu_seconds", "tokens": "tokens", "device": "device",
                    "dtype": "dtype", "reason": "reason"}
PARAM_PREFIX = "param."  # prefix of the columns of hyperparameters
RECIPE_PREFIX = "recipe."  # prefix of searched keys of the recipe
SD_SUFFIX = ".sd"  # suffix of a score's column for the standard deviation between seeds
HALF_WIDTH_SUFFIX = ".half_width"  # suffix of a score's column for half the interval of its mean


def trials_frame(records: Iterable[Record], objectives: Mapping[str, str],
                 confidence: float = CONFIDENCE, main_objective: str | None = None) -> pd.DataFrame:
    """Build the table of a study with a row per trial; replicates are averaged.

    Columns: trial, state, front, label, id, is_feasible, is_in_space; metrics; costs; data of the
    training run; rung_loss; early measurements under ``proxy.`` (see
    :mod:`scalesearch.report.proxies`); hyperparameters under ``param.``; and the columns that
    :func:`average_replicates` adds. Scores of a trial with replicates are means. Its other data
    (seed, seconds, tokens) belong to the first run. ``front`` marks the front of the eligible rows.

    Args:
        records: all records of the study.
        objectives: name to ``min`` or ``max``.
        confidence: confidence level of the intervals of means.
        main_objective: objective by which recipes of an architecture are compared; by default the
            first one.
    """
    records = list(records)
    rows = [_build_row(record, objectives) for record in records if not is_replicate(record)]
    table = pd.DataFrame(rows)
    for name in (name for name in table.columns if name.startswith(PARAM_PREFIX)):
        # as objects, because pandas converts 2 to 2.0 in a column with missing values
        table[name] = pd.Series([row.get(name, "") for row in rows], dtype=object)
    if table.empty:
        columns = ["trial", "state", "front", "label", "id", "is_feasible", "is_in_space",
                   *_names(objectives), *TRAINING_COLUMNS, "rung_loss", "seeds"]
        return pd.DataFrame(columns=columns)
    table = table.sort_values("trial", kind="stable").reset_index(drop=True)
    scores = [name
              for name in _names(objectives)
              if name in METRIC_COLUMNS or name in TEST_METRIC_COLUMNS]
    # copies, because pandas warns about tables that are built column by column
    table = average_replicates(table.copy(), replicates_frame(records, objectives), scores,
                               confidence).copy()
    may_be_on_front = _best_recipes(table, objectives, main_objective or next(iter(objectives)))
    values = table[list(objectives)].where(may_be_on_front).to_numpy(dtype=float)
    table.insert(2, "front", pareto_front(values, list(objectives.values())))
    return table


def eligible_mask(table: pd.DataFrame) -> pd.Series:
    """Mask of the rows that may be on the front: complete, feasible and in the space."""
    return (table["state"]
            == "complete") & table["is_feasible"].astype(bool) & table["is_in_space"].astype(bool)


def _best_recipes(table: pd.DataFrame, objectives: Mapping[str, str],
                  main_objective: str) -> pd.Series:
    """Mask of the eligible rows with the best recipe of each architecture."""
    rows = table[eligible_mask(table)].sort_values(
        [main_objective, "trial"], ascending=[objectives[main_objective] == "min", True])
    if not any(RECIPE_PREFIX in name for name in table):
        return eligible_mask(table)
    return pd.Series(table.index.isin(rows.drop_duplicates("id").index), index=table.index)


def replicates_frame(trial_records: Iterable[Record],
                     objectives: Mapping[str, str]) -> pd.DataFrame:
    """Table with a row per replicate: ``original``, and as in :func:`trials_frame`."""
    return pd.DataFrame([{"original": record["original"], **_build_row(record, objectives)}
                         for record in trial_records if is_replicate(record)])


def average_replicates(table: pd.DataFrame, replicates: pd.DataFrame, names: Sequence[str],
                       confidence: float) -> pd.DataFrame:
    """Replace the scores of first seeds in ``table`` by means over replicates.

    Adds the column ``seeds``, the number of runs that the scores of a complete trial average. For
    each score with known noise, it adds two more columns: ``.sd`` is the sample standard deviation,
    missing for one seed. ``.half_width`` is half the interval of the mean, by the noise pooled over
    all trials; it also exists for trials with one seed.

    Args:
        table: a row per trial, with a column ``trial``; modified.
        replicates: a row per replicate, with the same columns and ``original``, the number of the
            repeated trial.
        names: columns of scores.
        confidence: confidence level of the intervals.
    """
    finished = replicates[replicates["state"] == "complete"] if len(replicates) else replicates
    complete = (table["state"] == "complete").to_numpy()
    replicates_by_trial = {trial: finished.index[finished["original"] == trial]
                           for trial in set(finished["original"])} if len(finished) else {}
    replicate_rows = [replicates_by_trial.get(trial, []) for trial in table["trial"]]
    table["seeds"] = [1 + len(rows) if is_complete else None
                      for rows, is_complete in zip(replicate_rows, complete)]
    table["seeds"] = table["seeds"].astype("Int64")
    for name in names if replicates_by_trial else ():
        samples = [_sample(value, finished.loc[rows, name] if len(rows) else ())
                   for value, rows in zip(table[name], replicate_rows)]
        noise = pool_noise(samples)
        if noise.is_known:
            table[name] = [float(np.mean(sample)) if sample else None for sample in samples]
            table[name + SD_SUFFIX] = [sample_std(sample) for sample in samples]
            table[name + HALF_WIDTH_SUFFIX] = [
                (noise.interval_half_width(confidence, len(sample))
                 if sample and is_complete else None)
                for sample, is_complete in zip(samples, complete)]
    return table


def _sample(first_score: Any, other_scores: Iterable[Any]) -> list[float]:
    """The scores that are not missing; empty if the first run does not have one."""
    if first_score is None or pd.isna(first_score):
        return []
    return [float(first_score), *(float(score) for score in other_scores if pd.notna(score))]


def format_mean(value: float, half_width: float, seeds: int) -> str:
    """Format a mean, half its interval and the number of seeds: ``31.2 ± 0.4 (3)``."""
    decimals = decimals_for_interval(half_width)
    return f"{value:.{decimals}f} ± {half_width:.{decimals}f} ({seeds})"


def drop_empty_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Drop the columns that are empty in all rows; a table without rows is unchanged."""
    empty = table.isna() | (table.astype(object) == "")
    return table if table.empty else table.loc[:, ~empty.all()]


def select_front(table: pd.DataFrame, objectives: Mapping[str, str]) -> pd.DataFrame:
    """Select the rows on the front, sorted by the first minimized objective."""
    first = next((name for name, direction in objectives.items() if direction == "min"),
                 next(iter(objectives)))
    rows = table[table["front"].astype(bool)]
    return rows.sort_values([first, "trial"],
                            ascending=[objectives[first] == "min", True]).reset_index(drop=True)


def format_trials(trials: pd.DataFrame, objectives: Mapping[str, str],
                  *extra_columns: str) -> pd.DataFrame:
    """Text cells of a table of trials.

    Columns: the trial, ``extra_columns``, objectives, test score, training seconds, and the
    searched parameters of the recipe, if any.
    """
    names = [*objectives, *shown_test_metrics(trials, objectives), "training_seconds"]
    recipe_columns = [name for name in trials if RECIPE_PREFIX in name]
    cells = [[trial_name(row, ""), *(str(row[name]) for name in extra_columns),
              *(format_cell(row, name) for name in names),
              *(format_value(row[name]) for name in recipe_columns)]
             for _, row in trials.iterrows()]
    headings = [name.replace(".", " ").replace("_", " ") for name in names]
    return pd.DataFrame(cells, columns=["trial", *extra_columns, *headings,
                                        *(name.rpartition(RECIPE_PREFIX)[2]
                                          for name in recipe_columns)])


def shown_test_metrics(trials: pd.DataFrame, objectives: Iterable[str]) -> list[str]:
    """Column of the test score to show, in a list; empty if no trial has a test score.

    It is that of the first objective that is a metric of the task, else any metric of the task.
    """
    names = dict.fromkeys([*(f"test.{name}" for name in objectives if name not in COMMON_METRICS),
                           *TEST_METRIC_COLUMNS])
    return [name for name in names if name in trials and trials[name].notna().any()][:1]


def architecture_lines(trials: pd.DataFrame, params: Iterable[str] | None = None) -> list[str]:
    """Describe the hyperparameters in which rows differ, in a line per row.

    Args:
        params: paths of the hyperparameters; all by default.
    """
    names = differing_columns(trials, params, len(trials.columns))
    return [f"{trial_name(row)}: "
            + ", ".join(f"{name.removeprefix(PARAM_PREFIX)} {format_value(row[name])}"
                        for name in names if _text(row[name]) != "")
            for _, row in trials.iterrows() if names]


def trial_name(row: Any, prefix: str = "trial ") -> str:
    """Number and label of a row's trial."""
    return f"{prefix}{row['trial']}" + (f" ({row['label']})" if isinstance(row["label"], str)
                                        else "")



def differing_columns(trials: pd.DataFrame, params: Iterable[str] | None = None,
                      max_columns: int = 6) -> list[str]:
    """Columns of hyperparameters in which ``trials`` differ, at most ``max_columns``.

    Args:
        params: paths of the hyperparameters; all by default.
    """
    names = [name for name in trials.columns if name.startswith(PARAM_PREFIX)]
    if params is not None:
        selected = set(params)
        names = [name for name in names if name.removeprefix(PARAM_PREFIX) in selected]
    return [name for name in names if trials[name].astype(str).nunique() > 1][:max_columns]


def format_cell(row: Any, name: str) -> str:
    """Format a cell as a number, or as a mean with its interval and number of seeds."""
    half_width = row.get(name + HALF_WIDTH_SUFFIX)
    if half_width is None or pd.isna(half_width):
        return format_number(row[name], name)
    return format_mean(float(row[name]), float(half_width), int(row["seeds"]))


def format_number(value: Any, name: str) -> str:
    """Format a value: costs as integers, loads to three digits, metrics to two."""
    if value is None or pd.isna(value):
        return ""
    group = name.partition(".")[0]
    if group in ("params", "macs", "flops", "memory", "artifact"):
        return f"{int(value):,}"
    if name.endswith("seconds"):
        return f"{value:.1f}"
    return f"{value:.3g}" if group == "load" else f"{value:.2f}"


def summarize_trial(row: Any, columns: Mapping[str, str]) -> str:
    """Summarize a row in a line: trial and values of ``columns`` (column to label)."""
    return "; ".join([trial_name(row),
                      *(f"{label} {format_cell(row, column)}"
                        for column, label in columns.items())])


def _build_row(record: Record, objectives: Mapping[str, str]) -> dict[str, Any]:
    row = {key: record.get(key)
           for key in ("trial", "state", "label")} | {"id": record.get("architecture")}
    row |= {key: record.get(key) for key in ("is_feasible", "is_in_space")}
    row |= {name: get_score(record, name) if name in METRIC_COLUMNS or name in TEST_METRIC_COLUMNS
            else get_cost(record, name) for name in _names(objectives)}
    row |= {column: record.get(key)
            for column, key in TRAINING_COLUMNS.items()} | early_measurements(record)
    row["rung_loss"] = (record.get("rungs") or [{}])[-1].get("loss")  # of the last reached rung
    recipe_params = {RECIPE_PREFIX + key: value
                     for key, value in (record.get("recipe_params") or {}).items()}
    config = {**(record.get("config") or {}), **recipe_params}
    return row | {PARAM_PREFIX + path: _text(value) for path, value in config.items()}


def _names(objectives: Mapping[str, str]) -> list[str]:
    return list(dict.fromkeys([*objectives, *METRIC_COLUMNS, *TEST_METRIC_COLUMNS, *COST_COLUMNS]))


def _text(value: Any) -> Any:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    return str(value) if isinstance(value, list | dict) else value
