"""Samplers of candidates of a space that read its parameters and costs.

:class:`ExactFeasibleSampler` samples feasible candidates without rejection.
:class:`NeighborBatchSampler` samples neighbors of a candidate that differ only in numbers, so that
all have the same structure and their costs are evaluated together.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial

from scalesearch.blocks.polynomial import CostOverflowError
from scalesearch.blocks.sizes import PopulationSplitError
from scalesearch.cost.population import evaluate_population_costs
from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.budget_sampler import BudgetSampler, parameters_by_name
from scalesearch.feasible.decomposition import constraints_hold
from scalesearch.feasible.enumeration import (
    ColumnarParams,
    ContinuousRangeError,
    MissingValuesError,
    TooManyCandidatesError,
    ValueIndices,
    find_numeric_parameters,
    select_rows,
)
from scalesearch.feasible.limits import as_cost_bounds
from scalesearch.samplers.candidate import Candidate
from scalesearch.samplers.encoding import decode_params, encode_parameter, encode_params, to_param
from scalesearch.spaces import Space
from scalesearch.spaces.parameters.constraints import Constraint
from scalesearch.spaces.parameters.param_values import ParameterSpace
from scalesearch.spaces.syntax.expressions import ABSENT
from scalesearch.spaces.syntax.parameters import Parameter

CHANGE_PROBABILITY = 0.3  # probability that a number changes
STEP_SHARE = 0.15  # standard deviation of a step in a list of numbers, as a share of the list
MAX_VALUES = 10_000  # of a number that may change


class ExactFeasibleSampler:
    """Sampler of candidates that meet the budgets among ``limits``.

    Attributes:
        feasible_share: share of random candidates that meet all limits; None if some limits are not
            sums over a model.
    """

    def __init__(self, space: Space, budget_sampler: BudgetSampler,
                 limits: Sequence[Constraint]) -> None:
        self.space = space
        self.budget_sampler = budget_sampler
        self.feasible_share = budget_sampler.feasible_share if all(
            limit.costs or limit in space.constraints for limit in limits) else None

    @classmethod
    def of(cls, space: Space, protocol: Protocol,
           limits: Sequence[Any]) -> ExactFeasibleSampler | None:
        """Decompose ``space``, which takes seconds; None if that is not possible."""
        if not _is_supported(space, limits):
            return None
        bounds = as_cost_bounds(limit for limit in limits if limit.costs)
        try:
            return None if bounds is None else cls(
                space, BudgetSampler(space, protocol, bounds), limits)
        except (TooManyCandidatesError, ContinuousRangeError):
            return None

    def sample(self, rng: random.Random) -> dict[str, Any] | None:
        """Sample parameters with the distribution of rejection sampling.

        None if no candidate meets the budgets.
        """
        values = self.budget_sampler.sample(rng)
        return None if values is None else encode_params(self.space, values)[0]


def _is_supported(space: Space, limits: Sequence[Any]) -> bool:
    """Return whether ``space`` and ``limits`` are those of a space file."""
    return isinstance(space, Space) and all(isinstance(limit, Constraint) for limit in limits)


class NeighborBatchSampler:
    """Sampler of many candidates that meet ``limits``.

    Raises:
        TooManyCandidatesError: the values of a parameter depend on a condition.
    """

    def __init__(self, space: Space, protocol: Protocol, limits: Sequence[Constraint]) -> None:
        self.space = space
        self.protocol = protocol
        self.limits = limits
        self.numeric = find_numeric_parameters(space.parameter_space)
        self.columns = {path: _ValueColumn(space, path, parameter)
                        for path, parameter in parameters_by_name(space).items()
                        if (parameter.count() or MAX_VALUES) < MAX_VALUES}

    @classmethod
    def of(cls, space: Space, protocol: Protocol,
           limits: Sequence[Any]) -> NeighborBatchSampler | None:
        """Return a sampler; None if costs can only be evaluated one by one."""
        if not _is_supported(space, limits):
            return None
        try:
            return cls(space, protocol, limits)
        except TooManyCandidatesError:
            return None

    def sample_neighbors(self, parent: Candidate | FrozenTrial, names: Sequence[str], count: int,
                         rng: np.random.Generator) -> list[tuple[Candidate, list[float]]]:
        """Sample feasible neighbors of ``parent`` that have the same structure.

        Parameters without a list of values stay as they are, and so do parameters of other spaces,
        such as a recipe.

        Args:
            parent: the candidate.
            names: costs to evaluate.
            count: number of samples; fewer are feasible.
            rng: random number generator.

        Returns:
            Candidates with their costs.
        """
        values = decode_params(self.space, parent.params).params
        codes = {path: column.perturb(values[path], count, path in self.numeric, rng)
                 for path, column in self.columns.items() if path in values}
        fixed = {path: value for path, value in values.items() if path not in self.columns}
        config, codes, rows = self._largest_structure(codes, fixed, count, rng)
        if not rows:
            return []
        needed = dict.fromkeys([*names, *(name for limit in self.limits for name in limit.costs)])
        try:
            costs, is_buildable = evaluate_population_costs(config, rows, self.protocol, needed)
        except (CostOverflowError, OverflowError):
            return []
        is_feasible = constraints_hold(self.limits, {**config, **costs}, rows)
        feasible = np.flatnonzero(is_buildable & is_feasible)
        columns = [self.columns[path] for path in codes]
        own_names = {column.name for column in self.columns.values()}
        others = {name: value for name, value in parent.params.items() if name not in own_names}
        distributions = {column.name: column.distribution for column in columns}
        distributions |= {name: parent.distributions[name] for name in others}
        column_values = [[column.optuna_values[code] for code in codes[path][feasible].tolist()]
                         for column, path in zip(columns, codes)]
        column_names = [column.name for column in columns]
        candidates = [Candidate({**others, **dict(zip(column_names, values))}, distributions)
                      for values in zip(*column_values)]
        costs_by_candidate = np.array([costs[name][feasible] for name in names], float).T.tolist()
        return list(zip(candidates, costs_by_candidate or [[]] * len(feasible)))

    def _largest_structure(self, codes: ValueIndices, fixed: Mapping[str, Any], rows: int,
                           rng: np.random.Generator) -> tuple[dict[str, Any], ValueIndices, int]:
        """Select the largest set of samples with the same structure.

        Returns:
            Configuration with arrays of values, codes of its parameters, and the number of samples;
            0 if they are invalid.
        """
        while True:
            columns = _NeighborColumns(self.space.parameter_space, codes, self.numeric, fixed)
            try:
                config = {}
                for key in self.space.parameter_space.nodes_by_key:
                    value = columns.value_of(key)
                    if value is not ABSENT:
                        config[key] = value
            except MissingValuesError as missing:  # a parameter that exists for other numbers only
                codes = {**codes, missing.name: rng.integers(0, missing.count, rows, np.int32)}
            except PopulationSplitError as split:
                codes, rows = select_rows(codes, max(split.masks(), key=np.count_nonzero))
            else:
                return config, dict(columns.params), 0 if columns.infeasible else rows


class _NeighborColumns(ColumnarParams):
    """Parameter values of many candidates; the values ``fixed`` are equal for all."""

    def __init__(self, space_parameters: ParameterSpace, value_indices: ValueIndices,
                 numeric: frozenset[str], fixed: Mapping[str, Any]) -> None:
        super().__init__(space_parameters, value_indices, numeric)
        self.fixed = fixed

    def request(self, name: str, parameter: Parameter) -> Any:
        return self.fixed[name] if name in self.fixed else super().request(name, parameter)


class _ValueColumn:
    """Values of one parameter, with its name and distribution in Optuna."""

    def __init__(self, space: Space, path: str, parameter: Parameter) -> None:
        self.values: Sequence[Any] = list(parameter.values() or ())
        self.name, self.distribution = encode_parameter(space, path, parameter)
        self.optuna_values = [to_param(parameter, value) for value in self.values]

    def perturb(self, value: Any, count: int, numeric: bool,
                rng: np.random.Generator) -> NDArray[np.int32]:
        """Return (count,) indices of ``value`` or of numbers near it."""
        code = self.values.index(value)
        last = len(self.values) - 1
        if not numeric or not last:
            return np.full(count, code, np.int32)
        step = np.maximum(
            1, np.abs(rng.normal(0, STEP_SHARE, count) * last).round()) * rng.choice([-1, 1], count)
        order = np.argsort(np.array(self.values, float), kind="stable")
        moved = np.clip(int(np.flatnonzero(order == code)[0]) + step, 0, last).astype(int)
        return np.where(rng.random(count) < CHANGE_PROBABILITY, order[moved], code).astype(np.int32)
