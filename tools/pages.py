"""Writes the pages of the site that the package itself can write: its command line, and the papers' errata.

    python tools/pages.py            # --check: only say whether the pages are current
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from scalesearch.cli.main import app
from scalesearch.reference import PAPERS, Entry, load_rows, recompute

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
    return "\n".join([COMMANDS, *(line for path, verb in verbs(app, ()) for line in section(path, verb))])


def verbs(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
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
    return [f"## {name}", "", f"`scalesearch {name} {usage}`", "", _plain(verb.help or "").strip(), *table, ""]


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
    entries = (recompute(row) for paper in PAPERS for row in load_rows(paper))
    return ERRATA + "".join(f"{_erratum(one)}\n" for one in entries if one.verdict.name == "no fit")


def _erratum(entry: Entry) -> str:
    row = entry.row
    cells = (f"{row.paper} {row.table}", row.label, f"`{row.quantity}`", row.printed, f"{entry.exact:,}", entry.why)
    return f"| {' | '.join(cells)} |"


PAGES = {"reference/command-line.md": command_line, "research/errata.md": errata}


def stale() -> list[str]:
    """Names of the pages that are not as they would be written now."""
    return [name for name, text in PAGES.items()
            if not (DOCS / name).is_file() or (DOCS / name).read_text("utf-8") != text()]


def main() -> None:
    """Writes the pages, or with --check says which are stale (exit status 1)."""
    if "--check" in sys.argv[1:]:
        found = stale()
        print(f"stale: {', '.join(found)}; run python tools/pages.py" if found else "the pages are current")
        raise SystemExit(bool(found))
    for name, text in PAGES.items():
        (DOCS / name).write_text(text(), "utf-8")


if __name__ == "__main__":
    main()
