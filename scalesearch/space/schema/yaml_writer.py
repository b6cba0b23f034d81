"""Writes a space as YAML: canonical, so that equal spaces have equal texts, and readable."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from scalesearch.blocks.core import join_path
from scalesearch.space.schema.bound_tree import Branch, Leaf
from scalesearch.space.schema.types import Field, Group
from scalesearch.space.syntax.domains import Items, Literal, Spec
from scalesearch.space.syntax.parameters import say

SAFE = re.compile(r"[\w=(.\-+][^\n#:'\"{}\t]*(?<! )")  # what YAML takes as a plain scalar in a block, and then some
FLOW_SAFE = re.compile(r"[\w.\-+]*\w")
ODD_BREAKS = "\x85\u2028\u2029\ufeff"


def scalar(text: str) -> str:
    """``text`` as a YAML scalar: plain where that is safe, quoted elsewhere."""
    if SAFE.fullmatch(text) and not text.startswith(("- ", "---", "...")) and text not in ("-", "=", "<<"):
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
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def lines(mapping: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """The lines of a mapping whose values are YAML already, lists of it (an item a line), or mappings in turn."""
    for name, value in mapping.items():
        head = f"{indent}{scalar(name)}:"
        if isinstance(value, Mapping):
            yield from [head, *lines(value, f"{indent}  ")] if value else [f"{head} {{}}"]
        elif isinstance(value, list):
            yield from [head, *(f"{indent}  - {item}" for item in value)] if value else [f"{head} []"]
        else:
            yield f"{head} {value}"


def tree(branch: Branch, schema: Group | None = None) -> dict[str, Any]:
    """A branch for ``lines``, in the order of the schema; defaults are written out.

    ``schema``: of the branch; keys of a variant that is not offered beside them are then left out, as files have it.
    """
    written: dict[str, Any] = {}
    idle = _idle(branch, schema)
    if branch.chooser:
        inside = dict(branch.variants)
        names = branch.chooser.spec.constants
        if names is None:
            written |= {"one of": scalar(str(branch.chooser.spec)), **_given(branch)}
        else:
            written["one of"] = {str(name): tree(inside[str(name)]) for name in names}
    for name, child in branch.fields:
        if name in idle:
            continue
        if isinstance(child, Leaf):
            written[name] = _value(child.spec, child.field)
        elif child.chooser and not child.fields and (
            not _given(child) if child.chooser.spec.constants is None
            else not any(inner.fields for _, inner in child.variants)
        ):
            written[name] = scalar(str(child.chooser.spec))  # the names of variants are enough
        else:
            inner = schema.fields[name] if schema else None
            written[name] = tree(child, inner if isinstance(inner, Group) else None)
    return written


def _given(branch: Branch) -> dict[str, Any]:
    """The keys of variants that say otherwise than their defaults, as they stand beside a condition."""
    keys = {name: {key: text for key, text in tree(inner).items() if _said(dict(inner.fields)[key])}
            for name, inner in branch.variants}
    return {name: given for name, given in keys.items() if given}


def _said(child: Branch | Leaf) -> bool:
    leaves = child.leaves() if isinstance(child, Branch) else [child]
    return any(leaf.given and str(leaf.spec) != leaf.field.default for leaf in leaves)


def _idle(branch: Branch, schema: Group | None) -> frozenset[str]:
    """Keys that only a variant has which is not offered beside them."""
    if schema is None or schema.beside is None:
        return frozenset()
    chosen = dict(branch.fields)[schema.beside.group]
    assert isinstance(chosen, Branch)
    return frozenset() if schema.beside.variant in dict(chosen.variants) else schema.beside.alone


def _value(spec: Spec, field: Field) -> str:
    if isinstance(spec, Items):
        return f"[{', '.join(map(_item, spec.values))}]"
    return scalar(str(spec.value if field.kind == "text" and isinstance(spec, Literal) else spec))


def _item(value: Any) -> str:
    """An item of a list: plain where not even a list could misread it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_item, value))}]"
    text = str(Literal(value))
    return text if FLOW_SAFE.fullmatch(text) else _quoted(text)


def answers_to_yaml(answers: Mapping[str, Any], name: str = "", schema: Group | None = None,
                    protocol: Mapping[str, Any] | None = None) -> str:
    """An architecture file: every answer as a constant.

    Args:
        answers: key to JSON value, as in a record.
        name: what the file calls itself.
        schema: the keys; the built-in ones where none is given.
        protocol: of the costs; see ``Space.protocol``.
    """
    if schema is None:
        from scalesearch.space.schema.builtin import architecture_schema

        schema = architecture_schema()
    head = {"space": scalar(name)} if name else {}
    cost = {"cost": {"protocol": flow(protocol)}} if protocol else {}
    return "\n".join(lines(head | _answered(schema, answers, "") | cost)) + "\n"


def flow(protocol: Mapping[str, Any]) -> str:
    """A protocol on one line, as spaces have it."""
    return f"{{ {', '.join(f'{key}: {value}' for key, value in protocol.items())} }}"


def _answered(group: Group, answers: Mapping[str, Any], key: str) -> dict[str, Any]:
    variant = group.variants.get(str(answers.get(key)))
    written: dict[str, Any] = {str(answers[key]): _answered(variant, answers, key)} if variant is not None else {}
    for name, child in group.fields.items():
        path = join_path(key, name)
        if isinstance(child, Group):
            written |= {name: inside} if (inside := _answered(child, answers, path)) else {}
        elif path in answers:
            written[name] = _constant(answers[path], child)
    return written


def _constant(value: Any, field: Field) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_item, value))}]"
    if field.kind == "schedule" and str(value).startswith("["):
        return str(value)
    return scalar(str(value) if isinstance(value, str) else say(value))
