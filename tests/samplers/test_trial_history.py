"""Predictions of the final values of paused trials."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.pareto import Objective
from scalesearch.samplers.trial_history import predict_final_values
from tests.samplers.trials import frozen

OBJECTIVES = (Objective("bleu", "max", True), Objective("params", "min", False))


def ended(number, loss, bleu, params=5.0):
    return frozen(number, "COMPLETE", values=[bleu, params], rungs=(loss, loss * 0.9))


def paused(number, loss, params=3.0):
    return frozen(number, "PAUSED", rungs=(loss,), costs={"params": params})


def predicted(trials):
    """Number to objective to value."""
    return {number: dict(zip(("bleu", "params"), values))
            for number, values in predict_final_values(trials, OBJECTIVES).items()}


LINE = [ended(n, math.exp(n / 4), 30.0 - 8 * n / 4) for n in range(5)]  # BLEU = 30 - 8 log(loss)


@given(st.lists(st.tuples(st.floats(1, 50), st.floats(0, 50)), max_size=8), st.floats(1, 50))
def test_observed_values_are_kept_and_costs_are_exact(pairs, loss):
    history = [*(ended(n, *pair) for n, pair in enumerate(pairs)), paused(len(pairs), loss, 3.25)]
    values = predicted(history)
    assert values[len(pairs)]["params"] == 3.25 and math.isfinite(values[len(pairs)]["bleu"])
    if len(pairs) >= 3:
        assert [values[n]["bleu"] for n in range(len(pairs))] == [bleu for _, bleu in pairs]


@given(st.floats(1, 50))
def test_linear_relation_is_recovered(loss):
    assert math.isclose(predicted([*LINE, paused(9, loss)])[9]["bleu"], 30 - 8 * math.log(loss),
                        abs_tol=1e-9)


def test_diverged_trial_does_not_change_the_slope():
    history = [*LINE, ended(7, 1e6, 29.0), paused(9, math.e)]
    assert predicted(history)[9]["bleu"] == pytest.approx(22.0, abs=1.0)


def test_slope_of_the_wrong_sign_is_ignored():
    wrong = [ended(n, math.exp(n), 10.0 + n) for n in range(5)]
    values = predicted([*wrong, paused(8, 1.0), paused(9, 100.0)])
    assert values[8]["bleu"] == values[9]["bleu"] == 12.0


def test_too_few_finished_trials_are_ranked_by_the_first_rung():
    values = predicted([ended(0, 2.0, 20.0), paused(1, 3.0), paused(2, 1.5)])
    assert [values[n]["bleu"] for n in range(3)] == [-math.log(loss) for loss in (2.0, 3.0, 1.5)]


def test_only_paused_trials_are_predicted():
    others = [frozen(n, state, rungs=(2.0,))
              for n, state in enumerate(("RUNNING", "FAIL", "PRUNED"), 10)]
    assert set(predicted([*LINE, *others])) == {0, 1, 2, 3, 4}
    assert set(predicted([*LINE, paused(9, 2.0), *others])) == {0, 1, 2, 3, 4, 9}


def test_trials_without_rungs_determine_no_slope():
    """As references and imported trials, of which no losses are recorded."""
    straight = [frozen(n, "COMPLETE", values=[20.0 + n, 5.0]) for n in range(4)]
    values = predicted([*straight, paused(8, 2.0), paused(9, 3.0)])
    assert set(values) == {8, 9} and values[8]["bleu"] > values[9]["bleu"]
