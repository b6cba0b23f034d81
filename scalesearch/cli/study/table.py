"""``scalesearch study table``: the named architectures of a study, with their differences to one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from scalesearch.cli.options import json_option, need, print_json
from scalesearch.terminal import make_table, say

if TYPE_CHECKING:
    from rich.console import Console

    from scalesearch.report.ablation import Ablation
    from scalesearch.study.results.results import Results

@click.command()
@click.argument("study", metavar="STUDY_OR_FOLDER")
@click.option("--base", metavar="NAME", help="The row to compare with; the base or the first, if not given.")
@click.option("--metric", metavar="NAME", help="The score, if not the task's main metric.")
@click.option("--confidence", type=click.FloatRange(0.5, 0.9999), default=0.9, show_default=True,
              help="Of the intervals of the differences.")
@click.option("--to", type=click.Path(path_type=Path), help="Folder for table.md, .csv and .tex, if not the study's.")
@json_option
def table(study: str, base: str | None, metric: str | None, confidence: float, to: Path | None,
          as_json: bool) -> None:
    """The rows or references of a study as a table: exact cost, score over seeds, difference to the base."""
    need("pandas")
    from rich.console import Console

    from scalesearch.cli.study.show import load_study
    from scalesearch.study.results.results import main_metric
    from scalesearch.study.results.tables import table_of, write_table

    results = load_study(study, None)
    found = table_of(results, metric or main_metric(results), base, confidence)
    files = [str(file) for file in write_table(found, to or results.study.folder)]
    if as_json:
        print_json({**found.to_json(), "files": files})
        return
    show_table(results, found, Console())
    click.echo(f"Written: {', '.join(files)}")


def show_table(results: Results, found: Ablation, console: Console) -> None:
    """Prints it, with what its numbers mean."""
    rows, texts = "References" if results.study.meta.rows is None else "Rows", found.texts()
    cells = texts.itertuples(index=False)
    say(make_table(texts.columns, cells, title=f"{rows} of {results.study.meta.name}"), console)
    for line in found.notes():
        say(line, console)
