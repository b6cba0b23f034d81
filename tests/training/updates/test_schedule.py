"""Learning rate schedules and interval triggers as functions of the budget."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.training.recipe import Recipe
from scalesearch.training.updates.schedule import BudgetUsed, IntervalTrigger, LearningRateSchedule


def rates(steps: int, **changes) -> list[float]:
    recipe = Recipe(steps=steps, lr=1.0, **changes)
    schedule = LearningRateSchedule(recipe)
    return [schedule.learning_rate(step, BudgetUsed(steps=step).budget_share(recipe, 1))
            for step in range(steps)]


@given(st.integers(20, 300),
       st.sampled_from(["cosine", "linear", "wsd", "inverse_sqrt", "constant"]),
       st.floats(0, 0.5) | st.integers(1, 9).map(float))
def test_learning_rate_has_one_peak(steps: int, kind: str, warmup: float) -> None:
    result = rates(steps, schedule=kind, warmup=warmup)
    peak = result.index(max(result))
    assert all(a <= b + 1e-12 for a, b in pairwise(result[: peak + 1]))
    assert all(a >= b - 1e-12 for a, b in pairwise(result[peak:]))
    assert 0 < result[0] <= 1.0 and max(result) <= 1.0


def test_learning_rates_of_schedules() -> None:
    assert rates(100, warmup=10)[:11] == pytest.approx([(i + 1) / 10 for i in range(10)] + [1.0])
    assert rates(100, warmup=0)[50] == pytest.approx(0.5)
    assert rates(100, warmup=0, schedule="linear")[75] == pytest.approx(0.25)
    assert rates(100, warmup=0, schedule="wsd",
                 cooldown=0.4)[:100:20] == pytest.approx([1, 1, 1, 1, 0.5])
    assert rates(1000, warmup=10,
                 schedule="inverse_sqrt")[640] == pytest.approx(math.sqrt(10 / 640))
    assert rates(1000, warmup=0.01,
                 schedule="inverse_sqrt")[640] == pytest.approx(math.sqrt(10 / 640))
    assert rates(100, warmup=0)[99] < 1e-3


@given(st.integers(1, 100), st.integers(1, 1000), st.integers(1, 500))
def test_budget_share_is_the_largest_share(steps: int, tokens: int, pairs: int) -> None:
    spent = BudgetUsed(steps, tokens, pairs, cpu_seconds=30.0, seconds=90.0)
    recipe = Recipe(steps=100, tokens=1000, epochs=2, cpu_minutes=1, minutes=2)
    assert spent.budget_share(recipe, 250) == max(
        steps / 100, tokens / 1000, pairs / 500, 0.5, 0.75)


@given(st.sampled_from([0.1, 0.25, 0.02, 5.0, 7.0]), st.integers(10, 200))
def test_each_interval_triggers_once(every: float, steps: int) -> None:
    marks = IntervalTrigger(every)
    met = 0
    for step in range(1, steps + 1):
        for _ in range(2):
            if marks.is_due(step, step / steps):
                marks.mark_passed(step, step / steps)
                met += 1
    expected = steps // every if every >= 1 else min(steps, round(1 / every))
    assert met == expected


def test_zero_interval_never_triggers() -> None:
    assert not IntervalTrigger(0.0).is_due(100, 1.0)
