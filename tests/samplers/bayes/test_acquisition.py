"""Prices: gain for the compute that a training takes, of its own size where trials say what they took."""

import numpy as np
import pytest

from scalesearch.samplers.trial_history import COMPUTE
from tests.samplers.pools import Searched


def priced(took):
    """A search after eight trials, each of which took ``took`` of its params."""
    search = Searched("bayes")
    search.run(8)
    trials = search.study.get_trials(deepcopy=True)
    for trial in trials:
        if trial.state.name == "COMPLETE":
            trial.set_user_attr(COMPUTE, took(trial.values[1]))
    return search.study.sampler.acquisition_after(trials)[0]


def test_a_gain_is_for_the_compute_that_it_takes():
    alike = priced(lambda params: 7.0)
    by_size = priced(lambda params: 0.01 * params)
    size = by_size.costs[by_size.pool_rows, 0]
    assert np.allclose(alike._relative_compute, 1)  # in units of the mean, whatever the unit
    assert np.corrcoef(
        np.log(size), np.log(by_size._relative_compute[by_size.pool_rows]))[0, 1] > 0.9
    assert by_size.new_values == pytest.approx(
        alike.new_values / by_size._relative_compute[by_size.pool_rows])


def test_without_what_trials_took_every_training_is_charged_alike():
    search = Searched("bayes")
    search.run(8)
    assert (search.study.sampler.acquisition_after(search.trials)[0]._relative_compute == 1).all()
