"""The snapshot of the messages is current, and every error code is documented."""

from pathlib import Path

import pytest

from scalesearch.cli.check import check_space
from scalesearch.cli.options import load_space
from scalesearch.spaces import ConfigError
from tools.messages import Message, Package, entry, is_current
from tools.pages import load_errors

COMMAND = "run `python tools/messages.py` and review the changes of tests/messages.txt"


@pytest.fixture(scope="module")
def package() -> Package:
    return Package()


@pytest.mark.full
def test_snapshot_is_current() -> None:
    assert is_current(), f"tests/messages.txt is out of date: {COMMAND}"


@pytest.mark.full
def test_snapshot_has_a_message_of_every_code(package: Package) -> None:
    codes = {line.partition(" ")[0] for line in package.entries()}
    assert len(codes) > 150
    assert codes == package.codes()


@pytest.mark.full
def test_every_code_is_documented(package: Package) -> None:
    """Add or remove entries of tools/troubleshooting.toml, then run `python tools/pages.py`."""
    documented = set(load_errors().codes)
    assert sorted(package.codes() - documented) == [], "codes without an entry"
    assert sorted(documented - package.codes()) == [], "entries without a code"


@pytest.mark.parametrize("code", [
    "bad-range", "bad-syntax", "bad-value", "bad-variants", "cost-too-early", "depends-on-itself",
    "group-not-value", "missing-key", "never-true", "not-bytes", "not-yaml", "unbuildable",
    "unknown-function", "unknown-key", "unknown-name", "unknown-schedule", "unknown-variant",
    "unused-key"])
def test_documented_example_of_a_space_causes_the_error(code: str, tmp_path: Path) -> None:
    example = load_errors().codes[code]["example"]
    has_width = code == "missing-key" or "width" in example or "widht" in example
    file = tmp_path / "space.yaml"
    file.write_text(example if has_width else f"width: 64\n{example}")
    try:
        _, problems = check_space(load_space(str(file), ()), 10, 0, False)
    except ConfigError as error:
        problems = [*error.problems]
    assert code in {problem.code for problem in problems}


def messages_of(text: str) -> list[Message]:
    """The messages of a module with that text, next to those of the package."""
    return list(Package().add("api/example.py", text).messages())


@pytest.mark.full
def test_message_has_code_function_text_and_help() -> None:
    text = ("def f(n):\n    hint = 'try 2'\n"
            "    raise UserError(f'{n} is too ' + 'few', code='few', help=hint)\n")
    assert messages_of(text) == [Message("few", "f", "{n} is too few", "try 2")]


@pytest.mark.full
def test_class_and_function_defaults_give_the_code() -> None:
    text = ("class Missing(UserError):\n    code = 'missing'\n\n"
            "def report(place, message, help=None, code='bad-thing'):\n    ...\n\n"
            "def f(place):\n    report(place, 'is wrong', 'fix it')\n"
            "    raise Missing('is missing')\n")
    assert messages_of(text) == [Message("bad-thing", "f", "is wrong", "fix it"),
                                 Message("missing", "f", "is missing")]


@pytest.mark.full
def test_forwarded_error_is_not_a_message() -> None:
    assert messages_of("def f(error):\n    raise UserError(error.message, code=error.code)\n") == []


@pytest.mark.full
def test_expression_of_unknown_text_is_in_braces() -> None:
    text = "def f(trial):\n    raise UserError(trial.reason, code='infeasible')\n"
    assert messages_of(text) == [Message("infeasible", "f", "{trial.reason}")]


def test_entry_is_wrapped() -> None:
    lines = entry(Message("few", "f", "word " * 40, "try 2"), "a.py").split("\n")
    assert lines[0] == "few  a.py: f"
    assert lines[-1] == "    help: try 2"
    assert max(map(len, lines)) <= 100
