"""Tests of the figures of sweeps."""

import pandas as pd
import pytest

from scalesearch.report.figures.sweep import plot_contexts, plot_sweep
from tests.errors import refuses

PROTOCOL = {"name": "forward", "source": 30, "target": 20, "vocab": 100}


def table(**columns: list[object]) -> pd.DataFrame:
    return pd.DataFrame(columns)


def test_figure_has_line_per_section_and_panel_per_quantity() -> None:
    costs = {"params.total": [1, 4, 9], "macs.encoder": [0, 0, 0], "macs.decoder": [2, 3, 4],
             "macs.total": [2, 3, 4]}
    costs_table = table(width=[8, 16, 24], **costs)
    params, macs = plot_sweep(costs_table, ["width"], PROTOCOL).axes
    assert [list(line.get_ydata()) for line in params.lines] == [[1, 4, 9]]
    # sections without cost are not drawn
    assert [line.get_label() for line in macs.lines] == ["total", "decoder"]
    # a point on an axis is drawn whole
    assert not any(line.get_clip_on() for line in (*params.lines, *macs.lines))
    assert "S=30, T=20, V=100" in macs.get_ylabel() and macs.get_xlabel() == "width"


def test_length_sweep_shows_protocol_and_annotations() -> None:
    costs_table = table(source=[1, 2, 3], **{"params.total": [1] * 3, "macs.total": [1, 4, None]})
    (axes,) = plot_sweep(costs_table, ["source"], PROTOCOL, {2: "here", 9: "beyond"}).axes
    assert axes.get_xlabel() == "Source tokens S" and "T=20, V=100" in axes.get_ylabel()
    assert not axes.texts  # 2 is the end of the figure, 9 is outside
    (axes,) = plot_sweep(costs_table.fillna(9), ["source"], PROTOCOL, {2: "here", 9: "beyond"}).axes
    assert [text.get_text() for text in axes.texts] == ["here"]


def test_second_sweep_has_line_per_value() -> None:
    costs = {"params.total": [1, 2, 3, 4], "macs.total": [5, 6, 7, 8]}
    costs_table = table(width=[8, 8, 16, 16], kind=["a", "b"] * 2, **costs)
    params, macs = plot_sweep(costs_table, ["width", "kind"], PROTOCOL).axes
    assert {line.get_label(): list(line.get_ydata()) for line in macs.lines} == {
        "kind = a": [5, 7], "kind = b": [6, 8]}
    assert len({line.get_linestyle() for line in params.lines}) == 2


@pytest.mark.parametrize(("keys", "code"),
                         [(["a", "b", "c"], "too-many-sweeps"), (["a"], "nothing-to-plot")])
def test_invalid_sweeps_are_reported(keys: list[str], code: str) -> None:
    with refuses(code):
        plot_sweep(table(a=[1], **{"macs.total": [None]}), keys, PROTOCOL)


def test_long_sweep_has_logarithmic_axes_and_lines_through_the_curve() -> None:
    swept = table(length=[10, 1000], **{"macs.total": [100, 10**6]})
    curve = table(length=[10, 100, 1000], **{"macs.total": [100, 10**4, 10**6]})
    (axes,) = plot_sweep(swept, ["length"], PROTOCOL, curve=curve).axes
    line, markers = axes.lines
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert list(line.get_xdata()) == [10, 100, 1000] and line.get_marker() == "None"
    assert list(markers.get_xdata()) == [10, 1000] and markers.get_marker() == "o"


def test_contexts_have_a_panel_per_cost_and_a_line_per_architecture():
    rows = [{"length": n, "name": name, "macs.prefill": n * n * factor, "memory.cache": n * factor}
            for n in (10, 1000) for name, factor in (("a", 1), ("b", 3))]
    panels = plot_contexts(pd.DataFrame(rows), {**PROTOCOL, "cache": "int8"}).axes
    assert [axes.get_ylabel() for axes in panels] == ["Multiply-accumulates to read the context",
                                                      "Key-value cache (bytes, int8)"]
    for axes in panels:
        assert [line.get_label() for line in axes.lines] == ["a", "b"]
    assert list(panels[1].lines[1].get_ydata()) == [30, 3000]
