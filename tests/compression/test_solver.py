"""Exact fronts over combinations, against enumeration."""

import itertools
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from scalesearch.compression.alternatives import CHAINS, Alternative, MeasuredCombination
from scalesearch.compression.front import ScoredLibrary
from scalesearch.compression.solver import solve
from scalesearch.pareto.front import pareto_front

STACKS = ("encoder", "decoder")


def random_problem(rng: Random) -> tuple[dict[str, tuple[int, ...]], list[Alternative],
                                         dict[Alternative, float], dict[Alternative, list[int]]]:
    """Chains with random sizes, alternatives, rises and changes of two costs."""
    depth = {stack: rng.randint(1, 2) for stack in STACKS}
    sizes = {chain: (4,) * depth[chain.partition(".")[0]] for chain in CHAINS}
    alternatives = []
    for chain, values in sizes.items():
        for layer in range(len(values)):
            alternatives += [Alternative(chain, layer, layer, size)
                             for size in rng.sample([0, 1, 2], rng.randint(0, 1))]
            if layer and rng.random() < 0.5:
                alternatives.append(Alternative(chain, layer - 1, layer, 4))
    alternatives = alternatives or [Alternative("encoder.ffn", 0, 0, 1)]
    rises = {alternative: rng.uniform(-0.1, 1) for alternative in alternatives}
    deltas = {alternative: [-rng.randint(0, 5), -rng.randint(0, 5)] for alternative in alternatives}
    return sizes, alternatives, rises, deltas


def combinations(sizes: dict[str, tuple[int, ...]],
                 alternatives: list[Alternative]) -> Iterator[list[Alternative]]:
    """All combinations without overlaps that leave a sub-layer in each stack."""
    for count in range(len(alternatives) + 1):
        for chosen in itertools.combinations(alternatives, count):
            covered = [(item.chain, layer) for item in chosen for layer in item.layers]
            if len(set(covered)) < len(covered):
                continue
            removed = {(item.chain, item.first) for item in chosen if not item.size}
            left = {chain.partition(".")[0] for chain, values in sizes.items()
                    for layer in range(len(values)) if (chain, layer) not in removed}
            if len(left) == len(STACKS):
                yield list(chosen)


@pytest.mark.parametrize("seed", range(30))
def test_front_equals_enumeration(seed: int) -> None:
    sizes, alternatives, rises, deltas = random_problem(Random(seed))
    front = solve(sizes, alternatives, rises, deltas)
    everything = np.array([[sum(rises[item] for item in chosen),
                            *(sum(deltas[item][cost] for item in chosen) for cost in (0, 1))]
                           for chosen in combinations(sizes, alternatives)])
    expected = np.unique(everything[pareto_front(everything, ["min"] * 3)].round(9), axis=0)
    solved = np.column_stack([front.loss, front.costs])
    assert np.unique(solved.round(9), axis=0).tolist() == expected.tolist()
    for row in range(len(front)):  # values belong to their combinations
        chosen = front.combination(row)
        assert sum(rises[item] for item in chosen) == pytest.approx(front.loss[row])


@pytest.mark.parametrize("seed", range(10))
def test_front_has_the_best_combination_within_any_limits(seed: int) -> None:
    rng = Random(seed)
    sizes, alternatives, rises, deltas = random_problem(rng)
    front = solve(sizes, alternatives, rises, deltas)
    limits = {0: -rng.randint(0, 12), 1: -rng.randint(0, 12)}
    losses = [sum(rises[item] for item in chosen) for chosen in combinations(sizes, alternatives)
              if all(sum(deltas[item][cost] for item in chosen) <= limit
                     for cost, limit in limits.items())]
    fits = (front.costs <= list(limits.values())).all(1)
    assert fits.any() == bool(losses)
    if losses:
        assert front.loss[fits].min() == pytest.approx(min(losses))


@pytest.mark.parametrize("seed", range(20))
def test_front_with_interactions_equals_enumeration(seed: int) -> None:
    rng = Random(seed)
    sizes = dict.fromkeys(CHAINS, (4,) * 3)
    alternatives = []
    for chain in ("encoder.ffn", "decoder.self"):
        alternatives += [Alternative(chain, layer, layer, size) for layer in range(3)
                         for size in rng.sample([0, 1, 2], rng.randint(1, 2))]
        first = rng.randint(0, 1)
        alternatives.append(Alternative(chain, first, first + 1, 4))
    rises = {alternative: rng.uniform(-0.1, 1) for alternative in alternatives}
    deltas = {alternative: [-rng.randint(0, 9)] for alternative in alternatives}
    interactions = {(first, second): rng.uniform(-1, 1)
                    for first in alternatives for second in alternatives
                    if first.chain == second.chain and first.last + 1 == second.first
                    and rng.random() < 0.7}
    pairs = tuple(MeasuredCombination(pair, value + rises[pair[0]] + rises[pair[1]], 0.0)
                  for pair, value in interactions.items())
    library = ScoredLibrary({}, 0.0, tuple(alternatives), tuple(rises.values()), (), 0.0,
                            pairs=pairs)
    front = solve(sizes, alternatives, rises, deltas, library.interactions)
    everything = np.array([[library.predicted_rise(chosen),
                            sum(deltas[item][0] for item in chosen)]
                           for chosen in combinations(sizes, alternatives)])
    expected = np.unique(everything[pareto_front(everything, ["min"] * 2)].round(9), axis=0)
    solved = np.column_stack([front.loss, front.costs])
    assert np.unique(solved.round(9), axis=0).tolist() == expected.tolist()
    for row in range(len(front)):
        assert library.predicted_rise(front.combination(row)) == pytest.approx(front.loss[row])
