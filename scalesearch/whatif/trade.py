"""Trades: all pairs of two sizes that keep costs within a tolerance of a reference."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalesearch.cost import Protocol, load_protocol
from scalesearch.errors import UserError
from scalesearch.feasible.costed_candidates import CostedCandidate, evaluate_costs
from scalesearch.feasible.limits import collect_limits, cost_names, read_budgets
from scalesearch.space import Constraint, Space
from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.space.syntax.diagnostics import suggest_match
from scalesearch.whatif.free_sizes import FreeSizes, config_keys, offered_sizes, written_size
from scalesearch.whatif.solve import COSTS_SHOWN, MAX_SEARCH_STEPS, WEIGHT_WORK_COST

if TYPE_CHECKING:
    import pandas as pd

MAX_PAIRS = 200_000  # pairs that are costed
TOLERANCE_PATTERN = re.compile(r"\s*([\w.]+)\s+within\s+((?:\d+\.?\d*|\.\d+)(?:e-?\d+)?)\s*%\s*")


@dataclass(frozen=True)
class CostTolerance:
    """A cost that stays within ``percent`` of the reference's."""

    name: str
    percent: float

    def __str__(self) -> str:
        return f"{self.name} within {self.percent:g}%"

    def is_within(self, value: Any, reference: Any) -> bool:
        """Whether ``value`` is near enough."""
        return bool(abs(value - reference) * 100 <= self.percent * abs(reference))

    def is_exceeded(self, value: Any, reference: Any) -> bool:
        """Whether ``value`` is too much."""
        return bool(value > reference and not self.is_within(value, reference))


@dataclass(frozen=True)
class TradeOffs:
    """Pairs of sizes that hold costs.

    Attributes:
        keys: the two sizes.
        reference: the costs that are held.
        pairs: sizes and costs of each trade, in the order of the first size.
        n_evaluated, n_unbuildable: how many pairs were costed, and could not be built.
        max_values: how far each size was tried.
    """

    keys: tuple[str, ...]
    tolerances: tuple[CostTolerance, ...]
    reference: Mapping[str, Any]
    pairs: tuple[Mapping[str, Any], ...]
    n_evaluated: int
    n_unbuildable: int
    max_values: Mapping[str, int]

    def frame(self) -> pd.DataFrame:
        """One row for each trade: sizes, costs, and the difference of each cost to the reference in percent."""
        import pandas as pd

        frame = pd.DataFrame(list(self.pairs), columns=[*self.keys, *self.reference])
        percents = {f"{name} %": [percent_difference(row[name], self.reference[name])
                                  for row in self.pairs] for name in self.reference}
        return frame.assign(**percents)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        record = {**vars(self), "hold": [str(hold) for hold in self.tolerances],
                  "trades": [dict(row) for row in self.pairs]}
        return {name: value for name, value in record.items() if name not in ("tolerances", "pairs")}


def percent_difference(value: Any, reference: Any) -> float:
    """The difference of ``value`` to ``reference`` in percent of the latter."""
    return 100.0 * (
        value - reference) / reference if reference else 0.0 if value == reference else float("inf")


def parse_tolerances(texts: Sequence[str]) -> tuple[CostTolerance, ...]:
    """``macs.total within 1%``, several joined by ``and``. Raises UserError."""
    holds = []
    for text in itertools.chain.from_iterable(re.split(r"\band\b", text) for text in texts):
        match = TOLERANCE_PATTERN.fullmatch(text)
        if match is None:
            raise UserError(f"--hold {text.strip()!r}: write a cost and a tolerance, as in "
                            "'macs.total within 1%'", code="bad-hold")
        if match[1] not in COST_NAMES:
            raise UserError(f"--hold: {match[1]} is no cost; {suggest_match(match[1], COST_NAMES)}",
                            code="unknown-cost")
        holds.append(CostTolerance(match[1], float(match[2])))
    if not holds:
        raise UserError("nothing is held: give --hold, as in --hold 'macs.total within 1%'",
                        code="hold-missing")
    return tuple(holds)


def find_trade_offs(space: Space, keys: Sequence[str], tolerances: str | Sequence[str],
                    reference: Mapping[str, Any] | None = None, budget: Sequence[str] = (),
                    protocol: Protocol | None = None,
                    ranges: Mapping[str, Sequence[int]] | None = None) -> TradeOffs:
    """Every pair of the sizes ``keys`` whose costs stay within ``tolerances`` of a reference.

    Args:
        reference: the reference's answers; the space's own present values where none are given.
        budget: limits that a trade must be within besides.
        ranges: values of sizes, rising; others have the space's, or as many as what is held allows.

    Raises:
        UserError: keys that are no sizes, a tolerance that is none, more pairs than can be tried.
    """
    keys = config_keys(space, keys)
    if len(set(keys)) != len(keys) or len(keys) < 2:
        raise UserError(f"{', '.join(keys)}: a trade is between two or more different sizes",
                        code="trade-needs-two-sizes")
    holds = parse_tolerances([tolerances] if isinstance(tolerances, str) else tolerances)
    within = (*collect_limits(space), *read_budgets(space, budget))
    stray = [key for key in ranges or {} if key not in keys]
    if stray:
        raise UserError(f"{stray[0]} is not traded: there are {' and '.join(keys)}",
                        code="unknown-key")
    chosen = protocol or load_protocol(space.protocol)
    return _TradeOffSearch(FreeSizes(space, tuple(keys)), holds, within, chosen,
                           dict(ranges or {})).run(reference)


@dataclass
class _TradeOffSearch:
    free_sizes: FreeSizes
    tolerances: tuple[CostTolerance, ...]
    limits: tuple[Constraint, ...]
    protocol: Protocol
    ranges: dict[str, Sequence[int]]

    def __post_init__(self) -> None:
        self.held = tuple(dict.fromkeys((*COSTS_SHOWN, *(hold.name for hold in self.tolerances))))

    def run(self, reference: Mapping[str, Any] | None) -> TradeOffs:
        keys = self.free_sizes.keys
        reference_costs = self._reference(reference)
        ranges = [self._range(key, reference_costs) for key in keys]
        pairs = list(itertools.product(*ranges))
        candidates = self._evaluate_pairs(pairs)
        kept = [(dict(zip(keys, pair)), candidate.costs or {})
                for pair, candidate in zip(pairs, candidates)
                if self._is_trade_off(candidate, reference_costs)]
        all_costs = [reference_costs, *(costs for _, costs in kept)]
        if not any(costs[WEIGHT_WORK_COST] for costs in all_costs):
            del reference_costs[WEIGHT_WORK_COST]
        rows = tuple({**sizes, **{name: costs[name] for name in reference_costs}}
                     for sizes, costs in kept)
        high = {key: values[-1] for key, values in zip(keys, ranges)}
        return TradeOffs(keys, self.tolerances, reference_costs, rows, len(pairs),
                         sum(c.costs is None for c in candidates), high)

    def _evaluate_pairs(self, pairs: Sequence[tuple[int, ...]]) -> list[CostedCandidate]:
        if len(pairs) > MAX_PAIRS:
            raise UserError(f"{len(pairs):,} combinations are more than {MAX_PAIRS:,}: narrow a "
                            f"size, as in --for {self.free_sizes.keys[0]}=1..24",
                            code="too-many-sweep-rows")
        return self.free_sizes.evaluate_costs(
            pairs, self.protocol, (*self.held, *cost_names(self.limits)))

    def _reference(self, of: Mapping[str, Any] | None) -> dict[str, Any]:
        """What is held, of another architecture or of this one as it is written."""
        if of is None:
            free = [key
                    for key in self.free_sizes.keys
                    if offered_sizes(self.free_sizes.space, key) is not None]
            if free:
                raise UserError(f"{free[0]} is left open, so no cost is held yet. Name a reference "
                                f"with --of, or close it and give its range as --for {free[0]}=…",
                                code="open-parameters")
            of = self.free_sizes.base_config
        (candidate,) = evaluate_costs([CostedCandidate(of)], self.protocol, self.held)
        if candidate.costs is None:
            raise UserError("the reference cannot be built", code="unbuildable")
        return candidate.costs

    def _is_trade_off(self, candidate: CostedCandidate, reference: Mapping[str, Any]) -> bool:
        """Whether it can be built, keeps what is held and is within every limit."""
        return candidate.satisfies(self.limits) and all(
            hold.is_within(candidate[hold.name], reference[hold.name]) for hold in self.tolerances)

    def _range(self, key: str, reference: Mapping[str, Any]) -> Sequence[int]:
        """The values of ``key``: the file's, or up to where it alone, the others at their least, costs too much."""
        if (mine := self._given(key)) is not None:
            return mine
        least = {other: self._min_buildable(other) for other in self.free_sizes.keys}
        high = 2 * self._current_value(key)
        while high < MAX_SEARCH_STEPS and not self._exceeds(key, high, least, reference):
            high *= 2
        if high >= MAX_SEARCH_STEPS:
            raise UserError(f"nothing that is held limits {key}: give it a range, as in --for "
                            f"{key}=1..24", code="no-limit")
        return range(least[key], high + 1)

    def _given(self, key: str) -> Sequence[int] | None:
        return self.ranges[key] if key in self.ranges else offered_sizes(self.free_sizes.space, key)

    def _current_value(self, key: str) -> int:
        """The file's own value, or the first of those given."""
        mine = self._given(key)
        own = written_size(self.free_sizes.space, key) if mine is None else int(mine[0])
        return own or self._low(key)

    def _low(self, key: str) -> int:
        return max(1, int(self.free_sizes.parameters[key].field.low or 1))

    def _min_buildable(self, key: str) -> int:
        """The first value given, or the least that can be built beside the file's other sizes."""
        present = {other: self._current_value(other) for other in self.free_sizes.keys}
        if self._given(key) is not None:
            return present[key]
        values = range(self._low(key), present[key] + 1)
        built = self._evaluate_pairs([tuple({**present, key: value}.values()) for value in values])
        return next((value for value, one in zip(values, built) if one.costs is not None),
                    present[key])

    def _exceeds(self, key: str, value: int, least: Mapping[str, int],
                 reference: Mapping[str, Any]) -> bool:
        """Whether ``value`` costs too much beside the least other sizes; if it cannot be built, the present ones."""
        for others in (least,
                       {other: self._current_value(other) for other in self.free_sizes.keys}):
            costs = self._evaluate_pairs([tuple({**others, key: value}.values())])[0].costs
            if costs is not None:
                return any(hold.is_exceeded(costs[hold.name], reference[hold.name])
                           for hold in self.tolerances)
        return True
