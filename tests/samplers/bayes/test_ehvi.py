"""Expected hypervolume improvement: the difference of volumes, averaged over the uncertain loss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from scalesearch.pareto import Objective
from scalesearch.pareto.front import hypervolume
from scalesearch.samplers.bayes.ehvi import expected_hypervolume_improvement
from scalesearch.samplers.bayes.hypervolume_improvement import HypervolumeImprovement

places = st.integers(0, 6).map(float)


def volume(points, reference_point):
    return hypervolume(points, list(reference_point), ["min"] * len(reference_point))


@given(st.data(), st.integers(1, 2))
def test_certain_loss_gains_the_difference_of_volumes(data, costs):
    front = data.draw(arrays(float, st.tuples(st.integers(0, 6), st.just(1 + costs)),
                               elements=places))
    point = data.draw(arrays(float, 1 + costs, elements=places))
    reference_point = np.full(1 + costs, 5.0)
    gain = expected_hypervolume_improvement(point[:1], np.array([1e-9]), point[None, 1:], front,
                                             reference_point)
    assert gain[0] == pytest.approx(volume(np.vstack([front, point]), reference_point)
                                     - volume(front, reference_point), abs=1e-6)


@pytest.mark.parametrize("costs", [1, 2])
def test_uncertain_loss_gains_the_mean(costs):
    rng = np.random.default_rng(3)
    front = rng.random((6, 1 + costs)) * 5
    own = rng.random((1, costs)) * 4
    reference_point = np.full(1 + costs, 5.0)
    losses = rng.normal(2.0, 1.5, 4000)
    gains = [volume(np.vstack([front, [loss, *own[0]]]), reference_point) for loss in losses]
    gain = expected_hypervolume_improvement(np.array([2.0]), np.array([1.5]), own, front,
                                             reference_point)[0]
    error = np.std(gains) / np.sqrt(len(gains))
    assert gain == pytest.approx(np.mean(gains) - volume(front, reference_point),
                                  abs=4 * error) and gain > 0


@pytest.mark.parametrize("ways", [("max", "min"), ("min", "max")])
def test_directions_and_units_do_not_matter(ways):
    """The gain is relative: the same for negated objectives and in other units."""
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
    gain = gains.expected(np.array([[-24.0, 4.0], [-19.0, 6.0], [-15.0, 12.0]]),
                           np.full((3, 2), 0.5), costs)
    assert gain[0] > gain[1] >= gain[2] >= 0


def test_sampling_evaluates_the_most_promising_of_many_candidates():
    """Two measured objectives: candidates behind the front are left out, not the best ones."""
    objectives = tuple(Objective(name, "min", True) for name in ("loss", "latency"))
    improvement = HypervolumeImprovement(np.array([[1.0, 3.0], [3.0, 1.0]]), np.empty((50, 0)),
                                         objectives)
    better = np.array([[0.5, 0.5], [1.5, 1.5]])
    mean = np.vstack([np.full((48, 2), 9.0), better])
    spread = np.full_like(mean, 0.1)
    gains = improvement.expected(mean, spread, np.empty((50, 0)))
    assert not gains[:48].any() and (gains[48:] > 0).all()
    assert gains[48:].tolist() == improvement.expected(better, spread[:2],
                                                       np.empty((2, 0))).tolist()
