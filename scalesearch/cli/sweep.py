"""``scalesearch cost FILE --sweep KEY=VALUES``: a table of costs, its plot, and where lengths change the picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.cli.options import load_space, need, pairs, print_json, wide_console, write_csv
from scalesearch.errors import UserError
from scalesearch.space.syntax.parameters import say

if TYPE_CHECKING:
    from rich.table import Table

    from scalesearch.whatif import Sweep

SHOWN = 60  # rows that a terminal is given


def show_sweep(
    file: str, settings: tuple[str, ...], sweeps: tuple[str, ...], lengths: dict[str, Any], plot: str | None,
    csv: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Prints costs for every combination of the values in ``sweeps``; draws and writes them where asked."""
    from scalesearch.cost import protocol_of
    from scalesearch.whatif.sweep import sweep

    space = load_space(file, settings)
    found = sweep(space, pairs(sweeps, "--sweep"), protocol_of(space.protocol, **lengths))
    drawn = _draw(found, Path(plot)) if plot else []
    if csv:
        write_csv(found, csv)
    if as_json:
        print_json(found.to_json() | {"files": [str(path) for path in drawn]})
    else:
        _show(found, drawn)


def _show(found: Sweep, drawn: list[Path]) -> None:
    console, columns = wide_console(), _columns(found)
    console.print(_table(found, columns), "")
    for name in (name for name in found.columns if name not in columns):
        console.print(f"{name} is {found.rows[0][name]:,} throughout", highlight=False)
    if len(found.rows) > SHOWN:
        console.print(f"… {len(found.rows) - SHOWN:,} more rows: --csv FILE or --json has them all\n", highlight=False)
    if "vocab" in found.keys and all(one.length != "vocab" for one in found.crossings):
        console.print("shapes follow from the vocabulary here: no crossing over V is given", highlight=False)
    for crossing in found.crossings:
        console.print(str(crossing), highlight=False, soft_wrap=True)
    for path in drawn:
        console.print(f"drew {path}", highlight=False, soft_wrap=True)
    console.print(f"protocol {found.protocol}{_varied(found)}", highlight=False, soft_wrap=True)


def _varied(found: Sweep) -> str:
    from scalesearch.whatif.crossings import LENGTHS

    free = [name for key in found.keys if key in LENGTHS for name in LENGTHS[key]]
    return f", but for {', '.join(free)}, which {'varies' if len(free) == 1 else 'vary'}" if free else ""


def _columns(found: Sweep) -> list[str]:
    """The costs that vary; all of them where a row has none."""
    values = {name: {row[name] for row in found.rows} for name in found.columns}
    return [name for name, there in values.items() if len(there) > 1 or None in there or len(found.rows) == 1]


def _table(found: Sweep, columns: list[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for name in (*found.keys, *columns):
        words = name.replace(".non_embedding", ".non-embedding").replace(".attention_products", ".attention-products")
        table.add_column(words, justify="right", overflow="fold")
    for row in found.rows[:SHOWN]:
        values = [say(row[key]) if not isinstance(row[key], int) else f"{row[key]:,}" for key in found.keys]
        costs = [row[name] for name in columns]
        cells = [f"{cost:,}" if cost is not None else "-" for cost in costs]
        table.add_row(*values, *cells)
    return table


def _draw(found: Sweep, path: Path) -> list[Path]:
    need("matplotlib")
    from scalesearch.report.plot import save
    from scalesearch.report.sweep import curves
    from scalesearch.whatif.crossings import ATTENTION, OUTPUT

    words = {OUTPUT: "output over encoder + decoder", ATTENTION: "attention over half"}

    stem = path.with_suffix("") if path.suffix in (".png", ".svg") else path
    marks = {low: f"{words[crossing.part]} from {low:,}" for crossing in found.crossings
             if crossing.length == found.keys[0] for low, _ in crossing.ranges if low > 1}
    try:
        return save(curves(found.frame(), found.keys, found.protocol.to_json(), marks), stem)
    except OSError as error:
        raise UserError(f"--plot {path}: {error.strerror or error}") from None
