"""``scalesearch solve``: largest size within a budget, and trade-offs of sizes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from scalesearch.cli.options import (
    RenamedOption,
    check_keys_differ,
    complete_space,
    load_architecture,
    load_space,
    option,
    print_costs,
    protocol_options,
    write_csv,
)
from scalesearch.errors import UserError
from scalesearch.terminal import print_text, wide_console


@click.command(name="solve")
@click.argument("file", shell_complete=complete_space)
@click.argument("goal", required=False)
@option("set")
@protocol_options
@option("budget")
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
@option("csv")
@option("json")
def command(file: str, goal: str | None, settings: tuple[str, ...],
            protocol_overrides: dict[str, Any], budgets: tuple[str, ...], for_each: tuple[str, ...],
            step: int, trade: str | None, holds: tuple[str, ...], reference: str | None,
            csv: Path | None, as_json: bool) -> None:
    """Find the largest or smallest size of the architecture in FILE within a budget.

    GOAL is 'max KEY' or 'min KEY'. With --trade, pairs of sizes with constant costs are listed.
    If FILE gives the key a range, this range is searched; otherwise all values from 1. Results are
    exact: all values are evaluated. If there are more than 100,000 and costs rise with the size, a
    grid and the values near each change are evaluated instead.

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

    check_keys_differ(for_each, "--for")
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
        result: Any = whatif.find_trade_offs(space, keys, holds, config, budgets, protocol, sizes,
                                             step)
        record = asdict(result)
        parts = tables.render_trades(result, reference or "the file", protocol)
        has_result = bool(result.trades)
    else:
        result = whatif.solve(space, goal or "", budgets, sizes, protocol, step)
        record = {"goal": goal, "protocol": {},
                  "solutions": [*map(tables.solution_to_json, result)]}
        parts = tables.render_solutions(result, protocol)
        has_result = any(solution.best for solution in result)
    if csv:
        write_csv(result, csv)
    if as_json:
        print_costs({**record, "protocol": protocol.facts}, protocol)
    else:
        is_bold = trade is None and bool(result[0].best)  # the solution
        for number, part in enumerate(parts):
            print_text(part, wide_console(), style="bold" if is_bold and not number else None)
    if not has_result:
        raise SystemExit(1)
