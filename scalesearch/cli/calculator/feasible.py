"""``scalesearch feasible SPACE --budget …``: what fits, what does not and why, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import (
    Output,
    json_option,
    load_architecture,
    load_space,
    print_costs,
    protocol_options,
    set_option,
)
from scalesearch.errors import UserError
from scalesearch.terminal import as_text, make_table, open_console, say, wide_console

if TYPE_CHECKING:
    from rich.table import Table

    from scalesearch.cost import Protocol
    from scalesearch.feasible.answer import Feasibility
    from scalesearch.feasible.extremes import Point
    from scalesearch.feasible.near import Near
    from scalesearch.space import Constraint

ONCE = "macs.once"
SHOWN_VALUES, SHOWN_LINES, SHOWN_FRONT = 60, 8, 12  # rows of values, of one parameter's, points of the front
COUNTS = ("exact", "why", "sheets", "sound", "fitting", "distinct", "distinct_fitting", "share", "low", "high", "draws",
          "strata", "notes", "front_whole", "least")


@click.command(name="feasible")
@click.argument("file")
@click.option("--budget", "budgets", multiple=True, metavar="LIMITS",
              help="'params.non_embedding <= 10M and macs.total <= 2G', or the name of one of the file's. Repeatable.")
@set_option
@protocol_options
@click.option("--near", metavar="ARCHITECTURE", help="The nearest candidates of the space that fit.")
@click.option("--reference", "references", multiple=True, metavar="ARCHITECTURE", help="A named point of the figure.")
@click.option("--plot", "folder", type=Output(folder=True), help="Write figures (PNG, SVG).")
@click.option("--csv", type=Output(folder=True), help="Write the tables as CSV.")
@click.option("--draws", type=click.IntRange(100), default=4000, show_default=True,
              help="Candidates drawn for the figure, and for the share where a space cannot be counted.")
@click.option("--seed", type=int, default=1, show_default=True)
@json_option
def command(file: str, budgets: tuple[str, ...], settings: tuple[str, ...], lengths: dict[str, Any], near: str | None,
            references: tuple[str, ...], folder: Path | None, csv: Path | None, draws: int, seed: int,
            as_json: bool) -> None:
    """How many candidates of the space in FILE fit a budget, which answers leave room, what binds, and the best shapes.

    Exact wherever the space can be counted section by section (it says so); elsewhere the share of random draws, with
    a 95 % interval.
    """
    from scalesearch.cost import protocol_of
    from scalesearch.feasible.answer import AXES, feasible
    from scalesearch.feasible.limits import read_budgets
    from scalesearch.feasible.near import Start, nearest

    space = load_space(file, settings)
    protocol = protocol_of(space.protocol, **lengths)
    if not (budgets or space.budgets):
        raise UserError("no budget: give --budget 'params.non_embedding <= 10M and macs.total <= 2G', or name one in "
                        "the file under cost: budgets:", code="no-budget")
    limits = read_budgets(space, budgets or tuple(space.budgets))
    named = [_point(name, protocol) for name in references]
    start = Start(space, load_architecture(near)[1].answers) if near else None  # before the long work
    if start and start.moved and not as_json:
        moved = ", ".join(f"{name} {'-' if old is None else old} → {new}" for name, (old, new) in start.moved.items())
        say(f"{near} is not of this space; the search starts from the nearest answers that are: {moved}")
    with open_console(stderr=True).status("…") as status:
        found = feasible(space, protocol, limits, draws, seed, lambda text: status.update(as_text(text)))
        status.update("looking around")
        around = nearest(start, protocol, limits, (*AXES, ONCE)) if start else []
        found = replace(found, notes=[*found.notes, *_once(found, protocol)])
    if csv:
        _write_tables(found, csv)
    files = _plot(found, protocol, limits, named, folder) if folder else []
    if as_json:
        record = _json(found, around) | {"protocol": protocol.to_json(), "budgets": [limit.text for limit in limits]}
        record |= {"start": {name: [str(old), str(new)] for name, (old, new) in start.moved.items()}} if start else {}
        print_costs(record | ({"files": [str(path) for path in files]} if files else {}), protocol)
    else:
        say(f"{space.name or 'space'}: {' and '.join(limit.text for limit in limits)}")
        say(f"{protocol}\n{protocol.conventions}")
        _show(found)
        if near:
            say(_neighbours(around, near), wide_console())
        for path in files:
            say(f"Written: {path}")
    if found.exact and not found.fitting:
        raise SystemExit(1)


def _once(found: Feasibility, protocol: Protocol) -> list[str]:
    """What the candidates that are shown compute on weights alone, where any does."""
    from scalesearch.feasible.candidates import Candidate, priced

    points = [*_spread(found.front), *found.extremes.values()]
    bills = priced([Candidate.of(point.answers) for point in points], protocol, [ONCE])
    return protocol.once(*(bill.costs[ONCE] for bill in bills if bill.costs))


def _point(file: str, protocol: Protocol) -> tuple[float, float, str]:
    """A reference architecture as a point of the figure."""
    from scalesearch.cost import cost
    from scalesearch.feasible.answer import AXES

    space, architecture = load_architecture(file)
    bill = cost(architecture.block, protocol.at(architecture.vocab))
    return float(bill[AXES[1]]), float(bill[AXES[0]]), (space.name or file).rpartition("/")[2]


def _write_tables(found: Feasibility, folder: Path) -> None:
    from scalesearch.files import write_text
    from scalesearch.report.text_tables import to_csv

    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in (("values", found.values), ("reasons", found.reasons), ("sample", found.sample)):
        write_text(folder / f"{name}.csv", to_csv(frame))


def _plot(found: Feasibility, protocol: Protocol, limits: tuple[Constraint, ...],
          named: list[tuple[float, float, str]], folder: Path) -> list[Path]:
    from scalesearch.feasible.answer import AXES
    from scalesearch.feasible.limits import upper_bounds
    from scalesearch.report.population import plane, shares
    from scalesearch.report.style import save

    front = [(float(p.costs[AXES[1]]), float(p.costs[AXES[0]])) for p in found.front]
    folder.mkdir(parents=True, exist_ok=True)
    figure = plane(found.sample, front, upper_bounds(limits), protocol.to_json(), named)
    written = save(figure, folder / "plane")
    asked = (found.values.groupby("parameter").size() > 1).any()  # or there is no share to draw
    return written + (save(shares(found.values, found.exact), folder / "shares") if asked else [])


def _json(found: Feasibility, around: list[Near]) -> dict[str, Any]:
    frames = {"values": found.values.astype({"answer": str}), "reasons": found.reasons}
    return {name: getattr(found, name) for name in COUNTS} | {
        **{name: frame.to_dict("records") for name, frame in frames.items()},
        "front": [p.costs for p in found.front],
        "front_answers": [_texts(p.answers.params) for p in found.front[:SHOWN_FRONT]],
        "extremes": {word: {"costs": p.costs, "params": _texts(p.answers.params)}
                     for word, p in found.extremes.items()},
        "near": [{"changes": {k: [str(a), str(b)] for k, (a, b) in n.changes.items()}, "costs": dict(n.costs)}
                 for n in around],
    }


def _texts(params: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in params.items()}


# -- for people


def _show(found: Feasibility) -> None:
    """Counts as sentences, everything else as tables."""
    for line in _counts(found):
        say(line)
    for table in (_reasons(found), _values(found), *([_front(found.front, found.front_whole)] if found.front else [])):
        say(table, wide_console())
    same = _common([*found.extremes.values()])
    for word, point in found.extremes.items():
        differing = ", ".join(f"{key}={value}" for key, value in point.answers.params.items() if key not in same)
        say(f"{word}: " + ", ".join(f"{name} {value:,}" for name, value in point.costs.items()) + f"  ({differing})")
    for name, value in found.least.items():
        say(f"Nothing fits. The least {name} that any candidate has is {value:,}: a budget must allow that much.")
    for note in found.notes:
        say(note)


def _counts(found: Feasibility) -> Iterator[str]:
    """How many there are, and how many fit."""
    if found.exact:
        assert found.sheets and found.sound is not None and found.distinct is not None
        yield (f"Answer sheets: {found.sheets:,}, exactly; {found.sound:,} can be built and meet the space's "
               f"constraints. Distinct networks: {found.distinct:,}.")
        share = (found.distinct_fitting or 0) / max(1, found.distinct)
        yield (f"Within budget: {found.fitting:,} sheets ({_percent(found.share)}), "
               f"{found.distinct_fitting:,} distinct networks ({_percent(share)}).")
        return
    size = f"Answer sheets: {found.sheets:,}, exactly" if found.sheets is not None else "Answer sheets not counted"
    yield f"{size}. Networks not counted: {found.why}."
    yield (f"Within budget: {_percent(found.share)} of {found.draws:,} draws, each parameter uniform ({found.strata}); "
           f"95 % interval {_percent(found.low)} to {_percent(found.high)}.")


def _percent(share: float) -> str:
    """A share to three digits, and never 0 or 100 where it is neither."""
    if 0 < share < 0.0005:
        return f"{100 * share:.2g} %"
    return "over 99.95 %" if 0.9995 < share < 1 else f"{100 * share:.3g} %"


def _reasons(found: Feasibility) -> Table:
    """What the candidates that do not fit violate."""
    headings = ("violates", "sheets" if found.exact else "draws",
                f"share of {found.sound:,}" if found.exact else "share")
    rows = [(_violated(row["broken"]), f"{row['count']:,}", _percent(row["share"]))
            for _, row in found.reasons.iterrows() if row["count"]]
    return make_table(headings, rows, title="What binds", lines=True)


def _violated(broken: str) -> str:
    return f"only {broken}" if broken and " and " not in broken else broken or "nothing: fits"


def _values(found: Feasibility) -> Table:
    """The feasible share of each answer; neighbouring values of long ranges are put together."""
    from scalesearch.feasible.answer import binned

    share = "of its sheets" if found.exact else "share"  # of all, also those that break the space's own constraints
    noted = found.values["verdict"].any() or len(found.values) > SHOWN_VALUES  # else nothing stands beside the numbers
    rows: list[tuple[str, ...]] = []
    for name, group in found.values.groupby("parameter", sort=False):
        for at, (_, row) in enumerate(binned(group, SHOWN_LINES).iterrows()):
            rows.append((str(name) * (at == 0), str(row["answer"]), _percent(row["share"]), row["verdict"]))
        if len(rows) > SHOWN_VALUES:
            rows.append(("…", "", "", "the rest: --csv or --json"))
            break
    headings = ("parameter", "answer", share, "")
    title = f"Feasible share by answer ({'exact' if found.exact else 'of draws'})"
    return make_table(headings[: 3 + noted], [row[: 3 + noted] for row in rows], (0, 3), title, lines=True)


def _front(points: list[Point], whole: bool) -> Table:
    """Points of the front, spread over it, with the answers in which they differ most."""
    names = list(points[0].costs)[:2]
    chosen = _spread(points)
    same = _common(chosen)
    keys = [key for key in chosen[0].answers.params if key not in same and key.count(".") < 2][:6]
    rows = [(*(f"{point.costs[name]:,}" for name in names), *(str(point.answers.params.get(key, "")) for key in keys))
            for point in chosen]
    title = f"Most {names[0]} for the {names[1]}: {len(chosen)} of {len(points):,} points (exact)"
    table = make_table((*names, *keys), rows, (), title, lines=True)
    if not whole:
        table.caption = "there are more, which only the budget puts there"
    return table


def _spread(points: list[Point]) -> list[Point]:
    """As many of a front's points as are shown, spread over it."""
    step = (len(points) - 1) / max(1, SHOWN_FRONT - 1)
    return [points[round(at * step)] for at in range(min(SHOWN_FRONT, len(points)))]


def _common(points: list[Point]) -> set[str]:
    """Parameters that have one value in all points."""
    sheets = [dict(point.answers.params) for point in points]
    return {key for key in (sheets[0] if sheets else ()) if all(sheet.get(key) == sheets[0][key] for sheet in sheets)}


def _neighbours(found: list[Near], name: str) -> Table:
    """The nearest candidates that fit."""
    names = [name for name in (found[0].costs if found else ()) if any(near.costs[name] for near in found)]
    rows = [(", ".join(f"{key}: {old} → {new}" for key, (old, new) in near.changes.items()) or "none: it fits",
             *(f"{near.costs[cost]:,}" for cost in names)) for near in found]
    return make_table(("change", *names), rows or [("none within four changed answers",)],
                      title=f"Nearest to {name} that fit", lines=True)
