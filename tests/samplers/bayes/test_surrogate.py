"""The surrogate: it fits observed scores, is uncertain far from them, and weighs parameters."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, IntDistribution
from scipy.optimize import approx_fprime

from scalesearch.pareto.noise import Noise
from scalesearch.samplers.bayes import surrogate
from scalesearch.samplers.bayes.coordinates import Coordinates
from scalesearch.samplers.bayes.surrogate import Surrogate, matern52
from scalesearch.samplers.candidate import Candidate, sample_value

SPACE = {"width": IntDistribution(16, 128, log=True), "depth": IntDistribution(1, 6),
         "norm": CategoricalDistribution(("pre", "post")), "ratio": IntDistribution(1, 2)}


def random_params(count, seed=1):
    rng = random.Random(seed)
    rows = [{name: sample_value(distribution, rng) for name, distribution in SPACE.items()}
            for _ in range(count)]
    for params in rows:
        if params["norm"] == "post":
            del params["ratio"]  # a conditional parameter
    return rows


def cost(params):
    return float(params["width"] ** 2 * params["depth"])


def score(params):
    return 3 * np.log(cost(params)) + 4 * (params["norm"] == "pre")


def points(rows):
    return Coordinates.of([Candidate(params, {name: SPACE[name] for name in params})
                           for params in rows], np.array([[cost(params)] for params in rows]))


def fitted(observed, new=(), of=score):
    everyone = points([*observed, *new])
    return Surrogate(everyone[: len(observed)],
                     np.array([of(params) for params in observed])), everyone[len(observed) :]


def test_words_differ_by_one_and_missing_parameters_are_in_the_middle():
    same = {"width": 16, "depth": 1, "norm": "pre", "ratio": 1}
    coordinates = points([same, {**same, "norm": "post"}, {**same, "width": 128},
                    {"width": 16, "depth": 1, "norm": "post"}])

    def squared_distance(first, second, group):
        columns = coordinates.groups == group
        differences = coordinates.points[first, columns] - coordinates.points[second, columns]
        return (differences**2).sum()

    assert squared_distance(0, 1, 2) == pytest.approx(1)
    assert squared_distance(0, 2, 0) == pytest.approx(1) and squared_distance(0, 0, 0) == 0
    assert squared_distance(0, 3, 3) == pytest.approx(0.25)
    assert len(set(coordinates.groups)) == 5  # four parameters and a cost


def test_observed_scores_are_reproduced_and_new_ones_ranked():
    observed = random_params(40)
    new = random_params(30, seed=2)
    model, others = fitted(observed, new)
    mean, _ = model.predict(model.observed)
    assert mean == pytest.approx([score(params) for params in observed], abs=0.3)
    mean, _ = model.predict(others)
    real = np.array([score(params) for params in new])
    assert np.corrcoef(mean, real)[0, 1] > 0.98
    assert np.sqrt(np.mean((mean - real) ** 2)) < 0.2 * real.std()


@pytest.mark.parametrize("n_observed", [5, 10, 30])
def test_intervals_cover_noisy_scores(n_observed):
    rng = np.random.default_rng(1)
    inside = []
    for seed in range(40):
        coordinates = points(random_params(n_observed + 60, seed))
        values = 4 * coordinates.points[:, 0] + rng.normal(0, 0.3, n_observed + 60)
        model = Surrogate(coordinates[:n_observed], values[:n_observed])
        mean, spread = model.predict(coordinates[n_observed:])
        std = np.hypot(spread, model.noise_std) * model.interval_factor
        inside.append((abs(values[n_observed:] - mean) < 1.645 * std).mean())
    assert 0.86 < np.mean(inside) < 0.95


def test_uncertainty_grows_with_distance_and_shrinks_near_pending_points():
    observed = [params for params in random_params(40) if params["width"] <= 32]
    near = dict(observed[0])
    distant = {**observed[0], "width": 128, "depth": 6}
    model, new = fitted(observed, [near, distant, distant])
    _, spread = model.predict(new)
    assert spread[0] < spread[1]
    _, less = model.predict(new[1:2], pending=new[2:])
    assert less[0] < 0.5 * spread[1]


def test_irrelevant_parameters_have_long_length_scales():
    model, _ = fitted(random_params(60), of=lambda params: 4.0 * (params["norm"] == "pre"))
    names = list(SPACE)
    assert model.rates[names.index("norm")] > 3 * model.rates[names.index("width")]


def test_linear_trend_is_extrapolated():
    coordinates = points(random_params(20))
    trend = np.linspace(-1, 1, 20)
    model = Surrogate(coordinates.with_trend(trend), 3 * trend)
    mean, spread = model.predict(coordinates.with_trend(np.full(20, 2.5)))
    assert mean == pytest.approx(np.full(20, 7.5), rel=0.25) and (spread > 0).all()


def test_two_points_with_equal_scores_are_accepted():
    model, new = fitted(random_params(2), random_params(3, seed=5), of=lambda params: 7.0)
    mean, spread = model.predict(new)
    assert mean == pytest.approx(np.full(3, 7.0)) and np.isfinite(spread).all()


@settings(max_examples=20)
@given(st.integers(0, 1000), st.lists(st.floats(-2, 2), min_size=7, max_size=7))
def test_gradient_matches_finite_differences(seed, logs):
    coordinates = points(random_params(12, seed)).with_trend(np.linspace(-1, 1, 12))
    rng = np.random.default_rng(seed)
    density = surrogate._NegativeLogPosterior(coordinates, rng.normal(size=12),
                                              rng.integers(1, 4, 12), 0.2, seed % 3)
    logs = np.array([*logs, -2.0])
    near = approx_fprime(logs, lambda x: density(x)[0], 1e-6)
    assert density(logs)[1] == pytest.approx(near, rel=1e-3, abs=1e-3)


def test_noise_is_taken_from_repeated_measurements():
    rng = np.random.default_rng(1)
    coordinates = points(random_params(40))
    values = 4 * coordinates.points[:, 0] + rng.normal(0, 1.0, 40)
    noises = [model.noise * model.unit**2 for model in (
        Surrogate(coordinates, values, noise=Noise(sd, 1000, 500)) for sd in (0.1, 1.0, 3.0))]
    assert noises == pytest.approx([0.01, 1.0, 9.0], rel=0.2)
    default = Surrogate(coordinates, values, noise=Noise()).noise
    assert default == Surrogate(coordinates, values).noise != Surrogate(
        coordinates, values, noise=Noise(3.0, 2, 1)).noise


def test_mean_of_many_seeds_has_more_weight():
    coordinates = points(random_params(30))
    values = np.random.default_rng(2).normal(size=30)
    counts = np.where(np.arange(30) == 7, 100.0, 1.0)
    mean, _ = Surrogate(coordinates, values, counts, Noise(1.0, 1000, 500)).predict(coordinates)
    residuals = abs(mean - values)
    assert residuals[7] < 0.2 * np.median(residuals)


def test_kernel_decreases_from_one():
    squared_distances = np.linspace(0, 3, 7) ** 2
    values = matern52(squared_distances)
    assert values[0] == 1 and (np.diff(values) < 0).all() and (values > 0).all()


def test_leave_one_out_residuals_equal_predictions_without_each_point():
    rows = random_params(12)
    observed = points(rows)
    scores = np.array([score(params) for params in rows])
    fitted = Surrogate(observed, scores)
    residuals = fitted.leave_one_out_residuals()
    for left_out in range(12):
        others = np.arange(12) != left_out
        fitted.observed = observed[others]
        standardized = (scores - fitted.mean) / fitted.unit
        fitted.scores = standardized[others]
        fitted.counts = np.ones(11)
        predicted = fitted.predict(observed[[left_out]])[0][0]
        assert residuals[left_out] == pytest.approx(
            scores[left_out] - predicted, rel=1e-4, abs=1e-6)
