"""Placement of labels next to points, without covering labels, points, lines or the edge."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from scalesearch.report.figures.style import LABEL_BACKGROUND

# Offsets from the labeled point in points (1/72 inch), in the order of preference.
LABEL_OFFSETS = [(8, 0, "left", "center"), (6, 6, "left", "bottom"), (6, -6, "left", "top"),
                 (-8, 0, "right", "center"), (-6, 6, "right", "bottom"), (-6, -6, "right", "top"),
                 (0, 9, "center", "bottom"), (0, -9, "center", "top"), (16, 14, "left", "bottom"),
                 (16, -14, "left", "top"), (-16, 14, "right", "bottom"), (-16, -14, "right", "top"),
                 (0, 22, "center", "bottom"), (0, -22, "center", "top"),
                 (24, 26, "left", "bottom"), (24, -26, "left", "top"),
                 (-24, 26, "right", "bottom"), (-24, -26, "right", "top"),
                 (0, 36, "center", "bottom"), (0, -36, "center", "top")]
LINE_POINT_SPACING = 6.0  # pixels between the points that represent a line
MIN_LEADER_OFFSET = 10  # offset in points above which a line connects the label with its point
OVERLAP_COST = 4.0  # per square pixel shared with a label or outside the axes
COVERED_POINT_COST = 60.0  # per covered point


def place_labels(axes: Axes, labels: Sequence[tuple[float, float, str]],
                 points: Sequence[tuple[float, float]]) -> list[Annotation]:
    """Annotate points with labels at the offset with the lowest cost.

    Call it after the limits of the axes are set.

    Args:
        labels: (x, y, text) in data coordinates.
        points: points that should stay visible, in data coordinates.
    """
    canvas: Any = axes.figure.canvas  # of the Agg backend, which can measure text
    renderer = canvas.get_renderer()
    axes_box = axes.get_window_extent(renderer)
    obstacles = np.vstack([axes.transData.transform(np.reshape(points, (-1, 2))),
                           *_sample_lines(axes)])
    placed_boxes: list[Bbox] = []
    placed = []
    for x, y, text in sorted(labels):
        point = axes.transData.transform((x, y))
        best = None
        best_box = None
        best_leader = np.empty((0, 2))
        min_cost = np.inf
        for dx, dy, horizontal, vertical in LABEL_OFFSETS:
            has_leader = max(abs(dx), abs(dy)) > MIN_LEADER_OFFSET
            leader = {"arrowstyle": "-", "linewidth": 0.5, "color": "#777777"}
            annotation = axes.annotate(text, (x, y), (dx, dy), textcoords="offset points",
                                       ha=horizontal, va=vertical, fontsize="small", zorder=6,
                                       arrowprops=leader if has_leader else None,
                                       bbox=LABEL_BACKGROUND)
            annotation.update_positions(renderer)
            box = Text.get_window_extent(annotation, renderer).expanded(1.02, 1.1)
            # cost: area shared with labels, area outside the axes, covered points
            overlap = 0.0
            for placed_box in placed_boxes:
                shared = Bbox.intersection(box, placed_box)
                overlap += shared.width * shared.height if shared is not None else 0.0
            inside = Bbox.intersection(box, axes_box)
            outside = box.width * box.height
            if inside is not None:
                outside -= inside.width * inside.height
            leader_points = np.empty((0, 2))
            if has_leader:
                offset = np.array([dx, dy]) * axes.figure.dpi / 72
                leader_points = _sample_line(np.array([point, point + offset]))
            n_covered = _count_inside(box, obstacles) + sum(
                _count_inside(placed_box, leader_points) for placed_box in placed_boxes)
            cost = float(OVERLAP_COST * overlap + OVERLAP_COST * max(outside, 0.0)
                         + COVERED_POINT_COST * n_covered)
            if cost < min_cost:
                if best is not None:
                    best.remove()
                best = annotation
                best_box = box
                best_leader = leader_points
                min_cost = cost
            else:
                annotation.remove()
            if min_cost == 0:
                break
        assert best is not None and best_box is not None
        placed_boxes.append(best_box)
        obstacles = np.vstack([obstacles, best_leader])
        placed.append(best)
    return placed


def _sample_lines(axes: Axes) -> Iterator[np.ndarray]:
    """Yield (n, 2) points on each line and error bar, in display coordinates."""
    for line in axes.lines:
        yield _sample_line(line.get_transform().transform_path(line.get_path()).vertices)
    for bars in axes.collections:
        if isinstance(bars, LineCollection):  # error bars
            for bar in bars.get_segments():
                yield _sample_line(bars.get_transform().transform(bar))


def _count_inside(box: Bbox, points: np.ndarray) -> int:
    """Return the number of points inside of a box."""
    return int(((points >= box.min) & (points <= box.max)).all(axis=1).sum())


def _sample_line(vertices: np.ndarray) -> np.ndarray:
    """(n, 2) points on a line through ``vertices``, every few pixels."""
    segments = [np.linspace(a, b, max(2, int(np.hypot(*(b - a)) / LINE_POINT_SPACING)))
                for a, b in pairwise(vertices)]
    return np.vstack([np.empty((0, 2)), *segments])
