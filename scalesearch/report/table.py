"""Tables of a study's trials: data frames, and text cells for display."""

from collections.abc import Container, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from scalesearch.pareto.noise import CONFIDENCE, decimals_for_interval, pool_noise, sample_std
from scalesearch.report.labels import SIZE_COST_GROUPS, ProtocolDict, format_value, paper_heading
from scalesearch.report.records import Record, early_measurements, get_cost, get_score, is_replicate
from scalesearch.spaces.schema.bound_tree import SchemaIndex, build_index
from scalesearch.spaces.schema.builtin import architecture_schema
from scalesearch.spaces.schema.cost_names import COST_UNITS
from scalesearch.spaces.syntax.lexer import split_parameter_name
from scalesearch.tasks import COMMON_METRICS, EFFICIENCY_METRICS, METRICS, score_decimals
from scalesearch.terminal import decimals_for_digits, format_sizes

TEST_METRIC_COLUMNS = tuple(f"test.{name}" for name in METRICS if name not in EFFICIENCY_METRICS)
METRIC_COLUMNS = (*METRICS, *TEST_METRIC_COLUMNS)  # metrics of all tasks
COST_COLUMNS = ("params.total", "params.non_embedding", "params.decoder", "macs.total",
                "flops.total", "memory.weights", "memory.cache", "memory.activations")
# Column to key of the record. ``training_seconds`` (wall-clock time) and ``cpu_seconds`` cover the
# updates only; ``wall_seconds`` also covers validation and decoding.
TRAINING_COLUMNS = {"seed": "seed", "training_seconds": "seconds", "wall_seconds": "total_seconds",
                    "cpu_seconds": "cpu_seconds", "tokens": "tokens", "device": "device",
                    "dtype": "dtype", "reason": "reason"}
# Headings of the training time: CPU time, or wall-clock time of runs on a GPU.
TIME_HEADINGS = {"cpu_seconds": "update CPU seconds", "training_seconds": "update wall seconds"}
COUNT_GROUPS = (*SIZE_COST_GROUPS, "artifact")  # groups of costs that are integers
PARAM_PREFIX = "param."  # prefix of the columns of hyperparameters
RECIPE_PREFIX = "recipe."  # prefix of searched keys of the recipe
SD_SUFFIX = ".sd"  # suffix of a score's column for the standard deviation between seeds
HALF_WIDTH_SUFFIX = ".half_width"  # suffix of a score's column for half the interval of its mean


def trials_frame(records: Iterable[Record], objectives: Iterable[str],
                 front: Container[int] = (), confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Build the table of a study with a row per trial; replicates are averaged.

    Columns: trial, state, front, label, id, is_feasible, is_in_space; metrics; costs; data of the
    training run; rung_loss; early measurements under ``proxy.`` (see
    :mod:`scalesearch.report.proxies`); hyperparameters under ``param.``; seeds.

    Scores of a trial are means over ``seeds`` runs. Its other data (seed, seconds, tokens) belong
    to the first run. A score with known noise has two more columns: ``.sd`` is the sample standard
    deviation, missing for one seed. ``.half_width`` is half the interval of the mean, by the noise
    pooled over all trials; it also exists for trials with one seed.

    Args:
        records: all records of the study.
        front: numbers of the trials on the front.
        confidence: confidence level of the intervals of means.
    """
    objectives = tuple(objectives)
    names = value_columns(objectives)
    index = build_index(architecture_schema())
    rows = []
    replicates: dict[int, list[dict[str, Any]]] = {}  # complete replicates by repeated trial
    for record in records:
        row = run_row(record, objectives, index)
        if not is_replicate(record):
            rows.append(row)
        elif record["state"] == "complete":
            replicates.setdefault(record["original"], []).append(row)
    if not rows:
        return pd.DataFrame(columns=["trial", "state", "front", "label", "id", "is_feasible",
                                     "is_in_space", *names, *TRAINING_COLUMNS, "rung_loss",
                                     "seeds"])
    columns: dict[str, Any] = {}
    for name in merge_names(rows):
        # parameters are objects, because pandas converts 2 to 2.0 in a column with missing values
        columns[name] = (pd.Series([row.get(name, "") for row in rows], dtype=object)
                         if name.startswith(PARAM_PREFIX) else [row.get(name) for row in rows])
    runs = [[row, *replicates.get(row["trial"], ())] for row in rows]
    n_seeds = [len(group) if group[0]["state"] == "complete" else None for group in runs]
    columns["seeds"] = pd.array(n_seeds, dtype="Int64")
    for name in names if replicates else ():
        if name not in METRIC_COLUMNS:
            continue
        samples = [[float(run[name]) for run in group if pd.notna(run[name])]
                   if pd.notna(group[0][name]) else [] for group in runs]
        noise = pool_noise(samples)
        if noise.is_known:
            columns[name] = [float(np.mean(sample)) if sample else None for sample in samples]
            columns[name + SD_SUFFIX] = [sample_std(sample) for sample in samples]
            columns[name + HALF_WIDTH_SUFFIX] = [
                noise.interval_half_width(confidence, len(sample)) if sample and count else None
                for sample, count in zip(samples, n_seeds)]
    table = pd.DataFrame(columns)
    table.insert(2, "front", [number in front for number in table["trial"]])
    return table.sort_values("trial", kind="stable").reset_index(drop=True)


def merge_names(rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the names of all rows; each new one follows the name before it in its row.

    Example:
        >>> merge_names([["ffn", "relu.hidden", "depth"], ["ffn", "geglu.hidden", "depth"]])
        ['ffn', 'geglu.hidden', 'relu.hidden', 'depth']
    """
    merged: list[str] = []
    for row in rows:
        if {*merged}.issuperset(row):
            continue
        position = 0
        for name in row:
            if name in merged:
                position = merged.index(name)
            else:
                merged.insert(position, name)
            position += 1
    return merged


def value_columns(objectives: Iterable[str]) -> list[str]:
    """Return the columns of scores and costs: objectives first."""
    return list(dict.fromkeys([*objectives, *METRIC_COLUMNS, *COST_COLUMNS]))


def run_row(record: Record, objectives: Iterable[str], index: SchemaIndex) -> dict[str, Any]:
    """Return the columns of one training run.

    The columns of hyperparameters have the names of the space; ``index`` is that of its keys.
    """
    row = {key: record.get(key) for key in ("trial", "state", "label")}
    row |= {"id": record.get("architecture")}
    row |= {key: record.get(key) for key in ("is_feasible", "is_in_space")}
    row |= {name: get_score(record, name) if name in METRIC_COLUMNS else get_cost(record, name)
            for name in value_columns(objectives)}
    row |= {column: record.get(key) for column, key in TRAINING_COLUMNS.items()}
    row |= early_measurements(record)
    row["rung_loss"] = (record.get("rungs") or [{}])[-1].get("loss")  # of the last reached rung
    recipe_params = {RECIPE_PREFIX + key: value
                     for key, value in (record.get("recipe_params") or {}).items()}
    config = record.get("config") or {}
    names = index.parameter_names(config)
    for key, value in {**config, **recipe_params}.items():
        is_missing = not isinstance(value, list | dict) and pd.isna(value)
        row[PARAM_PREFIX + names.get(key, key)] = "" if is_missing else value
    return row


def with_integers(trials: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Convert the columns of counts of ``trials`` to integers, which may be missing.

    Pandas converts integers in a column with missing values to floats. ``table`` is the whole
    table, so that a selection of rows does not change the type. Counts of more than 63 bits are
    left as they are.
    """
    counts = [name for name in table.select_dtypes("number")
              if name in ("seed", "tokens") or name.partition(".")[0] in COUNT_GROUPS]
    return trials.astype({name: "Int64" for name in counts
                          if (table[name].dropna() % 1 == 0).all() and table[name].max() < 2**63})


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

    Columns: the trial, ``extra_columns``, objectives, test score, training time, and the
    searched parameters of the recipe, if any.
    """
    names = shown_columns(trials, objectives)
    recipe_columns = [name for name in trials if RECIPE_PREFIX in name]
    decimals = {name: column_decimals(trials, name) for name in names}
    cells = [[trial_name(row, ""), *(str(row[name]) for name in extra_columns),
              *(format_cell(row, name, decimals[name]) for name in names),
              *(format_value(row[name]) for name in recipe_columns)]
             for _, row in trials.iterrows()]
    headings = [TIME_HEADINGS.get(name) or name.replace(".", " ").replace("_", " ")
                + f" ({COST_UNITS.get(name)})" * (name in COST_UNITS) for name in names]
    return pd.DataFrame(cells, columns=["trial", *extra_columns, *headings,
                                        *(name.rpartition(RECIPE_PREFIX)[2]
                                          for name in recipe_columns)])


def format_for_paper(trials: pd.DataFrame, objectives: Mapping[str, str], *extra_columns: str,
                     protocol: ProtocolDict | None = None) -> pd.DataFrame:
    """Text cells as by :func:`format_trials`, with headings and units for a paper.

    Costs are in thousands, millions, …; the training time is left out.
    """
    table = format_trials(trials, objectives, *extra_columns)
    headings = ["Trial", *map(str.capitalize, extra_columns),
                *table.columns[1 + len(extra_columns):]]
    *names, _ = shown_columns(trials, objectives)
    for index, name in enumerate(names, 1 + len(extra_columns)):
        unit = ""
        if name.partition(".")[0] in COUNT_GROUPS:
            sizes, unit = format_sizes(trials[name].astype(float))
            table.isetitem(index, sizes)
        headings[index] = paper_heading(name, unit, protocol)
    time_index = 1 + len(extra_columns) + len(names)
    return table.set_axis(headings, axis="columns").drop(columns=headings[time_index])


def shown_columns(trials: pd.DataFrame, objectives: Mapping[str, str]) -> list[str]:
    """Columns of scores and costs to show: objectives, test score, training time."""
    return [*objectives, *shown_test_metrics(trials, objectives), shown_time_column(trials)]


def shown_test_metrics(trials: pd.DataFrame, objectives: Iterable[str]) -> list[str]:
    """Column of the test score to show, in a list; empty if no trial has a test score.

    It is that of the first objective that is a metric of the task, else any metric of the task.
    """
    names = dict.fromkeys([*(f"test.{name}" for name in objectives if name not in COMMON_METRICS),
                           *TEST_METRIC_COLUMNS])
    return [name for name in names if name in trials and trials[name].notna().any()][:1]


def shown_time_column(trials: pd.DataFrame) -> str:
    """Column of the training time to show: CPU time if all trials were trained on CPUs."""
    devices = trials["device"].dropna().astype(str)
    return "cpu_seconds" if devices.str.startswith("cpu").all() else "training_seconds"


def architecture_lines(trials: pd.DataFrame, params: Iterable[str]) -> list[str]:
    """Describe the hyperparameters ``params`` of each row, and those that all rows share."""
    columns = param_columns(trials, params)
    varying = [name for name in columns if trials[name].astype(str).nunique() > 1]
    rows = [(trial_name(row), row, varying) for _, row in trials.iterrows() if varying]
    if len(trials):
        first = trials.iloc[0]
        shared = [name for name in columns if name not in varying]
        rows.append((trial_name(first) if len(trials) == 1 else "all", first, shared))
    lines = []
    for heading, row, names in rows:
        texts = [f"{name.removeprefix(PARAM_PREFIX)} {format_value(row[name])}"
                 for name in names if row[name] not in ("", None)]
        if texts:
            lines.append(f"{heading}: {', '.join(texts)}")
    return lines


def trial_name(row: Any, prefix: str = "trial ") -> str:
    """Number and label of a row's trial."""
    label = f" ({row['label']})" if isinstance(row["label"], str) else ""
    return f"{prefix}{row['trial']}{label}"


def param_columns(trials: pd.DataFrame, params: Iterable[str] | None = None) -> list[str]:
    """Columns of hyperparameters.

    Args:
        params: paths of the hyperparameters; all by default.
    """
    names = [name for name in trials.columns if name.startswith(PARAM_PREFIX)]
    if params is None:
        return names
    selected = {split_parameter_name(name)[0] for name in params}
    return [name for name in names if name.removeprefix(PARAM_PREFIX) in selected]


def differing_columns(trials: pd.DataFrame, params: Iterable[str] | None = None,
                      max_columns: int | None = None) -> list[str]:
    """Columns of :func:`param_columns` in which ``trials`` differ, at most ``max_columns``."""
    names = param_columns(trials, params)
    return [name for name in names if trials[name].astype(str).nunique() > 1][:max_columns]


def column_decimals(trials: pd.DataFrame, name: str) -> int:
    """Decimals of a column of ``trials``: those of the mean with the narrowest interval."""
    half_widths = trials.get(name + HALF_WIDTH_SUFFIX)
    if half_widths is not None and half_widths.notna().any():
        return max(map(decimals_for_interval, half_widths.dropna()))
    if name.partition(".")[0] == "load":
        return decimals_for_digits(trials[name].abs().max(), 3)
    return number_decimals(name)


def number_decimals(name: str) -> int:
    """Decimals of a metric, or of seconds (one)."""
    return 1 if name.endswith("seconds") else score_decimals(name)


def format_cell(row: Any, name: str, decimals: int | None = None) -> str:
    """Format a number, or a mean with its interval and seeds: ``31.2 ± 0.4 (3)``.

    Args:
        row: row of a table of trials.
        name: column of the number.
        decimals: decimals of the column, if the number is part of one.
    """
    half_width = row.get(name + HALF_WIDTH_SUFFIX)
    if half_width is None or pd.isna(half_width):
        return format_number(row[name], name, decimals)
    if decimals is None:
        decimals = decimals_for_interval(half_width)
    return f"{row[name]:.{decimals}f} ± {half_width:.{decimals}f} ({int(row['seeds'])})"


def format_number(value: Any, name: str, decimals: int | None = None) -> str:
    """Format a value: costs as integers, loads to three digits.

    ``decimals`` replaces this number of decimals.
    """
    if value is None or pd.isna(value):
        return ""
    if decimals is None and name.partition(".")[0] == "load":
        return f"{value:.3g}"
    if name.partition(".")[0] in COUNT_GROUPS:
        return f"{int(value):,}"
    return f"{value:.{number_decimals(name) if decimals is None else decimals}f}"


def summarize_trial(row: Any, columns: Mapping[str, str]) -> str:
    """Summarize a row in a line: trial and values of ``columns`` (column to label)."""
    return "; ".join([trial_name(row),
                      *(f"{label} {format_cell(row, column)}"
                        for column, label in columns.items())])
