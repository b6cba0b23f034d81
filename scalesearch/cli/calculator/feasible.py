"""``scalesearch feasible SPACE --budget …``: what fits, what does not and why, before anything is trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import (
    OutputPath,
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
    from scalesearch.space import Constraint


@click.command(name="feasible")
@click.argument("file")
@click.option("--budget", "budgets", multiple=True, metavar="LIMITS",
              help="'params.non_embedding "
              "<= 10M and macs.total <= 2G', or the name of one of the file's. Repeatable.")
@set_option
@protocol_options
@click.option("--near", metavar="ARCHITECTURE",
              help="The nearest candidates of the space that fit.")
@click.option("--reference", "references", multiple=True, metavar="ARCHITECTURE",
              help="A named point of the figure.")
@click.option("--plot", "plot_folder", type=OutputPath(is_folder=True), help="Write figures (PNG, SVG).")
@click.option("--csv", type=OutputPath(is_folder=True), help="Write the tables as CSV.")
@click.option(
    "--samples", "--draws", "samples", type=click.IntRange(100), default=4000, show_default=True,
    help="Candidates drawn for the figure, and for the share where a space cannot be counted.")
@seed_option(1, "Of the random candidates.")
@json_option
def command(file: str, budgets: tuple[str, ...], settings: tuple[str, ...],
            protocol_overrides: dict[str, Any], near: str | None, references: tuple[str, ...],
            plot_folder: Path | None, csv: Path | None, samples: int, seed: int,
            as_json: bool) -> None:
    """How many candidates of the space in FILE fit a budget, which answers leave room, what binds, and the best shapes.

    Exact wherever the space can be counted section by section (it says so); elsewhere the share of
    random draws, with a 95 % interval.
    """
    if plot_folder is not None:
        require_packages("matplotlib")
    from scalesearch.cost import load_protocol
    from scalesearch.feasible import tables
    from scalesearch.feasible.limits import select_budgets
    from scalesearch.feasible.nearest import ProjectedCandidate, find_nearest
    from scalesearch.feasible.report import DEFAULT_FRONT_COSTS, analyze_feasibility
    from scalesearch.space.syntax.parameters import format_constant as written

    space = load_space(file, settings)
    protocol = load_protocol(space.protocol, **protocol_overrides)
    limits = select_budgets(space, budgets)
    named = [_point(name, protocol) for name in references]
    # before the long work
    start = ProjectedCandidate(space, load_architecture(near)[1].config) if near else None
    moved = {name: [None if old is None else written(old), written(new)]
             for name, (old, new) in start.changed_params.items()} if start else {}
    if moved and not as_json:
        listed = ", ".join(f"{name} {'-' if old is None else old} → {new}"
                           for name, (old, new) in moved.items())
        print_text(f"{near} is not of this space; the search starts from the nearest answers that "
                   f"are: {listed}")
    with open_console(stderr=True).status("…") as status:
        found = analyze_feasibility(space, protocol, limits, samples, seed,
                                    lambda text: status.update(to_rich_text(text)))
        status.update("looking around")
        around = find_nearest(start, protocol, limits,
                              (*DEFAULT_FRONT_COSTS, tables.WEIGHT_WORK_COST)) if start else []
        found = replace(found, notes=[*found.notes, *tables.weight_work_lines(found, protocol)])
    if csv:
        _write_tables(found, csv)
    files = _plot(found, protocol, limits, named, plot_folder) if plot_folder else []
    if as_json:
        record = tables.to_json(found, around)
        record |= {"protocol": protocol.to_json(), "budgets": [limit.text for limit in limits]}
        record |= {"start": moved} if start else {}
        print_costs(record | ({"files": [str(path) for path in files]} if files else {}), protocol)
    else:
        print_text(f"{space.name or 'space'}: {' and '.join(limit.text for limit in limits)}")
        print_text(f"{protocol}\n{protocol.conventions}")
        for part in (*tables.render_report(found),
                     *([tables.nearest_table(around, near)] if near else [])):
            print_text(part, wide_console())
        for path in files:
            print_text(f"Written: {path}")
    if found.exact and not found.n_feasible:
        raise SystemExit(1)


def _point(file: str, protocol: Protocol) -> tuple[float, float, str]:
    """A reference architecture as a point of the figure."""
    from scalesearch.cost import evaluate_cost
    from scalesearch.feasible.report import DEFAULT_FRONT_COSTS

    space, architecture = load_architecture(file)
    bill = evaluate_cost(architecture.block, protocol.with_vocab(architecture.vocab))
    return float(bill[DEFAULT_FRONT_COSTS[1]]), float(
        bill[DEFAULT_FRONT_COSTS[0]]), (space.name or file).rpartition("/")[2]


def _write_tables(found: FeasibilityReport, folder: Path) -> None:
    from scalesearch.feasible.tables import front_table
    from scalesearch.files import write_text
    from scalesearch.report.text_tables import to_csv

    folder.mkdir(parents=True, exist_ok=True)
    frames = {"values": found.value_shares, "violations": found.violations, "sample": found.sample}
    for name, frame in (frames | ({"front": front_table(found)} if found.front else {})).items():
        write_text(folder / f"{name}.csv", to_csv(frame))


def _plot(found: FeasibilityReport, protocol: Protocol, limits: tuple[Constraint, ...],
          named: list[tuple[float, float, str]], folder: Path) -> list[Path]:
    from scalesearch.feasible.limits import upper_bounds
    from scalesearch.feasible.report import DEFAULT_FRONT_COSTS
    from scalesearch.report.figures.population import plot_cost_plane, plot_feasible_shares
    from scalesearch.report.figures.style import save_figure

    front = [(float(p.costs[DEFAULT_FRONT_COSTS[1]]), float(p.costs[DEFAULT_FRONT_COSTS[0]]))
             for p in found.front]
    folder.mkdir(parents=True, exist_ok=True)
    figure = plot_cost_plane(found.sample, front, upper_bounds(limits), protocol.to_json(), named)
    written = save_figure(figure, folder / "plane")
    # or there is no share to draw
    asked = (found.value_shares.groupby("parameter").size() > 1).any()
    return written + (save_figure(plot_feasible_shares(found.value_shares, found.exact),
                                  folder / "shares") if asked else [])
