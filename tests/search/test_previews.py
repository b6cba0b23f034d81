"""Whose weights a candidate inherits, what its preview foretells, and when it is trained in full."""

from dataclasses import replace

import pytest

from scalesearch.errors import UserError
from scalesearch.search.history import COMPLETE, PENDING, PREVIEWED, Goal, Seen
from scalesearch.search.predict import foreseen
from scalesearch.search.previews import Previewing, Previews, differences, parent_of
from scalesearch.search.proposers import make_proposer
from scalesearch.search.proposers.base import Settings
from scalesearch.search.strategy import Start, TrainOn
from tests.search.pools import GOALS, Searched

PREVIEWS = Previews(0.25)


def seen(number, bleu=None, preview=None, params=5.0, asked=None, **more):
    """A candidate with the value of a full training, of a preview, or both."""
    values = None if bleu is None else {"bleu": bleu, "params.total": params}
    first = None if preview is None else {"bleu": preview, "params.total": params}
    state = COMPLETE if values else PREVIEWED if first else PENDING
    made = Seen(number, state, asked or {"a": number}, str(number), {}, {"params.total": params}, (), values, first,
                preview is not None)
    return replace(made, **more)


def strategy():
    pool = Searched("local")
    proposer = make_proposer(pool.strategy.proposer.space, pool.bill.names, GOALS, Settings("local", 1, 2))
    return Previewing(proposer, pool.judge, PREVIEWS, GOALS, 50)


def test_the_parent_is_the_nearest_and_of_those_the_best_and_of_those_the_first():
    history = [seen(0, 10, asked={"a": 1, "b": 1}), seen(1, 20, asked={"a": 2, "b": 1}),
               seen(2, 20, asked={"a": 1, "b": 3}), seen(3, preview=90, asked={"a": 1, "b": 2}),
               seen(4, asked={"a": 1, "b": 2})]
    assert parent_of({"a": 1, "b": 2}, history, PREVIEWS, GOALS).number == 2
    assert parent_of({"a": 2, "b": 2}, history, PREVIEWS, GOALS).number == 1
    assert parent_of({"a": 9, "b": 9}, history, PREVIEWS, GOALS).number == 1
    assert parent_of({"a": 9, "b": 9}, history, Previews(0.25, apart=1), GOALS) is None
    assert parent_of({"a": 1}, [], PREVIEWS, GOALS) is None
    lower = (Goal("bleu", "min", True), GOALS[1])
    assert parent_of({"a": 1, "b": 2}, history, PREVIEWS, lower).number == 0


def test_differences_count_questions_that_only_one_was_asked():
    assert differences({"a": 1, "b": None}, {"a": 1}) == 1 == differences({"a": 1}, {"a": 1, "b": None})
    assert differences({"a": 1, "b": 2}, {"a": 2, "c": 2}) == 3 and differences({}, {}) == 0


def test_previews_are_corrected_by_those_that_were_trained_in_full():
    pairs = [seen(n, 30 + 2 * n, 50 + 4 * n) for n in range(3)]
    waiting = seen(7, preview=62, params=2.0)
    values = foreseen([*pairs, waiting, seen(8, heir=True)], GOALS)
    assert values[7] == {"bleu": pytest.approx(36.0), "params.total": 2.0} and values[0]["bleu"] == 30
    assert sorted(values) == [0, 1, 2, 7]
    assert foreseen([*pairs[:2], waiting], GOALS)[7]["bleu"] == 62  # too few to draw a line through


def test_previews_that_mislead_foretell_nothing():
    pairs = [seen(n, 30 - 2 * n, 50 + 4 * n) for n in range(3)]
    values = foreseen([*pairs, seen(7, preview=90), seen(8, preview=10)], GOALS)
    assert values[7]["bleu"] == values[8]["bleu"] == 28


def test_one_in_three_previewed_is_trained_in_full_and_those_first_that_would_join_the_front():
    before = [seen(0, 20, params=4.0)]
    waiting = [seen(1, preview=10, params=9.0), seen(2, preview=30, params=5.0)]
    assert isinstance(strategy().next([*before, *waiting], 9.0), Start)
    chosen = strategy().next([*before, *waiting, seen(3, preview=5, params=8.0)], 9.0)
    assert isinstance(chosen, TrainOn) and chosen.seen.number == 2
    gone = [before[0], waiting[0], replace(waiting[1], state=PENDING), seen(3, preview=5, params=8.0)]
    assert isinstance(strategy().next(gone, 9.0), Start)


def test_who_would_not_join_the_front_is_trained_only_to_learn_how_previews_err():
    pairs = [seen(n, 20 + n, 20 + n, params=4.0) for n in range(3)]
    poor = [seen(3 + n, preview=1 + n, params=9.0) for n in range(9)]
    assert isinstance(strategy().next([*pairs, *poor], 9.0), Start)
    assert isinstance(strategy().next([*pairs[:2], *poor], 9.0), TrainOn)


@pytest.mark.parametrize("left", [1.0, 1.2])
def test_the_last_compute_goes_to_who_would_join_the_front(left):
    history = [seen(0, 20, params=4.0), seen(1, preview=30, params=5.0)]
    assert strategy().next(history, left).seen.number == 1
    assert strategy().next(history, 0.9) is None
    nobody = [history[0], seen(1, preview=3, params=5.0)]
    assert isinstance(strategy().next(nobody, left), Start)
    assert strategy().next([history[0], seen(1, heir=True)], left) is None  # its preview is not over yet


def test_a_share_is_a_share():
    for wrong in (0.0, 1.0, 2.0):
        with pytest.raises(UserError, match="above 0 and below 1"):
            Previews(wrong)
    assert Previews(0.3).affordable(1.3) and not Previews(0.3).affordable(1.2)
