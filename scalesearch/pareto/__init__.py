"""Objectives, spread points, non-dominated fronts, hypervolume and noise.

It imports nothing of the package except errors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Distances = NDArray[np.float64]


@dataclass(frozen=True)
class Objective:
    """A named quantity that is minimized or maximized.

    Attributes:
        name: name of the metric or cost.
        direction: ``min`` or ``max``.
        is_measured: whether training measures it; otherwise its exact value is known before.

    Raises:
        ValueError: the direction is neither ``min`` nor ``max``.
    """

    name: str
    direction: Literal["min", "max"]
    is_measured: bool

    def __post_init__(self) -> None:
        if self.direction not in ("min", "max"):
            raise ValueError(
                f"{self.name}: the direction is `min` or `max`, not `{self.direction}`")

    @property
    def sign(self) -> int:
        """Factor with which smaller values are better."""
        return -1 if self.direction == "max" else 1

    @property
    def optuna_direction(self) -> Literal["minimize", "maximize"]:
        """The direction as Optuna names it."""
        return "maximize" if self.direction == "max" else "minimize"

    def __str__(self) -> str:
        return f"{self.name}: {self.direction}"


def farthest_points(distances_from: Callable[[int], Distances], selected: Sequence[int],
                    candidates: Sequence[int], count: int) -> list[int]:
    """Return the next points, each of which is the farthest from all points before it.

    Source: Gonzalez (1985), "Clustering to minimize the maximum intercluster distance".

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
