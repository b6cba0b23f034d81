"""Architectures of which a few sizes are free: what the other answers become, and what each costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from scalesearch.blocks.sizes import PopulationSplitError
from scalesearch.cost import Protocol
from scalesearch.errors import UserError
from scalesearch.feasible.costed_candidates import CostedCandidate, evaluate_table_costs
from scalesearch.space import Parameter, Space
from scalesearch.space.parameters.param_values import ParamAssignment
from scalesearch.space.schema.bound_tree import ParameterNode
from scalesearch.space.syntax.diagnostics import closest_match
from scalesearch.space.syntax.schedules import schedule_to_json


class CandidateView(Mapping[str, Any]):
    """One row of a table of answers, some of which are arrays."""

    def __init__(self, values: Mapping[str, Any], index: int) -> None:
        self.answers = values
        self.at = index

    def __getitem__(self, key: str) -> Any:
        value = self.answers[key]
        return value[self.at].item() if isinstance(value, np.ndarray) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)


class FreeSizes:
    """An architecture of which the sizes ``keys`` are free.

    Attributes:
        base: its answers as the file has them, with the first value for sizes that are left open.

    Raises:
        UserError: a key is no size, does not exist here, or the space leaves something else open.
    """

    def __init__(self, space: Space, keys: tuple[str, ...]) -> None:
        self.space, self.keys = space, keys = space, config_keys(space, keys)
        start = {key: values[0] for key in keys if (values := offered_sizes(space, key))}
        self.base_config = self._complete(start)[0]
        leaves = self._complete({key: 1 if (size := written_size(space, key)) is None else size
                                 for key in keys})[2]
        self.parameters = {leaf.key: leaf for leaf in leaves}
        for key in keys:
            self._check(key)

    def evaluate_costs(self, rows: Sequence[Sequence[int]], protocol: Protocol,
                       names: Iterable[str]) -> list[CostedCandidate]:
        """The candidates with these values of the keys, and their costs ``names``; None where they cannot be built."""
        wanted = tuple(dict.fromkeys(names))
        values = np.array(rows, np.int64).reshape(-1, len(self.keys))
        candidates: list[Any] = [None] * len(values)
        queue = [np.arange(len(values))]
        while queue:
            index = queue.pop()
            try:
                answers, faulty, _ = self._complete(dict(zip(self.keys, values[index].T)))
            except PopulationSplitError as split:
                queue += [index[split.labels == label] for label in np.unique(split.labels)]
                continue
            sheets = [CandidateView(answers, at) for at in range(len(index))]
            costs = [None] * len(index) if faulty else evaluate_table_costs(
                answers, sheets, protocol, wanted)
            for place, sheet, known in zip(index.tolist(), sheets, costs):
                candidates[place] = CostedCandidate(sheet, costs=known)
        return candidates

    def _complete(self, values: Mapping[str, Any]) -> tuple[
            dict[str, Any], bool, list[ParameterNode]]:
        """The answers that follow from these values (numbers, or arrays), whether any is at fault, and its leaves."""
        sheet = ParamAssignment(self.space.parameter_space, _raise_missing_value)
        sheet.typed_values.update(values)
        leaves = list(self.space.parameter_space.active_nodes(sheet))
        return {leaf.key: schedule_to_json(sheet.resolve(leaf))
                for leaf in leaves}, bool(sheet.infeasible), leaves

    def _check(self, key: str) -> None:
        leaf = self.parameters.get(key)
        if leaf is None:
            group = next(iter(self.space.parameter_space.nodes_by_key[key][0].guards),
                         ("its group", ""))
            raise UserError(f"{key} does not exist here: {group[0]} is "
                            f"{self.base_config.get(group[0], 'none')}", code="key-absent")
        if leaf.field.type != "size":
            raise _not_a_size_error(key)


def _not_a_size_error(key: str) -> UserError:
    return UserError(f"{key} is no whole number: only sizes can be solved for; try `scalesearch "
                     "cost --sweep`", code="not-a-size")


def _raise_missing_value(name: str, parameter: Parameter) -> Any:
    raise UserError(f"{name} is left open ({parameter}); answer it with --set {name}=…",
                    code="open-parameters")


def config_keys(space: Space, keys: Iterable[str]) -> tuple[str, ...]:
    """The names of the answers that ``keys`` speak of: theirs, or with the kind, as in ``encoder.ffn.relu.hidden``.

    Raises:
        UserError: the space has no such key.
    """
    found = without_types(space, keys)
    for key in found:
        if key not in space.parameter_space.nodes_by_key:
            meant = closest_match(key, space.parameter_space.nodes_by_key)
            raise UserError(f"{key} is not a key of this space"
                            + (f"; did you mean `{meant}`?" if meant else ""), code="unknown-key")
    return found


def without_types(space: Space, keys: Iterable[str]) -> tuple[str, ...]:
    """The keys by the names of their answers: ``encoder.ffn.hidden`` for ``encoder.ffn.relu.hidden``."""
    names = {leaf.path: leaf.key for leaf in space.parameter_space.nodes}
    return tuple(names.get(key, key) for key in keys)


def written_size(space: Space, key: str) -> int | None:
    """The size that the file gives ``key``, or the first of those that it offers; None where it is off or absent."""
    values = offered_sizes(space, key)
    value = values[0] if values else space.resolve(
        lambda _, parameter: (parameter.values() or [0])[0]).get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def offered_sizes(space: Space, key: str) -> Sequence[int] | None:
    """The values that the file offers for ``key``, rising; None where it offers no choice.

    Under a condition these are the ones that the file's own other values, or the first of them,
    leave.

    Raises:
        UserError: it is no size, or it offers something that is no plain range or list of whole
            numbers.
    """
    leaves = space.parameter_space.nodes_by_key[key]
    asked = set[str]()
    if leaves[0].field.type != "size":
        raise _not_a_size_error(key)

    def first(name: str, parameter: Parameter) -> Any:
        asked.add(name)
        return (parameter.values() or [0])[0]

    space.resolve(first)
    parameters = [parameter for leaf in leaves
                  for name, parameter in space.parameter_space.domains[leaf.path].parameters()
                  if name in asked]
    if not parameters:
        return None
    values = parameters[0].values() if len(parameters) == 1 else None
    if values is None or not all(isinstance(value, int) and not isinstance(value, bool)
                                 for value in values):
        raise UserError(f"{key} is a choice among {parameters[0]}; give it a plain range, as in "
                        f"--set {key}=1..64", code="not-a-range")
    return values if isinstance(values, range) else sorted(int(value) for value in values)


def parse_sizes(space: Space, sizes: str | Sequence[str] | Mapping[str, str | Sequence[int] | None]
             ) -> dict[str, Sequence[int]]:
    """The sizes of each key: those given, or those of a text such as ``1..24``; of None those that the space gives.

    Of keys alone, those of the space.
    """
    if not isinstance(sizes, Mapping):
        sizes = dict.fromkeys([sizes] if isinstance(sizes, str) else sizes)
    parsed: dict[str, Sequence[int]] = {}
    for key, text in zip(config_keys(space, sizes), sizes.values()):
        if text is not None and not isinstance(text, str):
            parsed[key] = text
            continue
        changed = space if text is None else space.with_overrides({key: text})
        parsed[key] = offered_sizes(changed, key)
        if not parsed[key]:
            if (size := written_size(changed, key)) is None:
                raise UserError(f"{key}: it is off in the space, which gives no size to take; give "
                                f"some, as in {key}=1..8", code="key-absent")
            parsed[key] = [size]
    return parsed
