"""``scalesearch cost A B …``: architectures side by side, module by module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.cli.options import load_architecture, print_json, write_csv
from scalesearch.errors import UserError
from scalesearch.terminal import make_table, say, wide_console

if TYPE_CHECKING:
    from rich.table import Table

    from scalesearch.whatif import Comparison

QUANTITIES = (("params", "params"), ("macs", "MACs"))


def show_comparison(
    files: tuple[str, ...], settings: tuple[str, ...], against: tuple[str, ...], lengths: dict[str, Any], levels: int,
    csv: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Prints what ``files``, and the first with ``against``, cost under one protocol: the first file's."""
    from scalesearch.cost import cost, protocol_of
    from scalesearch.whatif.compare import compare

    if against and len(files) > 1:
        raise UserError("--against changes one FILE: give one, or name the files and leave it out",
                        code="options-conflict")
    wanted = [(name, file, settings) for name, file in zip(_labels(files), files)]
    wanted += [(change, files[0], (*settings, *_changes(change))) for change in dict.fromkeys(against)]
    loaded = {name: load_architecture(file, changed) for name, file, changed in wanted}
    space, _ = next(iter(loaded.values()))
    protocol = protocol_of(space.protocol, **lengths)
    found = compare({name: cost(architecture.block, protocol) for name, (_, architecture) in loaded.items()}, levels)
    if csv:
        write_csv(found, csv)
    if as_json:
        ids = [architecture.to_json() for _, architecture in loaded.values()]
        record = found.to_json()
        record["architectures"] = [one | {"architecture": own} for one, own in zip(record["architectures"], ids)]
        print_json(record)
    else:
        _show(found, str(protocol))


def _labels(files: tuple[str, ...]) -> list[str]:
    """Short names of files, or what was typed where these would be the same."""
    short = [Path(file).stem for file in files]
    names = short if len(set(short)) == len(short) else list(files)
    return [name if names.count(name) == 1 else f"{name} ({at})" for at, name in enumerate(names, 1)]


def _changes(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _show(found: Comparison, protocol: str) -> None:
    console = wide_console()
    for quantity, words in QUANTITIES:
        say(_table(found, quantity, words), console)
    say(f"differences to {next(iter(found.costs))} · protocol {protocol}")


def _table(found: Comparison, quantity: str, words: str) -> Table:
    headings = [words, *(text for at, name in enumerate(found.costs)
                         for text in (name, *(("difference", "%") if at else ())))]
    rows = []
    for row in found.rows:
        sizes = getattr(row, quantity)
        cells = ["  " * row.level + row.path.rsplit(".", 1)[-1], f"{sizes[0]:,}"]
        for size, difference, share in zip(sizes[1:], row.differences(quantity), row.shares(quantity)):
            cells += [f"{size:,}", f"{difference:+,}" if difference else "0", _percent(difference, share)]
        rows.append(cells)
    return make_table(headings, rows, styles=["" if row.level else "bold" for row in found.rows])


def _percent(difference: int, share: float | None) -> str:
    return "new" if share is None and difference else "" if share is None else f"{share:+.1f}" if difference else "0"
