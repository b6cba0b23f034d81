"""``scalesearch solve FILE 'max width' --budget …``: the largest size that fits; ``--trade``: what keeps a cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import (
    Output,
    json_option,
    load_architecture,
    load_space,
    pairs,
    print_costs,
    protocol_options,
    set_option,
    write_csv,
)
from scalesearch.errors import UserError
from scalesearch.terminal import make_table, say, wide_console

if TYPE_CHECKING:
    from rich.table import Table

    from scalesearch.cost import Protocol
    from scalesearch.feasible.limits import LimitCheck
    from scalesearch.space import Space
    from scalesearch.whatif import Solution, Solutions, Trades

SHOWN = 60  # trades that a terminal is given


@click.command(name="solve")
@click.argument("file")
@click.argument("goal", required=False)
@set_option
@protocol_options
@click.option("--budget", "budgets", multiple=True, metavar="LIMITS",
              help="'params.total <= 10M and macs.total <= 2G', or the name of one of the file's budgets. Repeatable.")
@click.option("--for", "each", multiple=True, metavar="KEY=VALUES", 
              help="Once for each: --for encoder.depth=1..24. Of a traded size: its range.")
@click.option("--step", type=click.IntRange(1), default=1, show_default=True, help="Look at multiples of this only.")
@click.option("--trade", metavar="KEY,KEY", help="List the pairs of these sizes that keep what --hold says.")
@click.option("--hold", "holds", multiple=True, metavar="TOLERANCE", help="'macs.total within 1%', joined by 'and'.")
@click.option("--of", "reference", metavar="FILE", help="Hold the costs of this architecture, not of FILE itself.")
@click.option("--csv", type=Output(), help="Write the table.")
@json_option
def command(file: str, goal: str | None, settings: tuple[str, ...], lengths: dict[str, Any],
            budgets: tuple[str, ...], each: tuple[str, ...], step: int, trade: str | None, holds: tuple[str, ...],
            reference: str | None, csv: str | None, as_json: bool) -> None:
    """The largest or smallest size of the architecture in FILE that is within a budget: GOAL is 'max KEY' or 'min KEY'.

    Exact: every value is costed, or the costs are found to rise and the end is closed in on. A key that FILE gives a
    range has that range; any other is tried from 1 up, until the budget breaks.
    """
    if (goal is None) == (trade is None):
        raise UserError("ask for one thing: a goal such as 'max width', or --trade encoder.depth,decoder.depth",
                        code="no-goal")
    if goal is not None and (holds or reference):
        raise UserError("--hold and --of belong to --trade; a goal has a --budget", code="options-conflict")
    from scalesearch import whatif
    from scalesearch.cost import protocol_of

    space = load_space(file, settings)
    ranges, protocol = _values(space, each), protocol_of(space.protocol, **lengths)
    answer: Solutions | Trades
    if trade is not None:
        of = load_architecture(reference)[1].answers if reference else None
        keys = [key.strip() for key in trade.split(",")]
        answer = whatif.trade(space, keys, holds, of, budgets, protocol, ranges)
        record = answer.to_json() | {"protocol": protocol.to_json()}
    else:
        answer = whatif.solve(space, goal or "", budgets, ranges, protocol, step)
        record = {"goal": goal, "protocol": protocol.to_json(), "solutions": [one.to_json() for one in answer]}
    if csv:
        write_csv(answer, csv)
    if as_json:
        print_costs(record, protocol)
    elif isinstance(answer, tuple):
        _show(answer, protocol)
    else:
        _show_trades(answer, reference or "the file as it is", protocol)
    if not (any(one.best for one in answer) if isinstance(answer, tuple) else answer.rows):
        raise SystemExit(1)


def _values(space: Space, each: tuple[str, ...]) -> dict[str, Any]:
    """The values of ``--for``; without any, as in ``--for encoder.depth``, those that the file gives."""
    from scalesearch.whatif.varied import offered, unknown, written

    values: dict[str, Any] = {}
    for text in each:
        key = text.partition("=")[0].strip()
        if key not in space.form.by_key:
            raise UserError(f"--for {unknown(space, key)}", code="unknown-key")
        changed = space.set(pairs((text,), "--for")) if "=" in text else space
        if not (sizes := offered(changed, key)):
            if (size := written(changed, key)) is None:
                raise UserError(f"--for {key}: it is off in the file, which gives no size to take; give some, as in "
                                f"--for {key}=1..8", code="key-absent")
            sizes = [size]
        values[key] = sizes
    return values


# -- solutions


def _show(answer: Solutions, protocol: Protocol) -> None:
    from scalesearch.whatif.solve import ONCE

    if len(answer) == 1 and not answer[0].given:
        for at, line in enumerate(_one(answer[0])):
            say(line, style="bold" if answer[0].best and not at else None)
    else:
        say(_table(answer), wide_console())
        say(_all_searched(answer))
    for line in protocol.once(*(one.best.costs.get(ONCE, 0) for one in answer if one.best)):
        say(line)
    say(f"protocol {protocol}\n{protocol.conventions}")


def _one(one: Solution) -> Iterator[str]:
    if one.best is not None:
        yield f"{one.way} {one.key} = {one.best.value:,}"
        if one.follows:
            yield f"so {', '.join(f'{key} = {value}' for key, value in one.follows.items())}"
        yield ", ".join(f"{name} {_amount(value)}" for name, value in one.best.costs.items())
        for limit in one.best.limits:
            yield f"  {limit.text}: {f'{_amount(abs(limit.slack))} left' if limit.slack is not None else 'holds'}"
        yield _next(one)
    elif one.nearest is None:
        yield f"no {one.key} from {one.low:,} to {one.high:,} can be built"
    else:
        yield (f"no {one.key} from {one.low:,} to {one.high:,} is within the budget; the nearest, "
               f"{one.nearest.value:,}, breaks {_breaks(one.nearest.broken)}")
    yield _searched(one)


def _next(one: Solution) -> str:
    if one.next is not None:
        return f"next: {one.next.value:,} breaks {_breaks(one.next.broken)}"
    if one.open_end:
        return f"nothing in the budget limits it: {one.high:,} is where the search ends"
    more = "larger" if one.way == "max" else "smaller"
    return f"next: no {more} value {'of the range ' if one.step != 1 or one.unbuildable == 0 else ''}can be built"


def _amount(value: float, sign: str = "") -> str:
    """A cost to the unit, or to four digits where it is no count."""
    return f"{value:{sign},}" if isinstance(value, int) else f"{value:{sign},.4g}"


def _breaks(limits: Iterable[LimitCheck]) -> str:
    """Which limits, and by how much."""
    return " and ".join(one.text if one.slack is None else f"{one.text} by {_amount(abs(one.slack))}" for one in limits)


def _searched(one: Solution) -> str:
    """How the answer is known."""
    built = f", {one.unbuildable:,} of which cannot be built" if one.unbuildable else ""
    steps = f" in steps of {one.step}" if one.step > 1 else ""
    every = f"costed every value from {one.low:,} to {one.high:,}{steps}"
    if not one.exhaustive:
        every = f"costed {one.tried:,} of the values from {one.low:,} to {one.high:,}"
        every += "" if one.open_end else ", every one of those next to where the budget breaks"
    rising = {True: f"the budget's costs rise with {one.key}", None: "the budget speaks of no cost",
              False: f"the budget's costs do not always rise with {one.key}"}[one.rising]
    return f"{every}{built}; {rising}"


def _all_searched(answer: Solutions) -> str:
    """How the answers are known, in one line where it is the same for all."""
    if all(one.exhaustive for one in answer) and len({one.rising for one in answer}) == 1:
        ends = sorted({one.high for one in answer})
        words = _searched(replace(answer[0], high=ends[-1], unbuildable=sum(one.unbuildable for one in answer)))
        last = f"to {ends[-1]:,}"
        return words.replace(last, f"to {ends[0]:,}, or as far as {ends[-1]:,}", 1) if len(ends) > 1 else words
    return "\n".join(dict.fromkeys(_searched(one) for one in answer))


def _table(answer: Solutions) -> Table:
    best = next((one.best for one in answer if one.best), None)
    limits = [limit.text for limit in best.limits if limit.name] if best else []
    names = [*dict.fromkeys(name for one in answer if one.best for name in one.best.costs)]
    rows = []
    for one in answer:
        cells = [f"{value:,}" for value in one.given.values()]
        if one.best is None:
            near = one.nearest
            reason = f"already at {near.value:,}: {_breaks(near.broken)}" if near else "cannot be built"
            rows.append([*cells, "-", *("" for _ in (*names, *limits)), "", reason])
            continue
        cells += [f"{one.best.value:,}", *(_amount(one.best.costs.get(name, 0)) for name in names)]
        cells += [_amount(limit.slack) for limit in one.best.limits if limit.name]
        after = _breaks(one.next.broken) if one.next else "nothing limits it" if one.open_end else ""
        rows.append([*cells, f"{one.next.value:,}" if one.next else "-", after])
    headings = (*answer[0].given, f"{answer[0].way} {answer[0].key}", *names, *(f"room: {text}" for text in limits),
                "next", "breaks")
    return make_table(headings, rows, left=(len(headings) - 1,))


# -- trades


def _show_trades(answer: Trades, reference: str, protocol: Protocol) -> None:
    from scalesearch.whatif.solve import ONCE
    from scalesearch.whatif.trade import percent

    rows = []
    for row in answer.rows[:SHOWN]:
        cells = [f"{row[key]:,}" for key in answer.keys]
        for name, held in answer.reference.items():
            away = row[name] - held
            cells += [_amount(row[name]), _amount(away, "+") if away else "0", f"{percent(row[name], held):+.3f}"]
        rows.append(cells)
    headings = (*answer.keys, *(text for name in answer.reference for text in (name, "difference", "%")))
    say(make_table(headings, rows, left=()), wide_console())
    if len(answer.rows) > SHOWN:
        say(f"… {len(answer.rows) - SHOWN:,} more: --csv FILE or --json has them all")
    costs = ", ".join(f"{name} {_amount(value)}" for name, value in answer.reference.items())
    tried = ", ".join(f"{key} up to {high:,}" for key, high in answer.high.items())
    built = f", {answer.unbuildable:,} cannot be built" if answer.unbuildable else ""
    held = " and ".join(map(str, answer.holds))
    for line in protocol.once(*(costs.get(ONCE, 0) for costs in (answer.reference, *answer.rows))):
        say(line)
    say(f"{len(answer.rows):,} trades that keep {held} of {reference} ({costs})\n"
        f"costed {answer.tried:,} combinations ({tried}){built}\nprotocol {protocol}\n{protocol.conventions}")
