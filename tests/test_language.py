"""The check of the house style reports violations and accepts clean files."""

import pytest

from tools import language


@pytest.mark.parametrize(("text", "rule"), [
    ("class AnswerSheet:\n    pass\n", "params, configuration, candidate"),
    ("def pick(cost):\n    billed = cost\n    return billed\n", "cost, evaluate the cost"),
    ("# Trials that nobody has seen.\n", "a user, no trial, any process that"),
    ('"""Quantise weights."""\n', "American spelling"),
    ('"""What fits is trained."""\n', "a noun before the relative clause"),
    ("# It takes 3 ms a sentence: see the log; 20 ms a sentence.\n", "per"),
    ("for one in ():\n    print(one)\n", "variables are named after what they hold"),
])
def test_violations_are_found_with_their_line(text, rule):
    violations = list(language.violations("scalesearch/example.py", "import math\n" + text))
    assert rule in {name for _, _, name, _ in violations}
    assert all(line >= 2 for _, line, _, _ in violations)


def test_plain_text_has_no_violations():
    text = ('"""Evaluate the cost of each candidate."""\n\n\ndef evaluate(candidates):\n    return '
            'len(candidates)\n')
    assert list(language.violations("scalesearch/example.py", text)) == []


def test_whole_package_is_checked_with_few_exceptions():
    assert "scalesearch/" in language.RULES["clean"]
    assert len(language.RULES["allow"]) <= 40
    assert all(language.RULES["allow"].values()), "each exception has a reason"


@pytest.mark.full
def test_clean_files_are_clean_and_listing_fails_otherwise(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["language.py"])
    assert language.main() == 0, capsys.readouterr().out
    monkeypatch.setattr(language, "files_at", lambda revision: {"scalesearch/a.py": "told = 1\n"})
    monkeypatch.setattr("sys.argv", ["language.py", "scalesearch/"])
    assert language.main() == 1
    assert "scalesearch/a.py:1: 'told'" in capsys.readouterr().out
