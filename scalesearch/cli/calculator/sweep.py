"""``scalesearch cost FILE --sweep KEY=VALUES``: a table of costs, its plot, and where lengths change the picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.cli.options import load_space, need, pairs, print_json, write_csv
from scalesearch.errors import UserError
from scalesearch.space.syntax.parameters import say as as_text
from scalesearch.terminal import make_table, say, wide_console

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
    columns = _columns(found)
    say(_table(found, columns), wide_console())
    for name in (name for name in found.columns if name not in columns):
        say(f"{name} is {found.rows[0][name]:,} throughout")
    if len(found.rows) > SHOWN:
        say(f"… {len(found.rows) - SHOWN:,} more rows: --csv FILE or --json has them all\n")
    if "vocab" in found.keys and all(one.length != "vocab" for one in found.crossings):
        say("shapes follow from the vocabulary here: no crossing over V is given")
    for line in (*found.crossings, *(f"drew {path}" for path in drawn)):
        say(str(line))
    say(f"protocol {found.protocol}{_varied(found)}")


def _varied(found: Sweep) -> str:
    from scalesearch.whatif.crossings import LENGTHS

    free = [name for key in found.keys if key in LENGTHS for name in LENGTHS[key]]
    return f", but for {', '.join(free)}, which {'varies' if len(free) == 1 else 'vary'}" if free else ""


def _columns(found: Sweep) -> list[str]:
    """The costs that vary; all of them where a row has none."""
    values = {name: {row[name] for row in found.rows} for name in found.columns}
    return [name for name, there in values.items() if len(there) > 1 or None in there or len(found.rows) == 1]


def _table(found: Sweep, columns: list[str]) -> Table:
    headings = [name.replace("_", "-") if name in columns else name for name in (*found.keys, *columns)]
    rows = [[*(_value(row[key]) for key in found.keys), *("-" if row[name] is None else f"{row[name]:,}"
             for name in columns)] for row in found.rows[:SHOWN]]
    return make_table(headings, rows, left=())


def _value(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else as_text(value)


def _draw(found: Sweep, path: Path) -> list[Path]:
    need("matplotlib")
    from scalesearch.report.style import save
    from scalesearch.report.sweep import curves
    from scalesearch.whatif.crossings import ATTENTION, OUTPUT

    words = {OUTPUT: "output over encoder + decoder", ATTENTION: "attention over half"}

    stem = path.with_suffix("") if path.suffix in (".png", ".svg") else path
    marks = {low: f"{words[crossing.part]} from {low:,}" for crossing in found.crossings
             if crossing.length == found.keys[0] for low, _ in crossing.ranges if low > 1}
    try:
        return save(curves(found.frame(), found.keys, found.protocol.to_json(), marks), stem)
    except OSError as error:
        raise UserError(f"--plot {path}: {error.strerror or error}", code="cannot-write") from None
