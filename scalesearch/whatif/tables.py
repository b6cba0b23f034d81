"""Answers to inverse questions, for people: sentences, or a table of several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from scalesearch.cost import Protocol
from scalesearch.feasible.limits import LimitCheck
from scalesearch.terminal import make_table
from scalesearch.whatif.solve import ONCE, Solution, Solutions
from scalesearch.whatif.trade import Trades, percent

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = 60  # trades that a terminal is given


def solutions(answer: Solutions, protocol: Protocol) -> Iterator[Table | str]:
    """Sentences on one answer, or a table of several, with what their costs are stated under."""
    if len(answer) == 1 and not answer[0].given:
        yield from _one(answer[0])
    else:
        yield _table(answer)
        yield _all_searched(answer)
    yield from protocol.once(*(one.best.costs.get(ONCE, 0) for one in answer if one.best))
    yield f"protocol {protocol}\n{protocol.conventions}"


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
    return make_table(headings, rows, left_columns=(len(headings) - 1,))


def trades(answer: Trades, reference: str, protocol: Protocol) -> Iterator[Table | str]:
    """A table of the trades, and what they keep of ``reference``."""
    rows = []
    for row in answer.rows[:SHOWN]:
        cells = [f"{row[key]:,}" for key in answer.keys]
        for name, held in answer.reference.items():
            away = row[name] - held
            cells += [_amount(row[name]), _amount(away, "+") if away else "0", f"{percent(row[name], held):+.3f}"]
        rows.append(cells)
    headings = (*answer.keys, *(text for name in answer.reference for text in (name, "difference", "%")))
    yield make_table(headings, rows, left_columns=())
    if len(answer.rows) > SHOWN:
        yield f"… {len(answer.rows) - SHOWN:,} more: --csv FILE, --json or frame() has them all"
    costs = ", ".join(f"{name} {_amount(value)}" for name, value in answer.reference.items())
    tried = ", ".join(f"{key} up to {high:,}" for key, high in answer.high.items())
    built = f", {answer.unbuildable:,} cannot be built" if answer.unbuildable else ""
    held = " and ".join(map(str, answer.holds))
    yield from protocol.once(*(costs.get(ONCE, 0) for costs in (answer.reference, *answer.rows)))
    yield (f"{len(answer.rows):,} trades that keep {held} of {reference} ({costs})\n"
        f"costed {answer.tried:,} combinations ({tried}){built}\nprotocol {protocol}\n{protocol.conventions}")
