"""A space, bound to its schema: branches of keys, leaves with what they may be."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

from scalesearch.blocks.core import join_path
from scalesearch.space.schema.types import Field, Group
from scalesearch.space.syntax.diagnostics import Place, either
from scalesearch.space.syntax.domains import Spec
from scalesearch.space.syntax.lexer import Span
from scalesearch.space.syntax.nodes import Node, Sequence, Text

Guards = tuple[tuple[str, str], ...]  # (key of a variant group, variant that must be chosen there)


@dataclass(frozen=True)
class Leaf:
    """One key with what it may be.

    Args:
        key: the name of its answer, ``encoder.ffn.hidden``.
        path: the same with variants, ``encoder.ffn.relu.hidden``; no two leaves share one.
        guards: where this leaf exists.
        origin: the text it was read from, or the group in which it was left out.
        given: not a default.
    """

    key: str
    path: str
    field: Field
    spec: Spec
    guards: Guards
    origin: Node | Place = dataclasses.field(compare=False, repr=False)
    given: bool = dataclasses.field(default=True, compare=False)

    def place(self, span: Span) -> Place:
        """The place of the characters ``span`` of this leaf's text, or of the item ``span[0]`` of its list."""
        origin = self.origin
        if isinstance(origin, Text):
            return origin.at(span)
        if isinstance(origin, Sequence):
            return (origin.items[span[0]] if span[1] else origin).here
        return origin.place if isinstance(origin, Node) else origin


@dataclass(frozen=True)
class Branch:
    """A group of keys; ``chooser`` answers which of ``variants`` is meant."""

    key: str
    path: str
    chooser: Leaf | None = None
    fields: tuple[tuple[str, Union["Branch", Leaf]], ...] = ()
    variants: tuple[tuple[str, "Branch"], ...] = ()

    def leaves(self) -> Iterator[Leaf]:
        """Every leaf, in the order of the schema."""
        if self.chooser:
            yield self.chooser
        for _, child in (*self.fields, *self.variants):
            if isinstance(child, Leaf):
                yield child
            else:
                yield from child.leaves()


@dataclass(frozen=True)
class Known:
    """The schema's entry of one dotted path."""

    key: str
    guards: Guards
    field: Field


@dataclass(frozen=True)
class Index:
    """Every path of a schema, with and without the names of variants; other ``spellings`` of them."""

    paths: dict[str, Known]
    groups: dict[str, Group]
    spellings: dict[str, str] = dataclasses.field(default_factory=dict)

    def find(self, name: str, scope: str) -> Known | None:
        """The key that ``name`` means inside the group ``scope``: the innermost one."""
        while True:
            path = f"{scope}.{name}" if scope else name
            known = self.paths.get(self.spellings.get(path, path))
            if known or not scope:
                return known
            scope = scope.rpartition(".")[0]

    def called(self, name: str, scope: str = "") -> str | None:
        """A help line naming the key that others call ``name``: one of the group ``scope`` before any other."""
        fields: dict[str, Field | Group] = {path: known.field for path, known in self.paths.items()}
        last = name.rpartition(".")[2]
        found = [path for path, one in {**fields, **self.groups}.items() if path and last in one.synonyms]
        shortest: dict[tuple[str, str], str] = {}  # of variants of a group, one is enough
        for path in sorted([path for path in found if path.startswith(f"{scope}.")] or found, key=len):
            shortest.setdefault((path.partition(".")[0], path.rpartition(".")[2]), path)
        return f"it is called {either(list(shortest.values())[:3])} here" if found else None


def chooser_field(group: Group) -> Field:
    """The choice between variants, as a field."""
    return Field("word", words=tuple(group.variants), default=group.default_variant, doc=group.doc)


def index_of(schema: Group) -> Index:
    """The index of ``schema``."""
    index = Index({}, {})
    _collect(schema, "", "", (), index)
    return index


def _collect(group: Group, key: str, path: str, guards: Guards, index: Index) -> None:
    index.groups[path] = group
    if group.variants:
        index.paths[path] = Known(key, guards, chooser_field(group))
        index.paths.setdefault(key, index.paths[path])
    _collect_fields(group, key, path, guards, index)
    for name, variant in group.variants.items():
        inside = join_path(path, name)
        index.groups[inside] = variant
        _collect_fields(variant, key, inside, (*guards, (key, name)), index)


def _collect_fields(group: Group, key: str, path: str, guards: Guards, index: Index) -> None:
    for name, child in group.fields.items():
        mine = (*guards, *guards_of(group, name, key))
        if isinstance(child, Group):
            _collect(child, join_path(key, name), join_path(path, name), mine, index)
        else:
            index.paths[join_path(path, name)] = Known(join_path(key, name), mine, child)
            index.paths.setdefault(join_path(key, name), Known(join_path(key, name), (), child))
    index.spellings.update({join_path(path, other): join_path(path, name) for other, name in group.spellings.items()})
    if group.beside:
        inside = join_path(join_path(path, group.beside.group), group.beside.variant)
        index.spellings.update({join_path(inside, name): join_path(path, name) for name in group.beside.names})


def guards_of(group: Group, name: str, key: str) -> Guards:
    """Under which variant beside it the field ``name`` of ``group`` exists; ``key`` is the group's."""
    beside = group.beside
    return ((join_path(key, beside.group), beside.variant),) if beside and name in beside.alone else ()


