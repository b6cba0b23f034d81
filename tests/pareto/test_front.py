"""The front by its definition, and the hypervolume against inclusion-exclusion and Optuna."""

import doctest
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.pareto import front
from scalesearch.pareto.front import (
    UNRANKED,
    default_reference_point,
    front_staircase,
    hypervolume,
    pareto_front,
    pareto_ranks,
)

DIRECTIONS = st.lists(st.sampled_from(["min", "max"]), min_size=1, max_size=4)


@st.composite
def problems(draw):
    """Few values, so that rows tie and repeat; some are missing or infinite."""
    directions = draw(DIRECTIONS)
    value = st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0, np.nan, np.inf, -np.inf])
    row = st.lists(value, min_size=len(directions), max_size=len(directions))
    return np.array(draw(st.lists(row, min_size=1, max_size=12)), dtype=float), directions


def beats(a, b, directions):
    better = [x > y if d == "max" else x < y for x, y, d in zip(a, b, directions)]
    worse = [x < y if d == "max" else x > y for x, y, d in zip(a, b, directions)]
    return any(better) and not any(worse)


@given(problems())
def test_front_is_not_dominated(problem):
    values, directions = problem
    complete = [row for row in values if not np.isnan(row).any()]
    expected = [not np.isnan(row).any()
                and not any(beats(other, row, directions) for other in complete) for row in values]
    assert pareto_front(values, directions).tolist() == expected


@given(problems())
def test_ranks_are_successive_fronts(problem):
    values, directions = problem
    rank = pareto_ranks(values, directions)
    assert (rank == UNRANKED).tolist() == np.isnan(values).any(axis=1).tolist()
    for level in range(rank.max() + 1):
        left = rank >= level
        assert pareto_front(values[left], directions).tolist() == (rank[left] == level).tolist()


def test_rows_with_a_missing_value_are_neither_ranked_nor_dominate():
    values = np.array([[1.0, np.nan], [2.0, 5.0], [3.0, 4.0]])
    assert pareto_ranks(values, ["min", "max"]).tolist() == [UNRANKED, 0, 1]
    assert pareto_front(values, ["min", "max"]).tolist() == [False, True, False]


def test_front_of_no_candidates_is_empty():
    assert pareto_front(np.empty((0, 2)), ["min", "max"]).tolist() == []


def test_staircase_goes_from_small_to_good_without_repeats():
    x = np.array([3.0, 1, 2, 2, 2])
    y = np.array([30.0, 10, 20, 20, 5])
    steps = front_staircase(x, y, ("min", "max"))
    assert [step.tolist() for step in steps] == [[1, 2, 3], [10, 20, 30]]


def test_unknown_direction_is_rejected():
    with pytest.raises(ValueError, match="'min' or 'max'"):
        pareto_front(np.ones((1, 1)), ["up"])


def test_docstring_examples():
    result = doctest.testmod(front)
    assert result.attempted and not result.failed


# -- hypervolume


@st.composite
def point_sets(draw, most=7):
    width = draw(st.integers(1, 5))
    row = st.lists(st.integers(0, 9), min_size=width, max_size=width)
    return np.array(draw(st.lists(row, min_size=1, max_size=most)), dtype=float)


def by_inclusion_exclusion(points, reference_point):
    total = 0.0
    for size in range(1, len(points) + 1):
        for chosen in combinations(points, size):
            total -= (-1) ** size * np.prod(np.maximum(reference_point - np.max(chosen, axis=0), 0))
    return total


@given(point_sets())
def test_equals_inclusion_exclusion(points):
    reference_point = np.full(points.shape[1], 8.0)
    volume = hypervolume(points, reference_point, ["min"] * points.shape[1])
    assert volume == pytest.approx(by_inclusion_exclusion(points, reference_point))


@settings(max_examples=30)
@given(point_sets(most=25))
def test_equals_optuna(points):
    from optuna._hypervolume import compute_hypervolume

    reference_point = np.full(points.shape[1], 10.0)
    expected = compute_hypervolume(points, reference_point)
    directions = ["min"] * points.shape[1]
    assert hypervolume(points, reference_point, directions) == pytest.approx(expected)


@given(point_sets(), st.data())
def test_negated_objective_changes_nothing(points, data):
    width = points.shape[1]
    directions = data.draw(st.lists(st.sampled_from(["min", "max"]), min_size=width,
                                      max_size=width))
    sign = np.where([direction == "max" for direction in directions], -1, 1)
    straight = hypervolume(points, [8.0] * width, ["min"] * width)
    assert hypervolume(points * sign, 8.0 * sign, directions) == pytest.approx(straight)


@given(point_sets(), point_sets())
def test_more_candidates_never_dominate_less(first, second):
    if first.shape[1] == second.shape[1]:
        reference_point = [10.0] * first.shape[1]
        directions = ["min"] * first.shape[1]
        both = hypervolume(np.vstack([first, second]), reference_point, directions)
        assert both >= hypervolume(first, reference_point, directions) - 1e-9


def test_points_beyond_the_reference_or_unknown_add_nothing():
    values = np.array([[1.0, 50.0], [9.0, 1.0], [np.nan, 99.0]])
    assert hypervolume(values, [5.0, 0.0], ["min", "max"]) == 4 * 50


@pytest.mark.parametrize("n_objectives", [1, 2, 3, 4])
def test_infinitely_good_points_have_an_infinite_hypervolume(n_objectives):
    values = np.array([[-np.inf, *[1.0] * (n_objectives - 1)], [0.0] * n_objectives])
    directions = ["min"] * n_objectives
    assert hypervolume(values, [2.0] * n_objectives, directions) == np.inf
    assert hypervolume(-values, [2.0] * n_objectives, directions) == 2.0**n_objectives


def test_reference_point_lies_beyond_every_candidate():
    values = np.array([[10.0, 1.0], [20.0, 3.0], [np.nan, 7.0]])
    assert default_reference_point(values, ["max", "min"]) == pytest.approx([9.0, 3.2])


@pytest.mark.parametrize("reference", [[1.0], [1.0, np.inf]])
def test_a_bad_reference_point_is_refused(reference):
    with pytest.raises(ValueError, match="2 finite numbers"):
        hypervolume(np.ones((1, 2)), reference, ["min", "min"])
