"""Enumeration of configurations as tables: one column of values per key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.sizes import PopulationSplitError, is_number, require_single_value
from scalesearch.errors import UserError
from scalesearch.spaces.parameters.param_values import (
    ParamAssignment,
    ParameterSpace,
    validate_schedule,
)
from scalesearch.spaces.syntax.domains import LayerReference, Schedule
from scalesearch.spaces.syntax.expressions import ABSENT
from scalesearch.spaces.syntax.parameters import Choice, Parameter

ValueIndices = dict[str, NDArray[np.int32]]  # parameter to the index of each candidate's value
NOT_SAMPLED = -1  # index of a parameter that a candidate does not have
MAX_STRUCTURES = 40_000  # each takes about a millisecond


class TooManyCandidatesError(UserError):
    """There are more candidates than can be listed."""

    code = "too-many-combinations"


def too_many_combinations(max_candidates: int) -> TooManyCandidatesError:
    """Error for more than ``max_candidates`` combinations."""
    return TooManyCandidatesError(f"more than {max_candidates:,} combinations of parameters depend "
                                  "on each other")


class ContinuousRangeError(UserError):
    """A continuous range has infinitely many values."""

    code = "continuous-range"


class MissingValuesError(Exception):
    """A parameter has no values yet; ``count`` is the number of its values."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(name)
        self.name = name
        self.count = count


class ColumnarParams(ParamAssignment):
    """Values of many candidates: sizes are arrays, all other values are the same.

    Args:
        value_indices: parameter to the index of each candidate's value.
        numeric: parameters whose values may differ between the candidates.

    Methods raise PopulationSplitError if other values differ, MissingValuesError for a parameter
    that is not in ``value_indices``, and ContinuousRangeError for a continuous range.
    """

    def __init__(self, parameter_space: ParameterSpace, value_indices: ValueIndices,
                 numeric: frozenset[str]) -> None:
        super().__init__(parameter_space, lambda name, parameter: None)
        self.value_indices = value_indices
        self.numeric = numeric

    def request(self, name: str, parameter: Parameter) -> Any:
        if (count := parameter.count()) is None:
            raise ContinuousRangeError(f"{name}: a continuous range has infinitely many values; "
                                       "add a step")
        if name not in self.value_indices:
            raise MissingValuesError(name, count)
        indices = self.value_indices[name]
        self.params[name] = indices
        values: Any = parameter.values()
        if name in self.numeric:
            return np.asarray(values)[indices]
        return values[require_single_value(indices)]


def find_numeric_parameters(space_parameters: ParameterSpace) -> frozenset[str]:
    """Sizes and ratios: parameters that may differ within one structure."""
    names = set()
    for node in space_parameters.nodes:
        if node.field.type in ("size", "number"):
            for name, parameter in space_parameters.domains[node.path].parameters():
                if not isinstance(parameter,
                                  Choice) or all(is_number(option) for option in parameter.options):
                    names.add(name)
    return frozenset(names)


@dataclass(frozen=True)
class CandidateTable:
    """Candidates of one structure.

    Attributes:
        values: key to the value of all candidates, or to an array with a value per candidate.
        value_indices: parameter to the index of each candidate's value.
        is_invalid: whether a value of these candidates cannot exist.
    """

    values: Mapping[str, Any]
    n_candidates: int
    value_indices: ValueIndices
    is_invalid: bool


def enumerate_tables(space_parameters: ParameterSpace, keys: Iterable[str],
                     max_candidates: int) -> Iterator[CandidateTable]:
    """List all combinations of the parameters of ``keys``, by structure.

    Raises:
        TooManyCandidatesError: there are more than ``max_candidates``.
        ContinuousRangeError: one of the parameters is a continuous range.
    """
    keys = list(keys)
    numeric = find_numeric_parameters(space_parameters)
    queue: list[tuple[ValueIndices, int]] = [({}, 1)]
    n_listed = 1
    n_structures = 0
    while queue:
        indices, n_rows = queue.pop()
        n_structures += 1
        if n_structures > MAX_STRUCTURES:
            raise TooManyCandidatesError("too many structures depend on each other")
        params = ColumnarParams(space_parameters, indices, numeric)
        try:
            values = {key: value for key in keys if (value := params.value_of(key)) is not ABSENT}
            is_invalid = _invalid_schedules(space_parameters, params, values, n_rows)
        except MissingValuesError as missing:
            n_listed += n_rows * (missing.count - 1)
            if n_listed > max_candidates:
                raise too_many_combinations(max_candidates) from None
            # Combine every row with each of the missing values.
            crossed = {name: np.repeat(column, missing.count) for name, column in indices.items()}
            crossed[missing.name] = np.tile(np.arange(missing.count, dtype=np.int32), n_rows)
            queue.append((crossed, n_rows * missing.count))
        except PopulationSplitError as split:
            queue += [select_rows(indices, mask) for mask in split.masks()]
        else:
            if is_invalid.all() or not is_invalid.any():
                yield CandidateTable(values, n_rows, indices,
                                     bool(params.infeasible) or bool(is_invalid.any()))
            else:
                queue += [select_rows(indices, is_invalid), select_rows(indices, ~is_invalid)]


def _invalid_schedules(space_parameters: ParameterSpace, param_values: ColumnarParams,
                       values: Mapping[str, Any], n_rows: int) -> NDArray[np.bool_]:
    """Mask (n_rows,) of candidates that have a schedule of a wrong depth, used or not."""
    is_invalid = np.zeros(n_rows, bool)
    for node in space_parameters.nodes:
        value = param_values.values.get(node.key)
        if node.field.depth_key is None or node.key not in values or not isinstance(
                value, Schedule) or isinstance(value.form, LayerReference):
            continue
        if (depth_values := param_values.value_of(node.field.depth_key)) is not ABSENT:
            depths = np.broadcast_to(depth_values, n_rows)
            for depth in np.unique(depths).tolist():
                if validate_schedule(value, node.field, depth, None):
                    is_invalid |= depths == depth
    return is_invalid


def select_rows(value_indices: ValueIndices, rows: Any) -> tuple[ValueIndices, int]:
    """Candidates in the mask ``rows``, and their number."""
    return {name: column[rows] for name, column in value_indices.items()}, int(rows.sum())
