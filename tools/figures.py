"""Figures of the code of any git revision: ``python tools/figures.py [REVISION …]`` prints a column for each.

They are read from the revision's files by Python's parser: nothing is checked out, nothing runs.
Which types a candidate passes through is a matter of reading instead; :data:`TYPES` states it for
623782a and for now.
"""

import ast
import io
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "scalesearch/"
STUDY = "scalesearch/study/"
TESTS = "tests/"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
UNTYPED = ("dict", "Mapping")
# The study's own types between a space file and the front that hold a candidate, dicts of a fixed
# form counted.
TYPES = {
    "before": ("params", "Answers", "Architecture", "Cost", "bill.Candidate", "Seen", "Start", "Trial", "event", "Job",
               "Result", "record", "row", "confirm.Candidate", "facts.Candidate", "FrozenTrial",
               "FrozenTrial of a dashboard"),
    "after, each with a meaning of its own": (
        "Answers",  # what the space asked and was answered; params are those that a sampler chose
        "Architecture",  # what can be built of them
        "Cost",  # what that costs
        # all that a study knows; as JSON it is the event and, with the result, the record and the
        # row
        "Trial",
        "Result",  # what its training left
        "FrozenTrial",  # Optuna's, made anew from trials whenever a study is opened
    ),
    "after, parts and views of these": (
        "Sheet",  # params and their distributions, inside a sampler
        "Known",  # costs and constraints of a Trial, for a sampler that has not proposed it yet
        "Job",  # its folder and attempt, for a worker
        "Replicated",  # a Trial and its replicates
        "FrozenTrial of a dashboard",  # with parameters as they are, exported and never read back
    ),
}


def files_of(revision: str) -> dict[str, str]:
    """Path to text of every Python file of a revision."""
    done = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        members = [one for one in archive if one.isfile() and one.name.endswith(".py")]
        return {one.name: archive.extractfile(one).read().decode() for one in members}


def figures(files: Mapping[str, str]) -> dict[str, str]:
    """Name to figure, of the Python files of a repository."""
    package = {path: text for path, text in files.items() if path.startswith(PACKAGE)}
    trees = {path: ast.parse(text)
             for path, text in files.items() if path.startswith((PACKAGE, TESTS))}
    lines = {path: text.count("\n") for path, text in package.items()}
    tests = [tree for path, tree in trees.items() if path.startswith(TESTS)]
    folders = Counter(str(PurePosixPath(path).parent) for path in package)
    functions = {f"{path}:{name}": length for path in package
                 for name, length in _functions(trees[path])}
    rooms = Counter[str]()
    for path, count in sorted(lines.items()):
        rooms[path.split("/")[1]] += count
    return {
        "lines of the package": f"{sum(lines.values()):,}",
        **{f"– {room}": f"{count:,}" for room, count in rooms.items() if not room.endswith(".py")},
        "files of the package": f"{len(package):,}",
        "`dict[str, Any]`, `Mapping[str, Any]` in study": str(sum(
            map(_untyped, (tree for path, tree in trees.items() if path.startswith(STUDY))))),
        "largest folder, files": _largest(folders),
        "longest file, lines": _largest(lines),
        "longest function, lines": _largest(functions),
        "`raises` that match prose": str(sum(map(_prose, tests))),
        "test functions": str(sum(name.startswith("test_") for tree in tests for name, _ in _functions(tree))),
    }


def _functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Name and lines of every function."""
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            yield node.name, node.end_lineno - node.lineno + 1


def _untyped(tree: ast.AST) -> int:
    """How often a mapping of names to anything is written as a type."""
    return sum(isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
               and node.value.id in UNTYPED and ast.unparse(node.slice).strip("()") == "str, Any"
               for node in ast.walk(tree))


def _prose(tree: ast.AST) -> int:
    """How many ``pytest.raises`` compare the message."""
    return sum(isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises"
               and any(keyword.arg == "match" for keyword in node.keywords)
               for node in ast.walk(tree))


def _largest(sizes: Mapping[str, int]) -> str:
    name = max(sizes, key=sizes.__getitem__)
    return f"{sizes[name]:,} ({name.removeprefix(PACKAGE)})"


def table(revisions: Iterable[str]) -> str:
    """The figures of several revisions side by side, in Markdown."""
    columns = {revision: figures(files_of(revision)) for revision in revisions}
    names = sorted({name for column in columns.values() for name in column},
                   key=lambda name: (name[0] == "–", name))
    rows = [[name, *(column.get(name, "–") for column in columns.values())] for name in names]
    return tabulate(rows, ["", *columns], tablefmt="github", disable_numparse=True)


if __name__ == "__main__":
    print(table(sys.argv[1:] or ["HEAD"]))
    for when, types in TYPES.items():
        print(f"\nTypes of a candidate {when}: {len(types)}: {', '.join(types)}.")
