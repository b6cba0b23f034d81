"""A space, bound to its schema: branches of keys, leaves with what they may be."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

from scalesearch.blocks.core import join_path
from scalesearch.space.schema.types import SchemaField, SchemaGroup
from scalesearch.space.syntax.diagnostics import SourcePosition, format_alternatives
from scalesearch.space.syntax.domains import Domain
from scalesearch.space.syntax.lexer import Span
from scalesearch.space.syntax.nodes import Node, ScalarNode, SequenceNode

Guards = tuple[tuple[str, str], ...]  # (key of a variant group, variant that must be chosen there)


@dataclass(frozen=True)
class ParameterNode:
    """One key with what it may be.

    Args:
        key: the name of its answer, ``encoder.ffn.hidden``.
        path: the same with variants, ``encoder.ffn.relu.hidden``; no two leaves share one.
        guards: where this leaf exists.
        origin: the text it was read from, or the group in which it was left out.
        is_given: not a default.
    """

    key: str
    path: str
    field: SchemaField
    domain: Domain
    guards: Guards
    origin: Node | SourcePosition = dataclasses.field(compare=False, repr=False)
    is_given: bool = dataclasses.field(default=True, compare=False)

    def position_of(self, span: Span) -> SourcePosition:
        """The place of the characters ``span`` of this leaf's text, or of the item ``span[0]`` of its list."""
        origin = self.origin
        if isinstance(origin, ScalarNode):
            return origin.position_of(span)
        if isinstance(origin, SequenceNode):
            return (origin.items[span[0]] if span[1] else origin).display_position
        return origin.position if isinstance(origin, Node) else origin


@dataclass(frozen=True)
class GroupNode:
    """A group of keys; ``variant_node`` answers which of ``variants`` is meant."""

    key: str
    path: str
    variant_node: ParameterNode | None = None
    fields: tuple[tuple[str, Union["GroupNode", ParameterNode]], ...] = ()
    variants: tuple[tuple[str, "GroupNode"], ...] = ()

    def parameter_nodes(self) -> Iterator[ParameterNode]:
        """Every leaf, in the order of the schema."""
        if self.variant_node:
            yield self.variant_node
        for _, child in (*self.fields, *self.variants):
            if isinstance(child, ParameterNode):
                yield child
            else:
                yield from child.parameter_nodes()


@dataclass(frozen=True)
class SchemaEntry:
    """The schema's entry of one dotted path."""

    key: str
    guards: Guards
    field: SchemaField


@dataclass(frozen=True)
class SchemaIndex:
    """Every path of a schema, with and without the names of variants; other ``spellings`` of them."""

    entries: dict[str, SchemaEntry]
    groups: dict[str, SchemaGroup]
    spellings: dict[str, str] = dataclasses.field(default_factory=dict)

    def find(self, name: str, scope: str) -> SchemaEntry | None:
        """The key that ``name`` means inside the group ``scope``: the innermost one."""
        while True:
            path = f"{scope}.{name}" if scope else name
            known = self.entries.get(self.spellings.get(path, path))
            if known or not scope:
                return known
            scope = scope.rpartition(".")[0]

    def describe_synonym(self, name: str, scope: str = "") -> str | None:
        """A help line naming the key that others call ``name``: one of the group ``scope`` before any other."""
        fields: dict[str, SchemaField | SchemaGroup] = {
            path: known.field for path, known in self.entries.items()}
        last = name.rpartition(".")[2]
        found = [path
                 for path, one in {**fields, **self.groups}.items()
                 if path and last in one.synonyms]
        shortest: dict[tuple[str, str], str] = {}  # of variants of a group, one is enough
        for path in sorted([path for path in found if path.startswith(f"{scope}.")] or found,
                           key=len):
            shortest.setdefault((path.partition(".")[0], path.rpartition(".")[2]), path)
        return (f"it is called {format_alternatives(list(shortest.values())[:3])} here" if found
                else None)


def variant_field(group: SchemaGroup) -> SchemaField:
    """The choice between variants, as a field."""
    return SchemaField("word", words=tuple(group.variants), default=group.default_variant,
                       doc=group.doc)


def build_index(schema: SchemaGroup) -> SchemaIndex:
    """The index of ``schema``."""
    index = SchemaIndex({}, {})
    _collect(schema, "", "", (), index)
    return index


def _collect(group: SchemaGroup, key: str, path: str, guards: Guards, index: SchemaIndex) -> None:
    index.groups[path] = group
    if group.variants:
        index.entries[path] = SchemaEntry(key, guards, variant_field(group))
        index.entries.setdefault(key, index.entries[path])
    _collect_fields(group, key, path, guards, index)
    for name, variant in group.variants.items():
        inside = join_path(path, name)
        index.groups[inside] = variant
        _collect_fields(variant, key, inside, (*guards, (key, name)), index)


def _collect_fields(group: SchemaGroup, key: str, path: str, guards: Guards,
                    index: SchemaIndex) -> None:
    for name, child in group.fields.items():
        mine = (*guards, *guards_of(group, name, key))
        if isinstance(child, SchemaGroup):
            _collect(child, join_path(key, name), join_path(path, name), mine, index)
        else:
            index.entries[join_path(path, name)] = SchemaEntry(join_path(key, name), mine, child)
            index.entries.setdefault(join_path(key, name),
                                     SchemaEntry(join_path(key, name), (), child))
    index.spellings.update({join_path(path, other): join_path(path, name)
                            for other, name in group.spellings.items()})
    if group.inlined_variant:
        inside = join_path(join_path(path, group.inlined_variant.group),
                           group.inlined_variant.variant)
        index.spellings.update({join_path(inside, name): join_path(path, name)
                                for name in group.inlined_variant.inlined_keys})


def guards_of(group: SchemaGroup, name: str, key: str) -> Guards:
    """Under which variant beside it the field ``name`` of ``group`` exists; ``key`` is the group's."""
    beside = group.inlined_variant
    return ((join_path(key, beside.group), beside.variant),
            ) if beside and name in beside.exclusive_keys else ()


