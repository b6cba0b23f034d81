"""Expected gain in hypervolume of candidates of which one objective is predicted and the others are known.

Closed form. What a candidate of known costs adds, as a function of its loss z, grows by the part of
cost space that it alone dominates among points of losses below z: a constant between two losses of
the front. So its expectation is a sum over those intervals of that part times E[max(0, interval's
end - z)] less that of the interval's start, of a normal z.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]
MAX_KNOWN_OBJECTIVES = 2


def expected_hypervolume_improvement(mean: Array, std: Array, costs: Array, front: Array,
                                     reference_point: Array) -> Array:
    """Expected gain (candidates,) in the product of the objectives' units; everything is to be minimized.

    Args:
        mean, std: (candidates,) of the predicted loss.
        costs: (candidates, 1 or 2) known exactly.
        front: (points, 1 + costs) losses and costs of what is there.
        reference_point: (1 + costs,) the reference point.
    """
    front = front[(front < reference_point).all(1)]
    front = front[np.argsort(front[:, 0], kind="stable")]
    alone = (_dominated_lengths if costs.shape[1] == 1 else _dominated_areas)(
        costs, front[:, 1:], reference_point[1:])
    # Ends of the intervals in which a constant number of points of the front dominates a candidate.
    ends = np.append(front[:, 0], reference_point[0])
    below = _expected_improvement_below(ends[None], mean[:, None], std[:, None])
    return np.asarray((alone * np.diff(below, axis=1, prepend=0.0)).sum(1))


def _expected_improvement_below(upper: Array, mean: Array, std: Array) -> Array:
    """E[max(0, end - z)] of normal z."""
    far = (upper - mean) / std
    return np.asarray(std * (far * ndtr(far) + np.exp(-0.5 * far**2) / np.sqrt(2 * np.pi)))


def _dominated_lengths(costs: Array, front: Array, reference_point: Array) -> Array:
    """(candidates, points + 1) length that a candidate dominates and none of the first so many points does."""
    least = np.minimum.accumulate(np.append(reference_point[0], front[:, 0]))
    return np.asarray(np.maximum(least[None] - costs, 0.0))


def _dominated_areas(costs: Array, front: Array, reference_point: Array) -> Array:
    """The same area: over strips of the first cost, up to the least second cost of those points that reach there."""
    edges = np.sort(front[:, 0])
    starts = np.append(-np.inf, edges)
    ends = np.append(edges, reference_point[0])
    # (points, strips)
    reach = np.where(front[:, :1] <= starts[None], front[:, 1:], reference_point[1])
    # (points + 1, strips)
    least = np.minimum.accumulate(np.vstack([np.full(len(starts), reference_point[1]), reach]))
    # (candidates, strips)
    widths = np.maximum(ends[None] - np.maximum(starts[None], costs[:, :1]), 0.0)
    heights = np.maximum(least[None] - costs[:, 1, None, None], 0.0)
    return np.asarray((heights * widths[:, None]).sum(2))

