"""Rewrites a file's keys to their first spelling: other names, and keys of a variant that stand beside its group."""

from dataclasses import replace

from scalesearch.space.schema.types import Beside, Group
from scalesearch.space.syntax.diagnostics import Problem
from scalesearch.space.syntax.dotted_keys import unfold
from scalesearch.space.syntax.nodes import Node, Table, Text

Entries = list[tuple[Text, Node]]
ONE_OF = "one of"


def respelled(table: Table, group: Group, problems: list[Problem]) -> Table:
    """``table``, the mapping of ``group``, in the schema's own spelling; notes keys given twice in ``problems``."""
    entries: Entries = []
    for name, node in unfold(table, problems):
        own = group.spellings.get(name.text, name.text)
        child = group.fields.get(own)
        inside = respelled(node, child, problems) if isinstance(child, Group) and isinstance(node, Table) else node
        entries.append((name if own == name.text else replace(name, text=own, where=()), inside))
    return replace(table, entries=tuple(_lifted(entries, group.beside, problems) if group.beside else entries))


def _lifted(entries: Entries, beside: Beside, problems: list[Problem]) -> Entries:
    """``entries`` with the keys that stand inside the variant of ``beside`` beside its group."""
    lifted: Entries = []

    def without(node: Node, way: tuple[str, ...]) -> Node:
        """``node`` without the keys that stand below it under the keys ``way``."""
        if not isinstance(node, Table):
            return node
        inside = unfold(node, problems)
        if not way:
            lifted.extend(entry for entry in inside if entry[0].text in beside.names)
            return replace(node, entries=tuple(entry for entry in inside if entry[0].text not in beside.names))
        return replace(node, entries=tuple(
            (name, without(inner, way if name.text == ONE_OF else way[1:])) if name.text in (ONE_OF, way[0])
            else (name, inner) for name, inner in inside))

    kept = [(name, without(node, (beside.variant,)) if name.text == beside.group else node) for name, node in entries]
    return [*kept, *lifted]
