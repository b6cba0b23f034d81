"""Properties of multi-objective successive halving, and the share of the front that it keeps."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.pareto import Objective
from scalesearch.pareto.front import hypervolume, pareto_ranks
from scalesearch.samplers.trial_history import is_paused, rung_losses
from scalesearch.schedule import Rungs, find_promotable, order_by_spread
from tests.errors import refuses
from tests.samplers.trials import frozen

OBJECTIVES = (Objective("bleu", "max", True), Objective("params", "min", False))
STATES = st.sampled_from(["PAUSED", "RUNNING", "COMPLETE"])


def trial(number, state, params, rungs):
    """A trial with ``params`` parameters."""
    return frozen(number, state, rungs=rungs, costs={"params": params},
                  values=[20.0, params] if state == "COMPLETE" else None)


@st.composite
def clouds(draw):
    width = draw(st.integers(1, 3))
    row = st.lists(st.integers(0, 8), min_size=width, max_size=width)
    return np.array(draw(st.lists(row, min_size=1, max_size=12)), float)


@st.composite
def histories(draw):
    """Candidates anywhere in a ladder of three rungs."""
    history = []
    for number in range(draw(st.integers(0, 14))):
        state = draw(STATES)
        reached = draw(st.integers(0, 2))
        reached = 3 if state == "COMPLETE" else max(reached, 1) if state == "PAUSED" else reached
        losses = tuple(draw(st.floats(1, 9)) for _ in range(reached))
        history.append(trial(number, state, float(draw(st.integers(1, 9))), losses))
    return history


@given(clouds(), st.integers(0, 14))
def test_spread_is_a_prefix_of_one_order(points, count):
    order = order_by_spread(points, len(points))
    assert sorted(order) == list(range(len(points)))
    assert order_by_spread(points, count) == order[:count]


@given(clouds())
def test_spread_orders_by_pareto_rank(points):
    rank = pareto_ranks(points, ["min"] * points.shape[1])
    assert [rank[index] for index in order_by_spread(points, len(points))] == sorted(rank)


@given(clouds(), st.integers(0, 2), st.sampled_from([0.25, 2.0, 64.0]))
def test_spread_does_not_depend_on_units(points, column, factor):
    scaled = points.copy()
    scaled[:, column % points.shape[1]] *= factor
    assert order_by_spread(scaled, len(points)) == order_by_spread(points, len(points))


@given(st.integers(3, 20))
def test_ends_of_a_front_come_first(count):
    line = np.array([[index, count - index] for index in range(count)], float)
    assert set(order_by_spread(line, 2)) == {0, count - 1}


def test_spread_of_no_points_is_empty():
    assert order_by_spread(np.empty((0, 2)), 3) == []


@given(st.floats(0.001, 1), st.integers(2, 5), st.floats(1.5, 5))
def test_geometric_rungs_grow_by_one_factor(first, eta, spacing):
    rungs = Rungs.geometric(first, eta, spacing)
    assert rungs.shares[-1] == 1 and rungs.eta == eta
    factors = [b / a for a, b in zip(rungs.shares, rungs.shares[1:])]
    assert all(math.isclose(factor, spacing) for factor in factors[:-1])
    assert math.isclose(rungs.shares[0], first)
    assert all(factor >= math.sqrt(spacing) * (1 - 1e-9) for factor in factors[1:])
    assert math.isclose(sum(rungs.budget_to_rung(rung) for rung in range(len(rungs.shares))), 1)


@pytest.mark.parametrize(
    "make, text",
    [(lambda: Rungs((0.5, 0.2, 1.0)), "increase"), (lambda: Rungs((0.5,)), "increase"),
     (lambda: Rungs((0.0, 1.0)), "increase"), (lambda: Rungs((0.5, 1.0), 1), "eta"),
     (lambda: Rungs.geometric(0), "share"), (lambda: Rungs.geometric(2), "share"),
     (lambda: Rungs.geometric(0.1, 1), "eta"),
     (lambda: Rungs.geometric(0.1, 2, 1.0), "spacing")])
def test_invalid_rungs_are_refused(make, text):
    with refuses("bad-rungs", text):
        make()


@settings(max_examples=200)
@given(histories(), st.integers(2, 4))
def test_only_paused_trials_are_promoted_and_at_most_one_in_eta(history, eta):
    rungs = Rungs((0.1, 0.3, 1.0), eta)
    chosen = find_promotable(history, rungs, OBJECTIVES)
    if chosen is None:
        return
    assert is_paused(chosen)
    rung = len(rung_losses(chosen)) - 1
    reached = [trial for trial in history if len(rung_losses(trial)) > rung]
    promoted = [trial for trial in reached
                if len(rung_losses(trial)) > rung + 1 or not is_paused(trial)]
    assert (len(promoted) + 1) * eta <= len(reached)


def test_highest_rung_is_promoted_first():
    low = [trial(n, "PAUSED", 1.0 + n, (2.0 - n / 10,)) for n in range(4)]
    high = [trial(n, "PAUSED", 1.0 + n, (2.0 - n / 10, 1.5 - n / 10)) for n in range(4, 6)]
    assert len(rung_losses(find_promotable([*low, *high], Rungs((0.1, 0.3, 1.0), 2),
                                           OBJECTIVES))) == 2


def pool(seed, count=81):
    """Sizes, early losses and final BLEU: the large are the better, and early losses are noisy."""
    rng = np.random.default_rng(seed)
    size = np.exp(rng.uniform(np.log(1e6), np.log(1e8), count))
    skill = rng.normal(0, 0.15, count)
    loss = 8.0 - 0.35 * np.log(size) + skill
    return size, loss + rng.normal(0, 0.05, count), 60 - 20 * loss


def halved(size, early, objectives, rungs):
    """Numbers of the trials that finish when promotions continue until none is due."""
    history = [trial(n, "PAUSED", size[n], (early[n],)) for n in range(len(size))]
    while (chosen := find_promotable(history, rungs, objectives)) is not None:
        losses = (*rung_losses(chosen), early[chosen.number])
        state = "COMPLETE" if len(losses) == len(rungs.shares) else "PAUSED"
        history[chosen.number] = trial(chosen.number, state, size[chosen.number], losses)
    return [trial.number for trial in history if trial.state.name == "COMPLETE"]


def test_small_models_are_kept():
    rungs = Rungs((0.1, 0.3, 1.0), 3)
    ways = ["max", "min"]
    shares = []
    for seed in range(5):
        size, early, bleu = pool(seed)
        values = np.column_stack([bleu, np.log(size)])
        reference_point = [values[:, 0].min(), values[:, 1].max()]
        by_objectives = halved(size, early, OBJECTIVES, rungs)
        by_score = halved(size, early, OBJECTIVES[:1], rungs)
        assert len(by_objectives) == len(by_score) == 9
        smallest = set(np.argsort(size)[: len(size) // 3])
        assert smallest & set(by_objectives) and not smallest & set(by_score)
        whole = hypervolume(values, reference_point, ways)
        shares.append([hypervolume(values[chosen], reference_point, ways) / whole
                       for chosen in (by_objectives, by_score)])
    kept, kept_by_score = np.mean(shares, axis=0)
    assert kept > 0.9 and kept_by_score < 0.7
