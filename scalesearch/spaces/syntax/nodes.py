"""A space file as a tree of YAML nodes: texts with their places."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from scalesearch.spaces.syntax.diagnostics import Problem, SourcePosition, SourceText
from scalesearch.spaces.syntax.lexer import Span


@dataclass(frozen=True)
class Node:
    """A piece of the file; ``alias`` is the ``*name`` that refers to it, if any."""

    position: SourcePosition
    alias: SourcePosition | None = field(default=None, kw_only=True)

    @property
    def display_position(self) -> SourcePosition:
        """The place that errors show: the alias rather than its anchor."""
        return self.alias or self.position


@dataclass(frozen=True)
class ScalarNode(Node):
    """A scalar: its folded text, and the place of each character in the source.

    Args:
        char_positions: (line, column) of each character of ``text``; empty if escapes hide it.
        is_quoted: written in YAML quotes or as a block.
    """

    text: str
    char_positions: tuple[tuple[int, int], ...] = ()
    is_quoted: bool = False

    def position_of(self, span: Span) -> SourcePosition:
        """The place of the characters ``span`` on their first line.

        It is the whole scalar if the place is unknown.
        """
        if not self.char_positions:
            return self.position
        if span[0] >= len(self.char_positions):
            line, column = self.char_positions[-1]
            return SourcePosition(self.position.source, line, column + 1, column + 2)
        line, column = self.char_positions[span[0]]
        ends = [end for end_line, end in self.char_positions[span[0] : span[1]] if end_line == line]
        return SourcePosition(self.position.source, line, column, max(ends, default=column) + 1)


@dataclass(frozen=True)
class SequenceNode(Node):
    """A list."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class MappingNode(Node):
    """A mapping, in the order of the file, duplicates included."""

    entries: tuple[tuple[ScalarNode, Node], ...]

    def get(self, key: str) -> Node | None:
        """The first value under ``key``."""
        return next((value for name, value in self.entries if name.text == key), None)

    def __iter__(self) -> Iterator[tuple[ScalarNode, Node]]:
        return iter(self.entries)


SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which no file and no terminal takes


def locate_characters(source: SourceText, text: str, line: int,
                      column: int) -> tuple[tuple[int, int], ...]:
    """The place of each character of a folded ``text``, given where its source begins.

    YAML folds line breaks into spaces and drops indentation, so characters that are not blank are
    matched in order; a blank stands right after the character before it.
    """
    lines = source.lines
    where: list[tuple[int, int]] = []
    for character in text:
        if character.isspace():
            where.append((where[-1][0], where[-1][1] + 1) if where else (line, column))
            continue
        while line < len(lines) and (column >= len(lines[line]) or lines[line][column].isspace()):
            line, column = (line, column + 1) if column < len(lines[line]) else (line + 1, 0)
        if line >= len(lines) or lines[line][column] != character:
            return ()  # an escape or a doubled quote: the whole scalar is underlined instead
        where.append((line, column))
        column += 1
    return tuple(where)


def scalar_from_text(name: str, prefix: str, text: str) -> ScalarNode:
    """A scalar from outside a file, such as ``--set key=value``.

    It is shown after ``prefix`` on one line.
    """
    flat = SURROGATE.sub("\ufffd", re.sub(r"[\n\r\x85\u2028\u2029]", " ", text))
    source = SourceText(name, prefix + flat, has_lines=False)
    start = len(prefix)
    place = SourcePosition(source, 0, start, start + max(1, len(flat)))
    return ScalarNode(place, flat, tuple((0, start + index) for index in range(len(flat))))


# -- dotted keys are nesting: `encoder.attention: own` is `encoder: { attention: own }`


def unfold_dotted_keys(table: MappingNode,
                       problems: list[Problem]) -> list[tuple[ScalarNode, Node]]:
    """The entries of ``table`` by their first name; reports duplicates."""
    entries: dict[str, tuple[ScalarNode, Node]] = {}
    plain: set[str] = set()
    for key, value in table:
        head, node = split_dotted_key(key, value)
        name = head.text
        is_plain = head is key
        if name not in entries:
            entries[name] = (head, node)
        elif isinstance(entries[name][1], MappingNode) and isinstance(node, MappingNode) and not (
                is_plain and name in plain):
            first, earlier = entries[name]
            assert isinstance(earlier, MappingNode)
            entries[name] = (first, replace(earlier, entries=(*earlier.entries, *node.entries)))
        else:
            problems.append(duplicate_key_problem(key, entries[name][0]))
        plain |= {name} if is_plain else set()
    return list(entries.values())


def split_dotted_key(key: ScalarNode, value: Node) -> tuple[ScalarNode, Node]:
    """The first name of a key, and its value.

    For ``a.b``, the value is a mapping with the key ``b``.
    """
    head, dot, tail = key.text.partition(".")
    if not (dot and head and tail):
        return key, value
    size = len(head)
    dot_column = key.char_positions[size][1] if key.char_positions else key.position.column + size
    tail_position = replace(key.position, column=min(dot_column + 1, key.position.end - 1))
    inner_key = ScalarNode(tail_position, tail, key.char_positions[size + 1 :], key.is_quoted)
    outer_key = ScalarNode(replace(key.position, end=dot_column), head, key.char_positions[:size],
                           key.is_quoted)
    return outer_key, MappingNode(tail_position, ((inner_key, value),))


def duplicate_key_problem(key: ScalarNode, first: ScalarNode) -> Problem:
    """The complaint about a key that is given twice."""
    where = (f"line {first.position.line + 1}" if first.position.source.has_lines
             else "the same text")
    return Problem(key.position, f"`{key.text}` is given twice",
                   f"first given in {where}; remove one of the two", code="given-twice")
