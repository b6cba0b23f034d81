"""Tests of the figures of a space under a budget."""

import pandas as pd

from scalesearch.report.figures.population import plot_cost_plane

PROTOCOL = {"name": "forward", "source": 30, "target": 30, "vocab": 32000}


def test_all_limits_are_drawn_or_named() -> None:
    sample = pd.DataFrame({"macs.total": [1e6, 2e6], "params.non_embedding": [1e5, 3e5],
                           "fits": [True, False]})
    limits = {"macs.total": 5e8, "params.non_embedding": 2e5, "params.total": 3e6}
    figure = plot_cost_plane(sample, [(1e6, 1e5)], limits, PROTOCOL, [(1.5e6, 2e5, "tiny")])
    (axes,), (legend,) = figure.axes, figure.legends
    assert axes.get_xlim()[1] > 5e8 and axes.get_ylim()[0] < 2e5 < axes.get_ylim()[1]
    labels = [text.get_text() for text in legend.get_texts()]
    assert "macs.total at most 500M" in labels and "params.non_embedding at most 200k" in labels
    assert any("params.total over 3M" in text for text in labels)
