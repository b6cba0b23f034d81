"""Inverse questions: the largest (or smallest) size within a budget, exactly, and which limit the next value breaks.

Where the values are few enough every one of them is costed: nothing is assumed, and whether costs rise with the size
is reported as found. Where they are more, a grid is costed; if costs rise along it, so is every value between the two
neighbours on the grid where the answer changes; otherwise every value after all.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalesearch.cost import Protocol, protocol_of
from scalesearch.errors import UserError
from scalesearch.feasible.candidates import Candidate, priced
from scalesearch.feasible.limits import check_limits, costs_of, limits, read_budgets
from scalesearch.space import Constraint, Space
from scalesearch.whatif.solution import Point, Solution, Solutions
from scalesearch.whatif.varied import Varied, first, offered, unknown

ALL = 100_000  # values that are costed one and all
GRID = 2_000  # values of a longer range that are
FARTHEST = 1 << 20  # where the search for an end gives up
SHOWN = ("params.total", "macs.total")


def solve(
    space: Space,
    goal: str,
    budget: str | Sequence[str] = (),
    each: Mapping[str, Sequence[int]] | None = None,
    protocol: Protocol | None = None,
    step: int = 1,
) -> Solutions:
    """The largest or smallest value of a size within the budget, for every combination of the sizes in ``each``.

    Args:
        goal: ``max width`` or ``min encoder.depth``.
        budget: names of the space's budgets, or expressions; the space's ``where`` holds besides.
        step: of the values, where the space gives none.

    Raises:
        UserError: a key that is no size, nothing that limits it, a budget that is wrong.
    """
    way, key = read_goal(space, goal)
    wanted = (*limits(space), *read_budgets(space, [budget] if isinstance(budget, str) else budget))
    if not wanted:
        named = f" (the space has {', '.join(space.budgets)})" if space.budgets else ""
        raise UserError(f"nothing limits {key}: give a budget, as in --budget 'params.total <= 10M'{named}",
                        code="no-limit")
    each = dict(each or {})
    if key in each:
        raise UserError(f"{key} is what to solve for: it cannot be given as well", code="given-twice")
    varied = Varied(space, (key, *each))
    search = _Search(varied, way, key, wanted, protocol or protocol_of(space.protocol), step)
    return Solutions(search.run(dict(zip(each, values))) for values in itertools.product(*each.values()))


def read_goal(space: Space, goal: str) -> tuple[str, str]:
    """``max width`` as its two words. Raises UserError."""
    way, _, key = goal.strip().partition(" ")
    key = key.strip()
    if way not in ("max", "min") or not key:
        raise UserError(f"{goal!r} is not a goal: write 'max KEY' or 'min KEY', for example 'max width'",
                        code="no-goal")
    if key not in space.form.by_key:
        raise UserError(unknown(space, key), code="unknown-key")
    return way, key


# -- the search


@dataclass
class _Search:
    varied: Varied
    way: str
    key: str
    limits: tuple[Constraint, ...]
    protocol: Protocol
    step: int

    def __post_init__(self) -> None:
        self.bounded = costs_of(self.limits)
        self.names = tuple(dict.fromkeys((*SHOWN, *self.bounded)))
        if self.step < 1:
            raise UserError(f"a step of {self.step}: it must be at least 1", code="below-one")

    def run(self, given: Mapping[str, int]) -> Solution:
        values, most = self._range(given)
        candidates = {} if len(values) <= ALL else self._sampled(values, given)
        if not candidates:
            candidates = dict(zip(values, self.price(values, given)))
        if most and self.way == "max" and isinstance(values, range):
            values = self._extended(values, most, candidates, given)
        return self._solution(given, values, candidates, values[-1] == most if most else False)

    def price(self, values: Sequence[int], given: Mapping[str, int]) -> list[Candidate]:
        """What these values cost."""
        sheets = [self.varied.answers({self.key: value, **given}) for value in values]
        return priced(sheets, self.protocol, self.names)

    def good(self, candidate: Candidate) -> bool:
        """Whether a candidate can be built and is within every limit."""
        return candidate.costs is not None and all(limit.holds(candidate.__getitem__) for limit in self.limits)

    def _range(self, given: Mapping[str, int]) -> tuple[Sequence[int], int]:
        """The values to look at, and how far the search could go; 0 where that is the file's say."""
        mine = offered(self.varied.space, self.key)
        if mine is not None:
            return mine, 0
        spec = self.varied.leaf(self.key).field
        low = max(1, int(spec.low if spec.low is not None else 1))
        lowest = -(-low // self.step) * self.step
        most = FARTHEST * self.step if spec.high is None else int(spec.high)
        start = max(lowest, first(self.varied.space, self.key))
        high = self._reach(start, most, given)
        return range(lowest, high + 1, self.step), most

    def _extended(
        self, values: range, most: int, candidates: dict[int, Candidate], given: Mapping[str, int]
    ) -> range:
        """Where costs do not rise, more of the range: until twice as many values again hold nothing that fits."""
        empty = 0
        while empty < 2 and self._rising(candidates) is False and values[-1] < most and len(values) <= ALL:
            more = range(values[-1] + self.step, min(2 * values[-1], most) + 1, self.step)
            block = dict(zip(more, self.price(more, given)))
            candidates |= block
            values = range(values[0], more[-1] + 1, self.step)
            empty = 0 if any(map(self.good, block.values())) else empty + 1
            if all(candidate.costs is None for candidate in block.values()):
                break
        return values

    def _reach(self, start: int, most: int, given: Mapping[str, int]) -> int:
        """Where the range ends: for the smallest value, at a doubling of the present one that is within the budget.

        For the largest, at twice the last such doubling; at ``most`` where none breaks the budget.
        """
        good, probe = 0, start
        while probe <= 4 * max(good, start) or (self.way == "min" and not good):
            if self.good(self.price([probe], given)[0]):
                good = probe
            if probe >= most or (self.way == "min" and good):
                break
            probe = min(2 * probe, most)
        return probe if self.way == "min" else min(2 * max(good, start), most)

    def _sampled(self, values: Sequence[int], given: Mapping[str, int]) -> dict[int, Candidate]:
        """A grid over a long range, and all that lies where it changes; nothing where a grid cannot be trusted."""
        stride = len(values) // GRID
        grid = [*values[::stride], values[-1]]
        candidates = dict(zip(grid, self.price(grid, given)))
        if any(candidate.costs is None for candidate in candidates.values()) or self._rising(candidates) is False:
            return {}
        good = [self.good(candidate) for candidate in candidates.values()]
        for n in [n for n in range(len(good) - 1) if good[n] != good[n + 1]]:
            between = values[n * stride : (n + 1) * stride]
            candidates |= dict(zip(between, self.price(between, given)))
        return dict(sorted(candidates.items()))

    def _solution(
        self, given: Mapping[str, int], values: Sequence[int], candidates: Mapping[int, Candidate], open_end: bool
    ) -> Solution:
        built = {value: candidate for value, candidate in candidates.items() if candidate.costs is not None}
        within = [value for value, candidate in built.items() if self.good(candidate)]
        best = (max if self.way == "max" else min)(within, default=None)
        beyond = [v for v in built if best is not None and (v > best if self.way == "max" else v < best)]
        after = (min if self.way == "max" else max)(beyond, default=None)
        step = values.step if isinstance(values, range) else 0
        ends = open_end and self.way == "max" and after is None and best is not None
        nearest = None if within else min(built, key=lambda value: self._miss(built[value]), default=None)
        return Solution(
            self.way, self.key, given, best=self._point(best, built), next=self._point(after, built),
            follows=self._follows(built[best]) if best is not None else {},
            tried=len(candidates), unbuildable=len(candidates) - len(built), within=len(within),
            low=values[0] if values else 0, high=values[-1] if values else 0, step=step, open_end=ends,
            rising=self._rising(built), exhaustive=len(candidates) == len(values), nearest=self._point(nearest, built),
        )  # fmt: skip

    def _miss(self, candidate: Candidate) -> float:
        return max(limit.slack(candidate.__getitem__) for limit in self.limits)

    def _point(self, value: int | None, built: Mapping[int, Candidate]) -> Point | None:
        if value is None:
            return None
        candidate = built[value]
        return Point(value, candidate.costs or {}, check_limits(self.limits, candidate.__getitem__))

    def _follows(self, candidate: Candidate) -> dict[str, Any]:
        """Computed answers that the value has changed."""
        chosen, before = {self.key, *self.varied.keys}, self.varied.base
        return {key: value for key, value in candidate.own.items() if key not in chosen and before.get(key) != value}

    def _rising(self, candidates: Mapping[int, Candidate]) -> bool | None:
        """Whether no cost in the budget ever falls from one value that can be built to the next."""
        if not self.bounded:
            return None
        rows = [candidate.costs for _, candidate in sorted(candidates.items()) if candidate.costs is not None]
        return all(one[name] <= two[name] for name in self.bounded for one, two in itertools.pairwise(rows))
