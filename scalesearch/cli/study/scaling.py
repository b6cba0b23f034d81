"""``scalesearch study scaling``: how scores grow by each rule of a scaling study, and which rule to follow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import json_option, need, print_json
from scalesearch.errors import UserError
from scalesearch.terminal import make_table, say

if TYPE_CHECKING:
    from rich.console import Console

    from scalesearch.report.scaling.study import ScalingStudy


@click.command()
@click.argument("study", metavar="STUDY_OR_FOLDER")
@click.option("--metric", metavar="NAME", help="The score, if not the task's main metric; test.bleu for that of test.")
@click.option("--at", "places", multiple=True, metavar="COST=SIZE",
              help="Rank the rules there, as in params.total=2M; the budget, if not given. Repeatable.")
@click.option("--confidence", type=click.FloatRange(0.5, 0.9999), help="Of all intervals, if not the study's.")
@click.option("--to", type=click.Path(path_type=Path), help="Folder for tables and figures, if not the study's.")
@json_option
def scaling(study: str, metric: str | None, places: tuple[str, ...], confidence: float | None, to: Path | None,
            as_json: bool) -> None:
    """Laws, forecasts, score per million parameters and the rule to follow, of a scaling study."""
    for package in ("pandas", "matplotlib", "scipy"):
        need(package)
    from rich.console import Console

    from scalesearch.cli.study.show import load_study
    from scalesearch.report.scaling.tables import to_json
    from scalesearch.study.results.scaling import scaling_of, write_scaling

    at = [size_at(place) for place in places]
    results = load_study(study, None)
    found = scaling_of(results, metric, at, confidence)
    files = [str(file) for file in write_scaling(found, to or results.study.folder)]
    if as_json:
        print_json({**to_json(found), "files": files})
        return
    show_scaling(found, Console())
    click.echo(f"Written: {', '.join(files)}")


def show_scaling(found: ScalingStudy, console: Console) -> None:
    """Prints its tables, with what their numbers mean."""
    from scalesearch.report.scaling.tables import notes, sheets

    for sheet in sheets(found):
        cells = sheet.texts.itertuples(index=False)
        say(make_table(sheet.texts.columns, cells, range(sheet.left), sheet.title, lines=True), console)
        for line in sheet.below:
            say(line, console)
    for line in notes(found):
        say(line, console)


def size_at(text: str) -> tuple[str, float]:
    """``params.total=2M`` as a cost and a size.

    Raises:
        UserError: it is none.
    """
    from scalesearch.space.syntax.domains import Literal
    from scalesearch.space.syntax.lexer import SyntaxProblem
    from scalesearch.space.syntax.value_parser import parse_value

    cost, _, number = (part.strip() for part in text.partition("="))
    try:
        spec: Any = parse_value(number)
    except SyntaxProblem:
        spec = None
    value = spec.value if isinstance(spec, Literal) else None
    if not cost or isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise UserError(f"--at {text}: write COST=SIZE with a size above 0, for example --at params.total=2M or "
                        "--at macs.total=1.5G", code="not-cost-and-size")
    return cost, float(value)
