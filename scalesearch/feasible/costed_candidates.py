"""Candidates with their costs: configurations are validated and costed in groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalesearch.blocks.polynomial import CostOverflowError
from scalesearch.cost import Protocol, evaluate_cost
from scalesearch.cost.population import evaluate_population_costs
from scalesearch.spaces import Constraint, ParamValues, Space, UnbuildableError
from scalesearch.spaces.assembly.architecture import build_blocks

Costs = dict[str, Any]


@dataclass(frozen=True)
class CostedCandidate:
    """A configuration and its costs.

    Attributes:
        config: key to value.
        error: reason why the configuration is invalid; None if it is valid.
        costs: cost name to value; None if the network cannot be built, or is not costed yet.
    """

    config: Mapping[str, Any]
    error: str | None = None
    costs: Costs | None = None

    @classmethod
    def from_param_values(cls, values: ParamValues) -> CostedCandidate:
        """Make a candidate without costs."""
        errors = (f"{key}: {reason}" for key, reason in values.infeasible_values)
        return cls(dict(values), next(errors, None))

    def __getitem__(self, name: str) -> Any:
        """Return a cost or a value; constraints need a KeyError if there is neither."""
        return self.costs[name] if self.costs and name in self.costs else self.config[name]

    def satisfies(self, limits: Iterable[Constraint]) -> bool:
        """Whether the network can be built and meets every limit."""
        return self.costs is not None and all(
            limit.is_satisfied(self.__getitem__) for limit in limits)

    def max_violation(self, limits: Iterable[Constraint]) -> float:
        """Largest violation of the limits; at most 0 if all are met."""
        return max((limit.violation(self.__getitem__) for limit in limits), default=0)


@dataclass(frozen=True)
class IndexedCandidate:
    """A candidate as indices of parameter values, with some of its costs."""

    value_indices: dict[str, int]
    costs: dict[str, int]
    space: Space

    @property
    def param_values(self) -> ParamValues:
        """Values of all keys."""
        def select(name: str, parameter: Any) -> Any:
            return parameter.values()[self.value_indices[name]]

        return self.space.resolve(select)


@dataclass(frozen=True)
class SampledCandidate:
    """A sampled candidate with some of its costs."""

    param_values: ParamValues
    costs: dict[str, int]


def evaluate_costs(candidates: Sequence[CostedCandidate], protocol: Protocol,
                   names: Iterable[str]) -> list[CostedCandidate]:
    """Return the candidates with the costs ``names``.

    Candidates that cannot be built have an error and no costs.
    """
    names = tuple(dict.fromkeys(names))
    result = list(candidates)
    groups: dict[Any, list[int]] = {}
    for index, candidate in enumerate(candidates):
        if candidate.error is None:
            # All values except numbers, and the types of the numbers.
            structure = tuple((key, type(value) if type(value) in (int, float) else str(value))
                              for key, value in candidate.config.items())
            groups.setdefault(structure, []).append(index)
    for indices in groups.values():
        configs = [candidates[index].config for index in indices]
        values: dict[str, Any] = {}
        try:
            for key, value in configs[0].items():
                column = [config[key] for config in configs] if type(value) in (int, float) else []
                differs = any(other != value for other in column)
                values[key] = np.array(
                    column, np.int64 if isinstance(value, int) else float) if differs else value
            costs_of_group = evaluate_table_costs(values, configs, protocol, names)
        except OverflowError:  # a number does not fit in 64 bits
            costs_of_group = [_evaluate_single(config, protocol, names) for config in configs]
        for index, costs in zip(indices, costs_of_group):
            error = None if costs is not None else "cannot be built"
            result[index] = replace(candidates[index], error=error, costs=costs)
    return result


def evaluate_table_costs(values: Mapping[str, Any], configs: Sequence[Mapping[str, Any]],
                         protocol: Protocol, names: tuple[str, ...]) -> list[Costs | None]:
    """Evaluate the costs of candidates with the same structure, or None.

    Args:
        values: key to the value of all candidates, or to an array with a value per candidate.
        configs: the same values, per candidate.
    """
    try:
        columns, is_buildable = evaluate_population_costs(values, len(configs), protocol, names)
    except (CostOverflowError, OverflowError):
        return [_evaluate_single(config, protocol, names) for config in configs]
    rows = zip(is_buildable.tolist(), *(columns[name].tolist() for name in names))
    return [dict(zip(names, costs)) if buildable else None for buildable, *costs in rows]


def _evaluate_single(config: Mapping[str, Any], protocol: Protocol,
                     names: tuple[str, ...]) -> Costs | None:
    try:
        breakdown = evaluate_cost(build_blocks(config)[1], protocol.for_candidates(config))
    except UnbuildableError:
        return None
    return {name: breakdown[name] for name in names}
