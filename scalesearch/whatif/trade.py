"""Trade-offs: pairs of sizes that keep costs within a tolerance of a reference."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalesearch.cost import Protocol, load_protocol
from scalesearch.errors import UserError, option
from scalesearch.feasible.costed_candidates import CostedCandidate, evaluate_costs
from scalesearch.feasible.limits import collect_limits, cost_names, read_budgets, upper_bounds
from scalesearch.spaces import Constraint, Space
from scalesearch.spaces.schema.cost_names import COST_NAMES
from scalesearch.spaces.syntax.diagnostics import suggest_match
from scalesearch.whatif.free_sizes import FreeSizes, config_keys, offered_sizes, written_size
from scalesearch.whatif.solve import COSTS_SHOWN, MAX_SEARCH_STEPS, WEIGHT_WORK_COST

if TYPE_CHECKING:
    import pandas as pd

EXAMPLE_HOLD = "'macs.total within 1%'"
MAX_PAIRS = 200_000
TOLERANCE_PATTERN = re.compile(r"\s*([\w.]+)\s+within\s+((?:\d+\.?\d*|\.\d+)(?:e-?\d+)?)\s*%\s*")


@dataclass(frozen=True)
class CostTolerance:
    """A cost that must stay within ``percent`` of a reference."""

    name: str
    percent: float

    def __str__(self) -> str:
        return f"{self.name} within {self.percent:g}%"

    def is_within(self, value: float, reference: float) -> bool:
        """Whether the difference to the reference is within the tolerance."""
        return bool(abs(value - reference) * 100 <= self.percent * abs(reference))


@dataclass(frozen=True)
class TradeOffs:
    """Combinations of sizes that keep costs.

    Attributes:
        keys: the sizes, two or more.
        hold: costs that are kept, such as ``macs.total within 1%``.
        reference: costs of the reference.
        trades: sizes and costs of each combination, sorted by the sizes.
        n_evaluated, n_unbuildable: numbers of combinations that were costed, and that cannot be
            built.
        max_values: largest value of each size that was tried.
    """

    keys: tuple[str, ...]
    hold: tuple[str, ...]
    reference: Mapping[str, Any]
    trades: tuple[Mapping[str, Any], ...]
    n_evaluated: int
    n_unbuildable: int
    max_values: Mapping[str, int]

    def frame(self) -> pd.DataFrame:
        """Data frame of sizes, costs, and differences to the reference in percent."""
        import pandas as pd

        frame = pd.DataFrame(list(self.trades), columns=[*self.keys, *self.reference])
        percents = {f"{name} %": [percent_difference(row[name], self.reference[name])
                                  for row in self.trades] for name in self.reference}
        return frame.assign(**percents)


def percent_difference(value: float, reference: float) -> float:
    """Difference of ``value`` to ``reference`` in percent of the reference."""
    if reference:
        return 100.0 * (value - reference) / reference
    return 0.0 if value == reference else float("inf")


def parse_tolerances(texts: Sequence[str]) -> tuple[CostTolerance, ...]:
    """Parse tolerances such as ``macs.total within 1%``; ``and`` joins several.

    Raises:
        UserError: a text is not a tolerance, a cost is unknown, or the list is empty.
    """
    tolerances = []
    for text in itertools.chain.from_iterable(re.split(r"\band\b", text) for text in texts):
        match = TOLERANCE_PATTERN.fullmatch(text)
        if match is None:
            raise UserError(f"{option('hold', repr(text.strip()))} is not a cost with a tolerance",
                            help=f"for example {option('hold', EXAMPLE_HOLD)}", code="bad-hold")
        if match[1] not in COST_NAMES:
            raise UserError(f"{option('hold', repr(text.strip()))}: unknown cost {match[1]}",
                            help=suggest_match(match[1], COST_NAMES), code="unknown-cost")
        tolerances.append(CostTolerance(match[1], float(match[2])))
    if not tolerances:
        raise UserError("no costs to keep",
                        help=f"set them, for example {option('hold', EXAMPLE_HOLD)}",
                        code="hold-missing")
    return tuple(tolerances)


def find_trade_offs(space: Space, keys: Sequence[str], tolerances: str | Sequence[str],
                    reference: Mapping[str, Any] | None = None, budget: Sequence[str] = (),
                    protocol: Protocol | None = None,
                    ranges: Mapping[str, Sequence[int]] | None = None,
                    step: int = 1) -> TradeOffs:
    """Find all pairs of sizes that keep the costs of a reference.

    Args:
        keys: the sizes, two or more.
        tolerances: texts such as ``macs.total within 1%``.
        reference: configuration of the reference, by default the values in the file.
        budget: additional limits.
        protocol: cost protocol, by default that of the space.
        ranges: key to values in increasing order. Other sizes have the range in the file, or all
            values up to the largest one that the tolerances allow.
        step: step of these values.

    Raises:
        UserError: a key is not a size, a tolerance is invalid, or there are too many pairs.
    """
    keys = config_keys(space, keys)
    if len(set(keys)) != len(keys) or len(keys) < 2:
        raise UserError(f"{', '.join(keys)}: a trade-off needs two or more different sizes",
                        code="trade-needs-two-sizes")
    parsed = parse_tolerances([tolerances] if isinstance(tolerances, str) else tolerances)
    limits = (*collect_limits(space), *read_budgets(space, budget))
    unknown = [key for key in ranges or {} if key not in keys]
    if unknown:
        raise UserError(f"{unknown[0]} has a range, but the sizes of the trade-off are "
                        f"{' and '.join(keys)}", code="unknown-key")
    search = _TradeOffSearch(FreeSizes(space, tuple(keys)), parsed, limits,
                             protocol or load_protocol(space.protocol), dict(ranges or {}), step)
    return search.run(reference)


@dataclass
class _TradeOffSearch:
    """Search of one trade-off; ``ranges`` are set by the user."""

    free_sizes: FreeSizes
    tolerances: tuple[CostTolerance, ...]
    limits: tuple[Constraint, ...]
    protocol: Protocol
    ranges: dict[str, Sequence[int]]
    step: int = 1

    def __post_init__(self) -> None:
        kept_costs = [tolerance.name for tolerance in self.tolerances]
        self.cost_names = tuple(dict.fromkeys((*COSTS_SHOWN, *kept_costs)))

    def run(self, reference: Mapping[str, Any] | None) -> TradeOffs:
        """Evaluate all combinations, and keep the trade-offs."""
        keys = self.free_sizes.keys
        error = None
        if reference is None:
            open_keys = [key for key in self.free_sizes.keys
                         if offered_sizes(self.free_sizes.space, key) is not None]
            if open_keys:
                raise UserError(f"{open_keys[0]} is open, so the costs to keep are not defined",
                                help=f"set a reference ({option('of')}), or set one value in the "
                                f"file and the range with {option('for', f'{open_keys[0]}=…')}",
                                code="open-parameters")
            reference = self.free_sizes.base_config
            error = "a value is invalid" if self.free_sizes.is_base_invalid else None
        (candidate,) = evaluate_costs([CostedCandidate(reference, error)], self.protocol,
                                      self.cost_names)
        if candidate.costs is None:
            raise UserError("the reference cannot be built", code="unbuildable")
        reference_costs = candidate.costs
        ranges = [self._range(key, reference_costs) for key in keys]
        n_pairs = math.prod(map(len, ranges))
        if n_pairs > MAX_PAIRS:
            key = keys[0]
            current = self._current_value(key)
            set_range = option("for", f"{key}={max(1, current // 2)}..{2 * current}")
            raise UserError(f"{n_pairs:,} combinations are more than {MAX_PAIRS:,}",
                            help=f"set a larger {option('step')} or smaller ranges, for example "
                            f"{set_range}", code="too-many-sweep-rows")
        pairs = list(itertools.product(*ranges))
        candidates = self._evaluate_pairs(pairs)
        names = self.free_sizes.names
        kept = [(dict(zip(names, pair)), candidate.costs or {})
                for pair, candidate in zip(pairs, candidates)
                if candidate.satisfies(self.limits) and all(
                    tolerance.is_within(candidate[tolerance.name], reference_costs[tolerance.name])
                    for tolerance in self.tolerances)]
        all_costs = [reference_costs, *(costs for _, costs in kept)]
        if not any(costs[WEIGHT_WORK_COST] for costs in all_costs):
            del reference_costs[WEIGHT_WORK_COST]
        rows = tuple({**sizes, **{name: costs[name] for name in reference_costs}}
                     for sizes, costs in kept)
        max_values = {name: values[-1] for name, values in zip(names, ranges)}
        n_unbuildable = sum(candidate.costs is None for candidate in candidates)
        return TradeOffs(names, tuple(map(str, self.tolerances)), reference_costs, rows,
                         len(pairs), n_unbuildable, max_values)

    def _evaluate_pairs(self, pairs: Sequence[tuple[int, ...]]) -> list[CostedCandidate]:
        return self.free_sizes.evaluate_costs(
            pairs, self.protocol, (*self.cost_names, *cost_names(self.limits)))

    def _range(self, key: str, reference: Mapping[str, Any]) -> Sequence[int]:
        """Values of ``key`` to try.

        If no range is set, the range ends at a value that is too expensive even if all other sizes
        are as small as possible.
        """
        values = self._set_range(key)
        if values is not None:
            return values
        smallest = {other: self._min_buildable(other) for other in self.free_sizes.keys}
        high = 2 * self._current_value(key)
        while not self._exceeds(key, high, smallest, reference):
            if high >= MAX_SEARCH_STEPS:
                raise UserError(f"neither the costs to keep nor the budget limit {key}",
                                help=f"set a range, for example {option('for', f'{key}=1..24')}",
                                code="no-limit")
            high *= 2
        low = -(-smallest[key] // self.step) * self.step
        if low > high:
            raise UserError(f"{key} has no multiple of {self.step} from {smallest[key]} to {high}",
                            help=f"set its range, for example {option('for', f'{key}=1..24')}",
                            code="no-multiple")
        return range(low, high + 1, self.step)

    def _set_range(self, key: str) -> Sequence[int] | None:
        """Range of ``key`` that is set by the user or in the file."""
        return self.ranges[key] if key in self.ranges else offered_sizes(self.free_sizes.space, key)

    def _current_value(self, key: str) -> int:
        """The value of ``key`` in the file, or the first one of its range."""
        values = self._set_range(key)
        value = (written_size(self.free_sizes.space, key) if values is None else int(values[0]))
        return value or self._low(key)

    def _low(self, key: str) -> int:
        return max(1, int(self.free_sizes.parameters[key].field.low or 1))

    def _min_buildable(self, key: str) -> int:
        """The first value of a range, or the smallest value that can be built."""
        current = {other: self._current_value(other) for other in self.free_sizes.keys}
        if self._set_range(key) is not None:
            return current[key]
        values = range(self._low(key), current[key] + 1)
        candidates = self._evaluate_pairs([tuple({**current, key: value}.values())
                                           for value in values])
        return next((value for value, candidate in zip(values, candidates)
                     if candidate.costs is not None), current[key])

    def _exceeds(self, key: str, value: int, smallest: Mapping[str, int],
                 reference: Mapping[str, Any]) -> bool:
        """Whether ``value`` is too expensive with the smallest other sizes.

        If this cannot be built, the other sizes are those in the file.
        """
        current = {other: self._current_value(other) for other in self.free_sizes.keys}
        for others in (smallest, current):
            costs = self._evaluate_pairs([tuple({**others, key: value}.values())])[0].costs
            if costs is not None:
                return any(
                    costs[tolerance.name] > reference[tolerance.name]
                    and not tolerance.is_within(costs[tolerance.name], reference[tolerance.name])
                    for tolerance in self.tolerances) or any(
                    costs[name] > bound for name, bound in upper_bounds(self.limits).items())
        return True
