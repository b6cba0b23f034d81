"""The space language in Python.

Each function returns the text or mapping of a file.

Example::

    Space.from_python({"width": Range(256, 512, step=64), "norm": OneOf("post", "pre"),
                       "encoder": {"depth": Range(2, 12)}})
"""

from collections.abc import Mapping
from typing import Any

from scalesearch.errors import UserError
from scalesearch.spaces.schema.yaml_writer import format_lines, format_scalar
from scalesearch.spaces.syntax.parameters import format_constant


def Range(low: float, high: float, step: float | None = None, log: bool = False) -> str:
    """A number from ``low`` to ``high``, inclusive."""
    return f"{format_constant(low)}..{format_constant(high)}" + (
        f" step {format_constant(step)}" if step is not None else "") + " log" * log


def OneOf(*options: Any) -> str:
    """One of several constants, ranges or calls."""
    return " | ".join(map(format_value, options))


def Variants(variants: Mapping[str, Mapping[str, Any]] | None = None, /,
             **more: Mapping[str, Any]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """One of several variants: ``Variants(relu={"hidden": "= 4 * width"}, none={})``."""
    return {"one of": {**(variants or {}), **more}}


def Computed(expression: str) -> str:
    """The value of an expression over other keys."""
    return f"= {expression}"


def When(condition: str, then: object, otherwise: object) -> str:
    """``then`` if ``condition`` holds, else ``otherwise``."""
    return f"{format_value(then)} if {condition} else {format_value(otherwise)}"


def format_value(value: object) -> str:
    """The text of ``value`` in the language.

    Raises UserError for a type without a text.
    """
    value = python_number(value)
    if isinstance(value, bool | int | float):
        return format_constant(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_value, value))}]"
    if isinstance(value, str):
        return value
    raise UserError(f"{value!r} cannot be written in a space file; use a number, a text, Range, "
                    "OneOf, Variants, Computed or When", code="not-serializable")


def python_number(value: Any) -> Any:
    """Return the Python number of a NumPy scalar; other values unchanged."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def to_yaml(values: Mapping[str, Any]) -> str:
    """The text of the space file of nested mappings of texts and constants."""
    return "\n".join(format_lines(_format_values(values))) + "\n"


def _format_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` with each value as YAML."""
    texts: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            texts[str(key)] = _format_values(value)
        elif isinstance(value, list | tuple):
            items = [format_scalar(format_value(item)) for item in value]
            texts[str(key)] = items if key == "where" else f"[{', '.join(items)}]"
        else:
            texts[str(key)] = format_scalar(format_value(value))
    return texts
