"""Codes of errors: every error of the package has one."""

import ast
import pickle
import re
from dataclasses import dataclass, field
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
N_ARGUMENTS = {"read_text": 1, "write_text": 2}  # with the encoding
KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass
class Source:
    """Facts from the syntax trees of the package, which are too large to keep."""

    calls: list[tuple[str, str, list[ast.keyword]]] = field(default_factory=list)
    error_classes: dict[str, list[str]] = field(default_factory=dict)
    without_encoding: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def source() -> Source:
    """Place, function and keywords of every call; body of every class of errors."""
    source = Source()
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and "UserError" in map(ast.unparse, node.bases):
                source.error_classes[node.name] = [ast.unparse(line) for line in node.body]
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = getattr(function, "attr", getattr(function, "id", ""))
            place = f"{path.relative_to(ROOT)}:{node.lineno}"
            source.calls.append((place, name, node.keywords))
            n_arguments = len(node.args) + len(node.keywords)
            if isinstance(function, ast.Attribute) and n_arguments < N_ARGUMENTS.get(name, 0):
                source.without_encoding.append(place)
    return source


def test_encoding_of_every_text_file_is_given(source: Source) -> None:
    """Otherwise a file that one machine writes is read in another encoding elsewhere."""
    assert not source.without_encoding


def test_every_user_error_has_a_code(source: Source) -> None:
    without_code = [place for place, name, keywords in source.calls
                    if name == "UserError"
                    and not any(keyword.arg == "code" for keyword in keywords)]
    assert sum(name == "UserError" for _, name, _ in source.calls) > 150
    assert not without_code, "add a code; use an existing one if it has the same meaning"


def test_every_code_is_kebab_case(source: Source) -> None:
    codes = [(place, keyword.value.value) for place, _, keywords in source.calls
             for keyword in keywords
             if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)]
    assert len(codes) > 200
    assert not [(place, code) for place, code in codes if not KEBAB.fullmatch(code)]


def test_error_classes_have_one_code(source: Source) -> None:
    assert len(source.error_classes) > 5
    without_code = [name for name, body in source.error_classes.items()
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
