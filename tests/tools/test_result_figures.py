"""Figures of results are drawn from the committed numbers."""

import pytest

from tools.result_figures import DRAWINGS, FIGURES, parse_number, read_table


@pytest.mark.parametrize(("text", "number"), [
    ("212,328", 212328), ("16.7M", 16.7e6), ("763k", 763e3), ("13.4 ± 0.3", 13.4), ("0.78", 0.78)])
def test_number_of_a_cell(text, number):
    assert parse_number(text) == pytest.approx(number)


def test_first_table_below_heading_is_read():
    rows = read_table("## Fairness of a recipe")
    assert len(rows) == 16 and rows[0][:2] == ["plain 64", "0.18"] and len(rows[0]) == 11


@pytest.mark.parametrize("name", DRAWINGS)
def test_figure_is_drawn_and_committed(name):
    figure = DRAWINGS[name]()
    assert all(axes.has_data() for axes in figure.axes[:1])
    assert (FIGURES / f"{name}.svg").is_file()
