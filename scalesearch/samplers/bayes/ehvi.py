"""Expected hypervolume improvement (EHVI) with one predicted objective.

The other objectives are exact.

Closed form. The loss z of a candidate is normally distributed, its costs are exact. Between two
neighboring losses of the front, the improvement grows linearly as z decreases. The slope is the
part of cost space that the candidate dominates and no point of the front with a lower loss does.
The expectation is therefore a sum over these intervals: slope times the difference of
E[max(0, u - z)] between the upper and the lower end u of the interval.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]
MAX_KNOWN_OBJECTIVES = 2


def expected_hypervolume_improvement(mean: Array, std: Array, costs: Array, front: Array,
                                     reference_point: Array) -> Array:
    """Return the expected improvement (n,), in the product of the objectives' units.

    All objectives are minimized.

    Args:
        mean, std: (n,) mean and standard deviation of the predicted losses.
        costs: (n, k) exact costs, k = 1 or 2.
        front: (m, 1 + k) losses and costs of the front.
        reference_point: (1 + k,) losses and costs of the reference point.
    """
    front = front[(front < reference_point).all(1)]
    front = front[np.argsort(front[:, 0], kind="stable")]
    dominated_sizes = _dominated_lengths if costs.shape[1] == 1 else _dominated_areas
    slopes = dominated_sizes(costs, front[:, 1:], reference_point[1:])  # (n, m + 1)
    upper_ends = np.append(front[:, 0], reference_point[0])  # of the intervals, (m + 1,)
    # E[max(0, upper end - z)] for normal z, (n, m + 1)
    u = (upper_ends[None] - mean[:, None]) / std[:, None]
    density = np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)
    improvements = std[:, None] * (u * ndtr(u) + density)
    return np.asarray((slopes * np.diff(improvements, axis=1, prepend=0.0)).sum(1))


def _dominated_lengths(costs: Array, front: Array, reference_point: Array) -> Array:
    """Return the length of cost space that only a candidate dominates, for one cost.

    Entry (i, j) of the result (n, m + 1) compares candidate i with the first j points of the front.
    """
    lowest = np.minimum.accumulate(np.append(reference_point[0], front[:, 0]))
    return np.asarray(np.maximum(lowest[None] - costs, 0.0))


def _dominated_areas(costs: Array, front: Array, reference_point: Array) -> Array:
    """Return the area of cost space that only a candidate dominates, for two costs.

    As :func:`_dominated_lengths`. The first cost is divided into strips at the points of the front.
    In a strip, the height is limited by the lowest second cost of the points that dominate it.
    """
    edges = np.sort(front[:, 0])
    starts = np.append(-np.inf, edges)
    ends = np.append(edges, reference_point[0])
    # (m, strips)
    second_costs = np.where(front[:, :1] <= starts[None], front[:, 1:], reference_point[1])
    # (m + 1, strips)
    lowest = np.minimum.accumulate(
        np.vstack([np.full(len(starts), reference_point[1]), second_costs]))
    # (n, strips)
    widths = np.maximum(ends[None] - np.maximum(starts[None], costs[:, :1]), 0.0)
    heights = np.maximum(lowest[None] - costs[:, 1, None, None], 0.0)
    return np.asarray((heights * widths[:, None]).sum(2))
