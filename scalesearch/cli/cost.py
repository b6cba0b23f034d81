"""``scalesearch cost``: costs of architectures, sweeps and formulas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import (
    OutputPath,
    RenamedOption,
    complete_space,
    load_architecture,
    load_space,
    not_expressed_record,
    option,
    print_costs,
    protocol_options,
    weight_only_macs_lines,
)
from scalesearch.errors import UserError
from scalesearch.terminal import make_table, print_text

if TYPE_CHECKING:
    from rich.table import Table

    from scalesearch.cost import CostBreakdown, Protocol
    from scalesearch.feasible.limits import LimitCheck
    from scalesearch.nn.verify import CostCheck
    from scalesearch.spaces import Space


@click.command(name="cost")
@click.argument("files", nargs=-1, required=True, metavar="FILE...",
                shell_complete=complete_space)
@option("set")
@protocol_options
@click.option("--against", multiple=True, metavar="KEY=VALUE;…",
              help="Also cost FILE with these keys changed. Can be repeated.")
@click.option("--sweep", "sweeps", multiple=True, metavar="KEY=VALUES",
              help="Tabulate the cost over these values, e.g. width='128..512 step 64' or "
              "encoder.ffn='relu | geglu'; also source, target, length and vocab. Several "
              "architectures are compared over length.")
@click.option("--plot", type=OutputPath(), help="Plot the sweep to a .png, .svg or .pdf file, "
              "or to FILE.png and FILE.svg.")
@option("style")
@option("csv", help="Write the sweep or the comparison as CSV.")
@click.option("--formula", cls=RenamedOption, earlier=("--cite",), is_flag=True,
              help="Print formulas for params and MACs in the names of sizes, with S, T and V for "
              "lengths and vocabulary.")
@click.option("--levels", type=click.IntRange(1, 5), default=2, show_default=True,
              help="Number of module levels in the table.")
@click.option("--verify", "verify", is_flag=True,
              help="Also count with PyTorch (half of its FLOPs) and with fvcore.")
@click.option("--random", "seed", is_flag=False, flag_value=0, type=int, metavar="[SEED]",
              help="Cost a random candidate of a search space.")
@click.option("--smallest", is_flag=True,
              help="Cost the candidate of the space with the fewest parameters.")
@click.option("--largest", is_flag=True,
              help="Cost the candidate of the space with the most parameters.")
@option("json")
def command(files: tuple[str, ...], settings: tuple[str, ...], protocol_overrides: dict[str, Any],
            against: tuple[str, ...], sweeps: tuple[str, ...], plot: Path | None, csv: Path | None,
            formula: bool, levels: int, verify: bool, seed: int | None, smallest: bool,
            largest: bool, as_json: bool) -> None:
    """Compute the exact params, MACs, FLOPs and memory of the architecture in FILE.

    FLOPs are 2 · MACs, except for norms and biases that a protocol counts. Costs depend on the
    protocol: the sentence lengths and the conventions of counting. Several FILEs are compared with
    the first.

    \b
    Example: scalesearch cost transformer --set encoder.depth=12
    """
    from scalesearch.cli import cost_views

    is_comparison = len(files) + len(against) > 1
    views = {"several architectures": is_comparison, "--sweep": sweeps, "--formula": formula,
             "--verify": verify}
    selected_views = [name for name, is_set in views.items() if is_set]
    is_context_comparison = is_comparison and [sweep.partition("=")[0].strip()
                                               for sweep in sweeps] == ["length"]
    if len(selected_views) > (2 if is_context_comparison else 1):
        raise UserError(f"{' and '.join(selected_views)} cannot be combined: use one at a time",
                        code="options-conflict")
    if plot and not sweeps:
        raise UserError("--plot needs --sweep, for example --sweep width='128..1024 step 64'",
                        code="option-missing")
    if csv and not (sweeps or is_comparison):
        raise UserError("--csv needs --sweep or several architectures", code="option-missing")
    if formula and (protocol_overrides["artifact"] or protocol_overrides["latency"]):
        raise UserError("--formula supports only params and MACs: remove --artifact and --latency",
                        code="options-conflict")
    options = {"random": seed is not None, "smallest": smallest, "largest": largest}
    selections = [name for name, is_set in options.items() if is_set]
    if len(selections) > 1 or (selections and (is_comparison or sweeps or formula)):
        raise UserError("--random, --smallest and --largest select one candidate of one FILE: use "
                        "one of them, without --against, --sweep and --formula",
                        code="options-conflict")
    if is_context_comparison:
        cost_views.print_context_comparison(files, settings, against, sweeps, protocol_overrides,
                                            plot, csv, as_json)
    elif is_comparison:
        cost_views.print_comparison(files, settings, against, protocol_overrides, levels, csv,
                                    as_json)
    elif sweeps:
        cost_views.print_sweep(files[0], settings, sweeps, protocol_overrides, plot, csv, as_json)
    elif formula:
        cost_views.print_formulas(files[0], settings, protocol_overrides, levels, as_json)
    else:
        _print_single(files[0], settings, protocol_overrides, levels, verify, "".join(selections),
                      seed or 0, as_json)


def _print_single(file: str, settings: tuple[str, ...], protocol_overrides: dict[str, Any],
                  levels: int, verify: bool, selection: str, seed: int, as_json: bool) -> None:
    """Print the costs of the architecture in ``file``, or of a selected candidate."""
    from scalesearch.cost import evaluate_cost, load_protocol
    from scalesearch.cost.breakdown import module_costs
    from scalesearch.cost.latency import latency_interval
    from scalesearch.cost.tables import make_cost_tables, memory_line
    from scalesearch.spaces.assembly.architecture import (
        describe_uneven_heads,
        describe_unread_encoder,
        describe_unused,
    )

    selected: dict[str, Any] = {}
    if selection:
        from scalesearch.feasible.pick import pick_candidate
        from scalesearch.spaces.syntax.parameters import format_constant

        space = load_space(file, settings)
        config, description = pick_candidate(
            space, selection, seed, load_protocol(space.protocol, **protocol_overrides))
        architecture = space.architecture(config)
        selected = {"how": description, "params": {key: format_constant(value)
                                                   for key, value in config.params.items()}}
    else:
        try:
            space, architecture = load_architecture(file, settings)
        except UserError as error:
            if error.code == "open-parameters":
                error.help = "or cost one candidate with --random, --smallest or --largest"
            raise
    protocol = load_protocol(space.protocol, **protocol_overrides).with_vocab(architecture.vocab)
    result = evaluate_cost(architecture.block, protocol)
    violated = _find_violated_limits(space, architecture.config, result)
    keys = [setting.partition("=")[0].strip() for setting in settings]
    notes = [*describe_uneven_heads(architecture.config),
             *describe_unused(keys, [architecture.config["model"]]),
             *describe_unread_encoder(architecture.config),
             *_describe_lengths(space, architecture.config, protocol)]
    if selected and not selected["params"]:
        notes.append("the file has one candidate: no parameter is open")
    checks: list[CostCheck] = []
    if verify:
        from scalesearch.nn.verify import verify_costs

        checks = verify_costs(architecture.block, protocol.source, protocol.target, protocol.vocab,
                              protocol.length)
    if as_json:
        modules = [{"path": module.path, "params": module.params, "macs": module.macs,
                    "calls": module.calls} for module in module_costs(result, levels)]
        record = {**result.by_quantity, "protocol": protocol.facts,
                  "architecture": architecture.to_dict(), "modules": modules}
        if result.latency:
            low, high = latency_interval(result.block, protocol)
            record["interval"] = {"low": low, "high": high}
        record |= not_expressed_record(space)
        if notes:
            record["notes"] = notes
        if violated:
            record["violated"] = [vars(limit) for limit in violated]
        if selected:
            record["picked"] = selected
        if verify:
            record["verify"] = [{**vars(check), "agrees": check.is_equal} for check in checks]
        print_costs(record, protocol)
    else:
        memory = memory_line(result)  # before any output: the latency model may be missing
        for table in make_cost_tables(result, levels):
            print_text(table)
        if checks:
            print_text(_make_check_table(checks, result))
        if selected and selected["params"]:
            print_text(make_table(("parameter", "value"), selected["params"].items(), (0, 1),
                                  f"Selected: {selected['how']}"))
        print_text("\n".join([memory, *weight_only_macs_lines({"": result}),
                              f"architecture {architecture.id} · protocol {protocol} · "
                              f"{protocol.conventions}", *(f"note: {note}" for note in notes)]))
        for limit in violated:
            excess = "" if limit.slack is None else f" by {-limit.slack:,}"
            print_text(f"where {limit.limit}: violated{excess}")
    if not all(check.is_equal for check in checks):
        raise SystemExit(1)


def _describe_lengths(space: Space, config: Mapping[str, Any],
                      protocol: Protocol) -> Iterator[str]:
    """Yield notes on lengths of ``protocol`` that may not be meant for this model."""
    is_learned = config.get("embedding.positions") == "learned"
    max_positions = config.get("embedding.max_length") if is_learned else space.max_positions
    lengths = (protocol.source, protocol.target)
    length = protocol.length or (sum(lengths) if config["model"] == "decoder-only"
                                 else max(lengths))
    if isinstance(max_positions, int) and length > max_positions:
        yield (f"{length:,} tokens are more than the {max_positions:,} positions of the model"
               + ", whose table of learned positions has no others" * is_learned)
    if (config["model"] == "encoder-only" and config.get("classes") is None
            and protocol.length is None and protocol.source != protocol.target):
        yield (f"the output predicts {protocol.target:,} tokens, and the encoder reads "
               f"{protocol.source:,}; to predict all of them, add --target {protocol.source}")


def _find_violated_limits(space: Space, config: Mapping[str, Any],
                          result: CostBreakdown) -> list[LimitCheck]:
    """Return the violated constraints of the space; those with unknown costs are left out."""
    from scalesearch.feasible.limits import check_limit, collect_limits
    from scalesearch.spaces.schema.cost_names import COST_NAMES

    checks = []
    for limit in collect_limits(space):
        with suppress(UserError):  # such as artifact.bytes without a format
            checks.append(check_limit(limit, lambda name: result[name] if name in COST_NAMES
                                      else config[name]))
    return [check for check in checks if not check.holds]


def _make_check_table(checks: list[CostCheck], result: CostBreakdown) -> Table:
    from rich.text import Text

    rows = []
    for check in checks:
        difference = check.measured - check.expected
        explanation = Text(f"{check.explanation}; then equal" if check.explained else "equal")
        if not check.is_equal:
            explanation = Text(f"unexplained: {difference - check.explained:+,}", "red")
        rows.append((check.quantity, check.counter, f"{check.expected:,}", f"{check.measured:,}",
                     f"{difference:+,}" if difference else "0", explanation))
    protocol = result.protocol
    tokens = (f"length {protocol.length}" if protocol.length
              else f"S={protocol.source}, T={protocol.target}")
    title = f"one teacher-forced pass, {tokens}, V={protocol.vocab}"
    headings = ("quantity", "counter", "scalesearch", "reference", "difference", "explanation")
    return make_table(headings, rows, (0, 1, 5), title)
