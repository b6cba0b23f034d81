"""Rename modules, classes, functions, attributes and parameters of the package, by a mapping that is data.

Usage::

    python tools/rename.py tools/renames/samplers.tsv [--guesses FILE]

A row is ``type<TAB>old<TAB>new``, with the names of the tree before the run. Types: ``module``, ``class``, ``func``
(also constants and type aliases), ``attr`` (``package.module.Class.name``), ``param``
(``package.module.function.name``). Rows of other types (``key``, ``log``, ``cli``) are for people.

LibCST resolves names and rewrites the files. mypy finds the class of each attribute and the callee of each keyword
argument. If a type is unknown, an attribute is renamed only if its new name is unique nearby; these guesses are listed,
as are new names that clash with existing ones. Text that holds a name (keys of dictionaries, ``getattr`` of a variable)
is not changed. Needs ``pip install libcst``.
"""

import argparse
import ast
import builtins
import collections
import inspect
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import libcst as cst
from libcst import matchers
from libcst.metadata import MetadataWrapper, PositionProvider, QualifiedNameProvider, QualifiedNameSource
from mypy import build
from mypy.main import process_options
from mypy.nodes import CallExpr, MemberExpr, MypyFile, NameExpr, Node, RefExpr, TypeInfo, Var
from mypy.types import (
    AnyType,
    CallableType,
    Instance,
    Overloaded,
    TupleType,
    Type,
    TypeType,
    UnionType,
    get_proper_type,
)

ROOT = Path(__file__).parents[1]
PACKAGE = "scalesearch"
FOLDERS = ("scalesearch", "tests", "benchmarks", "tools", "integrations")
ROW_TYPES = ("module", "class", "func", "attr", "param")
TEXT_SUFFIXES = (".py", ".md", ".toml", ".yaml", ".yml", ".cfg", ".ipynb", ".rst", "")
PART_OWNER = "m"  # name of the module that holds the parts of a block; its attributes are named by text
ROLE = re.compile(r"(:(?:class|func|meth|attr|data|obj|exc):`[~!]?)([\w.]+)(`)")
Span = tuple[int, int]  # line and column where an expression ends
Rows = dict[str, dict[str, str]]  # row type to old name to new name

CLASHES: set[str] = set()
GUESSES: list[str] = []
UNRESOLVED: dict[str, list[str]] = {}


def read_rows(paths: list[Path]) -> Rows:
    """Rows of the mapping files."""
    rows: Rows = defaultdict(dict)
    for path in paths:
        for line in path.read_text().splitlines():
            cells = [cell.strip() for cell in line.partition("#")[0].split("\t") if cell.strip()]
            if len(cells) >= 3 and cells[0] in ROW_TYPES:
                rows[cells[0]][cells[1]] = cells[2]
    return rows


def python_files() -> Iterator[Path]:
    """Files to rewrite."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path != Path(__file__).resolve():
                yield path


def module_of(path: Path) -> str:
    """Dotted name of a file."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def source_of(node: ast.ImportFrom | cst.ImportFrom, module: str, is_package: bool) -> str:
    """Dotted name of the module that a ``from`` import reads."""
    if isinstance(node, ast.ImportFrom):
        source = node.module or ""
        level = node.level
    else:
        source = dotted(node.module) if node.module else ""
        level = len(node.relative)
    if not level:
        return source
    package = (module if is_package else module.rpartition(".")[0]).split(".")
    return ".".join([*package[:len(package) - level + 1], source])


def dotted(node: cst.BaseExpression) -> str:
    """Text of a dotted name."""
    if isinstance(node, cst.Attribute):
        return f"{dotted(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""


# -- types from mypy


class Expressions:
    """Attribute accesses and calls of a file, by the end of their text."""

    def __init__(self, tree: MypyFile) -> None:
        self.members: dict[Span, MemberExpr] = {}
        self.calls: dict[Span, CallExpr] = {}
        visited: set[int] = set()
        stack: list[object] = list(tree.defs)
        while stack:
            node = stack.pop()
            if isinstance(node, list | tuple):
                stack.extend(node)
                continue
            if not isinstance(node, Node) or isinstance(node, TypeInfo | Var) or id(node) in visited:
                continue
            visited.add(id(node))
            end = (node.end_line or 0, node.end_column or 0)
            if isinstance(node, MemberExpr):
                self.members[end] = node
            elif isinstance(node, CallExpr):
                self.calls[end] = node
            stack += [getattr(node, name, None) for name in child_names(type(node))]


@cache
def child_names(node_class: type) -> tuple[str, ...]:
    """Attributes of a compiled class of mypy's nodes, without those that lead out of the syntax tree."""
    names: dict[str, None] = {}
    for base in node_class.__mro__:
        names.update(dict.fromkeys(getattr(base, "__mypyc_attrs__", ())))
    leads_out = ("node", "info", "type", "unanalyzed_type", "var", "def_var", "definition")
    return tuple(name for name in names if not name.startswith("__") and name not in leads_out)


def classes_of(value_type: Type | None) -> list[TypeInfo] | None:
    """Classes that a value of a type may have; None if the type is not known."""
    if value_type is None:
        return None
    proper = get_proper_type(value_type)
    match proper:
        case AnyType():
            return None
        case Instance() if proper.type.fullname == "builtins.type" and proper.args:
            return classes_of(proper.args[0])
        case Instance():
            return [proper.type]
        case UnionType():
            parts = [classes_of(item) for item in proper.items]
            return [info for part in parts if part for info in part] or None
        case TypeType():
            return classes_of(proper.item)
        case CallableType():
            return classes_of(proper.ret_type) if proper.is_type_obj() else []
        case Overloaded():
            return classes_of(proper.items[0])
        case TupleType():
            return [proper.partial_fallback.type]
    return classes_of(proper.upper_bound) if hasattr(proper, "upper_bound") else []


def foreign_names() -> set[str]:
    """Attributes of other libraries' objects, to which an attribute of unknown type may belong."""
    import click
    import numpy as np
    import optuna
    import pandas as pd
    import torch

    owners = [str, bytes, dict, list, set, tuple, int, float, Path, argparse.Namespace, click.Context, click.Parameter,
              click.Option, click.Command, click.Group, np.ndarray, np.generic, np.random.Generator, pd.DataFrame,
              pd.Series, torch.Tensor, torch.nn.Module, torch.optim.Optimizer, torch.device, torch.Generator,
              optuna.Study, optuna.trial.FrozenTrial, optuna.trial.Trial, optuna.storages.BaseStorage,
              optuna.samplers.BaseSampler, optuna.distributions.IntDistribution,
              optuna.distributions.CategoricalDistribution, re.Match, collections.Counter, ast.AST, inspect.Signature,
              inspect.Parameter, subprocess.CompletedProcess, subprocess.Popen, builtins, np, torch, pd, optuna]
    names = {name for owner in owners for name in dir(owner)}
    return names | {name for owner in owners for name in getattr(owner, "__annotations__", {})}


class Types:
    """The class behind an attribute, and the function behind a call."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.foreign = foreign_names()
        files = [str(path.relative_to(ROOT)) for path in python_files()]
        sources, options = process_options([
            "--no-incremental", "--no-site-packages", "--ignore-missing-imports", "--check-untyped-defs",
            "--explicit-package-bases", "--no-error-summary", "--config-file=", *files])
        options.export_types = True
        options.preserve_asts = True
        options.incremental = False
        result = build.build(sources, options)
        self.types = result.types
        self.expressions: dict[str, Expressions] = {}
        self.classes: dict[str, TypeInfo] = {}
        self.owners: dict[str, set[str]] = defaultdict(set)  # attribute to the classes of the package that define it
        for state in result.graph.values():
            if state.tree is None or not state.path or state.id.split(".")[0] not in FOLDERS:
                continue
            self.expressions[str(Path(state.path).resolve())] = Expressions(state.tree)
            for symbol in state.tree.names.values():
                if isinstance(symbol.node, TypeInfo) and symbol.node.module_name == state.id:
                    self.classes[symbol.node.fullname] = symbol.node
                    for name in symbol.node.names if state.id.startswith(PACKAGE) else ():
                        self.owners[name].add(symbol.node.fullname)

    def attribute_of(self, info: TypeInfo, name: str) -> str | None:
        """New name of a class's attribute."""
        news = (self.rows["attr"].get(f"{base.fullname}.{name}") for base in info.mro)
        return next(filter(None, news), None)

    def guess(self, name: str, path: str, is_keyword: bool = False) -> str | None:
        """New name of an attribute of an object of unknown type, if no other class nearby has such an attribute."""
        if name in self.foreign:
            return None
        mapped = {old.rpartition(".")[0]: new for old, new in self.rows["attr"].items()
                  if old.rpartition(".")[2] == name}
        if not mapped:
            return None
        packages = {owner.split(".")[1] for owner in mapped}
        folder, subfolder = Path(path).relative_to(ROOT).parts[:2]
        is_near = folder in ("scalesearch", "tests") and subfolder in packages and not is_keyword
        competitors = {owner for owner in self.owners[name] if not is_near or owner.split(".")[1] in packages}
        is_unique = len(set(mapped.values())) == 1 and all(
            self.attribute_of(self.classes[owner], name) for owner in competitors if owner in self.classes)
        if not is_unique or (is_keyword and not is_near):
            UNRESOLVED[name] = sorted(set(mapped.values()))
            return None
        new = next(iter(mapped.values()))
        GUESSES.append(f"{Path(path).relative_to(ROOT)}: {name} -> {new}")
        return new

    def attribute(self, path: str, end: Span, name: str) -> str | None:
        """New name of the attribute access that ends there."""
        node = self.expressions[path].members.get(end) if path in self.expressions else None
        if node is None or node.name != name:
            return self.guess(name, path)
        infos = classes_of(self.types.get(node.expr)) if node.expr in self.types else None
        if isinstance(node.expr, RefExpr) and isinstance(node.expr.node, TypeInfo):
            infos = [node.expr.node]
        if not infos or not any(name in base.names for info in infos for base in info.mro):
            return self.guess(name, path) if infos is None or infos else None
        news = {self.attribute_of(info, name) for info in infos} - {None}
        return next(iter(news)) if len(news) == 1 else None

    def keyword(self, path: str, end: Span, name: str) -> str | None:
        """New name of a keyword argument of the call that ends there."""
        call = self.expressions[path].calls.get(end) if path in self.expressions else None
        if call is None:
            return self.guess(name, path, is_keyword=True)
        function, infos = self._callee(call)
        for info in infos or ():
            parameter = f"{info.fullname}.__init__.{name}"
            new = self.attribute_of(info, name) or self.parameter(*parameter.rsplit(".", 1))
            if new:
                return new
        if function:
            return self.parameter(function, name)
        return self.guess(name, path, is_keyword=True) if infos is None else None

    def _callee(self, call: CallExpr) -> tuple[str, list[TypeInfo] | None]:
        """Full name of the function that is called, and the classes whose fields are its keywords."""
        callee = call.callee
        if isinstance(callee, RefExpr) and callee.name == "replace" and call.args:
            return "", classes_of(self.types.get(call.args[0]))
        if isinstance(callee, RefExpr) and isinstance(callee.node, TypeInfo):
            return "", [callee.node]
        callee_type = get_proper_type(self.types[callee]) if callee in self.types else None
        if isinstance(callee_type, CallableType) and callee_type.is_type_obj():
            return "", classes_of(callee_type.ret_type) or []
        if isinstance(callee, MemberExpr):
            infos = classes_of(self.types.get(callee.expr)) if callee.expr in self.types else None
            for info in infos or ():
                for base in info.mro:
                    if callee.name in base.names:
                        return f"{base.fullname}.{callee.name}", []
            return (callee.fullname or "", []) if callee.node is not None else ("", infos)
        if isinstance(callee, NameExpr):
            return callee.fullname or "", []
        return "", None

    def parameter(self, function: str, name: str) -> str | None:
        """New name of a parameter, also of a method that overrides the one in the mapping."""
        owner, _, method = function.rpartition(".")
        info = self.classes.get(owner)
        functions = [f"{base.fullname}.{method}" for base in info.mro] if info else []
        news = (self.rows["param"].get(f"{full}.{name}") for full in (function, *functions))
        return next(filter(None, news), None)


class Exports:
    """Definitions behind imported names."""

    def __init__(self) -> None:
        self.origin: dict[str, str] = {}
        for path in python_files():
            module = module_of(path)
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom):
                    source = source_of(node, module, path.name == "__init__.py")
                    for alias in node.names:
                        self.origin[f"{module}.{alias.asname or alias.name}"] = f"{source}.{alias.name}"

    def __call__(self, name: str) -> str:
        """Full name of the definition that a name is imported from."""
        for _ in range(8):
            if name not in self.origin:
                break
            name = self.origin[name]
        return name


# -- rewriting


class Renamer(cst.CSTTransformer):
    """Renames in one file."""

    METADATA_DEPENDENCIES = (PositionProvider, QualifiedNameProvider)

    def __init__(self, path: Path, text: str, types: Types, exports: Exports) -> None:
        super().__init__()
        self.path = str(path.resolve())
        self.module = module_of(path)
        self.lines = [*text.splitlines(), ""]
        self.types = types
        self.exports = exports
        self.rows = types.rows
        self.symbols = {**types.rows["class"], **types.rows["func"]}
        self.scope: list[str] = []
        self.scope_types: list[str] = []
        self.in_all = False
        self.new_names: dict[int, str] = {}  # id of an original node to its new text
        self.visited: set[int] = set()  # names that are handled with the node they belong to
        self.attributes: set[int] = set()  # names of attributes and keywords, not of variables
        self.pattern_classes: set[str] = set()

    def _end(self, node: cst.CSTNode) -> Span:
        end = self.get_metadata(PositionProvider, node).end
        return end.line, len(self.lines[end.line - 1][:end.column].encode())

    def _symbol(self, node: cst.CSTNode) -> str | None:
        """New name of a variable, or of an attribute of an imported module or class."""
        written = node.attr.value if isinstance(node, cst.Attribute) else getattr(node, "value", "")
        for qualified in self.get_metadata(QualifiedNameProvider, node, set()):
            name = qualified.name
            if qualified.source == QualifiedNameSource.BUILTIN or name.rpartition(".")[2] != written:
                continue  # a builtin, or imported under another name
            if qualified.source == QualifiedNameSource.LOCAL:
                name = f"{self.module}.{name}"
            owner, _, last = name.rpartition(".")
            if ".<locals>." in name:
                new = self.types.parameter(owner.replace(".<locals>", ""), last)
            else:
                origin = self.exports(name)
                new = (self.symbols.get(origin) or self.symbols.get(name) or self.rows["attr"].get(origin)
                       or self.rows["attr"].get(f"{self.exports(owner)}.{last}"))
            if new:
                return new
        return None

    def _own_attribute(self, name: str) -> str | None:
        """New name of an attribute that the class body at hand defines."""
        owner = ".".join([self.module, *self.scope])
        info = self.types.classes.get(owner)
        return self.rows["attr"].get(f"{owner}.{name}") or (self.types.attribute_of(info, name) if info else None)

    def _define(self, name: cst.Name) -> None:
        full = ".".join([self.module, *self.scope, name.value])
        in_class = bool(self.scope_types) and self.scope_types[-1] == "class"
        new = self.symbols.get(full) if in_class or not self.scope_types else None
        if in_class:
            new = self._own_attribute(name.value) or new
        if new:
            self.new_names[id(name)] = new

    def _rename_in_docstring(self, body: cst.BaseSuite, new_names: dict[str, str | None]) -> None:
        """Rename parameters or fields in the docstring of their function or class."""
        first = body.body[0] if body.body else None
        if not isinstance(first, cst.SimpleStatementLine) or not isinstance(first.body[0], cst.Expr):
            return
        literal = first.body[0].value
        if not isinstance(literal, cst.SimpleString) or not isinstance(literal.raw_value, str):
            return
        text = literal.raw_value
        for name, new in new_names.items():
            if new:
                text = re.sub(rf"``{name}``", f"``{new}``", text)
                text = re.sub(rf"(?m)(^ +(?:\w+, )*){name}(?=(?:, \w+)*: )", rf"\g<1>{new}", text)
        if text != literal.raw_value:
            self.new_names[id(literal)] = text

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._define(node.name)
        info = self.types.classes.get(".".join([self.module, *self.scope, node.name.value]))
        if info is not None:
            has_init = matchers.findall(node.body, matchers.FunctionDef(name=matchers.Name("__init__")))
            if has_init:
                arguments = {old.rpartition(".")[2]: new for old, new in self.rows["param"].items()
                             if old.rpartition(".")[0] == f"{info.fullname}.__init__"}
            else:
                arguments = {name: self.types.attribute_of(info, name) for name in info.names}
            self._rename_in_docstring(node.body, arguments)
        self.scope.append(node.name.value)
        self.scope_types.append("class")

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self.scope.pop()
        self.scope_types.pop()
        return updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._define(node.name)
        full = ".".join([self.module, *self.scope, node.name.value])
        parameters = [*node.params.posonly_params, *node.params.params, *node.params.kwonly_params]
        names = [parameter.name.value for parameter in parameters]
        self._rename_in_docstring(node.body, {name: self.types.parameter(full, name) for name in names})
        self.scope.append(node.name.value)
        self.scope_types.append("function")

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self._report_clashes(list(matchers.findall(original_node, matchers.Name())))
        self.scope.pop()
        self.scope_types.pop()
        return updated_node

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        self._report_clashes(top_level_names(original_node))
        return updated_node

    def _report_clashes(self, names: list[cst.CSTNode]) -> None:
        variables = [name for name in names if isinstance(name, cst.Name) and id(name) not in self.attributes]
        new = {self.new_names[id(name)] for name in variables if id(name) in self.new_names}
        kept = {name.value for name in variables if id(name) not in self.new_names}
        CLASHES.update(f"{'.'.join([self.module, *self.scope])}: {name} exists already" for name in new & kept)

    def visit_Param(self, node: cst.Param) -> None:
        if self.scope_types and self.scope_types[-1] == "function":
            new = self.types.parameter(".".join([self.module, *self.scope]), node.name.value)
            if new:
                self.new_names[id(node.name)] = new

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self._define_field(node.target)

    def visit_Assign(self, node: cst.Assign) -> None:
        self.in_all = matchers.matches(node.targets[0].target, matchers.Name("__all__"))

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        self.in_all = False
        return updated_node

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        self._define_field(node.target)

    def _define_field(self, target: cst.BaseExpression) -> None:
        if isinstance(target, cst.Tuple):
            for element in target.elements:
                self._define_field(element.value)
        elif isinstance(target, cst.Name) and self.scope_types and self.scope_types[-1] == "class":
            self.attributes.add(id(target))
            new = self._own_attribute(target.value)
            if new:
                self.new_names[id(target)] = new

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if node.module is None or isinstance(node.names, cst.ImportStar):
            return
        self.visited.add(id(node.module))
        source = source_of(node, self.module, self.path.endswith("__init__.py"))
        for alias in node.names:
            self.visited.add(id(alias.name))
            full = f"{source}.{dotted(alias.name)}"
            new = self.symbols.get(self.exports(full)) or self.symbols.get(full)
            if new:
                self.new_names[id(alias.name)] = new

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self.visited.add(id(node.attr))
        self.attributes.add(id(node.attr))
        if id(node) in self.visited:  # part of the path of an import
            self.visited.add(id(node.value))
            return
        new = self._symbol(node) or self._object_attribute(node)
        if new:
            self.new_names[id(node.attr)] = new

    def _object_attribute(self, node: cst.Attribute) -> str | None:
        names = self.get_metadata(QualifiedNameProvider, node, set())
        if any(name.source == QualifiedNameSource.IMPORT and name.name.split(".")[0] not in FOLDERS for name in names):
            return None
        if matchers.matches(node.value, matchers.Name(PART_OWNER)):
            return None
        if matchers.matches(node.value, matchers.Call(func=matchers.Name("super"))):
            owners = (".".join([self.module, *self.scope[:depth]]) for depth in range(len(self.scope), 0, -1))
            info = next((self.types.classes[owner] for owner in owners if owner in self.types.classes), None)
            return self.types.attribute_of(info, node.attr.value) if info else None
        return self.types.attribute(self.path, self._end(node), node.attr.value)

    def visit_Call(self, node: cst.Call) -> None:
        self._rename_literal(node)
        for argument in node.args:
            if argument.keyword is not None:
                self.visited.add(id(argument.keyword))
                self.attributes.add(id(argument.keyword))
                new = self.types.keyword(self.path, self._end(node), argument.keyword.value)
                if new:
                    self.new_names[id(argument.keyword)] = new

    def _rename_literal(self, node: cst.Call) -> None:
        """``getattr(x, "name")`` and ``monkeypatch.setattr(x, "name", …)``."""
        called = node.func.attr.value if isinstance(node.func, cst.Attribute) else getattr(node.func, "value", "")
        if called not in ("getattr", "setattr", "hasattr", "delattr") or len(node.args) < 2:
            return
        literal = node.args[1].value
        if not isinstance(literal, cst.SimpleString) or not isinstance(literal.raw_value, str):
            return
        name = literal.raw_value
        owners = [self.exports(owner.name)
                  for owner in self.get_metadata(QualifiedNameProvider, node.args[0].value, set())]
        news = [self.symbols.get(f"{owner}.{name}") or self.rows["attr"].get(f"{owner}.{name}") for owner in owners]
        new = next(filter(None, news), None) or self.types.guess(name, self.path)
        if new:
            self.new_names[id(literal)] = new

    def visit_Annotation(self, node: cst.Annotation) -> None:
        for literal in matchers.findall(node, matchers.SimpleString()):
            text = literal.raw_value  # type: ignore[attr-defined]
            new = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: self._new_global(word[0]), text)
            if new != text:
                self.new_names[id(literal)] = new

    def _new_global(self, name: str) -> str:
        return self.symbols.get(self.exports(f"{self.module}.{name}"), name)

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.SimpleString:
        text = updated_node.raw_value
        new = self.new_names.get(id(original_node))
        if isinstance(text, str) and new is None:
            if self.in_all:
                new = self._new_global(text)
            elif text.startswith(f"{PACKAGE}."):
                last = self.symbols.get(self.exports(text)) or self.rows["attr"].get(text)
                new = f"{text.rpartition('.')[0]}.{last}" if last else None
        if not new or new == text:
            return updated_node
        quote = updated_node.quote
        return updated_node.with_changes(value=f"{updated_node.prefix}{quote}{new}{quote}")

    def visit_MatchClass(self, node: cst.MatchClass) -> None:
        names = self.get_metadata(QualifiedNameProvider, node.cls, set())
        self.pattern_classes = {self.exports(name.name if name.source == QualifiedNameSource.IMPORT
                                             else f"{self.module}.{name.name}") for name in names}

    def visit_MatchKeywordElement(self, node: cst.MatchKeywordElement) -> None:
        self.visited.add(id(node.key))
        infos = [self.types.classes[name] for name in self.pattern_classes if name in self.types.classes]
        new = next(filter(None, (self.types.attribute_of(info, node.key.value) for info in infos)), None)
        if new:
            self.new_names[id(node.key)] = new

    def visit_Name(self, node: cst.Name) -> None:
        if id(node) not in self.new_names and id(node) not in self.visited:
            new = self._symbol(node)
            if new:
                self.new_names[id(node)] = new

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        new = self.new_names.get(id(original_node))
        return updated_node.with_changes(value=new) if new else updated_node

    def rename_roles(self, text: str) -> str:
        """``text`` with new names where Sphinx roles of docstrings refer to renamed objects."""
        return ROLE.sub(self._renamed_role, text)

    def _renamed_role(self, match: re.Match[str]) -> str:
        target = match[2]
        owner, _, last = target.rpartition(".")
        full = self.exports(target if target.startswith(PACKAGE) else f"{self.module}.{target}")
        new = self.symbols.get(full) or self.rows["attr"].get(full) or last
        if owner and not owner.startswith(PACKAGE):
            owner = self._new_global(owner)
        return f"{match[1]}{owner}.{new}{match[3]}" if owner or "." in target else f"{match[1]}{new}{match[3]}"


def top_level_names(module: cst.Module) -> list[cst.CSTNode]:
    """Names that the statements of a module define or import."""
    names: list[cst.CSTNode] = []
    for statement in module.body:
        if isinstance(statement, cst.FunctionDef | cst.ClassDef):
            names.append(statement.name)
        for part in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
            if isinstance(part, cst.ImportFrom) and not isinstance(part.names, cst.ImportStar):
                names += [alias.name for alias in part.names if alias.asname is None]
            elif isinstance(part, cst.Assign):
                names += [target.target for target in part.targets]
            elif isinstance(part, cst.AnnAssign):
                names.append(part.target)
    return names


def rename_names(rows: Rows) -> None:
    """Rename classes, functions, attributes and parameters in every file."""
    types = Types(rows)
    exports = Exports()
    old_names = {old.rpartition(".")[2] for row_type in ROW_TYPES[1:] for old in rows[row_type]}
    any_old_name = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(old_names)))})\b")
    for path in python_files():
        text = path.read_text()
        if any_old_name.search(text):
            renamer = Renamer(path, text, types, exports)
            wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
            new_text = renamer.rename_roles(wrapper.visit(renamer).code)
            if new_text != text:
                path.write_text(new_text)


def rename_modules(modules: dict[str, str]) -> None:
    """Move files with their tests, and rewrite dotted names and paths in every text."""
    ordered = sorted(modules.items(), key=lambda row: -len(row[0]))
    for old, new in ordered:
        suffix = "" if (ROOT / old.replace(".", "/")).is_dir() else ".py"
        _move(ROOT / (old.replace(".", "/") + suffix), ROOT / (new.replace(".", "/") + suffix))
        test = ROOT / "tests" / Path(*old.split(".")[1:])
        moved_test = ROOT / "tests" / Path(*new.split(".")[1:])
        _move(test, moved_test)
        _move(test.with_name(f"test_{test.name}.py"), moved_test.with_name(f"test_{moved_test.name}.py"))
    listing = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    for name in filter(None, listing.split("\n")):
        path = ROOT / name
        if path.suffix in TEXT_SUFFIXES and path.exists() and path.name not in ("CHANGELOG.md", "rename.py"):
            _rewrite_modules(path, ordered)


def _move(source: Path, target: Path) -> None:
    if source.exists() and not target.exists():
        target.parent.mkdir(exist_ok=True, parents=True)
        subprocess.run(["git", "mv", source, target], check=True, cwd=ROOT)


def _rewrite_modules(path: Path, modules: list[tuple[str, str]]) -> None:
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return
    new_text = text
    for old, new in modules:
        new_text = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", new, new_text)
        for old_name, new_name in ((old, new), (old.partition(".")[2], new.partition(".")[2])):
            if "." in old_name:
                old_path = re.escape(old_name.replace(".", "/"))
                new_text = re.sub(rf"(?<![\w.-]){old_path}(?=\.py\b|/)", new_name.replace(".", "/"), new_text)
        package, _, last = old.rpartition(".")
        new_package, _, new_last = new.rpartition(".")
        imports = (rf"(from {re.escape(package)} import (?:\([^)]*|[^\n(]*))"
                   rf"(?<!\w){re.escape(last)}(?!\w)(?! as)")
        if path.suffix == ".py" and package != PACKAGE and re.search(imports, new_text):
            if package != new_package:
                print(f"by hand: {path.relative_to(ROOT)}: from {package} import {last}")
                continue
            new_text = re.sub(imports, rf"\g<1>{new_last}", new_text)
            new_text = re.sub(rf"(?<![\w.\"']){re.escape(last)}(?=\.[A-Za-z_]|, \")", new_last, new_text)
    if new_text != text:
        path.write_text(new_text)


def main() -> None:
    """Apply mapping files, and report what is left to do by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mappings", nargs="+", type=Path)
    parser.add_argument("--guesses", type=Path, help="write renamed attributes of unknown type to this file")
    options = parser.parse_args()
    rows = read_rows(options.mappings)
    rename_names(rows)
    rename_modules(rows["module"])
    for clash in sorted(CLASHES):
        print(f"clash: {clash}")
    for name, news in sorted(UNRESOLVED.items()):
        print(f"by hand where the type is unknown: {name} -> {' or '.join(news)}")
    if options.guesses:
        options.guesses.write_text("\n".join(GUESSES) + "\n")
    print(f"{len(GUESSES)} guesses")


if __name__ == "__main__":
    main()
