"""Puts labels beside points so that they cover neither each other, nor a point, nor the edge."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

# Offsets from the point in points, in the order of preference: a reader looks to the right first.
LABEL_OFFSETS = [(8, 0, "left", "center"), (6, 6, "left", "bottom"), (6, -6, "left", "top"),
                 (-8, 0, "right", "center"), (-6, 6, "right", "bottom"), (-6, -6, "right", "top"),
                 (0, 9, "center", "bottom"), (0, -9, "center", "top"), (16, 14, "left", "bottom"),
                 (16, -14, "left", "top"), (-16, 14, "right", "bottom"), (-16, -14, "right", "top"),
                 (0, 22, "center", "bottom"), (0, -22, "center", "top")]
LINE_POINT_SPACING = 6.0  # pixels between the points that stand for a line
MIN_LEADER_OFFSET = 10  # points of offset from which a line leads from the label to its point


def place_labels(axes: Axes, labels: Sequence[tuple[float, float, str]],
                 points: Sequence[tuple[float, float]]) -> list[Annotation]:
    """Writes each (x, y, text) beside its point, where it covers least; call it after the limits are set.

    Args:
        labels: in data coordinates.
        points: everything that should stay visible, in data coordinates.
    """
    canvas: Any = axes.figure.canvas  # Agg's, the only one that can measure a text
    renderer = canvas.get_renderer()
    inside = axes.get_window_extent(renderer)
    dots = axes.transData.transform(np.asarray(points, dtype=float).reshape(-1, 2))
    dots = np.vstack([dots, *(_along(line) for line in axes.lines)])
    taken: list[Bbox] = []
    placed = []
    for x, y, text in sorted(labels):
        best = None
        best_box = None
        least = np.inf
        for dx, dy, across, up in LABEL_OFFSETS:
            arrow = {"arrowstyle": "-", "linewidth": 0.5, "color": "#777777"} if max(
                abs(dx), abs(dy)) > MIN_LEADER_OFFSET else None
            note = axes.annotate(text, (x, y), (dx, dy), textcoords="offset points", ha=across,
                                 va=up, fontsize=8, zorder=6, arrowprops=arrow)
            note.update_positions(renderer)
            box = Text.get_window_extent(note, renderer).expanded(1.02, 1.1)
            covered = _covered(box, taken, dots, inside)
            if covered < least:
                if best is not None:
                    best.remove()
                best = note
                best_box = box
                least = covered
            else:
                note.remove()
            if least == 0:
                break
        assert best is not None and best_box is not None
        taken.append(best_box)
        placed.append(best)
    return placed


def _along(line: Line2D) -> np.ndarray:
    """Points a few pixels apart on a drawn line, in display coordinates."""
    vertices = np.asarray(line.get_transform().transform_path(line.get_path()).vertices,
                          dtype=float)
    spots = [np.linspace(a, b, max(2, int(np.hypot(*(b - a)) / LINE_POINT_SPACING)))
             for a, b in pairwise(vertices)]
    return np.vstack([np.empty((0, 2)), *spots])


def _covered(box: Bbox, taken: Sequence[Bbox], dots: np.ndarray, inside: Bbox) -> float:
    """How bad a place is: area shared with other labels, points under it, area outside the axes."""
    overlap = 0.0
    for other in taken:
        shared = Bbox.intersection(box, other)
        overlap += shared.width * shared.height if shared is not None else 0.0
    within = Bbox.intersection(box, inside)
    outside = box.width * box.height - (within.width * within.height if within is not None else 0.0)
    under = ((dots >= box.min) & (dots <= box.max)).all(axis=1).sum()
    return float(4 * overlap + 4 * max(outside, 0.0) + 60.0 * under)
