"""Views of ``scalesearch cost`` beyond one architecture: several side by side, a sweep over sizes, formulas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.cli.options import (
    load_architecture,
    load_space,
    parse_settings,
    print_costs,
    weight_only_macs_lines,
    write_csv,
)
from scalesearch.errors import UserError
from scalesearch.library import require_packages
from scalesearch.space.schema.cost_names import OWN_VOCABULARY
from scalesearch.space.syntax.parameters import format_constant as as_text
from scalesearch.terminal import make_table, print_text, wide_console

if TYPE_CHECKING:
    from rich.table import Table

    from scalesearch.whatif import Citation, CostComparison, Sweep

MAX_SWEEP_ROWS = 60  # rows of a sweep that a terminal is given
# not worth a mention
DEFAULT_VALUES = {"none", "off", "own", "nothing", "matrices", "euler", "auto", "solved", False}


# -- side by side


def print_comparison(files: tuple[str, ...], settings: tuple[str, ...], against: tuple[str, ...],
                    protocol_overrides: dict[str, Any], levels: int, csv: str | None, as_json: bool) -> None:
    """Prints what ``files``, and the first with ``against``, cost under one protocol: the first file's."""
    from scalesearch.cost import evaluate_cost, load_protocol
    from scalesearch.cost.tables import artifact_lines
    from scalesearch.whatif import compare_costs

    if against and len(files) > 1:
        raise UserError("--against changes one FILE: give one, or name the files and leave it out",
                        code="options-conflict")
    loaded = {name: load_architecture(file, settings) for name, file in zip(_labels(files), files)}
    for change in dict.fromkeys(against):
        changes = tuple(part.strip() for part in change.split(";") if part.strip())
        loaded[change] = load_architecture(files[0], (*settings, *changes))
    space, _ = next(iter(loaded.values()))
    own = {"vocab": OWN_VOCABULARY} if any(one.vocab for _, one in loaded.values()) else {}
    protocol = load_protocol({**space.protocol, **own}, **protocol_overrides)
    for _, one in loaded.values():
        # refuses one that lacks a vocabulary where others have their own
        protocol.with_vocab(one.vocab)
    comparison = compare_costs({name: evaluate_cost(one.block, protocol)
                                for name, (_, one) in loaded.items()}, levels)
    if csv:
        write_csv(comparison, csv)
    if as_json:
        record = comparison.to_json()
        for entry, (_, architecture) in zip(record["architectures"], loaded.values()):
            entry["architecture"] = architecture.to_json()
        print_costs(record, protocol)
        return
    for quantity, words in (("params", "params"), ("macs", "MACs")):
        print_text(_differences(comparison, quantity, words), wide_console())
    for line in weight_only_macs_lines(comparison.costs):
        print_text(line)
    for name, result in comparison.costs.items():
        for line in artifact_lines(result):
            print_text(f"{name}: {line}")
    print_text(f"differences to {next(iter(comparison.costs))} · protocol "
               f"{protocol}\n{protocol.conventions}")


def _labels(files: tuple[str, ...]) -> list[str]:
    """Short names of files, or what was typed where these would be the same."""
    short = [Path(file).name.removesuffix(".yaml") for file in files]
    names = short if len(set(short)) == len(short) else list(files)
    return [name if names.count(name) == 1 else f"{name} ({at})"
            for at, name in enumerate(names, 1)]


def _differences(comparison: CostComparison, quantity: str, words: str) -> Table:
    first, *others = comparison.costs
    headings = [words, first, *(text for name in others for text in (name, "difference", "%"))]
    rows = []
    for row in comparison.rows:
        base, *sizes = getattr(row, quantity)
        cells = ["  " * row.level + row.path.rsplit(".", 1)[-1], f"{base:,}"]
        for size, difference, share in zip(sizes, row.differences(quantity),
                                           row.relative_differences(quantity)):
            percent = "0" if share is not None else ""
            if difference:
                percent = "new" if share is None else f"{share:+.1f}"
            cells += [f"{size:,}", f"{difference:+,}" if difference else "0", percent]
        rows.append(cells)
    return make_table(headings, rows,
                      row_styles=["" if row.level else "bold" for row in comparison.rows])


# -- a sweep


def print_sweep(file: str, settings: tuple[str, ...], sweeps: tuple[str, ...], protocol_overrides: dict[str, Any], plot: str | None,  # noqa: E501
               csv: str | None, as_json: bool) -> None:  # fmt: skip
    """Prints costs for every combination of the values in ``sweeps``; draws and writes them where asked."""
    from scalesearch.cost import load_protocol
    from scalesearch.whatif import sweep_costs

    space = load_space(file, settings)
    table = sweep_costs(space, parse_settings(sweeps, "--sweep"),
                        load_protocol(space.protocol, **protocol_overrides))
    drawn = _draw(table, Path(plot)) if plot else []
    if csv:
        write_csv(table, csv)
    if as_json:
        print_costs(table.to_json() | {"files": [str(path) for path in drawn]}, table.protocol)
    else:
        _show_sweep(table, drawn)


def _number(cost: float | None) -> str:
    return "-" if cost is None else f"{cost:,}" if isinstance(cost, int) else f"{cost:,.4g}"


def _show_sweep(table: Sweep, drawn: list[Path]) -> None:
    from scalesearch.whatif.crossings import LENGTH_SYMBOLS

    values = {name: {row[name] for row in table.rows} for name in table.columns}
    varied = [name
              for name, all_ in values.items()
              if len(all_) > 1 or None in all_ or len(table.rows) == 1]
    headings = (*table.keys, *(name.replace("_", "-") for name in varied))
    rows = [[*(_value(row[key]) for key in table.keys),
             *(_number(row[name]) for name in varied)] for row in table.rows[:MAX_SWEEP_ROWS]]
    print_text(make_table(headings, rows, left_columns=()), wide_console())
    for name in (name for name in table.columns if name not in varied and table.rows[0][name]):
        print_text(f"{name} is {_number(table.rows[0][name])} throughout")
    if len(table.rows) > MAX_SWEEP_ROWS:
        print_text(f"… {len(table.rows) - MAX_SWEEP_ROWS:,} more rows: --csv FILE or --json has "
                   "them all\n")
    if "vocab" in table.keys and table.protocol.vocab != OWN_VOCABULARY and all(
            one.length != "vocab" for one in table.crossings):
        print_text("shapes follow from the vocabulary here: no crossing over V is given")
    for line in (*table.crossings, *(f"drew {path}" for path in drawn)):
        print_text(str(line))
    free = [name for key in table.keys if key in LENGTH_SYMBOLS for name in LENGTH_SYMBOLS[key]
            if name != "V" or table.protocol.vocab != OWN_VOCABULARY]
    verb = "varies" if len(free) == 1 else "vary"
    print_text(f"protocol {table.protocol}"
               + (f", but for {', '.join(free)}, which {verb}" if free else ""))
    print_text(table.protocol.conventions)


def _value(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(
        value, bool) else as_text(value)


def _draw(table: Sweep, path: Path) -> list[Path]:
    require_packages("matplotlib")
    from scalesearch.report.figures.style import save_figure
    from scalesearch.report.figures.sweep import plot_sweep
    from scalesearch.whatif.crossings import ATTENTION, OUTPUT

    words = {OUTPUT: "output over encoder + decoder", ATTENTION: "attention over half"}
    stem = path.with_suffix("") if path.suffix in (".png", ".svg") else path
    marks = {low: f"{words[crossing.part]} from {low:,}" for crossing in table.crossings
             if crossing.length == table.keys[0] for low, _ in crossing.ranges if low > 1}
    try:
        return save_figure(plot_sweep(table.frame(), table.keys, table.protocol.to_json(), marks),
                           stem)
    except OSError as error:
        raise UserError(f"--plot {path}: {error.strerror or error}", code="cannot-write") from None


# -- formulas


def print_formulas(file: str, settings: tuple[str, ...], protocol_overrides: dict[str, Any],
                   levels: int, as_json: bool) -> None:
    """Prints the closed forms of params and MACs, by section (``levels`` 1) or by module."""
    from scalesearch.cost import load_protocol
    from scalesearch.whatif.citation import cite

    space, architecture = load_architecture(file, settings)
    protocol = load_protocol(space.protocol, **protocol_overrides).with_vocab(architecture.vocab)
    citation = cite(space, architecture.config, protocol, levels)
    if as_json:
        print_costs(citation.to_json() | {"architecture": architecture.to_json()},
                    citation.protocol)
        return
    for at, quantity in enumerate(("params", "macs")):
        sections = (f"{quantity}.{name}" for name in ("embedding", "encoder", "decoder", "output"))
        print_text(f"{quantity}.total = "
                   f"{' + '.join(name for name in sections if citation.sections[name].terms) or 0}")
        for path, formulas in citation.modules.items():
            if formulas[at].terms:
                print_text(f"  {'  ' * path.count('.')}{path} = {formulas[at].to_factored_text()}")
        print_text("")
    if citation.sections["macs.once"].terms:
        print_text(f"macs.once = {citation.sections['macs.once'].to_factored_text()}, on weights "
                   "alone\n")
    for line in ("with", *_names(citation), *_notes(citation)):
        print_text(line)
    print_text(f"architecture {architecture.id} · protocol {citation.protocol} · "
               f"{citation.protocol.conventions}")


def _names(citation: Citation) -> list[str]:
    here = {name: f"    (here = {text})" for name, text in citation.where.items()}
    return [f"  {name} = {citation.values[name]:,}{here.get(name, '')}" for name in citation.names]


def _notes(citation: Citation) -> list[str]:
    held = [f"{key} {'yes' if value is True else 'no' if value is False else value}"
            for key, value in citation.held_sizes.items()
            if not (isinstance(value, str | bool) and value in DEFAULT_VALUES)]
    notes = [f"held fixed: {', '.join(held)}"]
    if citation.numbers:
        many = f"{citation.numbers} numbers stand" if citation.numbers > 1 else "1 number stands"
        notes.append(f"{many} for sizes that follow from others by more than sums and products (a "
                     "schedule's groups, a quotient, the smaller of two)")
    if citation.vocab_bound:
        notes.append(
            "some shapes follow from the vocabulary: the formulas hold for V as it is here")
    return notes
