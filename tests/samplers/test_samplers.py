"""What holds for every proposer: nothing that the bill rejects, nothing twice, and the same again by the same seed."""

from collections import Counter
from importlib.util import find_spec

import pytest

from scalesearch.errors import UserError
from scalesearch.samplers import PROPOSERS, make_proposer
from scalesearch.samplers.base import Settings
from scalesearch.samplers.history import COMPLETE, DUPLICATE, INFEASIBLE, PENDING, Seen
from scalesearch.space import Space
from tests.samplers.pools import GOALS, SPACE, Searched, feasible_networks

FEW = {"gp": 8}  # seconds a proposal


GP_MARKS = [pytest.mark.slow, pytest.mark.skipif(find_spec("scipy") is None, reason="gp needs scipy")]


def kinds():
    return [pytest.param(kind, marks=GP_MARKS if kind == "gp" else []) for kind in PROPOSERS]


def begun(search):
    return [seen for seen in search.history if seen.state not in (INFEASIBLE, DUPLICATE)]


@pytest.mark.parametrize("kind", kinds())
def test_starts_nothing_that_the_bill_rejects_and_no_network_twice(kind):
    search = Searched(kind).run(FEW.get(kind, 14))
    networks = Counter(seen.identity for seen in begun(search))
    assert len(networks) == FEW.get(kind, 14) and set(networks.values()) == {1}
    assert set(networks) <= feasible_networks()
    assert all(search.bill.judge(seen.params).feasible for seen in begun(search))
    assert [seen.number for seen in search.history] == list(range(len(search.history)))


@pytest.mark.parametrize("kind", kinds())
def test_does_not_propose_what_is_in_training(kind):
    search = Searched(kind).run(5)
    waiting = [search.start() for _ in range(3)]
    assert len({seen.identity for seen in begun(search)}) == 8
    assert all(search.history[seen.number].state == PENDING for seen in waiting)


@pytest.mark.parametrize("kind", kinds())
def test_the_seed_decides(kind):
    one, same, other = (Searched(kind, seed).run(FEW.get(kind, 10)).history for seed in (3, 3, 4))
    assert one == same
    assert one != other or kind == "grid"  # which has one order


@pytest.mark.parametrize("kind", kinds())
def test_a_new_object_goes_on_as_the_old_one_would_have(kind):
    count = FEW.get(kind, 16)
    whole = Searched(kind).run(count).history
    half = Searched(kind).run(count // 2).history
    assert Searched(kind, history=half).run(count - count // 2).history == whole


@pytest.mark.parametrize("kind", [kind for kind in PROPOSERS if kind != "gp"])
def test_ends_when_everything_was_seen(kind):
    search = Searched(kind).run(1000)
    assert {seen.identity for seen in begun(search)} == feasible_networks()
    assert search.start() is None


@pytest.mark.parametrize("kind", [kind for kind in PROPOSERS if kind not in ("gp", "grid")])
def test_a_continuous_range_and_a_condition_may_be_searched(kind):
    space = SPACE.set({"tensor_chain": "{ ffn: off | 0.05..0.5 log, length: 2 }"})
    search = Searched(kind, space=space).run(12)
    assert len({seen.identity for seen in begun(search)}) == 12


def test_a_grid_needs_a_finite_space():
    space = Space.parse("""
space: endless
width: 16
tensor_chain: { ffn: 0.05..0.5 log, length: 2 }
encoder: { depth: 1, heads: 2, ffn: { relu: { hidden: 32 } } }
decoder: { depth: 1, heads: 2, ffn: { relu: { hidden: 32 } } }
""")
    with pytest.raises(UserError, match="continuous range"):
        make_proposer(space, (), GOALS, Settings("grid")).ask(0, [])


def test_an_unknown_name_is_told_with_those_there_are():
    with pytest.raises(UserError, match="no proposer `tbe`; there are tpe, nsga2"):
        make_proposer(SPACE, (), GOALS, Settings("tbe"))


def test_the_first_of_local_are_spread_over_the_costs():
    costs = [seen.costs["params.total"] for seen in begun(Searched("local").run(4))]  # all four are of the beginning
    assert 2 * max(costs[:2]) < min(costs[2:])


@pytest.mark.parametrize("kind", ["local", "bayes", "tpe"])
def test_candidates_from_outside_the_space_are_no_trouble(kind):
    outside = [Seen(number, COMPLETE, {}, f"far {number}", {}, {"params.total": 5e4 + number}, (),
                    {"bleu": 20.0 + number, "params.total": 5e4 + number}) for number in range(12)]
    search = Searched(kind, history=outside).run(6)
    assert len({seen.identity for seen in begun(search)} & feasible_networks()) == 6
