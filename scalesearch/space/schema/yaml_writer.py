"""Writes a space as YAML: canonical, so that equal spaces have equal texts, and readable."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from scalesearch.space.schema.bound_tree import Branch, Leaf, join
from scalesearch.space.schema.types import Field, Group
from scalesearch.space.syntax.choices import Alternatives
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


def tree_lines(branch: Branch, indent: str = "") -> Iterator[str]:
    """The lines of a branch, in the order of the schema; defaults are written out."""
    if branch.chooser and not simple_chooser(branch):
        yield f"{indent}one of: {scalar(str(branch.chooser.spec))}"
    elif branch.chooser:
        yield f"{indent}one of:"
        for name, inner in _offers(branch):
            yield from _group_lines(name, list(tree_lines(inner, f"{indent}    ")), f"{indent}  ")
    for name, child in branch.fields:
        if isinstance(child, Leaf):
            yield f"{indent}{name}: {_value(child.spec, child.field)}"
        elif child.chooser and not child.fields and (not simple_chooser(child) or _bare(child)):
            yield f"{indent}{name}: {scalar(str(child.chooser.spec))}"
        else:
            yield from _group_lines(name, list(tree_lines(child, f"{indent}  ")), indent)


def _offers(branch: Branch) -> list[tuple[str, Branch]]:
    """The variants in the order in which they are asked."""
    spec = branch.chooser.spec if branch.chooser else None
    names = [str(option) for option in (spec.options if isinstance(spec, Alternatives) else (spec,))]
    return sorted(branch.variants, key=lambda variant: names.index(variant[0]))


def simple_chooser(branch: Branch) -> bool:
    """True if the variant is chosen among names, not computed or conditional."""
    spec = branch.chooser.spec if branch.chooser else None
    return isinstance(spec, Literal) or (
        isinstance(spec, Alternatives) and all(isinstance(option, Literal) for option in spec.options)
    )


def _bare(branch: Branch) -> bool:
    """True if only the names of variants have to be written."""
    return not any(inner.fields for _, inner in branch.variants)


def _group_lines(name: str, inside: list[str], indent: str) -> list[str]:
    return [f"{indent}{name}:", *inside] if inside else [f"{indent}{name}: {{}}"]


def _value(spec: Spec, field: Field) -> str:
    if isinstance(spec, Items):
        return f"[{', '.join(_item(value) for value in spec.values)}]"
    if field.kind == "text" and isinstance(spec, Literal):
        return scalar(str(spec.value))
    return scalar(str(spec))


def _item(value: Any) -> str:
    """An item of a list: plain where not even a list could misread it."""
    text = str(Literal(value))
    return text if FLOW_SAFE.fullmatch(text) else _quoted(text)


def answers_to_yaml(answers: Mapping[str, Any], name: str = "", schema: Group | None = None) -> str:
    """An architecture file: every answer as a constant.

    Args:
        answers: key to JSON value, as in a record.
        name: what the file calls itself.
        schema: the keys; the built-in ones where none is given.
    """
    if schema is None:
        from scalesearch.space.schema.builtin import architecture_schema

        schema = architecture_schema()
    lines = [f"space: {scalar(name)}"] if name else []
    return "\n".join([*lines, *_answer_lines(schema, answers, "", "")]) + "\n"


def _answer_lines(group: Group, answers: Mapping[str, Any], key: str, indent: str) -> Iterator[str]:
    variant = group.variants.get(str(answers.get(key)))
    if variant is not None:
        inside = list(_answer_lines(variant, answers, key, f"{indent}  "))
        yield from _group_lines(str(answers[key]), inside, indent)
    for name, child in group.fields.items():
        path = join(key, name)
        if isinstance(child, Field):
            if path in answers:
                yield f"{indent}{name}: {_constant(answers[path], child)}"
        elif inside := list(_answer_lines(child, answers, path, f"{indent}  ")):
            yield from _group_lines(name, inside, indent)


def _constant(value: Any, field: Field) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_item(item) for item in value)}]"
    if field.kind == "schedule" and str(value).startswith("["):
        return str(value)
    return scalar(str(value) if isinstance(value, str) else say(value))
