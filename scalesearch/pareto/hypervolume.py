"""Exact hypervolume: how much of objective space a set of points dominates up to a reference point, by moocore."""

from collections.abc import Sequence

import moocore
import numpy as np
from numpy.typing import NDArray

from scalesearch.pareto.front import to_losses

Points = NDArray[np.float64]


def hypervolume(values: Points, reference_point: Sequence[float],
                directions: Sequence[str]) -> float:
    """Volume that ``values`` (n, objectives) dominate up to ``reference_point``, in the product of their units.

    Points that do not beat the reference point in every objective, or have a NaN, add nothing.

    Raises:
        ValueError: the reference point is not finite or has another number of objectives.

    >>> hypervolume([[1.0, 50.0], [2.0, 60.0]], [5.0, 0.0], ["min", "max"])
    230.0
    """
    if len(reference_point) != len(directions) or not np.isfinite(reference_point).all():
        raise ValueError(f"a reference point needs {len(directions)} finite numbers, not "
                         f"{list(reference_point)}")
    corner = to_losses(np.asarray(reference_point, dtype=float), directions)[0]
    points = to_losses(values, directions)
    return float(moocore.hypervolume(points[(points < corner).all(axis=1)], ref=corner))


def default_reference_point(values: Points, directions: Sequence[str],
                            margin: float = 0.1) -> list[float]:
    """Reference point from data: the worst value of each objective, and a share ``margin`` of its range beyond it.

    To compare sets, compute it over all of them together.

    Raises:
        ValueError: no row of ``values`` (n, objectives) is complete.
    """
    points = to_losses(values, directions)
    points = points[~np.isnan(points).any(axis=1)]
    if not len(points):
        raise ValueError("there is no finished candidate to take a reference point from")
    spread = np.ptp(points, axis=0)
    corner = points.max(axis=0) + margin * np.where(spread > 0, spread, 1.0)
    return [float(number) for number in to_losses(corner, directions)[0]]
