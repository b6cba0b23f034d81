"""What a free worker does next: promotions first, a reserve for those that wait, and a last call."""

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.pareto.objective import Objective
from scalesearch.samplers.trial_history import is_paused, rung_losses
from scalesearch.schedule.rungs import START_TRIAL, Rungs, Scheduler
from tests.samplers.trials import frozen

OBJECTIVES = (Objective("bleu", "max", True), Objective("params", "min", False))
RUNGS = Rungs((0.1, 0.3, 1.0), 2)


def trial(number, state, params=1.0, rungs=(), bleu=None):
    return frozen(number, state, rungs=rungs, costs={"params": params},
                  values=None if bleu is None else [bleu, params])


def simulated(left, rungs, exhausted_after=math.inf):
    """A study on one worker until there is nothing to do: the trials, and the compute that is left."""
    scheduler = Scheduler(rungs, OBJECTIVES)
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


@given(st.floats(0.0, 12.0),
       st.sampled_from([RUNGS, Rungs(), Rungs.geometric(), Rungs((0.5, 1.0), 3)]))
def test_no_more_is_spent_than_there_is_and_somebody_comes_to_the_end(left, rungs):
    trials, rest = simulated(left, rungs)
    assert rest >= -1e-6
    assert any(one.state.name == "COMPLETE" for one in trials) or left < 1 - 1e-9
    assert not trials or rest < 1.0  # a whole training's worth is not left lying


def test_without_rungs_everyone_is_new():
    assert len(simulated(5.0, Rungs())[0]) == 5


def test_with_nothing_new_those_that_wait_are_trained_to_the_end():
    trials, _ = simulated(20.0, RUNGS, exhausted_after=6)
    assert len(trials) == 6 and not any(map(is_paused, trials))


def test_what_nobody_can_pay_for_is_not_begun():
    scheduler = Scheduler(RUNGS, OBJECTIVES)
    assert scheduler.next_action([], 0.99) is None and scheduler.next_action([], 1.0) is START_TRIAL
    waiting = [trial(0, "PAUSED", 1.0, (3.0, 2.0))]
    assert scheduler.next_action(waiting, 0.7).number == 0 and scheduler.next_action(
        waiting, 0.69) is None


@pytest.mark.parametrize("exhausted", [False, True])
def test_the_last_call_goes_to_the_likeliest_member_of_the_front(exhausted):
    line = [trial(n, "COMPLETE", 9.0 + n, (4.0 - n / 2, 3.0 - n / 2), 20.0 + 4 * n)
            for n in range(4)]
    waiting = [trial(10, "PAUSED", 20.0, (4.0, 3.5)), trial(11, "PAUSED", 5.0, (2.4, 1.4))]
    assert Scheduler(RUNGS, OBJECTIVES).next_action([*line, *waiting], 0.75, exhausted).number == 11


def test_infeasible_failed_and_outside_trials_are_no_trouble():
    trials = [frozen(0, "PRUNED", constraints={"budget": 1.0}), frozen(1, "FAIL"),
              trial(2, "FAIL", rungs=(2.0,)), frozen(3, "COMPLETE", values=[20.0, 3.0])]
    assert Scheduler(RUNGS, OBJECTIVES).next_action(trials, 5.0) is START_TRIAL


def test_many_workers_begin_no_more_than_can_be_promoted():
    """As many as come to the end, one in eta of each rung going on: 0.1 + 0.2 / 2 + 0.7 / 4 of a training each."""
    begun = []
    while Scheduler(RUNGS, OBJECTIVES).next_action(begun, 20 - 0.1 * len(begun)) is START_TRIAL:
        begun.append(trial(len(begun), "RUNNING", 5.0))
    assert 50 <= len(begun) <= 20 / 0.375


@dataclass
class Candidate:
    """One of a study that is played through."""

    state: str
    params: float
    losses: tuple = ()

    @property
    def spent(self):
        at = {"RUNNING": min(len(self.losses), RUNGS.n_pauses), "COMPLETE": -1}.get(
            self.state, len(self.losses) - 1)
        return 0.0 if self.state in ("PAUSED", "FAIL") and not self.losses else RUNGS.shares[at]

    def dominates(self, other):
        ours, theirs = ((one.losses[len(other.losses) - 1], one.params) for one in (self, other))
        return ours != theirs and all(a <= b for a, b in zip(ours, theirs))


@pytest.mark.full
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_nobody_is_promoted_before_one_that_dominates_it_where_both_wait(data):
    """Random losses, costs and ties; workers that end in any order, or fail; ``trials`` set anew in between."""
    draw = data.draw
    wanted = st.floats(1.0, 5.0)
    workers = data.draw(st.integers(1, 3))
    trials = []
    scheduler = Scheduler(RUNGS, OBJECTIVES)
    total = draw(wanted)
    training = []
    for _ in range(draw(st.integers(1, 40))):
        total = draw(st.just(total) | wanted)
        while len(training) < workers:
            history = [trial(number, one.state, one.params, one.losses,
                             9.0 * one.params if one.state == "COMPLETE" else None)
                       for number, one in enumerate(trials)]
            chosen = scheduler.next_action(history, total - sum(one.spent for one in trials))
            if chosen is None:
                break
            if chosen is START_TRIAL:
                trials.append(Candidate("RUNNING", float(draw(st.integers(1, 4)))))
            else:
                rivals = [one for one in trials
                          if one.state == "PAUSED" and len(one.losses) == len(rung_losses(chosen))]
                assert not any(one.dominates(trials[chosen.number]) for one in rivals)
                trials[chosen.number] = replace(trials[chosen.number], state="RUNNING")
            training.append(len(trials) - 1 if chosen is START_TRIAL else chosen.number)
        if not training:
            continue
        number = training.pop(draw(st.integers(0, len(training) - 1)))
        state = "COMPLETE" if len(trials[number].losses) == RUNGS.n_pauses else "PAUSED"
        losses = (*trials[number].losses, float(draw(st.integers(1, 5))))[: RUNGS.n_pauses]
        trials[number] = replace(trials[number], state="FAIL") if draw(
            st.integers(0, 9)) == 9 else replace(trials[number], state=state, losses=losses)
