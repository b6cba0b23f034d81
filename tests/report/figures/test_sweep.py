"""Curves of a sweep: what is drawn is what was costed."""

import pandas as pd
import pytest

from scalesearch.report.figures.sweep import plot_sweep
from tests.errors import refuses

PROTOCOL = {"name": "forward", "source": 30, "target": 20, "vocab": 100}


def table(**columns: list[object]) -> pd.DataFrame:
    return pd.DataFrame(columns)


def test_a_line_for_each_section_and_a_panel_for_each_quantity() -> None:
    found = table(width=[8, 16, 24], **{"params.total": [1, 4, 9], "macs.encoder": [0, 0, 0], "macs.decoder": [2, 3, 4],
                                        "macs.total": [2, 3, 4]})  # fmt: skip
    params, macs = plot_sweep(found, ["width"], PROTOCOL).axes
    assert [list(line.get_ydata()) for line in params.lines] == [[1, 4, 9]]
    # nothing is drawn of what costs nothing
    assert [line.get_label() for line in macs.lines] == ["total", "decoder"]
    assert "S=30, T=20, V=100" in macs.get_ylabel() and macs.get_xlabel() == "width"


def test_lengths_name_what_is_held_and_mark_where_something_takes_over() -> None:
    found = table(source=[1, 2, 3], **{"params.total": [1] * 3, "macs.total": [1, 4, None]})
    (axes,) = plot_sweep(found, ["source"], PROTOCOL, {2: "here", 9: "beyond"}).axes
    assert axes.get_xlabel() == "Source tokens S" and "T=20, V=100" in axes.get_ylabel()
    assert [text.get_text() for text in axes.texts] == []  # 2 is where the figure ends, 9 beyond it
    (axes,) = plot_sweep(found.fillna(9), ["source"], PROTOCOL, {2: "here", 9: "beyond"}).axes
    assert [text.get_text() for text in axes.texts] == ["here"]


def test_a_second_sweep_is_a_line_for_each_value() -> None:
    costs = {"params.total": [1, 2, 3, 4], "macs.total": [5, 6, 7, 8]}
    found = table(width=[8, 8, 16, 16], kind=["a", "b"] * 2, **costs)
    params, macs = plot_sweep(found, ["width", "kind"], PROTOCOL).axes
    assert {line.get_label(): list(line.get_ydata()) for line in macs.lines} == {
        "kind = a": [5, 7], "kind = b": [6, 8]}
    assert len({line.get_linestyle() for line in params.lines}) == 2


@pytest.mark.parametrize(("keys", "code"),
                         [(["a", "b", "c"], "too-many-sweeps"), (["a"], "nothing-to-plot")])
def test_what_cannot_be_drawn(keys: list[str], code: str) -> None:
    with refuses(code):
        plot_sweep(table(a=[1], **{"macs.total": [None]}), keys, PROTOCOL)
