"""Reads YAML into nodes: keeps positions and aliases, never evaluates anything."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from scalesearch.space.syntax.diagnostics import Place, Problem, Source, SpaceErrors, suggest
from scalesearch.space.syntax.nodes import Node, Sequence, Table, Text, locate

LARGEST_FILE = 1_000_000  # bytes
MOST_NODES = 20_000  # after aliases are followed
DEEPEST = 50
ANCHOR = re.compile(r"(?:[&!]\S*\s+)+")  # what may stand between a key and its value


class AliasNode(yaml.Node):
    """``*name``, kept apart from what it stands for."""

    def __init__(self, name: str, target: yaml.Node | None, event: Any) -> None:
        self.name, self.target = name, target
        self.tag, self.value, self.start_mark, self.end_mark = "", None, event.start_mark, event.end_mark


class Composer(yaml.SafeLoader):
    """PyYAML's own composer, except that aliases stay visible."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.get_event()  # type: ignore[no-untyped-call]  # PyYAML's stubs stop here
            return AliasNode(event.anchor, self.anchors.get(event.anchor), event)
        return super().compose_node(parent, index)


def read_text(path: Path) -> str:
    """The text of a space file. Raises SpaceErrors: missing, a directory, too large, not text."""
    if path.is_dir():
        raise SpaceErrors(message=f"{path}: this is a directory\n  = help: name a space file inside it{_inside(path)}",
                          code="is-a-folder")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise SpaceErrors(message=f"{path}: no such file{_nearby(path)}", code="no-such-file") from None
    except OSError as error:
        raise SpaceErrors(message=f"{path}: cannot be read: {error.strerror}", code="cannot-read") from None
    if len(data) > LARGEST_FILE:
        raise SpaceErrors(message=f"{path}: too large for a space file: {len(data):,} bytes, at most {LARGEST_FILE:,}",
                          code="too-large")
    return decode(data, str(path))


def decode(data: bytes, name: str) -> str:
    """``data`` as UTF-8. Raises SpaceErrors with the line where it stops being text."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        raise _not_text(name, before, f"byte 0x{data[error.start]:02x} is not UTF-8") from None
    if "\0" in text:
        raise _not_text(name, text[: text.index("\0")], "it holds a zero byte")
    return text


def _not_text(name: str, before: str, reason: str) -> SpaceErrors:
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    help = "a space file is YAML in UTF-8"
    return SpaceErrors(message=f"{name}:{line}:{column}: not a text file: {reason}\n  = help: {help}",
                       code="not-a-text-file")


def _inside(folder: Path) -> str:
    names = sorted(path.name for path in folder.glob("*.yaml"))
    return f": {', '.join(names[:8])}" if names else ""


def _nearby(path: Path) -> str:
    names = [other.name for other in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
    return f"\n  = help: {suggest(path.name, sorted(names)[:8])}" if names else ""


def compose(
    source: Source, what: str = "a space", example: str = "width: 256 | 512"
) -> tuple[Table, list[Problem]]:
    """The top mapping of a YAML text, with the problems of its aliases and keys.

    Args:
        what, example: is expected, for error messages.

    Raises:
        SpaceErrors: not YAML, empty, or not a mapping.
    """
    try:
        loader = Composer(source.text)
        root = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        raise SpaceErrors([_unprintable(source, error)]) from None
    except yaml.MarkedYAMLError as error:
        raise SpaceErrors([_syntax(source, error)]) from None
    except RecursionError:
        raise SpaceErrors([Problem(Place(source, 0, 0, 1), "this is nested too deeply", code="too-large")]) from None
    if root is None:
        help = f"{what} holds at least one line, such as `{example}`"
        raise SpaceErrors([Problem(Place(source, 0, 0, 1), "the file is empty", help, code="empty-file")])
    conversion = Conversion(source)
    top = conversion.node(root, ())
    if isinstance(top, Table):
        return top, conversion.problems
    wrong = Problem(top.place, f"{what} is a mapping of keys, such as `{example}`")
    raise SpaceErrors([*conversion.problems, wrong])


class Conversion:
    """Turns PyYAML's nodes into ours and follows aliases, up to a limit."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.count = 0

    def node(self, node: yaml.Node, inside: tuple[int, ...]) -> Node:
        """``node`` with everything under it; ``inside`` are the ids of the nodes around it."""
        self.count += 1
        place = self.place(node)
        if self.count > MOST_NODES or len(inside) > DEEPEST:
            help = f"at most {MOST_NODES:,} values, nested at most {DEEPEST} deep, after following aliases"
            problem = Problem(place, "this file is too large once its aliases are followed", help, code="too-large")
            raise SpaceErrors([*self.problems, problem])
        if isinstance(node, AliasNode):
            return self.alias(node, place, inside)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, place)
        within = (*inside, id(node))
        if isinstance(node, yaml.SequenceNode):
            return Sequence(place, tuple(self.node(item, within) for item in node.value))
        entries = []
        for key, value in node.value:
            name = self.key(key, inside)
            if name is not None:
                entries.append((name, self.node(value, within)))
        return Table(place, tuple(entries))

    def key(self, node: yaml.Node, inside: tuple[int, ...]) -> Text | None:
        """A key of a mapping, which must be a plain text."""
        place = self.place(node)
        if not isinstance(node, yaml.ScalarNode):
            self.problems.append(Problem(place, "a key must be a word", code="not-yaml"))
            return None
        if node.value == "<<" and node.style is None:
            help = "write the keys out, or give the whole mapping by `*name`"
            self.problems.append(Problem(place, "merge keys are not part of the language", help, code="not-yaml"))
            return None
        return self.scalar(node, place)

    def alias(self, node: AliasNode, place: Place, inside: tuple[int, ...]) -> Node:
        """The node that an alias refers to."""
        if node.target is None:
            help = f"write `&{node.name}` before the value that is meant, above this line"
            self.problems.append(Problem(place, f"the anchor `&{node.name}` is not defined above this alias", help,
                                         code="not-yaml"))
            return Node(place)
        if id(node.target) in inside:
            self.problems.append(
                Problem(place, f"`*{node.name}` would contain itself", "anchors may not be used inside themselves",
                        code="not-yaml")
            )
            return Node(place)
        return replace(self.node(node.target, inside), alias=place)

    def scalar(self, node: yaml.ScalarNode, place: Place) -> Text:
        """A scalar with the place of each of its characters."""
        quoted = node.style is not None
        block = node.style in ("|", ">")
        line, column = (place.line + 1, 0) if block else (place.line, place.column + bool(node.style in ("'", '"')))
        return Text(place, node.value, locate(self.source, node.value, line, column), quoted)

    def place(self, node: yaml.Node) -> Place:
        """The place of ``node`` (its first line), without the anchor before it."""
        start, end = node.start_mark, node.end_mark
        line = self.source.lines[start.line] if start.line < len(self.source.lines) else ""
        last = end.column if end.line == start.line else len(line)
        anchor = ANCHOR.match(line, start.column) if isinstance(node, yaml.ScalarNode) else None
        first = anchor.end() if anchor else start.column
        return Place(self.source, start.line, first, max(last, first + 1))


def _unprintable(source: Source, error: yaml.reader.ReaderError) -> Problem:
    before = source.text[: error.position]
    lines = Source("", before).lines
    place = Place(source, len(lines) - 1, len(lines[-1]), len(lines[-1]) + 1)
    return Problem(place, f"not a text file: it holds the control character U+{ord(source.text[error.position]):04X}",
                   code="not-a-text-file")


def _syntax(source: Source, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    text = source.lines[line] if line < len(source.lines) else ""
    if column >= len(text) and not text.strip() and line:
        line -= 1
        column = len(source.lines[line].rstrip())
        text = source.lines[line]
    if "single document" in (error.context or ""):
        help = "remove the line `---`"
        return Problem(Place(source, line, column, column + 3), "this file holds more than one document", help,
                       code="not-yaml")
    begin = error.context_mark
    since = f" that begins in line {begin.line + 1}" if begin and begin.line != line else ""
    message = f"not YAML: {error.problem}" + (f" ({error.context}{since})" if error.context else "")
    if "duplicate anchor" in (error.context or ""):
        help = "give each anchor a name of its own"
        return Problem(Place(source, line, column, column + 1), "this anchor is defined twice", help, code="not-yaml")
    return Problem(Place(source, line, column, column + 1), message, _hint(error, text, column), code="not-yaml")


def _hint(error: yaml.MarkedYAMLError, text: str, column: int) -> str | None:
    problem = error.problem or ""
    if "\\t" in problem or "\t" in text[: column + 1]:
        return "YAML indents with spaces, not with tabs"
    if "mapping values are not allowed" in problem:
        return "a value that contains `: ` must be quoted; or the line above is indented differently"
    if "flow" in (error.context or ""):
        return "close the bracket; inside { } and [ ], quote a value that contains a comma"
    if "block mapping" in (error.context or "") or "block end" in problem:
        return "keys of one mapping begin in the same column"
    return None
