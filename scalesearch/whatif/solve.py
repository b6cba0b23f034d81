"""Inverse queries: the largest or smallest size within a budget.

Results are exact. If there are at most ``MAX_EXHAUSTIVE_VALUES`` values, all of them are costed,
and nothing is assumed about the costs. For longer ranges, a grid is costed. If costs rise along the
grid, all values between neighbors on the grid are costed if the budget is met by only one of them.
Otherwise, all values are costed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scalesearch.cost import Protocol, load_protocol
from scalesearch.errors import UserError, option
from scalesearch.feasible.costed_candidates import CostedCandidate
from scalesearch.feasible.limits import (
    LimitCheck,
    check_limit,
    collect_limits,
    cost_names,
    is_lower_bound,
    read_budgets,
)
from scalesearch.spaces import Constraint, Space
from scalesearch.spaces.assembly.architecture import build_blocks, describe_uneven_heads
from scalesearch.whatif.free_sizes import (
    FreeSizes,
    config_keys,
    offered_sizes,
    parameter_name,
    written_size,
)

if TYPE_CHECKING:
    import pandas as pd

EXAMPLE_BUDGET = "'params.total <= 10M'"
WEIGHT_WORK_COST = "macs.once"  # printed unless it is 0
MAX_EXHAUSTIVE_VALUES = 100_000
GRID_SIZE = 2_000
MAX_BUILDABLE_PROBES = 64  # next values that are tried if a value cannot be built
MAX_SEARCH_STEPS = 1 << 20  # end of the search for an upper end of a range
COSTS_SHOWN = ("params.total", "macs.total", WEIGHT_WORK_COST)
CandidatesByValue = Mapping[int, CostedCandidate]  # in increasing order of the values


@dataclass(frozen=True)
class SizePoint:
    """A value of the size with its costs and checked limits."""

    value: int
    costs: Mapping[str, Any]
    limits: tuple[LimitCheck, ...]

    @property
    def violated_limits(self) -> tuple[LimitCheck, ...]:
        """Limits that are not met."""
        return tuple(limit for limit in self.limits if not limit.holds)


@dataclass(frozen=True)
class Solution:
    """Result of one inverse query.

    Attributes:
        direction: ``max`` or ``min``.
        key: the size.
        fixed_sizes: values of other sizes.
        best: the largest or smallest value within the budget, or None.
        next: the next value that can be built; None if the range ends before.
        changed_values: computed values of the network that differ from those in the file, without
            values that repeat the key of the same name in an outer group (``decoder.width``).
        n_evaluated, n_unbuildable, n_within_budget: numbers of values that were costed, that
            cannot be built, and that are within the budget.
        low, high, step: the range of values; the step is 0 for a list.
        is_open_ended: the budget does not limit the size; the range ends where the search does.
        is_monotonic: whether no cost in the budget falls if the size rises; None without costs.
        is_exhaustive: whether all values of the range were costed.
        nearest: if no value is within the budget, the one with the smallest violation.
        notes: remarks on the best candidate, such as heads that do not divide the width.
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
    notes: tuple[str, ...] = ()

    def row(self) -> dict[str, Any]:
        """Table row: fixed sizes, best value, costs, slacks, next value and violations."""
        row: dict[str, Any] = {**self.fixed_sizes, self.key: self.best.value if self.best else None}
        if self.best:
            row |= self.best.costs
            row |= {f"slack {limit.limit}": limit.slack for limit in self.best.limits
                    if limit.slack is not None}
        violated = " and ".join(self.violated_limits)
        return row | {"next": self.next.value if self.next else None, "violates": violated,
                      "monotonic": self.is_monotonic}

    @property
    def violated_limits(self) -> list[str]:
        """Limits that the next value does not meet."""
        return [limit.limit for limit in self.next.violated_limits] if self.next else []


class Solutions(tuple[Solution, ...]):
    """Results of an inverse query, one per combination of fixed sizes."""

    def frame(self) -> pd.DataFrame:
        """Data frame with a row per solution, see :meth:`Solution.row`."""
        import pandas as pd

        return pd.DataFrame([solution.row() for solution in self])


def solve(space: Space, objective: str, budget: str | Sequence[str] = (),
          fixed_sizes: Mapping[str, Sequence[int]] | None = None, protocol: Protocol | None = None,
          step: int = 1) -> Solutions:
    """Find the largest or smallest size within a budget.

    Args:
        objective: ``max KEY`` or ``min KEY``, for example ``max width``.
        budget: names of budgets of the space, or expressions. The constraints of the space must
            be met, too.
        fixed_sizes: key to values of other sizes; there is one solution per combination.
        protocol: cost protocol, by default that of the space.
        step: values are its multiples.

    Raises:
        UserError: a key is not a size, the budget is invalid, or does not limit the size.

    Example:
        >>> solve(space, "max width", "params.total <= 10M")[0].best.value
    """
    direction, _, key = (word.strip() for word in objective.strip().partition(" "))
    if direction not in ("max", "min") or not key:
        raise UserError(f"{objective!r} is not an objective: write 'max KEY' or 'min KEY', for "
                        "example 'max width'", code="no-goal")
    [key] = config_keys(space, [key])
    limits = tuple(dict.fromkeys(
        (*collect_limits(space),
         *read_budgets(space, [budget] if isinstance(budget, str) else budget))))
    if not limits:
        budgets = f" (budgets of the space: {', '.join(space.budgets)})" if space.budgets else ""
        raise UserError(f"{key} has no limit", help="set a budget, for example "
                        f"{option('budget', EXAMPLE_BUDGET)}{budgets}", code="no-limit")
    if step < 1:
        raise UserError(f"the step is {step}; it must be at least 1", code="below-one")
    fixed_sizes = dict(fixed_sizes or {})
    if key in fixed_sizes:
        raise UserError(f"{key} is the objective; it cannot have a fixed value as well",
                        code="given-twice")
    free_sizes = FreeSizes(space, (key, *fixed_sizes))
    protocol = protocol or load_protocol(space.protocol)
    return Solutions(_SizeSearch(free_sizes, direction, limits, protocol, step,
                                 dict(zip(fixed_sizes, values))).run()
                     for values in itertools.product(*fixed_sizes.values()))


@dataclass
class _SizeSearch:
    """Search of one solution: the first of the sizes varies, the others are fixed."""

    free_sizes: FreeSizes
    direction: str
    limits: tuple[Constraint, ...]
    protocol: Protocol
    step: int
    fixed_sizes: Mapping[str, int]

    def __post_init__(self) -> None:
        self.key = self.free_sizes.keys[0]
        self.bounded_costs = cost_names(self.limits)

    def run(self) -> Solution:
        """Search the best value."""
        values, max_value = self._range()
        candidates = {} if len(values) <= MAX_EXHAUSTIVE_VALUES else self._grid_search(values)
        if not candidates:
            candidates = self.evaluate_costs(values)
        if max_value and self.direction == "max" and isinstance(values, range):
            values = self._extended(values, max_value, candidates)
        buildable = {value: candidate
                     for value, candidate in candidates.items() if candidate.costs is not None}
        within = [value for value, candidate in buildable.items()
                  if candidate.satisfies(self.limits)]
        is_max = self.direction == "max"
        best = (max if is_max else min)(within, default=None)
        beyond = [value for value in buildable
                  if best is not None and (value > best if is_max else value < best)]
        next_value = (min if is_max else max)(beyond, default=None)
        nearest = None if within else min(
            buildable, key=lambda value: buildable[value].max_violation(self.limits), default=None)
        used_keys = set() if best is None else {*build_blocks(buildable[best].config)[0]}
        return Solution(
            self.direction, self.free_sizes.names[0],
            dict(zip(self.free_sizes.names[1:], self.fixed_sizes.values())),
            best=self._point(best, buildable),
            next=self._point(next_value, buildable),
            changed_values={} if best is None else {
                parameter_name(self.free_sizes.space, key): value
                for key, value in buildable[best].config.items()
                if key in used_keys and key not in self.free_sizes.keys
                and self.free_sizes.base_config.get(key) != value
                and buildable[best].config.get(key.rpartition(".")[2]) != value},
            n_evaluated=len(candidates), n_unbuildable=len(candidates) - len(buildable),
            n_within_budget=len(within), low=values[0] if values else 0,
            high=values[-1] if values else 0,
            step=values.step if isinstance(values, range) else 0,
            is_open_ended=(bool(max_value) and values[-1] == max_value and is_max
                           and next_value is None and best is not None),
            is_monotonic=self._is_monotonic(buildable),
            is_exhaustive=len(candidates) == len(values), nearest=self._point(nearest, buildable),
            notes=() if best is None else tuple(describe_uneven_heads(buildable[best].config)))

    def evaluate_costs(self, values: Sequence[int]) -> dict[int, CostedCandidate]:
        """Evaluate the candidates with these values."""
        rows = [(value, *self.fixed_sizes.values()) for value in values]
        names = (*COSTS_SHOWN, *self.bounded_costs)
        return dict(zip(values, self.free_sizes.evaluate_costs(rows, self.protocol, names)))

    def _range(self) -> tuple[Sequence[int], int]:
        """Values to search, and the largest possible value; 0 if the file has a range."""
        offered = offered_sizes(self.free_sizes.space, self.key)
        if offered is not None:
            offered = multiples(offered, self.step)
            if not offered:
                raise UserError(f"no value of {self.key} in the file is a multiple of {self.step}",
                                code="no-multiple")
            return offered, 0
        field = self.free_sizes.parameters[self.key].field
        low = max(1, int(field.low if field.low is not None else 1))
        low = -(-low // self.step) * self.step
        max_value = MAX_SEARCH_STEPS * self.step if field.high is None else int(field.high)
        start = max(low, written_size(self.free_sizes.space, self.key) or 1)
        end = self._range_end(start, max_value)
        if field.high is None and self.direction == "max" and end == max_value:
            name = self.free_sizes.names[0]
            raise UserError(f"the budget does not limit {name} below {max_value:,}",
                            help="set a smaller limit, for example "
                            f"{option('budget', EXAMPLE_BUDGET)}",
                            code="no-limit")
        return range(low, end + 1, self.step), max_value

    def _range_end(self, start: int, max_value: int) -> int:
        """Upper end of the range.

        To minimize, this is a value within the budget, found by doubling the value in the file. To
        maximize, it is twice the last such value that does not exceed the budget.
        """
        last_within = 0
        probe = start
        probed = dict[int, CostedCandidate]()
        while True:
            value, candidate = self._next_buildable(probe, max_value)
            is_over = candidate is not None and self._exceeds_budget(candidate)
            if candidate is not None:
                probed[value] = candidate
                if not is_over:
                    last_within = value
                if self.direction == "min" and candidate.satisfies(self.limits):
                    return value
            # Larger values may be cheaper again. To minimize, the search continues in this case.
            is_past = is_over and probe >= 4 * max(last_within, start) and (
                self.direction == "max" or self._is_monotonic(probed))
            if is_past or probe >= max_value:
                if self.direction == "min":
                    return probe
                return min(2 * max(last_within, start), max_value)
            probe = min(2 * probe, max_value)

    def _next_buildable(self, probe: int, max_value: int) -> tuple[int, CostedCandidate | None]:
        """First value from ``probe`` that is valid, or None if none of the next ones is.

        This is needed if powers of two cannot be built, for example with three heads.
        """
        first = -(-probe // self.step) * self.step
        for count in (1, MAX_BUILDABLE_PROBES):
            values = range(first, min(first + count * self.step, max_value + 1), self.step)
            for value, candidate in self.evaluate_costs(values).items():
                if self._is_valid(candidate):
                    return value, candidate
        return first, None

    def _is_valid(self, candidate: CostedCandidate) -> bool:
        """Whether a candidate can be built and meets the limits without costs."""
        return candidate.satisfies(limit for limit in self.limits if not limit.costs)

    def _exceeds_budget(self, candidate: CostedCandidate) -> bool:
        """Whether a candidate violates an upper limit on costs."""
        return not candidate.satisfies(
            limit for limit in self.limits if limit.costs and not is_lower_bound(limit))

    def _extended(self, values: range, max_value: int,
                  candidates: dict[int, CostedCandidate]) -> range:
        """Extend the range if costs do not rise monotonically.

        The range is doubled until two doublings contain no value within the budget. The new
        candidates are added to ``candidates``.
        """
        n_empty = 0
        while (n_empty < 2 and self._is_monotonic(candidates) is False
               and values[-1] < max_value and len(values) <= MAX_EXHAUSTIVE_VALUES):
            end = min(2 * values[-1], max_value)
            new = self.evaluate_costs(range(values[-1] + self.step, end + 1, self.step))
            candidates |= new
            values = range(values[0], [*new][-1] + 1, self.step)
            is_any_within = any(candidate.satisfies(self.limits) for candidate in new.values())
            n_empty = 0 if is_any_within else n_empty + 1
            if all(candidate.costs is None for candidate in new.values()):
                break
        return values

    def _grid_search(self, values: Sequence[int]) -> dict[int, CostedCandidate]:
        """Evaluate a grid, and all values between neighbors that differ in the budget.

        Returns:
            the candidates; empty if costs do not rise along the grid or a value is invalid.
        """
        stride = len(values) // GRID_SIZE
        candidates = self.evaluate_costs([*values[::stride], values[-1]])
        if not all(map(self._is_valid, candidates.values())):
            return {}
        if self._is_monotonic(candidates) is False:
            return {}
        # Values are too small, within the budget, or too large. Values within the budget may all
        # be between two neighbors on the grid.
        states = [(self._exceeds_budget(candidate), candidate.satisfies(self.limits))
                  for candidate in candidates.values()]
        for index, (state, next_state) in enumerate(itertools.pairwise(states)):
            if state != next_state:
                candidates |= self.evaluate_costs(values[index * stride : (index + 1) * stride])
        return dict(sorted(candidates.items()))

    def _point(self, value: int | None, candidates: CandidatesByValue) -> SizePoint | None:
        if value is None:
            return None
        candidate = candidates[value]
        costs = {name: cost for name, cost in (candidate.costs or {}).items()
                 if cost or name != WEIGHT_WORK_COST}
        limits = tuple(check_limit(limit, candidate.__getitem__) for limit in self.limits)
        return SizePoint(value, costs, limits)

    def _is_monotonic(self, candidates: CandidatesByValue) -> bool | None:
        """Whether no cost in the budget falls from one buildable value to the next."""
        if not self.bounded_costs:
            return None
        costs = [candidate.costs
                 for _, candidate in sorted(candidates.items()) if candidate.costs is not None]
        return all(first[name] <= second[name] for name in self.bounded_costs
                   for first, second in itertools.pairwise(costs))


def multiples(values: Sequence[int], factor: int) -> Sequence[int]:
    """Those of ``values`` that are multiples of ``factor``; a range stays a range."""
    if not isinstance(values, range):
        return [value for value in values if value % factor == 0]
    period = factor // math.gcd(factor, values.step)  # of multiples, in steps of the range
    first = next((value for value in values[:period] if value % factor == 0), values.stop)
    return range(first, values.stop, values.step * period)
