"""``scalesearch study table``: the named architectures of a study, with their differences to one of them."""

from __future__ import annotations

from pathlib import Path

import click

from scalesearch.cli.options import json_option, need, print_json


@click.command()
@click.argument("study", metavar="STUDY_OR_FOLDER")
@click.option("--base", metavar="NAME", help="The reference to compare with; the first, if not given.")
@click.option("--metric", metavar="NAME", help="The score, if not the task's main metric.")
@click.option("--confidence", type=click.FloatRange(0.5, 0.9999), default=0.9, show_default=True,
              help="Of the intervals of the differences.")
@click.option("--to", type=click.Path(path_type=Path), help="Folder for table.md, .csv and .tex, if not the study's.")
@json_option
def table(study: str, base: str | None, metric: str | None, confidence: float, to: Path | None,
          as_json: bool) -> None:
    """The references of a study as the table of an ablation: cost, score over seeds, difference to the base."""
    need("pandas")
    from rich.console import Console
    from rich.table import Table

    from scalesearch.cli.study import _load
    from scalesearch.files import write_text
    from scalesearch.report.ablation import ablation, to_latex, to_markdown
    from scalesearch.study.record import rejected_record
    from scalesearch.study.results import main_metric

    results = _load(study, None)
    store = results.store
    records = [store.record(trial) or rejected_record(trial) for trial in store.ledger.trials.values()]
    found = ablation(records, metric or main_metric(results), base, confidence)
    folder, files = to or store.folder, []
    for name, text in (("table.md", to_markdown(found)), ("table.csv", found.frame().to_csv(index=False)),
                       ("table.tex", to_latex(found))):
        write_text(folder / name, text)
        files.append(str(folder / name))
    if as_json:
        print_json({**found.to_json(), "files": files})
        return
    shown = Table(title=f"References of {store.meta['name']}", title_justify="left")
    for number, heading in enumerate(found.headings()):
        shown.add_column(heading, justify="right" if number else "left")
    for cells in found.cells():
        shown.add_row(*cells)
    console = Console()
    console.print(shown)
    for line in (*found.notes(), f"Written: {', '.join(files)}"):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
