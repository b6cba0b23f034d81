"""Architectures with a few free sizes: their other values, and their costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from scalesearch.blocks.sizes import map_structures
from scalesearch.cost import Protocol
from scalesearch.errors import UserError, option
from scalesearch.feasible.costed_candidates import CostedCandidate, evaluate_table_costs
from scalesearch.spaces import Parameter, Space
from scalesearch.spaces.parameters.param_values import ParamAssignment
from scalesearch.spaces.schema.bound_tree import ParameterNode
from scalesearch.spaces.syntax.diagnostics import closest_match


class CandidateView(Mapping[str, Any]):
    """One candidate of a table of values, some of which are arrays."""

    def __init__(self, values: Mapping[str, Any], index: int) -> None:
        self.values_by_key = values
        self.index = index

    def __getitem__(self, key: str) -> Any:
        value = self.values_by_key[key]
        return value[self.index].item() if isinstance(value, np.ndarray) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_key)

    def __len__(self) -> int:
        return len(self.values_by_key)


class FreeSizes:
    """An architecture in which the sizes ``keys`` are free.

    Attributes:
        keys: keys of the configuration.
        names: names of the keys, with variants.
        base_config: values in the file; for open sizes, the first value.
        is_base_invalid: whether one of these values cannot exist.
        parameters: nodes of all keys.

    Raises:
        UserError: a key is not a size, does not exist, or the space leaves other parameters open.
    """

    def __init__(self, space: Space, keys: tuple[str, ...]) -> None:
        self.space = space
        self.keys = config_keys(space, keys)
        first_values = {key: values[0]
                        for key in self.keys if (values := offered_sizes(space, key))}
        self.base_config, self.is_base_invalid, _ = self._complete(first_values)
        sizes = {key: written_size(space, key) for key in self.keys}
        nodes = self._complete({key: 1 if size is None else size for key, size in sizes.items()})[2]
        self.parameters = {node.key: node for node in nodes}
        for key in self.keys:
            if key not in self.parameters:
                guards = space.parameter_space.nodes_by_key[key][0].guards
                group = next(iter(guards), ("its group", ""))[0]
                raise UserError(f"{key} does not exist in this architecture: {group} is "
                                f"{self.base_config.get(group, 'none')}", code="key-absent")
            if self.parameters[key].field.type != "size":
                raise _not_a_size_error(key)
        self.names = tuple(parameter_name(space, key) for key in self.keys)

    def evaluate_costs(self, rows: Sequence[Sequence[int]], protocol: Protocol,
                       names: Iterable[str]) -> list[CostedCandidate]:
        """Evaluate candidates with these values of the free sizes.

        Args:
            rows: values in the order of ``keys``.
            names: costs to evaluate.

        Returns:
            candidates with costs; costs are None if the network cannot be built.
        """
        names = tuple(dict.fromkeys(names))
        values = np.array(rows, np.int64).reshape(-1, len(self.keys))
        candidates: list[Any] = [None] * len(values)

        def complete(group: Any) -> tuple[dict[str, Any], bool, list[ParameterNode]]:
            return self._complete(dict(zip(self.keys, values[group].T)))

        for group, (table, is_invalid, _) in map_structures(complete, 0, len(values)):
            indices = np.arange(len(values))[group].tolist()
            configs = [CandidateView(table, row) for row in range(len(indices))]
            costs = [None] * len(indices) if is_invalid else evaluate_table_costs(
                table, configs, protocol, names)
            for index, config, candidate_costs in zip(indices, configs, costs):
                candidates[index] = CostedCandidate(config, costs=candidate_costs)
        return candidates

    def _complete(
            self, values: Mapping[str, Any]) -> tuple[dict[str, Any], bool, list[ParameterNode]]:
        """Values of all keys, whether one of them cannot exist, and the active nodes.

        Args:
            values: key to a number, or to an array of numbers.
        """
        missing: dict[str, Parameter] = {}

        def first_value(name: str, parameter: Parameter) -> Any:
            missing[name] = parameter
            return next(iter(parameter.values() or ()), getattr(parameter, "low", None))

        assignment = ParamAssignment(self.space.parameter_space, first_value)
        assignment.values.update(values)
        nodes = list(self.space.parameter_space.active_nodes(assignment))
        config = {node.key: assignment.resolve(node) for node in nodes}
        if missing:
            names = [f"{name} ({parameter})" for name, parameter in [*missing.items()][:6]]
            more = f" and {len(missing) - 6} more" * (len(missing) > 6)
            raise UserError(f"no value is set for {', '.join(names)}{more}",
                            help=f"set one value for each ({option('set', 'key=value')})",
                            code="open-parameters")
        return config, bool(assignment.infeasible), nodes



def _not_a_size_error(key: str) -> UserError:
    return UserError(f"{key} is not a size", help="only sizes (whole numbers) can be solved for; "
                     "for other parameters, use `scalesearch cost --sweep`", code="not-a-size")


def config_keys(space: Space, keys: Iterable[str]) -> tuple[str, ...]:
    """Keys of the configuration, for keys with or without a type in their path.

    For example, ``encoder.ffn.relu.hidden`` is the key ``encoder.ffn.hidden``.

    Raises:
        UserError: the space has no such key.
    """
    keys = without_types(space, keys)
    for key in keys:
        if key not in space.parameter_space.nodes_by_key:
            entries = space.index.entries
            keys_of_space = [path for path in space.parameter_space.nodes_by_key if path in entries]
            synonyms = [path for path in keys_of_space if key in entries[path].field.synonyms]
            match = next(iter(synonyms), closest_match(key, keys_of_space))
            help = f"did you mean `{match}`?" if match else None
            if key == "vocab":
                help = f"make it one, for example with {option('set', 'vocab=1k..64k')}"
            elif key in ("source", "target", "length"):
                help = ("it is a length of the protocol; to tabulate the costs, use "
                        f"`scalesearch cost FILE --sweep {key}=10..200`")
            raise UserError(f"{key} is not a key of this space", help=help, code="unknown-key")
    return keys


def without_types(space: Space, keys: Iterable[str]) -> tuple[str, ...]:
    """Remove types from keys: ``encoder.ffn.relu.hidden`` is ``encoder.ffn.hidden``."""
    keys_by_path = {node.path: node.key for node in space.parameter_space.nodes}
    return tuple(keys_by_path.get(key, key) for key in keys)


def parameter_name(space: Space, key: str) -> str:
    """The name of a key with its variants; the key itself if several variants have it."""
    nodes = space.parameter_space.nodes_by_key.get(key, ())
    return nodes[0].path if len(nodes) == 1 else key


def written_size(space: Space, key: str) -> int | None:
    """The size of ``key`` in the file, or the first one of a range, or None."""
    values = offered_sizes(space, key)
    value = values[0] if values else space.resolve(_first_value).get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first_value(name: str, parameter: Parameter) -> Any:
    return (parameter.values() or [0])[0]


def offered_sizes(space: Space, key: str) -> Sequence[int] | None:
    """The values of ``key`` in the file, in increasing order; None if it is fixed.

    If they depend on a condition, the other keys have their first values.

    Raises:
        UserError: the key is not a size, or its values are not a range or list of integers.
    """
    nodes = space.parameter_space.nodes_by_key[key]
    if nodes[0].field.type != "size":
        raise _not_a_size_error(key)
    requested = set[str]()

    def suggest(name: str, parameter: Parameter) -> Any:
        requested.add(name)
        return _first_value(name, parameter)

    space.resolve(suggest)
    parameters = [parameter for node in nodes
                  for name, parameter in space.parameter_space.domains[node.path].parameters()
                  if name in requested]
    if not parameters:
        return None
    values = parameters[0].values() if len(parameters) == 1 else None
    if values is None or not all(isinstance(value, int) and not isinstance(value, bool)
                                 for value in values):
        raise UserError(f"{key} is a choice of {parameters[0]}, not a range of integers",
                        help=f"set a range, for example {option('set', f'{key}=1..64')}",
                        code="not-a-range")
    return values if isinstance(values, range) else sorted(int(value) for value in values)


def parse_sizes(space: Space, sizes: str | Sequence[str] | Mapping[str, str | Sequence[int] | None]
                ) -> dict[str, Sequence[int]]:
    """Parse the sizes of keys.

    Args:
        sizes: key to its sizes, to a text such as ``1..24``, or to None for the sizes in the
            space. Keys without a mapping have the sizes in the space.

    Raises:
        UserError: unknown key, or the space has no size for a key.
    """
    if not isinstance(sizes, Mapping):
        sizes = dict.fromkeys([sizes] if isinstance(sizes, str) else sizes)
    parsed: dict[str, Sequence[int]] = {}
    for key, text in zip(config_keys(space, sizes), sizes.values()):
        if text is not None and not isinstance(text, str):
            parsed[key] = text
            continue
        changed = space if text is None else space.with_overrides({key: text}, "for")
        parsed[key] = offered_sizes(changed, key)
        if not parsed[key]:
            size = written_size(changed, key)
            if size is None:
                raise UserError(f"{key} is off in the space and has no size",
                                help=f"set its sizes, for example {key}=1..8", code="key-absent")
            parsed[key] = [size]
    return parsed
