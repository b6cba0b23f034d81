"""Candidates: answer sheets, what is wrong with them, and what they cost, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalesearch.blocks.polynomial import CostOverflowError
from scalesearch.cost import Protocol, cost
from scalesearch.cost.population import price
from scalesearch.space import Constraint, ParamValues, Space, UnbuildableError
from scalesearch.space.assembly.architecture import build_blocks

Costs = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """Answers, what is wrong with them, and their costs: ``None`` where no network can be built of them."""

    answers: Mapping[str, Any]
    fault: str | None = None
    costs: Costs | None = None

    @classmethod
    def of(cls, answers: ParamValues) -> Candidate:
        """The candidate that a sheet describes, without its costs."""
        return cls(dict(answers), next((f"{key}: {reason}" for key, reason in answers.infeasible_values), None))

    def __getitem__(self, name: str) -> Any:
        """A cost or an answer; raises KeyError for neither, as constraints want it."""
        return self.costs[name] if self.costs and name in self.costs else self.answers[name]

    def meets(self, limits: Iterable[Constraint]) -> bool:
        """Whether it can be built and is within every limit."""
        return self.costs is not None and all(limit.is_satisfied(self.__getitem__) for limit in limits)

    def miss(self, limits: Iterable[Constraint]) -> float:
        """The largest slack of the limits: at most 0 where it meets all, else how far it is off."""
        return max((limit.violation(self.__getitem__) for limit in limits), default=0)


@dataclass(frozen=True)
class Point:
    """One candidate: the index of each of its answers, and some of its costs."""

    codes: dict[str, int]
    costs: dict[str, int]
    space: Space

    @property
    def answers(self) -> ParamValues:
        """Its answer sheet."""
        return self.space.resolve(lambda name, parameter: parameter.values()[self.codes[name]])  # type: ignore[index]


def priced(candidates: Sequence[Candidate], protocol: Protocol, names: Iterable[str]) -> list[Candidate]:
    """The candidates with the costs ``names``, exactly; those that cannot be built stay without."""
    wanted, result = tuple(dict.fromkeys(names)), list(candidates)
    groups: dict[Any, list[int]] = {}
    for index, candidate in enumerate(candidates):
        if candidate.fault is None:
            groups.setdefault(_structure(candidate), []).append(index)
    for members in groups.values():
        for index, costs in zip(members, _group([candidates[i] for i in members], protocol, wanted)):
            fault = None if costs is not None else "cannot be built"
            result[index] = replace(candidates[index], fault=fault, costs=costs)
    return result


def _structure(candidate: Candidate) -> tuple[Any, ...]:
    """Everything but the numbers, and which keys are numbers of which kind."""
    answers = candidate.answers.items()
    return tuple((key, type(value) if type(value) in (int, float) else str(value)) for key, value in answers)


def _group(members: list[Candidate], protocol: Protocol, names: tuple[str, ...]) -> list[Costs | None]:
    answers: dict[str, Any] = {}
    sheets = [member.answers for member in members]
    try:
        for key, value in sheets[0].items():
            column = [sheet[key] for sheet in sheets] if type(value) in (int, float) else []
            differs = any(other != value for other in column)
            answers[key] = np.array(column, np.int64 if isinstance(value, int) else float) if differs else value
    except OverflowError:  # a number of more than 64 bits
        return [_one(sheet, protocol, names) for sheet in sheets]
    return price_table(answers, sheets, protocol, names)


def price_table(answers: Mapping[str, Any], sheets: Sequence[Mapping[str, Any]], protocol: Protocol,
                names: tuple[str, ...]) -> list[Costs | None]:
    """The costs of candidates of one structure: ``answers`` has arrays of what ``sheets`` differ in."""
    try:
        columns, built = price(answers, len(sheets), protocol, names)
    except (CostOverflowError, OverflowError):
        return [_one(sheet, protocol, names) for sheet in sheets]
    rows = zip(built.tolist(), *(columns[name].tolist() for name in names))
    return [dict(zip(names, row)) if ok else None for ok, *row in rows]


def _one(sheet: Mapping[str, Any], protocol: Protocol, names: tuple[str, ...]) -> Costs | None:
    try:
        bill = cost(build_blocks(sheet)[1], protocol.of(sheet))
    except UnbuildableError:
        return None
    return {name: bill[name] for name in names}
