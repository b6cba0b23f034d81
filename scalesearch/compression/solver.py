"""Exact Pareto fronts over combinations of alternatives, without enumeration.

Notation: a combination c has the predicted loss L(c) = L(parent) + Σ rise(a) and the costs
C_k(c) = C_k(parent) + Σ delta_k(a), with sums over its alternatives a. Layers are added one after
the other. Only those combinations of the layers so far stay that no other one dominates in L and
all C_k: what follows adds the same vectors to all of them, so a dominated combination
cannot become part of the front (multiple-choice knapsack by dominance, Nemhauser & Ullmann 1969).
The result is exact. Its only condition on combinations is that a stack keeps at least one
sub-layer.

With interactions, the predicted loss also has a term for each pair of replacements in neighboring
layers of a chain: L(c) = L(parent) + Σ rise(a) + Σ interaction(a, b). Combinations are then only
compared if the last layer has the same replacement, because this replacement determines what the
next layer adds (dynamic program over a chain).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import moocore
import numpy as np
from numpy.typing import NDArray

from scalesearch.compression.alternatives import CHAINS, Alternative
from scalesearch.errors import UserError

KEPT = -1  # in place of an alternative: the layer keeps its block
MAX_ROWS = 5_000_000  # of combinations that are compared at once


@dataclass(frozen=True)
class PredictedFront:
    """Non-dominated combinations.

    Attributes:
        alternatives: those that combinations consist of.
        loss: (n,) predicted rises of the loss.
        costs: (n, costs) changes of the costs.
        choices: (n, layers) for each layer of each chain, the index of its alternative, or -1.
    """

    alternatives: tuple[Alternative, ...]
    loss: NDArray[np.float64]
    costs: NDArray[np.float64]
    choices: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.loss)

    def combination(self, row: int) -> list[Alternative]:
        """Return the alternatives of a combination."""
        chosen = sorted({int(index) for index in self.choices[row]} - {KEPT})
        return [self.alternatives[index] for index in chosen]


@dataclass(frozen=True)
class _Partial:
    """Combinations of the layers so far: values (n, 1 + costs) and choices (n, layers)."""

    values: NDArray[np.float64]
    choices: NDArray[np.int16]

    def with_choice(self, columns: slice, index: int, value: NDArray[np.float64]) -> _Partial:
        choices = self.choices.copy()
        choices[:, columns] = index
        return _Partial(self.values + value, choices)


def solve(sizes: Mapping[str, Sequence[int]], alternatives: Sequence[Alternative],
          rises: Mapping[Alternative, float], deltas: Mapping[Alternative, Sequence[float]],
          interactions: Mapping[tuple[Alternative, Alternative], float] = {},
          ) -> PredictedFront:
    """Compute the exact front of all combinations.

    Args:
        sizes: the parent's size of each layer, for each chain.
        alternatives: all alternatives.
        rises: rise of the loss of each.
        deltas: change of every cost of each.
        interactions: change of the loss in addition to both rises, for pairs of which the second
            begins in the layer after the first.

    Raises:
        UserError: the front has too many combinations.
    """
    n_costs = len(next(iter(deltas.values())))
    n_layers = sum(map(len, sizes.values()))
    start = _Partial(np.zeros((1, 1 + n_costs)), np.full((1, n_layers), KEPT, np.int16))
    offset = 0
    numbers = {alternative: index for index, alternative in enumerate(alternatives)}
    added = {(numbers[first], numbers[second]): value
             for (first, second), value in interactions.items()
             if first in numbers and second in numbers}
    interacting = {first for first, _ in added}
    for stack in ("encoder", "decoder"):
        # whether all sub-layers of the stack so far are removed
        fronts = {True: start}
        for chain in (chain for chain in CHAINS if chain.startswith(f"{stack}.")):
            depth = len(sizes[chain])
            # by whether nothing is left so far, and the last alternative if it matters later
            by_end: list[dict[tuple[bool, int], _Partial]] = [
                {(removed, KEPT): partial for removed, partial in fronts.items()}]
            for end in range(1, depth + 1):
                # first layer, index, change of loss and costs, and whether nothing is left
                choices = [(end - 1, KEPT, np.zeros(1 + n_costs), not sizes[chain][end - 1])]
                choices += [(alternative.first, index,
                             np.array([rises[alternative], *deltas[alternative]], float),
                             not alternative.size)
                            for index, alternative in enumerate(alternatives)
                            if alternative.chain == chain and alternative.last == end - 1]
                extended: dict[tuple[bool, int], list[_Partial]] = {}
                for first, index, value, removed in choices:
                    columns = slice(offset + first, offset + end)
                    state = index if index in interacting else KEPT
                    for (was_removed, last), partial in by_end[first].items():
                        change = value.copy()
                        change[0] += added.get((last, index), 0)
                        extended.setdefault((was_removed and removed, state), []).append(
                            partial.with_choice(columns, index, change))
                by_end.append({key: _nondominated(parts) for key, parts in extended.items()})
            fronts = {removed: _nondominated([partial for (is_removed, _), partial
                                              in by_end[depth].items() if is_removed == removed])
                      for removed in {key[0] for key in by_end[depth]}}
            offset += depth
        start = fronts[False]
    return PredictedFront(tuple(alternatives), start.values[:, 0], start.values[:, 1:],
                          start.choices)


def _nondominated(parts: Sequence[_Partial]) -> _Partial:
    """The non-dominated combinations; of equal ones, the first."""
    values = np.concatenate([part.values for part in parts])
    if len(values) > MAX_ROWS:
        raise UserError(f"the predicted front has more than {MAX_ROWS:,} combinations",
                        help="use fewer costs, or fewer sizes in `replace`",
                        code="front-too-large")
    keep = moocore.is_nondominated(values, keep_weakly=False)
    return _Partial(values[keep], np.concatenate([part.choices for part in parts])[keep])
