"""A scheduler with acquisition values: the highest first, among trials that can still finish."""

import math

import pytest

from scalesearch.pareto import Objective
from scalesearch.samplers.hypervolume_gp import AcquisitionValues, HypervolumeGP
from scalesearch.samplers.trial_history import rung_losses
from scalesearch.schedule import START_TRIAL, Rungs, Scheduler
from tests.samplers.pools import SPACE, Searched
from tests.samplers.trials import frozen

OBJECTIVES = (Objective("bleu", "max", True), Objective("params", "min", False))
RUNGS = Rungs((0.1, 0.3, 1.0), 2)
WAITING = [frozen(1, "PAUSED", rungs=(3.0,), costs={"params": 2}),
           frozen(2, "PAUSED", rungs=(3.0, 2.0), costs={"params": 1}),
           frozen(3, "RUNNING", rungs=(2.0,), costs={"params": 3})]


def chosen(new, paused, left=9.0, exhausted=False):
    scheduler = Scheduler(RUNGS, OBJECTIVES, lambda trials: AcquisitionValues(new, paused))
    return scheduler.next_action(WAITING, left, exhausted)


def test_highest_acquisition_value_is_chosen():
    assert chosen(0.1, {1: 0.2, 2: 0.3}).number == 2
    assert chosen(0.1, {1: 0.4, 2: 0.3}).number == 1
    assert chosen(0.5, {1: 0.4, 2: 0.3}) is START_TRIAL


def test_only_trials_that_can_finish_are_started():
    running = 0.35  # half of the compute that the third needs from its rung to the end
    assert chosen(0.5, {1: 0.4, 2: 0.3}, left=0.95 + running).number == 1
    assert chosen(0.5, {1: 0.4, 2: 0.3}, left=0.8 + running).number == 2  # 0.9 is left of the other
    assert chosen(0.5, {1: 0.4, 2: 0.3}, left=0.6 + running) is None
    assert chosen(0.5, {1: 0.4, 2: 0.3}, exhausted=True).number == 1
    assert chosen(0.5, {}, left=0.95 + running) is None


def test_dominated_trial_with_a_higher_value_is_promoted():
    """Large models are behind after short training, and ahead at the end."""
    waiting = [frozen(1, "PAUSED", rungs=(1.44,), costs={"params": 1}),
               frozen(2, "PAUSED", rungs=(1.49,), costs={"params": 3})]
    scheduler = Scheduler(RUNGS, OBJECTIVES,
                          lambda trials: AcquisitionValues(0.1, {1: 0.2, 2: 0.9}))
    assert scheduler.next_action(waiting, 9.0).number == 2


def test_promotions_without_acquisition_values_go_by_rank():
    scheduler = Scheduler(RUNGS, OBJECTIVES, lambda trials: None)
    action = scheduler.next_action(WAITING, 9.0)
    assert action is scheduler.next_action(WAITING, 9.0) or action is START_TRIAL


def ladder(count, ended):
    """``count`` trials of a real space, the first ``ended`` complete, the others paused."""
    search = Searched("bayes", shares=(0.1, 1.0))
    for number in range(count):
        trial = search.start()
        if number < ended:
            search.end(trial)
        else:
            size = trial.user_attrs["costs"]["params.total"]
            # every other one has diverged
            trial.set_user_attr("rungs", [1e5 / size if number % 2 else 1e9])
            trial.set_user_attr("paused", True)
    return search


def test_bayes_values_paused_trials():
    search = ladder(10, 6)
    sampler = search.study.sampler
    assert isinstance(sampler, HypervolumeGP) and SPACE is not None
    values = sampler.acquisition_values(search.trials)
    waiting = [trial for trial in search.started if trial.user_attrs.get("paused")]
    assert set(values.paused) == {trial.number for trial in waiting} and values.new >= 0
    good, bad = ([values.paused[trial.number]
                  for trial in waiting if (rung_losses(trial)[0] < 1e8) is well]
                 for well in (True, False))
    assert max(bad) <= max(good)
    assert ladder(6, 2).study.sampler.acquisition_values(ladder(6, 2).trials) is None
    again = ladder(10, 6)
    assert again.study.sampler.acquisition_values(again.trials) == values


@pytest.mark.full
def test_infinite_losses_and_rungs_of_another_ladder_are_accepted():
    search = ladder(10, 6)
    waiting = [trial for trial in search.started if trial.user_attrs.get("paused")]
    search.study._storage.set_trial_user_attr(waiting[0]._trial_id, "rungs", [math.inf])
    values = search.study.sampler.acquisition_values(search.trials)
    assert all(math.isfinite(value) for value in (values.new, *values.paused.values()))
    longer = ladder(10, 6)
    # no trial has a loss at the second
    longer.study.sampler.rung_shares = (0.1, 0.3, 1.0)
    assert longer.study.sampler.acquisition_values(longer.trials) is None
