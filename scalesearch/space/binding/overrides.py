"""Apply ``--set key=value`` to the nodes of a space file: the same language, the same errors."""

from collections.abc import Mapping
from dataclasses import replace

from scalesearch.space.binding.binder import ONE_OF_KEY, Binder, KeyContext, offered_variants
from scalesearch.space.binding.call_syntax import expand_calls
from scalesearch.space.schema.bound_tree import SchemaIndex, build_index, variant_field
from scalesearch.space.schema.types import SchemaField, SchemaGroup
from scalesearch.space.syntax.composite_domains import iter_expressions
from scalesearch.space.syntax.diagnostics import (
    ConfigError,
    Problem,
    SourcePosition,
    SourceText,
    closest_match,
    format_alternatives,
)
from scalesearch.space.syntax.domains import Domain
from scalesearch.space.syntax.nodes import (
    MappingNode,
    Node,
    ScalarNode,
    scalar_from_text,
    unfold_dotted_keys,
)
from scalesearch.space.syntax.yaml_reader import parse_yaml

TOP_LEVEL_KEYS = ("space", "notes")


def apply_overrides(document: MappingNode, schema: SchemaGroup, overrides: Mapping[str, str],
                    problems: list[Problem], option: str = "--set") -> MappingNode:
    """``document`` with every override applied.

    Args:
        overrides: path to value, as texts.
        problems: errors of the overrides are added here.
        option: name of the command-line option, for messages.
    """
    index = build_index(schema)
    groups_first = sorted(overrides.items(),
                          key=lambda item: (item[0].count("."), item[0] not in index.groups))
    for path, value in groups_first:
        node = _value(option, path, value, problems)
        path = index.spellings.get(path, path)
        if path in TOP_LEVEL_KEYS:
            document = _with_entry(document, path, node)
        elif not path or (path not in index.entries and path not in index.groups):
            problems.append(_unknown(index, _position(option, path, value), path))
        else:
            problem = _not_offered(document, schema, path, _position(option, path, value))
            if problem is not None:
                problems.append(problem)
            else:
                document = _apply(document, schema, path.split("."), node)
    return _without(document, ("cost", "protocol", "vocab")) if "vocab" in overrides else document


def _position(option: str, path: str, value: str) -> SourcePosition:
    """The position of the key ``path`` in the text of the option."""
    return scalar_from_text(option, f"{option} ", f"{path}={value}").position_of((0, len(path)))


def _value(option: str, path: str, value: str, problems: list[Problem]) -> Node:
    """The node of a value: a YAML mapping in braces, otherwise a text."""
    text = scalar_from_text(option, f"{option} {path}=", value)
    if not value.lstrip().startswith("{"):
        return text
    try:
        table, yaml_problems = parse_yaml(SourceText(option, value, has_lines=False))
    except ConfigError as error:
        problems.extend(error.problems)
        return Node(text.position)
    problems.extend(yaml_problems)
    return table


def _not_offered(document: MappingNode, schema: SchemaGroup, path: str,
                 position: SourcePosition) -> Problem | None:
    """The problem of a key that exists only in variants that the space does not offer, or None."""
    table = document
    group = schema
    names = path.split(".")
    for level, name in enumerate(names):
        child = group.fields.get(name)
        if isinstance(child, SchemaGroup):
            table = _as_table(_unfolded(table).get(name), child, table)
            group = child
        elif child is None:
            owners = [variant_name for variant_name, variant in group.variants.items()
                      if name == variant_name or name in variant.fields]
            if set(owners) & set(_offered_nodes(table, group)):
                return None  # the binder checks keys further below
            parent = ".".join(names[:level])
            help = (f"choose {format_alternatives(owners)} first, for example with `--set "
                    f"{parent}={owners[0]}`")
            return Problem(position, f"no variant of `{parent}` that the space offers has `{name}`",
                           help, code="unknown-key")
    return None


def _unknown(index: SchemaIndex, position: SourcePosition, path: str) -> Problem:
    """The problem of a path that does not exist in the schema."""
    paths = [*index.entries, *(name for name in index.groups if name)]
    path_of_last_name = {name.rpartition(".")[2]: name for name in reversed(paths)}
    match = closest_match(path, paths)
    if match is None:
        last_name = closest_match(path.rpartition(".")[2], path_of_last_name)
        match = path_of_last_name.get(last_name or "")
    help = index.describe_synonym(path) or (f"did you mean `{match}`?" if match else None)
    return Problem(position, f"unknown key `{path}`", help, code="unknown-key")


def _apply(table: MappingNode, group: SchemaGroup, path: list[str], value: Node) -> MappingNode:
    """``table``, the mapping of ``group``, with ``value`` at ``path``."""
    table = _unfolded(table)
    name = path[0]
    below = path[1:]
    child = group.fields.get(name)
    if child is None:
        return _in_variants(table, group, path, value)
    if isinstance(child, SchemaField):
        return _with_entry(table, name, value)
    old = expand_calls(table.get(name), child, _ignore_problem)
    if isinstance(old, ScalarNode) and old.text and child.variants and not _names(child, old):
        return table  # invalid; the binder reports it
    if below:
        return _with_entry(table, name, _apply(_as_table(old, child, value), child, below, value))
    return _without_unused(_with_entry(table, name, _variant(old, child, value)), group)


def _in_variants(table: MappingNode, group: SchemaGroup, path: list[str],
                 value: Node) -> MappingNode:
    """``table`` with ``value`` at ``path`` (a variant or its key), in all offered variants."""
    offers = _offered_nodes(table, group)
    for name in offers:
        below = path[1:] if path[0] in group.variants else path
        if name == path[0] or (below is path and path[0] in group.variants[name].fields):
            variant = _as_table(offers[name], SchemaGroup(), value)
            offers[name] = _apply(variant, group.variants[name], below, value) if below else value
    return _with_variants(table, group, offers, value)


def _without_unused(table: MappingNode, group: SchemaGroup) -> MappingNode:
    """``table`` without the inlined keys of a variant that is no longer offered."""
    if group.inlined_variant is None:
        return table
    inlined = group.inlined_variant
    node = table.get(inlined.group)
    variant_group = group.fields[inlined.group]
    assert isinstance(variant_group, SchemaGroup)
    if not isinstance(node, MappingNode | ScalarNode):
        return table
    if inlined.variant in _offered_nodes(_as_table(node, variant_group, node), variant_group):
        return table
    return replace(table, entries=tuple(
        entry for entry in table if entry[0].text not in inlined.exclusive_keys))


def _variant(old: Node | None, group: SchemaGroup, value: Node) -> Node:
    """The node of another variant (``ffn=geglu``); keeps the keys that both variants have."""
    if not isinstance(value, ScalarNode) or not group.variants:
        return value
    names = _names(group, value)
    table = _as_table(old, group, value)
    present = _offered_nodes(table, group)
    variant_entries = [entry for node in present.values() if isinstance(node, MappingNode)
                       for entry in unfold_dotted_keys(node, [])]
    # If several variants have a key, the value of the first is kept.
    kept = {key.text: (key, node) for key, node in reversed(variant_entries)}
    offers: dict[str, Node | None] = {}
    for name, inner in group.variants.items():
        if name in names:
            same = tuple(entry for key, entry in reversed(kept.items()) if key in inner.fields)
            offers[name] = present[name] if name in present else MappingNode(value.position, same)
    if offers and not _is_conditional(group, value):
        return _with_variants(replace(table, entries=tuple(_non_variant_entries(table, group))),
                              group, offers, value)
    variants = tuple((_key(name, value), node) for name, node in offers.items()
                     if isinstance(node, MappingNode) and node.entries)
    entries = (*variants, *_non_variant_entries(table, group))
    if not entries:
        return value
    return replace(table, entries=((_key(ONE_OF_KEY, value), value), *entries))


def _names(group: SchemaGroup, value: ScalarNode) -> set[str]:
    """The possible variants of the text ``value``; all of them if it is computed."""
    names = offered_variants(_variant_domain(group, value))
    if not names and _is_conditional(group, value):
        return set(group.variants)
    return names & set(group.variants)


def _is_conditional(group: SchemaGroup, value: ScalarNode) -> bool:
    """True if the text ``value`` selects a variant by a condition or an expression."""
    return any(True for _ in iter_expressions(_variant_domain(group, value)))


def _variant_domain(group: SchemaGroup, value: ScalarNode) -> Domain:
    return Binder(SchemaIndex({}, {})).bind_parameter(
        variant_field(group), value, KeyContext("", "", value.position)).domain


def _non_variant_entries(table: MappingNode, group: SchemaGroup) -> list[tuple[ScalarNode, Node]]:
    return [entry for entry in table
            if entry[0].text not in group.variants and entry[0].text != ONE_OF_KEY]


def _offered_nodes(table: MappingNode, group: SchemaGroup) -> dict[str, Node | None]:
    """The variants that ``table`` offers, with their nodes; the default if it does not name any."""
    choice = table.get(ONE_OF_KEY)
    entries = unfold_dotted_keys(choice if isinstance(choice, MappingNode) else table, [])
    variants: dict[str, Node | None] = {
        key.text: node for key, node in entries if key.text in group.variants}
    if isinstance(choice, ScalarNode):
        names = _names(group, choice)
        return {name: variants.get(name) for name in group.variants if name in names}
    default = group.default_variant
    return variants or ({default: None} if default else {})


def _with_variants(table: MappingNode, group: SchemaGroup, offers: Mapping[str, Node | None],
                   value: Node) -> MappingNode:
    """``table`` with ``offers`` as its variants."""
    empty = MappingNode(value.position, ())
    choice = table.get(ONE_OF_KEY)
    entries = tuple((_key(name, value), node if node is not None else empty)
                    for name, node in offers.items())
    kept = tuple(_non_variant_entries(table, group))
    # A condition is kept under `one of:`, with the keys of its variants next to it.
    if isinstance(choice, ScalarNode) and _is_conditional(group, choice):
        return replace(table, entries=((_key(ONE_OF_KEY, value), choice), *entries, *kept))
    return replace(table,
                   entries=((_key(ONE_OF_KEY, value), MappingNode(value.position, entries)), *kept))


def _without(table: MappingNode, path: tuple[str, ...]) -> MappingNode:
    """``table`` without the key at ``path``."""
    table = _unfolded(table)
    name, *below = path
    inner = table.get(name)
    if not below:
        return replace(table, entries=tuple(entry for entry in table if entry[0].text != name))
    if not isinstance(inner, MappingNode):
        return table
    return _with_entry(table, name, _without(inner, tuple(below)))


def _as_table(node: Node | None, group: SchemaGroup, value: Node) -> MappingNode:
    """The mapping that ``node`` is, or that its text is short for."""
    node = expand_calls(node, group, _ignore_problem)
    if isinstance(node, MappingNode):
        return node
    if isinstance(node, ScalarNode) and node.text and group.variants:
        if _is_conditional(group, node):
            return MappingNode(node.position, ((_key(ONE_OF_KEY, node), node),))
        names = _names(group, node)
        empty = MappingNode(node.position, ())
        variants = tuple((_key(name, node), empty) for name in group.variants if name in names)
        if not variants:
            return empty
        choice = (_key(ONE_OF_KEY, node), MappingNode(node.position, variants))
        return MappingNode(node.position, (choice,))
    return MappingNode(value.position, ())


def _ignore_problem(*_: object, **__: object) -> None:
    """Do nothing: the binder reports problems of the file."""


def _unfolded(table: MappingNode) -> MappingNode:
    """``table`` with dotted keys nested; duplicates are kept, and the binder reports them."""
    problems: list[Problem] = []
    entries = tuple(unfold_dotted_keys(table, problems))
    return table if problems else replace(table, entries=entries)


def _key(name: str, value: Node) -> ScalarNode:
    return ScalarNode(value.position, name)


def _with_entry(table: MappingNode, name: str, value: Node) -> MappingNode:
    """``table`` with another value of ``name``, at its old place."""
    if table.get(name) is None:
        return replace(table, entries=(*table.entries, (_key(name, value), value)))
    return replace(table, entries=tuple(
        (key, value if key.text == name else old) for key, old in table))
