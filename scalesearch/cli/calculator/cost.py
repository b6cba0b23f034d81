"""``scalesearch cost FILE``: what an architecture costs, by module and in all; what if it were another."""

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
    weight_only_macs_lines,
)
from scalesearch.errors import UserError
from scalesearch.space.syntax.parameters import format_constant as as_text
from scalesearch.terminal import make_table, print_text

if TYPE_CHECKING:
    from rich.table import Table

    from scalesearch.cost import CostBreakdown
    from scalesearch.nn.verify import CostCheck
    from scalesearch.space import Space
    from scalesearch.space.assembly.architecture import ModelSpec


@click.command(name="cost")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@set_option
@protocol_options
@click.option("--against", multiple=True, metavar="KEY=VALUE;…",
              help="Beside FILE: it with other keys. Repeatable.")
@click.option("--sweep", "sweeps", multiple=True, metavar="KEY=VALUES",
              help="Table over width='128..512 step 64', encoder.ffn='relu | geglu'; source, "
              "target, length, vocab.")
@click.option("--plot", type=OutputPath(), help="Draw the sweep, as PNG and SVG.")
@click.option("--csv", type=OutputPath(), help="Write the sweep or the comparison.")
@click.option("--formula", "--cite", "formula", is_flag=True,
              help="Closed forms: keys in place of sizes, S, T, V for lengths.")
@click.option("--levels", type=click.IntRange(1, 5), default=2, show_default=True,
              help="Depth of the table.")
@click.option("--verify", "verify", is_flag=True,
              help="Count again with PyTorch's counter and with fvcore.")
@click.option("--random", "seed", is_flag=False, flag_value=0, type=int, metavar="[SEED]",
              help="Of a space that leaves something open: a random candidate.")
@click.option("--smallest", is_flag=True, help="Its candidate with the fewest weights.")
@click.option("--largest", is_flag=True, help="Its candidate with the most.")
@json_option
def command(files: tuple[str, ...], settings: tuple[str, ...], protocol_overrides: dict[str, Any],
            against: tuple[str, ...], sweeps: tuple[str, ...], plot: str | None, csv: str | None,
            formula: bool, levels: int, verify: bool, seed: int | None, smallest: bool,
            largest: bool, as_json: bool) -> None:
    """Params, MACs, FLOPs (2 · MACs) and memory of the architecture in FILE, exactly, under a named protocol.

    Several FILEs are set side by side, each compared with the first.
    """
    from scalesearch.cli.calculator import cost_views

    beside = len(files) + len(against) > 1
    _check_options(beside, bool(sweeps), formula, verify, plot, csv)
    if formula and (protocol_overrides["artifact"] or protocol_overrides["latency"]):
        raise UserError("--cite has no closed forms of artifacts: leave --artifact and --latency "
                        "out", code="options-conflict")
    asked = {"random": seed is not None, "smallest": smallest, "largest": largest}
    ways = [way for way, given in asked.items() if given]
    if len(ways) > 1 or (ways and (beside or sweeps or formula)):
        raise UserError("--random, --smallest and --largest choose one candidate of one FILE: give "
                        "one of them, and no other view", code="options-conflict")
    if beside:
        cost_views.print_comparison(files, settings, against, protocol_overrides, levels, csv,
                                    as_json)
    elif sweeps:
        cost_views.print_sweep(files[0], settings, sweeps, protocol_overrides, plot, csv, as_json)
    elif formula:
        cost_views.print_formulas(files[0], settings, protocol_overrides, levels, as_json)
    else:
        _one(files[0], settings, protocol_overrides, levels, verify, "".join(ways), seed or 0,
             as_json)


def _check_options(beside: bool, swept: bool, cited: bool, verified: bool, plot: str | None,
                   csv: str | None) -> None:
    """Refuses options that do not go together."""
    views = {"several architectures": beside, "--sweep": swept, "--cite": cited,
             "--verify": verified}
    chosen = [name for name, given in views.items() if given]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} do not go together: ask for one at a time",
                        code="options-conflict")
    if plot and not swept:
        raise UserError("--plot draws a sweep: give --sweep as well, for example --sweep "
                        "width='128..1024 step 64'", code="option-missing")
    if csv and not (swept or beside):
        raise UserError("--csv writes a sweep or a comparison: give --sweep or several "
                        "architectures", code="option-missing")


def _one(file: str, settings: tuple[str, ...], lengths: dict[str, Any], levels: int, verified: bool,
         way: str, seed: int, as_json: bool) -> None:
    """One architecture's costs: the one in ``file``, or the one that is picked from it."""
    from scalesearch.cost import evaluate_cost, load_protocol

    space, architecture, picked = _architecture(file, settings, lengths, way, seed)
    protocol = load_protocol(space.protocol, **lengths).with_vocab(architecture.vocab)
    result = evaluate_cost(architecture.block, protocol)
    checks: list[CostCheck] = []
    if verified:
        from scalesearch.nn.verify import verify_costs

        checks = verify_costs(architecture.block, protocol.source, protocol.target, protocol.vocab)
    if as_json:
        extra = {"picked": picked} if picked else {}
        extra |= {"verify": [{**vars(check), "agrees": check.is_equal}
                             for check in checks]} if verified else {}
        print_costs(_record(result, architecture, levels) | extra, protocol)
    else:
        _print(result, architecture, levels, checks, picked)
    if not all(check.is_equal for check in checks):
        raise SystemExit(1)


def _architecture(file: str, settings: tuple[str, ...], lengths: dict[str, Any], way: str, seed: int
                  ) -> tuple[Space, ModelSpec, dict[str, Any]]:
    """The space in ``file``, its architecture, and how that was picked, if it was."""
    if not way:
        return *load_architecture(file, settings), {}
    from scalesearch.cost import load_protocol
    from scalesearch.feasible.pick import pick_candidate

    space = load_space(file, settings)
    answers, how = pick_candidate(space, way, seed, load_protocol(space.protocol, **lengths))
    params = {key: as_text(value) for key, value in answers.params.items()}
    return space, space.architecture(answers), {"how": how, "params": params}


def _record(result: CostBreakdown, architecture: ModelSpec, levels: int) -> dict[str, Any]:
    """The costs for ``--json``; of a predicted latency its interval as well."""
    from scalesearch.cost.latency import latency_interval
    from scalesearch.cost.modules import module_costs

    modules = [{"path": r.path, "params": r.params, "macs": r.macs, "calls": r.calls}
               for r in module_costs(result, levels)]
    record = {**result.to_json(), "architecture": architecture.to_json(), "modules": modules}
    if result.latency:
        record["interval"] = dict(zip(("low", "high"),
                                      latency_interval(result.block, result.protocol)))
    return record


def _print(result: CostBreakdown, architecture: ModelSpec, levels: int, checks: list[CostCheck],
           picked: dict[str, Any]) -> None:
    from scalesearch.cost.tables import make_cost_tables, memory_line

    memory = memory_line(result)
    protocol = result.protocol  # first, for a fit that is not there
    for table in (*make_cost_tables(result, levels),
                  *([_checks(checks, result)] if checks else [])):
        print_text(table)
    if picked:
        print_text(make_table(("key", "answer"), picked["params"].items(), (0, 1),
                              f"Chosen: {picked['how']}"))
    print_text("\n".join([memory, *weight_only_macs_lines({"": result}),
                          f"architecture {architecture.id} · protocol {protocol} · "
                          f"{protocol.conventions}"]))


def _checks(checks: list[CostCheck], result: CostBreakdown) -> Table:
    from rich.text import Text

    rows = []
    for check in checks:
        difference = (f"{check.measured - check.expected:+,}" if check.measured != check.expected
                      else "0")
        verdict = Text("equal" if not check.explained else f"{check.explanation}; then equal")
        if not check.is_equal:
            verdict = Text(f"unexplained: {check.measured - check.explained - check.expected:+,}",
                           "red")
        rows.append((check.quantity, check.counter, f"{check.expected:,}", f"{check.measured:,}",
                     difference, verdict))
    lengths = result.protocol
    title = f"one teacher-forced pass, S={lengths.source}, T={lengths.target}, V={lengths.vocab}"
    return make_table(("", "counter", "ours", "theirs", "difference", "explained"), rows, (0, 1, 5),
                      title)
