"""``scalesearch study table``, ``study scaling`` and ``study compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from scalesearch.blocks.sizes import is_number
from scalesearch.cli.options import option, print_json, write_errors_named
from scalesearch.cli.study.shared import (
    ablation_to_json,
    load_study,
    print_ablation,
    print_scaling,
    print_written_files,
    with_results,
)
from scalesearch.errors import UserError
from scalesearch.terminal import print_text

if TYPE_CHECKING:
    from scalesearch.studies.results.results import Results


@click.command()
@with_results
@click.option("--base", metavar="NAME",
              help="Architecture to compare with (default: the base, or the first).")
@option("metric")
@option("confidence")
@option("to-folder", help="Output folder for table.md, .csv and .tex (default: the study's).")
@option("json")
def table(results: Results, base: str | None, metric: str | None, confidence: float,
          to: Path | None, as_json: bool) -> None:
    """Print a table of architectures: cost, scores, and difference to the base.

    \b
    Example: scalesearch study table runs/my-ablation --base transformer
    """
    from scalesearch.studies.results.publish import table_of, write_table

    ablation = table_of(results, metric or results.main_metric, base, confidence)
    files = write_table(ablation, to or results.study.folder)
    if as_json:
        print_json({**ablation_to_json(ablation), "files": [str(file) for file in files]})
        return
    print_ablation(results, ablation)
    print_written_files(files)


@click.command()
@with_results
@option("metric")
@click.option("--at", "ranking_sizes", multiple=True, metavar="COST=SIZE",
              help="Size at which to rank the rules, e.g. params.total=2M (default: the budget). "
              "Can be repeated.")
@option("confidence", default=None,
        help="Confidence level of the intervals (default: the study's).")
@option("to-folder", help="Output folder for tables and figures (default: the study's).")
@option("style")
@option("format")
@option("json")
def scaling(results: Results, metric: str | None, ranking_sizes: tuple[str, ...],
            confidence: float | None, to: Path | None, as_json: bool) -> None:
    """Print the power laws, predictions and ranking of rules of a scaling study.

    \b
    Example: scalesearch study scaling runs/my-scaling --at params.total=2M
    """
    from scalesearch.report.scaling.tables import scaling_to_json
    from scalesearch.studies.results.publish import scaling_of, write_scaling

    sizes = [parse_cost_size(text) for text in ranking_sizes]
    study = scaling_of(results, metric, sizes, confidence)
    files = write_scaling(study, to or results.study.folder)
    if as_json:
        print_json({**scaling_to_json(study), "files": [str(file) for file in files]})
        return
    print_scaling(study)
    print_written_files(files)


def parse_cost_size(text: str) -> tuple[str, float]:
    """Parse a cost and a size, such as ``params.total=2M``.

    Raises:
        UserError: the text is not a cost and a size.
    """
    from scalesearch.spaces.syntax.domains import ConstantDomain
    from scalesearch.spaces.syntax.lexer import ValueSyntaxError
    from scalesearch.spaces.syntax.parser import parse_value

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
@option("to-folder", help="Output folder for the figures.")
@option("style")
@option("format")
@option("resamples", earlier=("--draws",), type=click.IntRange(100), default=2000)
@option("confidence")
@option("seed", default=1)
@option("json")
def compare(first: str, second: str, to: Path | None, resamples: int, confidence: float, seed: int,
            as_json: bool) -> None:
    """Compare two studies (folders or study files) by hypervolume.

    \b
    Example: scalesearch study compare runs/bayes runs/random --to figures
    """
    from scalesearch.report.compare import ComparedStudy, compare_studies, plot_comparison
    from scalesearch.report.figures.style import save_figure

    first_results = load_study(first)
    second_results = load_study(second)
    results_of_both = (first_results, second_results)
    names = [results.study.meta.name for results in results_of_both]
    if names[0] == names[1]:
        names = [str(results.study.folder) for results in results_of_both]
    if names[0] == names[1]:
        names = [f"{names[0]} (A)", f"{names[1]} (B)"]
    first_study, second_study = (
        ComparedStudy(name, results.eligible, results.objectives, results.study.meta.protocol,
                      results.study.meta.data.hash, results.signature, results.study.meta.recipe,
                      results.teacher_note, results.macs_once)
        for name, results in zip(names, results_of_both))
    comparison = compare_studies(first_study, second_study, n_resamples=resamples,
                                 confidence=confidence, seed=seed)
    files = []
    if to:  # quality against each cost objective, or against the parameters without any
        y = first_results.main_metric
        costs = [name for name, direction in comparison.objectives.items()
                 if name != y and direction == "min"] or ["params.total"]
        with write_errors_named("--to", to):
            to.mkdir(parents=True, exist_ok=True)
        subject = first_results.subject
        corpus = subject.corpus + (" (synthetic)" if subject.synthetic else "")
        for x in costs:
            stem = f"compare-{y}-vs-{x.removesuffix('.total')}".replace(".", "-")
            files += save_figure(plot_comparison((first_study, second_study), comparison, x, y,
                                                 corpus), to / stem)
    if as_json:
        print_json({**msgspec.to_builtins(comparison), "files": [str(file) for file in files]})
        return
    for line in (*comparison.lines(), *files):
        print_text(str(line))
