"""Views of ``scalesearch cost``: comparison, sweep over sizes, and formulas."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from scalesearch.cli.options import (
    load_architecture,
    load_space,
    not_expressed_record,
    parse_settings,
    print_costs,
    weight_only_macs_lines,
    write_csv,
    write_errors_named,
)
from scalesearch.errors import UserError
from scalesearch.library import require_packages
from scalesearch.report.figures import FIGURE_METADATA
from scalesearch.spaces.schema.cost_names import OWN_VOCABULARY
from scalesearch.spaces.syntax.parameters import format_constant as as_text
from scalesearch.terminal import (
    format_size,
    make_table,
    print_text,
    set_column_widths,
    table_width,
    wide_console,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from scalesearch.cost import Protocol
    from scalesearch.spaces import Space
    from scalesearch.spaces.assembly.architecture import ModelSpec
    from scalesearch.whatif import CostComparison, Sweep

MAX_SWEEP_ROWS = 60  # rows of a sweep that are printed
N_CURVE_POINTS = 60  # of a line over lengths in a figure
# Values of fixed parameters that are not printed.
DEFAULT_VALUES = {"none", "off", "own", "nothing", "matrices", "euler", "auto", "solved", False}


# -- comparison


def print_comparison(files: tuple[str, ...], settings: tuple[str, ...], against: tuple[str, ...],
                     protocol_overrides: dict[str, Any], levels: int, csv: Path | None,
                     as_json: bool) -> None:
    """Print the costs of several architectures under the protocol of the first file."""
    from scalesearch.cost import evaluate_cost
    from scalesearch.cost.tables import artifact_lines
    from scalesearch.whatif import compare_costs

    loaded, protocol = _load_compared(files, settings, against, protocol_overrides)
    comparison = compare_costs({
        name: evaluate_cost(architecture.block, _protocol_of(space, architecture, protocol))
        for name, (space, architecture) in loaded.items()}, levels)
    if csv:
        write_csv(comparison, csv)
    if as_json:
        architectures = [{"name": name, **comparison.costs[name].by_quantity,
                          "protocol": comparison.costs[name].protocol.facts,
                          "architecture": architecture.to_dict(),
                          **not_expressed_record(own_space)}
                         for name, (own_space, architecture) in loaded.items()]
        print_costs({"protocol": protocol.facts, "architectures": architectures,
                     "modules": [{**asdict(row), "differences": row.differences,
                                  "percent": row.percent} for row in comparison.rows]}, protocol)
        return
    for quantity, label in (("params", "params"), ("macs", "MACs")):
        for table in _make_difference_tables(comparison, quantity, label):
            print_text(table, wide_console())
    for line in weight_only_macs_lines(comparison.costs):
        print_text(line)
    for name, result in comparison.costs.items():
        for line in artifact_lines(result):
            print_text(f"{name}: {line}")
    protocols = {name: f"protocol {result.protocol}" for name, result in comparison.costs.items()}
    first, shared = next(iter(protocols.items()))
    if len({*protocols.values()}) == 1:
        print_text(f"differences to {first} · {shared}")
    else:
        for name, text in protocols.items():
            print_text(f"{name}: {text}")
        print_text(f"differences to {first}")
    print_text(protocol.conventions)


def _load_compared(files: tuple[str, ...], settings: tuple[str, ...], against: tuple[str, ...],
                   protocol_overrides: dict[str, Any]
                   ) -> tuple[dict[str, tuple[Space, ModelSpec]], Protocol]:
    """Load the architectures of ``files``, and of the first with the changes ``against``.

    Returns:
        Name to space and architecture, and the protocol of the first file.
    """
    from scalesearch.cost import load_protocol

    if against and len(files) > 1:
        raise UserError("--against changes one FILE: give a single FILE, or remove --against",
                        code="options-conflict")
    short_names = [Path(file).name.removesuffix(".yaml") for file in files]
    names = short_names if len(set(short_names)) == len(files) else list(files)
    names = [name if names.count(name) == 1 else f"{name} ({number})"
             for number, name in enumerate(names, 1)]
    loaded = {name: load_architecture(file, settings) for name, file in zip(names, files)}
    for change in dict.fromkeys(against):
        changes = tuple(part.strip() for part in change.split(";") if part.strip())
        loaded[change] = load_architecture(files[0], settings, changes or (change,))
    space, _ = next(iter(loaded.values()))
    has_own_vocab = any(architecture.vocab for _, architecture in loaded.values())
    vocab = {"vocab": OWN_VOCABULARY} if has_own_vocab else {}
    protocol = load_protocol({**space.protocol, **vocab}, **protocol_overrides)
    return loaded, protocol


def _protocol_of(space: Space, architecture: ModelSpec, protocol: Protocol) -> Protocol:
    """The protocol of a comparison with the vocabulary of one architecture.

    If others have their own vocabulary and this one does not, it has that of its space's protocol.
    """
    from scalesearch.cost import load_protocol

    vocab = architecture.vocab
    if vocab is None and protocol.vocab == OWN_VOCABULARY:
        vocab = load_protocol(space.protocol).vocab_size
    return protocol.with_vocab(vocab)


def _make_difference_tables(comparison: CostComparison, quantity: str, label: str
                            ) -> Iterator[Table]:
    """Yield tables of the first architecture and as many others as fit the terminal.

    Names of modules are not split.
    """
    width = table_width(wide_console())
    n_others = len(comparison.costs) - 1
    start = 0
    while start < n_others:
        for end, has_differences in itertools.product(range(n_others, start, -1), (True, False)):
            table = _make_difference_table(comparison, quantity, label, slice(start, end),
                                           has_differences)
            names = table.columns[0]
            name_width = max(len(str(cell)) for cell in names.cells)
            if set_column_widths(table, width) <= width and (names.width or width) >= name_width:
                break
        yield table
        start = end


def _make_difference_table(comparison: CostComparison, quantity: str, label: str, shown: slice,
                           has_differences: bool) -> Table:
    first, *others = comparison.costs
    difference_headings = ("difference", "%") if has_differences else ("%",)
    headings = [label, first]
    for name in others[shown]:
        headings += [name, *difference_headings]
    rows = []
    for row in comparison.rows:
        base, *sizes = getattr(row, quantity)
        base_exists, *exist = row.exists
        cells = ["  " * row.level + row.path.rsplit(".", 1)[-1],
                 f"{base:,}" if base_exists else "-"]
        columns = zip(sizes, exist, row.differences[quantity], row.percent[quantity])
        for size, exists, difference, share in [*columns][shown]:
            percent = "0" if share is not None else ""
            if exists != base_exists:  # for example layers of their own instead of equal ones
                percent = "only here" if exists else "not here"
            elif difference:
                percent = "" if share is None else f"{share:+.1f}"
            cells.append(f"{size:,}" if exists else "-")
            if has_differences:
                cells.append(f"{difference:+,}" if difference else "0")
            cells.append(percent)
        rows.append(cells)
    return make_table(headings, rows,
                      row_styles=["" if row.level else "bold" for row in comparison.rows])


@contextmanager
def _figure_stem(path: Path) -> Iterator[Path]:
    """Context with the path of a figure without its suffix, which selects the format.

    Without a suffix, PNG and SVG are written.

    Raises:
        UserError: it has the suffix of another format.
    """
    from scalesearch.report.figures.style import figure_formats

    suffix = path.suffix[1:]
    if suffix in ("jpg", "jpeg", "gif", "eps"):
        raise UserError(f"--plot {path}: figures are written as PNG, SVG or PDF",
                        help=f"use --plot {path.with_suffix('.pdf')}", code="cannot-write")
    with write_errors_named("--plot", path):
        if suffix not in FIGURE_METADATA:
            yield path
            return
        with figure_formats([suffix]):
            yield path.with_suffix("")


# -- a comparison over the length of the context


def print_context_comparison(files: tuple[str, ...], settings: tuple[str, ...],
                             against: tuple[str, ...], sweeps: tuple[str, ...],
                             protocol_overrides: dict[str, Any], plot: Path | None,
                             csv: Path | None, as_json: bool) -> None:
    """Print costs of several architectures over the length of the context."""
    from scalesearch.whatif import compare_contexts
    from scalesearch.whatif.contexts import CONTEXT_COLUMNS
    from scalesearch.whatif.sweep import parse_lengths

    loaded, protocol = _load_compared(files, settings, against, protocol_overrides)
    blocks = {name: (architecture.block, _protocol_of(space, architecture, protocol))
              for name, (space, architecture) in loaded.items()}
    lengths = parse_lengths("length", parse_settings(sweeps, "--sweep")["length"])
    comparison = compare_contexts(blocks, lengths)
    figures = []
    if plot:
        require_packages("matplotlib")
        from scalesearch.report.figures.style import save_figure
        from scalesearch.report.figures.sweep import plot_contexts

        with _figure_stem(plot) as stem:
            figures = save_figure(plot_contexts(comparison.frame(), protocol.facts), stem)
    if csv:
        write_csv(comparison, csv)
    if as_json:
        print_costs({"protocol": protocol.facts, "rows": comparison.rows,
                     "crossings": [to_builtins(crossing) for crossing in comparison.crossings],
                     "files": [str(path) for path in figures]}, protocol)
        return
    rows = [[f"{row['length']:,}", row["name"], *(f"{row[cost]:,}" for cost in CONTEXT_COLUMNS)]
            for row in comparison.rows]
    print_text(make_table(("length", "", *CONTEXT_COLUMNS), rows, (1,)), wide_console())
    for line in (*comparison.crossings, *(f"Written: {path}" for path in figures)):
        print_text(str(line))
    print_text(f"protocol {protocol}, except the length\n{protocol.conventions}")


# -- a sweep


def print_sweep(file: str, settings: tuple[str, ...], sweeps: tuple[str, ...],
                protocol_overrides: dict[str, Any], plot: Path | None, csv: Path | None,
                as_json: bool) -> None:
    """Print the costs of all combinations of the values in ``sweeps``."""
    from scalesearch.cost import load_protocol
    from scalesearch.whatif import sweep_costs
    from scalesearch.whatif.crossings import LENGTH_SYMBOLS

    space = load_space(file, settings)
    values_by_key = parse_settings(sweeps, "--sweep")
    table = sweep_costs(space, values_by_key, load_protocol(space.protocol, **protocol_overrides))
    figures = _plot(table, space, plot) if plot else []
    if csv:
        write_csv(table, csv)
    if as_json:
        print_costs({"protocol": table.protocol.facts, "sweep": table.keys,
                     "rows": table.rows,
                     "crossings": [to_builtins(crossing) for crossing in table.crossings],
                     "files": [str(path) for path in figures]}, table.protocol)
        return
    values = {name: {row[name] for row in table.rows} for name in table.columns}
    varied = [name for name, distinct in values.items()
              if len(distinct) > 1 or None in distinct or len(table.rows) == 1]
    console = wide_console()
    printed = _make_sweep_table(table, varied, _format_cost)
    is_rounded = set_column_widths(printed, table_width(console)) > table_width(console)
    if is_rounded:
        printed = _make_sweep_table(table, varied, _format_rounded_cost)
    print_text(printed, console)
    if is_rounded:
        print_text("rounded to the width of the terminal; exact costs: --json or --csv FILE")
    for name in (name for name in table.columns if name not in varied and table.rows[0][name]):
        print_text(f"{name} is {_format_cost(table.rows[0][name])} in all rows")
    unbuildable = [row for row in table.rows if row["error"]]
    if unbuildable:
        example = ", ".join(f"{key}={_format_value(unbuildable[0][key])}" for key in table.keys)
        print_text(f"-: {len(unbuildable):,} of {len(table.rows):,} rows cannot be built, for "
                   f"example {example}: {unbuildable[0]['error']}")
    if len(table.rows) > MAX_SWEEP_ROWS:
        print_text(f"… {len(table.rows) - MAX_SWEEP_ROWS:,} more rows: use --csv FILE or "
                   "--json\n")
    has_own_vocab = table.protocol.vocab == OWN_VOCABULARY
    if "vocab" in table.keys and not has_own_vocab and all(
            crossing.length != "vocab" for crossing in table.crossings):
        print_text("no crossing over V, because shapes depend on the vocabulary")
    for line in (*table.crossings, *(f"Written: {path}" for path in figures)):
        print_text(str(line))
    free = [name for key in table.keys for name in LENGTH_SYMBOLS.get(key, ())
            if name != "V" or not has_own_vocab]
    print_text(f"protocol {table.protocol}" + (f", except {', '.join(free)}" if free else ""))
    print_text(table.protocol.conventions)


def _make_sweep_table(table: Sweep, names: list[str],
                      format_cost: Callable[[float | None], str]) -> Table:
    """Create the table of the swept values and of the costs ``names``."""
    rows = [[*(_format_value(row[key]) for key in table.keys),
             *(format_cost(row[name]) for name in names)] for row in table.rows[:MAX_SWEEP_ROWS]]
    return make_table((*table.keys, *names), rows, left_columns=())


def _format_cost(cost: float | None) -> str:
    return "-" if cost is None else f"{cost:,}" if isinstance(cost, int) else f"{cost:,.4g}"


def _format_rounded_cost(cost: float | None) -> str:
    return "-" if cost is None else format_size(cost)


def _format_value(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return as_text(value)


def _plot(table: Sweep, space: Space, path: Path) -> list[Path]:
    require_packages("matplotlib")
    import numpy as np

    from scalesearch.report.figures.style import save_figure
    from scalesearch.report.figures.sweep import plot_sweep
    from scalesearch.whatif import sweep_costs
    from scalesearch.whatif.crossings import ATTENTION, LENGTH_SYMBOLS, OUTPUT

    labels = {OUTPUT: "output > encoder + decoder", ATTENTION: "attention > half"}
    marks = {low: f"{labels[crossing.part]} from {low:,}" for crossing in table.crossings
             if crossing.length == table.keys[0] for low, _ in crossing.ranges if low > 1}
    curve = None
    if len(table.keys) == 1 and table.keys[0] in LENGTH_SYMBOLS:  # costs are not linear in lengths
        key = table.keys[0]
        swept = [row[key] for row in table.rows]
        grid = np.geomspace(max(1, min(swept)), max(swept), N_CURVE_POINTS)
        lengths = " | ".join(map(str, np.unique(grid.round().astype(int))))
        curve = sweep_costs(space, {key: lengths}, table.protocol).frame()
    with _figure_stem(path) as stem:
        return save_figure(plot_sweep(table.frame(), table.keys, table.protocol.facts, marks,
                                      curve), stem)


# -- formulas


def print_formulas(file: str, settings: tuple[str, ...], protocol_overrides: dict[str, Any],
                   levels: int, as_json: bool) -> None:
    """Print formulas of params and MACs by section (``levels`` 1) or by module."""
    from scalesearch.cost import load_protocol
    from scalesearch.whatif.citation import cite

    space, architecture = load_architecture(file, settings)
    protocol = load_protocol(space.protocol, **protocol_overrides).with_vocab(architecture.vocab)
    citation = cite(space, architecture.config, protocol, levels)
    if as_json:
        modules = {path: {"params": params.to_factored_text(), "macs": macs.to_factored_text()}
                   for path, (params, macs) in citation.modules.items()}
        print_costs({"protocol": protocol.facts, "costs": citation.costs, "modules": modules,
                     "values": {name: citation.values[name] for name in citation.names},
                     **{name: getattr(citation, name)
                        for name in ("where", "held_sizes", "numbers", "vocab_bound")},
                     "architecture": architecture.to_dict()}, protocol)
        return
    for index, quantity in enumerate(("params", "macs")):
        sections = (f"{quantity}.{name}" for name in ("embedding", "encoder", "decoder", "output"))
        print_text(f"{quantity}.total = "
                   f"{' + '.join(name for name in sections if citation.sections[name].terms) or 0}")
        for path, formulas in citation.modules.items():
            formula = formulas[index]
            if formula.terms:
                print_text(f"  {'  ' * path.count('.')}{path} = {formula.to_factored_text()}")
        print_text("")
    if citation.sections["macs.once"].terms:
        print_text(f"macs.once = {citation.sections['macs.once'].to_factored_text()}, on weights "
                   "only\n")
    print_text("with")
    for name in citation.names:
        origin = f"    (in this file = {citation.where[name]})" if name in citation.where else ""
        print_text(f"  {name} = {citation.values[name]:,}{origin}")
    words = {True: "yes", False: "no"}
    fixed = [f"{key} {words[value] if isinstance(value, bool) else value}"
             for key, value in citation.held_sizes.items()
             if not (isinstance(value, str | bool) and value in DEFAULT_VALUES)]
    print_text(f"fixed parameters: {', '.join(fixed)}")
    if citation.numbers:
        numbers = "1 number" if citation.numbers == 1 else f"{citation.numbers} numbers"
        print_text(f"{numbers} in the formulas cannot be written as sums and products of sizes "
                   "(groups of a schedule, a quotient, a minimum)")
    if citation.vocab_bound:
        print_text("some shapes depend on the vocabulary: the formulas hold only for this V")
    print_text(f"architecture {architecture.id} · protocol {citation.protocol} · "
               f"{citation.protocol.conventions}")
