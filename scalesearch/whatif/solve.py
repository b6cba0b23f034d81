"""Inverse questions: the largest (or smallest) size within a budget, exactly, and which limit the next value breaks.

Where the values are few enough every one of them is costed: nothing is assumed, and whether costs rise with the size
is reported as found. Where they are more, a grid is costed; if costs rise along it, so is every value between the two
neighbours on the grid where the answer changes; otherwise every value after all.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scalesearch.cost import Protocol, protocol_of
from scalesearch.errors import UserError
from scalesearch.feasible.candidates import Candidate
from scalesearch.feasible.limits import LimitCheck, check_limits, costs_of, is_lower_bound, limits, read_budgets
from scalesearch.space import Constraint, Space
from scalesearch.whatif.varied import Varied, answer_keys, offered, written

if TYPE_CHECKING:
    import pandas as pd

ONCE = "macs.once"  # shown where there is any
ALL = 100_000  # values that are costed one and all
GRID = 2_000  # values of a longer range that are
NEAR = 64  # values from a doubling on that are tried where it cannot be built
FARTHEST = 1 << 20  # where the search for an end gives up
SHOWN = ("params.total", "macs.total", ONCE)
Built = Mapping[int, Candidate]  # by value, rising


@dataclass(frozen=True)
class Point:
    """A value, what it costs, and how it stands to every limit."""

    value: int
    costs: Mapping[str, Any]
    limits: tuple[LimitCheck, ...]

    @property
    def broken(self) -> tuple[LimitCheck, ...]:
        """The limits that it misses."""
        return tuple(limit for limit in self.limits if not limit.holds)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {"value": self.value, "costs": dict(self.costs), "limits": [limit.to_json() for limit in self.limits]}


@dataclass(frozen=True)
class Solution:
    """The answer to one question.

    Attributes:
        way, key: ``max`` or ``min``, of which size.
        given: the sizes of ``--for``.
        best: the answer; None where no value is within the budget.
        next: the value after it that can be built; None where the range ends first.
        follows: computed answers that are others than in the file, at the answer.
        tried, unbuildable, within: how many values were costed, cannot be built, are within the budget.
        low, high, step: the range; a step of 0 is a list.
        open_end: the range ends only because the search does: nothing in the budget limits the size.
        rising: whether every cost in the budget rises with the size (or stays); None where none is.
        exhaustive: whether every value of the range was costed.
        nearest: where no value is within the budget, the one that misses it by the least.
    """

    way: str
    key: str
    given: Mapping[str, int]
    best: Point | None
    next: Point | None
    follows: Mapping[str, Any]
    tried: int
    unbuildable: int
    within: int
    low: int
    high: int
    step: int
    open_end: bool
    rising: bool | None
    exhaustive: bool
    nearest: Point | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        record = {**vars(self), "for": dict(self.given), "breaks": [one.text for one in self._breaks()]}
        for name in ("best", "next"):
            record[name] = record[name] and record[name].to_json()
        return {key: value for key, value in record.items() if key not in ("given", "within", "nearest")}

    def row(self) -> dict[str, Any]:
        """For a table: what was given, the value, its costs, the room left, the next value and what that breaks."""
        row: dict[str, Any] = {**self.given, self.key: self.best.value if self.best else None}
        if self.best:
            row |= self.best.costs
            row |= {f"slack {limit.text}": limit.slack for limit in self.best.limits if limit.name}
        breaks = " and ".join(limit.text for limit in self._breaks())
        return row | {"next": self.next.value if self.next else None, "breaks": breaks, "rising": self.rising}

    def _breaks(self) -> tuple[LimitCheck, ...]:
        return self.next.broken if self.next else ()


class Solutions(tuple[Solution, ...]):
    """The answers, one for each combination of the given sizes."""

    def frame(self) -> pd.DataFrame:
        """One row each, see :meth:`Solution.row`."""
        import pandas as pd

        return pd.DataFrame([solution.row() for solution in self])


def solve(space: Space, goal: str, budget: str | Sequence[str] = (), each: Mapping[str, Sequence[int]] | None = None,
          protocol: Protocol | None = None, step: int = 1) -> Solutions:
    """The largest or smallest value of a size within the budget, for every combination of the sizes in ``each``.

    Args:
        goal: ``max width`` or ``min encoder.depth``.
        budget: names of the space's budgets, or expressions; the space's ``where`` holds besides.
        step: of the values, where the space gives none.

    Raises:
        UserError: a key that is no size, nothing that limits it, a budget that is wrong.
    """
    way, _, key = (word.strip() for word in goal.strip().partition(" "))
    if way not in ("max", "min") or not key:
        raise UserError(f"{goal!r} is not a goal: write 'max KEY' or 'min KEY', for example 'max width'",
                        code="no-goal")
    [key] = answer_keys(space, [key])
    wanted = (*limits(space), *read_budgets(space, [budget] if isinstance(budget, str) else budget))
    if not wanted:
        named = f" (the space has {', '.join(space.budgets)})" if space.budgets else ""
        raise UserError(f"nothing limits {key}: give a budget, as in --budget 'params.total <= 10M'{named}",
                        code="no-limit")
    if step < 1:
        raise UserError(f"a step of {step}: it must be at least 1", code="below-one")
    each = dict(each or {})
    if key in each:
        raise UserError(f"{key} is what to solve for: it cannot be given as well", code="given-twice")
    varied, chosen = Varied(space, (key, *each)), protocol or protocol_of(space.protocol)
    return Solutions(_Search(varied, way, wanted, chosen, step, dict(zip(each, values))).run()
                     for values in itertools.product(*each.values()))


@dataclass
class _Search:
    """The search for one solution: the first of the keys of ``varied`` is free, the others are ``given``."""

    varied: Varied
    way: str
    limits: tuple[Constraint, ...]
    protocol: Protocol
    step: int
    given: Mapping[str, int]

    def __post_init__(self) -> None:
        self.key, self.bounded = self.varied.keys[0], costs_of(self.limits)

    def run(self) -> Solution:
        values, most = self._range()
        candidates = {} if len(values) <= ALL else self._sampled(values)
        if not candidates:
            candidates = self.price(values)
        if most and self.way == "max" and isinstance(values, range):
            values = self._extended(values, most, candidates)
        return self._solution(values, candidates, values[-1] == most if most else False)

    def price(self, values: Sequence[int]) -> dict[int, Candidate]:
        """What these values cost."""
        rows = [(value, *self.given.values()) for value in values]
        return dict(zip(values, self.varied.price(rows, self.protocol, (*SHOWN, *self.bounded))))

    def _range(self) -> tuple[Sequence[int], int]:
        """The values to look at, and how far the search could go; 0 where that is the file's say."""
        mine = offered(self.varied.space, self.key)
        if mine is not None:
            return mine, 0
        spec = self.varied.leaves[self.key].field
        low = max(1, int(spec.low if spec.low is not None else 1))
        lowest = -(-low // self.step) * self.step
        most = FARTHEST * self.step if spec.high is None else int(spec.high)
        high = self._reach(max(lowest, written(self.varied.space, self.key) or 1), most)
        return range(lowest, high + 1, self.step), most

    def _reach(self, start: int, most: int) -> int:
        """Where the range ends: for the smallest value, at a doubling of the present one that is within the budget.

        For the largest, at twice the last doubling that is not too large; at ``most`` where none is.
        """
        fine, probe, seen = 0, start, dict[int, Candidate]()
        while True:
            value, candidate = self._usable(probe, most)
            over = candidate is not None and self._over(candidate)
            if candidate is not None:
                seen[value] = candidate
                fine = fine if over else value
                if self.way == "min" and candidate.meets(self.limits):
                    return value
            # Larger ones may cost less again; who looks for the smallest waits for that.
            past = over and probe >= 4 * max(fine, start) and (self.way == "max" or self._rising(seen))
            if past or probe >= most:
                return probe if self.way == "min" else min(2 * max(fine, start), most)
            probe = min(2 * probe, most)

    def _usable(self, probe: int, most: int) -> tuple[int, Candidate | None]:
        """The first value from ``probe`` on that can be built and meets what no cost decides; None where none is near.

        So a number of heads that divides no power of two does not hide all that is larger.
        """
        first = -(-probe // self.step) * self.step
        for count in (1, NEAR):
            values = range(first, min(first + count * self.step, most + 1), self.step)
            for value, candidate in self.price(values).items():
                if self._sound(candidate):
                    return value, candidate
        return first, None

    def _sound(self, candidate: Candidate) -> bool:
        return candidate.meets(limit for limit in self.limits if not limit.costs)

    def _over(self, candidate: Candidate) -> bool:
        """Whether it breaks a limit of costs that no larger value would mend."""
        return not candidate.meets(limit for limit in self.limits if limit.costs and not is_lower_bound(limit))

    def _extended(self, values: range, most: int, candidates: dict[int, Candidate]) -> range:
        """Where costs do not rise, more of the range: until twice as many values again hold nothing that fits."""
        empty = 0
        while empty < 2 and self._rising(candidates) is False and values[-1] < most and len(values) <= ALL:
            block = self.price(range(values[-1] + self.step, min(2 * values[-1], most) + 1, self.step))
            candidates |= block
            values = range(values[0], [*block][-1] + 1, self.step)
            empty = 0 if any(one.meets(self.limits) for one in block.values()) else empty + 1
            if all(candidate.costs is None for candidate in block.values()):
                break
        return values

    def _sampled(self, values: Sequence[int]) -> dict[int, Candidate]:
        """A grid over a long range, and all that lies where it changes; nothing where a grid cannot be trusted."""
        stride = len(values) // GRID
        candidates = self.price([*values[::stride], values[-1]])
        if not all(map(self._sound, candidates.values())) or self._rising(candidates) is False:
            return {}
        # Too small, within or too large: between the first and the last lies what is within, however little.
        side = [(self._over(one), one.meets(self.limits)) for one in candidates.values()]
        for n in [n for n in range(len(side) - 1) if side[n] != side[n + 1]]:
            candidates |= self.price(values[n * stride : (n + 1) * stride])
        return dict(sorted(candidates.items()))

    def _solution(self, values: Sequence[int], candidates: Built, open_end: bool) -> Solution:
        built = {value: candidate for value, candidate in candidates.items() if candidate.costs is not None}
        within = [value for value, candidate in built.items() if candidate.meets(self.limits)]
        largest = self.way == "max"
        best = (max if largest else min)(within, default=None)
        beyond = [v for v in built if best is not None and (v > best if largest else v < best)]
        after = (min if largest else max)(beyond, default=None)
        nearest = None if within else min(built, key=lambda value: built[value].miss(self.limits), default=None)
        return Solution(self.way, self.key, self.given, best=self._point(best, built), next=self._point(after, built),
                        follows=self._follows(built[best]) if best is not None else {}, tried=len(candidates),
                        unbuildable=len(candidates) - len(built), within=len(within), low=values[0] if values else 0,
                        high=values[-1] if values else 0, step=values.step if isinstance(values, range) else 0,
                        open_end=open_end and largest and after is None and best is not None,
                        rising=self._rising(built), exhaustive=len(candidates) == len(values),
                        nearest=self._point(nearest, built))  # fmt: skip

    def _point(self, value: int | None, built: Built) -> Point | None:
        if value is None:
            return None
        costs = {name: cost for name, cost in (built[value].costs or {}).items() if cost or name != ONCE}
        return Point(value, costs, check_limits(self.limits, built[value].__getitem__))

    def _follows(self, candidate: Candidate) -> dict[str, Any]:
        """Computed answers that the value has changed."""
        own, before = candidate.answers, self.varied.base
        return {key: own[key] for key in own if key not in self.varied.keys and before.get(key) != own[key]}

    def _rising(self, candidates: Built) -> bool | None:
        """Whether no cost in the budget ever falls from one value that can be built to the next."""
        if not self.bounded:
            return None
        rows = [candidate.costs for _, candidate in sorted(candidates.items()) if candidate.costs is not None]
        return all(one[name] <= two[name] for name in self.bounded for one, two in itertools.pairwise(rows))
