"""``scalesearch feasible``: count the candidates of a space that fit a budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import (
    FOLDER,
    complete_space,
    load_architecture,
    load_space,
    option,
    print_costs,
    protocol_options,
)
from scalesearch.library import require_packages
from scalesearch.terminal import open_console, print_text, to_rich_text, wide_console

if TYPE_CHECKING:
    from scalesearch.cost import Protocol
    from scalesearch.feasible.nearest import ProjectedCandidate
    from scalesearch.feasible.report import FeasibilityReport
    from scalesearch.spaces import Constraint


@click.command(name="feasible")
@click.argument("file", shell_complete=complete_space)
@option("budget")
@option("set")
@protocol_options
@click.option("--near", metavar="ARCHITECTURE", shell_complete=complete_space,
              help="Print the feasible candidates nearest to this architecture.")
@click.option("--reference", "references", multiple=True, metavar="ARCHITECTURE",
              shell_complete=complete_space,
              help="Architecture to mark in the figure. Can be repeated.")
@click.option("--plot", "plot_folder", type=FOLDER, help="Output folder for figures.")
@option("style")
@option("format")
@option("csv", type=FOLDER, help="Output folder for tables (CSV).")
@option("samples", default=4000, help="Number of random candidates, for the figure and if the "
        "space cannot be counted.")
@option("seed", default=1)
@option("json")
def command(file: str, budgets: tuple[str, ...], settings: tuple[str, ...],
            protocol_overrides: dict[str, Any], near: str | None, references: tuple[str, ...],
            plot_folder: Path | None, csv: Path | None, samples: int, seed: int,
            as_json: bool) -> None:
    """Count the candidates of the space in FILE that fit a budget.

    Also prints the feasible share per parameter value, the violated constraints and the cost front.
    Results are exact if the space can be counted section by section, or has at most 1,000,000
    configurations. Otherwise they are estimated from random samples, with a 95 % interval. The
    output states which of the two applies. The exit status is 1 if no candidate, or no sample,
    fits.

    \b
    Example: scalesearch feasible flagship --budget 'params.total <= 2M'
    """
    if plot_folder is not None:
        require_packages("matplotlib")
    from scalesearch.cost import load_protocol
    from scalesearch.feasible import tables
    from scalesearch.feasible.limits import cost_names, select_budgets
    from scalesearch.feasible.nearest import ProjectedCandidate, find_nearest
    from scalesearch.feasible.report import (
        DEFAULT_FRONT_COSTS,
        WEIGHT_WORK_COST,
        analyze_feasibility,
    )

    space = load_space(file, settings)
    protocol = load_protocol(space.protocol, **protocol_overrides)
    limits = select_budgets(space, budgets)
    # Errors in these architectures are reported before the long search.
    points_in_figure = [locate_reference(reference, protocol) for reference in references]
    start = ProjectedCandidate(space, load_architecture(near)[1].config) if near else None
    if start and not as_json:
        _print_changes(start, near)
    with open_console(stderr=True).status("…") as status:
        report = analyze_feasibility(space, protocol, limits, samples, seed,
                                     lambda text: status.update(to_rich_text(text)))
        status.update("searching neighbors")
        nearest = find_nearest(start, protocol, limits,
                               tuple(dict.fromkeys((*DEFAULT_FRONT_COSTS, *cost_names(limits),
                                                    WEIGHT_WORK_COST)))) if start else []
    if csv:
        _write_tables(report, csv)
    files = _plot(report, protocol, limits, points_in_figure, plot_folder) if plot_folder else []
    if as_json:
        record = tables.report_to_json(report, nearest)
        record |= {"protocol": protocol.facts, "budgets": [limit.text for limit in limits]}
        record |= {"start": _changed_params(start)} if start else {}
        record |= {"files": [str(path) for path in files]} if files else {}
        print_costs(record, protocol)
    else:
        print_text(f"{space.name or 'space'}: {' and '.join(limit.label for limit in limits)}")
        print_text(f"{protocol}\n{protocol.conventions}")
        for note in space.describe_unused():
            print_text(f"warning: {note}")
        for part in (*tables.render_report(report),
                     *([tables.nearest_table(nearest, near)] if near else [])):
            print_text(part, wide_console())
        for path in files:
            print_text(f"Written: {path}")
    if not (report.n_feasible if report.exact else report.share):
        raise SystemExit(1)


def _changed_params(start: ProjectedCandidate) -> dict[str, list[str | None]]:
    """Old and new value of the parameters that ``start`` changes, as texts."""
    from scalesearch.spaces.syntax.parameters import format_constant

    return {name: [None if old is None else format_constant(old), format_constant(new)]
            for name, (old, new) in start.changed_params.items()}


def _print_changes(start: ProjectedCandidate, file: str | None) -> None:
    """Print how ``start`` differs from the architecture in ``file``, if it does."""
    changed = [f"{name} {old or '-'} → {new}"
               for name, (old, new) in _changed_params(start).items()]
    if start.other_keys:
        changed.append(f"the space fixes or computes other values of {', '.join(start.other_keys)}")
    if changed:
        print_text(f"{file} is not in this space; the search starts from the nearest configuration "
                   f"of the space: {'; '.join(changed)}")


def _write_tables(report: FeasibilityReport, folder: Path) -> None:
    from scalesearch.feasible.tables import report_frames
    from scalesearch.files import write_text
    from scalesearch.report.text_tables import to_csv

    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in report_frames(report).items():
        write_text(folder / f"{name}.csv", to_csv(frame))


def locate_reference(file: str, protocol: Protocol) -> tuple[float, float, str]:
    """Position of an architecture in the plane of costs (x, y), and its name."""
    from scalesearch.cost import evaluate_cost
    from scalesearch.feasible.report import DEFAULT_FRONT_COSTS

    space, architecture = load_architecture(file)
    costs = evaluate_cost(architecture.block, protocol.with_vocab(architecture.vocab))
    y_cost, x_cost = DEFAULT_FRONT_COSTS
    return float(costs[x_cost]), float(costs[y_cost]), (space.name or file).rpartition("/")[2]


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
    figure = plot_cost_plane(report.sample, front, upper_bounds(limits), protocol.facts, references,
                             report.exact)
    files = save_figure(figure, folder / "plane")
    has_several_values = (report.value_shares.groupby("parameter").size() > 1).any()
    if has_several_values:
        figure = plot_feasible_shares(report.value_shares, report.exact)
        files += save_figure(figure, folder / "shares")
    return files
