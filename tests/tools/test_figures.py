"""Figures of the code for a repository of three files."""

from tools.figures import figures

FILES = {
    "scalesearch/study/loop.py": "from typing import Any\n\n\ndef run(plan: dict[str, Any]) -> None:\n    pass\n",
    "scalesearch/study/config/reader.py": "def read(text):\n    facts: Mapping[str, Any] = {}\n    return facts\n",
    "tests/test_loop.py": "def test_it():\n    with pytest.raises(UserError, match='wrong'):\n        run(1)\n\n"
    "def test_code():\n    with pytest.raises(UserError) as info:\n        run(1)\n",
}


def test_figures_of_a_small_repository():
    counts = figures(FILES)
    assert (counts["lines of the package"], counts["– study"], counts["files of the package"]) == (
        "8", "8", "2")
    assert counts["`dict[str, Any]`, `Mapping[str, Any]` in study"] == "2"
    assert counts["longest function, lines"] == "3 (study/config/reader.py:read)"
    assert (counts["`raises` that match prose"], counts["test functions"]) == ("1", "2")
