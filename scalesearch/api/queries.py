"""Queries of a space: feasible candidates, largest sizes, trade-offs of sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scalesearch.api.display import Displayable
from scalesearch.cost import Protocol
from scalesearch.errors import UserError
from scalesearch.spaces import Space

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from scalesearch.feasible.report import FeasibilityReport
    from scalesearch.whatif import Solutions, TradeOffs


@dataclass(frozen=True, repr=False)
class FeasibilityResult(Displayable):
    """Feasible part of a space.

    Attributes:
        feasibility: counts, shares, frames, front and extremes; see
            :class:`scalesearch.feasible.report.FeasibilityReport`.
        budgets: the conditions.
    """

    feasibility: FeasibilityReport
    space: Space
    budgets: tuple[str, ...]
    protocol: Protocol

    @classmethod
    def compute(cls, space: Space, budget: str | Sequence[str], protocol: Protocol, samples: int,
                seed: int) -> FeasibilityResult:
        """Count the feasible candidates of a space, or estimate their share.

        Args:
            budget: names of budgets of the space, or conditions.
            samples: number of random candidates, if the space is too large to count.

        Raises:
            UserError: a budget is missing or invalid, or ``samples`` is below 1.
        """
        from scalesearch.feasible import tables
        from scalesearch.feasible.limits import select_budgets
        from scalesearch.feasible.report import analyze_feasibility

        if samples < 1:
            raise UserError(f"draws: expected at least 1, found {samples}", code="below-one")
        limits = select_budgets(space, [budget] if isinstance(budget, str) else budget)
        report = analyze_feasibility(space, protocol, limits, samples, seed)
        notes = [*report.notes, *tables.weight_work_lines(report, protocol)]
        return cls(replace(report, notes=notes), space, tuple(limit.text for limit in limits), protocol)

    @property
    def share(self) -> float:
        """Feasible share of the configurations; of the samples if they are not counted."""
        return self.feasibility.share

    @property
    def count(self) -> int | None:
        """Number of distinct feasible networks; None if they are not counted."""
        return self.feasibility.n_distinct_feasible

    @property
    def value_shares(self) -> pd.DataFrame:
        """Feasible share per parameter and value."""
        return self.feasibility.value_shares

    @property
    def violations(self) -> pd.DataFrame:
        """A row for each set of conditions that candidates violate."""
        return self.feasibility.violations

    @property
    def sampled_candidates(self) -> pd.DataFrame:
        """Costs of some candidates, and whether each fits."""
        return self.feasibility.sample

    def front(self) -> pd.DataFrame:
        """Return the front of non-embedding params (max) and MACs (min): costs and params."""
        import pandas as pd

        return pd.DataFrame([{**point.costs, **point.param_values.params}
                             for point in self.feasibility.front])

    def to_dict(self) -> dict[str, Any]:
        """Return all results as JSON values."""
        from scalesearch.feasible.tables import to_json

        return {**to_json(self.feasibility), "budgets": list(self.budgets),
                "protocol": self.protocol.to_json(), "conventions": self.protocol.conventions}

    def _display_parts(self) -> Iterator[Table | str]:
        from scalesearch.feasible.tables import render_report

        yield f"{self.space.name or 'space'}: {' and '.join(self.budgets)}"
        yield f"{self.protocol}\n{self.protocol.conventions}"
        yield from render_report(self.feasibility)


@dataclass(frozen=True, repr=False)
class SolveResult(Displayable):
    """Solutions of an inverse query."""

    solution: Solutions | TradeOffs
    protocol: Protocol

    @property
    def value(self) -> int | None:
        """The size of the first solution; None if no size is within the budget."""
        first = self.solution[0] if isinstance(self.solution, tuple) else None
        return first.best.value if first and first.best else None

    def frame(self) -> pd.DataFrame:
        """Return one row per solution."""
        return self.solution.frame()

    def to_dict(self) -> dict[str, Any]:
        """Return all solutions as JSON values."""
        if isinstance(self.solution, tuple):
            solutions = {"solutions": [item.to_json() for item in self.solution]}
        else:
            solutions = self.solution.to_json()
        return {**solutions, "protocol": self.protocol.to_json(),
                "conventions": self.protocol.conventions}

    def _display_parts(self) -> Iterator[Table | str]:
        from scalesearch.whatif.tables import render_solutions, render_trades

        if isinstance(self.solution, tuple):
            yield from render_solutions(self.solution, self.protocol)
        else:
            yield from render_trades(self.solution, "the space as it is", self.protocol)
