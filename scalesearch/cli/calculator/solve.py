"""``scalesearch solve FILE 'max width' --budget …``: the largest size that fits; ``--trade``: what keeps a cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import (
    OutputPath,
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

if TYPE_CHECKING:
    from scalesearch.whatif import Solutions, TradeOffs


@click.command(name="solve")
@click.argument("file")
@click.argument("goal", required=False)
@set_option
@protocol_options
@click.option("--budget", "budgets", multiple=True, metavar="LIMITS",
              help="'params.total <= 10M "
              "and macs.total <= 2G', or the name of one of the file's budgets. Repeatable.")
@click.option("--for", "for_each", multiple=True, metavar="KEY=VALUES", 
              help="Once for each: --for encoder.depth=1..24. Of a traded size: its range.")
@click.option("--step", type=click.IntRange(1), default=1, show_default=True,
              help="Look at multiples of this only.")
@click.option("--trade", metavar="KEY,KEY",
              help="List the pairs of these sizes that keep what --hold says.")
@click.option("--hold", "holds", multiple=True, metavar="TOLERANCE",
              help="'macs.total within 1%', joined by 'and'.")
@click.option("--of", "reference", metavar="FILE",
              help="Hold the costs of this architecture, not of FILE itself.")
@click.option("--csv", type=OutputPath(), help="Write the table.")
@json_option
def command(file: str, goal: str | None, settings: tuple[str, ...],
            protocol_overrides: dict[str, Any], budgets: tuple[str, ...], for_each: tuple[str, ...],
            step: int, trade: str | None, holds: tuple[str, ...], reference: str | None,
            csv: str | None, as_json: bool) -> None:
    """The largest or smallest size of the architecture in FILE that is within a budget: GOAL is 'max KEY' or 'min KEY'.

    Exact: every value is costed, or the costs are found to rise and the end is closed in on. A key
    that FILE gives a range has that range; any other is tried from 1 up, until the budget breaks.
    """
    if (goal is None) == (trade is None):
        raise UserError("ask for one thing: a goal such as 'max width', or --trade "
                        "encoder.depth,decoder.depth", code="no-goal")
    if goal is not None and (holds or reference):
        raise UserError("--hold and --of belong to --trade; a goal has a --budget",
                        code="options-conflict")
    from scalesearch import whatif
    from scalesearch.cost import load_protocol
    from scalesearch.whatif import tables
    from scalesearch.whatif.free_sizes import parse_sizes

    space = load_space(file, settings)
    ranges = parse_sizes(space, {key.strip(): text if said else None for key, said, text in
                              (one.partition("=") for one in for_each)})
    protocol = load_protocol(space.protocol, **protocol_overrides)
    answer: Solutions | TradeOffs
    if trade is not None:
        of = load_architecture(reference)[1].config if reference else None
        keys = [key.strip() for key in trade.split(",")]
        answer = whatif.find_trade_offs(space, keys, holds, of, budgets, protocol, ranges)
        record = answer.to_json() | {"protocol": protocol.to_json()}
    else:
        answer = whatif.solve(space, goal or "", budgets, ranges, protocol, step)
        record = {"goal": goal, "protocol": protocol.to_json(),
                  "solutions": [one.to_json() for one in answer]}
    if csv:
        write_csv(answer, csv)
    if as_json:
        print_costs(record, protocol)
    else:
        shown = tables.render_solutions(answer, protocol) if isinstance(answer, tuple) else \
            tables.render_trades(answer, reference or "the file as it is", protocol)
        for at, part in enumerate(shown):
            print_text(part, wide_console(),
                       style="bold" if isinstance(answer, tuple) and answer[0].best and not at
                       else None)
    if not (any(one.best for one in answer) if isinstance(answer, tuple) else answer.pairs):
        raise SystemExit(1)
