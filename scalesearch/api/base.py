"""Display of values of the Python API, and its argument names in messages."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from html import escape
from inspect import Parameter, signature
from io import StringIO
from numbers import Integral, Real
from os import PathLike
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, runtime_checkable
from typing import Protocol as Interface

from scalesearch.cost import Protocol
from scalesearch.errors import UserError, python_arguments
from scalesearch.library import file_errors_named, import_errors_named
from scalesearch.spaces import Space
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.spaces.syntax.diagnostics import closest_match
from scalesearch.terminal import (
    MIN_TABLE_WIDTH,
    escape_control_characters,
    open_console,
    print_text,
    to_rich_text,
)

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table



@runtime_checkable
class Row(Interface):
    """A mapping, or a row of a frame."""

    def keys(self) -> Iterable[str]:
        """Return the keys, or the names of the columns."""

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key."""


# Types of the arguments of the Python API, which have the same meaning in all functions, and their
# description. `list` also stands for other sequences of texts.
PATHS = (str, PathLike)
TEXTS = (str, list)
ARGUMENT_TYPES: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "source": ((*PATHS, list, Mapping, Space), "a file, a name, a text or a mapping of keys"),
    **dict.fromkeys(("folder", "out", "initial_model"), (PATHS, "a folder")),
    "to": (PATHS, "a file"),
    "target": ((*PATHS, Iterable), "a file, a list of lines, or a list of several of them"),
    "lines": (TEXTS, "a text, or a list of lines"),
    "text": ((*PATHS, list), "a file, or a list of lines"),
    "model": (PATHS, "a model, or its folder"),
    "report": ((Callable,), "a function"),
    "architecture": ((*PATHS, Mapping, ModelSpec), "an architecture, its file or its name"),
    "values": ((Row,), "a mapping of keys to values, such as {'encoder.depth': 6}"),
    "settings": ((Mapping,), "a mapping of keys to values, such as {'recipe.steps': 500}"),
    "budget": (TEXTS, "a condition such as 'params.total <= 10M', or a list of conditions"),
    "hold": (TEXTS, "a tolerance such as 'macs.total within 1%', or a list of tolerances"),
    "goal": ((str,), "a text such as 'max width'"),
    "keys": (TEXTS, "sizes, such as 'width, encoder.depth'"),
    "for_each": ((*TEXTS, Mapping), "a mapping of sizes to values, or names of sizes"),
    "protocol": ((str, Protocol), "the name of a protocol"),
    **dict.fromkeys(("samples", "seed", "step", "trial", "beam", "resamples", "tokens", "top_k",
                     "sentences", "threads", "opset"), ((Integral,), "a whole number")),
    **dict.fromkeys(("length_penalty", "temperature", "measure"), ((Real,), "a number")),
    **dict.fromkeys(("prompt", "format", "quantize", "init"), ((str,), "a text")),
    **dict.fromkeys(("objective", "x", "y"), ((str,), "the name of a metric or a cost")),
    "constraint": ((str,), "a condition such as 'params.total <= 2M'")}
P = ParamSpec("P")
T = TypeVar("T")
CELL_STYLE = "white-space: pre-wrap; text-align: "


def python_error_messages(**argument_names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function whose errors name arguments instead of options.

    The types of its arguments are checked by ``ARGUMENT_TYPES``.

    Args:
        argument_names: option to argument, if their names differ.
    """
    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        parameters = signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                arguments = parameters.bind(*args, **kwargs).arguments
            except TypeError as error:
                reason = str(error)
                for name in kwargs.keys() - parameters.parameters.keys():
                    if match := closest_match(name, parameters.parameters):
                        reason = f"unknown argument {name!r}; did you mean `{match}`?"
                raise TypeError(f"{function.__qualname__}(): {reason}") from None
            for name, value in arguments.items():
                if value is not None or parameters.parameters[name].default is Parameter.empty:
                    check_argument(name, value)
            with python_arguments(argument_names), import_errors_named(), file_errors_named():
                return function(*args, **kwargs)

        return call

    return decorate


def check_argument(name: str, value: Any) -> None:
    """Raise a UserError if the value of an argument does not have one of its types."""
    types, description = ARGUMENT_TYPES.get(name, ((object,), ""))
    is_accepted = isinstance(value, (*types, Displayable))
    if list in types and isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        # the items of an iterator can be read only once
        is_accepted = isinstance(value, Iterator) or all(isinstance(item, str) for item in value)
    if not is_accepted:
        raise UserError(f"{name}: expected {description}, found {value!r}", code="bad-value")


class Displayable:
    """Base class of values that are displayed as tables and lines of text."""

    def _display_parts(self) -> Iterable[Table | str]:
        """Yield tables and lines."""
        raise NotImplementedError

    def __rich__(self) -> Group:
        from rich.console import Group

        return Group(*(to_rich_text(part) if isinstance(part, str) else part
                       for part in self._display_parts()))

    def __repr__(self) -> str:
        return to_text(self._display_parts())

    def _repr_html_(self) -> str:
        return to_html(self._display_parts())


def to_text(parts: Iterable[Table | str]) -> str:
    """Render tables and lines as text of the width of the terminal."""
    output = StringIO()
    console = open_console(file=output,
                           width=shutil.get_terminal_size((MIN_TABLE_WIDTH, 24)).columns)
    for part in parts:
        print_text(part, console)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()).rstrip()


def to_html(parts: Iterable[Table | str]) -> str:
    """Render tables and lines as HTML; all content is escaped.

    Example:
        >>> to_html(["a < b"])
        '<div><div style="white-space: pre-wrap; text-align: left">a &lt; b</div></div>'
    """
    rendered = (_line(part) if isinstance(part, str) else _table(part) for part in parts)
    return f"<div>{''.join(rendered)}</div>"


def _line(text: str) -> str:
    return f'<div style="{CELL_STYLE}left">{_text(text)}</div>'


def _table(table: Table) -> str:
    sides = [column.justify for column in table.columns]
    title = (f'<caption style="{CELL_STYLE}left">{_text(table.title)}</caption>' if table.title
             else "")
    heads = "".join(f'<th style="{CELL_STYLE}{side}">{_text(column.header)}</th>'
                    for side, column in zip(sides, table.columns))
    body = ""
    for row, cells in zip(table.rows, zip(*(column.cells for column in table.columns))):
        bold = "; font-weight: bold" if row.style == "bold" else ""
        body += "<tr>" + "".join(f'<td style="{CELL_STYLE}{side}{bold}">{_text(cell)}</td>'
                                 for side, cell in zip(sides, cells)) + "</tr>"
    after = _line(str(table.caption)) if table.caption else ""
    return f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{after}"


def _text(value: Any) -> str:
    return escape(escape_control_characters(value))


def as_subclass(subclass: type[T], value: Any, **extra_fields: Any) -> T:
    """Convert a dataclass instance to a subclass, with other values of some fields."""
    values = {field.name: getattr(value, field.name) for field in fields(value)}
    return subclass(**values | extra_fields)
