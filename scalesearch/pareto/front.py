"""Which candidates are not dominated: fast non-dominated sorting for objectives of mixed direction.

NSGA-II's definition (Deb et al., 2002): ``a`` dominates ``b`` when it is nowhere worse and somewhere better.
Equal candidates do not dominate each other, so both stand on the front.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

UNRANKED = -1


def losses(values: NDArray[np.float64], directions: Sequence[str]) -> NDArray[np.float64]:
    """``values`` (n, objectives) with the signs turned so that smaller is better everywhere.

    Args:
        values: one row a candidate.
        directions: ``"min"`` or ``"max"`` for every column.

    Raises:
        ValueError: a direction is neither, or there is not one for every column.
    """
    values = np.asarray(values, dtype=float).reshape(-1, len(directions))
    if not set(directions) <= {"min", "max"}:
        raise ValueError(f"directions are 'min' or 'max', not {list(directions)}")
    return values * np.where([direction == "max" for direction in directions], -1.0, 1.0)


def dominates(points: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(n, n) of losses (n, objectives): entry (i, j) says whether i dominates j."""
    nowhere_worse = np.ones((len(points), len(points)), dtype=bool)
    somewhere_better = np.zeros_like(nowhere_worse)
    for column in points.T:  # one at a time: several times as fast as all in one array of three axes
        nowhere_worse &= column[:, None] <= column[None, :]
        somewhere_better |= column[:, None] < column[None, :]
    return np.logical_and(nowhere_worse, somewhere_better)


def ranks(values: NDArray[np.float64], directions: Sequence[str]) -> NDArray[np.int64]:
    """Front number of every row: 0 is the Pareto front, 1 what is left without it, and so on.

    A row with a missing value (NaN) is not ranked and gets ``UNRANKED``.
    """
    points = losses(values, directions)
    rank = np.full(len(points), UNRANKED)
    left = ~np.isnan(points).any(axis=1)
    over = dominates(points)
    for level in range(len(points)):
        if not left.any():
            break
        best = left & ~over[left].any(axis=0)
        rank[best], left = level, left & ~best
    return rank


def front(values: NDArray[np.float64], directions: Sequence[str]) -> NDArray[np.bool_]:
    """Which rows of ``values`` (n, objectives) no other row dominates; a row with a NaN is never among them."""
    points = losses(values, directions)
    known = ~np.isnan(points).any(axis=1)
    return np.logical_and(known, ~dominates(points)[known].any(axis=0))


def staircase(
    x: NDArray[np.float64], y: NDArray[np.float64], directions: tuple[str, str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The corner points of the two-objective front, from the best ``x`` to the best ``y``, each once."""
    values = np.column_stack([x, y])
    points = np.unique(losses(values[front(values, directions)], directions), axis=0)
    corners = losses(points, directions)
    return corners[:, 0], corners[:, 1]
