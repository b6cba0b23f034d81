"""``study table``, ``study scaling``, ``study compare``: rows, rules and whole studies, set side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.blocks.sizes import is_number
from scalesearch.cli.options import OutputPath, json_option, print_json, seed_option
from scalesearch.cli.study.shared import print_ablation, print_scaling, print_written_files, with_results
from scalesearch.errors import UserError
from scalesearch.terminal import print_text

if TYPE_CHECKING:
    from scalesearch.report.compare import ComparedStudy, StudyComparison
    from scalesearch.study.results.results import Results


@click.command()
@with_results
@click.option("--base", metavar="NAME",
              help="The row to compare with; the base or the first, if not given.")
@click.option("--metric", metavar="NAME", help="The score, if not the task's main metric.")
@click.option("--confidence", type=click.FloatRange(0.5, 0.9999), default=0.9, show_default=True,
              help="Of the intervals of the differences.")
@click.option("--to", type=OutputPath(is_folder=True),
              help="Folder for table.md, .csv and .tex, if not the study's.")
@json_option
def table(results: Results, base: str | None, metric: str | None, confidence: float,
          to: Path | None, as_json: bool) -> None:
    """The rows or references of a study as a table: exact cost, score over seeds, difference to the base."""
    from scalesearch.study.results.tables import table_of, write_table

    rows = table_of(results, metric or results.main_metric, base, confidence)
    files = write_table(rows, to or results.study.folder)
    if as_json:
        print_json({**rows.to_json(), "files": [str(file) for file in files]})
        return
    print_ablation(results, rows)
    print_written_files(files)


@click.command()
@with_results
@click.option("--metric", metavar="NAME",
              help="The score, if not the task's main metric; test.bleu for that of test.")
@click.option(
    "--at", "ranking_sizes", multiple=True, metavar="COST=SIZE",
    help="Rank the rules there, as in params.total=2M; the budget, if not given. Repeatable.")
@click.option("--confidence", type=click.FloatRange(0.5, 0.9999),
              help="Of all intervals, if not the study's.")
@click.option("--to", type=OutputPath(is_folder=True),
              help="Folder for tables and figures, if not the study's.")
@json_option
def scaling(results: Results, metric: str | None, ranking_sizes: tuple[str, ...],
            confidence: float | None, to: Path | None, as_json: bool) -> None:
    """Laws, forecasts, score per million parameters and the rule to follow, of a scaling study."""
    from scalesearch.report.scaling.tables import to_json
    from scalesearch.study.results.tables import scaling_of, write_scaling

    study = scaling_of(results, metric, [parse_cost_size(place) for place in ranking_sizes],
                       confidence)
    files = write_scaling(study, to or results.study.folder)
    if as_json:
        print_json({**to_json(study), "files": [str(file) for file in files]})
        return
    print_scaling(study)
    print_written_files(files)


def parse_cost_size(text: str) -> tuple[str, float]:
    """``params.total=2M`` as a cost and a size.

    Raises:
        UserError: it is none.
    """
    from scalesearch.space.syntax.domains import ConstantDomain
    from scalesearch.space.syntax.lexer import ValueSyntaxError
    from scalesearch.space.syntax.value_parser import parse_value

    cost, _, number = (part.strip() for part in text.partition("="))
    try:
        spec: Any = parse_value(number)
    except ValueSyntaxError:
        spec = None
    value = spec.value if isinstance(spec, ConstantDomain) else None
    if not cost or not is_number(value) or value <= 0:
        raise UserError(f"--at {text}: write COST=SIZE with a size above 0, for example --at "
                        "params.total=2M or --at macs.total=1.5G", code="not-cost-and-size")
    return cost, float(value)


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--to", type=OutputPath(is_folder=True),
              help="Folder for the figures, as PNG and SVG.")
@click.option("--resamples", "--draws", "resamples", type=click.IntRange(100), default=2000, show_default=True,
              help="Of the bootstrap.")
@click.option("--confidence", type=click.FloatRange(0.5, 0.9999), default=0.9, show_default=True,
              help="Of the interval of the difference.")
@seed_option(1, "Of the bootstrap.")
@json_option
def compare(first: str, second: str, to: Path | None, resamples: int, confidence: float, seed: int,
            as_json: bool) -> None:
    """Compare the studies A and B (folders, or study files): fronts, hypervolumes, and the difference."""
    from scalesearch.cli.study.shared import load_study
    from scalesearch.report import compare as report

    results = (load_study(first), load_study(second))
    one, other = (_side(study, name) for study, name in zip(results, _names(*results)))
    comparison = report.compare_studies(one, other, n_resamples=resamples, confidence=confidence,
                                        seed=seed)
    files = _figures(results[0], (one, other), comparison, to) if to else []
    if as_json:
        print_json({**comparison.to_json(), "files": [str(file) for file in files]})
        return
    for line in (*comparison.lines(), *files):
        print_text(str(line))


def _names(first: Results, second: Results) -> tuple[str, str]:
    """What to call two studies: by their names, or where these are the same by their folders."""
    for one, other in ((first.study.meta.name, second.study.meta.name),
                       (first.study.folder, second.study.folder)):
        if one != other:
            return str(one), str(other)
    return f"{first.study.folder} (A)", f"{second.study.folder} (B)"


def _side(results: Results, name: str) -> ComparedStudy:
    from scalesearch.report.compare import ComparedStudy
    from scalesearch.study.trials.record import describe_teacher_facts

    meta = results.study.meta
    return ComparedStudy(name, results.table, results.objectives, meta.protocol, meta.data.hash,
                         results.signature, meta.recipe,
                         describe_teacher_facts(results.teacher) if results.teacher else "",
                         results.macs_once)


def _figures(results: Results, sides: tuple[ComparedStudy, ComparedStudy],
             comparison: StudyComparison, to: Path) -> list[Path]:
    """Quality against each cost that is an objective, or against the parameters where none is."""
    from scalesearch.report.compare import plot_comparison
    from scalesearch.report.figures.style import save_figure

    y = results.main_metric
    subject = results.subject
    costs = [name for name, way in comparison.objectives.items() if name != y and way == "min"] or [
        "params.total"]
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--to {to}: {error.strerror or error}", code="cannot-write") from None
    corpus = subject.corpus + (" (synthetic)" if subject.synthetic else "")
    stems = [f"compare-{y}-vs-{x.removesuffix('.total')}".replace(".", "-") for x in costs]
    return [file for x, stem in zip(costs, stems)
            for file in save_figure(plot_comparison(sides, comparison, x, y, corpus), to / stem)]
