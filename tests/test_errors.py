"""Every error of the package has a code, whether it is raised, returned or noted."""

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import scalesearch
from scalesearch.errors import UserError
from scalesearch.space.syntax.diagnostics import ConfigError, Problem, SourcePosition, SourceText, UnbuildableError

ROOT = Path(scalesearch.__file__).parent
KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}


def calls() -> Iterator[tuple[str, ast.Call, str]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node, ast.unparse(
                    node.func).rpartition(".")[2]


def test_every_user_error_names_a_code() -> None:
    bare = [where for where, call, name in calls()
            if name == "UserError" and not any(one.arg == "code" for one in call.keywords)]
    assert sum(name == "UserError" for _, _, name in calls()) > 150, "they are found"
    assert not bare, "give each a code: one that is there, if it means the same"


def test_every_code_is_kebab_case() -> None:
    codes = [(where, one.value.value) for where, call, _ in calls() for one in call.keywords
             if one.arg == "code" and isinstance(one.value, ast.Constant)]
    assert len(codes) > 200 and not [one for one in codes if not KEBAB.fullmatch(one[1])]


def test_a_class_of_errors_stands_for_one_code() -> None:
    classes = {node.name: [ast.unparse(line) for line in node.body]
               for tree in TREES.values() for node in ast.walk(tree)
               if isinstance(node, ast.ClassDef) and "UserError" in map(ast.unparse, node.bases)}
    assert len(classes) > 5
    assert [name
            for name, body in classes.items()
            if not any(line.startswith("code = ")
                       for line in body)] == ["ConfigError"], "which has that of its first problem"


@pytest.mark.parametrize(
    "error",
    [UserError("wrong", code="no-study", key="data", help="right"),
     UnbuildableError("width", "too small"),
     ConfigError([Problem(SourcePosition(SourceText("a.yaml", "width: x"), 0, 7, 8), "not a number",
                          code="bad-value")]),
     ConfigError(message="a.yaml: gone", code="no-such-file")])
def test_a_code_survives_the_way_back_from_a_worker(error: UserError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, str(again)) == (
        type(error), error.code, str(error)) and error.code


def test_problems_lend_their_code_to_the_error_and_to_json() -> None:
    place = SourcePosition(SourceText("a.yaml", "wdith: 4"), 0, 0, 5)
    error = ConfigError([Problem(place, "unknown key `wdith`", code="unknown-key")])
    assert error.code == error.problems[0].to_json()[
        "code"] == "unknown-key" and "unknown-key" not in str(error)
