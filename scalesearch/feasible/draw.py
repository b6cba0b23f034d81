"""Random candidates within a budget, by construction: from a space taken apart, without rejecting anything.

The chances are those of answering parameter by parameter (uniform, or log-uniform where the space says so) and drawing
again until the budget is met; only that nothing is drawn in vain: first a cell, then a left side, weighed by all the
right sides that fit with it, then one of those.
"""

from __future__ import annotations

import math
import random
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.count import LEFT, RIGHT, Counter
from scalesearch.feasible.dominance import Index
from scalesearch.feasible.grid import TooMany
from scalesearch.feasible.limits import Bound
from scalesearch.feasible.pieces import Part
from scalesearch.feasible.sections import REST, SPINE, Decomposition
from scalesearch.space import Space
from scalesearch.space.syntax.parameters import IntRange, Parameter

Chances = NDArray[np.float64]


class Draws:
    """Draws answer sheets of ``space`` that meet ``bounds``.

    Attributes:
        share: of draws of the whole space that would meet them, exactly.

    Raises:
        TooMany, Endless: the space is too large to take apart, or has no end.
    """

    def __init__(self, space: Space, protocol: Protocol, bounds: list[Bound]) -> None:
        names = tuple(dict.fromkeys(bound.name for bound in bounds)) or ("params.total",)
        self.parameters = one_each(space)
        self.counter = Counter(Decomposition(space, protocol, names), bounds)
        self.parts, self.bounds = self.counter.decomposition.parts, bounds
        spine = set(self.parts[SPINE].parameters)
        self.chances = {name: self._chances(part, set() if name == SPINE else spine)
                        for name, part in self.parts.items()}
        self.sums = np.cumsum(self._weights())
        self.share = float(self.sums[-1]) if len(self.sums) else 0.0

    def draw(self, rng: random.Random) -> dict[str, Any] | None:
        """A sheet's answers by parameter; None where nothing meets the bounds."""
        if not self.share > 0:
            return None
        cell = self.counter.cells[_pick(self.sums, rng)]
        room = self._room(cell.left)
        mine = _pick(np.cumsum(self._lefts[cell.left] * self._weighed(cell.right).within(room)), rng)
        fits = (self.counter.bounded("right", cell.right, self.bounds) <= room[mine]).all(1)
        theirs = _pick(np.cumsum(self._rights[cell.right] * fits), rng)
        rest = _pick(np.cumsum(self.chances[REST][cell.rest]), rng)
        return dict(self.counter.point(cell, mine, theirs, rest).answers.params)

    @cached_property
    def _most(self) -> NDArray[np.int64]:
        return np.array([bound.cut for bound in self.bounds], np.int64)

    @cached_property
    def _lefts(self) -> list[Chances]:
        return [self.chances[LEFT][group.good_rows[0]] for group in self.counter.lefts]

    @cached_property
    def _rights(self) -> list[Chances]:
        rights = []
        for group in self.counter.rights:
            chances = np.ones(int(group.good.sum()))
            for name, rows in zip(RIGHT, group.good_rows):
                chances *= self.chances[name][rows]
            rights.append(chances)
        return rights

    def _weights(self) -> Chances:
        """(cells,) the chance that a draw of the whole space is of that cell and meets the bounds."""
        cells = self.counter.cells
        weights = np.array([cell.allowed * self.chances[SPINE][cell.spine] * self.chances[REST][cell.rest].sum()
                          for cell in cells])
        by_right: dict[int, dict[int, list[int]]] = {}
        for place in np.flatnonzero(weights).tolist():
            by_right.setdefault(cells[place].right, {}).setdefault(cells[place].left, []).append(place)
        for right, lefts in by_right.items():
            weighed = self._weighed(right)  # a hundred bytes a row: kept no longer than needed
            for left, places in lefts.items():
                weights[places] *= float(self._lefts[left] @ weighed.within(self._room(left)))
        return weights

    def _weighed(self, right: int) -> Index:
        return Index(self.counter.bounded("right", right, self.bounds), self._rights[right])

    def _room(self, left: int) -> NDArray[np.int64]:
        """(rows, bounds) what each good left row leaves."""
        return self._most - self.counter.bounded("left", left, self.bounds)

    def _chances(self, part: Part, elsewhere: set[str]) -> Chances:
        """(rows,) the chance of each row's answers, those to parameters that are counted ``elsewhere`` left out."""
        chances = np.ones(len(part))
        for column, name in enumerate(part.parameters):
            if name not in elsewhere:
                chance = np.append(chances_of(self.parameters[name]), 1.0)  # the last is UNASKED's, which is -1
                chances *= chance[part.codes[:, column]]
        return chances


def chances_of(parameter: Parameter) -> Chances:
    """The chance of each of a parameter's answers in its ``draw``."""
    count = parameter.count()
    assert count is not None, "what has no end was refused before"
    if not (isinstance(parameter, IntRange) and parameter.log):
        return np.full(count, 1 / count)
    edges = np.log(np.append(np.array(parameter.values()) - 0.5, parameter.high + 0.5))
    return np.diff(edges) / (math.log(parameter.high + 0.5) - math.log(parameter.low - 0.5))


def one_each(space: Space) -> dict[str, Parameter]:
    """Name to parameter.

    Raises:
        TooMany: a name holds several parameters, by a condition.
    """
    parameters: dict[str, Parameter] = {}
    for name, parameter in space.parameters():
        if parameters.setdefault(name, parameter) != parameter:
            raise TooMany(f"{name} is asked in several ways")
    return parameters


def _pick(sums: NDArray[np.float64], rng: random.Random) -> int:
    """A place with a chance by how much the running sum rises there."""
    at = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    return min(at, int(np.searchsorted(sums, sums[-1])))
