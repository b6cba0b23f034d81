"""Codes of errors: every error of the package has one."""

import ast
import pickle
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import scalesearch
from scalesearch.errors import UserError
from scalesearch.spaces.syntax.diagnostics import (
    ConfigError,
    Problem,
    SourcePosition,
    SourceText,
    UnbuildableError,
)

ROOT = Path(scalesearch.__file__).parent
KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@cache
def calls() -> list[tuple[str, str, list[ast.keyword]]]:
    """Place, name of the function and keywords of every call in the package."""
    return [(f"{path.relative_to(ROOT)}:{node.lineno}", ast.unparse(node.func).rpartition(".")[2],
             node.keywords)
            for path, tree in trees() for node in ast.walk(tree) if isinstance(node, ast.Call)]


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def test_every_user_error_has_a_code() -> None:
    without_code = [place for place, name, keywords in calls()
                    if name == "UserError"
                    and not any(keyword.arg == "code" for keyword in keywords)]
    assert sum(name == "UserError" for _, name, _ in calls()) > 150
    assert not without_code, "add a code; use an existing one if it has the same meaning"


def test_every_code_is_kebab_case() -> None:
    codes = [(place, keyword.value.value) for place, _, keywords in calls()
             for keyword in keywords
             if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)]
    assert len(codes) > 200
    assert not [(place, code) for place, code in codes if not KEBAB.fullmatch(code)]


def test_error_classes_have_one_code() -> None:
    classes = {node.name: [ast.unparse(line) for line in node.body]
               for _, tree in trees() for node in ast.walk(tree)
               if isinstance(node, ast.ClassDef) and "UserError" in map(ast.unparse, node.bases)}
    assert len(classes) > 5
    without_code = [name for name, body in classes.items()
                    if not any(line.startswith("code = ") for line in body)]
    assert without_code == ["ConfigError"], "its code is that of its first problem"


@pytest.mark.parametrize(
    "error",
    [UserError("wrong", code="no-study", key="data", help="right"),
     UnbuildableError("width", "too small"),
     ConfigError([Problem(SourcePosition(SourceText("a.yaml", "width: x"), 0, 7, 8), "not a number",
                          code="bad-value")]),
     ConfigError(message="a.yaml: gone", code="no-such-file")])
def test_error_code_survives_pickling(error: UserError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert error.code
    assert (type(copy), copy.code, str(copy)) == (type(error), error.code, str(error))


def test_config_error_has_the_code_of_its_first_problem() -> None:
    place = SourcePosition(SourceText("a.yaml", "wdith: 4"), 0, 0, 5)
    error = ConfigError([Problem(place, "unknown key `wdith`", code="unknown-key")])
    assert error.code == "unknown-key" == error.problems[0].code
    assert "unknown-key" not in str(error)
