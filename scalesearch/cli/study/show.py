"""What the verbs that read a study share: its folder, its front for people, all of it for machines."""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import need
from scalesearch.errors import UserError
from scalesearch.terminal import make_table, open_console, say, wide_console

if TYPE_CHECKING:
    from rich.console import Console

    from scalesearch.report.ablation import Ablation
    from scalesearch.report.scaling.study import ScalingStudy
    from scalesearch.study.results.results import Results


MAX_PROXIES = 2000  # finished candidates of which `study status` still says how early measurements rank them

# -- finding a study


def reading(*packages: str) -> Callable[[Any], Any]:
    """Arguments of a verb that reads a study: it is called with the study's ``results``; ``packages`` are needed."""

    def decorate(verb: Callable[..., None]) -> Any:
        @functools.wraps(verb)
        def read(study: str, out: Path | None, **options: Any) -> None:
            need(*packages)
            verb(load_study(study, out), **options)

        return study_argument(read)

    return decorate


def study_argument(verb: Any) -> Any:
    """STUDY_OR_FOLDER and ``--out``."""
    verb = click.option("--out", type=click.Path(path_type=Path), help="The study's folder, if not runs/NAME.")(verb)
    return click.argument("study", metavar="STUDY_OR_FOLDER")(verb)


def load_study(study: str, out: Path | None = None) -> Results:
    """The results of a study's folder, or of a study file's."""
    from scalesearch.study.results.results import load

    return load(folder_of(study, out))


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
    from scalesearch.report.table import to_rich

    title = f"Front of {results.study.meta.name}: {len(results.front)} of {len(results.finished)} trained candidates"
    console.print(to_rich(results.front, results.objectives, title, results.params, console.width))
    for line in [*results.notes(), *results.verdict.sentences()]:
        say(line, console)
    if volume := results.hypervolume():
        corner = ", ".join(f"{name} {value:,.6g}" for name, value in zip(results.objectives, volume[1]))
        say(f"Hypervolume {volume[0]:.6g} against the reference point {corner}.", console)


def show_proxies(results: Results, console: Console) -> None:
    if len(results.finished) > MAX_PROXIES:  # each of their records would be read
        say("Whether early measurements rank the candidates: see `scalesearch study report`, or status --json", console)
        return
    for line in results.proxies().lines():
        say(line, console)


def show_table(results: Results, table: Ablation, console: Console | None = None) -> None:
    """Prints the table of a study's rows, with what its numbers mean."""
    kind, texts = "References" if results.study.meta.rows is None else "Rows", table.texts()
    cells = texts.itertuples(index=False)
    say(make_table(texts.columns, cells, title=f"{kind} of {results.study.meta.name}"), console)
    for line in table.notes():
        say(line, console)


def show_scaling(study: ScalingStudy, console: Console | None = None) -> None:
    """Prints the tables of a scaling study, with what their numbers mean."""
    from scalesearch.report.scaling.tables import notes, sheets

    for sheet in sheets(study):
        cells = sheet.texts.itertuples(index=False)
        say(make_table(sheet.texts.columns, cells, range(sheet.left), sheet.title, lines=True), console)
        for line in sheet.below:
            say(line, console)
    for line in notes(study):
        say(line, console)


def wrote(files: Iterable[Path], console: Console | None = None) -> None:
    """Says which files were written."""
    say(f"Written: {', '.join(map(str, files))}", console)


# -- for machines


def as_json_of(results: Results) -> dict[str, Any]:
    volume, meta = results.hypervolume(), results.study.meta
    return {
        "study": meta.name,
        "folder": str(results.study.folder),
        "objectives": results.objectives,
        "protocol": meta.protocol,
        "data": meta.to_json()["data"],
        "synthetic": meta.synthetic,
        "bleu_signature": results.signature,
        "seed": meta.seed,
        "seeds": results.verdict.to_json(),
        "teacher": results.teacher,
        "lost": results.lost,
        "counts": dict(Counter(str(trial.state) for trial in results.study.trials.candidates()).most_common()),
        "front": json.loads(results.front.to_json(orient="records")),
        "proxies": results.proxies().to_json(),
        "hypervolume": None if volume is None else {"value": volume[0], "reference": volume[1]},
    }
