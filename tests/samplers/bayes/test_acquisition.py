"""Acquisition values: gain per compute of a training run, by the compute that trials report."""

import numpy as np
import pytest

from scalesearch.samplers.bayes.acquisition import clip_failed
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


def test_losses_of_failed_runs_are_clipped():
    losses = np.array([1.0, 1.1, np.nan, 0.2, 0.9, 30.0, 1.2])
    clipped = clip_failed(losses)
    kept = [0, 1, 2, 3, 4, 6]
    assert np.array_equal(clipped[kept], losses[kept], equal_nan=True)  # also the best, 0.2
    assert 1.2 < clipped[5] < 3
    assert np.array_equal(clip_failed(losses[3:]), losses[3:])  # too few
    most_equal = np.array([1.0, 1.0, 1.0, 1.0, 5.0])
    assert np.array_equal(clip_failed(most_equal), most_equal)


def test_failed_run_does_not_widen_predictions():
    search = Searched("bayes").run(12)
    stds = []
    for score in (None, -1000.0):
        trials = search.study.get_trials(deepcopy=True)
        worst = min((trial for trial in trials if trial.state.name == "COMPLETE"),
                    key=lambda trial: trial.values[0])
        if score is not None:
            worst.values = [score, worst.values[1]]
        search.study.sampler._cached_acquisition = None
        acquisition, _ = search.study.sampler.acquisition_after(trials)
        stds.append(np.median(acquisition.predict_final()[2]))
    assert stds[1] < 10 * stds[0]


def test_front_includes_predicted_values_of_trials_in_training():
    search = Searched("bayes", shares=(0.3, 1.0)).run(8)
    resumed = search.start()
    resumed.set_user_attr("rungs", [0.5])
    started = search.start()
    acquisition, _ = search.study.sampler.acquisition_after(search.trials)
    real = acquisition.improvement
    pending = acquisition.pending_improvement
    row = len(acquisition.observed_trials)
    assert len(acquisition.pending.points) == 1  # ``started``; the other one has a loss
    costs = acquisition.costs[[row]]
    surrogates = acquisition._surrogates
    mean, std = acquisition._predict_final(surrogates, np.array([row]), -1, np.zeros(1))
    assert costs[0, 0] == started.user_attrs["costs"]["params.total"]
    certain = np.full_like(std, 1e-9)
    assert pending.expected(mean, certain, costs) == pytest.approx([0], abs=1e-9)
    best = mean - 10  # a trial in training that is better than all others
    assert real.expected(best, certain, costs)[0] > 0
    assert real.with_points(best, costs).expected(best, certain, costs) == pytest.approx(
        [0], abs=1e-6)
    row = next(row for row, trial in enumerate(acquisition.observed_trials)
               if trial.number == resumed.number)
    at_rung = np.log([0.5])
    mean, std = acquisition._predict_final(surrogates, np.array([row]), 0, at_rung)
    assert pending.expected(mean, certain, acquisition.costs[[row]]) == pytest.approx([0], abs=1e-9)


def test_parallel_workers_use_the_model_after_three_values():
    search = Searched("bayes")
    trials = [search.start() for _ in range(6)]
    models = []
    for trial in trials[:4]:
        models.append(search.study.sampler.acquisition_after(search.trials) is not None)
        search.end(trial)
    assert models == [False, False, False, True]
