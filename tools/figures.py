"""Size and shape of code and documentation of git revisions: ``python tools/figures.py [REVISION …]``.

Prints one column per revision (default: HEAD). The files are read from git and parsed; nothing is
checked out, and no code runs.
"""

import argparse
import ast
import io
import re
import statistics
import subprocess
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "scalesearch/"
TESTS = "tests/"
FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED_NODES = (ast.Module, ast.ClassDef, *FUNCTION_NODES)
SHORT_FILE_LINES = 60
GENERATED_PAGES = {f"docs/{name}.md" for name in (
    "reference/command-line", "reference/data-file", "reference/recipe",
    "reference/space-language", "reference/study-file", "reference/synonyms",
    "results/discrepancies", "troubleshooting")}
GENERATED_TABLE = re.compile(r"<!-- (results|api): .*?<!-- end -->", re.S)
NO_CODE_TOKENS = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT,
                  tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


def read_files(revision: str) -> dict[str, str]:
    """Return path and text of every Python and Markdown file of a revision."""
    archived = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True,
                              capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        members = [member for member in archive
                   if member.isfile() and member.name.endswith((".py", ".md"))]
        return {member.name: archive.extractfile(member).read().decode() for member in members}


def measure(files: Mapping[str, str]) -> dict[str, str]:
    """Return name and value of each figure, for the files of a repository."""
    code = {path: text for path, text in files.items() if path.endswith(".py")}
    package = {path: text for path, text in code.items() if path.startswith(PACKAGE)}
    tests = {path: text for path, text in code.items() if path.startswith(TESTS)}
    trees = {path: ast.parse(text) for path, text in (package | tests).items()}
    package_trees = [trees[path] for path in package]
    lines = {path: text.count("\n") for path, text in package.items()}
    code_lines = {path: count_code_lines(text, trees[path])
                  for path, text in (package | tests).items()}
    functions = [node for tree in package_trees for node in ast.walk(tree)
                 if isinstance(node, FUNCTION_NODES)]
    lengths = {f"{path}:{node.name}": node.end_lineno - node.lineno + 1 for path in package
               for node in ast.walk(trees[path]) if isinstance(node, FUNCTION_NODES)}
    figures = {
        "package: lines": f"{sum(lines.values()):,}",
        "package: lines of code": f"{sum(code_lines[path] for path in package):,}",
        "tests: lines": f"{sum(text.count(chr(10)) for text in tests.values()):,}",
        "tests: lines of code": f"{sum(code_lines[path] for path in tests):,}",
        "test functions": f"{count_test_functions(trees[path] for path in tests):,}",
        "files": f"{len(package):,}",
        f"files under {SHORT_FILE_LINES} lines": str(
            sum(0 < count < SHORT_FILE_LINES for count in lines.values())),
        "classes": f"{count_nodes(package_trees, ast.ClassDef):,}",
        "functions": f"{len(functions):,}",
        "median statements per function": str(median_statements(functions)),
        "private functions called once": str(count_called_once(package_trees)),
        "`to_json` methods": str(sum(node.name == "to_json" for node in functions)),
        "parameters of type `Any`": str(sum(map(count_any_parameters, functions))),
        "`dict[str, Any]` and `Mapping[str, Any]`": str(sum(map(count_untyped_mappings,
                                                                package_trees))),
        "longest file": _largest(lines),
        "longest function": _largest(lengths),
        "`raises` that match text": str(sum(count_text_matches(trees[path]) for path in tests)),
        "words of hand-written pages": f"{sum(hand_written_words(files).values()):,}",
    }
    folders = Counter[str]()
    for path in package:
        folder = PurePosixPath(path).parts[1]
        folders[folder if not folder.endswith(".py") else "top level"] += code_lines[path]
    return figures | {f"code of {folder}": f"{count:,}"
                      for folder, count in sorted(folders.items())}


def hand_written_words(files: Mapping[str, str]) -> dict[str, int]:
    """Return path and number of words of README, CONTRIBUTING and each page of the site.

    Code counts; generated pages and tables do not.
    """
    return {path: len(GENERATED_TABLE.sub("", text).split()) for path, text in files.items()
            if path in ("README.md", "CONTRIBUTING.md")
            or (path.startswith("docs/") and path.endswith(".md")
                and not path.startswith("docs/notebooks/") and path not in GENERATED_PAGES)}


def count_code_lines(text: str, tree: ast.Module) -> int:
    """Return the number of lines that hold code: neither blank, comment nor docstring."""
    docstring_lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED_NODES) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            docstring_lines.update(range(docstring.lineno, docstring.end_lineno + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE_TOKENS:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines)


def median_statements(functions: Iterable[ast.FunctionDef]) -> float:
    """Return the median number of lines of a function's body, without the docstring."""
    lengths = []
    for function in functions:
        body = function.body
        if ast.get_docstring(function, clean=False) is not None:
            body = body[1:]
        lengths.append(body[-1].end_lineno - body[0].lineno + 1 if body else 0)
    return statistics.median(lengths)


def count_called_once(trees: Iterable[ast.Module]) -> int:
    """Return the number of private functions whose name the package mentions only once."""
    trees = list(trees)
    mentions = Counter(name for tree in trees for name in _mentioned_names(tree))
    return sum(isinstance(node, FUNCTION_NODES) and node.name.startswith("_")
               and not node.name.startswith("__") and mentions[node.name] == 1
               for tree in trees for node in ast.walk(tree))


def _mentioned_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def count_nodes(trees: Iterable[ast.Module], node_type: type[ast.AST]) -> int:
    """Return the number of syntax nodes of a type."""
    return sum(isinstance(node, node_type) for tree in trees for node in ast.walk(tree))


def count_test_functions(trees: Iterable[ast.Module]) -> int:
    """Return the number of test functions."""
    return sum(isinstance(node, FUNCTION_NODES) and node.name.startswith("test_")
               for tree in trees for node in ast.walk(tree))


def count_any_parameters(function: ast.FunctionDef) -> int:
    """Return the number of parameters with the annotation ``Any``."""
    parameters = function.args
    return sum(parameter.annotation is not None and ast.unparse(parameter.annotation) == "Any"
               for parameter in (*parameters.posonlyargs, *parameters.args,
                                 *parameters.kwonlyargs))


def count_untyped_mappings(tree: ast.Module) -> int:
    """Return the number of types that are mappings from names to any value."""
    return sum(isinstance(node, ast.Subscript)
               and ast.unparse(node).replace("(", "").replace(")", "")
               in ("dict[str, Any]", "Mapping[str, Any]") for node in ast.walk(tree))


def count_text_matches(tree: ast.Module) -> int:
    """Return the number of ``pytest.raises`` that compare the text of a message."""
    return sum(isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises"
               and any(keyword.arg == "match" for keyword in node.keywords)
               for node in ast.walk(tree))


def _largest(sizes: Mapping[str, int]) -> str:
    name = max(sizes, key=sizes.__getitem__)
    return f"{sizes[name]:,} ({name.removeprefix(PACKAGE)})"


def make_table(revisions: Iterable[str]) -> str:
    """Return the figures of several revisions next to each other, in Markdown."""
    columns = {revision: measure(read_files(revision)) for revision in revisions}
    names = dict.fromkeys(name for column in columns.values() for name in column)
    rows = [[name, *(column.get(name, "–") for column in columns.values())] for name in names]
    return tabulate(rows, ["", *columns], tablefmt="github", disable_numparse=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revisions", nargs="*", default=["HEAD"], metavar="REVISION")
    print(make_table(parser.parse_args().revisions))
