"""Forecasts of the hypervolume that further training runs gain."""

import numpy as np
import pytest

from scalesearch.samplers.bayes.hypervolume_improvement import forecast_hypervolume
from tests.samplers.pools import Searched


@pytest.fixture(scope="module")
def search():
    return Searched("bayes").run(8)


@pytest.fixture(scope="module")
def acquisition(search):
    return search.study.sampler.acquisition_after(search.trials)[0]


def test_forecast_grows_from_zero_with_the_number_of_runs(acquisition):
    means = [forecast_hypervolume(acquisition, count).mean for count in (0, 1, 2, 4, 8)]
    assert means[0] == 0 and means[-1] > 0
    # Sampled again for each count, so a mean may be a little below the one before.
    assert (np.diff(means) > -0.1 * means[-1]).all()


def test_mean_lies_in_its_interval_and_is_reproducible(acquisition, search):
    forecast = forecast_hypervolume(acquisition, 4)
    assert 0 <= forecast.low <= forecast.mean <= forecast.high and forecast.n_runs == 4
    assert search.study.sampler.forecast_gain(search.trials, 4) == forecast


def test_interval_holds_95_percent_of_other_samples(acquisition):
    forecast = forecast_hypervolume(acquisition, 4)
    improvement = acquisition.improvement
    rows, mean, std = acquisition.predict_final()
    best = np.argsort(-improvement.expected(mean, std, acquisition.costs[rows]),
                      kind="stable")[:4]
    samples = acquisition.sample_final(rows[best], mean[best], std[best], 1000,
                                       np.random.default_rng(1))
    growth = np.array([improvement.relative_growth(sample, acquisition.costs[rows[best]])
                       for sample in samples])
    inside = (growth >= forecast.low) & (growth <= forecast.high)
    assert inside.mean() == pytest.approx(0.95, abs=0.025)


def test_no_forecast_from_too_few_trials():
    search = Searched("bayes").run(2)
    assert search.study.sampler.forecast_gain(search.trials, 4) is None


def test_samples_of_single_points_match_the_prediction(acquisition):
    rows, mean, spread = acquisition.predict_final()
    samples = acquisition.sample_final(rows, mean, spread, 4000, np.random.default_rng(1))
    surrogate = acquisition._forecast_surrogates[0].levels[-1].surrogate
    noise = surrogate.noise_std
    assert samples.mean(0)[:, 0] == pytest.approx(mean[:, 0], abs=0.1 * float(spread.max() + noise))
    assert surrogate.interval_factor > 1
    assert samples.std(0)[:, 0] == pytest.approx(
        np.hypot(spread[:, 0], noise) * surrogate.interval_factor, rel=0.1)


def test_samples_of_equal_points_are_equal_up_to_noise(acquisition):
    rows, mean, spread = acquisition.predict_final()
    twice = np.repeat(rows[:1], 2)
    first, second = acquisition.sample_final(twice, mean[[0, 0]], spread[[0, 0]], 500,
                                              np.random.default_rng(1))[:, :, 0].T
    noise = acquisition._forecast_surrogates[0].levels[-1].surrogate.noise_std
    assert abs(first - second).std() < 3 * noise + 0.05 * spread[0, 0]


def test_paused_trials_are_predicted_too():
    search = Searched("bayes", shares=(0.3, 1.0)).run(6)
    waiting = search.start()
    waiting.set_user_attr("rungs", [0.5])
    waiting.set_user_attr("paused", True)
    acquisition = search.study.sampler.acquisition_after(search.trials)[0]
    rows, mean, spread = acquisition.predict_final()
    assert len(rows) == len(acquisition.pool_rows) + 1 == len(mean) == len(spread)
    assert forecast_hypervolume(acquisition, 3) is not None
