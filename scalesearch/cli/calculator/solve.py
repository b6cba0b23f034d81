"""``scalesearch solve``: largest size within a budget, and trade-offs of sizes."""

from __future__ import annotations

from typing import Any

import click

from scalesearch.cli.options import (
    OutputPath,
    RenamedOption,
    json_option,
    load_architecture,
    load_space,
    print_costs,
    protocol_options,
    set_option,
    write_csv,
)
from scalesearch.errors import UserError
from scalesearch.terminal import print_text, wide_console


@click.command(name="solve")
@click.argument("file")
@click.argument("goal", required=False)
@set_option
@protocol_options
@click.option("--budget", "budgets", multiple=True, metavar="LIMITS",
              help="Budget, e.g. 'params.total <= 10M and macs.total <= 2G', or the name of a "
              "budget of the file. Can be repeated.")
@click.option("--for", "for_each", multiple=True, metavar="KEY=VALUES",
              help="Solve once per value, e.g. --for encoder.depth=1..24. With --trade: the range "
              "of a size.")
@click.option("--step", type=click.IntRange(1), default=1, show_default=True,
              help="Only try multiples of this number.")
@click.option("--trade", metavar="KEY,KEY",
              help="List the pairs of these sizes that keep the costs in --hold.")
@click.option("--hold", "holds", multiple=True, metavar="TOLERANCE",
              help="Costs to keep, e.g. 'macs.total within 1% and params.total within 5%'.")
@click.option("--reference", cls=RenamedOption, earlier=("--of",), metavar="FILE",
              help="Keep the costs of this architecture instead of FILE's.")
@click.option("--csv", type=OutputPath(), help="Write the table as CSV.")
@json_option
def command(file: str, goal: str | None, settings: tuple[str, ...],
            protocol_overrides: dict[str, Any], budgets: tuple[str, ...], for_each: tuple[str, ...],
            step: int, trade: str | None, holds: tuple[str, ...], reference: str | None,
            csv: str | None, as_json: bool) -> None:
    """Find the largest or smallest size of the architecture in FILE within a budget.

    GOAL is 'max KEY' or 'min KEY'. With --trade, pairs of sizes with constant costs are listed.
    Results are exact: all values are evaluated, or bisection is used if the costs are monotonic. If
    FILE gives the key a range, the range is searched; otherwise all values from 1 that fit the
    budget.

    \b
    Example: scalesearch solve transformer 'max width' --budget 'params.total <= 10M'
    """
    if (goal is None) == (trade is None):
        raise UserError("give either a goal, such as 'max width', or --trade "
                        "encoder.depth,decoder.depth", code="no-goal")
    if goal is not None and (holds or reference):
        raise UserError("--hold and --reference need --trade; a goal uses --budget",
                        code="options-conflict")
    from scalesearch import whatif
    from scalesearch.cost import load_protocol
    from scalesearch.whatif import tables
    from scalesearch.whatif.free_sizes import parse_sizes

    space = load_space(file, settings)
    ranges: dict[str, str | None] = {}
    for text in for_each:
        key, separator, values = text.partition("=")
        ranges[key.strip()] = values if separator else None
    sizes = parse_sizes(space, ranges)
    protocol = load_protocol(space.protocol, **protocol_overrides)
    if trade is not None:
        config = load_architecture(reference)[1].config if reference else None
        keys = [key.strip() for key in trade.split(",")]
        trades = whatif.find_trade_offs(space, keys, holds, config, budgets, protocol, sizes)
        if csv:
            write_csv(trades, csv)
        if as_json:
            print_costs(trades.to_json() | {"protocol": protocol.to_json()}, protocol)
        else:
            for part in tables.render_trades(trades, reference or "the file", protocol):
                print_text(part, wide_console())
        has_result = bool(trades.pairs)
    else:
        solutions = whatif.solve(space, goal or "", budgets, sizes, protocol, step)
        if csv:
            write_csv(solutions, csv)
        if as_json:
            print_costs({"goal": goal, "protocol": protocol.to_json(),
                         "solutions": [solution.to_json() for solution in solutions]}, protocol)
        else:
            first, *others = tables.render_solutions(solutions, protocol)
            print_text(first, wide_console(), style="bold" if solutions[0].best else None)
            for part in others:
                print_text(part, wide_console())
        has_result = any(solution.best for solution in solutions)
    if not has_result:
        raise SystemExit(1)
