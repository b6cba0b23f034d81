"""The feasible part of a space: draws from it have the chances of rejection, and ways into it are found."""

import math
import random
from collections import Counter

import pytest

from scalesearch.cost import find_protocol
from scalesearch.feasible.dominance import Index
from scalesearch.feasible.draw import Draws, chances_of
from scalesearch.feasible.limits import bounds_of
from scalesearch.samplers import PROPOSERS
from scalesearch.samplers.feasible_region import Region
from scalesearch.samplers.grid import key_of
from scalesearch.samplers.history import DUPLICATE, INFEASIBLE
from scalesearch.samplers.repair import MOST
from scalesearch.space import Space
from scalesearch.space.syntax.parameters import Choice, FloatRange, IntRange
from scalesearch.study.trials.evaluator import Bill
from tests.samplers.pools import SPACE as SMALL
from tests.samplers.pools import Searched
from tests.samplers.test_samplers import GP_MARKS, begun, kinds

THIN = Space.parse("""
space: thin
width: 16..128 step 16
norm: pre | post
encoder:
  depth: 1..6
  heads: 2 | 4
  ffn:
    one of:
      relu: { hidden: 16..256 log }
      swiglu: { hidden: 32..256 step 32 }
decoder:
  depth: 1..4
  heads: = encoder.heads
  ffn: { relu: { hidden: 32..256 step 32 } }
share:
  encoder.attention: own | cycle(1..2)
where:
  - decoder.depth <= encoder.depth
cost:
  protocol: { source: 10, target: 10, vocab: 100 }
  budgets:
    thin: params.total <= 12k
    wide: params.total <= 300k and macs.total <= 6M
    low: params.total <= 60k and params.total >= 30k
    impossible: params.total <= 1k
""")
ENDLESS = THIN.set({"tensor_chain": "{ ffn: off | 0.05..0.5 log, length: 2 }"})
FAR = 400  # draws


def bill(budget, space=THIN):
    return Bill(space, find_protocol("forward", 10, 10, 100), (*space.where, space.budgets[budget]))


def draws(budget):
    judged = bill(budget)
    return Draws(THIN, judged.protocol, bounds_of(limit for limit in judged.limits if limit.costs))


def thin_space():
    """Only the budget ``thin``."""
    return Space.parse(THIN.to_yaml().split("  budgets:")[0] + "  budgets:\n    thin: params.total <= 12k\n")


@pytest.mark.parametrize("budget", ["thin", "wide", "low"])
def test_draws_meet_the_budget_and_what_the_space_asks_for(budget):
    judged, drawn, rng = bill(budget), draws(budget), random.Random(1)
    assert all(judged.judge(drawn.draw(rng)).feasible for _ in range(FAR))


@pytest.mark.parametrize("limits", ["params.total <= 60k and macs.total <= 1M", "params.total <= 12k",
                                    "params.total >= 9k and params.total <= 16k and macs.total <= 150k"])
def test_draws_have_the_chances_of_rejection(limits):
    space = SMALL.set({"width": "16..22 log", "encoder.ffn.relu.hidden": "= 2 * width | 16"})
    space = Space.parse(space.to_yaml().replace("params.total <= 60000 and macs.total <= 1M", limits))
    judged = Bill(space, find_protocol("forward", 10, 10, 100), tuple(space.budgets.values()))
    chance = {}  # of each feasible sheet, question by question
    for answers in space.enumerate():
        if judged.judge(answers.params).feasible:
            chance[key_of(answers.params)] = math.prod(
                chances_of(question)[list(question.values()).index(answers.params[name])]
                for name, question in space.dimensions() if name in answers.params)
    drawn, rng = Draws(space, judged.protocol, bounds_of(judged.limits)), random.Random(2)
    assert len(chance) > 0 and drawn.share == pytest.approx(sum(chance.values()))
    found = Counter(key_of(drawn.draw(rng)) for _ in range(2000))
    assert set(found) <= set(chance)
    surprise = sum((found[key] - 2000 * p / drawn.share) ** 2 / (2000 * p / drawn.share) for key, p in chance.items())
    assert surprise < len(chance) + 5 * math.sqrt(2 * len(chance))  # chi-squared: its mean and five deviations


def test_without_a_budget_every_chance_is_counted_once():
    space = Space.parse(THIN.to_yaml().split("where:")[0])
    assert Draws(space, find_protocol("forward", 10, 10, 100), []).share == pytest.approx(1)


def test_the_share_of_what_cannot_be_is_nothing():
    assert draws("impossible").share == 0 and draws("impossible").draw(random.Random(1)) is None


@pytest.mark.parametrize("question", [Choice((4, 1, "x")), IntRange(3, 9, 2), IntRange(1, 40, 1, True),
                                      FloatRange(0.0, 1.0, 0.25)])
def test_chances_are_those_of_the_draw(question):
    rng, values = random.Random(3), list(question.values())
    found = Counter(values.index(question.draw(rng)) for _ in range(20_000))
    chances = chances_of(question)
    assert chances.sum() == pytest.approx(1) and len(chances) == len(values)
    assert all(found[place] / 20_000 == pytest.approx(chance, abs=0.015) for place, chance in enumerate(chances))


@pytest.mark.parametrize("numbers", [0, 1, 2, 3])
def test_weights_within_bounds_are_those_of_a_plain_sum(numbers):
    import numpy as np

    rng = np.random.default_rng(numbers)
    for size in (1, 2, 7, 64, 100):
        points, weights = rng.integers(0, 9, (size, numbers)), rng.random(size)
        room = rng.integers(-1, 11, (40, numbers))
        plain = [weights[(points <= one).all(1)].sum() for one in room]
        assert Index(points, weights).within(room) == pytest.approx(plain)


@pytest.mark.parametrize("space", [THIN, ENDLESS])
@pytest.mark.parametrize("seed", range(4))
def test_a_walk_ends_in_the_region_near_where_it_began(space, seed):
    judged, rng, found = bill("thin", space), random.Random(seed), 0
    params = next(sheet for sheet in (space.sample(rng).params for _ in range(99)) if not judged.judge(sheet).feasible)
    count = []
    region = Region(judged)
    region._mender.judge = lambda sheet: count.append(1) or judged.judge(sheet)
    mended = region.mended(params, random.Random(seed))
    assert mended is not None and judged.judge(mended).feasible and len(count) <= MOST + 1
    assert mended == Region(judged).mended(params, random.Random(seed))
    found = sum(mended.get(name) == value for name, value in params.items())
    assert found >= 2  # what had nothing to do with the cost is as it was
    again = region.mended(params, random.Random(seed), {judged.judge(mended).architecture.id})
    assert again is not None and judged.judge(again).architecture.id != judged.judge(mended).architecture.id


def test_a_feasible_sheet_is_mended_already_and_no_way_is_none():
    judged = bill("wide")
    params = draws("wide").draw(random.Random(1))
    assert Region(judged).mended(params, random.Random(1)) == params
    assert Region(bill("impossible")).mended(params, random.Random(1)) is None


@pytest.mark.parametrize(("budget", "space", "thin", "apart"), [
    ("wide", THIN, False, None), ("thin", THIN, True, True), ("thin", ENDLESS, True, False)])
def test_each_way_of_drawing_ends_in_the_region(budget, space, thin, apart):
    judged = bill(budget, space)
    region = Region(judged)
    assert all(judged.judge(region.drawn(random.Random(seed))).feasible for seed in range(8))
    assert region.thin is thin and (apart is None or (region.draws is not None) is apart)
    assert region.drawn(random.Random(1)) == Region(judged).drawn(random.Random(1))


def test_an_impossible_budget_is_known_as_such():
    region = Region(bill("impossible"))
    assert region.drawn(random.Random(1)) is None and region.share == 0
    assert Region(bill("impossible", ENDLESS)).drawn(random.Random(1)) is None


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=GP_MARKS if kind == "gp" else []) for kind in PROPOSERS])
def test_in_a_thin_space_no_proposer_wastes_its_proposals(kind):
    """About one draw in 200 is feasible; at most one proposal in two may not be, and that only to learn from it."""
    space = thin_space()
    search = Searched(kind, space=space).run(8 if kind == "gp" else 16)
    states = Counter(seen.state for seen in search.history)
    assert draws("thin").share < 0.01 and len(begun(search)) == (8 if kind == "gp" else 16)
    assert states[INFEASIBLE] <= (len(begun(search)) if kind == "tpe" else 0)
    assert kind == "grid" or states[DUPLICATE] <= 4  # a list has every sheet


def test_the_kinds_are_all_there():
    assert len(kinds()) == len(PROPOSERS)
