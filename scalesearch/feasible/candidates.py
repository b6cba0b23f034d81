"""Candidates: answer sheets, what is wrong with them, and what they cost, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scalesearch.blocks.poly import Overflow
from scalesearch.cost import Protocol, cost
from scalesearch.cost.population import price
from scalesearch.space import Answers, Unbuildable
from scalesearch.space.assembly.architecture import network

Costs = dict[str, Any]
EMPTY: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Candidate:
    """Answer sheet, what is wrong with it, and its costs: ``None`` where no network can be built of it.

    Args:
        own: answers.
        shared: answers that many candidates have in common, as one object.
    """

    own: Mapping[str, Any]
    shared: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    fault: str | None = None
    costs: Costs | None = None

    @classmethod
    def of(cls, answers: Answers) -> Candidate:
        """The candidate that a sheet describes, without its costs."""
        return cls(dict(answers), fault=first_fault(answers.problems))

    @property
    def answers(self) -> dict[str, Any]:
        """The whole sheet."""
        return {**self.shared, **self.own}

    def __getitem__(self, name: str) -> Any:
        """A cost or an answer; raises KeyError for neither, as constraints want it."""
        if self.costs and name in self.costs:
            return self.costs[name]
        return self.own[name] if name in self.own else self.shared[name]


def first_fault(problems: Iterable[tuple[str, str]]) -> str | None:
    """The first of some (key, reason) as one text."""
    return next((f"{key}: {reason}" for key, reason in problems), None)


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
    own = ((key, type(value) if type(value) in (int, float) else str(value)) for key, value in candidate.own.items())
    return (id(candidate.shared), *own)


def _group(members: list[Candidate], protocol: Protocol, names: tuple[str, ...]) -> list[Costs | None]:
    answers = dict(members[0].shared)
    try:
        for key, value in members[0].own.items():
            column = [member.own[key] for member in members] if type(value) in (int, float) else []
            differs = any(other != value for other in column)
            answers[key] = np.array(column, np.int64 if isinstance(value, int) else float) if differs else value
        columns, built = price(answers, len(members), protocol, names)
    except (Overflow, OverflowError):
        return [_one(member.answers, protocol, names) for member in members]
    rows = zip(built.tolist(), *(columns[name].tolist() for name in names))
    return [dict(zip(names, row)) if ok else None for ok, *row in rows]


def _one(sheet: Mapping[str, Any], protocol: Protocol, names: tuple[str, ...]) -> Costs | None:
    try:
        bill = cost(network(sheet)[1], protocol)
    except Unbuildable:
        return None
    return {name: bill[name] for name in names}
