"""Dotted keys are nesting: ``encoder.attention: own`` is ``encoder: { attention: own }``."""

from dataclasses import replace

from scalesearch.space.syntax.diagnostics import Problem
from scalesearch.space.syntax.nodes import Node, Table, Text


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
