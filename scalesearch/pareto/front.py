"""Non-dominated fronts, ranks and hypervolume for objectives of mixed direction, by moocore.

A row dominates another if it is nowhere worse and somewhere better (Deb et al., 2002, NSGA-II).
Equal rows do not dominate each other: all of them are on the front. A row with a NaN is on no front
and dominates nothing.
"""

from collections.abc import Sequence

import moocore
import numpy as np
from numpy.typing import NDArray

UNRANKED = -1
REFERENCE_MARGIN = 0.1  # margin of the reference point, as a share of the range


def to_losses(values: NDArray[np.float64], directions: Sequence[str]) -> NDArray[np.float64]:
    """Change the signs of ``values`` so that smaller is better in every column.

    Args:
        values: (n, objectives).
        directions: ``"min"`` or ``"max"`` per column.

    Raises:
        ValueError: a direction is invalid, or the number of directions is wrong.
    """
    values = np.asarray(values, dtype=float).reshape(-1, len(directions))
    if not set(directions) <= {"min", "max"}:
        raise ValueError(f"directions are 'min' or 'max', not {list(directions)}")
    return values * np.where([direction == "max" for direction in directions], -1.0, 1.0)


def pareto_front(values: NDArray[np.float64], directions: Sequence[str]) -> NDArray[np.bool_]:
    """Return the mask (n,) of non-dominated rows of ``values`` (n, objectives).

    Rows that may not be on the front, such as infeasible trials, are excluded by NaN; they then
    dominate no other row.

    >>> values = [[27.1, 1e6], [26.0, 2e6], [25.0, 5e5], [np.nan, 1e5]]
    >>> pareto_front(values, ["max", "min"]).tolist()
    [True, False, True, False]
    """
    points = to_losses(values, directions)
    is_complete = ~np.isnan(points).any(axis=1)
    mask = np.zeros(len(points), dtype=bool)
    mask[is_complete] = moocore.is_nondominated(_order(points[is_complete]), keep_weakly=True)
    return mask


def pareto_ranks(values: NDArray[np.float64], directions: Sequence[str]) -> NDArray[np.int64]:
    """Return the rank (n,) of every row.

    The rank is 0 on the front, 1 on the front of the other rows, and so on. Rows with a NaN have
    the rank ``UNRANKED``.
    """
    points = to_losses(values, directions)
    is_complete = ~np.isnan(points).any(axis=1)
    ranks = np.full(len(points), UNRANKED)
    ranks[is_complete] = moocore.pareto_rank(_order(points[is_complete]))
    return ranks


def _order(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace each number by its position among the sorted distinct numbers of its column.

    Dominance stays equal, and all numbers are finite, which moocore needs for three objectives.
    """
    positions = [np.unique(column, return_inverse=True)[1] for column in points.T]
    return np.stack(positions, axis=1).astype(float)


def front_staircase(
        x: NDArray[np.float64], y: NDArray[np.float64],
        directions: tuple[str, str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the distinct points (x, y) of a front, the best ``x`` first."""
    values = np.column_stack([x, y])
    points = np.unique(to_losses(values[pareto_front(values, directions)], directions), axis=0)
    front = to_losses(points, directions)
    return front[:, 0], front[:, 1]


def hypervolume(values: NDArray[np.float64], reference_point: Sequence[float],
                directions: Sequence[str]) -> float:
    """Return the volume that ``values`` dominate, in the product of their units.

    Rows that are not better than the reference point in every objective, or have a NaN, are
    ignored. A row that is infinitely better in an objective has an infinite volume.

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
    points = points[(points < reference).all(axis=1)]
    if np.isinf(points).any():
        return np.inf
    return float(moocore.hypervolume(points, ref=reference))


def default_reference_point(values: NDArray[np.float64], directions: Sequence[str]) -> list[float]:
    """Return a reference point: the worst value of each objective plus 10 % of its range.

    To compare sets of points, compute it over all sets together.

    Args:
        values: (n, objectives).
        directions: ``"min"`` or ``"max"`` per objective.

    Raises:
        ValueError: no row of ``values`` is complete.
    """
    points = to_losses(values, directions)
    points = points[~np.isnan(points).any(axis=1)]
    if not len(points):
        raise ValueError("no finished candidate: the reference point is undefined")
    ranges = np.ptp(points, axis=0)
    reference = points.max(axis=0) + REFERENCE_MARGIN * np.where(ranges > 0, ranges, 1.0)
    return [float(number) for number in to_losses(reference, directions)[0]]
