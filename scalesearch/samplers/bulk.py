"""Many sheets around one, billed together: words are kept and numbers differ, so that one bill has all their costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.poly import Overflow
from scalesearch.blocks.sizes import Split
from scalesearch.cost.population import price
from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.draw import one_each
from scalesearch.feasible.grid import Codes, ColumnSheet, Endless, TooMany, Unanswered, chosen, numeric_parameters
from scalesearch.feasible.sections import all_hold
from scalesearch.samplers.encoding import decode, encoded, to_param
from scalesearch.samplers.sheet import Sheet
from scalesearch.space import Space
from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.syntax.evaluator import ABSENT
from scalesearch.space.syntax.parameters import Parameter

CHANGED = 0.3  # chance of each number to be changed
REACH = 0.15  # of a list of numbers: the standard deviation of a step along it
MOST_VALUES = 10_000  # of a number that is listed


class Bulk:
    """Sheets of ``space`` that meet ``limits``, many at a time.

    Raises:
        TooMany, Endless: a parameter has too many values, or several meanings.
    """

    def __init__(self, space: Space, protocol: Protocol, limits: Sequence[Constraint]) -> None:
        self.space, self.protocol, self.limits = space, protocol, limits
        self.numeric = numeric_parameters(space.form)
        self.columns = {path: _Column(space, path, parameter) for path, parameter in one_each(space).items()}

    @classmethod
    def of(cls, space: Any, protocol: Protocol, limits: Sequence[Any]) -> Bulk | None:
        """As the constructor; None where sheets can only be billed one by one."""
        if not isinstance(space, Space) or not all(isinstance(limit, Constraint) for limit in limits):
            return None
        try:
            return cls(space, protocol, limits)
        except (TooMany, Endless):
            return None

    def around(self, params: Mapping[str, Any], names: Sequence[str], count: int, rng: np.random.Generator
               ) -> list[tuple[Sheet, list[float]]]:
        """Feasible sheets near ``params``, of one structure and fewer than ``count``, with the costs ``names`` of each.

        Params that are not the space's, such as a recipe's, are kept as they are.
        """
        given = decode(self.space, params).params
        codes = {path: self.columns[path].changed(answer, count, path in self.numeric, rng)
                 for path, answer in given.items()}
        answers, codes, rows = self._of_one_structure(codes, count, rng)
        needed = dict.fromkeys([*names, *(name for limit in self.limits for name in limit.costs)])
        try:
            costs, built = price(answers, rows, self.protocol, needed)
        except (Overflow, OverflowError):
            return []
        able = np.flatnonzero(built & all_hold(self.limits, {**answers, **costs}, rows))
        others = {name: params[name] for name in params.keys() - {self.columns[path].name for path in given}}
        return list(zip(self._sheets({path: its[able] for path, its in codes.items()}, others),
                        np.array([costs[name][able] for name in names], float).T.tolist() or [[]] * len(able)))

    def _of_one_structure(self, codes: Codes, rows: int, rng: np.random.Generator) -> tuple[dict[str, Any], Codes, int]:
        """Answers, and codes of what is asked, of the most candidates among ``codes`` that have one structure."""
        while True:
            sheet = ColumnSheet(self.space.form, codes, self.numeric)
            try:
                answers = {key: value for key in self.space.form.by_key if (value := sheet.lookup(key)) is not ABSENT}
            except Unanswered as missing:  # what only another number has asked
                codes = {**codes, missing.name: rng.integers(0, missing.count, rows, np.int32)}
            except Split as split:
                labels, sizes = np.unique(split.labels, return_counts=True)
                codes, rows = chosen(codes, split.labels == labels[sizes.argmax()])
            else:
                return answers, dict(sheet.params), 0 if sheet.faults else rows

    def _sheets(self, codes: Codes, others: Mapping[str, Any]) -> list[Sheet]:
        columns = [self.columns[path] for path in codes]
        distributions = {column.name: column.distribution for column in columns}
        names, values = [column.name for column in columns], [column.params(its) for column, its in
                                                              zip(columns, codes.values())]
        return [Sheet({**others, **dict(zip(names, row))}, distributions) for row in zip(*values)]


class _Column:
    """One parameter: the list of its values, and Optuna's name, distribution and value for each."""

    def __init__(self, space: Space, path: str, parameter: Parameter) -> None:
        count = parameter.count()
        if count is None:
            raise Endless(f"{path}: a continuous range has no end of values")
        if count > MOST_VALUES:
            raise TooMany(f"{path} has {count:,} values")
        self.values: Sequence[Any] = list(parameter.values() or ())
        self.name, self.distribution = encoded(space, path, parameter)
        self.given = [to_param(parameter, value) for value in self.values]

    def changed(self, answer: Any, count: int, numeric: bool, rng: np.random.Generator) -> NDArray[np.int32]:
        """(count,) codes: of ``answer`` itself, or of numbers near it."""
        code, last = self.values.index(answer), len(self.values) - 1
        if not numeric or not last:
            return np.full(count, code, np.int32)
        step = np.maximum(1, np.abs(rng.normal(0, REACH, count) * last).round()) * rng.choice([-1, 1], count)
        order = np.argsort(np.array(self.values, float), kind="stable")
        moved = np.clip(int(np.flatnonzero(order == code)[0]) + step, 0, last).astype(int)
        return np.where(rng.random(count) < CHANGED, order[moved], code).astype(np.int32)

    def params(self, codes: NDArray[np.int32]) -> list[Any]:
        """Optuna's values of so many codes."""
        return [self.given[code] for code in codes.tolist()]
