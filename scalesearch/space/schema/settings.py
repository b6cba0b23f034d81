"""Dataclasses as schemas: one line per key with type, default, bounds, unit, doc and synonyms.

    >>> @dataclass(frozen=True)
    ... class Ray:
    ...     "Where workers run."
    ...     gpus: float = setting(0.0, "devices of one worker; a fraction shares one", low=0,
    ...                           synonyms=("num_gpus",))
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
MAX_SEED = 2**32 - 1  # limit of the generators of NumPy; those of Python and PyTorch accept more
NAME_DESCRIPTION = "a name (a text without slashes, of at most 200 bytes)"


def setting(default: Any, doc: str, *, unit: str = "", low: float | None = None,
            high: float | None = None, words: tuple[str, ...] = (), synonyms: tuple[str, ...] = (),
            deprecated: tuple[str, ...] = (),
            deprecated_words: Mapping[str, str] = MappingProxyType({}),
            read: Callable[[Node, ReportNodeError], Any] | None = None, expected: str = "",
            key: str = "", group_schema: SchemaGroup | None = None,
            items: SchemaGroup | None = None, default_text: str = "") -> Any:
    """A field of a dataclass that a file may set.

    Args:
        default: the value if the file does not set it; ``REQUIRED`` if it must.
        deprecated, deprecated_words: earlier names of the key, and earlier values to present ones;
            see ``SchemaField``.
        read, expected: for values that are not constants; see ``SchemaField``. Without ``read`` the
            value is a node.
        key: the name in files, if it is not a legal name in Python.
        group_schema: the schema of a mapping under this key.
        items: the schema of the mappings in a list under this key.
        default_text: the default in words, if it depends on other keys.
    """
    setting_arguments = {"doc": doc, "unit": unit, "low": low, "high": high, "words": words,
             "synonyms": synonyms, "deprecated": deprecated, "deprecated_words": deprecated_words}
    extra = {}
    if read or items or expected:
        extra = {"read": read, "expected": expected, "items": items}
    meta = {"setting": setting_arguments, "extra": extra, "key": key, "group": group_schema,
            "shown": default_text}
    if isinstance(default, dict | list):
        return dataclasses.field(default_factory=default.copy, metadata=meta)
    return dataclasses.field(default=default, metadata=meta)


def read_name(node: Node, report_error: ReportNodeError) -> str | None:
    """Read a name that becomes part of a file or folder name; a path is an error."""
    text = node.text if isinstance(node, ScalarNode) else ""
    if text == NONE_TEXT and isinstance(node, ScalarNode) and not node.is_quoted:
        return None
    if not is_valid_file_name(text):
        message = f"expected {NAME_DESCRIPTION}"
        report_error(node, f"{message}, found `{text}`" if text else message, None)
    return text


def schema_of(settings_class: type[Any], **more: Any) -> SchemaGroup:
    """The keys of a dataclass of settings; ``more`` are further arguments of ``SchemaGroup``."""
    hints = get_type_hints(settings_class)
    fields = {
        field.metadata["key"] or field.name: _child(field, hints[field.name])
        for field in dataclasses.fields(settings_class)
        if "setting" in field.metadata
    }
    doc = (settings_class.__doc__ or "").split("\n")[0]
    return SchemaGroup(fields, **{"doc": doc, "make": _constructor(settings_class), **more})


def _constructor(settings_class: type[Any]) -> Callable[..., Any]:
    """``settings_class`` with keyword arguments named as in a file."""
    names = {field.metadata.get("key") or field.name: field.name
             for field in dataclasses.fields(settings_class)}
    return lambda **values: settings_class(**{names[key]: value for key, value in values.items()})


def _child(field: "dataclasses.Field[Any]", hint: Any) -> SchemaField | SchemaGroup:
    meta = field.metadata
    arguments = meta["setting"]
    if meta["group"] is not None:
        group: SchemaGroup = meta["group"]
        more: dict[str, Any] = {"optional": group.optional or NoneType in get_args(hint)}
        more["required"] = _default(field) is None
        return dataclasses.replace(group, doc=arguments["doc"],
                                   synonyms=arguments["synonyms"],
                                   deprecated=arguments["deprecated"], **more)
    if meta["extra"]:
        extra = {key: value for key, value in meta["extra"].items() if value}
        return SchemaField("node", **{**arguments, **extra, "default": _default(field)})
    options = get_args(hint) or (hint,)
    python_type = next(option for option in options if option is not NoneType)
    special_values = (NONE_TEXT,) if NoneType in options else ()
    field_type = "word" if arguments["words"] else TYPE_OF_PYTHON[python_type]
    return SchemaField(field_type, **{**arguments, "special_values": special_values,
                                      "default": _default(field)})


def _default(field: "dataclasses.Field[Any]") -> str | None:
    if field.metadata["shown"]:
        return str(field.metadata["shown"])
    if field.default is dataclasses.MISSING:
        return None if field.default_factory is dataclasses.MISSING else NONE_TEXT
    if field.default is None or field.default == ():
        return NONE_TEXT
    return format_constant(field.default)
