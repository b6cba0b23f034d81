"""Notebooks run cell by cell and give their saved outputs."""

import pytest

from tools.notebooks import FOLDER, pages, read, run

TYPES = {"text/plain", "text/html", "image/png"}


@pytest.fixture
def wide(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.full
def test_outputs_of_cost_notebook_equal_saved_outputs(wide):
    notebook = read(FOLDER / "small.ipynb")
    for cell, outputs in run(notebook):
        kept = [{key: value for key, value in output.items() if key != "execution_count"}
                for output in cell["outputs"]]
        assert outputs == kept, "".join(cell["source"])


@pytest.mark.slow
def test_study_notebook_has_front_and_figure(wide):
    shown = [output for _, outputs in run(read(FOLDER / "study.ipynb")) for output in outputs]
    data = [output["data"] for output in shown if "data" in output]
    assert set().union(*data) == TYPES and (wide / "runs" / "tour" / "report.html").is_file()
    assert any("Front of tour" in "".join(output["text/plain"]) for output in data)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.ipynb")), ids=lambda file: file.name)
def test_all_cells_have_saved_outputs(file):
    notebook = read(file)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert all(cell["outputs"] for cell in code) and (
        notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    data = [output["data"] for cell in code for output in cell["outputs"] if "data" in output]
    assert all(set(output) <= TYPES for output in data) and any(
        "text/html" in output for output in data
    )


def test_pages_of_notebooks_are_current():
    stale = [file.name for file, content in pages().items() if file.read_bytes() != content]
    assert stale == [], "run `python tools/notebooks.py --pages`"
