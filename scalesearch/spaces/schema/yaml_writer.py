"""Write a space as YAML. The text is canonical: equal spaces have equal texts."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from scalesearch.blocks.core import join_path
from scalesearch.spaces.schema.bound_tree import GroupNode, ParameterNode
from scalesearch.spaces.schema.types import SchemaField, SchemaGroup
from scalesearch.spaces.syntax.domains import ConstantDomain, Domain, ListDomain
from scalesearch.spaces.syntax.parameters import format_constant

# a superset of the plain scalars of YAML blocks; `format_scalar` excludes the others
PLAIN_SCALAR = re.compile(r"[\w=(.\-+][^\n#:'\"{}\t]*(?<! )")
PLAIN_FLOW_SCALAR = re.compile(r"[\w.\-+]*\w")
ODD_BREAKS = "\x85\u2028\u2029\ufeff"


def format_scalar(text: str) -> str:
    """``text`` as a YAML scalar: plain if that is safe, otherwise quoted."""
    if PLAIN_SCALAR.fullmatch(text) and not text.startswith(
            ("- ", "---", "...")) and text not in ("-", "=", "<<"):
        return text if text.isprintable() else _quoted(text)
    if text.isprintable() and "'" not in text and text:
        return f"'{text}'"
    return _quoted(text)


def _quoted(text: str) -> str:
    """A double-quoted YAML scalar."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    characters = []
    for character in text:
        code = ord(character)
        if character in escapes:
            characters.append(escapes[character])
        elif character.isprintable() and character not in ODD_BREAKS:
            characters.append(character)
        else:
            characters.append(f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
                              if code < 0x10000 else f"\\U{code:08x}")
    return f'"{"".join(characters)}"'


def format_lines(mapping: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping.

    Its values are YAML texts, lists of them, or mappings.
    """
    for name, value in mapping.items():
        head = f"{indent}{format_scalar(name)}:"
        if isinstance(value, Mapping):
            yield from [head, *format_lines(value, f"{indent}  ")] if value else [f"{head} {{}}"]
        elif isinstance(value, list):
            yield from [head,
                        *(f"{indent}  - {item}" for item in value)] if value else [f"{head} []"]
        else:
            yield f"{head} {value}"


def canonical_tree(group_node: GroupNode, schema: SchemaGroup | None = None) -> dict[str, Any]:
    """The mapping of a group for ``format_lines``, with defaults.

    Keys are in the order of the schema.

    Args:
        schema: the schema of the group. If it is given, inlined keys of a variant that is not
            offered are left out, as in files.
    """
    tree: dict[str, Any] = {}
    # inlined keys that exist only with a variant that is not offered
    inactive: frozenset[str] = frozenset()
    if schema is not None and (inlined := schema.inlined_variant) is not None:
        variant_group = dict(group_node.fields)[inlined.group]
        assert isinstance(variant_group, GroupNode)
        if inlined.variant not in dict(variant_group.variants):
            inactive = inlined.exclusive_keys
    if group_node.variant_node:
        variants = dict(group_node.variants)
        names = group_node.variant_node.domain.constants
        if names is None:
            tree |= {"one of": format_scalar(str(group_node.variant_node.domain)),
                     **_changed_variant_keys(group_node)}
        else:
            tree["one of"] = {str(name): canonical_tree(variants[str(name)]) for name in names}
    for name, child in group_node.fields:
        if name in inactive:
            continue
        if isinstance(child, ParameterNode):
            tree[name] = _value(child.domain, child.field)
        elif child.variant_node and not child.fields and (
            not _changed_variant_keys(child) if child.variant_node.domain.constants is None
            else not any(inner.fields for _, inner in child.variants)
        ):
            # The variants have no keys to write.
            tree[name] = format_scalar(str(child.variant_node.domain))
        else:
            inner = schema.fields[name] if schema else None
            tree[name] = canonical_tree(child, inner if isinstance(inner, SchemaGroup) else None)
    return tree


def _changed_variant_keys(group_node: GroupNode) -> dict[str, Any]:
    """The keys of variants that differ from their defaults.

    They are written next to a condition.
    """
    changed_keys: dict[str, Any] = {}
    for name, inner in group_node.variants:
        texts = canonical_tree(inner)
        for key, child in inner.fields:
            nodes = child.parameter_nodes() if isinstance(child, GroupNode) else [child]
            if any(node.is_given and str(node.domain) != node.field.default for node in nodes):
                changed_keys.setdefault(name, {})[key] = texts[key]
    return changed_keys


def _value(domain: Domain, field: SchemaField) -> str:
    if isinstance(domain, ListDomain):
        return f"[{', '.join(map(_item, domain.values))}]"
    if field.type == "text" and isinstance(domain, ConstantDomain):
        return format_scalar(str(domain.value))
    return format_scalar(str(domain))


def _item(value: Any) -> str:
    """An item of a YAML list: plain if that is safe, otherwise quoted."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_item, value))}]"
    text = str(ConstantDomain(value))
    return text if PLAIN_FLOW_SCALAR.fullmatch(text) else _quoted(text)


def config_to_yaml(config: Mapping[str, Any], name: str = "", schema: SchemaGroup | None = None,
                   protocol: Mapping[str, Any] | None = None) -> str:
    """The text of an architecture file: a constant per key.

    Args:
        config: key to JSON value, as in a record.
        name: the name in the file.
        schema: the keys; by default the built-in ones.
        protocol: settings of the costs; see ``Space.protocol``.
    """
    if schema is None:
        from scalesearch.spaces.schema.builtin import architecture_schema

        schema = architecture_schema()
    head = {"space": format_scalar(name)} if name else {}
    cost = {"cost": {"protocol": format_protocol(protocol)}} if protocol else {}
    return "\n".join(format_lines(head | _config_tree(schema, config, "") | cost)) + "\n"


def format_protocol(protocol: Mapping[str, Any]) -> str:
    """A protocol on one line, as in space files."""
    return f"{{ {', '.join(f'{key}: {value}' for key, value in protocol.items())} }}"


def _config_tree(group: SchemaGroup, config: Mapping[str, Any], key: str) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    variant = group.variants.get(str(config.get(key)))
    if variant is not None:
        tree[str(config[key])] = _config_tree(variant, config, key)
    for name, child in group.fields.items():
        path = join_path(key, name)
        if isinstance(child, SchemaGroup):
            subtree = _config_tree(child, config, path)
            if subtree:
                tree[name] = subtree
        elif path in config:
            value = config[path]
            if isinstance(value, list):
                tree[name] = f"[{', '.join(map(_item, value))}]"
            elif child.type == "schedule" and str(value).startswith("["):
                tree[name] = str(value)
            else:
                tree[name] = format_scalar(str(value) if isinstance(value, str)
                                           else format_constant(value))
    return tree
