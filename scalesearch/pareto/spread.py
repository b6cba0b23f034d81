"""Farthest-point sampling: points that are spread over a set.

Source: Gonzalez (1985), "Clustering to minimize the maximum intercluster distance".
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Distances = NDArray[np.float64]


def farthest_points(distances_from: Callable[[int], Distances], selected: Sequence[int],
                    candidates: Sequence[int], count: int) -> list[int]:
    """Return the next points, each of which is the farthest from all points before it.

    Args:
        distances_from: index of a point to its distances (n,) from all points.
        selected: indices of the first points, at least one.
        candidates: indices to choose from; of equal distances, the first is chosen.
        count: number of points to return, at most the number of candidates.
    """
    remaining = np.setdiff1d(np.asarray(candidates, dtype=int), selected)
    nearest = np.min([distances_from(index)[remaining] for index in selected], axis=0)
    order: list[int] = []
    for _ in range(min(count, len(remaining))):
        position = int(nearest.argmax())
        order.append(int(remaining[position]))
        nearest = np.minimum(nearest, distances_from(order[-1])[remaining])
        nearest[position] = -1.0  # it is selected
    return order


def euclidean_distances(points: NDArray[np.float64]) -> Callable[[int], Distances]:
    """Return a function from a row of ``points`` (n, features) to distances (n,)."""
    def distances_from(index: int) -> Distances:
        distances: Distances = np.linalg.norm(points - points[index], axis=1)
        return distances

    return distances_from
