"""What a free worker does next: promotions first, a reserve for those that wait, and a last call."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.pareto.objective import Objective
from scalesearch.samplers.history import is_paused, rungs_of
from scalesearch.schedule.rungs import NEW, Rungs, Scheduler
from tests.samplers.trials import frozen

OBJECTIVES = (Objective("bleu", "max", True), Objective("params", "min", False))
RUNGS = Rungs((0.1, 0.3, 1.0), 2)


def trial(number, state, params=1.0, rungs=(), bleu=None):
    return frozen(number, state, rungs=rungs, costs={"params": params}, values=None if bleu is None else [bleu, params])


def simulated(left, rungs, exhausted_after=math.inf):
    """A study on one worker until there is nothing to do: the trials, and the compute that is left."""
    scheduler, trials = Scheduler(rungs, OBJECTIVES), []
    while (chosen := scheduler.next(trials, left, len(trials) >= exhausted_after)) is not None:
        number = len(trials) if chosen is NEW else chosen.number
        reached = () if chosen is NEW else rungs_of(chosen)
        left -= rungs.step(len(reached))
        losses, size = (*reached, 5.0 - math.log(number + 2) - len(reached)), float(1 + number % 7)
        ended = len(losses) == len(rungs.shares)
        now = trial(number, "COMPLETE" if ended else "PAUSED", size, losses, 30.0 + number % 5 if ended else None)
        trials = [*trials[:number], now, *trials[number + 1 :]]
    return trials, left


@given(st.floats(0.0, 12.0), st.sampled_from([RUNGS, Rungs(), Rungs.geometric(), Rungs((0.5, 1.0), 3)]))
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
    assert scheduler.next([], 0.99) is None and scheduler.next([], 1.0) is NEW
    waiting = [trial(0, "PAUSED", 1.0, (3.0, 2.0))]
    assert scheduler.next(waiting, 0.7).number == 0 and scheduler.next(waiting, 0.69) is None


@pytest.mark.parametrize("exhausted", [False, True])
def test_the_last_call_goes_to_the_likeliest_member_of_the_front(exhausted):
    line = [trial(n, "COMPLETE", 9.0 + n, (4.0 - n / 2, 3.0 - n / 2), 20.0 + 4 * n) for n in range(4)]
    waiting = [trial(10, "PAUSED", 20.0, (4.0, 3.5)), trial(11, "PAUSED", 5.0, (2.4, 1.4))]
    assert Scheduler(RUNGS, OBJECTIVES).next([*line, *waiting], 0.75, exhausted).number == 11


def test_infeasible_failed_and_outside_trials_are_no_trouble():
    trials = [frozen(0, "PRUNED", constraints={"budget": 1.0}), frozen(1, "FAIL"), trial(2, "FAIL", rungs=(2.0,)),
              frozen(3, "COMPLETE", values=[20.0, 3.0])]
    assert Scheduler(RUNGS, OBJECTIVES).next(trials, 5.0) is NEW
