"""Exact hypervolume that points dominate up to a reference point, by moocore."""

from collections.abc import Sequence

import moocore
import numpy as np
from numpy.typing import NDArray

from scalesearch.pareto.front import to_losses

Points = NDArray[np.float64]


def hypervolume(values: Points, reference_point: Sequence[float],
                directions: Sequence[str]) -> float:
    """Return the volume that ``values`` dominate, in the product of their units.

    Points that are not better than the reference point in every objective, or have a NaN, are
    ignored.

    Args:
        values: (n, objectives).
        reference_point: the reference point.
        directions: ``"min"`` or ``"max"`` per objective.

    Raises:
        ValueError: the reference point is not finite or has another number of objectives.

    >>> hypervolume([[1.0, 50.0], [2.0, 60.0]], [5.0, 0.0], ["min", "max"])
    230.0
    """
    if len(reference_point) != len(directions) or not np.isfinite(reference_point).all():
        raise ValueError(f"a reference point needs {len(directions)} finite numbers, not "
                         f"{list(reference_point)}")
    reference = to_losses(np.asarray(reference_point, dtype=float), directions)[0]
    points = to_losses(values, directions)
    return float(moocore.hypervolume(points[(points < reference).all(axis=1)], ref=reference))


def default_reference_point(values: Points, directions: Sequence[str],
                            margin: float = 0.1) -> list[float]:
    """Return a reference point: the worst value of each objective plus a margin.

    To compare sets of points, compute it over all sets together.

    Args:
        values: (n, objectives).
        directions: ``"min"`` or ``"max"`` per objective.
        margin: margin as a share of the range of the objective.

    Raises:
        ValueError: no row of ``values`` is complete.
    """
    points = to_losses(values, directions)
    points = points[~np.isnan(points).any(axis=1)]
    if not len(points):
        raise ValueError("no finished candidate: the reference point is undefined")
    ranges = np.ptp(points, axis=0)
    reference = points.max(axis=0) + margin * np.where(ranges > 0, ranges, 1.0)
    return [float(number) for number in to_losses(reference, directions)[0]]
