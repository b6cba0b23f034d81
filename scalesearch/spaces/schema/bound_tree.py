"""A space bound to its schema: groups and parameters with their domains."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Union

from scalesearch.blocks.core import join_path
from scalesearch.spaces.schema.types import SchemaField, SchemaGroup
from scalesearch.spaces.syntax.diagnostics import SourcePosition, closest_match, format_alternatives
from scalesearch.spaces.syntax.domains import Domain
from scalesearch.spaces.syntax.expressions import KeyRef
from scalesearch.spaces.syntax.lexer import Span, split_layer
from scalesearch.spaces.syntax.nodes import Node, ScalarNode, SequenceNode

Guards = tuple[tuple[str, str], ...]  # (key of a variant group, variant that must be selected)


@dataclass(frozen=True)
class ParameterNode:
    """One key with its domain.

    Args:
        key: the name in a configuration, ``encoder.ffn.hidden``.
        path: the name with variants, ``encoder.ffn.relu.hidden``; unique.
        guards: the variants under which the key exists.
        origin: the text that it was read from, or the position of the group that lacks it.
        is_given: whether the file sets it.
    """

    key: str
    path: str
    field: SchemaField
    domain: Domain
    guards: Guards
    origin: Node | SourcePosition = dataclasses.field(compare=False, repr=False)
    is_given: bool = dataclasses.field(default=True, compare=False)

    def position_of(self, span: Span) -> SourcePosition:
        """The position of the characters ``span``, or of item ``span[0]`` of a list."""
        origin = self.origin
        if isinstance(origin, ScalarNode):
            return origin.position_of(span)
        if isinstance(origin, SequenceNode):
            return (origin.items[span[0]] if span[1] else origin).display_position
        return origin.position if isinstance(origin, Node) else origin


@dataclass(frozen=True)
class GroupNode:
    """A group of keys; ``variant_node`` selects one of ``variants``."""

    key: str
    path: str
    variant_node: ParameterNode | None = None
    fields: tuple[tuple[str, Union["GroupNode", ParameterNode]], ...] = ()
    variants: tuple[tuple[str, "GroupNode"], ...] = ()

    def parameter_nodes(self) -> Iterator[ParameterNode]:
        """Yield all parameters, in the order of the schema."""
        if self.variant_node:
            yield self.variant_node
        for _, child in (*self.fields, *self.variants):
            if isinstance(child, ParameterNode):
                yield child
            else:
                yield from child.parameter_nodes()


    def map_parameters(self, change: Callable[[ParameterNode], ParameterNode]) -> "GroupNode":
        """This group with ``change`` applied to all its parameters."""
        def apply(child: "GroupNode | ParameterNode") -> Any:
            return (change(child) if isinstance(child, ParameterNode)
                    else child.map_parameters(change))

        return dataclasses.replace(
            self, variant_node=self.variant_node and change(self.variant_node),
            fields=tuple((name, apply(child)) for name, child in self.fields),
            variants=tuple((name, apply(child)) for name, child in self.variants))


@dataclass(frozen=True)
class SchemaEntry:
    """The entry of a dotted path in the schema."""

    key: str
    guards: Guards
    field: SchemaField


@dataclass(frozen=True)
class SchemaIndex:
    """All paths of a schema, with and without the names of variants.

    Attributes:
        entries: path to the entry of its key.
        groups: path to its group.
        spellings: other spellings of paths to their canonical ones.
    """

    entries: dict[str, SchemaEntry]
    groups: dict[str, SchemaGroup]
    spellings: dict[str, str] = dataclasses.field(default_factory=dict)

    def find(self, name: str, scope: str) -> SchemaEntry | None:
        """The key that ``name`` refers to in the group ``scope``: the innermost match."""
        while True:
            path = f"{scope}.{name}" if scope else name
            entry = self.entries.get(self.spellings.get(path, path))
            if entry or not scope:
                return entry
            scope = scope.rpartition(".")[0]

    def reference(self, name: str) -> KeyRef | None:
        """The key and the layer that the full name of a parameter refers to.

        The name may leave out variants: ``encoder.ffn.hidden[2]``.
        """
        path, layer = split_layer(name)
        entry = self.entries.get(self.spellings.get(path, path))
        if entry is None or (layer is not None and not entry.field.layer_depth_key):
            return None
        depth_key = entry.field.layer_depth_key or "" if layer is not None else ""
        return KeyRef(name, entry.key, entry.guards, layer, depth_key)

    def parameter_names(self, config: Mapping[str, Any]) -> dict[str, str]:
        """The name with variants of each key of a configuration.

        With ``encoder.ffn: relu``, the key ``encoder.ffn.hidden`` is ``encoder.ffn.relu.hidden``.
        """
        return {key: next((path for path, guards in self.paths_by_key.get(key, ())
                           if all(config.get(group) == variant for group, variant in guards)), key)
                for key in config}

    def without(self, group: str) -> "SchemaIndex":
        """This index without the group ``group`` of the top level."""
        entries = {path: entry for path, entry in self.entries.items()
                   if path.partition(".")[0] != group}
        groups = {path: child for path, child in self.groups.items()
                  if path.partition(".")[0] != group}
        return SchemaIndex(entries, groups, self.spellings)

    @cached_property
    def paths_by_key(self) -> dict[str, list[tuple[str, Guards]]]:
        """Key to its paths under variants, with their guards."""
        paths: dict[str, list[tuple[str, Guards]]] = {}
        for path, entry in self.entries.items():
            if entry.guards:
                paths.setdefault(entry.key, []).append((path, entry.guards))
        return paths

    def suggest_path(self, text: str, words: Iterable[str] = ()) -> str | None:
        """The path that ends in ``text``, or the word, path or last name that is most similar.

        Of several paths with the same last name, the shortest one is returned, of the encoder if
        possible.
        """
        paths = sorted((path for path in (*self.entries, *self.groups) if path),
                       key=lambda path: (path.count("."), not path.startswith("encoder.")))
        path_of_last_name = {path.rpartition(".")[2]: path for path in reversed(paths)}
        if text in path_of_last_name:
            return path_of_last_name[text]
        match = closest_match(text, [*words, *paths])
        return match or path_of_last_name.get(
            closest_match(text.rpartition(".")[2], path_of_last_name) or "")

    def describe_synonym(self, name: str, scope: str = "") -> str | None:
        """A help line with the key of the synonym ``name``.

        The group ``scope`` comes first.
        """
        fields: dict[str, SchemaField | SchemaGroup] = {
            path: entry.field for path, entry in self.entries.items()}
        group, _, last_name = name.rpartition(".")
        groups = [group or scope] if group or scope else ["encoder", "decoder"]
        if inner := [*filter(None, (self._default_path(path, last_name) for path in groups))]:
            return f"the name is {format_alternatives(inner)} here"
        matches = [path for path, child in {**fields, **self.groups}.items()
                   if path and last_name in child.synonyms]
        if not matches:
            return None
        in_scope = [path for path in matches if path.startswith(f"{group or scope}.")]
        outer = self.groups.get((group or scope).rpartition(".")[0])
        if not in_scope and outer and (group or scope).rpartition(".")[2] in outer.variants:
            return None  # a block does not have the keys of the model
        shortest: dict[str, str] = {}  # per stack: one path for all variants of a group
        candidates = sorted(in_scope or matches, key=len)
        key = candidates[0].rpartition(".")[2]  # `d_ff` is `expert_hidden` only inside a mixture
        for path in candidates:
            if path.rpartition(".")[2] == key:
                shortest.setdefault(path.partition(".")[0], path)
        stacks = [stack for stack in ("encoder", "decoder") if stack in self.groups]
        if stacks and {*stacks} <= shortest.keys() and not shortest.keys() & shortest.values():
            named = [stack for stack in stacks if stack in last_name]  # `num_encoder_layers`
            shortest = {stack: shortest[stack] for stack in named or stacks}
        return f"the name is {format_alternatives(list(shortest.values())[:3])} here"

    def _default_path(self, group: str, name: str) -> str | None:
        """The path of a key of this name in the default variant of a group inside ``group``."""
        return next((path for path, entry in self.entries.items()
                     if group and path.startswith(f"{group}.") and path.endswith(f".{name}")
                     and path != f"{group}.{name}" and entry.guards
                     and all(self.groups[outer].default_variant == variant
                             for outer, variant in entry.guards)), None)


def variant_field(group: SchemaGroup) -> SchemaField:
    """The selection of a variant as a field."""
    return SchemaField("word", words=tuple(group.variants), default=group.default_variant,
                       doc=group.doc)


def build_index(schema: SchemaGroup) -> SchemaIndex:
    """Create the index of ``schema``."""
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
        variant_path = join_path(path, name)
        index.groups[variant_path] = variant
        _collect_fields(variant, key, variant_path, (*guards, (key, name)), index)


def _collect_fields(group: SchemaGroup, key: str, path: str, guards: Guards,
                    index: SchemaIndex) -> None:
    for name, child in group.fields.items():
        child_guards = (*guards, *guards_of(group, name, key))
        if isinstance(child, SchemaGroup):
            _collect(child, join_path(key, name), join_path(path, name), child_guards, index)
        else:
            child_key = join_path(key, name)
            index.entries[join_path(path, name)] = SchemaEntry(child_key, child_guards, child)
            index.entries.setdefault(child_key, SchemaEntry(child_key, (), child))
    index.spellings.update({join_path(path, other): join_path(path, name)
                            for other, name in group.spellings.items()})
    if group.inlined_variant:
        variant_path = join_path(join_path(path, group.inlined_variant.group),
                                 group.inlined_variant.variant)
        index.spellings.update({join_path(variant_path, name): join_path(path, name)
                                for name in group.inlined_variant.inlined_keys})


def guards_of(group: SchemaGroup, name: str, key: str) -> Guards:
    """The guard of the field ``name`` of ``group``.

    It is empty unless only an inlined variant has the field.

    Args:
        key: the key of the group.
    """
    inlined = group.inlined_variant
    if not inlined or name not in inlined.exclusive_keys:
        return ()
    return ((join_path(key, inlined.group), inlined.variant),)
