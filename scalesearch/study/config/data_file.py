"""A study's ``data:`` as a file of its own, the one that ``scalesearch train --data`` takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scalesearch.space.binding.config_reader import ConfigReader
from scalesearch.space.syntax.diagnostics import ConfigError, SourceText
from scalesearch.space.syntax.nodes import MappingNode, Node, ScalarNode
from scalesearch.space.syntax.yaml_reader import parse_yaml, read_text

BUILTIN_DATA_WORDS = ("builtin", "grammar", "none")


def resolve_data_file(
        table: MappingNode, study: Path, reader: ConfigReader) -> tuple[MappingNode, Path | None]:
    """``table`` with what the file says that it names under ``data:``, and that file's folder, where its paths begin.

    The file lies beside the ``study``, or where it is run. Problems go to ``reader``.
    """
    node = table.get("data")
    if not isinstance(node, ScalarNode) or node.text.startswith("$") or not node.text:
        return table, None
    grammar = replace(node, text="grammar")
    if node.text in BUILTIN_DATA_WORDS:
        return _put(table, node, grammar if node.text == "builtin" else node), None
    file = study.parent / node.text
    file = file if file.is_file() else Path(node.text)
    if not file.is_file():
        reader.report_problem(node, f"data: {node.text} is no file",
                              "give `builtin`, a file such as data.yaml, or its keys",
                              code="no-such-file")
        return _put(table, node, grammar), None
    try:
        inside, problems = parse_yaml(SourceText(str(file), read_text(file)), "a data file",
                                      "source: en")
    except ConfigError as error:
        inside = MappingNode(node.position, ())
        problems = error.problems
    reader.problems += problems
    return _put(table, node, inside.get("data") or inside), file.parent.resolve()


def _put(table: MappingNode, old: Node, new: Node) -> MappingNode:
    return replace(table, entries=tuple((key, new if node is old else node) for key, node in table))
