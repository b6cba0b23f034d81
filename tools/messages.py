"""Writes tests/messages: every message of the package once, with its code, to be read and reviewed as text.

    python tools/messages.py            # --check: only say whether the pages are as the code would have them

A message's values are in braces, as the code names them. What a schema says of its keys is in docs/reference.
"""

import ast
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "messages"
NOTES = {"Problem": 1, "SyntaxProblem": 0, "wrong": 1, "complain": 1, "refuse": 1}  # where in the arguments the text is
PARSERS = ("space/syntax/expression_parser.py", "space/syntax/value_parser.py")  # wrong(message, help) at the token
CLASSES = {"UserError": ""}  # each class of errors, and the code that it has unless one is given


def text_of(node: ast.expr | None, known: dict[str, list[str]]) -> str:
    """The text that ``node`` is; empty where it is none that the code spells out.

    Args:
        node: what is given as a message or a help.
        known: texts of names and functions.
    """
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(one.value if isinstance(one, ast.Constant) else f"{{{ast.unparse(one.value)}}}"
                       for one in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        both = [text_of(one, known) or f"{{{ast.unparse(one)}}}" for one in (node.left, node.right)]
        return "".join(both)
    if isinstance(node, ast.IfExp):
        return " / ".join(filter(None, (text_of(node.body, known), text_of(node.orelse, known))))
    said = known.get(ast.unparse(node).partition("(")[0], []) if isinstance(node, ast.Name | ast.Call) else []
    return " / ".join(said)


def messages(tree: ast.Module, path: str) -> Iterator[tuple[str, str, str]]:
    """Code, function and text of each message in ``tree``."""
    taken = imported(tree)
    known = texts(tree, taken)
    for owner, node in inside(tree, ""):
        if isinstance(node, ast.Call):
            found = told(node, path, {**taken, **known.get("", {}), **known.get(owner, {})})
            if found is not None:
                yield found[0], owner, found[1]
        elif isinstance(node, ast.Return | ast.Yield) and isinstance(node.value, ast.Tuple):
            parts = [text_of(one, known.get(owner, {})) for one in node.value.elts]
            if "conflicts" in owner and len(parts) == 3 and parts[1]:
                yield "bad-value", owner, "; ".join(filter(None, parts[1:]))


def imported(tree: ast.Module) -> dict[str, list[str]]:
    """Texts that the functions which ``tree`` imports from the same room return."""
    files = {name.name: ROOT / f"{node.module.replace('.', '/')}.py" for node in tree.body
             if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scalesearch.space.binding.")
             for name in node.names}
    return {name: texts(ast.parse(file.read_text(encoding="utf-8")), {})[""].get(name, [])
            for name, file in files.items()}


def texts(tree: ast.Module, taken: dict[str, list[str]]) -> dict[str, dict[str, list[str]]]:
    """Texts that a function gives a name, by function; under "", those that each function returns.

    Args:
        taken: those that imported functions return.
    """
    found: dict[str, dict[str, list[str]]] = {"": {}}
    for owner, node in inside(tree, ""):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if said := text_of(node.value, taken):
                found.setdefault(owner, {}).setdefault(node.targets[0].id, []).append(said)
        elif isinstance(node, ast.Return) and (said := text_of(node.value, taken)):
            found[""].setdefault(owner, []).append(said)
    return found


def told(call: ast.Call, path: str, known: dict[str, list[str]]) -> tuple[str, str] | None:
    """Code and text of an error or a problem; None where ``call`` makes neither, or passes on another one's."""
    name = ast.unparse(call.func).rpartition(".")[2]
    given = {one.arg: one.value for one in call.keywords}
    at = 0 if name in CLASSES or path in PARSERS else NOTES.get(name)
    if at is None or (name not in CLASSES and name not in NOTES):
        return None
    at += name == "Unbuildable"
    said = text_of(given.get("message") or (call.args[at] if at < len(call.args) else None), known)
    if name == "SyntaxProblem":
        help = call.args[2] if len(call.args) > 2 else None
    else:
        help = call.args[at + 1] if len(call.args) > at + 1 else given.get("help")
    default = CLASSES.get(name) or ("bad-syntax" if path in PARSERS else "bad-value")
    code = given.get("code")
    code = code.value if isinstance(code, ast.Constant) else None if code else default
    return (str(code), "; ".join(filter(None, (said, text_of(help, known))))) if said and code else None


def inside(node: ast.AST, owner: str) -> Iterator[tuple[str, ast.AST]]:
    """Everything under ``node``, with the function that it is in, in the order of the file."""
    for child in ast.iter_child_nodes(node):
        name = child.name if isinstance(child, ast.FunctionDef | ast.ClassDef) else ""
        within = ".".join(filter(None, (owner, name)))
        yield within, child
        yield from inside(child, within)


def pages() -> dict[str, str]:
    """The text of each page, by the package that it is of."""
    trees = {path.relative_to(ROOT / "scalesearch").as_posix(): ast.parse(path.read_text(encoding="utf-8"))
             for path in sorted((ROOT / "scalesearch").rglob("*.py"))}
    for tree in trees.values():
        for one in ast.walk(tree):
            if isinstance(one, ast.ClassDef) and "UserError" in map(ast.unparse, one.bases):
                codes = [ast.literal_eval(line.value) for line in one.body
                         if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "code"]
                CLASSES[one.name] = codes[0] if codes else ""
    found: dict[str, list[str]] = {}
    for path, tree in trees.items():
        page = path.partition("/")[0] if "/" in path else "top"
        for code, owner, said in messages(tree, path):
            lines = textwrap.wrap(" ".join(said.split()), 112, break_long_words=False, break_on_hyphens=False)
            found.setdefault(page, []).append("\n".join([f"{code}  ({path}: {owner})", *(f"    {x}" for x in lines)]))
    return {name: "\n".join(dict.fromkeys(entries)) + "\n" for name, entries in found.items()}


def stale() -> list[str]:
    """The pages that differ from what the code says, or are missing, or left over."""
    there = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt")}
    now = pages()
    return [name for name in sorted({*there, *now}) if there.get(name) != now.get(name)]


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(f"stale: {', '.join(names)}; run python tools/messages.py" if (names := stale()) else 0)
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for name, text in pages().items():
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
