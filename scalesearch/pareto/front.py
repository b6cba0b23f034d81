"""Non-dominated fronts and ranks for objectives of mixed direction, by moocore.

A row dominates another if it is nowhere worse and somewhere better (Deb et al., 2002, NSGA-II).
Equal rows do not dominate each other: all of them are on the front. A row with a NaN is on no front
and dominates nothing.
"""

from collections.abc import Sequence

import moocore
import numpy as np
from numpy.typing import NDArray

UNRANKED = -1


def to_losses(values: NDArray[np.float64], directions: Sequence[str]) -> NDArray[np.float64]:
    """``values`` (n, objectives) with signs turned so that smaller is better everywhere.

    Args:
        directions: ``"min"`` or ``"max"`` for every column.

    Raises:
        ValueError: a direction is neither, or there is not one for every column.
    """
    values = np.asarray(values, dtype=float).reshape(-1, len(directions))
    if not set(directions) <= {"min", "max"}:
        raise ValueError(f"directions are 'min' or 'max', not {list(directions)}")
    return values * np.where([direction == "max" for direction in directions], -1.0, 1.0)


def pareto_front(values: NDArray[np.float64], directions: Sequence[str]) -> NDArray[np.bool_]:
    """Mask (n,) of the rows of ``values`` (n, objectives) that no other row dominates.

    Mask out rows that may not be on the front, such as infeasible ones, by NaN: they then dominate
    nothing either.

    >>> pareto_front([[27.1, 1e6], [26.0, 2e6], [25.0, 5e5], [np.nan, 1e5]], ["max", "min"]).tolist()
    [True, False, True, False]
    """
    points = to_losses(values, directions)
    known = ~np.isnan(points).any(axis=1)
    mask = np.zeros(len(points), dtype=bool)
    mask[known] = moocore.is_nondominated(points[known], keep_weakly=True)
    return mask


def pareto_ranks(values: NDArray[np.float64], directions: Sequence[str]) -> NDArray[np.int64]:
    """Rank (n,) of every row: 0 on the front, 1 on the front of the others, and so on; ``UNRANKED`` with a NaN."""
    points = to_losses(values, directions)
    known = ~np.isnan(points).any(axis=1)
    ranks = np.full(len(points), UNRANKED)
    ranks[known] = moocore.pareto_rank(points[known])
    return ranks


def front_staircase(x: NDArray[np.float64], y: NDArray[np.float64],
              directions: tuple[str, str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners (x, y) of the front of two objectives, from the best ``x`` to the best ``y``, each once."""
    values = np.column_stack([x, y])
    points = np.unique(to_losses(values[pareto_front(values, directions)], directions), axis=0)
    corners = to_losses(points, directions)
    return corners[:, 0], corners[:, 1]
