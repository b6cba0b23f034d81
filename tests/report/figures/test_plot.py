"""Tests of trade-off figures: reproducible files, contents, and placement of labels."""

import itertools
from contextlib import nullcontext
from dataclasses import replace
from xml.etree import ElementTree

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Text

from scalesearch.report.figures.label_placement import place_labels
from scalesearch.report.figures.plot import (
    MAX_FRONT_LABELS,
    FigureContext,
    model_name,
    plot_tradeoff,
)
from scalesearch.report.figures.style import (
    FRONT_COLOR,
    figure_style,
    paper_style,
    save_figure,
)
from scalesearch.report.labels import COST_LABELS, axis_label
from scalesearch.spaces.schema.cost_names import COST_NAMES
from tests.report.trial_records import (
    OBJECTIVES,
    PROTOCOL,
    record,
    records,
    replicate,
    trials_table,
)

OBJECTIVE_PAIR = {"bleu": "max", "params.total": "min"}
CONTEXT = FigureContext(OBJECTIVES, PROTOCOL, {"params.total": 2e6}, "grammar", synthetic=True)


def study_table(*extra_records, **options):
    return trials_table([*records(**options), *extra_records], OBJECTIVES)


def test_equal_tables_give_equal_files(tmp_path):
    first = save_figure(plot_tradeoff(study_table(), CONTEXT, "params.total"), tmp_path / "a")
    second = save_figure(plot_tradeoff(study_table(), CONTEXT, "params.total"), tmp_path / "b")
    assert [file.suffix for file in first] == [".png", ".svg"]
    for file, other in zip(first, second):
        assert file.read_bytes() == other.read_bytes()
    assert first[0].read_bytes().startswith(b"\x89PNG") and ElementTree.parse(
        first[1]).getroot().tag.endswith("svg")


def test_axes_show_unit_protocol_and_synthetic_data():
    axes = plot_tradeoff(study_table(), CONTEXT, "macs.total").axes[0]
    assert axes.get_xlabel() == ("Multiply-accumulates per example\n"
                                 "(forward: 20 source, 18 target tokens, vocabulary 1,000)")
    assert axes.get_ylabel() == "BLEU (validation)\non grammar (synthetic)"
    assert axis_label("params.non_embedding",
                      PROTOCOL) == "Non-embedding parameters (vocabulary 1,000)"
    assert axis_label("artifact.bytes",
                      {**PROTOCOL, "artifact": "torch"}) == "Files of torch (bytes)"
    assert [axis_label(name, PROTOCOL) for name in COST_LABELS if "." in name] == [
        COST_LABELS[name] for name in COST_LABELS if "." in name]
    assert all(axis_label(name, PROTOCOL) for name in COST_NAMES)
    fitted = {**PROTOCOL, "fit": "ctranslate2-int8, batch 1, a device; fit 12 of 40"}
    assert axis_label("latency.predicted", fitted) == \
        "Predicted latency (ms per sentence)\n(ctranslate2-int8 on a device)"


@pytest.mark.parametrize(("widest", "scale"), [(6.2, "linear"), (7.0, "log")])
def test_axis_is_logarithmic_above_a_decade(widest, scale):
    table = study_table(record(90, 30.0, int(10**widest), 10**8), widest=6.2)
    assert plot_tradeoff(table, FigureContext(OBJECTIVES),
                         "params.total").axes[0].get_xscale() == scale


def test_front_steps_are_above_all_candidates():
    table = study_table()
    line = next(line for line in plot_tradeoff(table, CONTEXT, "params.total").axes[0].lines
                if line.get_label() == "Pareto front")
    x, y = line.get_data()
    assert line.get_color() == FRONT_COLOR and list(x) == sorted(x) and list(y) == sorted(y)
    for _, row in table[table["state"] == "complete"].iterrows():
        assert row["bleu"] <= max(b for a, b in zip(x, y) if a <= row["params.total"]) + 1e-9


def test_area_over_budget_is_shaded_for_limited_costs():
    def annotations(x):
        return {text.get_text()
                for text in plot_tradeoff(study_table(record(90, 30.0, 3_000_000, 5, feasible=False,
                                                      label="big")), CONTEXT, x).axes[0].texts}

    assert "over budget" in annotations("params.total")
    assert "over budget" not in annotations("macs.total")


def test_axes_of_neighboring_figures_are_aligned():
    """The labels of the x axes have one and two lines."""
    bounds = [plot_tradeoff(study_table(), CONTEXT, x).axes[0].get_position().bounds
              for x in ("params.total", "macs.total")]
    assert bounds[0] == bounds[1]


@pytest.mark.parametrize("scores", [(36.425, 36.43), (2.4, 2.5), (36.0, 90.0)])
def test_y_label_is_inside_figure(scores):
    """The label has two lines, next to ticks with many digits."""
    table = trials_table([record(number, score, 100 + number, 1000)
                          for number, score in enumerate(scores)], OBJECTIVES)
    figure = plot_tradeoff(table, replace(CONTEXT, corpus="multi30k en-de (distilled, mixed)"),
                           "params.total")
    figure.canvas.draw()
    assert figure.axes[0].yaxis.label.get_window_extent().x0 >= 0


def test_model_is_named_by_its_sizes():
    row = pd.Series({"trial": 8, "param.width": 96, "param.encoder.depth": 2,
                     "param.decoder.depth": 1})
    assert model_name(row) == "8: 2-1, width 96"
    assert model_name(row[["trial", "param.width"]]) == "8: width 96"
    assert model_name(row[["trial"]]) == "trial 8"


def test_references_are_labeled():
    table = study_table(record(50, 30.0, 900_000, 10**7, label="base"),
                 record(51, 20.0, 700_000, 10**7, label="tiny"))
    texts = {text.get_text()
             for text in plot_tradeoff(table, CONTEXT, "params.total").axes[0].texts}
    assert {"base", "tiny"} <= texts


@pytest.mark.parametrize("count", [3, 40])
def test_small_front_has_names_of_models(count):
    table = trials_table([record(number, 10.0 + number, 1000 + number, 10)
                          for number in range(count)], OBJECTIVE_PAIR)
    for named in (True, False):
        drawn = {text.get_text()
                 for text in plot_tradeoff(table, FigureContext(OBJECTIVE_PAIR), "params.total",
                                           label_front=named).axes[0].texts}
        assert drawn == ({f"{number}: width {8 * number}" for number in range(count)}
                         if named and count <= MAX_FRONT_LABELS else set())


def test_labels_of_close_points_do_not_overlap():
    figure = Figure(figsize=(5, 3.5), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    points = [(1 + 0.02 * i, 1 + 0.03 * (i % 3)) for i in range(7)]
    axes.scatter(*zip(*points))
    axes.set(xlim=(0, 2), ylim=(0, 2))
    figure.draw_without_rendering()
    labels = place_labels(axes, [(x, y, f"reference {i}") for i, (x, y) in enumerate(points)],
                          points)
    boxes = [Text.get_window_extent(label) for label in labels]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    axes_box = axes.get_window_extent()
    assert all(axes_box.x0 <= box.x0 and box.x1 <= axes_box.x1 for box in boxes)


def test_labels_do_not_cover_error_bars_or_lines_to_other_labels():
    figure = Figure(figsize=(5, 3.4), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    points = [(357, 24.5), (390, 25.8), (535, 26.7), (597, 27), (680, 28.5), (880, 29.5)]
    axes.errorbar(*zip(*points), yerr=1.2, fmt="none", capsize=2)
    axes.set(xlim=(310, 1300), ylim=(22, 32))
    figure.draw_without_rendering()
    labels = place_labels(axes, [(x, y, f"{x}: 2-2, width 64") for x, y in points], points)
    boxes = [Text.get_window_extent(label) for label in labels]
    for x, y in points:
        bar = Path(axes.transData.transform([(x, y - 1.2), (x, y + 1.2)]))
        assert not any(bar.intersects_bbox(box, filled=False) for box in boxes)
    figure.draw_without_rendering()  # updates the lines between points and labels
    lines = [label.arrow_patch for label in labels if label.arrow_patch is not None]
    assert lines
    for line in lines:
        path = line.get_transform().transform_path(line.get_path())
        assert sum(path.intersects_bbox(box, filled=False) for box in boxes) <= 1  # its own label


@pytest.mark.parametrize("style", [nullcontext, paper_style])
def test_axis_labels_are_inside_of_the_figure(style):
    protocol = {"name": "forward", "source": 19, "target": 20, "vocab": 1500}
    context = FigureContext(OBJECTIVE_PAIR, protocol=protocol)
    table = trials_table([record(0, 30.0, 10, 10), record(1, 31.0, 20, 20)])
    with style():
        figure = plot_tradeoff(table, context, "macs.total")
        figure.draw_without_rendering()
    label = figure.axes[0].xaxis.label.get_window_extent()
    assert figure.bbox.x0 <= label.x0 and label.x1 <= figure.bbox.x1


def test_texts_have_the_same_size_at_every_resolution():
    """Labels are placed at the resolution of the screen and drawn at that of files."""
    widths = []
    for dpi in (72, 100, 300):
        with figure_style():
            figure = Figure(dpi=dpi)
            FigureCanvasAgg(figure)
            label = figure.add_subplot().annotate("10: 2-2, width 64", (0, 0), fontsize="small")
            widths.append(label.get_window_extent().width / dpi)
    assert widths == pytest.approx([widths[0]] * 3, rel=0.01)


def bars(table, y="bleu"):
    """x to (low, high) of each error bar in a figure, limits of the y axis, and legend."""
    axes = plot_tradeoff(table, CONTEXT, "params.total", y).axes[0]
    drawn = {}
    for container in axes.containers:
        for segment in container.lines[2][0].get_segments():
            drawn[segment[0][0]] = (segment[0][1], segment[1][1])
    return drawn, axes.get_ylim(), [text.get_text() for text in axes.get_legend().get_texts()]


def test_means_have_error_bars_with_legend():
    cheap, expensive, worse, single_seed = (record(n, bleu, params, 10**7)
                                 for n, bleu, params in ((0, 20.0, 100_000), (1, 30.0, 300_000),
                                                         (2, 10.0, 200_000), (3, 33.0, 400_000)))
    table = trials_table([cheap, expensive, worse, single_seed, replicate(cheap, 4, 21.0),
                          replicate(expensive, 5, 28.0),
                          replicate(expensive, 6, 29.0)], OBJECTIVES, 0.9)
    drawn, (low, high), legend = bars(table)
    half = dict(zip(table["params.total"], table["bleu.half_width"]))
    assert set(drawn) == {100_000, 300_000, 400_000}, "bars of single seeds are only on the front"
    assert drawn[300_000] == pytest.approx((29 - half[300_000], 29 + half[300_000]))
    assert half[400_000] > half[100_000] > half[300_000] > 0
    assert low < min(a for a, _ in drawn.values()) and high > max(b for _, b in drawn.values())
    assert "90 % interval of the mean, pooled noise" in legend


@pytest.mark.parametrize(("metric", "height", "label"), [("bleu", None, "only the cost is known"),
                                                         ("loss", 4.5, "loss at the rung")])
def test_stopped_trials_are_not_part_of_front(metric, height, label):
    """The loss is measured at rungs, BLEU is not."""
    early = record(50, None, 12_000_000, 10**7,
                   "paused") | {"rungs": [{"loss": 5.5}, {"loss": 4.5}]}
    axes = plot_tradeoff(study_table(early, widest=6.2), CONTEXT, "params.total", metric).axes[0]
    drawn = next(points for points in axes.collections
                 if points.get_label() == f"stopped at a rung: {label}")
    (x, y), = drawn.get_offsets()
    low, high = axes.get_ylim()
    assert x == 12_000_000 < axes.get_xlim()[1] and low < y < high
    assert y == height if height else y < low + 0.1 * (high - low)
    stairs = [line for line in axes.lines if line.get_label() == "Pareto front"]
    assert all(max(line.get_xdata()[:-1]) < x for line in stairs)
    assert drawn.get_label() in {text.get_text() for text in axes.get_legend().get_texts()}


def test_full_legend_covers_nothing():
    first = record(0, 20.0, 100_000, 10**7)
    over = record(3, None, 300_000, 10**7, "infeasible", feasible=False)
    rows = [first, record(1, 30.0, 400_000, 10**7), record(2, 15.0, 300_000, 10**7), over,
            replicate(first, 4, 21.0), record(5, None, 200_000, 10**7, "paused"),
            record(6, 25.0, 390_000, 10**7, label="base", in_space=False)]
    axes = plot_tradeoff(trials_table(rows, OBJECTIVES), CONTEXT, "params.total").axes[0]
    box = axes.figure.bbox
    legend = axes.get_legend().get_window_extent()
    assert len(axes.get_legend().get_texts()) == 7
    assert legend.y0 >= axes.get_window_extent().y1 and legend.y1 <= box.y1
    assert box.x0 <= legend.x0 < legend.x1 <= box.x1


def test_single_seeds_have_no_error_bars():
    drawn, _, legend = bars(study_table())
    assert not drawn and not any("interval" in text for text in legend)


def test_single_candidate_is_drawn(tmp_path):
    table = trials_table([record(0, 0.0, 100, 1000)], OBJECTIVES)
    assert all(file.stat().st_size > 1000
               for file in save_figure(plot_tradeoff(table, CONTEXT, "params.total"),
                                       tmp_path / "one"))


def test_points_on_an_axis_are_drawn_whole():
    table = trials_table([record(1, 0.0, 100, 1000), record(2, 0.0, 200, 2000),
                          record(3, 12.0, 300, 3000)], OBJECTIVES)
    axes = plot_tradeoff(table, FigureContext(OBJECTIVES, PROTOCOL), "params.total").axes[0]
    points = [(collection, y) for collection in axes.collections
              for _, y in collection.get_offsets() if len(collection.get_paths()) == 1]
    assert any(y == axes.get_ylim()[0] == 0 for _, y in points)
    assert not any(collection.get_clip_on() for collection, _ in points)
