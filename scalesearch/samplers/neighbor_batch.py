"""Many sheets around one, billed together: words are kept and numbers differ, so that one bill has all their costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial

from scalesearch.blocks.polynomial import CostOverflowError
from scalesearch.blocks.sizes import PopulationSplitError
from scalesearch.cost.population import evaluate_population_costs
from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.budget_sampler import parameters_by_name
from scalesearch.feasible.decomposition import constraints_hold
from scalesearch.feasible.enumeration import (
    ColumnarParams,
    MissingValuesError,
    TooManyCandidatesError,
    ValueIndices,
    find_numeric_parameters,
    select_rows,
)
from scalesearch.samplers.candidate import Candidate
from scalesearch.samplers.encoding import decode_params, encode_parameter, to_param
from scalesearch.space import Space
from scalesearch.space.parameters.constraints import Constraint
from scalesearch.space.parameters.param_values import ParameterSpace
from scalesearch.space.syntax.evaluator import ABSENT
from scalesearch.space.syntax.parameters import Parameter

CHANGE_PROBABILITY = 0.3  # chance of each number to be changed
STEP_SHARE = 0.15  # of a list of numbers: the standard deviation of a step along it
MAX_VALUES = 10_000  # of a number that is changed


class NeighborBatchSampler:
    """Sheets of ``space`` that meet ``limits``, many at a time.

    Raises:
        TooMany: the name of a parameter has several meanings.
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
    def of(cls, space: Any, protocol: Protocol,
           limits: Sequence[Any]) -> NeighborBatchSampler | None:
        """As the constructor; None where sheets can only be billed one by one."""
        if not isinstance(space,
                          Space) or not all(isinstance(limit, Constraint) for limit in limits):
            return None
        try:
            return cls(space, protocol, limits)
        except TooManyCandidatesError:
            return None

    def sample_neighbors(self, parent: Candidate | FrozenTrial, names: Sequence[str], count: int,
                         rng: np.random.Generator) -> list[tuple[Candidate, list[float]]]:
        """Feasible sheets near ``parent``, of one structure and at most ``count``, with the costs ``names`` of each.

        What has no list of values is kept as it is, and so is what is not the space's, such as a
        recipe's.
        """
        given = decode_params(self.space, parent.params).params
        codes = {path: column.perturb(given[path], count, path in self.numeric, rng)
                 for path, column in self.columns.items() if path in given}
        kept = {path: answer for path, answer in given.items() if path not in self.columns}
        answers, codes, rows = self._of_one_structure(codes, kept, count, rng)
        if not rows:
            return []
        needed = dict.fromkeys([*names, *(name for limit in self.limits for name in limit.costs)])
        try:
            costs, built = evaluate_population_costs(answers, rows, self.protocol, needed)
        except (CostOverflowError, OverflowError):
            return []
        able = np.flatnonzero(built & constraints_hold(self.limits, {**answers, **costs}, rows))
        return list(zip(self._to_candidates({path: its[able] for path, its in codes.items()},
                                            parent),
                        np.array([costs[name][able] for name in names], float).T.tolist()
                        or [[]] * len(able)))

    def _of_one_structure(self, codes: ValueIndices, kept: Mapping[str, Any], rows: int,
                          rng: np.random.Generator) -> tuple[dict[str, Any], ValueIndices, int]:
        """Answers, codes of what is asked, and the number, of the most candidates that have one structure, if sound."""
        while True:
            sheet = _NeighborColumns(self.space.parameter_space, codes, self.numeric, kept)
            try:
                answers = {key: value
                           for key in self.space.parameter_space.nodes_by_key
                           if (value := sheet.value_of(key)) is not ABSENT}
            except MissingValuesError as missing:  # what only another number has asked
                codes = {**codes, missing.name: rng.integers(0, missing.count, rows, np.int32)}
            except PopulationSplitError as split:
                labels, sizes = np.unique(split.labels, return_counts=True)
                codes, rows = select_rows(codes, split.labels == labels[sizes.argmax()])
            else:
                return answers, dict(sheet.params), 0 if sheet.infeasible else rows

    def _to_candidates(self, codes: ValueIndices,
                       parent: Candidate | FrozenTrial) -> list[Candidate]:
        columns = [self.columns[path] for path in codes]
        mine = {column.name for column in self.columns.values()}
        others = {name: value for name, value in parent.params.items() if name not in mine}
        distributions = {column.name: column.distribution for column in columns}
        distributions |= {name: parent.distributions[name] for name in others}
        values = zip(*(column.params(its) for column, its in zip(columns, codes.values())))
        names = [column.name for column in columns]
        return [Candidate({**others, **dict(zip(names, row))}, distributions) for row in values]


class _NeighborColumns(ColumnarParams):
    """Sheet for many candidates, which agree in the answers ``kept``."""

    def __init__(self, space_parameters: ParameterSpace, value_indices: ValueIndices,
                 numeric: frozenset[str], kept: Mapping[str, Any]) -> None:
        super().__init__(space_parameters, value_indices, numeric)
        self.kept = kept

    def request(self, name: str, parameter: Parameter) -> Any:
        return self.kept[name] if name in self.kept else super().request(name, parameter)


class _ValueColumn:
    """One parameter: the list of its values, and Optuna's name, distribution and value for each."""

    def __init__(self, space: Space, path: str, parameter: Parameter) -> None:
        self.values: Sequence[Any] = list(parameter.values() or ())
        self.name, self.distribution = encode_parameter(space, path, parameter)
        self.optuna_values = [to_param(parameter, value) for value in self.values]

    def perturb(self, value: Any, count: int, numeric: bool,
                rng: np.random.Generator) -> NDArray[np.int32]:
        """(count,) codes: of ``value`` itself, or of numbers near it."""
        code = self.values.index(value)
        last = len(self.values) - 1
        if not numeric or not last:
            return np.full(count, code, np.int32)
        step = np.maximum(
            1, np.abs(rng.normal(0, STEP_SHARE, count) * last).round()) * rng.choice([-1, 1], count)
        order = np.argsort(np.array(self.values, float), kind="stable")
        moved = np.clip(int(np.flatnonzero(order == code)[0]) + step, 0, last).astype(int)
        return np.where(rng.random(count) < CHANGE_PROBABILITY, order[moved], code).astype(np.int32)

    def params(self, codes: NDArray[np.int32]) -> list[Any]:
        """Optuna's values of so many codes."""
        return [self.optuna_values[code] for code in codes.tolist()]
