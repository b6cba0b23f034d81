"""Examples of the page on Python run, and the page names the whole API."""

import doctest
import inspect
import re

import pytest

import scalesearch as ss
from scalesearch.api.architecture import Architecture, Costs
from scalesearch.api.model import Model
from scalesearch.api.space import FeasibilityResult, SearchSpace, SolveResult
from scalesearch.api.study import Study
from tests.docs.blocks import ROOT, blocks
from tools.api import updated

PAGE = "docs/reference/python.md"
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def walk(folder, monkeypatch, slow):
    """Run the examples of the page in order; slow examples only with ``slow``."""
    monkeypatch.chdir(folder)
    names = {}
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    for block in blocks(PAGE):
        if block.mark.startswith("file:"):
            (folder / block.mark.removeprefix("file:").strip()).write_text(block.text)
        elif block.mark == "run" or (slow and block.mark == "run: slow"):
            test = doctest.DocTestParser().get_doctest(
                block.text, names, f"line {block.line}", PAGE, block.line)
            runner.run(test, clear_globs=False)
            names.update(test.globs)
    return runner


@pytest.mark.full
def test_quick_examples(tmp_path, monkeypatch):
    runner = walk(tmp_path, monkeypatch, slow=False)
    assert runner.tries > 25 and runner.failures == 0


@pytest.mark.slow
def test_all_examples(tmp_path, monkeypatch):
    runner = walk(tmp_path, monkeypatch, slow=True)
    assert runner.tries > 50 and runner.failures == 0


def test_page_names_all_public_names():
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    code = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`|```.*?```", text, flags=re.S))))
    assert [name for name in ss.__all__ if name not in code] == []
    for kind in (SearchSpace, Architecture, Costs, FeasibilityResult, SolveResult, Model, Study):
        own = [name for name, _ in inspect.getmembers(kind) if not name.startswith("_")]
        own += getattr(kind, "__dataclass_fields__", ())
        lost = sorted({name for name in own if name not in code} - {"ask", "space", "entries"})
        assert lost == [], f"{kind.__name__}: {lost}"


def test_tables_of_members_are_current():
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert updated(text) == text, "run `python tools/api.py`"
