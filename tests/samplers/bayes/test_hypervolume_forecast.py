"""What further trainings may bring: nothing from none, no less from more, and near what does come."""

import numpy as np
import pytest

from scalesearch.samplers.bayes.hypervolume_forecast import forecast_hypervolume
from tests.samplers.pools import Searched


@pytest.fixture(scope="module")
def search():
    return Searched("bayes").run(8)


@pytest.fixture(scope="module")
def outlook(search):
    return search.study.sampler.acquisition_after(search.trials)[0]


def test_no_training_brings_nothing_and_more_bring_no_less(outlook):
    means = [forecast_hypervolume(outlook, count).mean for count in (0, 1, 2, 4, 8)]
    assert means[0] == 0 and means[-1] > 0
    # Drawn anew for each count: so a mean may be a little below the one before.
    assert (np.diff(means) > -0.1 * means[-1]).all()


def test_the_mean_is_inside_its_interval_and_the_same_each_time(outlook, search):
    found = forecast_hypervolume(outlook, 4)
    assert 0 <= found.low <= found.mean <= found.high and found.n_runs == 4
    assert search.study.sampler.forecast_gain(search.trials, 4) == found


def test_too_few_trials_say_nothing():
    search = Searched("bayes").run(2)
    assert search.study.sampler.forecast_gain(search.trials, 4) is None


def test_what_draws_say_of_single_points_is_what_is_foretold(outlook):
    rows, mean, spread = outlook.predict_final()
    drawn = outlook.sample_final(rows, mean, spread, 4000, np.random.default_rng(1))
    noise = outlook._surrogates[0].seed_std
    assert drawn.mean(0)[:, 0] == pytest.approx(mean[:, 0], abs=0.1 * float(spread.max() + noise))
    assert drawn.std(0)[:, 0] == pytest.approx(np.hypot(spread[:, 0], noise), rel=0.1)


def test_neighbors_are_drawn_alike(outlook):
    rows, mean, spread = outlook.predict_final()
    twice = np.repeat(rows[:1], 2)
    one, other = outlook.sample_final(twice, mean[[0, 0]], spread[[0, 0]], 500,
                                      np.random.default_rng(1))[:, :, 0].T
    noise = outlook._surrogates[0].seed_std
    assert abs(one - other).std() < 3 * noise + 0.05 * spread[0, 0]


def test_it_foretells_of_paused_trials_too():
    search = Searched("bayes", shares=(0.3, 1.0)).run(6)
    waiting = search.start()
    waiting.set_user_attr("rungs", [0.5])
    waiting.set_user_attr("paused", True)
    outlook = search.study.sampler.acquisition_after(search.trials)[0]
    rows, mean, spread = outlook.predict_final()
    assert len(rows) == len(outlook.pool_rows) + 1 == len(mean) == len(spread)
    assert forecast_hypervolume(outlook, 3) is not None
