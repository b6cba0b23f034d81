"""Writes the pages of the site that are generated: command line, errata of the papers, and troubleshooting.

    python tools/pages.py            # --check: only say whether the pages are current
"""

import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from scalesearch.cli.main import app
from scalesearch.errors import UserError
from scalesearch.reference import PAPERS, RecomputedCost, load_reported_costs, recompute
from scalesearch.space import read_space

ERRORS = Path(__file__).with_name("troubleshooting.toml")
DOCS = Path(__file__).parents[1] / "docs"
COMMANDS = """# Command line

Written by `python tools/pages.py` from the commands themselves. All verbs take `--help`. Exit status: 0; 1 where
a training failed; 2 where the user has to change something, said without a traceback; 130 after Ctrl-C and 143 after
SIGTERM, both with everything saved.

Verbs and options complete with the tab key once the shell knows them; in `~/.bashrc` (for zsh and fish `zsh_source` and
`fish_source`):

<!-- no run: belongs in a file of the shell -->
```
eval "$(_SCALESEARCH_COMPLETE=bash_source scalesearch)"
```
"""


ERRATA = """# Errata of the papers

Written by `python tools/pages.py` from the tables that `scalesearch reference` recomputes: the printed numbers that do
not come out by the reading used, and what is known of each. All others come out at their printed digits, or rounded as
their paper does elsewhere. Nothing here is tuned until it fits.

| where | row | what | printed | recomputed | what is known |
|---|---|---|---:|---:|---|
"""


def command_line() -> str:
    """The text of the page of all verbs."""
    return "\n".join([COMMANDS,
                      *(line for path, verb in verbs(app, ()) for line in section(path, verb))])


def verbs(group: click.Group,
          path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Each command beneath ``group``, with the words that name it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        verb = group.get_command(context, name)
        assert verb is not None
        if isinstance(verb, click.Group):
            yield from verbs(verb, (*path, name))
        else:
            yield (*path, name), verb


def section(path: tuple[str, ...], verb: click.Command) -> list[str]:
    """Heading, help and options of one verb."""
    context = click.Context(verb, info_name=" ".join(("scalesearch", *path)))
    usage = " ".join(verb.collect_usage_pieces(context))
    rows = [_row(*record) for one in verb.params if (record := one.get_help_record(context))]
    table = ["", "| option | meaning |", "|---|---|", *rows] if rows else []
    name = " ".join(path)
    return [f"## {name}", "", f"`scalesearch {name} {usage}`", "", _plain(verb.help or "").strip(),
            *table, ""]


def _row(option: str, meaning: str) -> str:
    cells = (" ".join(cell.replace("|", "\\|").split()) for cell in (f"`{option}`", meaning))
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Help as Markdown: its paragraphs, those that keep their lines as they are in a list."""
    parts = []
    for part in text.replace("*", "\\*").split("\n\n"):
        kept = part.startswith("\b")
        lines = [line.strip() for line in part.strip("\b\n").splitlines()]
        parts.append("\n".join(f"    {line}" for line in lines) if kept else "\n".join(lines))
    return "\n\n".join(parts).replace("<", "&lt;")


def errata() -> str:
    """The text of the page of numbers that do not come out."""
    entries = (recompute(row) for paper in PAPERS for row in load_reported_costs(paper))
    return ERRATA + "".join(f"{_erratum(one)}\n"
                            for one in entries if one.agreement.name == "no fit")


def _erratum(entry: RecomputedCost) -> str:
    row = entry.reported
    cells = (f"{row.paper} {row.table}", row.model_name, f"`{row.quantity}`", row.reported_text,
             f"{entry.recomputed:,}", entry.mismatch_reason)
    return f"| {' | '.join(cells)} |"


TROUBLESHOOTING = """# Troubleshooting

This page explains every error of scalesearch: its meaning, the usual cause, the fix and an example.
`python tools/pages.py` writes it from `tools/troubleshooting.toml`.

## How to read an error

An error in a file has this form:

<!-- no run: an error in the form that a terminal shows -->
```text
{example}
```

- The first line starts with the place: file, line and column. Then it says what is wrong. For an error
  without a place in a file, it starts with the option, key or folder.
- The caret line marks the characters at fault.
- The help line proposes a fix, such as the closest key.

All errors of a file are printed together. The exit status is 2 if you have to change something,
and 1 if a training run failed. After Ctrl-C it is 130 and after SIGTERM 143.

The printed message does not contain the code of the error. To find the entry of a message, search this
page for its words. `scalesearch check SPACE --json` prints the codes of a space file. In Python, the
attribute `code` of a `UserError` holds the code. A code stays the same when its message is reworded.
The examples are inputs that cause the error, or messages in shortened form.
"""


class Errors(NamedTuple):
    """Documentation of the error codes: area to its heading, and code to its entry."""

    areas: Mapping[str, str]
    codes: Mapping[str, Mapping[str, str]]


def load_errors() -> Errors:
    """The entries of ``tools/troubleshooting.toml``."""
    data = tomllib.loads(ERRORS.read_text("utf-8"))
    return Errors(data["areas"], data["codes"])


def troubleshooting() -> str:
    """The text of the page of all error codes, by area."""
    errors = load_errors()
    parts = [TROUBLESHOOTING.format(example=_example_error())]
    for area, heading in errors.areas.items():
        codes = sorted(code for code, entry in errors.codes.items() if entry["area"] == area)
        parts.append(f"## {heading}\n")
        parts += [_error_section(code, errors.codes[code]) for code in codes]
    return "\n".join(parts)


def _error_section(code: str, entry: Mapping[str, str]) -> str:
    fields = (f"- {name}: {text}" for name, text in (
        ("Cause", entry["cause"]), ("Fix", entry["cure"]), ("Example", f"`{entry['example']}`")))
    return "\n".join([f"### {code}", "", entry["meaning"], "", *fields, ""])


def _example_error() -> str:
    """The error of a small space file, as it is printed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "small.yaml")
        file.write_text("width: 512..64\n", "utf-8")
        try:
            read_space(file)
        except UserError as error:
            return str(error).replace(str(file), file.name)
    raise AssertionError("the range is empty")


PAGES = {"reference/command-line.md": command_line, "research/errata.md": errata,
         "troubleshooting.md": troubleshooting}


def stale() -> list[str]:
    """Names of the pages that are not as they would be written now."""
    return [name for name, text in PAGES.items()
            if not (DOCS / name).is_file() or (DOCS / name).read_text("utf-8") != text()]


def main() -> None:
    """Writes the pages, or with --check says which are stale (exit status 1)."""
    if "--check" in sys.argv[1:]:
        found = stale()
        print(f"stale: {', '.join(found)}; run python tools/pages.py" if found
              else "the pages are current")
        raise SystemExit(bool(found))
    for name, text in PAGES.items():
        (DOCS / name).write_text(text(), "utf-8")


if __name__ == "__main__":
    main()
