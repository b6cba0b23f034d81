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


MAX_PROXIES = 2000  # finished candidates of which `study status` still says how early measurements rank them

# -- finding a study


def reading(verb: Callable[..., None]) -> Any:
    """Arguments of a verb that reads a study: it is called with the study's ``results``."""

    @functools.wraps(verb)
    def read(study: str, out: Path | None, **options: Any) -> None:
        gc.set_threshold(50_000, 20, 100)  # hardly any of what is loaded and drawn is garbage: a tenth less time
        verb(load_study(study, out), **options)

    return study_argument(read)


def study_argument(verb: Any) -> Any:
    """STUDY_OR_FOLDER and ``--out``."""
    verb = click.option("--out", type=click.Path(path_type=Path), help="The study's folder, if not runs/NAME.")(verb)
    return click.argument("study", metavar="STUDY_OR_FOLDER")(verb)


def load_study(study: str, out: Path | None = None) -> Results:
    """The results of a study's folder, or of a study file's."""
    from scalesearch.study.results.results import load_results

    return load_results(folder_of(study, out))


def folder_of(study: str, out: Path | None) -> Path:
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
        raise UserError(f"{error}. Nor is there a study's folder {study}, or not yet", code="no-study") from None
    return out or read_study(file).out


# -- for people


def console_for_once() -> Console:
    """A console for a screen that is printed once: as wide as the terminal, in a pipe wide enough for whole lines."""
    console = open_console()
    return console if console.is_terminal or "COLUMNS" in os.environ else wide_console()


def show_front(results: Results, console: Console) -> None:
    from scalesearch.api.frames import front_parts

    for part in front_parts(results):
        print_text(part, console)


def show_trial(results: Results, number: int, console: Console) -> None:
    """Prints everything of one trial."""
    from scalesearch.report.labels import costs_line
    from scalesearch.space.binding.config_reader import flatten

    trial = trial_of(results, number)
    record = results.study.record(trial) or {}
    again = [f"{one.number} (seed {one.seed}, {one.state})" for one in results.study.trials.replicates()
             if one.original == number]
    facts = {"state": trial.state, "origin": trial.origin, "label": trial.label, "repeats trial": trial.original,
             "on the front": "yes" if number in set(results.front["trial"]) else "no", "reason": trial.reason,
             "architecture": trial.architecture, "seed": record.get("seed"), "replicates": ", ".join(again),
             **{name: record.get(name) for name in ("device", "dtype", "tokens", "seconds", "total_seconds")}}
    violated = {f"misses {name}": f"{miss:.3g}" for name, miss in trial.constraints.items() if miss > 0}
    scores = {**(trial.values or {}), **dict(flatten(record.get("metrics") or {}))}
    rungs = {f"rung {at}": f"loss {rung.loss:.4g}" + (f" after {rung.step:,} updates" if rung.step else "")
             for at, rung in enumerate(trial.rungs, 1)}
    for title, rows in (("Trial", facts | violated), ("Scores", scores), ("Costs", trial.costs), ("Rungs", rungs),
                        ("Hyperparameters", trial.params or trial.config), ("Recipe", trial.recipe_params)):
        cells = [(name, f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else
                  f"{value:,.6g}" if isinstance(value, float) else value) for name, value in rows.items()
                 if value not in (None, "")]
        if cells:
            print_text(make_table((f"{title} {number}" if title == "Trial" else title, ""), cells, (0, 1)), console)
    print_text(costs_line(results.study.meta.protocol), console)
    folder = results.study.trial_folder(trial)
    print_text(f"Files: {folder}" if folder.is_dir() else "It has no files.", console)


def trial_of(results: Results, number: int) -> Trial:
    """Trial ``number`` of a study. Raises UserError where there is none."""
    trial = results.study.trials.get(number)
    if trial is None:
        raise UserError(f"{results.study.folder}: there is no trial {number}; it has {len(results.study.trials)}, "
                        "counted from 0", code="no-such-trial")
    return trial


def show_proxies(results: Results, console: Console) -> None:
    if len(results.finished) > MAX_PROXIES:  # each of their records would be read
        print_text("Whether early measurements rank the candidates: see `scalesearch study report`, or status --json", console)
        return
    for line in results.proxies().lines():
        print_text(line, console)


def show_table(results: Results, table: Ablation, console: Console | None = None) -> None:
    """Prints the table of a study's rows, with what its numbers mean."""
    from scalesearch.api.html import as_table

    kind = "References" if results.study.meta.architectures is None else "Rows"
    print_text(as_table(table.texts(), title=f"{kind} of {results.study.meta.name}"), console)
    for line in table.notes():
        print_text(line, console)


def show_scaling(study: ScalingStudy, console: Console | None = None) -> None:
    """Prints the tables of a scaling study, with what their numbers mean."""
    from scalesearch.api.html import as_table
    from scalesearch.report.scaling.tables import notes, sheets

    for sheet in sheets(study):
        print_text(as_table(sheet.texts, left=range(sheet.left), title=sheet.title, lines=True), console)
        for line in sheet.below:
            print_text(line, console)
    for line in notes(study):
        print_text(line, console)


def wrote(files: Iterable[Path], console: Console | None = None) -> None:
    """Says which files were written."""
    print_text(f"Written: {', '.join(map(str, files))}", console)


# -- for machines


def with_lost(results: Results, rows: pd.DataFrame) -> pd.DataFrame:
    """``rows``, each saying whether its trial has lost its record: ``lost``."""
    return rows.assign(lost=rows["trial"].isin(results.trials_without_record))


def rows_json(results: Results, rows: pd.DataFrame) -> list[dict[str, Any]]:
    """``rows`` as JSON values."""
    found: list[dict[str, Any]] = json.loads(with_lost(results, rows).to_json(orient="records"))
    return found


def as_json_of(results: Results) -> dict[str, Any]:
    volume, meta = results.hypervolume(), results.study.meta
    return {"study": meta.name, "folder": str(results.study.folder), "objectives": results.objectives,
            "protocol": meta.protocol, "data": meta.to_json()["data"], "synthetic": meta.synthetic,
            "bleu_signature": results.signature, "seed": meta.seed, "seeds": results.seed_analysis.to_json(),
            "teacher": results.teacher, "lost": results.trials_without_record,
            "counts": dict(Counter(str(trial.state) for trial in results.study.trials.candidates()).most_common()),
            "front": rows_json(results, results.front), "proxies": results.proxies().to_json(),
            "hypervolume": None if volume is None else {"value": volume[0], "reference": volume[1]}}
