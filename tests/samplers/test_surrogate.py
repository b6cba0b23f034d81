"""The surrogate: it knows what it was told, doubts what is far, and sees which parameters matter."""

import random

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution

from scalesearch.samplers.sheet import Sheet, draw
from scalesearch.samplers.surrogate import Surrogate, matern, squared_distances

SPACE = {"width": IntDistribution(16, 128, log=True), "depth": IntDistribution(1, 6),
         "norm": CategoricalDistribution(("pre", "post")), "ratio": IntDistribution(1, 2)}


def sheets(count, seed=1):
    rng = random.Random(seed)
    found = [{name: draw(distribution, rng) for name, distribution in SPACE.items()} for _ in range(count)]
    for sheet in found:
        if sheet["norm"] == "post":
            del sheet["ratio"]  # asked of some only
    return found


def cost(sheet):
    return float(sheet["width"] ** 2 * sheet["depth"])


def score(sheet):
    return 3 * np.log(cost(sheet)) + 4 * (sheet["norm"] == "pre")


def fitted(known, new=(), of=score):
    everyone = [*known, *new]
    squares = squared_distances([Sheet(sheet, {name: SPACE[name] for name in sheet}) for sheet in everyone],
                                np.array([[cost(sheet)] for sheet in everyone]))
    return Surrogate(squares, np.array([of(sheet) for sheet in known]), np.zeros(len(known)))


def test_it_predicts_what_it_was_told_and_orders_what_it_was_not():
    known, new = sheets(40), sheets(30, seed=2)
    model = fitted(known, new)
    mean, _ = model.predict(np.arange(len(known)))
    assert mean == pytest.approx([score(sheet) for sheet in known], abs=0.3)
    mean, _ = model.predict(np.arange(40, 70))
    real = np.array([score(sheet) for sheet in new])
    assert np.corrcoef(mean, real)[0, 1] > 0.98
    assert np.sqrt(np.mean((mean - real) ** 2)) < 0.2 * real.std()


def test_doubt_grows_with_distance_and_shrinks_where_others_are_in_training():
    known = [sheet for sheet in sheets(40) if sheet["width"] <= 32]
    near, far = dict(known[0]), {**known[0], "width": 128, "depth": 6}
    model = fitted(known, [near, far, far])
    place = len(known)
    _, spread = model.predict(np.array([place, place + 1]))
    assert spread[0] < spread[1]
    _, less = model.predict(np.array([place + 1]), also=np.array([place + 2]))
    assert less[0] < 0.5 * spread[1]


def test_what_does_not_matter_gets_no_weight():
    known = sheets(60)
    model = fitted(known, of=lambda sheet: 4.0 * (sheet["norm"] == "pre"))
    names = list(SPACE)
    assert model.weights[names.index("norm")] > model.weights[names.index("width")]


def test_equal_scores_and_two_points_are_no_trouble():
    model = fitted(sheets(2), sheets(3, seed=5), of=lambda sheet: 7.0)
    mean, spread = model.predict(np.arange(5))
    assert mean == pytest.approx(np.full(5, 7.0)) and np.isfinite(spread).all()


def test_the_kernel_is_one_at_no_distance_and_falls():
    line = np.linspace(0, 3, 7) ** 2
    values = matern(line)
    assert values[0] == 1 and (np.diff(values) < 0).all() and (values > 0).all()
