"""Write ``tests/messages.txt``, the snapshot of every error message of the package.

    python tools/messages.py            # --check: report whether the snapshot is current

An entry holds the error code, the file and function, the message and the help text. Values are
written in braces, as the code names them. Entries are sorted by code. The messages are read from
the syntax trees: from calls of error classes, from calls of functions with the parameters
``message`` and ``code``, and from generators of conflicts between keys (key, message, help).
"""

import ast
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SNAPSHOT = ROOT / "tests" / "messages.txt"
BASE_CLASS = "UserError"
CONFLICT_CODE = "bad-value"  # also of messages that a schema's reader reports
WIDTH = 100

Texts = Mapping[str, list[str]]  # texts that a name or a function may stand for


class Message(NamedTuple):
    """One message of the package."""

    code: str
    function: str
    text: str
    help: str = ""


class Signature(NamedTuple):
    """Positions of the message and the help among the arguments of a call, and the default code."""

    message: int
    help: int | None
    code: str


@dataclass
class Module:
    """One module of the package: its path in the package and its syntax tree."""

    path: str
    tree: ast.Module
    package: "Package" = field(repr=False)

    @cached_property
    def nodes(self) -> list[tuple[str, ast.AST]]:
        """Every node with the dotted name of its function, in the order of the file."""
        return list(nodes_with_function(self.tree, ""))

    @cached_property
    def literal_texts(self) -> dict[str, Texts]:
        """Function to the texts of its variables; under "", constants and return values."""
        return self._texts_by_function({})

    @cached_property
    def own_texts(self) -> dict[str, Texts]:
        """The same, with the texts of constants and functions that they use."""
        return self._texts_by_function({**self.imported_texts, **self.literal_texts[""]})

    def _texts_by_function(self, known_texts: Texts) -> dict[str, Texts]:
        texts: dict[str, dict[str, list[str]]] = {"": {}}
        for function, node in self.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                owner = function
                name = node.targets[0].id
            elif isinstance(node, ast.Return):
                owner = ""
                name = function.rpartition(".")[2]
            else:
                continue
            if text := text_of(node.value, known_texts):
                texts.setdefault(owner, {}).setdefault(name, []).append(text)
        return dict(texts)

    @cached_property
    def imported_texts(self) -> Texts:
        """Texts of constants and functions that are imported from the package."""
        texts: dict[str, list[str]] = {}
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom):
                source = self.package.module_of(node.module or "")
                for alias in node.names if source else ():
                    texts[alias.name] = source.literal_texts[""].get(alias.name, [])
        return texts

    def texts(self, function: str) -> Texts:
        """Texts of all names that ``function`` can use."""
        local = self.own_texts.get(function, {})
        return {**self.imported_texts, **self.own_texts[""], **local}

    def messages(self) -> Iterator[Message]:
        """Every message of the module."""
        for function, node in self.nodes:
            texts = self.texts(function)
            if isinstance(node, ast.Call):
                yield from self._messages_of_call(node, function, texts)
            elif isinstance(node, ast.Yield):
                yield from _conflict(node.value, function, texts)

    def _messages_of_call(self, call: ast.Call, function: str, texts: Texts) -> Iterator[Message]:
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        signatures = self.package.signatures_of(call, self.path, function)
        for signature in signatures:
            if text := text_of(argument(call, keywords, "message", signature.message), texts):
                break
        else:
            if not signatures or not string_constants(keywords.get("code")):
                return
            signature = signatures[-1]
            message = argument(call, keywords, "message", signature.message)
            text = f"{{{ast.unparse(message)}}}" if message else ""
        codes = string_constants(keywords["code"]) if "code" in keywords else [signature.code]
        help = text_of(argument(call, keywords, "help", signature.help), texts)
        yield from (Message(code, function, text, help) for code in codes if code and text)


class Package:
    """All modules of the package, with the signatures of the calls that make messages."""

    def __init__(self, root: Path = ROOT / "scalesearch") -> None:
        """Parse every module under ``root``."""
        self.root = root
        self.modules: dict[str, Module] = {}
        for file in sorted(root.rglob("*.py")):
            self.add(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))

    def add(self, path: str, text: str) -> Module:
        """Parse one module."""
        self.modules[path] = Module(path, ast.parse(text), self)
        return self.modules[path]

    def module_of(self, name: str) -> Module | None:
        """The module of that dotted name."""
        inner = name.removeprefix(f"{self.root.name}.").replace(".", "/")
        return self.modules.get(f"{inner}.py")

    @cached_property
    def error_classes(self) -> dict[str, str]:
        """Error class to its code; empty if each instance has a code of its own."""
        classes = {BASE_CLASS: ""}
        for module in self.modules.values():
            for _, node in module.nodes:
                if isinstance(node, ast.ClassDef) and BASE_CLASS in map(ast.unparse, node.bases):
                    classes[node.name] = class_code(node)
        return classes

    @cached_property
    def signatures(self) -> dict[str, list[tuple[str, Signature]]]:
        """Name of a function or class to the path of its module and its signature."""
        signatures: dict[str, list[tuple[str, Signature]]] = {}
        for module in self.modules.values():
            for function, node in module.nodes:
                for name, signature in self._definition(function, node):
                    signatures.setdefault(name, []).append((module.path, signature))
        for name, code in self.error_classes.items():
            signatures.setdefault(name, [("", Signature(0, None, code))])
        return signatures

    def _definition(self, function: str, node: ast.AST) -> Iterator[tuple[str, Signature]]:
        """Signatures that a definition of a function or a data class adds."""
        if isinstance(node, ast.FunctionDef):
            name = function.split(".")[-2] if node.name == "__init__" else node.name
            parameters = [arg.arg for arg in node.args.args if arg.arg != "self"]
            code = self.error_classes.get(name) or default_code(node)
            if name in self.error_classes and "reason" in parameters:
                yield name, Signature(parameters.index("reason"), None, code)
            if "message" in parameters and (code or name in self.error_classes):
                yield name, Signature(*positions(parameters), code)
            for arg in node.args.args:
                if arg.annotation and ast.unparse(arg.annotation) in self.callback_types:
                    yield arg.arg, Signature(1, 2, CONFLICT_CODE)
        elif isinstance(node, ast.ClassDef):
            fields = [line for line in node.body if isinstance(line, ast.AnnAssign)]
            names = [ast.unparse(line.target) for line in fields]
            if "message" in names and "code" in names:
                codes = string_constants(fields[names.index("code")].value)
                yield node.name, Signature(*positions(names), codes[0] if codes else "")

    @cached_property
    def callback_types(self) -> set[str]:
        """Names of types of functions (node, message, help) that report a message."""
        aliases = (node for module in self.modules.values() for node in module.tree.body
                   if isinstance(node, ast.Assign))
        return {ast.unparse(node.targets[0]) for node in aliases
                if ast.unparse(node.value) == "Callable[[Node, str, str | None], None]"}

    def signatures_of(self, call: ast.Call, path: str, function: str) -> list[Signature]:
        """Signatures that a call may have; those of the same module first."""
        name = ast.unparse(call.func).rpartition(".")[2]
        if ast.unparse(call.func) == "super().__init__":
            owner = function.split(".")[-2] if "." in function else ""
            code = self.error_classes.get(owner, "")
            return [Signature(0, None, code)] if code else []
        pairs = sorted(self.signatures.get(name, []),
                       key=lambda pair: (pair[0] != path, pair[1].message))
        return [signature for _, signature in pairs]

    def codes(self) -> set[str]:
        """Every error code of the package: given in a call, of a class, or a default."""
        codes = set(self.error_classes.values())
        for module in self.modules.values():
            for _, node in module.nodes:
                if isinstance(node, ast.keyword) and node.arg == "code":
                    codes |= set(string_constants(node.value))
                elif isinstance(node, ast.FunctionDef):
                    codes |= set(code_parameter(node))
        codes |= {signature.code for pairs in self.signatures.values() for _, signature in pairs}
        return codes - {""}

    def entries(self) -> list[str]:
        """The entries of the snapshot, sorted by code, path and line."""
        messages = [(message, path) for path, module in self.modules.items()
                    for message in module.messages()]
        messages.sort(key=lambda pair: (pair[0].code, pair[1]))
        return list(dict.fromkeys(entry(message, path) for message, path in messages))


def nodes_with_function(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """Every node under ``node``, with the dotted name of the function that contains it."""
    for child in ast.iter_child_nodes(node):
        name = child.name if isinstance(child, ast.FunctionDef | ast.ClassDef) else ""
        inner = ".".join(filter(None, (function, name)))
        yield inner, child
        yield from nodes_with_function(child, inner)


def _interpolation(node: ast.expr) -> str:
    """Text of an expression in braces; an option by its name, as the command line shows it."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "option":
        name, *value = [argument.value if isinstance(argument, ast.Constant)
                        else text_of(argument, {}) or f"{{{ast.unparse(argument)}}}"
                        for argument in node.args]
        return " ".join([f"--{name}", *map(str, value)])
    return f"{{{ast.unparse(node)}}}"


def text_of(node: ast.expr | None, texts: Texts) -> str:
    """The text of an expression, with values in braces; empty if it contains no literal text.

    Args:
        node: expression given as a message or a help.
        texts: texts of the names and functions that it may use.
    """
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant)
                       else _interpolation(part.value) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = (node.left, node.right)
        if not any(text_of(side, texts) for side in sides):
            return ""
        return "".join(text_of(side, texts) or f"{{{ast.unparse(side)}}}" for side in sides)
    if isinstance(node, ast.BoolOp):
        return " / ".join(filter(None, (text_of(value, texts) for value in node.values)))
    if isinstance(node, ast.IfExp):
        branches = (text_of(node.body, texts), text_of(node.orelse, texts))
        return " / ".join(filter(None, branches))
    if isinstance(node, ast.Name | ast.Call):
        name = ast.unparse(node).partition("(")[0].removeprefix("self.")
        return " / ".join(dict.fromkeys(texts.get(name, [])))
    return ""


def argument(call: ast.Call, keywords: Mapping[str | None, ast.expr], name: str,
             position: int | None) -> ast.expr | None:
    """The argument of a call with that name or position."""
    if name in keywords:
        return keywords[name]
    if position is None or position >= len(call.args):
        return None
    return call.args[position]


def string_constants(node: ast.expr | None) -> list[str]:
    """Every string constant of an expression."""
    inner = ast.walk(node) if node else ()
    return [constant.value for constant in inner
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str)]


def positions(parameters: list[str]) -> tuple[int, int | None]:
    """Positions of ``message`` and ``help`` among the names of parameters."""
    help = parameters.index("help") if "help" in parameters else None
    return parameters.index("message"), help


def class_code(node: ast.ClassDef) -> str:
    """The code of an error class."""
    codes = [string_constants(line.value) for line in node.body
             if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "code"]
    return codes[0][0] if codes and codes[0] else ""


def code_parameter(node: ast.FunctionDef) -> list[str]:
    """The default of a function's parameter ``code``, if it is a text."""
    names = [arg.arg for arg in node.args.args]
    defaults = dict(zip(reversed(names), reversed(node.args.defaults)))
    return string_constants(defaults.get("code"))


def default_code(node: ast.FunctionDef) -> str:
    """Code of the messages that a function reports: its default, or the one in its body."""
    inside = (keyword.value for keyword in ast.walk(node)
              if isinstance(keyword, ast.keyword) and keyword.arg == "code")
    codes = [*code_parameter(node), *(code for value in inside for code in string_constants(value))]
    return codes[0] if codes else ""


def _conflict(node: ast.expr | None, function: str, texts: Texts) -> Iterator[Message]:
    """The message of a conflict between keys: (key, message, help)."""
    if isinstance(node, ast.Tuple) and len(node.elts) == 3:
        key, message, help = node.elts
        text = text_of(message, texts)
        named = isinstance(key, ast.Constant | ast.JoinedStr | ast.Name)
        plain = isinstance(help, ast.Constant | ast.JoinedStr | ast.IfExp)
        if named and plain and text:
            yield Message(CONFLICT_CODE, function, text, text_of(help, texts))


def entry(message: Message, path: str) -> str:
    """The text of one entry."""
    lines = [f"{message.code}  {path}: {message.function}"]
    for label, text in (("", message.text), ("help: ", message.help)):
        if text:
            lines += textwrap.wrap(
                label + " ".join(text.split()), WIDTH, break_long_words=False,
                break_on_hyphens=False, initial_indent=" " * 4, subsequent_indent=" " * 4)
    return "\n".join(lines)


def snapshot() -> str:
    """The text of the snapshot."""
    return "\n\n".join(Package().entries()) + "\n"


def is_current() -> bool:
    """Whether the snapshot is the one of the package."""
    return SNAPSHOT.is_file() and SNAPSHOT.read_text(encoding="utf-8") == snapshot()


def main() -> None:
    """Write the snapshot, or compare it with ``--check`` (exit status 1 if it differs)."""
    if "--check" in sys.argv[1:]:
        if not is_current():
            sys.exit(f"{SNAPSHOT.name} is out of date; run `python tools/messages.py`")
        return
    SNAPSHOT.write_text(snapshot(), encoding="utf-8")


if __name__ == "__main__":
    main()
