"""What the verbs that read a study share: its folder, its front for people, all of it for machines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.errors import UserError
from scalesearch.terminal import wide_console

if TYPE_CHECKING:
    from rich.console import Console

    from scalesearch.study.results.results import Results


def console_for_once() -> Console:
    """A console for a screen that is printed once: as wide as the terminal, in a pipe wide enough for whole lines."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else wide_console()


def show_front(results: Results, console: Console) -> None:
    from scalesearch.report.table import to_rich

    finished = int((results.table["state"] == "complete").sum())
    title = f"Front of {results.study.meta.name}: {len(results.front)} of {finished} trained candidates"
    console.print(to_rich(results.front, results.objectives, title, results.params, console.width))
    for line in [*results.notes(), *results.verdict.sentences()]:
        console.print(line, highlight=False, soft_wrap=True)
    found = results.hypervolume()
    if found:
        corner = ", ".join(f"{name} {value:,.6g}" for name, value in zip(results.objectives, found[1]))
        console.print(f"Hypervolume {found[0]:.6g} against the reference point {corner}.", highlight=False)


def show_proxies(results: Results, console: Console) -> None:
    for line in results.proxies().lines():
        console.print(line, highlight=False, soft_wrap=True)


def as_json_of(results: Results) -> dict[str, Any]:
    import json

    found = results.hypervolume()
    return {
        "study": results.study.meta.name,
        "folder": str(results.study.folder),
        "objectives": results.objectives,
        "protocol": results.study.meta.protocol,
        "data": results.study.meta.data,
        "synthetic": results.study.meta.synthetic,
        "bleu_signature": results.signature,
        "seed": results.study.meta.seed,
        "seeds": results.verdict.to_json(),
        "teacher": results.teacher,
        "counts": results.table["state"].value_counts().to_dict(),
        "front": json.loads(results.front.to_json(orient="records")),
        "proxies": results.proxies().to_json(),
        "hypervolume": None if found is None else {"value": found[0], "reference": found[1]},
    }


def load_study(study: str, out: Path | None) -> Results:
    """The results of a study's folder, or of a study file's."""
    from scalesearch.study.results.results import load

    return load(folder_of(study, out))


def folder_of(study: str, out: Path | None) -> Path:
    """The study's folder: the one that is given, or where the study file STUDY puts it.

    Raises:
        UserError: there is neither.
    """
    folder = Path(study)
    if folder.is_file() or not folder.exists():
        from scalesearch.library import find_file
        from scalesearch.study.config.reader import read_study

        try:
            file = find_file(study, "studies")
        except UserError as error:
            raise UserError(f"{error}. Nor is there a study's folder {study}, or not yet", code="no-study") from None
        folder = out or read_study(file).out
    return folder


def reading(verb: Any) -> Any:
    """The arguments of the verbs that read."""
    verb = click.option("--out", type=click.Path(path_type=Path), help="The study's folder, if not runs/NAME.")(verb)
    return click.argument("study", metavar="STUDY_OR_FOLDER")(verb)
