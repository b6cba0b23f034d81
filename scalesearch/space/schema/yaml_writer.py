"""Writes a space as YAML: canonical, so that equal spaces have equal texts, and readable."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from scalesearch.blocks.core import join_path
from scalesearch.space.schema.bound_tree import GroupNode, ParameterNode
from scalesearch.space.schema.types import SchemaField, SchemaGroup
from scalesearch.space.syntax.domains import ConstantDomain, Domain, ListDomain
from scalesearch.space.syntax.parameters import format_constant

# what YAML takes as a plain scalar in a block, and then some
PLAIN_SCALAR = re.compile(r"[\w=(.\-+][^\n#:'\"{}\t]*(?<! )")
PLAIN_FLOW_SCALAR = re.compile(r"[\w.\-+]*\w")
ODD_BREAKS = "\x85\u2028\u2029\ufeff"


def format_scalar(text: str) -> str:
    """``text`` as a YAML scalar: plain where that is safe, quoted elsewhere."""
    if PLAIN_SCALAR.fullmatch(text) and not text.startswith(
            ("- ", "---", "...")) and text not in ("-", "=", "<<"):
        return text if text.isprintable() else _quoted(text)
    if text.isprintable() and "'" not in text and text:
        return f"'{text}'"
    return _quoted(text)


def _quoted(text: str) -> str:
    """A double-quoted YAML scalar."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    known = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    if character in known:
        return known[character]
    if character.isprintable() and character not in ODD_BREAKS:
        return character
    code = ord(character)
    return (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000
            else f"\\U{code:08x}")


def format_lines(mapping: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """The lines of a mapping whose values are YAML already, lists of it (an item a line), or mappings in turn."""
    for name, value in mapping.items():
        head = f"{indent}{format_scalar(name)}:"
        if isinstance(value, Mapping):
            yield from [head, *format_lines(value, f"{indent}  ")] if value else [f"{head} {{}}"]
        elif isinstance(value, list):
            yield from [head,
                        *(f"{indent}  - {item}" for item in value)] if value else [f"{head} []"]
        else:
            yield f"{head} {value}"


def canonical_tree(branch: GroupNode, schema: SchemaGroup | None = None) -> dict[str, Any]:
    """A branch for ``lines``, in the order of the schema; defaults are written out.

    ``schema``: of the branch; keys of a variant that is not offered beside them are then left out,
    as files have it.
    """
    written: dict[str, Any] = {}
    idle = _inactive_keys(branch, schema)
    if branch.variant_node:
        inside = dict(branch.variants)
        names = branch.variant_node.domain.constants
        if names is None:
            written |= {"one of": format_scalar(str(branch.variant_node.domain)),
                        **_changed_variant_keys(branch)}
        else:
            written["one of"] = {str(name): canonical_tree(inside[str(name)]) for name in names}
    for name, child in branch.fields:
        if name in idle:
            continue
        if isinstance(child, ParameterNode):
            written[name] = _value(child.domain, child.field)
        elif child.variant_node and not child.fields and (
            not _changed_variant_keys(child) if child.variant_node.domain.constants is None
            else not any(inner.fields for _, inner in child.variants)
        ):
            # the names of variants are enough
            written[name] = format_scalar(str(child.variant_node.domain))
        else:
            inner = schema.fields[name] if schema else None
            written[name] = canonical_tree(child, inner if isinstance(inner, SchemaGroup) else None)
    return written


def _changed_variant_keys(branch: GroupNode) -> dict[str, Any]:
    """The keys of variants that say otherwise than their defaults, as they stand beside a condition."""
    keys = {name: {key: text
                   for key, text in canonical_tree(inner).items()
                   if _differs_from_default(dict(inner.fields)[key])}
            for name, inner in branch.variants}
    return {name: given for name, given in keys.items() if given}


def _differs_from_default(child: GroupNode | ParameterNode) -> bool:
    leaves = child.parameter_nodes() if isinstance(child, GroupNode) else [child]
    return any(leaf.is_given and str(leaf.domain) != leaf.field.default for leaf in leaves)


def _inactive_keys(branch: GroupNode, schema: SchemaGroup | None) -> frozenset[str]:
    """Keys that only a variant has which is not offered beside them."""
    if schema is None or schema.inlined_variant is None:
        return frozenset()
    chosen = dict(branch.fields)[schema.inlined_variant.group]
    assert isinstance(chosen, GroupNode)
    return frozenset() if schema.inlined_variant.variant in dict(
        chosen.variants) else schema.inlined_variant.exclusive_keys


def _value(spec: Domain, field: SchemaField) -> str:
    if isinstance(spec, ListDomain):
        return f"[{', '.join(map(_item, spec.values))}]"
    return format_scalar(str(spec.value if field.type == "text" and isinstance(spec, ConstantDomain)
                             else spec))


def _item(value: Any) -> str:
    """An item of a list: plain where not even a list could misread it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_item, value))}]"
    text = str(ConstantDomain(value))
    return text if PLAIN_FLOW_SCALAR.fullmatch(text) else _quoted(text)


def config_to_yaml(config: Mapping[str, Any], name: str = "", schema: SchemaGroup | None = None,
                    protocol: Mapping[str, Any] | None = None) -> str:
    """An architecture file: every answer as a constant.

    Args:
        config: key to JSON value, as in a record.
        name: what the file calls itself.
        schema: the keys; the built-in ones where none is given.
        protocol: of the costs; see ``Space.protocol``.
    """
    if schema is None:
        from scalesearch.space.schema.builtin import architecture_schema

        schema = architecture_schema()
    head = {"space": format_scalar(name)} if name else {}
    cost = {"cost": {"protocol": format_protocol(protocol)}} if protocol else {}
    return "\n".join(format_lines(head | _config_tree(schema, config, "") | cost)) + "\n"


def format_protocol(protocol: Mapping[str, Any]) -> str:
    """A protocol on one line, as spaces have it."""
    return f"{{ {', '.join(f'{key}: {value}' for key, value in protocol.items())} }}"


def _config_tree(group: SchemaGroup, answers: Mapping[str, Any], key: str) -> dict[str, Any]:
    variant = group.variants.get(str(answers.get(key)))
    written: dict[str, Any] = {
        str(answers[key]): _config_tree(variant, answers, key)} if variant is not None else {}
    for name, child in group.fields.items():
        path = join_path(key, name)
        if isinstance(child, SchemaGroup):
            written |= {name: inside} if (inside := _config_tree(child, answers, path)) else {}
        elif path in answers:
            written[name] = _constant(answers[path], child)
    return written


def _constant(value: Any, field: SchemaField) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_item, value))}]"
    if field.type == "schedule" and str(value).startswith("["):
        return str(value)
    return format_scalar(str(value) if isinstance(value, str) else format_constant(value))
