"""Figures of code and documentation, for a small repository."""

from tools import pages, reference
from tools.figures import GENERATED_PAGES, hand_written_words, measure

FILES = {
    "scalesearch/studies/loop.py": """from typing import Any

# A comment.

def run(plan: dict[str, Any], callback: Any) -> None:
    \"\"\"Run.

    A docstring of three lines.
    \"\"\"
    _step(plan)


def _step(plan):
    pass
""",
    "scalesearch/studies/config/reader.py": """def read(text):
    values: Mapping[str, Any] = {}
    return values
""",
    "tests/test_loop.py": """def test_run():
    with pytest.raises(UserError, match='wrong'):
        run(1)

def test_code():
    with pytest.raises(UserError) as info:
        run(1)
""",
}


PAGES = {
    "README.md": "# Name\n\nFour more words here.\n",
    "docs/index.md": "One\n<!-- results: board -->\n\n| a | b |\n\n<!-- end -->\ntwo\n",
    "docs/notebooks/study.md": "A cell.\n",
    "docs/reference/recipe.md": "A table.\n",
    "benchmarks/LOG.md": "A log.\n",
}


def test_words_of_hand_written_pages():
    assert hand_written_words(FILES | PAGES) == {"README.md": 6, "docs/index.md": 2}
    generated = {f"docs/{name}" for name in pages.PAGES} | {
        f"docs/reference/{file.name}" for file in reference.files() if file.suffix == ".md"}
    assert generated == GENERATED_PAGES


def test_figures_of_small_repository():
    figures = measure(FILES)
    assert figures["package: lines"] == "17"
    assert figures["package: lines of code"] == "8"
    assert figures["tests: lines of code"] == "6"
    assert figures["test functions"] == "2"
    assert figures["files under 60 lines"] == "2"
    assert figures["private functions called once"] == "1"
    assert figures["parameters of type `Any`"] == "1"
    assert figures["`dict[str, Any]` and `Mapping[str, Any]`"] == "2"
    assert figures["longest function"] == "6 (studies/loop.py:run)"
    assert figures["`raises` that match text"] == "1"
    assert figures["code of studies"] == "8"
