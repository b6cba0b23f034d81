"""Tests of the figures of a space under a budget."""

import pandas as pd

from scalesearch.report.figures.population import plot_cost_plane, plot_feasible_shares

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
    assert "maximum params by MACs" in labels
    figure = plot_cost_plane(sample, [(1e6, 1e5)], limits, PROTOCOL, is_exact=False)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "maximum params by MACs, of the samples" in labels


def test_shares_are_in_the_order_of_effect_and_without_parameters_of_no_effect() -> None:
    shares = {"small": (0.5, 0.45), "none": (0.5, 0.5), "large": (0.9, 0.1)}
    values = pd.DataFrame([
        {"parameter": name, "value": value, "candidates": 10, "valid": 10,
         "feasible": 10 * share, "share": share, "verdict": ""}
        for name, pair in shares.items() for value, share in zip("ab", pair)])
    figure = plot_feasible_shares(values, is_exact=True)
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    assert titles == ["large", "small"]
    assert "2 of 3 parameters" in figure.get_supxlabel()
    assert "valid" in figure.get_supxlabel().partition("(")[0]
    labels = [text for axes in figure.axes for text in axes.texts]
    assert labels and all(label.get_bbox_patch().get_alpha() == 1 for label in labels)
