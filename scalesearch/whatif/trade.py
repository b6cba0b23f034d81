"""Trades: all pairs of two sizes that keep costs within a tolerance of a reference."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalesearch.cost import Protocol, protocol_of
from scalesearch.errors import UserError
from scalesearch.feasible.candidates import Candidate, priced
from scalesearch.feasible.limits import costs_of, limits, read_budgets
from scalesearch.space import Constraint, Space
from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.space.syntax.diagnostics import suggest_match
from scalesearch.whatif.solve import FARTHEST, ONCE, SHOWN
from scalesearch.whatif.varied import Varied, answer_keys, offered, written

if TYPE_CHECKING:
    import pandas as pd

MOST = 200_000  # pairs that are costed
HOLD = re.compile(r"\s*([\w.]+)\s+within\s+((?:\d+\.?\d*|\.\d+)(?:e-?\d+)?)\s*%\s*")


@dataclass(frozen=True)
class Hold:
    """A cost that stays within ``percent`` of the reference's."""

    name: str
    percent: float

    def __str__(self) -> str:
        return f"{self.name} within {self.percent:g}%"

    def keeps(self, value: Any, reference: Any) -> bool:
        """Whether ``value`` is near enough."""
        return bool(abs(value - reference) * 100 <= self.percent * abs(reference))

    def exceeded(self, value: Any, reference: Any) -> bool:
        """Whether ``value`` is too much."""
        return bool(value > reference and not self.keeps(value, reference))


@dataclass(frozen=True)
class Trades:
    """Pairs of sizes that hold costs.

    Attributes:
        keys: the two sizes.
        reference: the costs that are held.
        rows: sizes and costs of each trade, in the order of the first size.
        tried, unbuildable: how many pairs were costed, and could not be built.
        high: how far each size was tried.
    """

    keys: tuple[str, ...]
    holds: tuple[Hold, ...]
    reference: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    tried: int
    unbuildable: int
    high: Mapping[str, int]

    def frame(self) -> pd.DataFrame:
        """One row for each trade: sizes, costs, and the difference of each cost to the reference in percent."""
        import pandas as pd

        frame = pd.DataFrame(list(self.rows), columns=[*self.keys, *self.reference])
        percents = {f"{name} %": [percent(row[name], self.reference[name]) for row in self.rows]
                    for name in self.reference}
        return frame.assign(**percents)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        record = {**vars(self), "hold": [str(hold) for hold in self.holds], "trades": [dict(row) for row in self.rows]}
        return {name: value for name, value in record.items() if name not in ("holds", "rows")}


def percent(value: Any, reference: Any) -> float:
    """The difference of ``value`` to ``reference`` in percent of the latter."""
    return 100.0 * (value - reference) / reference if reference else 0.0 if value == reference else float("inf")


def read_holds(texts: Sequence[str]) -> tuple[Hold, ...]:
    """``macs.total within 1%``, several joined by ``and``. Raises UserError."""
    holds = []
    for text in itertools.chain.from_iterable(re.split(r"\band\b", text) for text in texts):
        match = HOLD.fullmatch(text)
        if match is None:
            raise UserError(f"--hold {text.strip()!r}: write a cost and a tolerance, as in 'macs.total within 1%'",
                            code="bad-hold")
        if match[1] not in COST_NAMES:
            raise UserError(f"--hold: {match[1]} is no cost; {suggest_match(match[1], COST_NAMES)}", code="unknown-cost")
        holds.append(Hold(match[1], float(match[2])))
    if not holds:
        raise UserError("nothing is held: give --hold, as in --hold 'macs.total within 1%'", code="nothing-held")
    return tuple(holds)


def trade(space: Space, keys: Sequence[str], hold: str | Sequence[str], of: Mapping[str, Any] | None = None,
          budget: Sequence[str] = (), protocol: Protocol | None = None,
          ranges: Mapping[str, Sequence[int]] | None = None) -> Trades:
    """Every pair of the sizes ``keys`` whose costs stay within ``hold`` of a reference.

    Args:
        of: the reference's answers; the space's own present values where none are given.
        budget: limits that a trade must be within besides.
        ranges: values of sizes, rising; others have the space's, or as many as what is held allows.

    Raises:
        UserError: keys that are no sizes, a tolerance that is none, more pairs than can be tried.
    """
    keys = answer_keys(space, keys)
    if len(set(keys)) != len(keys) or len(keys) < 2:
        raise UserError(f"{', '.join(keys)}: a trade is between two or more different sizes", code="one-size")
    holds = read_holds([hold] if isinstance(hold, str) else hold)
    within = (*limits(space), *read_budgets(space, budget))
    stray = [key for key in ranges or {} if key not in keys]
    if stray:
        raise UserError(f"{stray[0]} is not traded: there are {' and '.join(keys)}", code="unknown-key")
    chosen = protocol or protocol_of(space.protocol)
    return _Trade(Varied(space, tuple(keys)), holds, within, chosen, dict(ranges or {})).run(of)


@dataclass
class _Trade:
    varied: Varied
    holds: tuple[Hold, ...]
    limits: tuple[Constraint, ...]
    protocol: Protocol
    ranges: dict[str, Sequence[int]]

    def __post_init__(self) -> None:
        self.held = tuple(dict.fromkeys((*SHOWN, *(hold.name for hold in self.holds))))

    def run(self, of: Mapping[str, Any] | None) -> Trades:
        keys, reference = self.varied.keys, self._reference(of)
        ranges = [self._range(key, reference) for key in keys]
        pairs = list(itertools.product(*ranges))
        candidates = self._price(pairs)
        kept = [(dict(zip(keys, pair)), candidate.costs or {}) for pair, candidate in zip(pairs, candidates)
                if self._good(candidate, reference)]
        if not any(costs[ONCE] for costs in (reference, *(costs for _, costs in kept))):
            del reference[ONCE]
        rows = tuple({**sizes, **{name: costs[name] for name in reference}} for sizes, costs in kept)
        high = {key: values[-1] for key, values in zip(keys, ranges)}
        return Trades(keys, self.holds, reference, rows, len(pairs), sum(c.costs is None for c in candidates), high)

    def _price(self, pairs: Sequence[tuple[int, ...]]) -> list[Candidate]:
        if len(pairs) > MOST:
            raise UserError(f"{len(pairs):,} combinations are more than {MOST:,}: narrow a size, as in --for "
                            f"{self.varied.keys[0]}=1..24", code="too-many-rows")
        return self.varied.price(pairs, self.protocol, (*self.held, *costs_of(self.limits)))

    def _reference(self, of: Mapping[str, Any] | None) -> dict[str, Any]:
        """What is held, of another architecture or of this one as it is written."""
        if of is None:
            free = [key for key in self.varied.keys if offered(self.varied.space, key) is not None]
            if free:
                raise UserError(f"{free[0]} is left open, so no cost is held yet. Name a reference with --of, or close "
                                f"it and give its range as --for {free[0]}=…", code="open-parameters")
            of = self.varied.base
        (candidate,) = priced([Candidate(of)], self.protocol, self.held)
        if candidate.costs is None:
            raise UserError("the reference cannot be built", code="unbuildable")
        return candidate.costs

    def _good(self, candidate: Candidate, reference: Mapping[str, Any]) -> bool:
        """Whether it can be built, keeps what is held and is within every limit."""
        return candidate.meets(self.limits) and \
            all(hold.keeps(candidate[hold.name], reference[hold.name]) for hold in self.holds)

    def _range(self, key: str, reference: Mapping[str, Any]) -> Sequence[int]:
        """The values of ``key``: the file's, or up to where it alone, the others at their least, costs too much."""
        if (mine := self._given(key)) is not None:
            return mine
        least = {other: self._least(other) for other in self.varied.keys}
        high = 2 * self._present(key)
        while high < FARTHEST and not self._too_much(key, high, least, reference):
            high *= 2
        if high >= FARTHEST:
            raise UserError(f"nothing that is held limits {key}: give it a range, as in --for {key}=1..24",
                            code="no-limit")
        return range(least[key], high + 1)

    def _given(self, key: str) -> Sequence[int] | None:
        return self.ranges[key] if key in self.ranges else offered(self.varied.space, key)

    def _present(self, key: str) -> int:
        """The file's own value, or the first of those given."""
        mine = self._given(key)
        own = written(self.varied.space, key) if mine is None else int(mine[0])
        return own or self._low(key)

    def _low(self, key: str) -> int:
        return max(1, int(self.varied.leaves[key].field.low or 1))

    def _least(self, key: str) -> int:
        """The first value given, or the least that can be built beside the file's other sizes."""
        present = {other: self._present(other) for other in self.varied.keys}
        if self._given(key) is not None:
            return present[key]
        values = range(self._low(key), present[key] + 1)
        built = self._price([tuple({**present, key: value}.values()) for value in values])
        return next((value for value, one in zip(values, built) if one.costs is not None), present[key])

    def _too_much(self, key: str, value: int, least: Mapping[str, int], reference: Mapping[str, Any]) -> bool:
        """Whether ``value`` costs too much beside the least other sizes; if it cannot be built, the present ones."""
        for others in (least, {other: self._present(other) for other in self.varied.keys}):
            costs = self._price([tuple({**others, key: value}.values())])[0].costs
            if costs is not None:
                return any(hold.exceeded(costs[hold.name], reference[hold.name]) for hold in self.holds)
        return True
