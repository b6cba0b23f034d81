"""``scalesearch cost FILE``: what one architecture costs, by module and in all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import json_option, load_architecture, print_json, protocol_options, set_option

if TYPE_CHECKING:
    from rich.table import Table

    from scalesearch.cost import Cost
    from scalesearch.nn.verify import Check


@click.command(name="cost")
@click.argument("file")
@set_option
@protocol_options
@click.option("--levels", type=click.IntRange(1, 5), default=2, show_default=True, help="Depth of the table.")
@click.option("--verify", "verified", is_flag=True, help="Count again with PyTorch's counter and with fvcore.")
@json_option
def command(
    file: str,
    settings: tuple[str, ...],
    protocol: str | None,
    source: int | None,
    target: int | None,
    vocab: int | None,
    levels: int,
    verified: bool,
    as_json: bool,
) -> None:
    """Params, MACs, FLOPs (2 · MACs) and memory of the architecture in FILE, exactly, under a named protocol."""
    from scalesearch.cost import cost, protocol_of
    from scalesearch.cost.modules import rows

    space, architecture = load_architecture(file, settings)
    chosen = protocol_of(space.protocol, name=protocol, source=source, target=target, vocab=vocab)
    result = cost(architecture.block, chosen)
    checks: list[Check] = []
    if verified:
        from scalesearch.nn.verify import verify

        checks = verify(architecture.block, chosen.source, chosen.target, chosen.vocab)
    if as_json:
        modules = [{"path": r.path, "params": r.params, "macs": r.macs, "calls": r.calls} for r in rows(result, levels)]
        extra: dict[str, Any] = {"verify": [_check_json(check) for check in checks]} if verified else {}
        print_json(result.to_json() | {"architecture": architecture.to_json(), "modules": modules} | extra)
    else:
        _show(result, architecture.id, levels, checks)
    if not all(check.agrees for check in checks):
        raise SystemExit(1)


def _show(result: Cost, identity: str, levels: int, checks: list[Check]) -> None:
    from rich.console import Console

    console = Console()
    console.print(_modules(result, levels), "")
    console.print(_totals(result), "")
    if checks:
        console.print(_checks(checks, result), "")
    console.print(_memory(result), highlight=False, soft_wrap=True)
    console.print(
        f"architecture {identity} · protocol {result.protocol} · flops = 2 · macs", highlight=False, soft_wrap=True
    )


def _modules(result: Cost, levels: int) -> Table:
    from rich.table import Table

    from scalesearch.cost.modules import rows

    table = Table("module", box=None, header_style="bold")
    for heading in ("calls", "params", "%", "MACs", "%"):
        table.add_column(heading, justify="right", overflow="fold")  # a number is never cut short
    for row in rows(result, levels):
        name = "  " * row.level + row.path.rsplit(".", 1)[-1]
        calls = "" if row.calls is None else f"{row.calls}"
        shares = [_share(row.params, result["params.total"]), _share(row.macs, result["macs.total"])]
        table.add_row(
            name, calls, f"{row.params:,}", shares[0], f"{row.macs:,}", shares[1], style="" if row.level else "bold"
        )
    return table


def _totals(result: Cost) -> Table:
    from rich.table import Table

    from scalesearch.cost.ledger import QUANTITIES, SECTIONS

    table = Table("", box=None, header_style="bold")
    for quantity in QUANTITIES:
        table.add_column(quantity, justify="right", overflow="fold")
    for section in SECTIONS:
        table.add_row(section.replace("_", "-"), *(f"{result[f'{quantity}.{section}']:,}" for quantity in QUANTITIES))
    return table


def _memory(result: Cost) -> str:
    held = ", ".join(f"{name} {result[f'memory.{name}'] / 2**20:,.1f} MiB" for name in ("weights", "cache"))
    kept = result["memory.activations"] / 2**20
    return f"memory in float32: {held}; a sentence's activations in training: about {kept:,.1f} MiB"


def _checks(checks: list[Check], result: Cost) -> Table:
    from rich.table import Table

    lengths = result.protocol
    table = Table("", "counter", box=None, header_style="bold")
    table.title = f"one teacher-forced pass, S={lengths.source}, T={lengths.target}, V={lengths.vocab}"
    table.title_justify = "left"
    for heading in ("ours", "theirs", "difference"):
        table.add_column(heading, justify="right", overflow="fold")
    table.add_column("explained")
    for check in checks:
        difference = f"{check.theirs - check.ours:+,}" if check.theirs != check.ours else "0"
        verdict = "equal" if not check.explained else f"{check.why}; then equal"
        verdict = verdict if check.agrees else f"[red]unexplained: {check.theirs - check.explained - check.ours:+,}[/]"
        table.add_row(check.what, check.counter, f"{check.ours:,}", f"{check.theirs:,}", difference, verdict)
    return table


def _check_json(check: Check) -> dict[str, Any]:
    return {**vars(check), "agrees": check.agrees}


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"
