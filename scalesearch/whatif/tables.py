"""Answers to inverse questions, for people: sentences, or a table of several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from scalesearch.cost import Protocol
from scalesearch.feasible.limits import LimitCheck
from scalesearch.terminal import make_table
from scalesearch.whatif.solve import WEIGHT_WORK_COST, Solution, Solutions
from scalesearch.whatif.trade import TradeOffs, percent_difference

if TYPE_CHECKING:
    from rich.table import Table

MAX_ROWS_PRINTED = 60  # trades that a terminal is given


def render_solutions(solutions: Solutions, protocol: Protocol) -> Iterator[Table | str]:
    """Sentences on one answer, or a table of several, with what their costs are stated under."""
    if len(solutions) == 1 and not solutions[0].fixed_sizes:
        yield from _describe_solution(solutions[0])
    else:
        yield _table(solutions)
        yield _describe_searches(solutions)
    yield from protocol.weight_work_lines(*(one.best.costs.get(WEIGHT_WORK_COST, 0)
                                            for one in solutions if one.best))
    yield f"protocol {protocol}\n{protocol.conventions}"


def _describe_solution(solution: Solution) -> Iterator[str]:
    if solution.best is not None:
        yield f"{solution.direction} {solution.key} = {solution.best.value:,}"
        if solution.changed_values:
            yield f"so {', '.join(f'{key} = {value}' for key, value in solution.changed_values.items())}"
        yield ", ".join(f"{name} {_format_cost(value)}"
                        for name, value in solution.best.costs.items())
        for limit in solution.best.limits:
            yield f"  {limit.text}: {f'{_format_cost(abs(limit.slack))} left' if limit.slack is not None else 'holds'}"
        yield _describe_next_value(solution)
    elif solution.nearest is None:
        yield f"no {solution.key} from {solution.low:,} to {solution.high:,} can be built"
    else:
        yield (f"no {solution.key} from {solution.low:,} to {solution.high:,} is within the "
               f"budget; the nearest, {solution.nearest.value:,}, breaks "
               f"{_describe_violations(solution.nearest.violated_limits)}")
    yield _describe_search(solution)


def _describe_next_value(solution: Solution) -> str:
    if solution.next is not None:
        return (f"next: {solution.next.value:,} breaks "
                f"{_describe_violations(solution.next.violated_limits)}")
    if solution.is_open_ended:
        return f"nothing in the budget limits it: {solution.high:,} is where the search ends"
    more = "larger" if solution.direction == "max" else "smaller"
    return (f"next: no {more} value "
            f"{'of the range ' if solution.step != 1 or solution.n_unbuildable == 0 else ''}can be "
            "built")


def _format_cost(value: float, sign: str = "") -> str:
    """A cost to the unit, or to four digits where it is no count."""
    return f"{value:{sign},}" if isinstance(value, int) else f"{value:{sign},.4g}"


def _describe_violations(limits: Iterable[LimitCheck]) -> str:
    """Which limits, and by how much."""
    return " and ".join(one.text if one.slack is None
                        else f"{one.text} by {_format_cost(abs(one.slack))}" for one in limits)


def _describe_search(solution: Solution) -> str:
    """How the answer is known."""
    built = (f", {solution.n_unbuildable:,} of which cannot be built" if solution.n_unbuildable
             else "")
    steps = f" in steps of {solution.step}" if solution.step > 1 else ""
    every = f"costed every value from {solution.low:,} to {solution.high:,}{steps}"
    if not solution.is_exhaustive:
        every = (f"costed {solution.n_evaluated:,} of the values from {solution.low:,} to "
                 f"{solution.high:,}")
        every += ("" if solution.is_open_ended
                  else ", every one of those next to where the budget breaks")
    rising = {
        True: f"the budget's costs rise with {solution.key}", None: "the budget speaks of no cost",
        False: f"the budget's costs do not always rise with {solution.key}"}[solution.is_monotonic]
    return f"{every}{built}; {rising}"


def _describe_searches(answer: Solutions) -> str:
    """How the answers are known, in one line where it is the same for all."""
    if all(one.is_exhaustive for one in answer) and len({one.is_monotonic for one in answer}) == 1:
        ends = sorted({one.high for one in answer})
        words = _describe_search(replace(answer[0], high=ends[-1],
                                         n_unbuildable=sum(one.n_unbuildable for one in answer)))
        last = f"to {ends[-1]:,}"
        return words.replace(last, f"to {ends[0]:,}, or as far as {ends[-1]:,}",
                             1) if len(ends) > 1 else words
    return "\n".join(dict.fromkeys(_describe_search(one) for one in answer))


def _table(answer: Solutions) -> Table:
    best = next((one.best for one in answer if one.best), None)
    limits = [limit.text for limit in best.limits if limit.name] if best else []
    names = [*dict.fromkeys(name for one in answer if one.best for name in one.best.costs)]
    rows = []
    for one in answer:
        cells = [f"{value:,}" for value in one.fixed_sizes.values()]
        if one.best is None:
            near = one.nearest
            reason = (f"already at {near.value:,}: {_describe_violations(near.violated_limits)}"
                      if near else "cannot be built")
            rows.append([*cells, "-", *("" for _ in (*names, *limits)), "", reason])
            continue
        cells += [f"{one.best.value:,}",
                  *(_format_cost(one.best.costs.get(name, 0)) for name in names)]
        cells += [_format_cost(limit.slack) for limit in one.best.limits if limit.name]
        after = (_describe_violations(one.next.violated_limits) if one.next else "nothing limits it"
                 if one.is_open_ended else "")
        rows.append([*cells, f"{one.next.value:,}" if one.next else "-", after])
    headings = (*answer[0].fixed_sizes, f"{answer[0].direction} {answer[0].key}", *names,
                *(f"room: {text}" for text in limits), "next", "breaks")
    return make_table(headings, rows, left_columns=(len(headings) - 1,))


def render_trades(trades: TradeOffs, reference: str, protocol: Protocol) -> Iterator[Table | str]:
    """A table of the trades, and what they keep of ``reference``."""
    rows = []
    for row in trades.pairs[:MAX_ROWS_PRINTED]:
        cells = [f"{row[key]:,}" for key in trades.keys]
        for name, held in trades.reference.items():
            away = row[name] - held
            cells += [_format_cost(row[name]), _format_cost(away, "+") if away else "0",
                      f"{percent_difference(row[name], held):+.3f}"]
        rows.append(cells)
    headings = (*trades.keys,
                *(text for name in trades.reference for text in (name, "difference", "%")))
    yield make_table(headings, rows, left_columns=())
    if len(trades.pairs) > MAX_ROWS_PRINTED:
        yield f"… {len(trades.pairs) - MAX_ROWS_PRINTED:,} more: --csv FILE, --json or frame() has them all"
    costs = ", ".join(f"{name} {_format_cost(value)}" for name, value in trades.reference.items())
    tried = ", ".join(f"{key} up to {high:,}" for key, high in trades.max_values.items())
    built = f", {trades.n_unbuildable:,} cannot be built" if trades.n_unbuildable else ""
    held = " and ".join(map(str, trades.tolerances))
    yield from protocol.weight_work_lines(*(costs.get(WEIGHT_WORK_COST, 0)
                                            for costs in (trades.reference, *trades.pairs)))
    yield (f"{len(trades.pairs):,} trades that keep {held} of {reference} ({costs})\ncosted "
           f"{trades.n_evaluated:,} combinations ({tried}){built}\nprotocol "
           f"{protocol}\n{protocol.conventions}")
