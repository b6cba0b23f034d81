"""``scalesearch feasible SPACE --budget …``: what fits, what does not and why, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import (
    json_option,
    load_architecture,
    load_space,
    print_json,
    protocol_options,
    set_option,
)
from scalesearch.errors import UserError
from scalesearch.terminal import say, wide_console

if TYPE_CHECKING:
    from scalesearch.cost import Protocol
    from scalesearch.feasible.answer import Feasibility
    from scalesearch.feasible.near import Near
    from scalesearch.space import Constraint, Space
    from scalesearch.space.assembly.architecture import Architecture

SHOWN_VALUES, SHOWN_FRONT = 60, 12


@click.command(name="feasible")
@click.argument("file")
@click.option("--budget", "budgets", multiple=True, metavar="LIMITS",
              help="'params.non_embedding <= 10M and macs.total <= 2G', or the name of one of the file's. Repeatable.")
@set_option
@protocol_options
@click.option("--near", metavar="ARCHITECTURE", help="The nearest candidates of the space that fit.")
@click.option("--reference", "references", multiple=True, metavar="ARCHITECTURE", help="A named point of the figure.")
@click.option("--plot", "folder", type=click.Path(file_okay=False, path_type=Path), help="Write figures (PNG, SVG).")
@click.option("--csv", type=click.Path(file_okay=False, path_type=Path), help="Write the tables as CSV.")
@click.option("--draws", type=click.IntRange(100), default=4000, show_default=True,
              help="Candidates drawn for the figure, and for the share where a space cannot be counted.")
@click.option("--seed", type=int, default=1, show_default=True)
@json_option
def command(file: str, budgets: tuple[str, ...], settings: tuple[str, ...], protocol: str | None, source: int | None,
            target: int | None, vocab: int | None, near: str | None, references: tuple[str, ...], folder: Path | None,
            csv: Path | None, draws: int, seed: int, as_json: bool) -> None:
    """How many candidates of the space in FILE fit a budget, which answers leave room, what binds, and the best shapes.

    Exact wherever the space can be counted section by section (it says so); elsewhere the share of random draws, with
    a 95 % interval.
    """
    from rich.console import Console

    from scalesearch.cost import protocol_of
    from scalesearch.feasible.answer import feasible

    space = load_space(file, settings)
    chosen = protocol_of(space.protocol, name=protocol, source=source, target=target, vocab=vocab)
    limits = _limits(space, budgets)
    named = _named(references, chosen)
    start = load_architecture(near, ())[1] if near else None  # before the long work: a wrong name is said at once
    with Console(stderr=True).status("…") as status:
        found = feasible(space, chosen, limits, draws, seed, lambda text: status.update(text))
        status.update("looking around")
        nearby = _near(space, start, chosen, limits) if start else []
    if csv:
        _write_tables(found, csv)
    files = _plot(found, chosen, limits, named, folder) if folder else []
    if as_json:
        print_json(_json(found, chosen, limits, nearby) | ({"files": [str(f) for f in files]} if files else {}))
    else:
        _show(space, found, chosen, limits, nearby, near)
        for written in files:
            click.echo(f"Written: {written}")
    if found.exact and not found.fitting:
        raise SystemExit(1)


def _limits(space: Space, budgets: tuple[str, ...]) -> tuple[Constraint, ...]:
    """The budgets; all that the file names where none is given."""
    from scalesearch.feasible.limits import read_budgets

    if not (budgets or space.budgets):
        raise UserError("no budget: give --budget 'params.non_embedding <= 10M and macs.total <= 2G', or name one in "
                        "the file under cost: budgets:", code="no-budget")
    return read_budgets(space, budgets or tuple(space.budgets))


def _near(space: Space, start: Architecture, protocol: Protocol, limits: tuple[Constraint, ...]) -> list[Near]:
    from scalesearch.feasible.answer import AXES
    from scalesearch.feasible.near import nearest

    return nearest(space, start.answers, protocol, limits, AXES)  # type: ignore[arg-type]


def _write_tables(found: Feasibility, folder: Path) -> None:
    from scalesearch.files import write_text

    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in (("values", found.values), ("reasons", found.reasons), ("sample", found.sample)):
        write_text(folder / f"{name}.csv", frame.to_csv(index=False))


def _named(references: tuple[str, ...], protocol: Protocol) -> list[tuple[float, float, str]]:
    """Reference architectures as points of the figure."""
    from scalesearch.cost import cost
    from scalesearch.feasible.answer import AXES

    points = []
    for file in references:
        space, architecture = load_architecture(file, ())
        bill = cost(architecture.block, protocol)
        points.append((float(bill[AXES[1]]), float(bill[AXES[0]]), (space.name or file).rpartition("/")[2]))
    return points


def _plot(found: Feasibility, protocol: Protocol, limits: tuple[Constraint, ...],
          named: list[tuple[float, float, str]], folder: Path) -> list[Path]:
    from scalesearch.feasible.answer import AXES
    from scalesearch.feasible.limits import upper_bounds
    from scalesearch.report.population import plane, shares
    from scalesearch.report.style import save

    front = [(float(p.costs[AXES[1]]), float(p.costs[AXES[0]])) for p in found.front]
    folder.mkdir(parents=True, exist_ok=True)
    figure = plane(found.sample, front, upper_bounds(limits), protocol.to_json(), named)
    return save(figure, folder / "plane") + save(shares(found.values, found.exact), folder / "shares")


def _json(found: Feasibility, protocol: Protocol, limits: tuple[Constraint, ...], nearby: list[Near]) -> dict[str, Any]:
    names = ("exact", "why", "sheets", "sound", "fitting", "distinct", "distinct_fitting", "share", "low", "high",
             "draws", "strata", "notes")
    counts = {name: getattr(found, name) for name in names}
    asked = [{name: str(value) for name, value in p.answers.params.items()} for p in found.front[:SHOWN_FRONT]]
    return counts | {
        "protocol": protocol.to_json(),
        "budgets": [limit.text for limit in limits],
        "values": found.values.astype({"answer": str}).to_dict("records"),
        "reasons": found.reasons.to_dict("records"),
        "front": [p.costs for p in found.front],
        "front_whole": found.front_whole,
        "front_answers": asked,
        "extremes": {word: {"costs": p.costs, "params": {k: str(v) for k, v in p.answers.params.items()}}
                     for word, p in found.extremes.items()},
        "least": found.least,
        "near": [{"changes": {k: [str(a), str(b)] for k, (a, b) in n.changes.items()}, "costs": dict(n.costs)}
                 for n in nearby],
    }


def _show(space: Space, found: Feasibility, protocol: Protocol, limits: tuple[Constraint, ...],
          nearby: list[Near], near: str | None) -> None:
    from scalesearch.cli.calculator.feasible_tables import counts, extremes, front, neighbours, reasons, relaxed, values

    console = wide_console()
    say(f"{space.name or 'space'}: {' and '.join(limit.text for limit in limits)}\n{protocol}")
    for line in counts(found):
        say(line)
    for table in (reasons(found), values(found, SHOWN_VALUES), *([front(found, SHOWN_FRONT)] if found.front else [])):
        say(table, console)
    for line in (*extremes(found), *relaxed(found), *found.notes):
        say(line)
    if near:
        say(neighbours(nearby, near), console)
