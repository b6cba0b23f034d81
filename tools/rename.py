"""Renames modules, classes, functions, attributes and parameters of the package, by a mapping that is data.

    python tools/rename.py tools/renames/samplers.tsv        # rewrites package, tests, benchmarks, tools, integrations

A row is ``kind<TAB>old<TAB>new``. Kinds: ``module``, ``class``, ``func`` (also constants and type aliases), ``attr``
(``package.module.Class.name``) and ``param`` (``package.module.function.name``). LibCST resolves names and writes the
files; mypy resolves the class of each attribute and the callee of each keyword argument.
"""

import ast
import builtins
import re
import subprocess
import sys
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
TEXTS = ("*.md", "*.toml", "*.yaml", "*.yml", "*.json", "*.tsv", "Makefile", "*.cfg")
OWN = {"rename.py"}

Span = tuple[int, int]  # line and column of the end of an expression


def read_rows(paths: list[Path]) -> dict[str, dict[str, str]]:
    """Kind to old name to new name."""
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for path in paths:
        for line in path.read_text().splitlines():
            cells = [cell.strip() for cell in line.partition("#")[0].split("\t") if cell.strip()]
            if len(cells) >= 3 and cells[0] in ("module", "class", "func", "attr", "param"):
                rows[cells[0]][cells[1]] = cells[2]
    return rows


def foreign_names() -> set[str]:
    """Attributes of objects of other libraries, which an attribute of unknown type may belong to."""
    import argparse
    import collections
    import inspect
    import re as regex

    import click
    import numpy as np
    import optuna
    import pandas as pd
    import torch

    objects = [str, bytes, dict, list, set, tuple, int, float, Path, argparse.Namespace, click.Context, click.Parameter,
               click.Option, click.Command, click.Group, np.ndarray, np.generic, np.random.Generator, pd.DataFrame, pd.Series, torch.Tensor,
               torch.nn.Module, torch.optim.Optimizer, torch.device, torch.Generator, optuna.Study, optuna.trial.FrozenTrial, optuna.trial.Trial,
               optuna.storages.BaseStorage, optuna.samplers.BaseSampler, optuna.distributions.IntDistribution,
               optuna.distributions.CategoricalDistribution, regex.Match, collections.Counter, ast.AST, inspect.Signature, inspect.Parameter,
               subprocess.CompletedProcess, subprocess.Popen, builtins, np, torch, pd, optuna]
    return {name for each in objects for name in dir(each)}


class Found:
    """Attribute accesses and calls of a file, by the end of their text."""

    def __init__(self, tree: MypyFile) -> None:
        self.members: dict[Span, MemberExpr] = {}
        self.calls: dict[Span, CallExpr] = {}
        seen: set[int] = set()
        stack: list[object] = list(tree.defs)
        while stack:
            node = stack.pop()
            if isinstance(node, list | tuple):
                stack.extend(node)
                continue
            if not isinstance(node, Node) or isinstance(node, TypeInfo | Var) or id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, MemberExpr):
                self.members[(node.end_line or 0, node.end_column or 0)] = node
            if isinstance(node, CallExpr):
                self.calls[(node.end_line or 0, node.end_column or 0)] = node
            for name in attributes_of(type(node)):
                if name not in ("node", "info", "type", "unanalyzed_type", "var", "def_var", "definition"):
                    try:
                        stack.append(getattr(node, name))
                    except AttributeError:
                        continue


@cache
def attributes_of(kind: type) -> tuple[str, ...]:
    """Attributes of a compiled class of nodes."""
    names: dict[str, None] = {}
    for base in kind.__mro__:
        names.update(dict.fromkeys(getattr(base, "__mypyc_attrs__", ())))
    return tuple(name for name in names if not name.startswith("__"))


def infos_of(kind: Type | None) -> list[TypeInfo] | None:
    """Classes that a value of a type may have; None if the type is not known."""
    if kind is None:
        return None
    kind = get_proper_type(kind)
    if isinstance(kind, AnyType):
        return None
    if isinstance(kind, Instance):
        if kind.last_known_value is not None or kind.type is None:
            return [kind.type]
        if kind.type.fullname == "builtins.type" and kind.args:
            return infos_of(kind.args[0])
        return [kind.type]
    if isinstance(kind, UnionType):
        parts = [infos_of(item) for item in kind.items]
        known = [info for part in parts if part for info in part]
        return known or None
    if isinstance(kind, TypeType):
        return infos_of(kind.item)
    if isinstance(kind, CallableType):
        return infos_of(kind.ret_type) if kind.is_type_obj() else []
    if isinstance(kind, Overloaded):
        return infos_of(kind.items[0].ret_type) if kind.items[0].is_type_obj() else []
    if isinstance(kind, TupleType):
        return [kind.partial_fallback.type]
    if hasattr(kind, "upper_bound"):
        return infos_of(kind.upper_bound)
    return []


class Types:
    """What mypy knows: the class behind an attribute, and the function behind a call."""

    def __init__(self, rows: dict[str, dict[str, str]]) -> None:
        self.rows = rows
        files = [str(path.relative_to(ROOT)) for path in python_files()]
        sources, options = process_options(["--no-incremental", "--no-site-packages", "--ignore-missing-imports", "--check-untyped-defs", "--namespace-packages",
                                            "--explicit-package-bases", "--no-error-summary", "--python-version", "3.11", "--config-file", "/dev/null", *files])
        options.export_types = True
        options.preserve_asts = True
        options.incremental = False
        result = build.build(sources, options)
        self.types = result.types
        self.trees: dict[str, Found] = {}
        for state in result.graph.values():
            tree: MypyFile | None = state.tree
            if tree is not None and state.path:
                found = Found(tree)
                self.trees[str(Path(state.path).resolve())] = found
        self.defined: dict[str, set[str]] = defaultdict(set)  # attribute to the classes that define it
        for state in result.graph.values():
            if state.tree is not None and state.id.split(".")[0] in (PACKAGE, "tests", "benchmarks", "tools"):
                for symbol in state.tree.names.values():
                    if isinstance(symbol.node, TypeInfo) and symbol.node.module_name == state.id:
                        for name in symbol.node.names:
                            self.defined[name].add(symbol.node.fullname)
        self.foreign = foreign_names()

    def of_class(self, info: TypeInfo, name: str) -> str | None:
        for base in info.mro:
            new = self.rows["attr"].get(f"{base.fullname}.{name}")
            if new:
                return new
        return None

    def fallback(self, name: str, path: str) -> str | None:
        """New name of an attribute of an object of unknown type, if it can only be one."""
        if name in self.foreign:
            return None
        mapped = {key.rpartition(".")[0]: new for key, new in self.rows["attr"].items() if key.rpartition(".")[2] == name}
        if not mapped:
            return None
        owners = {owner for owner in self.defined.get(name, ()) if owner.startswith(PACKAGE)}
        tops = {owner.split(".")[1] for owner in mapped}
        here = Path(path).relative_to(ROOT).parts[:2]
        nearby = {owner for owner in owners if owner.split(".")[1] in tops}
        near_file = here[0] in ("scalesearch", "tests") and here[1] in tops
        competing = nearby if near_file else owners
        if len(set(mapped.values())) > 1 or any(not self._is_mapped(owner, name) for owner in competing):
            UNRESOLVED[name] = sorted(set(mapped.values()))
            return None
        return next(iter(mapped.values()))

    def _is_mapped(self, owner: str, name: str) -> bool:
        info = ALL_CLASSES.get(owner)
        bases = [base.fullname for base in info.mro] if info else [owner]
        return any(f"{base}.{name}" in self.rows["attr"] for base in bases)

    def attribute(self, path: str, end: Span, name: str) -> tuple[str | None, bool]:
        """New name of the attribute that ends there, and whether it is a guess."""
        found = self.trees.get(path)
        node = found.members.get(end) if found else None
        if node is None or node.name != name:
            guess = self.fallback(name, path)
            return guess, guess is not None
        infos = infos_of(self.types.get(node.expr)) if node.expr in self.types else None
        if isinstance(node.expr, RefExpr) and isinstance(node.expr.node, TypeInfo):
            infos = [node.expr.node]
        if infos is None or (infos and not any(name in base.names for info in infos for base in info.mro)):
            guess = self.fallback(name, path)
            return guess, guess is not None
        news = {self.of_class(info, name) for info in infos} - {None}
        return (next(iter(news)), False) if len(news) == 1 else (None, False)

    def keywords(self, path: str, end: Span) -> tuple[str, list[TypeInfo], bool]:
        """Full name of what is called there, classes whose fields are its keywords, whether nothing is known."""
        found = self.trees.get(path)
        call = found.calls.get(end) if found else None
        if call is None:
            return "", [], True
        callee = call.callee
        if isinstance(callee, RefExpr) and callee.name in ("replace",) and call.args:
            infos = infos_of(self.types.get(call.args[0]))
            return "", infos or [], infos is None
        if isinstance(callee, RefExpr) and isinstance(callee.node, TypeInfo):
            return callee.node.fullname, [callee.node], False
        kind = self.types.get(callee)
        kind = get_proper_type(kind) if kind is not None else None
        if isinstance(kind, CallableType) and kind.is_type_obj():
            infos = infos_of(kind.ret_type) or []
            return infos[0].fullname if infos else "", infos, False
        if isinstance(callee, MemberExpr):
            infos = infos_of(self.types.get(callee.expr)) if callee.expr in self.types else None
            if callee.fullname and callee.node is not None and not infos:
                return callee.fullname, [], False
            for info in infos or []:
                for base in info.mro:
                    if callee.name in base.names:
                        return f"{base.fullname}.{callee.name}", [], False
            return "", [], infos is None
        if isinstance(callee, NameExpr):
            return callee.fullname or "", [], kind is None or isinstance(kind, AnyType)
        return "", [], True

    def bases(self, full: str) -> list[str]:
        return [full]


def python_files() -> Iterator[Path]:
    """Files to rewrite."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name not in OWN and ".venv" not in path.parts:
                yield path


def module_of(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Exports:
    """Where a name that a module imports is defined."""

    def __init__(self) -> None:
        self.origin: dict[str, str] = {}
        for path in python_files():
            module = module_of(path)
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.ImportFrom):
                    continue
                source = node.module or ""
                if node.level:
                    source = ".".join([*package.split(".")[:len(package.split(".")) - node.level + 1], source])
                for alias in node.names:
                    self.origin[f"{module}.{alias.asname or alias.name}"] = f"{source}.{alias.name}"

    def __call__(self, name: str) -> str:
        for _ in range(8):
            if name not in self.origin:
                break
            name = self.origin[name]
        return name


def _dotted(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Attribute):
        return f"{_dotted(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""


class Renamer(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (PositionProvider, QualifiedNameProvider)

    def __init__(self, path: Path, rows: dict[str, dict[str, str]], types: Types, exports: Exports) -> None:
        super().__init__()
        self.path, self.module, self.rows, self.types, self.exports = str(path.resolve()), module_of(path), rows, types, exports
        self.symbols = {**rows["class"], **rows["func"]}
        self.scope: list[str] = []
        self.kinds: list[str] = []
        self.guesses: list[str] = []
        self.names: dict[int, str] = {}  # id of an original name node to its new text
        self.skipped: set[int] = set()
        self.attributes: set[int] = set()

    # names -------------------------------------------------------------------------------------------------
    def _symbol(self, node: cst.CSTNode) -> str | None:
        for qualified in self.get_metadata(QualifiedNameProvider, node, set()):
            name = qualified.name
            written = node.attr.value if isinstance(node, cst.Attribute) else getattr(node, "value", "")
            if name.rpartition(".")[2] != written:
                continue  # imported under another name
            if qualified.source == QualifiedNameSource.LOCAL:
                name = f"{self.module}.{name}"
            elif qualified.source == QualifiedNameSource.BUILTIN:
                continue
            if ".<locals>." in name:
                param = name.replace(".<locals>.", ".")
                owner, _, last = param.rpartition(".")
                new = self._param(owner, last)
                if new and name.count(".<locals>.") >= 1:
                    return new
                continue
            new = self.symbols.get(self.exports(name)) or self.symbols.get(name)
            if new:
                return new
            new = self.rows["attr"].get(self.exports(name))
            if new:
                return new
            # Class.attr through an import
            owner, _, last = name.rpartition(".")
            new = self.rows["attr"].get(f"{self.exports(owner)}.{last}")
            if new:
                return new
        return None

    def _param(self, function: str, name: str) -> str | None:
        new = self.rows["param"].get(f"{function}.{name}")
        if new:
            return new
        return self.overridden(function, name)

    def overridden(self, function: str, name: str) -> str | None:
        owner, _, method = function.rpartition(".")
        info = ALL_CLASSES.get(owner)
        if info is not None:
            for base in info.mro[1:]:
                new = self.rows["param"].get(f"{base.fullname}.{method}.{name}")
                if new:
                    return new
        return None

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.names.update(self._definition(node.name, "class"))
        self.scope.append(node.name.value)
        self.kinds.append("class")

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self.scope.pop()
        self.kinds.pop()
        return updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.names.update(self._definition(node.name, "func"))
        self.scope.append(node.name.value)
        self.kinds.append("func")

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self._report_clashes(original_node)
        self.scope.pop()
        self.kinds.pop()
        return updated_node

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        self._report_clashes(original_node)
        return updated_node

    def _report_clashes(self, node: cst.FunctionDef | cst.Module) -> None:
        """Reports a new name that another name in the same function or module has already."""
        kept: set[str] = set()
        new: set[str] = set()
        names = matchers.findall(node, matchers.Name()) if isinstance(node, cst.FunctionDef) else _top_level(node)
        for name in names:
            if id(name) in self.attributes:
                continue
            if id(name) in self.names:
                new.add(self.names[id(name)])
            else:
                kept.add(name.value)
        for name in sorted(new & kept):
            CLASHES.add(f"{self.path}: {'.'.join(self.scope) or 'module'}: {name} exists already")

    def visit_Param(self, node: cst.Param) -> None:
        function = ".".join([self.module, *self.scope])
        if self.kinds and self.kinds[-1] == "func":
            new = self._param(function, node.name.value)
            if new:
                self.names[id(node.name)] = new

    def _definition(self, name: cst.Name, kind: str) -> dict[int, str]:
        full = ".".join([self.module, *self.scope, name.value])
        if self.kinds and self.kinds[-1] == "class":
            new = self._attribute_here(name.value) or self.symbols.get(full)
        elif self.kinds:
            return {}
        else:
            new = self.symbols.get(full)
        return {id(name): new} if new else {}

    def _attribute_here(self, name: str) -> str | None:
        owner = ".".join([self.module, *self.scope])
        new = self.rows["attr"].get(f"{owner}.{name}")
        if new:
            return new
        info = ALL_CLASSES.get(owner)
        return self.types.of_class(info, name) if info else None

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self._field(node.target)

    in_all = False

    def visit_Assign(self, node: cst.Assign) -> None:
        self.in_all = isinstance(node.targets[0].target, cst.Name) and node.targets[0].target.value == "__all__"

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        self.in_all = False
        return updated_node

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        self._field(node.target)

    def _field(self, target: cst.BaseExpression) -> None:
        if isinstance(target, cst.Name) and self.kinds and self.kinds[-1] == "class":
            new = self._attribute_here(target.value)
            self.attributes.add(id(target))
            if new:
                self.names[id(target)] = new
        if isinstance(target, cst.Tuple):
            for element in target.elements:
                self._field(element.value)

    # references ---------------------------------------------------------------------------------------------
    def _is_foreign(self, node: cst.Attribute) -> bool:
        """Whether an attribute belongs to another library's module, or to a module of the package."""
        names = self.get_metadata(QualifiedNameProvider, node, set())
        return any(name.source == QualifiedNameSource.IMPORT and name.name.partition(".")[0] not in FOLDERS for name in names)

    def visit_Annotation(self, node: cst.Annotation) -> None:
        for literal in matchers.findall(node, matchers.SimpleString()):
            text = literal.raw_value
            new = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: self.symbols.get(self.exports(f"{self.module}.{word[0]}"), word[0]), text)
            if new != text:
                self.names[id(literal)] = new

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self.skipped.add(id(node.attr))
        if id(node) in self.skipped:  # part of the path of an import
            self.skipped.add(id(node.value))
            return
        self.attributes.add(id(node.attr))
        new = self._symbol(node)
        if new is None and isinstance(node.value, cst.Name) and node.value.value == "m":
            return  # parts of a module, which are named by text
        if new is None and self._is_foreign(node):
            return
        if new is None and matchers.matches(node.value, matchers.Call(func=matchers.Name("super"))):
            while_class = [*self.scope]
            for depth in range(len(while_class), 0, -1):
                info = ALL_CLASSES.get(".".join([self.module, *while_class[:depth]]))
                if info is not None:
                    new = self.types.of_class(info, node.attr.value)
                    break
            if new:
                self.names[id(node.attr)] = new
            return
        if new is None:
            end = self.get_metadata(PositionProvider, node).end
            line = end.line
            new, guess = self.types.attribute(self.path, (line, self._bytes(line, end.column)), node.attr.value)
            if guess:
                self.guesses.append(f"{self.path}:{line}: .{node.attr.value} -> {new}")
        if new:
            self.names[id(node.attr)] = new

    def _bytes(self, line: int, column: int) -> int:
        return len(self.lines[line - 1][:column].encode())

    def visit_Call(self, node: cst.Call) -> None:
        keywords = [arg for arg in node.args if arg.keyword is not None]
        for arg in keywords:
            self.skipped.add(id(arg.keyword))
            self.attributes.add(id(arg.keyword))
        literal = self._literal_attribute(node)
        if not keywords and not literal:
            return
        end = self.get_metadata(PositionProvider, node).end
        span = end.line, self._bytes(end.line, end.column)
        full, infos, unknown = self.types.keywords(self.path, span)
        for arg in keywords:
            name = arg.keyword.value
            new = None
            for info in infos:
                new = new or self.types.of_class(info, name)
                for base in info.mro:
                    new = new or self.rows["param"].get(f"{base.fullname}.__init__.{name}")
            if not new and full:
                new = self.rows["param"].get(f"{full}.{name}") or self.overridden(full, name)
            if not new and unknown:
                new = self.types.fallback(name, self.path)
                if new:
                    self.guesses.append(f"{self.path}:{end.line}: {name}= -> {new}")
            if new:
                self.names[id(arg.keyword)] = new

    def _literal_attribute(self, node: cst.Call) -> bool:
        """getattr(x, "name") and monkeypatch.setattr(x, "name", …)."""
        called = node.func.attr.value if isinstance(node.func, cst.Attribute) else getattr(node.func, "value", "")
        if called not in ("getattr", "setattr", "hasattr", "delattr") or len(node.args) < 2:
            return False
        literal = node.args[1].value
        if isinstance(literal, cst.SimpleString) and isinstance(literal.raw_value, str):
            name = literal.raw_value
            new = None
            for qualified in self.get_metadata(QualifiedNameProvider, node.args[0].value, set()):
                owner = self.exports(qualified.name)
                new = new or self.symbols.get(f"{owner}.{name}") or self.rows["attr"].get(f"{owner}.{name}")
            new = new or self.types.fallback(name, self.path)
            if new:
                self.names[id(literal)] = new
                self.guesses.append(f"{self.path}: {called}(…, {name!r}) -> {new}")
        return False

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.SimpleString:
        new = self.names.get(id(original_node))
        if new:
            quote = updated_node.value[0]
            return updated_node.with_changes(value=f"{quote}{new}{quote}")
        text = updated_node.raw_value
        if self.in_all and isinstance(text, str):
            new = self.symbols.get(self.exports(f"{self.module}.{text}"))
            return updated_node.with_changes(value=f'"{new}"') if new else updated_node
        if isinstance(text, str) and text.startswith(f"{PACKAGE}."):
            name, _, last = text.rpartition(".")
            new = self.symbols.get(self.exports(text)) or self.rows["attr"].get(text)
            if new:
                return updated_node.with_changes(value=updated_node.value.replace(text, f"{name}.{new}"))
        return updated_node

    def visit_MatchKeywordElement(self, node: cst.MatchKeywordElement) -> None:
        self.skipped.add(id(node.key))
        new = self.types.fallback(node.key.value, self.path)
        for key, value in self.rows["attr"].items():
            if key.rpartition(".")[2] == node.key.value and key.rpartition(".")[0] in self.pattern_classes:
                new = value
        if new:
            self.names[id(node.key)] = new
            self.guesses.append(f"{self.path}: case ({node.key.value}=) -> {new}")

    pattern_classes: set[str] = set()

    def visit_MatchClass(self, node: cst.MatchClass) -> None:
        names = self.get_metadata(QualifiedNameProvider, node.cls, set())
        self.pattern_classes = {self.exports(one.name if one.source == QualifiedNameSource.IMPORT else f"{self.module}.{one.name}")
                                for one in names}

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if node.module is None or isinstance(node.names, cst.ImportStar):
            return
        source = _dotted(node.module)
        self.skipped.add(id(node.module))
        package = self.module if self.path.endswith("__init__.py") else self.module.rpartition(".")[0]
        if node.relative:
            source = ".".join([*package.split(".")[:len(package.split(".")) - len(node.relative) + 1], source])
        for alias in node.names:
            self.skipped.add(id(alias.name))
            full = f"{source}.{_dotted(alias.name)}"
            new = self.symbols.get(self.exports(full)) or self.symbols.get(full)
            if new:
                self.names[id(alias.name)] = new

    def visit_Name(self, node: cst.Name) -> None:
        if id(node) in self.names or id(node) in self.skipped:
            return
        new = self._symbol(node)
        if new:
            self.names[id(node)] = new

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        new = self.names.get(id(original_node))
        return updated_node.with_changes(value=new) if new else updated_node


def _top_level(module: cst.Module) -> list[cst.Name]:
    """Names that the statements of a module define or import."""
    names: list[cst.Name] = []
    for statement in module.body:
        if isinstance(statement, cst.FunctionDef | cst.ClassDef):
            names.append(statement.name)
        elif isinstance(statement, cst.SimpleStatementLine):
            for part in statement.body:
                if isinstance(part, cst.ImportFrom) and not isinstance(part.names, cst.ImportStar):
                    names += [alias.name for alias in part.names if isinstance(alias.name, cst.Name) and not alias.asname]
                elif isinstance(part, cst.Assign):
                    names += [target.target for target in part.targets if isinstance(target.target, cst.Name)]
                elif isinstance(part, cst.AnnAssign) and isinstance(part.target, cst.Name):
                    names.append(part.target)
    return names


ALL_CLASSES: dict[str, TypeInfo] = {}
CLASHES: set[str] = set()
UNRESOLVED: dict[str, list[str]] = {}


def rename_names(rows: dict[str, dict[str, str]]) -> None:
    types = Types(rows)
    for found in types.trees.values():
        pass
    for state_classes in CLASSES_OF(types):
        ALL_CLASSES[state_classes.fullname] = state_classes
    exports = Exports()
    guesses: list[str] = []
    olds = {old.rpartition(".")[2] for kind in ("class", "func", "attr", "param") for old in rows[kind]}
    wanted = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(olds)))})\b")
    for path in python_files():
        text = path.read_text()
        if not wanted.search(text):
            continue
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        renamer = Renamer(path, rows, types, exports)
        renamer.lines = text.splitlines() + [""]
        new = wrapper.visit(renamer).code
        new = rename_in_docstrings(new, renamer)
        guesses += renamer.guesses
        if new != text:
            path.write_text(new)
    Path("/tmp/cm/guesses.txt").open("a").write("\n".join(guesses) + "\n")
    print(f"{len(guesses)} guesses")
    print("\n".join(sorted(CLASHES)))
    for name, news in sorted(UNRESOLVED.items()):
        print("by hand where the type is unknown:", name, *news)


def CLASSES_OF(types: Types) -> Iterator[TypeInfo]:
    seen: set[str] = set()
    for kind in types.types.values():
        for info in infos_of(kind) or []:
            for base in info.mro:
                if base.fullname not in seen:
                    seen.add(base.fullname)
                    yield base


ROLE = re.compile(r"(:(?:class|func|meth|attr|data|obj|exc):`[~!]?)([\w.]+)(`)")


def rename_in_docstrings(text: str, renamer: Renamer) -> str:
    """Renames what Sphinx roles refer to."""
    short = defaultdict(set)
    for old, new in {**renamer.symbols, **renamer.rows["attr"]}.items():
        short[old.rpartition(".")[2]].add(new)

    def role(match: re.Match[str]) -> str:
        target = match[2]
        full = target if target.startswith(PACKAGE) else f"{renamer.module}.{target}"
        head, _, last = target.rpartition(".")
        full = renamer.exports(full)
        new = renamer.symbols.get(full) or renamer.rows["attr"].get(full)
        if not new and len(short[last]) == 1 and (head or last[0].isupper()):
            new = next(iter(short[last]))
        if head and not head.startswith(PACKAGE):
            owner = renamer.symbols.get(renamer.exports(f"{renamer.module}.{head}"))
            if not owner and len(short[head]) == 1 and head[0].isupper():
                owner = next(iter(short[head]))
            head = owner or head
        name = f"{head}.{new or last}" if head else (new or last)
        return f"{match[1]}{name}{match[3]}"

    return ROLE.sub(role, text)


def rename_modules(modules: dict[str, str]) -> None:
    """Moves files, and rewrites dotted names and paths in every text."""
    if not modules:
        return
    ordered = sorted(modules.items(), key=lambda row: -len(row[0]))
    for old, new in ordered:
        source = ROOT / old.replace(".", "/")
        target = ROOT / new.replace(".", "/")
        if source.is_dir():
            subprocess.run(["git", "mv", source, target], check=True, cwd=ROOT)
        else:
            target.parent.mkdir(exist_ok=True, parents=True)
            subprocess.run(["git", "mv", source.with_suffix(".py"), target.with_suffix(".py")], check=True, cwd=ROOT)
        test = ROOT / "tests" / Path(*old.split(".")[1:])
        moved = ROOT / "tests" / Path(*new.split(".")[1:])
        if test.is_dir() and test != moved and not moved.exists():
            subprocess.run(["git", "mv", test, moved], check=True, cwd=ROOT)
        one, other = test.with_name(f"test_{test.name}.py"), moved.with_name(f"test_{moved.name}.py")
        if one.exists() and not other.exists() and one != other:
            other.parent.mkdir(exist_ok=True, parents=True)
            subprocess.run(["git", "mv", one, other], check=True, cwd=ROOT)
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True).stdout.split("\n")
    for name in tracked:
        path = ROOT / name
        if not name or path.name in OWN or "renames" in path.parts or not path.exists() or path.suffix not in (
                ".py", ".md", ".toml", ".yaml", ".yml", ".cfg", ".ipynb", ".txt", ".rst", "") or path.name == "CHANGELOG.md":
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        new_text = text
        for old, new in ordered:
            new_text = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", new, new_text)
            for a, b in ((old, new), (old.partition(".")[2], new.partition(".")[2])):
                path_a, path_b = a.replace(".", "/"), b.replace(".", "/")
                if "/" in path_a:
                    new_text = re.sub(rf"(?<![\w.-]){re.escape(path_a)}(?=\.py\b|/)", path_b, new_text)
            package, _, last = old.rpartition(".")
            new_package, _, new_last = new.rpartition(".")
            if path.suffix == ".py" and package != PACKAGE:
                pattern = rf"(from {re.escape(package)} import (?:\([^)]*|[^\n(]*))(?<!\w){re.escape(last)}(?!\w)(?! as)"
                if package == new_package:
                    new_text, count = re.subn(pattern, rf"\g<1>{new_last}", new_text)
                    if count and new_last != last:
                        new_text = re.sub(rf"(?<![\w.\"']){re.escape(last)}(?=\.[A-Za-z_])", new_last, new_text)
                elif re.search(pattern, new_text):
                    print(f"by hand: {name}: from {package} import {last}")
        if new_text != text:
            path.write_text(new_text)


def main() -> None:
    rows = read_rows([Path(name) for name in sys.argv[1:]])
    if any(rows[kind] for kind in ("class", "func", "attr", "param")):
        rename_names(rows)
    rename_modules(rows["module"])


if __name__ == "__main__":
    main()
