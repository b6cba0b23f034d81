"""Allocation of further seeds: properties for any scores, and the rate of false orders."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.pareto.noise import t_quantile
from scalesearch.studies.config.objectives import parse_objective
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.replicates.allocation import (
    CHALLENGER,
    NEIGHBORS,
    FrontOrder,
    interval_confidence,
    next_replicate,
)
from tests.studies.fakes import OBJECTIVES
from tests.studies.noisy import confirmed, replicated, sampled, with_another_seed

TWO = (parse_objective("loss", "min"), *OBJECTIVES)
truths = st.lists(st.floats(0, 40, width=32), min_size=1, max_size=7)
budgets = st.builds(Seeds, st.integers(1, 4), st.integers(0, 8), st.sampled_from([0.8, 0.9, 0.95]))


def chosen(candidates, objectives, seeds):
    """Number of the candidate that is trained next, and its number of started seeds."""
    candidate = next_replicate(candidates, objectives, seeds)
    return candidate and (candidate.number, candidate.started_seeds)


def scored(number, cost, *bleu, **more):
    return replicated(number, {"params.total": cost}, *({"bleu": value} for value in bleu), **more)


@settings(max_examples=60)
@given(truths, budgets, st.floats(0, 3), st.integers(0, 99))
def test_limits_are_kept_and_clearly_worse_candidates_excluded(truth, seeds, sd, rng):
    rng = random.Random(rng)
    candidates = sampled(truth, sd, rng)
    requested = []
    while (chosen := next_replicate(candidates, OBJECTIVES, seeds)) is not None:
        order = FrontOrder(candidates, OBJECTIVES, seeds)
        unresolved = {number for pair in order.comparisons if not pair.is_resolved
                    for number in (pair.first, pair.second)}
        assert chosen.number in {*order.front, *unresolved}
        old = candidates[chosen.number]
        assert chosen is old
        candidates[chosen.number] = with_another_seed(old, rng.gauss(truth[chosen.number], sd))
        requested.append(chosen.number)
    counts = Counter(requested)
    assert len(requested) <= seeds.extra_runs
    assert all(1 + count <= seeds.max_per_candidate for count in counts.values())
    assert seeds.max_per_candidate > 1 or not requested


@settings(max_examples=40)
@given(truths, budgets, st.integers(0, 99))
def test_equal_histories_request_equal_seeds(truth, seeds, rng):
    first, second = (confirmed(sampled(truth, 1.0, random.Random(rng)), truth, 1.0,
                               random.Random(rng), seeds) for _ in range(2))
    assert first == second


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(0, 99))
def test_large_differences_need_one_more_seed_per_member(members, rng):
    truth = [100.0 * number for number in range(members)]
    rng = random.Random(rng)
    worse = [scored(members + extra, 50.0 + extra, -500.0 - extra) for extra in range(3)]
    candidates, requests = confirmed([*sampled(truth, 0.01, rng), *worse],
                                     [*truth, -500, -500, -500], 0.01, rng, Seeds(4, 30))
    assert Counter(chosen.number for chosen in requests) == dict.fromkeys(range(members), 1)
    assert FrontOrder(candidates, OBJECTIVES, Seeds(4, 30)).is_resolved


@pytest.mark.parametrize(("seeds", "runs"),
                         [(Seeds(3, 3), 3), (Seeds(3, 50), 4), (Seeds(5, 50), 8)])
def test_equal_candidates_use_all_allowed_runs(seeds, runs):
    candidates = [scored(0, 1.0, 20.0), scored(1, 2.0, 20.1)]
    requests = 0
    while (chosen := next_replicate(candidates, OBJECTIVES, seeds)) is not None:
        old = candidates[chosen.number]
        requests += 1
        score = 20.0 + 0.1 * chosen.number + 0.5 * (-1) ** chosen.started_seeds
        candidates[chosen.number] = with_another_seed(old, score)
    assert requests == runs and not FrontOrder(candidates, OBJECTIVES, seeds).is_resolved


def test_second_seeds_come_first_for_the_most_uncertain_members():
    front = [scored(0, 1.0, 10.0), scored(1, 2.0, 20.0), scored(2, 3.0, 20.5), scored(3, 4.0, 40.0)]
    assert chosen(front, OBJECTIVES, Seeds(3, 9)) == (1, 1)
    front[1] = scored(1, 2.0, 20.0, 20.1)
    assert chosen(front, OBJECTIVES, Seeds(3, 9)) == (2, 1)
    front[2] = scored(2, 3.0, 20.5, 20.6)
    assert {next_replicate(front, OBJECTIVES, Seeds(3, 9)).number} <= {0, 3}


def test_new_member_of_the_front_gets_a_second_seed():
    """The winner's curse: trial 1 was lucky once."""
    candidates = [scored(0, 1.0, 10.0, 10.1), scored(1, 2.0, 31.0, 20.0), scored(2, 3.0, 30.0)]
    assert FrontOrder(candidates, OBJECTIVES, Seeds(3, 9)).front == (0, 1, 2)
    assert chosen(candidates, OBJECTIVES, Seeds(3, 9)) == (2, 1)


def test_least_resolved_pair_gets_a_seed_for_its_less_trained_member():
    candidates = [scored(0, 1.0, 10.0, 10.4), scored(1, 2.0, 20.0, 20.4, 20.2),
                  scored(2, 3.0, 20.5, 20.7)]
    order = FrontOrder(candidates, OBJECTIVES, Seeds(4, 9))
    assert [(pair.type, pair.first, pair.second, pair.is_resolved)
            for pair in order.comparisons] == [(NEIGHBORS, 0, 1, True), (NEIGHBORS, 1, 2, False)]
    assert chosen(candidates, OBJECTIVES, Seeds(4, 9)) == (2, 2)
    candidates[2] = scored(2, 3.0, 20.5, 20.7, pending=1)
    assert chosen(candidates, OBJECTIVES, Seeds(4, 9)) == (1, 3), "a pending seed counts as trained"
    assert next_replicate(candidates, OBJECTIVES, Seeds(3, 9)) is None


def test_only_candidates_within_noise_of_the_front_are_challengers():
    candidates = [scored(0, 1.0, 20.0, 21.0), scored(1, 2.0, 20.2), scored(2, 2.0, 2.0)]
    order = FrontOrder(candidates, OBJECTIVES, Seeds(2, 9))
    assert order.front == (0,)
    assert [(pair.type, pair.first, pair.second)
            for pair in order.comparisons] == [(CHALLENGER, 0, 1)]
    assert chosen(candidates, OBJECTIVES, Seeds(2, 9)) == (1, 1)


def test_free_worker_waits_for_pending_second_seeds():
    candidates = [scored(0, 1.0, 10.0, pending=1), scored(1, 2.0, 20.0)]
    assert chosen(candidates, OBJECTIVES, Seeds(3, 9)) == (1, 1)
    candidates[1] = scored(1, 2.0, 20.0, 20.5)
    assert next_replicate(candidates, OBJECTIVES, Seeds(3, 9)) is None
    candidates[0] = scored(0, 1.0, 10.0, failed=1)
    assert chosen(
        candidates, OBJECTIVES, Seeds(3, 9)) == (0, 2), "a seed that failed is not tried again"
    candidates[0] = scored(0, 1.0, 10.0, failed=2)
    assert next_replicate(candidates, OBJECTIVES,
                          Seeds(3, 9)) is None, "the pair is resolved by the noise of the other"


def test_intervals_follow_students_t():
    candidates = [scored(0, 1.0, 10.0, 12.0), scored(1, 2.0, 13.0, 14.0, 15.0)]
    (pair,) = FrontOrder(candidates, OBJECTIVES, Seeds(3, 9)).comparisons
    (difference,) = pair.differences
    sd = math.sqrt((2 * 1 + 2 * 1) / 3)  # squares 1, 1 and 1, 0, 1 over 1 + 2 degrees of freedom
    assert difference.value == 3.0
    assert difference.half_width == pytest.approx(
        t_quantile(0.95, 3) * sd * math.sqrt(1 / 2 + 1 / 3))
    assert t_quantile(0.95, 3) == pytest.approx(3.1824, abs=1e-4)
    assert pair.is_resolved == (difference.half_width < 3.0) and not pair.is_resolved


def test_measured_objectives_share_the_confidence_level():
    def two(number, cost, *scores):
        return replicated(number, {"params.total": cost},
                          *({"loss": a, "bleu": b} for a, b in scores))

    assert interval_confidence(TWO, Seeds(3, 9, 0.9)) == pytest.approx(1 - 0.1 / 2 / 2)
    cheap = two(0, 1.0, (3.0, 20.0), (3.01, 20.1))
    expensive = two(1, 2.0, (2.0, 20.0), (2.01, 20.2))
    order = FrontOrder([cheap, expensive], TWO, Seeds(3, 9))
    assert order.front == (0, 1) and order.is_resolved and set(order.noise) == {"loss", "bleu"}
    assert not FrontOrder([cheap, two(1, 2.0, (2.9, 20.0), (3.05, 20.2))], TWO,
                          Seeds(3, 9)).is_resolved
    # The expensive one is worse in loss and better in BLEU within noise: the cheap one may
    # dominate it.
    order = FrontOrder([cheap, two(1, 2.0, (4.0, 20.05), (4.01, 20.15))], TWO, Seeds(3, 9))
    assert order.front == (0, 1) and not order.is_resolved


def test_order_by_costs_alone_is_resolved():
    objectives = (*OBJECTIVES, parse_objective("macs.total", "min"))
    fewer = replicated(0, {"params.total": 1.0, "macs.total": 9.0}, {"bleu": 20.0}, {"bleu": 20.1})
    faster = replicated(1, {"params.total": 2.0, "macs.total": 3.0}, {"bleu": 20.0}, {"bleu": 20.1})
    order = FrontOrder([fewer, faster], objectives, Seeds(3, 9))
    assert order.front == (0, 1) and not order.comparisons and order.is_resolved


def test_measured_objectives_are_ordered_by_the_first_minimized_one():
    objectives = (parse_objective("latency", "min"), parse_objective("bleu", "max"))
    candidates = [replicated(number, {},
                       *({"latency": 5.0 - number + wobble, "bleu": 20.0 - number + wobble}
                         for wobble in (0, 0.01))) for number in range(3)]
    order = FrontOrder(candidates, objectives, Seeds(3, 9))
    assert order.front == (2, 1, 0) and order.is_resolved
    assert [(pair.first, pair.second) for pair in order.comparisons] == [(2, 1), (1, 0)]


def test_trained_seeds_count_as_looks_after_limits_change():
    candidates = [scored(0, 1.0, 10.0, 12.0, 11.0), scored(1, 2.0, 13.0, 14.0)]
    levels = {FrontOrder(candidates, OBJECTIVES, seeds).level
              for seeds in (Seeds(1, 0), Seeds(3, 9))}
    assert levels == {0.95}


def test_no_request_without_candidates_or_measured_objectives():
    assert next_replicate([], OBJECTIVES, Seeds(3, 9)) is None
    assert next_replicate([scored(0, 1.0, 20.0)], OBJECTIVES[1:], Seeds(3, 9)) is None
    assert FrontOrder([], OBJECTIVES, Seeds(3, 9)).is_resolved


@pytest.mark.full
@pytest.mark.parametrize(("truth", "seeds"),
                         [([0.0, 0.0], Seeds(3, 6)), ([0.0] * 4, Seeds(3, 6)),
                          ([0.0, 0.0], Seeds(5, 12)), ([0.0, 0.25, 0.5], Seeds(3, 6))])
def test_false_orders_are_as_rare_as_the_confidence_level(truth, seeds):
    """Each trial costs more than the one before it; the noise has a standard deviation of 1.

    A resolved pair whose expensive member is not better is false, and so is a clear exclusion of
    the best candidate for its cost. At most one in ten of all comparisons may be false, and of
    neighbors on the front (to two standard errors).
    """
    rng = random.Random(7)
    pairs = 0
    called = 0
    off = 0
    lost = 0
    for _ in range(600):
        candidates, _ = confirmed(sampled(truth, 1.0, rng), truth, 1.0, rng, seeds)
        order = FrontOrder(candidates, OBJECTIVES, seeds)
        neighbors = [pair for pair in order.comparisons if pair.type == NEIGHBORS]
        challengers = {pair.second for pair in order.comparisons if pair.type == CHALLENGER}
        pairs += len(neighbors)
        called += sum(pair.is_resolved and truth[pair.second] <= truth[pair.first]
                      for pair in neighbors)
        outside = [number for number in range(len(truth)) if number not in order.front]
        off += len(outside)
        lost += sum(number not in challengers
                    and all(truth[member] < truth[number]
                            for member in order.front if member < number) for number in outside)
    assert pairs > 250 and off > 250 and called + lost > 0
    assert called + lost <= 0.1 * (pairs + off) and called <= 0.1 * pairs + 2 * math.sqrt(
        0.1 * 0.9 * pairs)


def test_differences_of_several_deviations_are_mostly_resolved():
    rng = random.Random(7)
    truth = [0.0, 4.0, 8.0, 12.0]
    resolved = 0
    for _ in range(100):
        candidates, _ = confirmed(sampled(truth, 1.0, rng), truth, 1.0, rng, Seeds(3, 8))
        resolved += FrontOrder(candidates, OBJECTIVES, Seeds(3, 8)).is_resolved
    assert resolved > 70
