"""A study's ``data:`` as a file of its own, the one that ``scalesearch train --data`` takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scalesearch.space.binding.constants import Reader
from scalesearch.space.syntax.diagnostics import Source, SpaceErrors
from scalesearch.space.syntax.nodes import Node, Table, Text
from scalesearch.space.syntax.yaml_reader import compose, read_text

BUILTIN = ("builtin", "grammar", "none")


def with_data(table: Table, study: Path, reader: Reader) -> tuple[Table, Path | None]:
    """``table`` with what the file says that it names under ``data:``, and that file's folder, where its paths begin.

    The file lies beside the ``study``, or where it is run. Problems go to ``reader``.
    """
    node = table.get("data")
    if not isinstance(node, Text) or node.text.startswith("$") or not node.text:
        return table, None
    grammar = replace(node, text="grammar")
    if node.text in BUILTIN:
        return _put(table, node, grammar if node.text == "builtin" else node), None
    file = study.parent / node.text
    file = file if file.is_file() else Path(node.text)
    if not file.is_file():
        reader.wrong(node, f"data: {node.text} is no file", "give `builtin`, a file such as data.yaml, or its keys",
                     code="no-such-file")
        return _put(table, node, grammar), None
    try:
        inside, problems = compose(Source(str(file), read_text(file)), "a data file", "source: en")
    except SpaceErrors as error:
        inside, problems = Table(node.place, ()), error.problems
    reader.problems += problems
    return _put(table, node, inside.get("data") or inside), file.parent.resolve()


def _put(table: Table, old: Node, new: Node) -> Table:
    return replace(table, entries=tuple((key, new if node is old else node) for key, node in table))
