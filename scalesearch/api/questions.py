"""Answers to questions of a space: what fits a budget, the largest size that does, and what sizes trade for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scalesearch.api.html import Shown
from scalesearch.cost import Protocol
from scalesearch.errors import UserError
from scalesearch.space import Space

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from scalesearch.feasible.report import FeasibilityReport
    from scalesearch.whatif import Solutions, TradeOffs


@dataclass(frozen=True, repr=False)
class Feasible(Shown):
    """What of a space fits a budget.

    Attributes:
        found: counts, shares, frames, front and extremes; see :class:`scalesearch.feasible.report.FeasibilityReport`.
        budgets: the conditions.
    """

    found: FeasibilityReport
    space: Space
    budgets: tuple[str, ...]
    protocol: Protocol

    @classmethod
    def ask(cls, space: Space, budget: str | Sequence[str], protocol: Protocol, draws: int, seed: int) -> Feasible:
        """Counts what of ``space`` fits, or estimates it. Raises UserError for no budget, a wrong one, or no draw."""
        from scalesearch.feasible import tables
        from scalesearch.feasible.limits import select_budgets
        from scalesearch.feasible.report import analyze_feasibility

        if draws < 1:
            raise UserError(f"draws: expected at least 1, found {draws}", code="below-one")
        limits = select_budgets(space, [budget] if isinstance(budget, str) else budget)
        found = analyze_feasibility(space, protocol, limits, draws, seed)
        found = replace(found, notes=[*found.notes, *tables.weight_work_lines(found, protocol)])
        return cls(found, space, tuple(limit.text for limit in limits), protocol)

    @property
    def share(self) -> float:
        """Feasible share of the answer sheets; of the draws where they are not counted."""
        return self.found.share

    @property
    def count(self) -> int | None:
        """Distinct networks that fit; None where they are not counted."""
        return self.found.n_distinct_feasible

    @property
    def values(self) -> pd.DataFrame:
        """A row for each parameter and answer, with the share of it that fits."""
        return self.found.value_shares

    @property
    def reasons(self) -> pd.DataFrame:
        """A row for each set of conditions that candidates violate."""
        return self.found.violations

    @property
    def sample(self) -> pd.DataFrame:
        """Costs of some candidates, and whether each fits."""
        return self.found.sample

    def front(self) -> pd.DataFrame:
        """Most params outside the embedding for the fewest MACs: costs and parameters of each such candidate."""
        import pandas as pd

        return pd.DataFrame([{**point.costs, **point.param_values.params} for point in self.found.front])

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        from scalesearch.feasible.tables import to_json

        return {**to_json(self.found), "budgets": list(self.budgets), "protocol": self.protocol.to_json(),
                "conventions": self.protocol.conventions}

    def _parts(self) -> Iterator[Table | str]:
        from scalesearch.feasible.tables import render_report

        yield f"{self.space.name or 'space'}: {' and '.join(self.budgets)}"
        yield f"{self.protocol}\n{self.protocol.conventions}"
        yield from render_report(self.found)


@dataclass(frozen=True, repr=False)
class Answered(Shown):
    """The answers to an inverse question."""

    answer: Solutions | TradeOffs
    protocol: Protocol

    @property
    def value(self) -> int | None:
        """The size that was asked for, of the first question; None where nothing is within the budget."""
        first = self.answer[0] if isinstance(self.answer, tuple) else None
        return first.best.value if first and first.best else None

    def frame(self) -> pd.DataFrame:
        """A row for each answer."""
        return self.answer.frame()

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        found = {"solutions": [one.to_json() for one in self.answer]} if isinstance(self.answer, tuple) else \
            self.answer.to_json()
        return {**found, "protocol": self.protocol.to_json(), "conventions": self.protocol.conventions}

    def _parts(self) -> Iterator[Table | str]:
        from scalesearch.whatif.tables import render_solutions, render_trades

        if isinstance(self.answer, tuple):
            yield from render_solutions(self.answer, self.protocol)
        else:
            yield from render_trades(self.answer, "the space as it is", self.protocol)
