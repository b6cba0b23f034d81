"""Diagrams of the site are drawn by ``tools/diagrams.py``."""

import pytest
from matplotlib.text import Annotation

from scalesearch.report.figures.style import figure_style
from tools.diagrams import DIAGRAMS, FIGURES, Box, draw_boxes


@pytest.mark.parametrize("name", DIAGRAMS)
def test_boxes_of_diagram_do_not_overlap_and_are_committed(name):
    assert (FIGURES / f"{name}.svg").is_file()
    with figure_style():
        axes = DIAGRAMS[name]().axes[0]
    bounds = [patch.get_bbox() for patch in axes.patches if hasattr(patch, "get_boxstyle")]
    assert len(bounds) >= 4
    for index, box in enumerate(bounds):
        assert not any(box.overlaps(other) for other in bounds[:index])


def test_arrows_connect_facing_sides():
    boxes = [Box(0, 0, 1, 1, "a", ""), Box(2, 0, 1, 1, "b", ""), Box(2, 2, 1, 1, "c", "")]
    with figure_style():
        texts = draw_boxes(3, 3, boxes, [(0, 1), (1, 2)]).axes[0].texts
    arrows = [text for text in texts if isinstance(text, Annotation)]
    assert [arrow.xy for arrow in arrows] == [(2, 0.5), (2.5, 2)]
    assert [arrow.xyann for arrow in arrows] == [(1, 0.5), (2.5, 1)]
