"""Acquisition values: gain per compute of a training run, by the compute that trials report."""

import numpy as np
import pytest

from scalesearch.samplers.trial_history import COMPUTE
from tests.samplers.pools import Searched


def acquisition_with(took):
    """The acquisition function after eight trials whose compute is ``took(params)``."""
    search = Searched("bayes")
    search.run(8)
    trials = search.study.get_trials(deepcopy=True)
    for trial in trials:
        if trial.state.name == "COMPLETE":
            trial.set_user_attr(COMPUTE, took(trial.values[1]))
    return search.study.sampler.acquisition_after(trials)[0]


def test_gain_is_divided_by_relative_compute():
    constant = acquisition_with(lambda params: 7.0)
    by_size = acquisition_with(lambda params: 0.01 * params)
    size = by_size.costs[by_size.pool_rows, 0]
    assert np.allclose(constant._relative_compute, 1)  # in units of the mean, whatever the unit
    assert np.corrcoef(
        np.log(size), np.log(by_size._relative_compute[by_size.pool_rows]))[0, 1] > 0.9
    assert by_size.new_values == pytest.approx(
        constant.new_values / by_size._relative_compute[by_size.pool_rows])


def test_training_runs_without_reported_compute_cost_the_same():
    search = Searched("bayes")
    search.run(8)
    assert (search.study.sampler.acquisition_after(search.trials)[0]._relative_compute == 1).all()
