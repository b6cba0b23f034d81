"""``scalesearch study compare A B``: two studies on one plot, with their hypervolumes and the difference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from scalesearch.cli.options import json_option, need, print_json
from scalesearch.errors import UserError

if TYPE_CHECKING:
    from scalesearch.report.compare import Comparison, Side
    from scalesearch.study.results.results import Results


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--to", type=click.Path(path_type=Path), help="Folder for the figures, as PNG and SVG.")
@click.option("--draws", type=click.IntRange(100), default=2000, show_default=True, help="Of the bootstrap.")
@click.option("--confidence", type=click.FloatRange(0.5, 0.9999), default=0.9, show_default=True,
              help="Of the interval of the difference.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the bootstrap.")
@json_option
def compare(first: str, second: str, to: Path | None, draws: int, confidence: float, seed: int,
            as_json: bool) -> None:
    """Compare the studies A and B (folders, or study files): fronts, hypervolumes, and the difference."""
    for package in ("pandas", "matplotlib"):
        need(package)
    from scalesearch.cli.study.show import load_study
    from scalesearch.report import compare as report

    results = (load_study(first, None), load_study(second, None))
    names = names_of(*results)
    sides = (_side(results[0], names[0]), _side(results[1], names[1]))
    found = report.compare(*sides, draws=draws, confidence=confidence, seed=seed)
    files = _figures(results[0], sides, found, to) if to else []
    if as_json:
        print_json({**found.to_json(), "files": [str(file) for file in files]})
        return
    for line in found.lines():
        click.echo(line)
    for file in files:
        click.echo(file)


def names_of(first: Results, second: Results) -> tuple[str, str]:
    """What to call two studies: by their names, or where these are the same by their folders."""
    one, other = str(first.study.meta.name), str(second.study.meta.name)
    if one != other:
        return one, other
    one, other = str(first.study.folder), str(second.study.folder)
    return (one, other) if one != other else (f"{one} (A)", f"{other} (B)")


def _side(results: Results, name: str) -> Side:
    from scalesearch.report.compare import Side
    from scalesearch.study.config.sections import describe_taught

    meta = results.study.meta
    return Side(name, results.table, results.objectives, meta.protocol, str(meta.data["hash"]), results.signature,
                meta.recipe, describe_taught(results.teacher) if results.teacher else "")


def _figures(results: Results, sides: tuple[Side, Side], found: Comparison, to: Path) -> list[Path]:
    """Quality against each cost that is an objective, or against the parameters where none is."""
    from scalesearch.report.compare import both
    from scalesearch.report.style import save
    from scalesearch.study.results.results import main_metric

    y, subject = main_metric(results), results.subject
    costs = [name for name in found.objectives if name != y and found.objectives[name] == "min"] or ["params.total"]
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--to {to}: {error.strerror or error}", code="cannot-write") from None
    corpus = subject.corpus + (" (synthetic)" if subject.synthetic else "")
    stems = [f"compare-{y}-vs-{x.removesuffix('.total')}".replace(".", "-") for x in costs]
    return [file for x, stem in zip(costs, stems) for file in save(both(sides, found, x, y, corpus), to / stem)]
