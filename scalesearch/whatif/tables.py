"""Results of inverse queries for the terminal: sentences and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from scalesearch.cost import Protocol
from scalesearch.feasible.limits import LimitCheck
from scalesearch.spaces.schema.cost_names import COST_UNITS
from scalesearch.terminal import first_fitting_table, format_count, make_table
from scalesearch.whatif.solve import WEIGHT_WORK_COST, Solution, Solutions
from scalesearch.whatif.trade import TradeOffs, percent_difference

if TYPE_CHECKING:
    from rich.table import Table

MAX_ROWS_PRINTED = 60


def render_solutions(solutions: Solutions, protocol: Protocol) -> Iterator[Table | str]:
    """Yield sentences about one solution, or a table of several, and the protocol."""
    if len(solutions) == 1 and not solutions[0].fixed_sizes:
        yield from _describe_solution(solutions[0])
    else:
        yield first_fitting_table(partial(_table, solutions),
                                  partial(_table, solutions, has_slacks=False))
        yield _describe_searches(solutions)
        n_uneven = sum(bool(solution.notes) for solution in solutions)
        if n_uneven:
            yield f"note: in {format_count(n_uneven, 'row')}, heads do not divide the width"
    yield from protocol.weight_work_lines(*(solution.best.costs.get(WEIGHT_WORK_COST, 0)
                                            for solution in solutions if solution.best))
    yield f"protocol {protocol}\n{protocol.conventions}"


def solution_to_json(solution: Solution) -> dict[str, Any]:
    """Convert a solution to JSON values."""
    record = asdict(solution) | {"violates": solution.violated_limits,
                                 "notes": list(solution.notes)}
    record["for"] = record.pop("fixed_sizes")
    for point in filter(None, (record["best"], record["next"])):
        point["limits"] = list(point["limits"])
    return {key: value for key,
            value in record.items() if key not in ("n_within_budget", "nearest")}


def _describe_solution(solution: Solution) -> Iterator[str]:
    if solution.best is not None:
        is_max = solution.direction == "max"
        yield f"{solution.direction} {solution.key} = {solution.best.value:,}"
        if solution.changed_values:
            changes = ", ".join(f"{key} = {value}"
                                for key, value in solution.changed_values.items())
            yield f"computed values: {changes}"
        yield ", ".join(f"{name} {_format_cost(value, name)}"
                        for name, value in solution.best.costs.items())
        for limit in solution.best.limits:
            result = ("met" if limit.slack is None
                      else f"{_format_cost(abs(limit.slack), limit.limit)} left")
            yield f"  {limit.limit}: {result}"
        if solution.next is not None:
            yield (f"next: {solution.next.value:,} violates "
                   f"{_describe_violations(solution.next.violated_limits)}")
        elif solution.is_open_ended:
            yield f"the budget does not limit it: the search ends at {solution.high:,}"
        elif solution.best.value == (
                solution.high if is_max else solution.low):
            yield (f"next: none, {solution.best.value:,} is the "
                   f"{'largest' if is_max else 'smallest'} value of the range")
        else:
            in_range = "of the range " if solution.step != 1 or solution.n_unbuildable == 0 else ""
            yield f"next: no {'larger' if is_max else 'smaller'} value {in_range}can be built"
    elif solution.nearest is None:
        yield f"no {solution.key} from {solution.low:,} to {solution.high:,} can be built"
    else:
        yield (f"no {solution.key} from {solution.low:,} to {solution.high:,} is within the "
               f"budget; the nearest, {solution.nearest.value:,}, violates "
               f"{_describe_violations(solution.nearest.violated_limits)}")
    yield _describe_search(solution)
    yield from (f"note: {note}" for note in solution.notes)


def _format_cost(value: float, name: str = "") -> str:
    """Format the cost ``name``, or its limit: integers exactly, other numbers with four digits."""
    unit = f" {COST_UNITS.get(name.partition(' ')[0], '')}".rstrip()
    return (f"{value:,}" if isinstance(value, int) else f"{value:,.4g}") + unit


def _describe_violations(limits: Iterable[LimitCheck]) -> str:
    """Violated limits, each with its distance to the bound."""
    return " and ".join(limit.limit if limit.slack is None
                        else f"{limit.limit} by {_format_cost(abs(limit.slack), limit.limit)}"
                        for limit in limits)


def _describe_search(solution: Solution) -> str:
    """Values that were evaluated, and whether costs rise."""
    unbuildable = (f", {solution.n_unbuildable:,} of which cannot be built"
                   if solution.n_unbuildable else "")
    steps = f" in steps of {solution.step}" if solution.step > 1 else ""
    evaluated = f"evaluated all values from {solution.low:,} to {solution.high:,}{steps}"
    if not solution.is_exhaustive:
        evaluated = (f"evaluated {solution.n_evaluated:,} of the values from {solution.low:,} to "
                     f"{solution.high:,}")
        if not solution.is_open_ended:
            evaluated += ", among them all near the limits of the budget"
    rising = {
        True: f"the costs in the budget rise with {solution.key}",
        False: f"the costs in the budget do not always rise with {solution.key}",
        None: "the budget has no costs"}[solution.is_monotonic]
    return f"{evaluated}{unbuildable}; {rising}"


def _describe_searches(solutions: Solutions) -> str:
    """Descriptions of all searches, in one line if they are equal."""
    is_exhaustive = all(solution.is_exhaustive for solution in solutions)
    if is_exhaustive and len({solution.is_monotonic for solution in solutions}) == 1:
        ends = sorted({solution.high for solution in solutions})
        n_unbuildable = sum(solution.n_unbuildable for solution in solutions)
        text = _describe_search(replace(solutions[0], high=ends[-1], n_unbuildable=n_unbuildable))
        if len(ends) == 1:
            return text
        return text.replace(f"to {ends[-1]:,}", f"to {ends[0]:,}, or up to {ends[-1]:,}", 1)
    return "\n".join(dict.fromkeys(_describe_search(solution) for solution in solutions))


def _table(solutions: Solutions, has_slacks: bool = True) -> Table:
    first_best = next((solution.best for solution in solutions if solution.best), None)
    limits = [limit.limit for limit in (first_best.limits if first_best else ())
              if has_slacks and limit.slack is not None]
    names = [*dict.fromkeys(name for solution in solutions if solution.best
                            for name in solution.best.costs)]
    rows = []
    for solution in solutions:
        best = solution.best
        cells = [f"{value:,}" for value in solution.fixed_sizes.values()]
        if best is None:
            nearest = solution.nearest
            reason = "cannot be built"
            if nearest:
                reason = f"at {nearest.value:,}: {_describe_violations(nearest.violated_limits)}"
            rows.append([*cells, "-", *("" for _ in (*names, *limits)), "", reason])
            continue
        cells += [f"{best.value:,}", *(_format_cost(best.costs.get(name, 0)) for name in names)]
        cells += [_format_cost(limit.slack) for limit in best.limits
                  if has_slacks and limit.slack is not None]
        if solution.next:
            cells += [f"{solution.next.value:,}",
                      _describe_violations(solution.next.violated_limits)]
        else:
            cells += ["-", "no limit" if solution.is_open_ended else ""]
        rows.append(cells)
    headings = (*solutions[0].fixed_sizes, f"{solutions[0].direction} {solutions[0].key}",
                *(f"{name} ({COST_UNITS[name]})" if name in COST_UNITS else name for name in names),
                *(f"slack: {text}" for text in limits), "next value", "violated constraint")
    return make_table(headings, rows, left_columns=(len(headings) - 1,))


def render_trades(trades: TradeOffs, reference: str, protocol: Protocol) -> Iterator[Table | str]:
    """Yield a table of the trade-offs, and a description.

    Args:
        reference: name of the reference.
    """
    rows = []
    for row in trades.trades[:MAX_ROWS_PRINTED]:
        cells = [f"{row[key]:,}" for key in trades.keys]
        for name, value in trades.reference.items():
            cells += [_format_cost(row[name]), f"{percent_difference(row[name], value):+.3f}"]
        rows.append(cells)
    headings = (*trades.keys,
                *(text for name in trades.reference for text in (name, "%")))
    yield make_table(headings, rows, left_columns=())
    if len(trades.trades) > MAX_ROWS_PRINTED:
        n_hidden = len(trades.trades) - MAX_ROWS_PRINTED
        yield f"… {n_hidden:,} more; see --csv FILE, --json or frame() for all"
    costs = ", ".join(f"{name} {_format_cost(value, name)}"
                      for name, value in trades.reference.items())
    ranges = ", ".join(f"{key} up to {value:,}" for key, value in trades.max_values.items())
    unbuildable = f", {trades.n_unbuildable:,} cannot be built" if trades.n_unbuildable else ""
    tolerances = " and ".join(trades.hold)
    yield from protocol.weight_work_lines(*(costs.get(WEIGHT_WORK_COST, 0)
                                            for costs in (trades.reference, *trades.trades)))
    yield (f"{format_count(len(trades.trades), 'trade-off')} with {tolerances} of {reference} "
           f"({costs})\n"
           f"evaluated {trades.n_evaluated:,} combinations ({ranges}){unbuildable}\n"
           f"protocol {protocol}\n{protocol.conventions}")
