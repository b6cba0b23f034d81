"""Applies ``--set key=value`` to a file's nodes: the same language, the same errors."""

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
from scalesearch.space.syntax.nodes import MappingNode, Node, ScalarNode, scalar_from_text, unfold_dotted_keys
from scalesearch.space.syntax.yaml_reader import parse_yaml

TOP_LEVEL_KEYS = ("space", "notes")


def apply_overrides(document: MappingNode, schema: SchemaGroup, overrides: Mapping[str, str],
                    problems: list[Problem], option: str = "--set") -> MappingNode:
    """``document`` with every override in place; notes what is wrong with them, as of ``option``, in ``problems``."""
    index = build_index(schema)
    kinds_first = sorted(overrides.items(),
                         key=lambda item: (item[0].count("."), item[0] not in index.groups))
    for path, value in kinds_first:
        node = _value(option, path, value, problems)
        path = index.spellings.get(path, path)
        if path in TOP_LEVEL_KEYS:
            document = _with_entry(document, path, node)
        elif not path or (path not in index.entries and path not in index.groups):
            problems.append(_unknown(index, _place(option, path, value), path))
        elif (problem := _not_offered(document, schema, path,
                                      _place(option, path, value))) is not None:
            problems.append(problem)
        else:
            document = _apply(document, schema, path.split("."), node)
    return _without(document, ("cost", "protocol", "vocab")) if "vocab" in overrides else document


def _place(option: str, path: str, value: str) -> SourcePosition:
    """Where the key ``path`` stands in what was given."""
    return scalar_from_text(option, f"{option} ", f"{path}={value}").position_of((0, len(path)))


def _value(option: str, path: str, value: str, problems: list[Problem]) -> Node:
    """The node of a value: YAML for a mapping in braces, else a text."""
    text = scalar_from_text(option, f"{option} {path}=", value)
    if not value.lstrip().startswith("{"):
        return text
    try:
        table, wrong = parse_yaml(SourceText(option, value, has_lines=False))
    except ConfigError as errors:
        problems.extend(errors.problems)
        return Node(text.position)
    problems.extend(wrong)
    return table


def _not_offered(document: MappingNode, schema: SchemaGroup, path: str,
                 place: SourcePosition) -> Problem | None:
    """The complaint about a key of variants of which the space offers none."""
    table = document
    group = schema
    names = path.split(".")
    for at, name in enumerate(names):
        child = group.fields.get(name)
        if isinstance(child, SchemaGroup):
            table = _as_table(_unfolded(table).get(name), child, table)
            group = child
        elif child is None:
            owners = [own
                      for own, inside in group.variants.items()
                      if name == own or name in inside.fields]
            if set(owners) & set(_offered_nodes(table, group)):
                return None  # a variant's own groups are not looked into: the binder does that
            parent = ".".join(names[:at])
            help = (f"choose {format_alternatives(owners)} first, for example with `--set "
                    f"{parent}={owners[0]}`")
            return Problem(place, f"no variant of `{parent}` that the space offers has `{name}`",
                           help, code="unknown-key")
    return None


def _unknown(index: SchemaIndex, place: SourcePosition, path: str) -> Problem:
    """The complaint about a path that no schema knows."""
    known = [*index.entries, *(name for name in index.groups if name)]
    last = {name.rpartition(".")[2]: name for name in reversed(known)}
    meant = closest_match(path,
                          known) or last.get(closest_match(path.rpartition(".")[2], last) or "")
    help = index.describe_synonym(path) or (f"did you mean `{meant}`?" if meant else None)
    return Problem(place, f"unknown key `{path}`", help, code="unknown-key")


def _apply(table: MappingNode, group: SchemaGroup, rest: list[str], value: Node) -> MappingNode:
    """``table``, the mapping of ``group``, with the key ``rest`` below it given anew."""
    table = _unfolded(table)
    name = rest[0]
    below = rest[1:]
    child = group.fields.get(rest[0])
    if child is None:
        return _in_variants(table, group, rest, value)
    if isinstance(child, SchemaField):
        return _with_entry(table, name, value)
    old = expand_calls(table.get(name), child, _ignore_problem)
    if isinstance(old, ScalarNode) and old.text and child.variants and not _names(child, old):
        return table  # not legal as it is: the binder will say so
    if below:
        return _with_entry(table, name, _apply(_as_table(old, child, value), child, below, value))
    return _without_unused(_with_entry(table, name, _variant(old, child, value)), group)


def _in_variants(table: MappingNode, group: SchemaGroup, rest: list[str],
                 value: Node) -> MappingNode:
    """``table`` with ``rest``, a variant or a key of variants, given anew wherever it is offered."""
    offers = _offered_nodes(table, group)
    for name in offers:
        below = rest[1:] if rest[0] in group.variants else rest
        if name == rest[0] or (below is rest and rest[0] in group.variants[name].fields):
            inside = _as_table(offers[name], SchemaGroup(), value)
            offers[name] = _apply(inside, group.variants[name], below, value) if below else value
    return _with_variants(table, group, offers, value)


def _without_unused(table: MappingNode, group: SchemaGroup) -> MappingNode:
    """``table`` without the keys of a variant that is no longer offered beside them: they go as its others do."""
    if group.inlined_variant is None:
        return table
    node = table.get(group.inlined_variant.group)
    kinds = group.fields[group.inlined_variant.group]
    assert isinstance(kinds, SchemaGroup)
    if isinstance(node,
                  MappingNode | ScalarNode) and group.inlined_variant.variant not in _offered_nodes(
            _as_table(node, kinds, node), kinds):
        return replace(table,
                       entries=tuple(entry
                                     for entry in table
                                     if entry[0].text not in group.inlined_variant.exclusive_keys))
    return table


def _variant(old: Node | None, group: SchemaGroup, value: Node) -> Node:
    """``ffn=geglu``: another variant; keys beside the variants stay, and so do same-named keys inside."""
    if not isinstance(value, ScalarNode) or not group.variants:
        return value
    names = _names(group, value)
    table = _as_table(old, group, value)
    present = _offered_nodes(table, group)
    inside = [entry for node in present.values() if isinstance(node, MappingNode)
              for entry in unfold_dotted_keys(node, [])]
    # of several variants, what the first says
    kept = {key.text: (key, node) for key, node in reversed(inside)}
    offers: dict[str, Node | None] = {}
    for name, inner in group.variants.items():
        if name in names:
            same = tuple(entry for key, entry in reversed(kept.items()) if key in inner.fields)
            offers[name] = present[name] if name in present else MappingNode(value.position, same)
    if offers and not _is_conditional(group, value):
        return _with_variants(replace(table, entries=tuple(_non_variant_entries(table, group))),
                              group, offers, value)
    said = {name: node
            for name, node in offers.items() if isinstance(node, MappingNode) and node.entries}
    kinds = tuple((_key(name, value), node) for name, node in said.items())
    beside = (*kinds, *_non_variant_entries(table, group))
    return replace(table, entries=((_key(ONE_OF_KEY, value), value), *beside)) if beside else value


def _names(group: SchemaGroup, value: ScalarNode) -> set[str]:
    """The variants that the text ``value`` chooses among; all of them where it computes one."""
    spec = _chooser(group, value)
    return (offered_variants(spec)
            or set(group.variants if _is_conditional(group, value) else ())) & set(group.variants)


def _is_conditional(group: SchemaGroup, value: ScalarNode) -> bool:
    """True if the text ``value`` chooses by a condition, or computes a variant."""
    return any(True for _ in iter_expressions(_chooser(group, value)))


def _chooser(group: SchemaGroup, value: ScalarNode) -> Domain:
    return Binder(SchemaIndex({}, {})).bind_parameter(
        variant_field(group), value, KeyContext("", "", value.position)).domain


def _non_variant_entries(table: MappingNode, group: SchemaGroup) -> list[tuple[ScalarNode, Node]]:
    return [entry
            for entry in table
            if entry[0].text not in group.variants and entry[0].text != ONE_OF_KEY]


def _offered_nodes(table: MappingNode, group: SchemaGroup) -> dict[str, Node | None]:
    """The variants that ``table`` offers, with what is inside; the default where it says nothing."""
    inner = table.get(ONE_OF_KEY)
    entries = unfold_dotted_keys(inner if isinstance(inner, MappingNode) else table, [])
    variants: dict[str, Node | None] = {
        key.text: node for key, node in entries if key.text in group.variants}
    if isinstance(inner, ScalarNode):
        names = _names(group, inner)
        return {name: variants.get(name) for name in group.variants if name in names}
    default = group.default_variant
    return variants or ({default: None} if default else {})


def _with_variants(table: MappingNode, group: SchemaGroup, offers: Mapping[str, Node | None],
                   value: Node) -> MappingNode:
    """``table`` with ``offers`` as its variants."""
    empty = MappingNode(value.position, ())
    chooser = table.get(ONE_OF_KEY)
    entries = tuple((_key(name, value), node if node is not None else empty)
                    for name, node in offers.items())
    kept = tuple(_non_variant_entries(table, group))
    # its condition stays, and keys stand beside it
    if isinstance(chooser, ScalarNode) and _is_conditional(group, chooser):
        return replace(table, entries=((_key(ONE_OF_KEY, value), chooser), *entries, *kept))
    return replace(table,
                   entries=((_key(ONE_OF_KEY, value), MappingNode(value.position, entries)), *kept))


def _without(table: MappingNode, path: tuple[str, ...]) -> MappingNode:
    """``table`` without the key ``path``: what is given anew stands elsewhere."""
    table, (name, *below) = _unfolded(table), path
    inner = table.get(name)
    if not below:
        return replace(table, entries=tuple(entry for entry in table if entry[0].text != name))
    return _with_entry(
        table, name, _without(inner, tuple(below))) if isinstance(inner, MappingNode) else table


def _as_table(node: Node | None, group: SchemaGroup, value: Node) -> MappingNode:
    """The mapping that ``node`` is or stands for."""
    node = expand_calls(node, group, _ignore_problem)
    if isinstance(node, MappingNode):
        return node
    if isinstance(node, ScalarNode) and node.text and group.variants:
        if _is_conditional(group, node):
            return MappingNode(node.position, ((_key(ONE_OF_KEY, node), node),))
        names = _names(group, node)
        empty = MappingNode(node.position, ())
        inside = tuple((_key(name, node), empty) for name in group.variants if name in names)
        return MappingNode(node.position,
                           ((_key(ONE_OF_KEY, node), MappingNode(node.position, inside)),) if inside
                           else ())
    return MappingNode(value.position, ())


def _ignore_problem(*_: object, **__: object) -> None:
    """Nothing: what is wrong in the file the binder says."""


def _unfolded(table: MappingNode) -> MappingNode:
    """``table`` with dotted keys nested; duplicates stay and are reported when the file is bound."""
    problems: list[Problem] = []
    entries = tuple(unfold_dotted_keys(table, problems))
    return table if problems else replace(table, entries=entries)


def _key(name: str, value: Node) -> ScalarNode:
    return ScalarNode(value.position, name)


def _with_entry(table: MappingNode, name: str, value: Node) -> MappingNode:
    """``table`` with ``name`` given anew, in its old place."""
    if table.get(name) is None:
        return replace(table, entries=(*table.entries, (_key(name, value), value)))
    return replace(table,
                   entries=tuple((key, value if key.text == name else old) for key, old in table))
