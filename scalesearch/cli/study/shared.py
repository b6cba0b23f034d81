"""Functions that several study commands share: loading, tables and JSON."""

from __future__ import annotations

import functools
import gc
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from scalesearch.cli.options import complete_study
from scalesearch.errors import UserError
from scalesearch.spaces.syntax.diagnostics import closest_match
from scalesearch.spaces.syntax.parameters import format_constant
from scalesearch.terminal import format_count, make_table, open_console, print_text, wide_console

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from scalesearch.report.ablation import Ablation
    from scalesearch.report.scaling.study import ScalingStudy
    from scalesearch.studies.config.sections import Seeds
    from scalesearch.studies.replicates.summary import SeedAnalysis
    from scalesearch.studies.results.results import Results

MAX_TRIALS_FOR_PROXIES = 2000  # with more finished trials, status does not correlate proxies

# -- finding a study


def with_results(command_function: Callable[..., None]) -> Any:
    """Add the arguments of a study to a command, and pass it the ``results``."""

    @functools.wraps(command_function)
    def read(study: str, out: Path | None, **options: Any) -> None:
        # Collect garbage less often: this saves a tenth of the time.
        gc.set_threshold(50_000, 20, 100)
        command_function(load_study(study, out), **options)

    return study_argument(read)


def study_argument(command_function: Any) -> Any:
    """Add STUDY_OR_FOLDER and ``--out`` to a command."""
    out_option = click.option("--out", type=click.Path(path_type=Path),
                              help="Folder of the study (default: runs/NAME).")
    argument = click.argument("study", metavar="STUDY_OR_FOLDER", shell_complete=complete_study)
    return argument(out_option(command_function))


def load_study(study: str, out: Path | None = None) -> Results:
    """Load the results of a study folder, or of the study of a file."""
    from scalesearch.studies.results.results import load_results

    return load_results(find_study_folder(study, out))


def find_study_folder(study: str, out: Path | None) -> Path:
    """Return the folder of a study.

    ``study`` may be the folder, the name of a study under ``runs``, or a study file.

    Raises:
        UserError: there is neither a folder nor a study file.
    """
    folder = Path(study)
    if os.path.exists(folder) and not folder.is_file():
        return folder
    from scalesearch.library import find_file
    from scalesearch.studies.config.command import started_study_folder
    from scalesearch.studies.config.reader import read_study

    if out is None and (started_folder := started_study_folder(f"runs/{study}")):
        return started_folder
    try:
        file = find_file(study, "studies")
    except UserError as error:
        near = closest_match(folder.name, sorted(path.name for path in folder.parent.glob("*/")))
        raise UserError(f"found neither a study folder {study} nor a study file: {error}",
                        help=f"did you mean the folder {folder.parent / near}?" if near else None,
                        code="no-study") from None
    return out or read_study(file).out


# -- tables


def snapshot_console() -> Console:
    """Return a console as wide as the terminal, or wide enough for full lines."""
    console = open_console()
    return console if console.is_terminal or "COLUMNS" in os.environ else wide_console()


def print_front(results: Results, console: Console) -> None:
    from scalesearch.studies.results.publish import front_parts

    for part in front_parts(results):
        print_text(part, console)


def print_trial(results: Results, number: int, console: Console) -> None:
    """Print all information about one trial."""
    from scalesearch.files import flatten
    from scalesearch.report.labels import describe_costs
    from scalesearch.report.records import LOSS_UNITS, validation_loss_name
    from scalesearch.report.table import TIME_HEADINGS, TRAINING_COLUMNS
    from scalesearch.spaces.schema.builtin import resolve_params
    from scalesearch.studies.forecast import read_gain
    from scalesearch.studies.monitor.format import format_phases
    from scalesearch.studies.monitor.running import running_trial
    from scalesearch.studies.trials.trial import Origin, State

    trial = results.trial(number)
    protocol = results.study.meta.protocol
    record = results.study.record(trial) or {}
    replicates = [f"{replicate.number} (seed {replicate.seed}, {replicate.state})"
                  for replicate in results.study.trials.replicates()
                  if replicate.original == number]
    pause = ""
    if trial.state == State.PAUSED:
        costs = {name: direction for name, direction in results.objectives.items()
                 if name in trial.costs}
        pause = results.study.trials.describe_pause(trial, costs)
        gain = read_gain(results.study.folder)
        if gain and gain.new is not None and str(number) in gain.paused:
            pause += (f"; expected hypervolume improvement per full-budget run "
                      f"{gain.paused[str(number)]:.3g}, {gain.new:.3g} for the best new candidate")
    origin = (results.study.meta.architecture_noun if trial.origin == Origin.REFERENCE
              else trial.origin)
    status = (f" ({running_trial(results.study, trial).status})" if trial.state == State.PENDING
              else "")  # the status of the table of `study status`
    facts = {"state": f"{trial.state}{status}", "origin": origin, "label": trial.label,
             "replicate of trial": trial.original,
             "on the front": "yes" if number in set(results.front["trial"]) else "no",
             "reason": trial.reason or pause, "architecture": trial.architecture,
             "seed": record.get("seed"),
             "replicates": ", ".join(replicates),
             **{name: record.get(name) for name in ("device", "dtype", "tokens")},
             **{heading: record.get(TRAINING_COLUMNS[column])
                for column, heading in TIME_HEADINGS.items()}}
    violations = {f"violates {name} by": f"{violation:.3g}"
                  for name, violation in trial.constraints.items() if violation > 0}
    values = {name: value for name, value in (trial.values or {}).items()
              if name not in trial.costs}
    scores = {**values, **dict(flatten(record.get("metrics") or {}))}
    prefix = "validation_"  # further scores of the split that the others use as well
    repeated = {name for name in scores if name.startswith(prefix)
                and scores[name] == scores.get(name.removeprefix(prefix))}
    if not scores.get("synthetic"):
        repeated.add("synthetic")
    scores = {name: value for name, value in scores.items() if name not in repeated}
    of_seed = f", seed {record.get('seed')}" if replicates else ""
    (replicated,) = results.view.with_replicates([trial])
    means = {f"{name}, mean of {replicated.completed_seeds} seeds": replicated.mean(name)
             for name in values} if replicated.completed_seeds > 1 else {}
    loss_unit = LOSS_UNITS[validation_loss_name(trial.config)]
    rungs = {f"rung {index}": f"loss {rung.loss:.4g} {loss_unit}"
             + (f" after {format_count(rung.step, 'update')}" if rung.step else "")
             for index, rung in enumerate(trial.rungs, 1)}
    for title, rows in (("Trial", facts | violations), (f"Scores{of_seed}", scores),
                        ("Means", means), ("Costs", trial.costs),
                        ("Wall-clock time", format_phases(trial.phases) if trial.phases else {}),
                        ("Rungs", rungs),
                        ("Hyperparameters", resolve_params(trial.params, trial.config)),
                        ("Recipe", trial.recipe_params)):
        cells = [(name, _format_value(value), _unit(name, protocol))
                 for name, value in rows.items() if value not in (None, "")]
        n_columns = 3 if title in ("Means", "Costs") or title.startswith("Scores") else 2
        if cells:
            title = f"{title} {number}" if title == "Trial" else title
            print_text(make_table((title, "", "")[:n_columns],
                                  [row[:n_columns] for row in cells], (0, 1, 2)), console)
    print_text(describe_costs(protocol), console)
    folder = results.study.trial_folder(trial)
    print_text(f"Files: {folder}" if folder.is_dir() else "No files.", console)


def _unit(name: str, protocol: Mapping[str, Any]) -> str:
    """Unit of a score or cost; empty if it repeats the name."""
    from scalesearch.report.labels import column_unit

    name = name.partition(",")[0]  # bleu, mean of 2 seeds
    unit = column_unit(name, protocol)
    return "" if unit.lower().replace(" ", "_") == name.removeprefix("test.") else unit


def _format_value(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:,.6g}" if isinstance(value, float) else format_constant(value)


def print_proxies(results: Results, console: Console) -> None:
    if len(results.view.completed) > MAX_TRIALS_FOR_PROXIES:  # records of all trials would be read
        print_text("For rank correlations of early measurements, see `scalesearch study report` or "
                   "status --json", console)
        return
    for line in results.proxies().lines():
        print_text(line, console)


def print_ablation(results: Results, table: Ablation, console: Console | None = None) -> None:
    """Print the table of fixed architectures or references, with notes."""
    from scalesearch.report.text_tables import frame_to_table

    meta = results.study.meta
    subject = "References and front" if meta.architectures is None else "Architectures"
    print_text(frame_to_table(table.format_cells(), title=f"{subject} of {meta.name}"), console)
    for line in table.notes():
        print_text(line, console)


def print_scaling(study: ScalingStudy, console: Console | None = None) -> None:
    """Print the tables of a scaling study, with notes."""
    from scalesearch.report.scaling.tables import notes, scaling_tables
    from scalesearch.report.text_tables import frame_to_table

    for table in scaling_tables(study):
        print_text(frame_to_table(table.cells, left_columns=range(table.n_left_aligned),
                                  title=table.title, has_box=True), console)
        for line in table.footnotes:
            print_text(line, console)
    for line in notes(study):
        print_text(line, console)


def print_written_files(files: Iterable[Path], console: Console | None = None) -> None:
    """Print the paths of written files."""
    print_text(f"Written: {', '.join(map(str, files))}", console)


# -- JSON


def add_lost_column(results: Results, trials: pd.DataFrame) -> pd.DataFrame:
    """Add the column ``lost``: whether the record of a trial is lost."""
    return trials.assign(lost=trials["trial"].isin(results.trials_without_record))


def trials_to_json(results: Results, trials: pd.DataFrame) -> list[dict[str, Any]]:
    """Convert rows of a trials table to JSON values; an unset hyperparameter is None.

    Columns without a value are left out, except objectives.
    """
    import pandas as pd

    from scalesearch.report.table import PARAM_PREFIX, drop_empty_columns, with_integers

    def is_missing(key: str, value: Any) -> bool:
        return (value is pd.NA or (value == "" and key.startswith(PARAM_PREFIX))
                or (isinstance(value, float) and not math.isfinite(value)))

    table = add_lost_column(results, trials)
    kept = {*drop_empty_columns(table).columns, *results.objectives}
    table = with_integers(table[[name for name in table if name in kept]], results.table)
    # DataFrame.to_json would round to 10 decimals: a learning rate of 1e-5 would have few digits.
    rows: list[dict[str, Any]] = table.astype(object).to_dict("records")
    return [{key: None if is_missing(key, value) else value for key, value in row.items()}
            for row in rows]


def ablation_to_json(ablation: Ablation) -> dict[str, Any]:
    """Convert an ablation table to JSON values."""
    noise = ablation.noise
    return {"metric": ablation.metric, "base": ablation.rows[0].name,
            "confidence": ablation.confidence,
            "noise": {"sd": noise.sd, "df": noise.df} if noise.is_known else None,
            "rows": [asdict(row) for row in ablation.rows],
            "unfinished": list(ablation.unfinished)}


def seeds_to_json(seeds: Seeds) -> dict[str, float]:
    """Convert limits of further seeds to JSON values; ``references`` only if there are several."""
    return {name: value
            for name, value in asdict(seeds).items() if name != "references" or value > 1}


def seed_analysis_to_json(analysis: SeedAnalysis) -> dict[str, Any]:
    """Convert an analysis of seeds to JSON values; infinite or unknown values are None."""
    order = analysis.front_order
    known_noise = analysis.known_noise
    seeds = {candidate.number: candidate.completed_seeds for candidate in analysis.view.candidates}
    comparisons = [
        {"type": pair.type, "trials": [pair.first, pair.second],
         "seeds": [seeds[pair.first], seeds[pair.second]], "resolved": pair.is_resolved,
         "differences": {difference.objective: {"difference": difference.value,
                                                "half_width": difference.half_width}
                         for difference in pair.differences}}
        for pair in (order.comparisons if order and known_noise else ())]
    return {**seeds_to_json(analysis.seeds), "runs": len(analysis.replicates),
            "failed": sum(trial.state == "failed" for trial in analysis.replicates),
            "resolved": order.is_resolved if order and known_noise else None,
            "order_resolved": not order.ties() if order and known_noise else None,
            "level": order.level if order else None,
            "noise": {name: {"sd": noise.sd, "df": noise.df, "candidates": noise.n_candidates}
                      for name, noise in known_noise.items()},
            "comparisons": comparisons}


def results_to_json(results: Results) -> dict[str, Any]:
    """Convert the results of a study to JSON values."""
    hypervolume = None
    if (volume := results.hypervolume()) is not None:
        hypervolume = {"value": volume[0], "reference_point": volume[1]}
    meta = results.study.meta
    return {"study": meta.name, "folder": str(results.study.folder),
            "objectives": results.objectives, "protocol": meta.protocol,
            "data": msgspec.to_builtins(meta.data), "synthetic": meta.synthetic,
            "bleu_signature": results.signature, "seed": meta.seed,
            "seeds": seed_analysis_to_json(results.seed_analysis), "teacher": results.teacher,
            "lost": results.trials_without_record,
            "counts": dict(Counter(str(trial.state)
                                   for trial in results.study.trials.candidates()).most_common()),
            "front": trials_to_json(results, results.front), "proxies": asdict(results.proxies()),
            "hypervolume": hypervolume}
