"""Expected gains: equal to the difference of volumes where the loss is known, and to their mean where it is not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from scalesearch.pareto.hypervolume import hypervolume
from scalesearch.pareto.objective import Objective
from scalesearch.samplers.bayes.ehvi import expected_hypervolume_improvement
from scalesearch.samplers.bayes.hypervolume_improvement import HypervolumeImprovement

places = st.integers(0, 6).map(float)


def volume(points, corner):
    return hypervolume(points, list(corner), ["min"] * len(corner))


@given(st.data(), st.integers(1, 2))
def test_a_sure_loss_gains_the_difference_of_volumes(data, costs):
    front = data.draw(arrays(float, st.tuples(st.integers(0, 6), st.just(1 + costs)),
                               elements=places))
    one = data.draw(arrays(float, 1 + costs, elements=places))
    corner = np.full(1 + costs, 5.0)
    found = expected_hypervolume_improvement(one[:1], np.array([1e-9]), one[None, 1:], front,
                                             corner)
    assert found[0] == pytest.approx(volume(np.vstack([front, one]), corner)
                                     - volume(front, corner), abs=1e-6)


@pytest.mark.parametrize("costs", [1, 2])
def test_an_unsure_one_gains_the_mean(costs):
    rng = np.random.default_rng(3)
    front = rng.random((6, 1 + costs)) * 5
    own = rng.random((1, costs)) * 4
    corner = np.full(1 + costs, 5.0)
    drawn = rng.normal(2.0, 1.5, 4000)
    gains = [volume(np.vstack([front, [loss, *own[0]]]), corner) for loss in drawn]
    found = expected_hypervolume_improvement(np.array([2.0]), np.array([1.5]), own, front,
                                             corner)[0]
    error = np.std(gains) / np.sqrt(len(gains))
    assert found == pytest.approx(np.mean(gains) - volume(front, corner),
                                  abs=4 * error) and found > 0


@pytest.mark.parametrize("ways", [("max", "min"), ("min", "max")])
def test_directions_and_units_do_not_matter(ways):
    """What is turned round, or in another unit, gains as much of the box."""
    rng = np.random.default_rng(4)
    table = rng.random((8, 2))
    costs = rng.random((5, 1))
    mean = rng.random((5, 1))
    spread = rng.random((5, 1))
    plain = HypervolumeImprovement(
        table, costs, (Objective("loss", "min", True), Objective("params", "min", False)))
    signs = np.array([-1.0 if way == "max" else 1.0 for way in ways]) * [1.0, 1000.0]
    objectives = Objective("bleu", ways[0], True), Objective("x", ways[1], False)
    other = HypervolumeImprovement(table * signs, costs * signs[1], objectives)
    assert other.expected(mean, spread,
                          costs * signs[1]) == pytest.approx(plain.expected(mean, spread, costs))


def test_samples_of_several_measured_objectives_prefer_the_better():
    objectives = (Objective("bleu", "max", True), Objective("ms", "min", True),
                  Objective("params", "min", False))
    table = np.array([[20.0, 5.0, 10.0], [25.0, 9.0, 20.0]])
    costs = np.array([[8.0], [8.0], [25.0]])
    gains = HypervolumeImprovement(table, costs, objectives)
    found = gains.expected(np.array([[-24.0, 4.0], [-19.0, 6.0], [-15.0, 12.0]]),
                           np.full((3, 2), 0.5), costs)
    assert found[0] > found[1] >= found[2] >= 0
