"""All configurations of a space in one table, for limits that are not sums over sections."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.core import Block
from scalesearch.cost.population import evaluate_population_costs
from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.counter import LEFT_SECTION, RIGHT_SECTIONS
from scalesearch.feasible.decomposition import (
    REMAINING_PART,
    SHARED_PART,
    constraint_holds,
    constraints_hold,
    stack_candidates,
)
from scalesearch.feasible.enumeration import (
    MAX_STRUCTURES,
    CandidateTable,
    TooManyCandidatesError,
    enumerate_tables,
)
from scalesearch.feasible.identity import NetworkNumbering
from scalesearch.feasible.limits import (
    ADDITIVE_COSTS,
    MAX_COST,
    CostBound,
    as_cost_bounds,
    collect_limits,
)
from scalesearch.feasible.pieces import SectionCandidates
from scalesearch.spaces import Constraint, Space

MAX_LISTED = 1_000_000  # configurations
LISTED_PART = RIGHT_SECTIONS[0]
ARTIFACT_COST = "artifact.bytes"
INTEGER_COSTS = (*ADDITIVE_COSTS, ARTIFACT_COST)


@dataclass(frozen=True)
class LimitIndicator(CostBound):
    """Bound on the column ``name``: the text of a limit, 1 for candidates that violate it."""

    def __str__(self) -> str:
        return self.name


class ListedSpace:
    """Configurations as the rows of one part of a decomposition; the other parts are empty.

    Args:
        names: costs of each candidate.
        budgets: limits of the budget.

    Attributes:
        parts, names, columns: as of :class:`scalesearch.feasible.decomposition.Decomposition`.
        bounds: the budget as bounds on columns. A limit that is not an upper bound on an integer
            cost has a column of its own.
        required: the space's own constraints on costs, in the same form.

    Raises:
        TooManyCandidatesError: there are more than ``MAX_LISTED`` configurations.
        ContinuousRangeError: the space has a continuous range.
    """

    def __init__(self, space: Space, protocol: Protocol, names: tuple[str, ...],
                 budgets: Iterable[Constraint]) -> None:
        self.space = space
        self.protocol = protocol
        self.evaluated_names = names
        self.names = tuple(name for name in names if name in INTEGER_COSTS)
        self.bounds = [_as_bound(limit) for limit in budgets]
        limits = {str(bound): limit for bound, limit in zip(self.bounds, budgets)}
        self.required = []
        self.value_constraints = []
        for limit in collect_limits(space):
            if limit.costs:
                self.required.append(_as_bound(limit))
                limits[str(self.required[-1])] = limit
            else:
                self.value_constraints.append(limit)
        self.indicators = {bound.name: limits[bound.name]
                           for bound in (*self.bounds, *self.required)
                           if isinstance(bound, LimitIndicator)}
        self.columns = (*self.names, *self.indicators)
        one_row = SectionCandidates(np.zeros((1, 0), np.int32), (),
                                    np.zeros((1, len(self.columns)), np.int64), np.ones(1, bool),
                                    np.zeros(1, np.int64))
        self.parts = dict.fromkeys(
            (LEFT_SECTION, *RIGHT_SECTIONS, SHARED_PART, REMAINING_PART), one_row)
        parameter_space = self.space.parameter_space
        # Tables are listed before they are evaluated: there may be too many.
        try:
            tables = list(enumerate_tables(parameter_space, parameter_space.nodes_by_key,
                                           MAX_LISTED))
        except TooManyCandidatesError:
            raise TooManyCandidatesError(
                f"more than {MAX_LISTED:,} configurations, or {MAX_STRUCTURES:,} structures, are "
                "not listed") from None
        networks = NetworkNumbering(self.protocol)
        rows = []
        n_rows = 0
        for table in tables:
            if table.is_invalid:
                columns = np.zeros((table.n_candidates, len(self.columns)), np.int64)
                rows.append((table.value_indices, columns, np.zeros(table.n_candidates, bool)))
            else:
                rows.append((table.value_indices, *self._evaluate(table, networks, n_rows)))
            n_rows += table.n_candidates
        self.parts[LISTED_PART] = stack_candidates(rows, networks.numbers_of(n_rows))

    def within(self, bounds: Iterable[CostBound]) -> ListedSpace:
        """The same space in which only configurations within ``bounds`` are valid."""
        listed = self.parts[LISTED_PART]
        is_valid = listed.is_valid.copy()
        for bound in bounds:
            is_valid &= bound.sign * listed.costs[:, self.columns.index(bound.name)] <= bound.limit
        space = copy.copy(self)
        space.parts = {**self.parts, LISTED_PART: replace(listed, is_valid=is_valid)}
        return space

    def _evaluate(self, table: CandidateTable, networks: NetworkNumbering,
                  first_row: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Evaluate one table of candidates.

        Returns:
            (candidates, columns) costs and violations, and the mask of candidates that are valid.
        """
        def number_networks(block: Block, index: NDArray[np.int64]) -> None:
            networks.add(block, table, index, first_row)

        n = table.n_candidates
        costs: dict[str, Any]
        costs, is_valid = evaluate_population_costs(
            table.values, n, replace(self.protocol, artifact=None),
            [name for name in self.evaluated_names if name != ARTIFACT_COST],
            inspect_block=number_networks)
        if ARTIFACT_COST in self.evaluated_names:
            sizes, is_supported = evaluate_population_costs(table.values, n, self.protocol,
                                                            [ARTIFACT_COST])
            # An architecture that the format does not support is beyond every bound.
            costs[ARTIFACT_COST] = np.where(is_supported, sizes[ARTIFACT_COST], MAX_COST + 1)
        is_valid = is_valid & constraints_hold(self.value_constraints, table.values, n)
        values = {**table.values, **costs}
        violations = [~constraint_holds(limit, values, n) for limit in self.indicators.values()]
        columns = np.stack([*(costs[name] for name in self.names), *violations], 1)
        return columns.astype(np.int64), is_valid


def _as_bound(limit: Constraint) -> CostBound:
    """A limit as an upper bound on an integer cost, or as an indicator."""
    bounds = as_cost_bounds([limit], INTEGER_COSTS) or []
    if len(bounds) == 1 and bounds[0].sign > 0:
        return bounds[0]
    return LimitIndicator(limit.text, 1, 0)
