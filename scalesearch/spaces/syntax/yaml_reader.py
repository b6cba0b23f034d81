"""Reads YAML into nodes: keeps positions and aliases, never evaluates anything."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from scalesearch.spaces.syntax.diagnostics import (
    ConfigError,
    Problem,
    SourcePosition,
    SourceText,
    closest_match,
)
from scalesearch.spaces.syntax.nodes import (
    SURROGATE,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    locate_characters,
)

MAX_FILE_BYTES = 1_000_000  # bytes
MAX_NODES = 20_000  # after aliases are followed
MAX_DEPTH = 50
ANCHOR_PREFIX = re.compile(r"(?:[&!]\S*\s+)+")  # what may stand between a key and its value
KEY_BEFORE_COLON = re.compile(r"[\w.-]+$")
# Indentation, dashes and a key, up to its value. PyYAML separates them only by plain spaces.
KEY_START = re.compile("^[ \xa0\u202f]*(?:-[ \xa0\u202f\t]+)*(?:[\\w.-]+:[ \xa0\u202f\t]+)?",
                       re.MULTILINE)
OTHER_SPACE = re.compile("[\xa0\u202f\t]")
KEY_WITHOUT_SPACE = re.compile(r"\s*([\w.]+):(\S.*)")


def read_text(path: Path, hint: str = "", names: Sequence[str] = ()) -> str:
    """The text of a YAML file.

    Args:
        hint: help for a missing file.
        names: what may be written instead of a file.

    Raises ConfigError if it is missing, a directory, too large, or not text.
    """
    if os.path.isdir(path):  # False, not an error, if the name is too long
        names = sorted(file.name for file in path.glob("*.yaml"))
        shown = f": {', '.join(names[:8])}" if names else ""
        raise ConfigError(message=f"{path}: this is a directory\n  = help: name a file inside "
                          f"it{shown}", code="is-a-folder")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        files = {file.stem: file.name for file in sorted(path.parent.glob("*.yaml"))}
        match = closest_match(path.stem, [*names, *files])
        likely = f"did you mean `{files.get(match, match)}`?" if match else ""
        help = " Otherwise, ".join(filter(None, [likely, hint]))
        raise ConfigError(message=f"{path}: no such file" + (f"\n  = help: {help}" if help else ""),
                          code="no-such-file") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(message=f"{path}: cannot be read: {reason}", code="cannot-read") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(
            message=f"{path}: too large for a YAML file: more than {MAX_FILE_BYTES:,} bytes",
            code="too-large")
    return decode(data, str(path))


def decode(data: bytes, name: str) -> str:
    """``data`` as UTF-8. Raises ConfigError with the line where it stops being text."""
    try:
        text = data.decode().removeprefix("\ufeff")
        if "\0" not in text:
            return text
        before = text[: text.index("\0")]
        reason = "it holds a zero byte"
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        reason = f"byte 0x{data[error.start]:02x} is not UTF-8"
    line = before.count("\n") + 1
    column = len(before) - before.rfind("\n")
    raise ConfigError(message=f"{name}:{line}:{column}: not a text file: {reason}\n"
                      "  = help: the file must be YAML in UTF-8", code="not-a-text-file")


def parse_yaml(source: SourceText, what: str = "a space",
               example: str = "width: 256 | 512") -> tuple[MappingNode, list[Problem]]:
    """The top mapping of a YAML text, with the problems of its aliases and keys.

    Args:
        what, example: is expected, for error messages.

    Raises:
        ConfigError: not YAML, empty, too large, or not a mapping.
    """
    try:
        composer = _Composer(source)
        top = composer.document()
    except yaml.reader.ReaderError as error:
        lines = SourceText("", source.text[: error.position]).lines
        place = SourcePosition(source, len(lines) - 1, len(lines[-1]), len(lines[-1]) + 1)
        message = ("not a text file: it holds the control character "
                   f"U+{ord(source.text[error.position]):04X}")
        raise ConfigError([Problem(place, message, code="not-a-text-file")]) from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_syntax(source, error)]) from None
    except (OverflowError, ValueError):  # PyYAML takes any number for a version, or for a character
        mark = composer.loader.get_mark()
        place = SourcePosition(source, mark.line, mark.column, mark.column + 1)
        raise ConfigError([Problem(place, "this number is too large", code="not-yaml")]) from None
    if top is None:
        help = f"{what} holds at least one line, such as `{example}`"
        raise ConfigError([Problem(SourcePosition(source, 0, 0, 1), "the file is empty", help,
                                   code="empty-file")])
    if not isinstance(top, MappingNode):
        composer.report_problem(top.position, f"{what} is a mapping of keys, such as `{example}`",
                                code="bad-value")
        raise ConfigError(composer.problems)
    return top, composer.problems


class _Composer:
    """Builder of nodes from PyYAML's events, within limits.

    An alias shares the node of its anchor.
    """

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.anchors: dict[str, Node | None] = {}  # None while the node is being read
        self.n_nodes = 0  # nodes so far, after aliases are followed
        text = KEY_START.sub(lambda match: OTHER_SPACE.sub(" ", match[0]), source.text)
        self.loader: Any = yaml.SafeLoader(text)  # of which only the parser is used

    def report_problem(self, position: SourcePosition, message: str, help: str | None = None,
                       code: str = "not-yaml") -> None:
        """Record a problem."""
        self.problems.append(Problem(position, message, help, code=code))

    def document(self) -> Node | None:
        """The node of the document; None for an empty stream."""
        self.loader.get_event()
        if isinstance(self.loader.get_event(), yaml.StreamEndEvent):
            return None
        top = self.node(self.loader.get_event(), 0)
        self.loader.get_event()
        if not isinstance(other := self.loader.get_event(), yaml.StreamEndEvent):
            raise yaml.composer.ComposerError(
                "expected a single document", None, None, other.start_mark)
        return top

    def node(self, event: Any, depth: int) -> Node:
        """The node that begins with ``event``, inside ``depth`` others."""
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, depth)
        self.count_nodes(event, 1, depth)
        if event.anchor in self.anchors:
            raise yaml.composer.ComposerError(
                "found duplicate anchor", None, None, event.start_mark)
        if event.anchor:
            self.anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node: Node = self.scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(item := self.loader.get_event(), yaml.SequenceEndEvent):
                items.append(self.node(item, depth + 1))
            node = SequenceNode(self.position_of(event, item), tuple(items))
        else:
            node = self.mapping(event, depth)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def mapping(self, event: yaml.MappingStartEvent, depth: int) -> MappingNode:
        """The mapping that begins with ``event``."""
        entries = []
        while not isinstance(key := self.loader.get_event(), yaml.MappingEndEvent):
            name = self.key(key, depth + 1)
            n_problems = len(self.problems)
            value = self.node(self.loader.get_event(), depth + 1)
            if name is None:
                del self.problems[n_problems:]  # problems below an invalid key are not reported
            else:
                entries.append((name, value))
        return MappingNode(self.position_of(event, key), tuple(entries))

    def key(self, event: yaml.NodeEvent, depth: int) -> ScalarNode | None:
        """A key of a mapping, which must be a plain text; it does not count as a node."""
        n_problems = len(self.problems)
        self.n_nodes -= isinstance(event, yaml.ScalarEvent)
        node = self.node(event, depth)
        if not isinstance(node, ScalarNode) or node.alias:
            del self.problems[n_problems:]
            self.report_problem(node.display_position, "a key must be a word")
        elif node.text == "<<" and not node.is_quoted:
            help = "write the keys out, or give the whole mapping by `*name`"
            self.report_problem(node.display_position, "merge keys are not part of the language",
                                help)
        else:
            return node
        return None

    def alias(self, event: Any, depth: int) -> Node:
        """The node that an alias refers to."""
        place = self.position_of(event, event)
        name = event.anchor
        target = self.anchors.get(name)
        size, levels = _extent(target) if target else (0, 0)
        self.count_nodes(event, 1 + size, depth + levels)
        if name not in self.anchors:
            help = f"write `&{name}` before the value, above this line"
            self.report_problem(place, f"the anchor `&{name}` is not defined above this alias",
                                help)
        elif target is None:
            self.report_problem(place, f"`*{name}` would contain itself",
                                "anchors may not be used inside themselves")
        return replace(target, alias=place) if target else Node(place)

    def count_nodes(self, event: yaml.NodeEvent, nodes: int, depth: int) -> None:
        """Count the nodes that ``event`` adds. Raises ConfigError if there are too many."""
        self.n_nodes += nodes
        if self.n_nodes > MAX_NODES or depth > MAX_DEPTH:
            help = (f"at most {MAX_NODES:,} values, nested at most {MAX_DEPTH} deep, after "
                    "following aliases")
            self.report_problem(self.position_of(event, event),
                                "this file is too large once its aliases are followed", help,
                                code="too-large")
            raise ConfigError(self.problems)

    def scalar(self, event: yaml.ScalarEvent) -> ScalarNode:
        """A scalar with the place of each of its characters."""
        place = self.position_of(event, event)
        quoted = event.style is not None
        block = event.style in ("|", ">")
        text = SURROGATE.sub("\ufffd", event.value)
        if text != event.value:
            self.report_problem(place, "an escape in this text stands for half a character",
                                "write the character itself")
        line, column = (place.line + 1, 0) if block else (place.line, place.column + quoted)
        return ScalarNode(place, text, locate_characters(self.source, text, line, column), quoted)

    def position_of(self, first: Any, last: Any) -> SourcePosition:
        """The first line from event ``first`` to ``last``; scalars exclude their anchor."""
        start = first.start_mark
        end = last.end_mark
        line = self.source.lines[start.line] if start.line < len(self.source.lines) else ""
        anchor = ANCHOR_PREFIX.match(line, start.column) if isinstance(
            first, yaml.ScalarEvent) else None
        column = anchor.end() if anchor else start.column
        stop = end.column if end.line == start.line else len(line)
        return SourcePosition(self.source, start.line, column, max(stop, column + 1))


def _extent(node: Node) -> tuple[int, int]:
    """How many nodes ``node`` is, and how many levels of them lie below it."""
    values = [value for _, value in node] if isinstance(node, MappingNode) else getattr(
        node, "items", ())
    extents = [_extent(value) for value in values]
    return 1 + sum(size for size, _ in extents), max(
        (1 + levels for _, levels in extents), default=0)


def _syntax(source: SourceText, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    text = source.lines[line] if line < len(source.lines) else ""
    if column >= len(text) and not text.strip() and line:
        line -= 1
        column = len(source.lines[line].rstrip())
        text = source.lines[line]
    context = error.context or ""
    if "single document" in context:
        return Problem(SourcePosition(source, line, column, column + 3),
                       "this file holds more than one document", "remove the line `---`",
                       code="not-yaml")
    begin = error.context_mark
    since = f" that begins in line {begin.line + 1}" if begin and begin.line != line else ""
    message = f"not YAML: {error.problem}" + (f" ({context}{since})" if context else "")
    problem = error.problem or ""
    help = None
    if "duplicate anchor" in context:
        message = "this anchor is defined twice"
        help = "give each anchor a name of its own"
    elif "\\t" in problem or "\t" in text[: column + 1]:
        help = "YAML indents and separates with spaces, not with tabs"
    elif "flow" in context and (key := KEY_BEFORE_COLON.search(text[:column])) and (
            "got ':'" in problem):
        help = f"write a comma before `{key.group()}`, or close the bracket before it"
    elif "mapping values are not allowed" in problem and line and (
            key := KEY_WITHOUT_SPACE.match(source.lines[line - 1])):
        help = f"write a space after the colon in line {line}: `{key[1]}: {key[2]}`"
    elif "mapping values are not allowed" in problem:
        help = ("a value that contains `: ` must be quoted; or the line above is indented "
                "differently")
    elif "flow" in context:
        help = "close the bracket; inside { } and [ ], quote a value that contains a comma"
    elif "block mapping" in context or "block end" in problem:
        help = "keys of one mapping begin in the same column"
    return Problem(SourcePosition(source, line, column, column + 1), message, help, code="not-yaml")
