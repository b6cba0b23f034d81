"""Inverse questions: the largest (or smallest) size within a budget, exactly, and which limit the next value breaks.

Where the values are few enough every one of them is costed: nothing is assumed, and whether costs
rise with the size is reported as found. Where they are more, a grid is costed; if costs rise along
it, so is every value between the two neighbors on the grid where the answer changes; otherwise
every value after all.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scalesearch.cost import Protocol, load_protocol
from scalesearch.errors import UserError
from scalesearch.feasible.costed_candidates import CostedCandidate
from scalesearch.feasible.limits import (
    LimitCheck,
    check_limits,
    collect_limits,
    cost_names,
    is_lower_bound,
    read_budgets,
)
from scalesearch.space import Constraint, Space
from scalesearch.whatif.free_sizes import FreeSizes, config_keys, offered_sizes, written_size

if TYPE_CHECKING:
    import pandas as pd

WEIGHT_WORK_COST = "macs.once"  # shown where there is any
MAX_EXHAUSTIVE_VALUES = 100_000  # values that are costed one and all
GRID_SIZE = 2_000  # values of a longer range that are
MAX_BUILDABLE_PROBES = 64  # values from a doubling on that are tried where it cannot be built
MAX_SEARCH_STEPS = 1 << 20  # where the search for an end gives up
COSTS_SHOWN = ("params.total", "macs.total", WEIGHT_WORK_COST)
CandidatesByValue = Mapping[int, CostedCandidate]  # by value, rising


@dataclass(frozen=True)
class SizePoint:
    """A value, what it costs, and how it stands to every limit."""

    value: int
    costs: Mapping[str, Any]
    limits: tuple[LimitCheck, ...]

    @property
    def violated_limits(self) -> tuple[LimitCheck, ...]:
        """The limits that it misses."""
        return tuple(limit for limit in self.limits if not limit.is_satisfied)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {"value": self.value, "costs": dict(self.costs),
                "limits": [limit.to_json() for limit in self.limits]}


@dataclass(frozen=True)
class Solution:
    """The answer to one question.

    Attributes:
        direction, key: ``max`` or ``min``, of which size.
        fixed_sizes: the sizes of ``--for``.
        best: the answer; None where no value is within the budget.
        next: the value after it that can be built; None where the range ends first.
        changed_values: computed answers that are others than in the file, at the answer.
        n_evaluated, n_unbuildable, n_within_budget: how many values were costed, cannot be built,
            are within the budget.
        low, high, step: the range; a step of 0 is a list.
        is_open_ended: the range ends only because the search does: nothing in the budget limits the
            size.
        is_monotonic: whether every cost in the budget rises with the size (or stays); None where
            none is.
        is_exhaustive: whether every value of the range was costed.
        nearest: where no value is within the budget, the one that misses it by the least.
    """

    direction: str
    key: str
    fixed_sizes: Mapping[str, int]
    best: SizePoint | None
    next: SizePoint | None
    changed_values: Mapping[str, Any]
    n_evaluated: int
    n_unbuildable: int
    n_within_budget: int
    low: int
    high: int
    step: int
    is_open_ended: bool
    is_monotonic: bool | None
    is_exhaustive: bool
    nearest: SizePoint | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        record = {**vars(self), "for": dict(self.fixed_sizes),
                  "violates": [limit.text for limit in self._violates()]}
        for name in ("best", "next"):
            record[name] = record[name] and record[name].to_json()
        return {key: value
                for key, value in record.items()
                if key not in ("fixed_sizes", "n_within_budget", "nearest")}

    def row(self) -> dict[str, Any]:
        """For a table: what was given, the value, its costs, the room left, the next value and what that breaks."""
        row: dict[str, Any] = {**self.fixed_sizes, self.key: self.best.value if self.best else None}
        if self.best:
            row |= self.best.costs
            row |= {f"slack {limit.text}": limit.slack for limit in self.best.limits if limit.name}
        violated = " and ".join(limit.text for limit in self._violates())
        return row | {"next": self.next.value if self.next else None, "violates": violated,
                      "monotonic": self.is_monotonic}

    def _violates(self) -> tuple[LimitCheck, ...]:
        return self.next.violated_limits if self.next else ()


class Solutions(tuple[Solution, ...]):
    """The answers, one for each combination of the given sizes."""

    def frame(self) -> pd.DataFrame:
        """One row each, see :meth:`Solution.row`."""
        import pandas as pd

        return pd.DataFrame([solution.row() for solution in self])


def solve(space: Space, objective: str, budget: str | Sequence[str] = (),
          fixed_sizes: Mapping[str, Sequence[int]] | None = None, protocol: Protocol | None = None,
          step: int = 1) -> Solutions:
    """The largest or smallest value of a size within the budget, for every combination of the sizes in ``fixed_sizes``.

    Args:
        objective: ``max width`` or ``min encoder.depth``.
        budget: names of the space's budgets, or expressions; the space's ``where`` holds besides.
        step: of the values, where the space gives none.

    Raises:
        UserError: a key that is no size, nothing that limits it, a budget that is wrong.
    """
    way, _, key = (word.strip() for word in objective.strip().partition(" "))
    if way not in ("max", "min") or not key:
        raise UserError(f"{objective!r} is not a goal: write 'max KEY' or 'min KEY', for example "
                        "'max width'", code="no-goal")
    [key] = config_keys(space, [key])
    wanted = (*collect_limits(space),
              *read_budgets(space, [budget] if isinstance(budget, str) else budget))
    if not wanted:
        named = f" (the space has {', '.join(space.budgets)})" if space.budgets else ""
        raise UserError(f"nothing limits {key}: give a budget, as in --budget 'params.total <= "
                        f"10M'{named}", code="no-limit")
    if step < 1:
        raise UserError(f"a step of {step}: it must be at least 1", code="below-one")
    fixed_sizes = dict(fixed_sizes or {})
    if key in fixed_sizes:
        raise UserError(f"{key} is what to solve for: it cannot be given as well",
                        code="given-twice")
    varied = FreeSizes(space, (key, *fixed_sizes))
    chosen = protocol or load_protocol(space.protocol)
    return Solutions(_SizeSearch(varied, way, wanted, chosen, step,
                                 dict(zip(fixed_sizes, values))).run()
                     for values in itertools.product(*fixed_sizes.values()))


@dataclass
class _SizeSearch:
    """The search for one solution: the first of the keys of ``free_sizes`` is free, the others are ``fixed_sizes``."""

    free_sizes: FreeSizes
    direction: str
    limits: tuple[Constraint, ...]
    protocol: Protocol
    step: int
    fixed_sizes: Mapping[str, int]

    def __post_init__(self) -> None:
        self.key, self.bounded = self.free_sizes.keys[0], cost_names(self.limits)

    def run(self) -> Solution:
        values, most = self._range()
        candidates = {} if len(values) <= MAX_EXHAUSTIVE_VALUES else self._sampled(values)
        if not candidates:
            candidates = self.evaluate_costs(values)
        if most and self.direction == "max" and isinstance(values, range):
            values = self._extended(values, most, candidates)
        return self._solution(values, candidates, values[-1] == most if most else False)

    def evaluate_costs(self, values: Sequence[int]) -> dict[int, CostedCandidate]:
        """What these values cost."""
        rows = [(value, *self.fixed_sizes.values()) for value in values]
        return dict(
            zip(values,
                self.free_sizes.evaluate_costs(rows, self.protocol, (*COSTS_SHOWN, *self.bounded))))

    def _range(self) -> tuple[Sequence[int], int]:
        """The values to look at, and how far the search could go; 0 where that is the file's say."""
        mine = offered_sizes(self.free_sizes.space, self.key)
        if mine is not None:
            return mine, 0
        spec = self.free_sizes.parameters[self.key].field
        low = max(1, int(spec.low if spec.low is not None else 1))
        lowest = -(-low // self.step) * self.step
        most = MAX_SEARCH_STEPS * self.step if spec.high is None else int(spec.high)
        high = self._range_end(max(lowest, written_size(self.free_sizes.space, self.key) or 1),
                               most)
        return range(lowest, high + 1, self.step), most

    def _range_end(self, start: int, most: int) -> int:
        """Where the range ends: for the smallest value, at a doubling of the present one that is within the budget.

        For the largest, at twice the last doubling that is not too large; at ``most`` where none
        is.
        """
        fine = 0
        probe = start
        seen = dict[int, CostedCandidate]()
        while True:
            value, candidate = self._next_buildable(probe, most)
            over = candidate is not None and self._exceeds_budget(candidate)
            if candidate is not None:
                seen[value] = candidate
                fine = fine if over else value
                if self.direction == "min" and candidate.satisfies(self.limits):
                    return value
            # Larger ones may cost less again; who looks for the smallest waits for that.
            past = over and probe >= 4 * max(fine, start) and (
                self.direction == "max" or self._is_monotonic(seen))
            if past or probe >= most:
                return probe if self.direction == "min" else min(2 * max(fine, start), most)
            probe = min(2 * probe, most)

    def _next_buildable(self, probe: int, most: int) -> tuple[int, CostedCandidate | None]:
        """The first value from ``probe`` on that can be built and meets what no cost decides; None where none is near.

        So a number of heads that divides no power of two does not hide all that is larger.
        """
        first = -(-probe // self.step) * self.step
        for count in (1, MAX_BUILDABLE_PROBES):
            values = range(first, min(first + count * self.step, most + 1), self.step)
            for value, candidate in self.evaluate_costs(values).items():
                if self._is_valid(candidate):
                    return value, candidate
        return first, None

    def _is_valid(self, candidate: CostedCandidate) -> bool:
        return candidate.satisfies(limit for limit in self.limits if not limit.costs)

    def _exceeds_budget(self, candidate: CostedCandidate) -> bool:
        """Whether it breaks a limit of costs that no larger value would mend."""
        return not candidate.satisfies(
            limit for limit in self.limits if limit.costs and not is_lower_bound(limit))

    def _extended(self, values: range, most: int, candidates: dict[int, CostedCandidate]) -> range:
        """Where costs do not rise, more of the range: until twice as many values again hold nothing that fits."""
        empty = 0
        while empty < 2 and self._is_monotonic(candidates) is False and values[
                -1] < most and len(values) <= MAX_EXHAUSTIVE_VALUES:
            block = self.evaluate_costs(
                range(values[-1] + self.step, min(2 * values[-1], most) + 1, self.step))
            candidates |= block
            values = range(values[0], [*block][-1] + 1, self.step)
            empty = 0 if any(one.satisfies(self.limits) for one in block.values()) else empty + 1
            if all(candidate.costs is None for candidate in block.values()):
                break
        return values

    def _sampled(self, values: Sequence[int]) -> dict[int, CostedCandidate]:
        """A grid over a long range, and all that lies where it changes; nothing where a grid cannot be trusted."""
        stride = len(values) // GRID_SIZE
        candidates = self.evaluate_costs([*values[::stride], values[-1]])
        if not all(map(self._is_valid,
                       candidates.values())) or self._is_monotonic(candidates) is False:
            return {}
        # Too small, within or too large: between the first and the last lies what is within,
        # however little.
        side = [(self._exceeds_budget(one), one.satisfies(self.limits))
                for one in candidates.values()]
        for n in [n for n in range(len(side) - 1) if side[n] != side[n + 1]]:
            candidates |= self.evaluate_costs(values[n * stride : (n + 1) * stride])
        return dict(sorted(candidates.items()))

    def _solution(self, values: Sequence[int], candidates: CandidatesByValue,
                  open_end: bool) -> Solution:
        built = {value: candidate
                 for value, candidate in candidates.items() if candidate.costs is not None}
        within = [value for value, candidate in built.items() if candidate.satisfies(self.limits)]
        largest = self.direction == "max"
        best = (max if largest else min)(within, default=None)
        beyond = [v for v in built if best is not None and (v > best if largest else v < best)]
        after = (min if largest else max)(beyond, default=None)
        nearest = None if within else min(
            built, key=lambda value: built[value].max_violation(self.limits), default=None)
        return Solution(self.direction, self.key, self.fixed_sizes, best=self._point(best, built), next=self._point(after, built),  # noqa: E501
                        changed_values=self._changed_values(built[best]) if best is not None else {}, n_evaluated=len(candidates),  # noqa: E501
                        n_unbuildable=len(candidates) - len(built), n_within_budget=len(within), low=values[0] if values else 0,  # noqa: E501
                        high=values[-1] if values else 0, step=values.step if isinstance(values, range) else 0,
                        is_open_ended=open_end and largest and after is None and best is not None,
                        is_monotonic=self._is_monotonic(built), is_exhaustive=len(candidates) == len(values),
                        nearest=self._point(nearest, built))  # fmt: skip

    def _point(self, value: int | None, candidates_by_value: CandidatesByValue) -> SizePoint | None:
        if value is None:
            return None
        costs = {name: cost
                 for name, cost in (candidates_by_value[value].costs or {}).items()
                 if cost or name != WEIGHT_WORK_COST}
        return SizePoint(value, costs,
                         check_limits(self.limits, candidates_by_value[value].__getitem__))

    def _changed_values(self, candidate: CostedCandidate) -> dict[str, Any]:
        """Computed answers that the value has changed."""
        own = candidate.config
        before = self.free_sizes.base_config
        return {key: own[key]
                for key in own if key not in self.free_sizes.keys and before.get(key) != own[key]}

    def _is_monotonic(self, candidates: CandidatesByValue) -> bool | None:
        """Whether no cost in the budget ever falls from one value that can be built to the next."""
        if not self.bounded:
            return None
        rows = [candidate.costs
                for _, candidate in sorted(candidates.items()) if candidate.costs is not None]
        return all(one[name] <= two[name] for name in self.bounded
                   for one, two in itertools.pairwise(rows))
