"""Dataclasses as schemas: one line for each key states its type, default, bounds, unit, meaning and synonyms.

    >>> @dataclass(frozen=True)
    ... class Ray:
    ...     "Where workers run."
    ...     gpus: float = setting(0.0, "devices of one worker; a fraction shares one", low=0, synonyms=("num_gpus",))
    >>> schema_of(Ray).fields["gpus"].default
    '0.0'
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, get_args, get_type_hints

from scalesearch.files import is_valid_file_name
from scalesearch.space.schema.types import ReportNodeError, SchemaField, SchemaGroup
from scalesearch.space.syntax.nodes import Node, ScalarNode
from scalesearch.space.syntax.parameters import format_constant

REQUIRED: Any = dataclasses.MISSING
TYPE_OF_PYTHON = {bool: "flag", int: "size", float: "number", str: "text", Path: "text"}
NONE_TEXT = "none"
MAX_SEED = 2**32 - 1  # that the generators of Python, NumPy and PyTorch all take
NAME_DESCRIPTION = "a name (a text without slashes, of at most 200 bytes)"


def setting(default: Any, doc: str, *, unit: str = "", low: float | None = None,
            high: float | None = None, words: tuple[str, ...] = (), synonyms: tuple[str, ...] = (),
            deprecated: tuple[str, ...] = (),
            deprecated_words: Mapping[str, str] = MappingProxyType({}),
            read: Callable[[Node, ReportNodeError], Any] | None = None, expected: str = "",
            key: str = "", group_schema: SchemaGroup | None = None,
            items: SchemaGroup | None = None, default_text: str = "") -> Any:
    """A field of a dataclass that a file may give.

    Args:
        default: where the file gives none; ``REQUIRED`` where it must.
        read, expected: of a value that is no plain constant; see ``Field``. Without ``read`` it stays a
            node.
        key: what the file calls it, where that is no name in Python.
        group_schema: the schema of a mapping under this key.
        items: the schema of each of a list of mappings.
        default_text: the default in words, where it follows from other keys.
    """
    given = {"doc": doc, "unit": unit, "low": low, "high": high, "words": words,
             "synonyms": synonyms, "deprecated": deprecated, "deprecated_words": deprecated_words}
    extra = {"read": read, "expected": expected, "items": items} if read or items or expected else {}
    meta = {"setting": given, "extra": extra, "key": key, "group": group_schema,
            "shown": default_text}
    if isinstance(default, dict | list):
        return dataclasses.field(default_factory=default.copy, metadata=meta)
    return dataclasses.field(default=default, metadata=meta)


def read_name(node: Node, complain: ReportNodeError) -> str | None:
    """A name that becomes part of a file's or a folder's: no path, which might lead elsewhere."""
    text = node.text if isinstance(node, ScalarNode) else ""
    if text == NONE_TEXT and isinstance(node, ScalarNode) and not node.is_quoted:
        return None
    if not is_valid_file_name(text):
        complain(node,
                 f"expected {NAME_DESCRIPTION}, found `{text}`" if text
                 else f"expected {NAME_DESCRIPTION}", None)
    return text


def schema_of(settings_class: type[Any], **more: Any) -> SchemaGroup:
    """The keys of ``settings_class``, a dataclass of settings; ``more`` are further arguments of ``Group``."""
    hints = get_type_hints(settings_class)
    fields = {
        field.metadata["key"] or field.name: _child(field, hints[field.name])
        for field in dataclasses.fields(settings_class)
        if "setting" in field.metadata
    }
    doc = (settings_class.__doc__ or "").split("\n")[0]
    return SchemaGroup(fields, **{"doc": doc, "make": _named(settings_class), **more})


def _named(kind: type[Any]) -> Callable[..., Any]:
    names = {field.metadata.get("key") or field.name: field.name
             for field in dataclasses.fields(kind)}
    return lambda **values: kind(**{names[key]: value for key, value in values.items()})


def _child(field: "dataclasses.Field[Any]", hint: Any) -> SchemaField | SchemaGroup:
    meta = field.metadata
    said = meta["setting"]
    if meta["group"] is not None:
        group: SchemaGroup = meta["group"]
        more: dict[str, Any] = {"optional": group.optional or NoneType in get_args(hint)}
        more["required"] = _default(field) is None
        return dataclasses.replace(group, doc=said["doc"], synonyms=said["synonyms"],
                                   deprecated=said["deprecated"], **more)
    if meta["extra"]:
        given = {key: value for key, value in meta["extra"].items() if value}
        return SchemaField("node", **{**said, **given, "default": _default(field)})
    options = get_args(hint) or (hint,)
    plain = next(option for option in options if option is not NoneType)
    also = (NONE_TEXT,) if NoneType in options else ()
    kind = "word" if said["words"] else TYPE_OF_PYTHON[plain]
    return SchemaField(kind, **{**said, "special_values": also, "default": _default(field)})


def _default(field: "dataclasses.Field[Any]") -> str | None:
    if field.metadata["shown"]:
        return str(field.metadata["shown"])
    if field.default is dataclasses.MISSING:
        return None if field.default_factory is dataclasses.MISSING else NONE_TEXT
    return NONE_TEXT if field.default is None or field.default == () else format_constant(
        field.default)
