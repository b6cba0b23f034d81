"""Candidates: answer sheets, what is wrong with them, and what they cost, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalesearch.blocks.polynomial import CostOverflowError
from scalesearch.cost import Protocol, evaluate_cost
from scalesearch.cost.population import evaluate_population_costs
from scalesearch.space import Constraint, ParamValues, Space, UnbuildableError
from scalesearch.space.assembly.architecture import build_blocks

Costs = dict[str, Any]


@dataclass(frozen=True)
class CostedCandidate:
    """Answers, what is wrong with them, and their costs: ``None`` where no network can be built of them."""

    config: Mapping[str, Any]
    error: str | None = None
    costs: Costs | None = None

    @classmethod
    def from_param_values(cls, answers: ParamValues) -> CostedCandidate:
        """The candidate that a sheet describes, without its costs."""
        return cls(dict(answers),
                   next((f"{key}: {reason}" for key, reason in answers.infeasible_values), None))

    def __getitem__(self, name: str) -> Any:
        """A cost or an answer; raises KeyError for neither, as constraints want it."""
        return self.costs[name] if self.costs and name in self.costs else self.config[name]

    def satisfies(self, limits: Iterable[Constraint]) -> bool:
        """Whether it can be built and is within every limit."""
        return self.costs is not None and all(
            limit.is_satisfied(self.__getitem__) for limit in limits)

    def max_violation(self, limits: Iterable[Constraint]) -> float:
        """The largest slack of the limits: at most 0 where it meets all, else how far it is off."""
        return max((limit.violation(self.__getitem__) for limit in limits), default=0)


@dataclass(frozen=True)
class IndexedCandidate:
    """One candidate: the index of each of its answers, and some of its costs."""

    value_indices: dict[str, int]
    costs: dict[str, int]
    space: Space

    @property
    def param_values(self) -> ParamValues:
        """Its answer sheet."""
        return self.space.resolve(lambda name, parameter: parameter.values()[self.value_indices[name]])  # type: ignore[index]


def evaluate_costs(candidates: Sequence[CostedCandidate], protocol: Protocol,
                   names: Iterable[str]) -> list[CostedCandidate]:
    """The candidates with the costs ``names``, exactly; those that cannot be built stay without."""
    wanted = tuple(dict.fromkeys(names))
    result = list(candidates)
    groups: dict[Any, list[int]] = {}
    for index, candidate in enumerate(candidates):
        if candidate.error is None:
            groups.setdefault(_structure(candidate), []).append(index)
    for members in groups.values():
        for index, costs in zip(
                members, _evaluate_group([candidates[i] for i in members], protocol, wanted)):
            fault = None if costs is not None else "cannot be built"
            result[index] = replace(candidates[index], error=fault, costs=costs)
    return result


def _structure(candidate: CostedCandidate) -> tuple[Any, ...]:
    """Everything but the numbers, and which keys are numbers of which kind."""
    answers = candidate.config.items()
    return tuple((key, type(value) if type(value) in (int, float) else str(value))
                 for key, value in answers)


def _evaluate_group(members: list[CostedCandidate], protocol: Protocol,
                    names: tuple[str, ...]) -> list[Costs | None]:
    answers: dict[str, Any] = {}
    sheets = [member.config for member in members]
    try:
        for key, value in sheets[0].items():
            column = [sheet[key] for sheet in sheets] if type(value) in (int, float) else []
            differs = any(other != value for other in column)
            answers[key] = np.array(
                column, np.int64 if isinstance(value, int) else float) if differs else value
    except OverflowError:  # a number of more than 64 bits
        return [_evaluate_single(sheet, protocol, names) for sheet in sheets]
    return evaluate_table_costs(answers, sheets, protocol, names)


def evaluate_table_costs(values: Mapping[str, Any], configs: Sequence[Mapping[str, Any]],
                         protocol: Protocol, names: tuple[str, ...]) -> list[Costs | None]:
    """The costs of candidates of one structure: ``values`` has arrays of what ``configs`` differ in."""
    try:
        columns, built = evaluate_population_costs(values, len(configs), protocol, names)
    except (CostOverflowError, OverflowError):
        return [_evaluate_single(sheet, protocol, names) for sheet in configs]
    rows = zip(built.tolist(), *(columns[name].tolist() for name in names))
    return [dict(zip(names, row)) if ok else None for ok, *row in rows]


def _evaluate_single(param_values: Mapping[str, Any], protocol: Protocol,
                     names: tuple[str, ...]) -> Costs | None:
    try:
        bill = evaluate_cost(build_blocks(param_values)[1], protocol.for_candidates(param_values))
    except UnbuildableError:
        return None
    return {name: bill[name] for name in names}
