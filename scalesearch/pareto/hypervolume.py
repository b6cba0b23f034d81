"""The exact hypervolume: how much of objective space a set of candidates dominates, up to a reference point.

The WFG algorithm (While, Bradstreet, Barone, 2012, "A fast way of calculating exact hypervolumes"): the volume of
a set is the sum of what each point adds to those after it. Exponential in the worst case, instant for the few
hundred points and up to four or five objectives of a study.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scalesearch.pareto.front import front, losses

Points = NDArray[np.float64]


def hypervolume(values: Points, reference: Sequence[float], directions: Sequence[str]) -> float:
    """Volume that ``values`` (n, objectives) dominate up to ``reference``, in the product of their units.

    Points that do not beat the reference point in every objective, or have a NaN, add nothing.

    Raises:
        ValueError: the reference point is not finite or has another number of objectives.
    """
    if len(reference) != len(directions) or not np.isfinite(reference).all():
        raise ValueError(f"a reference point needs {len(directions)} finite numbers, not {list(reference)}")
    corner = losses(np.asarray(reference, dtype=float), directions)[0]
    points = losses(values, directions)
    return _volume(points[(points < corner).all(axis=1)], corner)


def worst_corner(values: Points, directions: Sequence[str], margin: float = 0.1) -> list[float]:
    """A reference point from the data: each objective's worst value, a share ``margin`` of its range beyond.

    Use it to compare sets only when it is computed over all of them together.

    Raises:
        ValueError: no row of ``values`` (n, objectives) is complete.
    """
    points = losses(values, directions)
    points = points[~np.isnan(points).any(axis=1)]
    if not len(points):
        raise ValueError("there is no finished candidate to take a reference point from")
    spread = np.ptp(points, axis=0)
    corner = points.max(axis=0) + margin * np.where(spread > 0, spread, 1.0)
    return [float(number) for number in losses(corner, directions)[0]]


def _volume(points: Points, corner: Points) -> float:
    """Volume of losses (n, d) below ``corner`` (d)."""
    if not len(points):
        return 0.0
    points = np.unique(points, axis=0)
    points = points[front(points, ["min"] * points.shape[1])]
    if points.shape[1] == 1:
        return float(corner[0] - points[0, 0])
    if points.shape[1] == 2:
        return _area(points, corner)
    if points.shape[1] == 3:
        return _slabs(points, corner)
    if points.shape[1] == 4:
        return _swept(points, corner)
    return sum(_added(points[at], points[at + 1 :], corner) for at in range(len(points)))


def _area(points: Points, corner: Points) -> float:
    """Two objectives: the area under the stairs; ``points`` are non-dominated and sorted by the first one."""
    width = np.append(points[1:, 0], corner[0]) - points[:, 0]
    return float(width @ (corner[1] - points[:, 1]))


def _slabs(points: Points, corner: Points) -> float:
    """Three objectives: the area under the stairs of all points below, slab by slab along the third one.

    The same as by what each point adds, in a few array operations, for those who ask thousands of times.
    """
    points = points[np.argsort(points[:, 0])]
    heights, width = np.sort(points[:, 2]), np.append(points[1:, 0], corner[0]) - points[:, 0]
    below = points[:, 2] <= heights[:, None]
    depth = corner[1] - np.minimum.accumulate(np.where(below, points[:, 1], corner[1]), axis=1)
    return float((np.append(heights[1:], corner[2]) - heights) @ (depth @ width))


def _swept(points: Points, corner: Points) -> float:
    """Four objectives: slab by slab along the last one, the volume of all points below in the other three.

    Ten times as fast as by what each point adds, for the two hundred points that a front of four may have.
    """
    points = points[np.argsort(points[:, 3], kind="stable")]
    below, volume, total = points[:0, :3], 0.0, 0.0
    for point, depth in zip(points[:, :3], np.append(points[1:, 3], corner[3]) - points[:, 3]):
        if not (below <= point).all(axis=1).any():
            below = np.vstack([below[~(point <= below).all(axis=1)], point])
            volume = _slabs(below, corner[:3])
        total += float(depth) * volume
    return total


def _added(point: Points, others: Points, corner: Points) -> float:
    """What ``point`` dominates and none of ``others`` does."""
    return float(np.prod(corner - point)) - _volume(np.maximum(others, point), corner)
