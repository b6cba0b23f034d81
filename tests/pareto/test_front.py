"""The front by its definition, on random points with ties and gaps."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.pareto import front, hypervolume
from scalesearch.pareto.front import UNRANKED, front_staircase, pareto_front, pareto_ranks

DIRECTIONS = st.lists(st.sampled_from(["min", "max"]), min_size=1, max_size=4)


@st.composite
def problems(draw):
    """Few values, so that rows tie and repeat; some are missing."""
    directions = draw(DIRECTIONS)
    value = st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0, np.nan])
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


@pytest.mark.parametrize("module", [front, hypervolume])
def test_docstring_examples(module):
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
