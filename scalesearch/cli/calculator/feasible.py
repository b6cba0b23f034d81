"""``scalesearch feasible``: count the candidates of a space that fit a budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import (
    OutputPath,
    RenamedOption,
    json_option,
    load_architecture,
    load_space,
    print_costs,
    protocol_options,
    seed_option,
    set_option,
)
from scalesearch.library import require_packages
from scalesearch.terminal import open_console, print_text, to_rich_text, wide_console

if TYPE_CHECKING:
    from scalesearch.cost import Protocol
    from scalesearch.feasible.report import FeasibilityReport
    from scalesearch.spaces import Constraint


@click.command(name="feasible")
@click.argument("file")
@click.option("--budget", "budgets", multiple=True, metavar="LIMITS",
              help="Budget, e.g. 'params.non_embedding <= 10M and macs.total <= 2G', or the name "
              "of a budget of the file. Can be repeated.")
@set_option
@protocol_options
@click.option("--near", metavar="ARCHITECTURE",
              help="Print the feasible candidates nearest to this architecture.")
@click.option("--reference", "references", multiple=True, metavar="ARCHITECTURE",
              help="Architecture to mark in the figure. Can be repeated.")
@click.option("--plot", "plot_folder", type=OutputPath(is_folder=True),
              help="Output folder for figures (PNG, SVG).")
@click.option("--csv", type=OutputPath(is_folder=True), help="Output folder for tables (CSV).")
@click.option("--samples", cls=RenamedOption, earlier=("--draws",), type=click.IntRange(100),
              default=4000, show_default=True,
              help="Number of random candidates, for the figure and if the space cannot be "
              "counted.")
@seed_option(1, "Random seed.")
@json_option
def command(file: str, budgets: tuple[str, ...], settings: tuple[str, ...],
            protocol_overrides: dict[str, Any], near: str | None, references: tuple[str, ...],
            plot_folder: Path | None, csv: Path | None, samples: int, seed: int,
            as_json: bool) -> None:
    """Count the candidates of the space in FILE that fit a budget.

    Also prints the feasible share per parameter value, the violated constraints and the cost front.
    Results are exact if the space can be counted section by section; otherwise they are estimated
    from random samples, with a 95 % interval. The output states which of the two applies.

    \b
    Example: scalesearch feasible flagship --budget 'params.total <= 2M'
    """
    if plot_folder is not None:
        require_packages("matplotlib")
    from scalesearch.cost import load_protocol
    from scalesearch.feasible import tables
    from scalesearch.feasible.limits import select_budgets
    from scalesearch.feasible.nearest import ProjectedCandidate, find_nearest
    from scalesearch.feasible.report import DEFAULT_FRONT_COSTS, analyze_feasibility
    from scalesearch.spaces.syntax.parameters import format_constant

    space = load_space(file, settings)
    protocol = load_protocol(space.protocol, **protocol_overrides)
    limits = select_budgets(space, budgets)
    # Errors in these architectures are reported before the long search.
    references_in_figure = [_reference_point(name, protocol) for name in references]
    start = ProjectedCandidate(space, load_architecture(near)[1].config) if near else None
    changes: dict[str, list[str | None]] = {}
    if start:
        changes = {name: [None if old is None else format_constant(old), format_constant(new)]
                   for name, (old, new) in start.changed_params.items()}
    if changes and not as_json:
        changed = ", ".join(f"{name} {'-' if old is None else old} → {new}"
                            for name, (old, new) in changes.items())
        print_text(f"{near} is not in this space; the search starts from the nearest configuration "
                   f"of the space: {changed}")
    with open_console(stderr=True).status("…") as status:
        report = analyze_feasibility(space, protocol, limits, samples, seed,
                                     lambda text: status.update(to_rich_text(text)))
        status.update("searching neighbors")
        nearest = find_nearest(start, protocol, limits,
                               (*DEFAULT_FRONT_COSTS, tables.WEIGHT_WORK_COST)) if start else []
        report = replace(report,
                         notes=[*report.notes, *tables.weight_work_lines(report, protocol)])
    if csv:
        _write_tables(report, csv)
    files = (_plot(report, protocol, limits, references_in_figure, plot_folder) if plot_folder
             else [])
    if as_json:
        record = tables.to_json(report, nearest)
        record |= {"protocol": protocol.to_json(), "budgets": [limit.text for limit in limits]}
        record |= {"start": changes} if start else {}
        record |= {"files": [str(path) for path in files]} if files else {}
        print_costs(record, protocol)
    else:
        print_text(f"{space.name or 'space'}: {' and '.join(limit.text for limit in limits)}")
        print_text(f"{protocol}\n{protocol.conventions}")
        parts = [*tables.render_report(report)]
        parts += [tables.nearest_table(nearest, near)] if near else []
        for part in parts:
            print_text(part, wide_console())
        for path in files:
            print_text(f"Written: {path}")
    if report.exact and not report.n_feasible:
        raise SystemExit(1)


def _reference_point(file: str, protocol: Protocol) -> tuple[float, float, str]:
    """Return the position of a reference architecture in the figure, and its name."""
    from scalesearch.cost import evaluate_cost
    from scalesearch.feasible.report import DEFAULT_FRONT_COSTS

    space, architecture = load_architecture(file)
    costs = evaluate_cost(architecture.block, protocol.with_vocab(architecture.vocab))
    y_cost, x_cost = DEFAULT_FRONT_COSTS
    return float(costs[x_cost]), float(costs[y_cost]), (space.name or file).rpartition("/")[2]


def _write_tables(report: FeasibilityReport, folder: Path) -> None:
    from scalesearch.feasible.tables import front_table
    from scalesearch.files import write_text
    from scalesearch.report.text_tables import to_csv

    folder.mkdir(parents=True, exist_ok=True)
    frames = {"values": report.value_shares, "violations": report.violations,
              "sample": report.sample}
    if report.front:
        frames["front"] = front_table(report)
    for name, frame in frames.items():
        write_text(folder / f"{name}.csv", to_csv(frame))


def _plot(report: FeasibilityReport, protocol: Protocol, limits: tuple[Constraint, ...],
          references: list[tuple[float, float, str]], folder: Path) -> list[Path]:
    from scalesearch.feasible.limits import upper_bounds
    from scalesearch.feasible.report import DEFAULT_FRONT_COSTS
    from scalesearch.report.figures.population import plot_cost_plane, plot_feasible_shares
    from scalesearch.report.figures.style import save_figure

    y_cost, x_cost = DEFAULT_FRONT_COSTS
    front = [(float(candidate.costs[x_cost]), float(candidate.costs[y_cost]))
             for candidate in report.front]
    folder.mkdir(parents=True, exist_ok=True)
    figure = plot_cost_plane(report.sample, front, upper_bounds(limits), protocol.to_json(),
                             references)
    files = save_figure(figure, folder / "plane")
    has_several_values = (report.value_shares.groupby("parameter").size() > 1).any()
    if has_several_values:
        figure = plot_feasible_shares(report.value_shares, report.exact)
        files += save_figure(figure, folder / "shares")
    return files
