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

Codes = dict[str, NDArray[np.int32]]  # parameter to the index of each candidate's answer
UNASKED = -1
MOST_STRUCTURES = 40_000  # sheets that are filled in, at about a millisecond each


class TooMany(UserError):
    """More candidates than are listed."""

    code = "too-many"


class Endless(UserError):
    """A continuous range, which has no end of answers."""

    code = "endless"


class Unanswered(Exception):
    """A parameter that no answers are given for."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(name)
        self.name, self.count = name, count


class ColumnSheet(ParamAssignment):
    """A sheet for many candidates: sizes are arrays, and in everything else the candidates agree.

    Raises Split where they do not, Unanswered at a parameter that ``codes`` does not answer, Endless at a continuous
    range.
    """

    def __init__(self, parameter_space: ParameterSpace, codes: Codes, numeric: frozenset[str]) -> None:
        super().__init__(parameter_space, lambda name, parameter: None)
        self.codes, self.numeric = codes, numeric

    def request(self, name: str, parameter: Parameter) -> Any:
        if (count := parameter.count()) is None:
            raise Endless(f"{name}: a continuous range has no end of values; give it a step")
        if name not in self.codes:
            raise Unanswered(name, count)
        self.params[name] = codes = self.codes[name]
        values: Any = parameter.values()
        return np.asarray(values)[codes] if name in self.numeric else values[require_single_value(codes)]


def numeric_parameters(form: ParameterSpace) -> frozenset[str]:
    """Parameters that are a size or a ratio, whose answers may differ within one structure."""
    names = set()
    for leaf in form.nodes:
        if leaf.field.type in ("size", "number"):
            for name, parameter in form.domains[leaf.path].parameters():
                if not isinstance(parameter, Choice) or all(is_number(option) for option in parameter.options):
                    names.add(name)
    return frozenset(names)


@dataclass(frozen=True)
class Table:
    """Candidates of one structure: their answers (arrays in places), how many, the codes, and what is at fault."""

    answers: Mapping[str, Any]
    rows: int
    codes: Codes
    faulty: bool


def tables(form: ParameterSpace, keys: Iterable[str], most: int) -> Iterator[Table]:
    """Every combination of answers to what the values of ``keys`` need, by structure.

    Raises:
        TooMany: there are more than ``most``. Endless: a continuous range.
    """
    wanted, numeric = list(keys), numeric_parameters(form)
    queue: list[tuple[Codes, int]] = [({}, 1)]
    listed, filled = 1, 0
    while queue:
        codes, rows = queue.pop()
        filled += 1
        if filled > MOST_STRUCTURES:
            raise TooMany("too many structures depend on each other")
        sheet = ColumnSheet(form, codes, numeric)
        try:
            answers = {key: value for key in wanted if (value := sheet.value_of(key)) is not ABSENT}
            bad = _misfits(form, sheet, answers, rows)
        except Unanswered as missing:
            listed += rows * (missing.count - 1)
            if listed > most:
                raise TooMany(f"more than {most:,} combinations of answers depend on each other") from None
            queue.append((_grown(codes, rows, missing.name, missing.count), rows * missing.count))
        except PopulationSplitError as split:
            queue += [chosen(codes, split.labels == label) for label in np.unique(split.labels)]
        else:
            if bad.all() or not bad.any():
                yield Table(answers, rows, codes, bool(sheet.infeasible) or bool(bad.any()))
            else:
                queue += [chosen(codes, bad), chosen(codes, ~bad)]


def _misfits(form: ParameterSpace, sheet: ColumnSheet, answers: Mapping[str, Any], rows: int) -> NDArray[np.bool_]:
    """The candidates one of whose schedules, used or not, does not fit its depth."""
    found = np.zeros(rows, bool)
    for leaf in form.nodes:
        value = sheet.typed_values.get(leaf.key)
        if leaf.field.depth_key is None or leaf.key not in answers or not isinstance(value, ScheduleCall | tuple):
            continue
        if (given := sheet.value_of(leaf.field.depth_key)) is not ABSENT:
            depths = np.broadcast_to(given, rows)
            for depth in np.unique(depths).tolist():
                if validate_schedule(value, leaf.field, depth, None):
                    found |= depths == depth
    return found


def _grown(codes: Codes, rows: int, name: str, count: int) -> Codes:
    grown = {other: np.repeat(column, count) for other, column in codes.items()}
    return grown | {name: np.tile(np.arange(count, dtype=np.int32), rows)}


def chosen(codes: Codes, rows: Any) -> tuple[Codes, int]:
    """The candidates that ``rows`` (a mask) chooses, and how many they are."""
    return {name: column[rows] for name, column in codes.items()}, int(rows.sum())
