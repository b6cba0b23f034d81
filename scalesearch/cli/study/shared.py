"""What the verbs that read a study share: its folder, its front for people, all of it for machines."""

from __future__ import annotations

import functools
import gc
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.errors import UserError
from scalesearch.terminal import make_table, open_console, print_text, wide_console

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from scalesearch.report.ablation import Ablation
    from scalesearch.report.scaling.study import ScalingStudy
    from scalesearch.study.results.results import Results
    from scalesearch.study.trials.trial import Trial


# finished candidates of which `study status` still says how early measurements rank them
MAX_TRIALS_FOR_PROXIES = 2000

# -- finding a study


def with_results(command_function: Callable[..., None]) -> Any:
    """Arguments of a verb that reads a study: it is called with the study's ``results``."""

    @functools.wraps(command_function)
    def read(study: str, out: Path | None, **options: Any) -> None:
        # hardly any of what is loaded and drawn is garbage: a tenth less time
        gc.set_threshold(50_000, 20, 100)
        command_function(load_study(study, out), **options)

    return study_argument(read)


def study_argument(command_function: Any) -> Any:
    """STUDY_OR_FOLDER and ``--out``."""
    command_function = click.option("--out", type=click.Path(path_type=Path),
                                    help="The study's folder, if not runs/NAME.")(command_function)
    return click.argument("study", metavar="STUDY_OR_FOLDER")(command_function)


def load_study(study: str, out: Path | None = None) -> Results:
    """The results of a study's folder, or of a study file's."""
    from scalesearch.study.results.results import load_results

    return load_results(find_study_folder(study, out))


def find_study_folder(study: str, out: Path | None) -> Path:
    """The study's folder: the one that is given, or where the study file STUDY puts it.

    Raises:
        UserError: there is neither.
    """
    folder = Path(study)
    if folder.exists() and not folder.is_file():
        return folder
    from scalesearch.library import find_file
    from scalesearch.study.config.reader import read_study

    try:
        file = find_file(study, "studies")
    except UserError as error:
        raise UserError(f"{error}. Nor is there a study's folder {study}, or not yet",
                        code="no-study") from None
    return out or read_study(file).out


# -- for people


def snapshot_console() -> Console:
    """A console for a screen that is printed once: as wide as the terminal, in a pipe wide enough for whole lines."""
    console = open_console()
    return console if console.is_terminal or "COLUMNS" in os.environ else wide_console()


def print_front(results: Results, console: Console) -> None:
    from scalesearch.api.frames import front_parts

    for part in front_parts(results):
        print_text(part, console)


def print_trial(results: Results, number: int, console: Console) -> None:
    """Prints everything of one trial."""
    from scalesearch.report.labels import describe_costs
    from scalesearch.space.binding.config_reader import flatten

    trial = get_trial(results, number)
    record = results.study.record(trial) or {}
    again = [f"{one.number} (seed {one.seed}, {one.state})"
             for one in results.study.trials.replicates() if one.original == number]
    facts = {"state": trial.state, "origin": trial.origin, "label": trial.label,
             "repeats trial": trial.original,
             "on the front": "yes" if number in set(results.front["trial"]) else "no",
             "reason": trial.reason, "architecture": trial.architecture, "seed": record.get("seed"),
             "replicates": ", ".join(again),
             **{name: record.get(name)
                for name in ("device", "dtype", "tokens", "seconds", "total_seconds")}}
    violated = {f"misses {name}": f"{miss:.3g}"
                for name, miss in trial.constraints.items() if miss > 0}
    scores = {**(trial.values or {}), **dict(flatten(record.get("metrics") or {}))}
    rungs = {f"rung {at}": f"loss {rung.loss:.4g}"
             + (f" after {rung.step:,} updates" if rung.step else "")
             for at, rung in enumerate(trial.rungs, 1)}
    for title, rows in (("Trial", facts | violated), ("Scores", scores), ("Costs", trial.costs),
                        ("Rungs", rungs), ("Hyperparameters", trial.params or trial.config),
                        ("Recipe", trial.recipe_params)):
        cells = [(name,
                  f"{value:,}" if isinstance(value, int) and not isinstance(value, bool)
                  else f"{value:,.6g}" if isinstance(value, float) else value)
                 for name, value in rows.items() if value not in (None, "")]
        if cells:
            print_text(make_table((f"{title} {number}" if title == "Trial" else title, ""), cells,
                                  (0, 1)), console)
    print_text(describe_costs(results.study.meta.protocol), console)
    folder = results.study.trial_folder(trial)
    print_text(f"Files: {folder}" if folder.is_dir() else "It has no files.", console)


def get_trial(results: Results, number: int) -> Trial:
    """Trial ``number`` of a study. Raises UserError where there is none."""
    trial = results.study.trials.get(number)
    if trial is None:
        raise UserError(f"{results.study.folder}: there is no trial {number}; it has "
                        f"{len(results.study.trials)}, counted from 0", code="no-such-trial")
    return trial


def print_proxies(results: Results, console: Console) -> None:
    if len(results.finished) > MAX_TRIALS_FOR_PROXIES:  # each of their records would be read
        print_text("Whether early measurements rank the candidates: see `scalesearch study "
                   "report`, or status --json", console)
        return
    for line in results.proxies().lines():
        print_text(line, console)


def print_ablation(results: Results, table: Ablation, console: Console | None = None) -> None:
    """Prints the table of a study's rows, with what its numbers mean."""
    from scalesearch.api.display import frame_to_table

    kind = "References" if results.study.meta.architectures is None else "Rows"
    print_text(frame_to_table(table.format_cells(), title=f"{kind} of {results.study.meta.name}"),
               console)
    for line in table.notes():
        print_text(line, console)


def print_scaling(study: ScalingStudy, console: Console | None = None) -> None:
    """Prints the tables of a scaling study, with what their numbers mean."""
    from scalesearch.api.display import frame_to_table
    from scalesearch.report.scaling.tables import notes, scaling_tables

    for sheet in scaling_tables(study):
        print_text(frame_to_table(sheet.cells, left_columns=range(sheet.n_left_aligned), title=sheet.title,
                                  has_box=True), console)
        for line in sheet.footnotes:
            print_text(line, console)
    for line in notes(study):
        print_text(line, console)


def print_written_files(files: Iterable[Path], console: Console | None = None) -> None:
    """Says which files were written."""
    print_text(f"Written: {', '.join(map(str, files))}", console)


# -- for machines


def add_lost_column(results: Results, trials: pd.DataFrame) -> pd.DataFrame:
    """``trials``, each saying whether its trial has lost its record: ``lost``."""
    return trials.assign(lost=trials["trial"].isin(results.trials_without_record))


def trials_to_json(results: Results, trials: pd.DataFrame) -> list[dict[str, Any]]:
    """``trials`` as JSON values."""
    found: list[dict[str, Any]] = json.loads(
        add_lost_column(results, trials).to_json(orient="records"))
    return found


def results_to_json(results: Results) -> dict[str, Any]:
    volume = results.hypervolume()
    meta = results.study.meta
    return {"study": meta.name, "folder": str(results.study.folder),
            "objectives": results.objectives, "protocol": meta.protocol,
            "data": meta.to_json()["data"], "synthetic": meta.synthetic,
            "bleu_signature": results.signature, "seed": meta.seed,
            "seeds": results.seed_analysis.to_json(), "teacher": results.teacher,
            "lost": results.trials_without_record,
            "counts": dict(Counter(str(trial.state)
                                   for trial in results.study.trials.candidates()).most_common()),
            "front": trials_to_json(results, results.front), "proxies": results.proxies().to_json(),
            "hypervolume": None if volume is None else {"value": volume[0], "reference_point": volume[1]}}
