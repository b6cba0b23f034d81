"""Text of the definitions of a module, without parts that a bundle does not need."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

# Start and end offset in bytes, and the replacement.
TextEdit = tuple[int, int, bytes]
# Decorators of the space language and of type checkers, which are removed.
REGISTRATION_DECORATORS = ("register_ffn", "register_mixer", "dataclass_transform")
# Field functions of the space language, and their replacements.
FIELD_SPECIFIERS = {"option_field": b" = field(kw_only=True)"}


class ModuleSource:
    """Definitions and imports of a module.

    Attributes:
        definitions: maps a name to the statement that defines it.
        imports: maps a name to (module, name in the module, alias or None); for ``import x``,
            the first two are both ``x``.
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
                    module = str(node.module) if isinstance(node, ast.ImportFrom) else alias.name
                    bound_name = alias.asname or alias.name.split(".")[0]
                    self.imports[bound_name] = (module, alias.name, alias.asname)

    @cached_property
    def starts(self) -> list[int]:
        """Byte offset of each line."""
        offsets = [0]
        for line in self.bytes.splitlines(keepends=True):
            offsets.append(offsets[-1] + len(line))
        return offsets

    def start(self, node: ast.expr | ast.arg) -> int:
        """Return the byte offset of the start of a node."""
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.arg) -> int:
        """Return the byte offset of the end of a node."""
        return self.starts[int(node.end_lineno or 0) - 1] + int(node.end_col_offset or 0)

    def lines(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        """Return the offsets of the full lines of a node, including decorators."""
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        return self.starts[first - 1], self.starts[int(node.end_lineno or 0)]


@lru_cache(maxsize=256)
def load_module_source(name: str) -> ModuleSource:
    """Load the source of the module ``name``, once."""
    return ModuleSource(name)


def defined_names(node: ast.stmt) -> list[str]:
    """List the names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets: list[ast.expr] = []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Assign):
        targets = node.targets
    return [inner.id for target in targets for inner in ast.walk(target)
            if isinstance(inner, ast.Name)]


def names_in(node: ast.AST | None) -> set[str]:
    """Collect the names in an expression."""
    return set() if node is None else {inner.id
                                       for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def called_name(node: ast.expr | None) -> str:
    """Return the name of a called function or of a decorator, or an empty string."""
    inner = node.func if isinstance(node, ast.Call) else node
    return inner.id if isinstance(inner, ast.Name) else ""


@dataclass
class DefinitionTrimmer:
    """Copies definitions without unused methods, annotations and registrations.

    Attributes:
        used_attributes: names of attributes in the copied code; None keeps all methods.
        available_names: names that the bundled file defines; fields with annotations that need
            other names are annotated ``Any``.
    """

    source: ModuleSource
    used_attributes: set[str] | None
    available_names: set[str]

    def trim(self, node: ast.stmt) -> str:
        """Return the text of a definition after all edits."""
        first, limit = self.source.lines(node)
        text = self.source.bytes[first:limit]
        for start, end, replacement in sorted(self._edits(node), reverse=True):
            if end <= limit:  # else the edit is inside a part that has been replaced already
                text = text[: start - first] + replacement + text[end - first :]
                limit = start
        return text.decode().rstrip() + "\n"

    def _edits(self, node: ast.stmt) -> Iterator[TextEdit]:
        if not isinstance(node, ast.ClassDef):
            yield from self._code_edits(node)
            return
        for decorator in node.decorator_list:
            if called_name(decorator) in REGISTRATION_DECORATORS:
                yield (*self.source.lines(decorator), b"")
        for part in node.body:
            if isinstance(part, ast.AnnAssign):
                yield from self._field_edits(part)
            elif isinstance(part, ast.FunctionDef) and not self._is_kept(part.name):
                yield (*self.source.lines(part), b"")
            else:
                yield from self._code_edits(part)

    def _is_kept(self, name: str) -> bool:
        return self.used_attributes is None or name.startswith("__") or name in self.used_attributes

    def _field_edits(self, node: ast.AnnAssign) -> Iterator[TextEdit]:
        names = names_in(node.annotation)
        source = self.source
        if "ClassVar" in names and not self._is_kept(*defined_names(node)):
            yield (*source.lines(node), b"")
        if any(name not in self.available_names
               and (name in source.definitions or name in source.imports) for name in names):
            yield source.start(node.annotation), source.end(node.annotation), b"Any"
        if node.value is not None and called_name(node.value) in FIELD_SPECIFIERS:
            yield source.end(node.annotation), source.end(node.value), FIELD_SPECIFIERS[
                called_name(node.value)]

    def _code_edits(self, node: ast.stmt) -> Iterator[TextEdit]:
        """Remove annotations, and imports of torch, which the file imports at the top."""
        source = self.source
        for decorator in getattr(node, "decorator_list", []):
            if called_name(decorator) in REGISTRATION_DECORATORS:
                yield (*source.lines(decorator), b"")
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef):
                if inner.returns is not None:
                    yield source.bytes.rindex(
                        b" ->", 0, source.start(inner.returns)), source.end(inner.returns), b""
                yield from self._argument_edits(inner.args)
            elif isinstance(inner, ast.AnnAssign) and inner.value is not None:
                yield source.end(inner.target), source.end(inner.annotation), b""
            elif isinstance(inner, ast.Import) and inner.names[0].name == "torch":
                first, end = source.lines(inner)
                yield first, end + (source.bytes[end : end + 1] == b"\n"), b""

    def _argument_edits(self, arguments: ast.arguments) -> Iterator[TextEdit]:
        positional = [*arguments.posonlyargs, *arguments.args]
        n_required = len(positional) - len(arguments.defaults)
        variadic = [arg for arg in (arguments.vararg, arguments.kwarg) if arg is not None]
        defaults = [*[None] * n_required, *arguments.defaults, *arguments.kw_defaults,
                    *[None] * len(variadic)]
        for arg, default in zip([*positional, *arguments.kwonlyargs, *variadic], defaults):
            if arg.annotation is not None:
                name_end = self.source.start(arg) + len(arg.arg.encode())
                yield (name_end, self.source.end(arg), b"") if default is None else (
                    name_end, self.source.start(default), b"=")
