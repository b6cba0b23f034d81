"""A space file as a tree of texts with places: YAML's nodes, never Python's values."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from scalesearch.space.syntax.diagnostics import Place, Problem, Source
from scalesearch.space.syntax.lexer import Span


@dataclass(frozen=True)
class Node:
    """A piece of the file; ``alias`` is the ``*name`` that refers to it, if any."""

    place: Place
    alias: Place | None = field(default=None, kw_only=True)

    @property
    def here(self) -> Place:
        """The place that errors show: the alias rather than its anchor."""
        return self.alias or self.place


@dataclass(frozen=True)
class Text(Node):
    """A scalar: its folded text, and the place of each character in the source.

    Args:
        where: (line, column) of each character of ``text``, or empty where escapes make that unknowable.
        quoted: written in YAML quotes or as a block.
    """

    text: str
    where: tuple[tuple[int, int], ...] = ()
    quoted: bool = False

    def at(self, span: Span) -> Place:
        """The place of the characters ``span`` on their first line; the whole scalar if unknown."""
        if not self.where:
            return self.place
        if span[0] >= len(self.where):
            line, column = self.where[-1]
            return Place(self.place.source, line, column + 1, column + 2)
        line, column = self.where[span[0]]
        ends = [at for at_line, at in self.where[span[0] : span[1]] if at_line == line]
        return Place(self.place.source, line, column, max(ends, default=column) + 1)


@dataclass(frozen=True)
class Sequence(Node):
    """A list."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Table(Node):
    """A mapping, in the order of the file, duplicates included."""

    entries: tuple[tuple[Text, Node], ...]

    def get(self, key: str) -> Node | None:
        """The first value under ``key``."""
        return next((value for name, value in self.entries if name.text == key), None)

    def __iter__(self) -> Iterator[tuple[Text, Node]]:
        return iter(self.entries)


SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which no file and no terminal takes


def locate(source: Source, text: str, line: int, column: int) -> tuple[tuple[int, int], ...]:
    """The place of each character of a folded ``text``, given where its source begins.

    YAML folds line breaks into spaces and drops indentation, so characters that are not blank are matched in order;
    a blank stands right after the character before it.
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


def from_text(name: str, prefix: str, text: str) -> Text:
    """A scalar from outside a file (``--set key=value``), shown after ``prefix`` on one line."""
    flat = SURROGATE.sub("\ufffd", re.sub(r"[\n\r\x85\u2028\u2029]", " ", text))
    source = Source(name, prefix + flat, numbered=False)
    start = len(prefix)
    place = Place(source, 0, start, start + max(1, len(flat)))
    return Text(place, flat, tuple((0, start + at) for at in range(len(flat))))


# -- dotted keys are nesting: `encoder.attention: own` is `encoder: { attention: own }`


def unfold(table: Table, problems: list[Problem]) -> list[tuple[Text, Node]]:
    """The entries of ``table`` by their first name; reports duplicates."""
    entries: dict[str, tuple[Text, Node]] = {}
    plain: set[str] = set()
    for key, value in table:
        head, node = split(key, value)
        name, is_plain = head.text, head is key
        if name not in entries:
            entries[name] = (head, node)
        elif isinstance(entries[name][1], Table) and isinstance(node, Table) and not (is_plain and name in plain):
            first, earlier = entries[name]
            assert isinstance(earlier, Table)
            entries[name] = (first, replace(earlier, entries=(*earlier.entries, *node.entries)))
        else:
            problems.append(duplicate(key, entries[name][0]))
        plain |= {name} if is_plain else set()
    return list(entries.values())


def split(key: Text, value: Node) -> tuple[Text, Node]:
    """The first name of a key, and what is under it."""
    head, dot, rest = key.text.partition(".")
    if not (dot and head and rest):
        return key, value
    size = len(head)
    end = replace(key.place, end=key.place.column + size)
    start = replace(key.place, column=min(key.place.column + size + 1, key.place.end - 1))
    inner = Text(start, rest, key.where[size + 1 :], key.quoted)
    return Text(end, head, key.where[:size], key.quoted), Table(start, ((inner, value),))


def duplicate(key: Text, first: Text) -> Problem:
    """The complaint about a key that is given twice."""
    where = f"line {first.place.line + 1}" if first.place.source.numbered else "the same text"
    return Problem(key.place, f"`{key.text}` is given twice", f"first given in {where}; remove one of the two",
                   code="given-twice")
