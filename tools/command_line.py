"""Writes docs/reference/command-line.md: every verb and option, as the command line itself has them.

    python tools/command_line.py            # --check: only say whether the page is current
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from scalesearch.cli.main import app

FILE = Path(__file__).parents[1] / "docs" / "reference" / "command-line.md"
HEAD = """# Command line

Written by `python tools/command_line.py` from the commands themselves. All verbs take `--help`. Exit status: 0; 1 where
a training failed; 2 where the user has to change something, said without a traceback; 130 after Ctrl-C and 143 after
SIGTERM, both with everything saved.
"""


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *(line for path, verb in verbs(app, ()) for line in section(path, verb))])


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
    rows = [_row(*record) for one in verb.get_params(context) if (record := one.get_help_record(context))]
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


def main() -> None:
    """Writes the page, or with --check says whether it is stale (exit status 1)."""
    if "--check" in sys.argv[1:]:
        stale = not FILE.is_file() or FILE.read_text("utf-8") != page()
        print("stale; run python tools/command_line.py" if stale else "the page is current")
        raise SystemExit(stale)
    FILE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
