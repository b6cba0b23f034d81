"""Answers of many candidates at once: the questionnaire, filled in with columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.sizes import PopulationSplitError, is_number, require_single_value
from scalesearch.errors import UserError
from scalesearch.space.parameters.param_values import ParamAssignment, ParameterSpace, validate_schedule
from scalesearch.space.syntax.evaluator import ABSENT
from scalesearch.space.syntax.parameters import Choice, Parameter
from scalesearch.space.syntax.schedules import ScheduleCall

ValueIndices = dict[str, NDArray[np.int32]]  # parameter to the index of each candidate's answer
NOT_SAMPLED = -1
MAX_STRUCTURES = 40_000  # sheets that are filled in, at about a millisecond each


class TooManyCandidatesError(UserError):
    """More candidates than are listed."""

    code = "too-many-combinations"


class ContinuousRangeError(UserError):
    """A continuous range, which has no end of answers."""

    code = "continuous-range"


class MissingValuesError(Exception):
    """A parameter that no answers are given for."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(name)
        self.name = name
        self.count = count


class ColumnarParams(ParamAssignment):
    """A sheet for many candidates: sizes are arrays, and in everything else the candidates agree.

    Raises Split where they do not, Unanswered at a parameter that ``value_indices`` does not
    answer, Endless at a continuous range.
    """

    def __init__(self, parameter_space: ParameterSpace, value_indices: ValueIndices,
                 numeric: frozenset[str]) -> None:
        super().__init__(parameter_space, lambda name, parameter: None)
        self.codes = value_indices
        self.numeric = numeric

    def request(self, name: str, parameter: Parameter) -> Any:
        if (count := parameter.count()) is None:
            raise ContinuousRangeError(f"{name}: a continuous range has no end of values; give it "
                                       "a step")
        if name not in self.codes:
            raise MissingValuesError(name, count)
        self.params[name] = codes = self.codes[name]
        values: Any = parameter.values()
        return np.asarray(values)[codes] if name in self.numeric else values[
            require_single_value(codes)]


def find_numeric_parameters(space_parameters: ParameterSpace) -> frozenset[str]:
    """Parameters that are a size or a ratio, whose answers may differ within one structure."""
    names = set()
    for leaf in space_parameters.nodes:
        if leaf.field.type in ("size", "number"):
            for name, parameter in space_parameters.domains[leaf.path].parameters():
                if not isinstance(parameter,
                                  Choice) or all(is_number(option) for option in parameter.options):
                    names.add(name)
    return frozenset(names)


@dataclass(frozen=True)
class CandidateTable:
    """Candidates of one structure: their answers (arrays in places), how many, the codes, and what is at fault."""

    values: Mapping[str, Any]
    n_candidates: int
    value_indices: ValueIndices
    is_invalid: bool


def enumerate_tables(space_parameters: ParameterSpace, keys: Iterable[str],
                     max_candidates: int) -> Iterator[CandidateTable]:
    """Every combination of answers to what the values of ``keys`` need, by structure.

    Raises:
        TooMany: there are more than ``max_candidates``. Endless: a continuous range.
    """
    wanted = list(keys)
    numeric = find_numeric_parameters(space_parameters)
    queue: list[tuple[ValueIndices, int]] = [({}, 1)]
    listed = 1
    filled = 0
    while queue:
        codes, rows = queue.pop()
        filled += 1
        if filled > MAX_STRUCTURES:
            raise TooManyCandidatesError("too many structures depend on each other")
        sheet = ColumnarParams(space_parameters, codes, numeric)
        try:
            answers = {key: value for key in wanted if (value := sheet.value_of(key)) is not ABSENT}
            bad = _invalid_schedules(space_parameters, sheet, answers, rows)
        except MissingValuesError as missing:
            listed += rows * (missing.count - 1)
            if listed > max_candidates:
                raise TooManyCandidatesError(f"more than {max_candidates:,} combinations of "
                                             "answers depend on each other") from None
            queue.append((_cross_with_values(codes, rows, missing.name, missing.count),
                          rows * missing.count))
        except PopulationSplitError as split:
            queue += [select_rows(codes, split.labels == label)
                      for label in np.unique(split.labels)]
        else:
            if bad.all() or not bad.any():
                yield CandidateTable(answers, rows, codes,
                                     bool(sheet.infeasible) or bool(bad.any()))
            else:
                queue += [select_rows(codes, bad), select_rows(codes, ~bad)]


def _invalid_schedules(space_parameters: ParameterSpace, param_values: ColumnarParams,
                       answers: Mapping[str, Any], rows: int) -> NDArray[np.bool_]:
    """The candidates one of whose schedules, used or not, does not fit its depth."""
    found = np.zeros(rows, bool)
    for leaf in space_parameters.nodes:
        value = param_values.typed_values.get(leaf.key)
        if leaf.field.depth_key is None or leaf.key not in answers or not isinstance(
                value, ScheduleCall | tuple):
            continue
        if (given := param_values.value_of(leaf.field.depth_key)) is not ABSENT:
            depths = np.broadcast_to(given, rows)
            for depth in np.unique(depths).tolist():
                if validate_schedule(value, leaf.field, depth, None):
                    found |= depths == depth
    return found


def _cross_with_values(value_indices: ValueIndices, rows: int, name: str,
                       count: int) -> ValueIndices:
    grown = {other: np.repeat(column, count) for other, column in value_indices.items()}
    return grown | {name: np.tile(np.arange(count, dtype=np.int32), rows)}


def select_rows(value_indices: ValueIndices, rows: Any) -> tuple[ValueIndices, int]:
    """The candidates that ``rows`` (a mask) chooses, and how many they are."""
    return {name: column[rows] for name, column in value_indices.items()}, int(rows.sum())
