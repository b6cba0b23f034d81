"""Definitions of a module as text, less what a single file of a model has no use of."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

# offsets in bytes, and what comes in place of what is between them
TextEdit = tuple[int, int, bytes]
# decorators for the space language and for type checkers
REGISTRATION_DECORATORS = ("register_ffn", "register_mixer", "dataclass_transform")
# likewise fields, and what they are without it
FIELD_SPECIFIERS = {"option_field": b" = field(kw_only=True)"}


class ModuleSource:
    """A module: what it defines and imports.

    Attributes:
        definitions: name to the statement that defines it.
        imports: name to (module, name there, other name or None); of ``import x`` the first two are
            one.
    """

    def __init__(self, name: str) -> None:
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None, name
        self.bytes = Path(spec.origin).read_bytes()
        self.tree = ast.parse(self.bytes)
        self.definitions: dict[str, ast.stmt] = {}
        self.imports: dict[str, tuple[str, str, str | None]] = {}
        for node in self.tree.body:
            self.definitions |= dict.fromkeys(defined_names(node), node)
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    place = str(node.module) if isinstance(node, ast.ImportFrom) else alias.name
                    known = alias.asname or alias.name.split(".")[0]
                    self.imports[known] = (place, alias.name, alias.asname)

    @cached_property
    def starts(self) -> list[int]:
        """The offset of each line."""
        offsets = [0]
        for line in self.bytes.splitlines(keepends=True):
            offsets.append(offsets[-1] + len(line))
        return offsets

    def start(self, node: ast.expr | ast.arg) -> int:
        """The offset of a node."""
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.arg) -> int:
        """The offset behind a node."""
        return self.starts[int(node.end_lineno or 0) - 1] + int(node.end_col_offset or 0)

    def lines(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        """Offsets of a node's whole lines, decorators included."""
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        return self.starts[first - 1], self.starts[int(node.end_lineno or 0)]


@lru_cache(maxsize=256)
def load_module_source(name: str) -> ModuleSource:
    """The module ``name``, read once."""
    return ModuleSource(name)


def defined_names(node: ast.stmt) -> list[str]:
    """Names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets if isinstance(
        node, ast.Assign) else []
    return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]


def names_in(node: ast.AST | None) -> set[str]:
    """Names that stand in an expression."""
    return set() if node is None else {inner.id
                                       for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def called_name(node: ast.expr | None) -> str:
    """The name of what is called."""
    inner = node.func if isinstance(node, ast.Call) else node
    return inner.id if isinstance(inner, ast.Name) else ""


@dataclass
class DefinitionTrimmer:
    """Copies definitions without methods that nothing names, and without what serves readers of other files alone.

    Attributes:
        used_attributes: names that stand behind a dot somewhere; None keeps all methods.
        available_names: names that the file defines; a field whose annotation needs others is
            ``Any``.
    """

    source: ModuleSource
    used_attributes: set[str] | None
    available_names: set[str]

    def trim(self, node: ast.stmt) -> str:
        """The text of a definition."""
        first, limit = self.source.lines(node)
        text = self.source.bytes[first:limit]
        for start, end, instead in sorted(self._edits(node), reverse=True):
            if end <= limit:  # else it lies within what has gone already
                text = text[: start - first] + instead + text[end - first :]
                limit = start
        return text.decode().rstrip() + "\n"

    def _edits(self, node: ast.stmt) -> Iterator[TextEdit]:
        if not isinstance(node, ast.ClassDef):
            yield from self._of_code(node)
            return
        for one in node.decorator_list:
            if called_name(one) in REGISTRATION_DECORATORS:
                yield (*self.source.lines(one), b"")
        for part in node.body:
            if isinstance(part, ast.AnnAssign):
                yield from self._of_field(part)
            elif isinstance(part, ast.FunctionDef) and not self._kept(part.name):
                yield (*self.source.lines(part), b"")
            else:
                yield from self._of_code(part)

    def _kept(self, name: str) -> bool:
        return self.used_attributes is None or name.startswith("__") or name in self.used_attributes

    def _of_field(self, node: ast.AnnAssign) -> Iterator[TextEdit]:
        names = names_in(node.annotation)
        source = self.source
        if "ClassVar" in names and not self._kept(*defined_names(node)):
            yield (*source.lines(node), b"")
        if any(name not in self.available_names
               and (name in source.definitions or name in source.imports) for name in names):
            yield source.start(node.annotation), source.end(node.annotation), b"Any"
        if node.value is not None and called_name(node.value) in FIELD_SPECIFIERS:
            yield source.end(node.annotation), source.end(node.value), FIELD_SPECIFIERS[
                called_name(node.value)]

    def _of_code(self, node: ast.stmt) -> Iterator[TextEdit]:
        """Annotations go, and imports of what the file imports as a whole."""
        source = self.source
        for one in getattr(node, "decorator_list", []):
            if called_name(one) in REGISTRATION_DECORATORS:
                yield (*source.lines(one), b"")
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef):
                if inner.returns is not None:
                    yield source.bytes.rindex(
                        b" ->", 0, source.start(inner.returns)), source.end(inner.returns), b""
                yield from self._of_arguments(inner.args)
            elif isinstance(inner, ast.AnnAssign) and inner.value is not None:
                yield source.end(inner.target), source.end(inner.annotation), b""
            elif isinstance(inner, ast.Import) and inner.names[0].name == "torch":
                first, end = source.lines(inner)
                yield first, end + (source.bytes[end : end + 1] == b"\n"), b""

    def _of_arguments(self, arguments: ast.arguments) -> Iterator[TextEdit]:
        plain = [*arguments.posonlyargs, *arguments.args]
        defaults = [*[None] * (len(plain) - len(arguments.defaults)), *arguments.defaults,
                    *arguments.kw_defaults]
        rest = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
        for one, default in zip([*plain, *arguments.kwonlyargs, *rest],
                                [*defaults, *[None] * len(rest)]):
            if one.annotation is not None:
                name = self.source.start(one) + len(one.arg.encode())
                yield (name, self.source.end(one), b"") if default is None else (
                    name, self.source.start(default), b"=")
