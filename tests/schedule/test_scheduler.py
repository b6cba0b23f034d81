"""The next action of a free worker: promotions, a reserve for paused trials, and the last one."""

import math
import operator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.pareto import Objective
from scalesearch.samplers.hypervolume_gp import AcquisitionValues
from scalesearch.samplers.trial_history import is_paused, rung_losses
from scalesearch.schedule import (
    N_FIRST_COMPLETE,
    NO_RUNGS,
    START_TRIAL,
    Rungs,
    Scheduler,
    is_promoted,
)
from tests.samplers.trials import frozen

OBJECTIVES = (Objective("bleu", "max", True), Objective("params", "min", False))
RUNGS = Rungs((0.1, 0.3, 1.0), 2)


def trial(number, state, params=1.0, rungs=(), bleu=None):
    return frozen(number, state, rungs=rungs, costs={"params": params},
                  values=None if bleu is None else [bleu, params])


def simulated(left, rungs, exhausted_after=math.inf, acquisition_values=None):
    """Run a study on one worker to its end; return the trials and the compute left."""
    scheduler = Scheduler(rungs, OBJECTIVES, acquisition_values)
    trials = []
    while (chosen := scheduler.next_action(trials, left,
                                           len(trials) >= exhausted_after)) is not None:
        number = len(trials) if chosen is START_TRIAL else chosen.number
        reached = () if chosen is START_TRIAL else rung_losses(chosen)
        left -= rungs.budget_to_rung(len(reached))
        losses = (*reached, 5.0 - math.log(number + 2) - len(reached))
        size = float(1 + number % 7)
        ended = len(losses) == len(rungs.shares)
        now = trial(number, "COMPLETE" if ended else "PAUSED", size, losses,
                    30.0 + number % 5 if ended else None)
        trials = [*trials[:number], now, *trials[number + 1 :]]
    return trials, left


def no_values(trials):
    """Return no acquisition values, as before the surrogate predicts final values."""


@given(st.floats(0.0, 12.0),
       st.sampled_from([RUNGS, Rungs(), Rungs.geometric(), Rungs((0.5, 1.0), 3)]),
       st.sampled_from([None, no_values]))
def test_compute_is_not_exceeded_and_some_trial_finishes(left, rungs, acquisition_values):
    trials, remaining = simulated(left, rungs, acquisition_values=acquisition_values)
    assert remaining >= -1e-6
    assert any(trial.state.name == "COMPLETE" for trial in trials) or left < 1 - 1e-9
    assert not trials or remaining < 1.0  # less than a training run remains


def test_every_trial_is_new_without_rungs():
    assert len(simulated(5.0, Rungs())[0]) == 5


def test_paused_trials_are_finished_when_the_space_is_exhausted():
    trials, _ = simulated(20.0, RUNGS, exhausted_after=6)
    assert len(trials) == 6 and not any(map(is_paused, trials))


@pytest.mark.parametrize("left, n_started, n_complete", [
    (5.0, 21, 3), (4.0, 12, 3), (3.0, 11, 2), (2.0, 9, 1), (1.0, 1, 1)])
def test_many_trials_are_started_and_a_few_are_finished_before_there_is_a_surrogate(
        left, n_started, n_complete):
    trials, _ = simulated(left, Rungs.geometric(), acquisition_values=no_values)
    assert len(trials) == n_started
    assert sum(trial.state.name == "COMPLETE" for trial in trials) == n_complete


@pytest.mark.parametrize("full_runs, n_complete", [
    (7.0, 3), (7.3, 4), (9.0, 5), (40.0, 5)])
def test_more_trials_are_trained_to_the_end_first_if_the_budget_is_large(full_runs, n_complete):
    """A surrogate is not used before, even if it predicts final values after three trials."""
    waiting = [trial(number, "PAUSED", 30.0 - number, (2.0 + number / 10,))
               for number in range(10, 30)]
    complete = [trial(number, "COMPLETE", 5.0 + number, (2.0, 1.9, 1.8), 20.0)
                for number in range(n_complete)]
    scheduler = Scheduler(RUNGS, OBJECTIVES, lambda trials: AcquisitionValues(1.0, {}))
    spent = 0.1 * len(waiting) + n_complete
    assert scheduler.next_action([*complete, *waiting], full_runs - spent) is START_TRIAL
    if n_complete > 3:
        before = [*complete[1:], trial(0, "PAUSED", 5.0, (2.0,)), *waiting]
        assert is_paused(scheduler.next_action(before, full_runs - spent + 0.9))


def test_first_rungs_cost_at_most_half_of_the_budget():
    scheduler = Scheduler(Rungs((0.4, 1.0)), OBJECTIVES, no_values)
    early = [trial(number, "PAUSED", 1.0 + number, (3.0,)) for number in range(12)]
    assert scheduler.next_action(early[:11], 10 - 11 * 0.4) is START_TRIAL
    assert scheduler.next_action(early, 10 - 12 * 0.4) is not START_TRIAL
    # references that were complete before the search cost nothing
    references = [frozen(number, "COMPLETE", values=[20.0, 3.0]) for number in range(100, 130)]
    assert scheduler.next_action([*references, early[0]], 9.6) is START_TRIAL


@pytest.mark.parametrize("state, losses, expected", [
    ("PAUSED", (3.0,), False), ("PAUSED", (3.0, 2.0), True), ("RUNNING", (), False),
    ("RUNNING", (3.0,), True), ("COMPLETE", (3.0, 2.0, 1.0), True), ("COMPLETE", (), False),
    ("FAIL", (3.0, 2.0), False)])
def test_promoted_trials_have_continued_from_the_first_rung(state, losses, expected):
    bleu = 20.0 if state == "COMPLETE" else None
    assert is_promoted(trial(0, state, 1.0, losses, bleu)) == expected


def test_first_promotions_leave_the_budget_of_promoted_trials_in_training():
    training = trial(0, "RUNNING", 5.0, (2.0,))  # trains from 0.1 to 0.3; 0.7 follow
    waiting = trial(1, "PAUSED", 9.0, (2.5,))  # 0.9 to the end
    scheduler = Scheduler(RUNGS, OBJECTIVES, no_values)
    assert scheduler.next_action([training, waiting], 1.2) is None
    assert scheduler.next_action([training, waiting], 1.6).number == 1


def test_first_promotions_add_the_most_hypervolume_at_the_rung():
    """Not a dominated trial, one that repeats a complete one, or one that has diverged."""
    waiting = [trial(0, "COMPLETE", 1.0, (4.0, 3.0, 2.5), 20.0), trial(1, "PAUSED", 8.0, (2.0,)),
               trial(2, "PAUSED", 9.0, (2.1,)), trial(3, "PAUSED", 1.01, (3.95,)),
               trial(4, "PAUSED", 20.0, (math.inf,)), frozen(5, "COMPLETE", values=[25.0, 9.0])]
    scheduler = Scheduler(RUNGS, OBJECTIVES, no_values)
    assert scheduler.next_action(waiting, 0.95).number == 1
    # before there is a promoted one: the best of the most expensive third
    assert scheduler.next_action(waiting[1:], 2.75, exhausted=True).number == 2
    # without the budget for several: the trial with the most hypervolume
    assert scheduler.next_action(waiting[1:], 1.6, exhausted=True).number == 1
    # a promoted trial is trained to the end
    further = [*waiting[:2], trial(2, "PAUSED", 9.0, (2.1, 1.9)), *waiting[3:]]
    assert scheduler.next_action(further, 1.85).number == 2


@pytest.mark.parametrize("left, expected", [(1.8, 2), (10.0, 1)])
def test_last_promotions_add_hypervolume_in_costs_and_earlier_ones_in_their_logarithms(
        left, expected):
    trials = [trial(0, "COMPLETE", 100.0, (2.0, 1.8, 1.7), 20.0), trial(1, "PAUSED", 1.0, (3.0,)),
              trial(2, "PAUSED", 50.0, (2.4,))]
    scheduler = Scheduler(RUNGS, OBJECTIVES, no_values)
    assert scheduler.next_action(trials, left, exhausted=True).number == expected


@pytest.mark.parametrize("losses", [(2.0,), (2.0, 1.5)])
def test_further_workers_promote_by_rank_while_the_first_ones_are_trained_to_the_end(losses):
    trials = [trial(number, "RUNNING", 5.0, losses) for number in range(N_FIRST_COMPLETE)]
    trials += [trial(number, "PAUSED", 30.0 - number, (2.0 + number / 10,))
               for number in range(N_FIRST_COMPLETE, 21)]
    ranked = Scheduler(RUNGS, OBJECTIVES).next_action(trials, 10.0)
    assert ranked is not START_TRIAL
    assert Scheduler(RUNGS, OBJECTIVES, no_values).next_action(trials, 10.0) is ranked


def test_trials_promoted_by_rank_are_not_all_trained_to_the_end():
    trials = [*(trial(number, "RUNNING", 5.0, (2.0, 1.5)) for number in range(N_FIRST_COMPLETE)),
              trial(N_FIRST_COMPLETE, "PAUSED", 5.0, (2.5, 2.4))]
    assert Scheduler(RUNGS, OBJECTIVES, no_values).next_action(trials, 10.0) is START_TRIAL


def test_trials_that_cannot_be_finished_are_not_started():
    promoted = [trial(number, "PAUSED", 5.0, (2.0, 1.5)) for number in range(3)]
    scheduler = Scheduler(RUNGS, OBJECTIVES, no_values)
    assert scheduler.next_action(promoted, 0.5) is None
    early = trial(3, "PAUSED", 1.0, (3.0,))
    assert scheduler.next_action([early], 5.0) is START_TRIAL
    assert scheduler.next_action([early], 5.0, exhausted=True) is early


def test_budget_of_trials_in_training_is_reserved():
    """Half of them reach the second rung, and a quarter the end: 0.2 / 2 + 0.7 / 4."""
    scheduler = Scheduler(RUNGS, OBJECTIVES, lambda trials: AcquisitionValues(1.0, {}))
    training = [trial(0, "RUNNING", 5.0)]
    assert scheduler.next_action(training, 1.27) is None
    assert scheduler.next_action(training, 1.28) is START_TRIAL


def test_workers_are_not_idle_before_there_is_a_surrogate():
    training = [trial(number, "RUNNING", 5.0) for number in range(40)]
    assert Scheduler(RUNGS, OBJECTIVES, no_values).next_action(training, 20.0) is START_TRIAL


@pytest.mark.parametrize(("n_training", "budget_left", "n_startup", "is_waiting"), [
    (4, 16.0, 0, False), (5, 15.0, 0, True),  # a quarter of the rest is in training
    (1, 1.0, 0, False), (2, 1.0, 0, True),  # two are trained at once until the end
    (3, 3.0, 4, False), (4, 3.0, 4, True)])  # the first trials do not depend on results
def test_a_search_waits_for_results_before_it_spends_the_rest(
        n_training, budget_left, n_startup, is_waiting):
    training = [trial(number, "RUNNING", 5.0) for number in range(n_training)]
    scheduler = Scheduler(NO_RUNGS, OBJECTIVES, no_values, n_startup, 0.25)
    action = scheduler.next_action(training, budget_left)
    assert scheduler.is_waiting == is_waiting and action is (None if is_waiting else START_TRIAL)
    without_surrogate = Scheduler(NO_RUNGS, OBJECTIVES)
    assert without_surrogate.next_action(training, budget_left) is START_TRIAL


@pytest.mark.parametrize(("n_training", "budget_left", "share", "is_waiting"), [
    (7, 20.0, 0.25, False), (8, 20.0, 0.25, True),
    (9, 40.0, 0.25, False), (10, 40.0, 0.25, True),  # a quarter of the rest, as full-budget runs
    (12, 20.0, 1.0, False)])
def test_new_trials_of_the_first_phase_wait_for_losses_at_the_first_rung(
        n_training, budget_left, share, is_waiting):
    started = [*(trial(number, "PAUSED", 5.0, (2.0,)) for number in range(3)),
               *(trial(3 + number, "RUNNING", 5.0) for number in range(n_training))]
    scheduler = Scheduler(RUNGS, OBJECTIVES, no_values, 6, share)
    action = scheduler.next_action(started, budget_left)
    assert scheduler.is_waiting == is_waiting and action is (None if is_waiting else START_TRIAL)
    predicting = Scheduler(RUNGS, OBJECTIVES, lambda trials: AcquisitionValues(1.0, {}), 6, share)
    assert predicting.next_action(started, budget_left) is START_TRIAL


def test_unaffordable_trials_are_not_started():
    scheduler = Scheduler(RUNGS, OBJECTIVES)
    assert scheduler.next_action([], 0.99) is None and scheduler.next_action([], 1.0) is START_TRIAL
    waiting = [trial(0, "PAUSED", 1.0, (3.0, 2.0))]
    assert scheduler.next_action(waiting, 0.7).number == 0 and scheduler.next_action(
        waiting, 0.69) is None


@pytest.mark.parametrize("exhausted", [False, True])
def test_last_promotion_goes_to_the_likeliest_member_of_the_front(exhausted):
    line = [trial(n, "COMPLETE", 9.0 + n, (4.0 - n / 2, 3.0 - n / 2), 20.0 + 4 * n)
            for n in range(4)]
    waiting = [trial(10, "PAUSED", 20.0, (4.0, 3.5)), trial(11, "PAUSED", 5.0, (2.4, 1.4))]
    assert Scheduler(RUNGS, OBJECTIVES).next_action([*line, *waiting], 0.75, exhausted).number == 11


def test_infeasible_failed_and_imported_trials_are_ignored():
    trials = [frozen(0, "PRUNED", constraints={"budget": 1.0}), frozen(1, "FAIL"),
              trial(2, "FAIL", rungs=(2.0,)), frozen(3, "COMPLETE", values=[20.0, 3.0])]
    assert Scheduler(RUNGS, OBJECTIVES).next_action(trials, 5.0) is START_TRIAL


@pytest.mark.parametrize("acquisition_values", [None, no_values])
def test_many_workers_start_no_more_than_can_be_promoted(acquisition_values):
    """One in eta is promoted at each rung: 0.1 + 0.2 / 2 + 0.7 / 4 of a training run per trial."""
    started = []
    scheduler = Scheduler(RUNGS, OBJECTIVES, acquisition_values)
    while scheduler.next_action(started, 20 - 0.1 * len(started)) is START_TRIAL:
        started.append(trial(len(started), "RUNNING", 5.0))
    assert 50 <= len(started) <= 20 / 0.375


@dataclass
class Candidate:
    """A candidate of a simulated study."""

    state: str
    params: float
    losses: tuple = ()

    @property
    def spent(self):
        rung = {"RUNNING": min(len(self.losses), RUNGS.n_pauses), "COMPLETE": -1}.get(
            self.state, len(self.losses) - 1)
        return 0.0 if self.state in ("PAUSED", "FAIL") and not self.losses else RUNGS.shares[rung]

    def dominates(self, other):
        rung = len(other.losses) - 1
        own_values = self.losses[rung], self.params
        other_values = other.losses[rung], other.params
        return own_values != other_values and all(map(operator.le, own_values, other_values))


@pytest.mark.full
@settings(max_examples=150)
@given(st.data())
def test_dominating_trials_are_promoted_first(data):
    """Random losses, costs and ties; workers end in any order or fail; the budget changes."""
    draw = data.draw
    totals = st.floats(1.0, 5.0)
    workers = data.draw(st.integers(1, 3))
    trials = []
    scheduler = Scheduler(RUNGS, OBJECTIVES)
    total = draw(totals)
    training = []
    for _ in range(draw(st.integers(1, 40))):
        total = draw(st.just(total) | totals)
        while len(training) < workers:
            history = [trial(number, candidate.state, candidate.params, candidate.losses,
                             9.0 * candidate.params if candidate.state == "COMPLETE" else None)
                       for number, candidate in enumerate(trials)]
            left = total - sum(candidate.spent for candidate in trials)
            chosen = scheduler.next_action(history, left)
            if chosen is None:
                break
            if chosen is START_TRIAL:
                trials.append(Candidate("RUNNING", float(draw(st.integers(1, 4)))))
            else:
                assert not any(candidate.dominates(trials[chosen.number]) for candidate in trials
                               if candidate.state == "PAUSED"
                               and len(candidate.losses) == len(rung_losses(chosen)))
                trials[chosen.number] = replace(trials[chosen.number], state="RUNNING")
            training.append(len(trials) - 1 if chosen is START_TRIAL else chosen.number)
        if not training:
            continue
        number = training.pop(draw(st.integers(0, len(training) - 1)))
        state = "COMPLETE" if len(trials[number].losses) == RUNGS.n_pauses else "PAUSED"
        losses = (*trials[number].losses, float(draw(st.integers(1, 5))))[: RUNGS.n_pauses]
        trials[number] = replace(trials[number], state="FAIL") if draw(
            st.integers(0, 9)) == 9 else replace(trials[number], state=state, losses=losses)
