"""Write the generated pages of the site: command line, discrepancies and troubleshooting.

    python tools/pages.py            # --check: only report whether the pages are current
"""

import inspect
import re
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from scalesearch.cli.main import app
from scalesearch.errors import UserError
from scalesearch.reference import PAPERS, RecomputedCost, load_reported_costs, recompute
from scalesearch.spaces import read_space
from tools.json_keys import read_keys

ERRORS = Path(__file__).with_name("troubleshooting.toml")
DOCS = Path(__file__).parents[1] / "docs"
COMMON_OPTION_COMMANDS = 3  # an option with one meaning in as many commands is explained once
COMMANDS = """# Command line

Reference of all commands and their options. `python tools/pages.py` writes this page from `--help` of each command.
Keys of the JSON are those that tests of the commands printed. Some of them depend on the options and on the study. Keys with a
dot, such as `params.total`, are left out: they are names of costs, scores and parameters.

| exit status | meaning |
|---:|---|
| 0 | success |
| 1 | a training run failed, nothing fits, or `--verify` finds a difference |
| 2 | you have to change something; the message explains what |
| 130, 143 | interrupted by Ctrl-C or SIGTERM; progress is saved |

To complete commands, options, shipped files and paths with the tab key, add this line to `~/.bashrc` (use
`zsh_source` or `fish_source` for other shells):

<!-- no run: belongs in a file of the shell -->
```
eval "$(_SCALESEARCH_COMPLETE=bash_source scalesearch)"
```
"""


DISCREPANCIES = """# Discrepancies with published numbers

Use this page when a recomputed size differs from the one in a paper. Each row is a reported number that
differs from the recomputed one under the protocol of its paper, with the likely reason if known. A discrepancy is
not necessarily an error of the paper: several numbers depend on a vocabulary or a convention that is not
reported. All other numbers agree at the reported digits, or are rounded as elsewhere in the paper. The last two rows are models of
other authors in these tables, and are not among the 214 numbers of the three papers.
[Sizes reported in three papers](papers.md) has the summary, and [References](../references.md) the papers.

`python tools/pages.py` writes this page from the tables of `scalesearch reference`.

| table | model | quantity | reported | recomputed | reason |
|---|---|---|---:|---:|---|
"""


class Row(NamedTuple):
    """An option with its metavariable, and its meaning."""

    option: str
    meaning: str


def command_line() -> str:
    """Text of the page of all commands."""
    rows = {path: option_rows(path, command) for path, command in commands(app, ())}
    counts = Counter(row for command_rows in rows.values() for row in command_rows)
    common = sorted(row for row, count in counts.items() if count >= COMMON_OPTION_COMMANDS)
    json_keys = read_keys()
    sections = [line for path, command in commands(app, ())
                for line in section(path, command, rows[path], common,
                                    json_keys.get(" ".join(path), []))]
    return "\n".join([COMMANDS, "## Common options", "",
                      "Options that several commands have. Each command lists those that it takes.",
                      *option_list(common), "", *sections])


def commands(group: click.Group,
             path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command of ``group`` and its subgroups, with its full name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def option_rows(path: tuple[str, ...], command: click.Command) -> list[Row]:
    """Options and arguments of a command that have a help text."""
    context = click.Context(command, info_name=" ".join(("scalesearch", *path)))
    records = [parameter.get_help_record(context) for parameter in command.params]
    return [_row(*record) for record in records if record and record[1]]


def section(path: tuple[str, ...], command: click.Command, rows: Sequence[Row],
            common: Collection[Row], json_keys: Iterable[str]) -> list[str]:
    """Heading, usage, help, options and JSON keys of one command."""
    context = click.Context(command, info_name=" ".join(("scalesearch", *path)))
    usage = " ".join(command.collect_usage_pieces(context))
    name = " ".join(path)
    shared = [row.option.split()[0] for row in rows if row in common]
    return [f"## {name}", "", f"`scalesearch {name} {usage}`", "",
            _plain(command.help or "").strip(),
            *option_list([row for row in rows if row not in common]),
            *(["", f"Common options: {_code_list(shared)}."] if shared else []),
            *(["", f"Keys of the JSON: {_code_list(json_keys)}."] if json_keys else []), ""]


def _code_list(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def option_list(rows: Sequence[Row]) -> list[str]:
    """Lines of a list of options."""
    return ["", *(f"- `{row.option}`: {row.meaning}" for row in rows)] if rows else []


def _row(option: str, meaning: str) -> Row:
    """Make a row; ranges of numbers are left out, because an error names them."""
    meaning = re.sub(r"(?:; )?[\w.-]*(?:<=?|>=?)?x[<>]=?[\w.-]+", "", meaning).replace("[]", "")
    return Row(*(" ".join(text.split()).replace(" RANGE", "") for text in (option, meaning)))


def _plain(text: str) -> str:
    """Convert help to Markdown; an example becomes a line of code."""
    parts = []
    for part in inspect.cleandoc(text).split("\n\n"):
        lines = "\n".join(line.strip() for line in part.strip("\b\n").splitlines())
        if part.startswith("\b"):
            label, _, code = lines.partition(": ")
            parts.append(f"{label}: `{code}`")
        else:
            parts.append(lines.replace("*", "\\*").replace("<", "&lt;"))
    return "\n\n".join(parts)


def discrepancies() -> str:
    """Text of the page of numbers that differ."""
    entries = (recompute(row) for paper in PAPERS for row in load_reported_costs(paper))
    return DISCREPANCIES + "".join(f"{_discrepancy(entry)}\n"
                            for entry in entries if entry.agreement.name == "no fit")


def _discrepancy(entry: RecomputedCost) -> str:
    row = entry.reported
    table = f"{row.paper} {row.table}".partition("tier ")
    cells = (table[2] or table[0], row.model_name, f"`{row.quantity}`", row.reported_text,
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

- The first line starts with the place: file, line and column. Then follows the message. For an error
  without a place in a file, it starts with the option, key or folder.
- The caret line marks the characters at fault.
- The help line proposes a fix, such as the closest key.

All errors of a file are printed together. The exit status is 2 if you have to change something,
and 1 if a training run failed. After Ctrl-C it is 130 and after SIGTERM 143.

The printed message does not contain the code of the error. To find the entry of a message, search this
page for its words, or add `--json`: standard output then has the codes under `problems`. In Python, the
attribute `code` of a `UserError` holds the code. A code stays the same when its message is reworded.
The examples are inputs that cause the error, or messages in shortened form.
"""


class Errors(NamedTuple):
    """Documentation of the error codes: area to its heading, and code to its entry."""

    areas: Mapping[str, str]
    codes: Mapping[str, Mapping[str, str]]


def load_errors() -> Errors:
    """Load ``tools/troubleshooting.toml``."""
    data = tomllib.loads(ERRORS.read_text("utf-8"))
    return Errors(data["areas"], data["codes"])


def troubleshooting() -> str:
    """Text of the page of all error codes, by area."""
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
    """Return the printed error of a small space file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "small.yaml")
        file.write_text("width: 512..64\n", "utf-8")
        try:
            read_space(file)
        except UserError as error:
            return str(error).replace(str(file), file.name)
    raise AssertionError("the range is empty")


PAGES = {"reference/command-line.md": command_line, "results/discrepancies.md": discrepancies,
         "troubleshooting.md": troubleshooting}


def stale() -> list[str]:
    """List the pages that are not current."""
    return [name for name, text in PAGES.items()
            if not (DOCS / name).is_file() or (DOCS / name).read_text("utf-8") != text()]


def main() -> None:
    """Write the pages, or with --check report the stale ones (exit status 1)."""
    if "--check" in sys.argv[1:]:
        names = stale()
        print(f"stale: {', '.join(names)}; run python tools/pages.py" if names
              else "the pages are current")
        raise SystemExit(bool(names))
    for name, text in PAGES.items():
        (DOCS / name).write_text(text(), "utf-8")


if __name__ == "__main__":
    main()
