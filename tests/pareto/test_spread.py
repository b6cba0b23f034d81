"""Farthest-point sampling, by its definition."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from scalesearch.pareto import euclidean_distances, farthest_points

POINTS = arrays(float, st.tuples(st.integers(2, 12), st.integers(1, 3)),
                elements=st.integers(-4, 4))


@given(POINTS, st.data())
def test_each_point_is_the_farthest_from_all_before(points, data):
    indices = list(range(len(points)))
    selected = data.draw(st.lists(st.sampled_from(indices), min_size=1, unique=True))
    candidates = data.draw(st.lists(st.sampled_from(indices), unique=True))
    count = data.draw(st.integers(0, len(points)))
    order = farthest_points(euclidean_distances(points), selected, candidates, count)
    remaining = sorted(set(candidates) - set(selected))
    assert len(order) == min(count, len(remaining))
    for position, index in enumerate(order):
        before = points[[*selected, *order[:position]]]
        distances = {other: np.linalg.norm(before - points[other], axis=1).min()
                     for other in remaining if other not in order[:position]}
        assert index == max(distances, key=distances.__getitem__)
