"""The notebooks run, cell by cell, and show what they are kept with."""

import pytest

from tools.notebooks import FOLDER, read, run

TYPES = {"text/plain", "text/html", "image/png"}


@pytest.fixture
def wide(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_costs_and_what_fits_come_out_as_they_are_kept(wide):
    notebook = read(FOLDER / "small.ipynb")
    for cell, outputs in run(notebook):
        kept = [{key: value for key, value in one.items() if key != "execution_count"}
                for one in cell["outputs"]]
        assert outputs == kept, "".join(cell["source"])


@pytest.mark.slow
def test_a_study_comes_to_a_front_and_a_figure(wide):
    shown = [one for _, outputs in run(read(FOLDER / "study.ipynb")) for one in outputs]
    data = [one["data"] for one in shown if "data" in one]
    assert set().union(*data) == TYPES and (wide / "runs" / "tour" / "report.html").is_file()
    assert any("Front of tour" in "".join(one["text/plain"]) for one in data)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.ipynb")), ids=lambda file: file.name)
def test_every_cell_is_kept_with_what_it_shows(file):
    notebook = read(file)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert all(cell["outputs"] for cell in code) and (
        notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    data = [one["data"] for cell in code for one in cell["outputs"] if "data" in one]
    assert all(set(one) <= TYPES for one in data) and any("text/html" in one for one in data)
