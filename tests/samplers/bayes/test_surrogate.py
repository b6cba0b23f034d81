"""The surrogate: it knows what it was told, doubts what is far, and sees which parameters matter."""

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


def sheets(count, seed=1):
    rng = random.Random(seed)
    found = [{name: sample_value(distribution, rng) for name, distribution in SPACE.items()}
             for _ in range(count)]
    for sheet in found:
        if sheet["norm"] == "post":
            del sheet["ratio"]  # asked of some only
    return found


def cost(sheet):
    return float(sheet["width"] ** 2 * sheet["depth"])


def score(sheet):
    return 3 * np.log(cost(sheet)) + 4 * (sheet["norm"] == "pre")


def points(sheets):
    return Coordinates.of([Candidate(sheet, {name: SPACE[name] for name in sheet})
                           for sheet in sheets], np.array([[cost(sheet)] for sheet in sheets]))


def fitted(known, new=(), of=score):
    everyone = points([*known, *new])
    return Surrogate(everyone[: len(known)],
                     np.array([of(sheet) for sheet in known])), everyone[len(known) :]


def test_words_are_one_apart_numbers_by_their_place_and_the_unasked_in_the_middle():
    same = {"width": 16, "depth": 1, "norm": "pre", "ratio": 1}
    found = points([same, {**same, "norm": "post"}, {**same, "width": 128},
                    {"width": 16, "depth": 1, "norm": "post"}])

    def apart(one, other, group):
        columns = found.groups == group
        return ((found.points[one, columns] - found.points[other, columns]) ** 2).sum()

    assert apart(0, 1, 2) == pytest.approx(1) and apart(0, 2, 0) == pytest.approx(1) and apart(
        0, 0, 0) == 0
    assert apart(0, 3, 3) == pytest.approx(0.25)
    assert len(set(found.groups)) == 5  # four parameters and a cost


def test_it_predicts_what_it_was_told_and_orders_what_it_was_not():
    known = sheets(40)
    new = sheets(30, seed=2)
    model, others = fitted(known, new)
    mean, _ = model.predict(model.observed)
    assert mean == pytest.approx([score(sheet) for sheet in known], abs=0.3)
    mean, _ = model.predict(others)
    real = np.array([score(sheet) for sheet in new])
    assert np.corrcoef(mean, real)[0, 1] > 0.98
    assert np.sqrt(np.mean((mean - real) ** 2)) < 0.2 * real.std()


def test_most_of_what_is_noisy_lies_in_its_interval():
    rng = np.random.default_rng(1)
    inside = []
    for seed in range(10):
        found = points(sheets(90, seed))
        values = 4 * found.points[:, 0] + rng.normal(0, 1.0, 90)
        model = Surrogate(found[:30], values[:30])
        mean, spread = model.predict(found[30:])
        doubt = np.sqrt(spread**2 + model.noise * model.unit**2)
        inside.append((abs(values[30:] - mean) < 1.645 * doubt).mean())
    assert 0.7 < np.mean(inside) < 0.98


def test_doubt_grows_with_distance_and_shrinks_where_others_are_in_training():
    known = [sheet for sheet in sheets(40) if sheet["width"] <= 32]
    near = dict(known[0])
    far = {**known[0], "width": 128, "depth": 6}
    model, new = fitted(known, [near, far, far])
    _, spread = model.predict(new)
    assert spread[0] < spread[1]
    _, less = model.predict(new[1:2], pending=new[2:])
    assert less[0] < 0.5 * spread[1]


def test_what_does_not_matter_has_a_long_scale():
    model, _ = fitted(sheets(60), of=lambda sheet: 4.0 * (sheet["norm"] == "pre"))
    names = list(SPACE)
    assert model.rates[names.index("norm")] > 3 * model.rates[names.index("width")]


def test_a_line_in_the_trend_goes_on_where_nothing_is_known():
    found = points(sheets(20))
    trend = np.linspace(-1, 1, 20)
    model = Surrogate(found.with_trend(trend), 3 * trend)
    mean, spread = model.predict(found.with_trend(np.full(20, 2.5)))
    assert mean == pytest.approx(np.full(20, 7.5), rel=0.25) and (spread > 0).all()


def test_equal_scores_and_two_points_are_no_trouble():
    model, new = fitted(sheets(2), sheets(3, seed=5), of=lambda sheet: 7.0)
    mean, spread = model.predict(new)
    assert mean == pytest.approx(np.full(3, 7.0)) and np.isfinite(spread).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.lists(st.floats(-2, 2), min_size=7, max_size=7))
def test_the_gradient_is_that_of_the_density(seed, logs):
    found = points(sheets(12, seed)).with_trend(np.linspace(-1, 1, 12))
    rng = np.random.default_rng(seed)
    density = surrogate._NegativeLogPosterior(found, rng.normal(size=12), rng.integers(1, 4, 12), 0.2,
                                   int(seed) % 3)
    at = np.array([*logs, -2.0])
    near = approx_fprime(at, lambda one: density(one)[0], 1e-6)
    assert density(at)[1] == pytest.approx(near, rel=1e-3, abs=1e-3)


def test_repeated_measurements_say_how_large_the_noise_is():
    rng = np.random.default_rng(1)
    found = points(sheets(40))
    values = 4 * found.points[:, 0] + rng.normal(0, 1.0, 40)
    noises = [model.noise * model.unit**2 for model in (
        Surrogate(found, values, noise=Noise(sd, 1000, 500)) for sd in (0.1, 1.0, 3.0))]
    assert noises == pytest.approx([0.01, 1.0, 9.0], rel=0.2)
    told = Surrogate(found, values, noise=Noise()).noise
    assert told == Surrogate(found, values).noise != Surrogate(
        found, values, noise=Noise(3.0, 2, 1)).noise


def test_a_mean_of_many_seeds_is_trusted_more_than_one_seed():
    found = points(sheets(30))
    values = np.random.default_rng(2).normal(size=30)
    counts = np.where(np.arange(30) == 7, 100.0, 1.0)
    off = abs(Surrogate(found, values, counts, Noise(1.0, 1000, 500)).predict(found)[0] - values)
    assert off[7] < 0.2 * np.median(off)


def test_the_kernel_is_one_at_no_distance_and_falls():
    line = np.linspace(0, 3, 7) ** 2
    values = matern52(line)
    assert values[0] == 1 and (np.diff(values) < 0).all() and (values > 0).all()
