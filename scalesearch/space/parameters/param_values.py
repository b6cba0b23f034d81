"""Decides every key of a space, asking only for parameters that are needed."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from scalesearch.errors import UserError
from scalesearch.space.schema.bound_tree import ParameterNode
from scalesearch.space.schema.types import SchemaField
from scalesearch.space.syntax.domains import Domain, InfeasibleValueError
from scalesearch.space.syntax.evaluator import ABSENT
from scalesearch.space.syntax.parameters import Parameter
from scalesearch.space.syntax.schedules import LayerReference, ScheduleCall, ScheduleValue, schedule_to_json

T = TypeVar("T")
SuggestFunction = Callable[[str, Parameter], Any]


class ParamValues(Mapping[str, Any]):
    """The values of all keys: key to JSON value, constants included, in schema order.

    Attributes:
        params: what was asked and answered, by the name of the parameter.
        infeasible_values: (key, reason) of values that no network can have; empty for a candidate
            that can be built.
    """

    def __init__(self, typed_values: dict[str, Any], params: dict[str, Any],
                 infeasible_values: tuple[tuple[str, str], ...]) -> None:
        self._typed_values = typed_values
        self._values = {key: schedule_to_json(value) for key, value in typed_values.items()}
        self.params: Mapping[str, Any] = dict(params)
        self.infeasible_values = infeasible_values

    def typed_value(self, key: str) -> Any:
        """The value as an object: schedules are Calls, References or tuples."""
        return self._typed_values[key]

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple((key, str(value)) for key, value in self._values.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self._values == dict(other)

    def __repr__(self) -> str:
        return f"Answers({self._values})"


class ParameterSpace:
    """The leaves of a space, in schema order, ready to be asked."""

    def __init__(self, nodes: list[ParameterNode]) -> None:
        self.nodes = nodes
        self.domains: dict[str, Domain] = {
            leaf.path: leaf.domain.with_parameter_name(leaf.path) for leaf in self.nodes}
        self.nodes_by_key: dict[str, list[ParameterNode]] = {}
        for leaf in self.nodes:
            self.nodes_by_key.setdefault(leaf.key, []).append(leaf)

    def parameters(self) -> list[tuple[str, Parameter]]:
        """Every parameter that may be asked with its name, in schema order."""
        return [dimension for domain in self.domains.values() for dimension in domain.parameters()]

    def resolve(self, suggest: SuggestFunction) -> ParamValues:
        """A complete sheet, with ``ask(name, parameter)`` giving the answers."""
        sheet = ParamAssignment(self, suggest)
        for leaf in self.active_nodes(sheet):
            sheet.resolve(leaf)
        return ParamValues(sheet.typed_values, sheet.params, tuple(self.find_infeasible(sheet)))

    def active_nodes(self, assignment: "ParamAssignment") -> Iterator[ParameterNode]:
        """The leaves that exist under the variants chosen."""
        for leaf in self.nodes:
            if all(assignment.value_of(group) == variant for group, variant in leaf.guards):
                yield leaf

    def find_infeasible(self, assignment: "ParamAssignment") -> Iterator[tuple[str, str]]:
        """Values that cannot be, and schedules that do not fit their depth."""
        yield from assignment.infeasible.items()
        for leaf in self.nodes:
            if leaf.field.depth_key is None or leaf.key not in assignment.typed_values or leaf.key in assignment.infeasible:
                continue
            reason = self.validate_schedule(leaf, assignment)
            if reason:
                yield leaf.key, f"{schedule_to_json(assignment.typed_values[leaf.key])} does not fit: {reason}"

    def validate_schedule(self, node: ParameterNode, assignment: "ParamAssignment") -> str | None:
        """The reason why the schedule of ``node`` does not fit its depth, or ``None``."""
        depth = assignment.value_of(node.field.depth_key or "")
        value = assignment.typed_values[node.key]
        if not isinstance(depth, int) or isinstance(value, list | str):
            return None
        other = None
        if isinstance(value, LayerReference):
            target = self.referenced_schedule(node, value.path)
            other = assignment.value_of(
                target.field.depth_key) if target and target.field.depth_key else None
        return validate_schedule(value, node.field, depth,
                                 other if isinstance(other, int) else None)

    def referenced_schedule(self, node: ParameterNode, path: str) -> ParameterNode | None:
        """The schedule that a reference inside ``node`` points to."""
        scope = node.path.rpartition(".")[0]
        while True:
            leaves = self.nodes_by_key.get(f"{scope}.{path}" if scope else path)
            if leaves or not scope:
                return leaves[0] if leaves else None
            scope = scope.rpartition(".")[0]


class ParamAssignment:
    """One sheet being filled in."""

    def __init__(self, parameter_space: ParameterSpace, suggest: SuggestFunction) -> None:
        self.parameter_space = parameter_space
        self.suggest = suggest
        self.params: dict[str, Any] = {}
        self.typed_values: dict[str, Any] = {}
        self.infeasible: dict[str, str] = {}

    def request(self, name: str, parameter: Parameter) -> Any:
        """Asks, and makes sure the answer is legal. Raises UserError where it is not."""
        given = self.suggest(name, parameter)
        try:
            self.params[name] = parameter.coerce(given)
        except (UserError, ValueError, TypeError):
            raise UserError(f"{name}: {given!r} is not a legal value; expected {parameter}",
                            code="illegal-value") from None
        return self.params[name]

    def resolve(self, node: ParameterNode) -> Any:
        """The value of a leaf that exists; asked at most once."""
        if node.key not in self.typed_values:
            try:
                self.typed_values[node.key] = self.parameter_space.domains[node.path].resolve(self)
            except InfeasibleValueError as fault:
                self.typed_values[node.key] = None
                self.infeasible[node.key] = str(fault)
        return self.typed_values[node.key]

    def value_of(self, key: str) -> Any:
        """The value of ``key`` as JSON; ABSENT where it does not exist or has no legal value."""
        if key not in self.typed_values:
            there = (leaf for leaf in self.parameter_space.nodes_by_key.get(key, ())
                     if all(self.value_of(group) == variant for group, variant in leaf.guards))
            if (leaf := next(there, None)) is None:
                return ABSENT
            self.resolve(leaf)
        value = schedule_to_json(self.typed_values[key])
        return ABSENT if value is None else value


def validate_schedule(schedule: ScheduleValue, field: SchemaField, depth: int,
                      other_depth: int | None) -> str | None:
    """The reason why ``schedule`` does not fit a stack of ``depth`` layers, or ``None``.

    Args:
        other_depth: for a Reference, the depth of the stack it points to, if known.
    """
    if isinstance(schedule, ScheduleCall):
        return field.calls[schedule.name].validate(schedule.arguments, depth)
    if isinstance(schedule, LayerReference):
        return _validate_layer_reference(schedule, depth, other_depth)
    if len(schedule) != depth:
        return f"the list names {len(schedule)} layers, and the stack has {depth}"
    return None


def _validate_layer_reference(schedule: LayerReference, depth: int,
                              other_depth: int | None) -> str | None:
    for layer in range(depth):
        index = schedule.layer_index(layer)
        if index is None:
            return f"layer {layer} has no whole number as its index"
        if index < 0 or (other_depth is not None and index >= other_depth):
            layers = f"0 to {other_depth - 1}" if other_depth is not None else "from 0"
            return (f"layer {layer} points to layer {index} of {schedule.path}, which has layers "
                    f"{layers}")
    return None


class InfiniteSpaceError(Exception):
    """Raised where a continuous parameter is asked."""


def enumerate_runs(evaluate: Callable[[SuggestFunction], T]) -> Iterator[T]:
    """Yields ``run(ask)`` for every combination of values that it asks for, in order.

    Which parameters are asked may depend on the answers. Raises Endless at a continuous range.
    """
    script: list[int] = []  # which answer to give to the first, second, ... parameter
    while True:
        sizes: list[int] = []

        def ask(name: str, parameter: Parameter, script: list[int] = script,
                sizes: list[int] = sizes) -> Any:
            values = parameter.values()
            if values is None:
                raise InfiniteSpaceError(name)
            if len(sizes) == len(script):
                script.append(0)
            sizes.append(parameter.count() or 0)
            return values[script[len(sizes) - 1]]

        yield evaluate(ask)
        while script and script[-1] + 1 == sizes[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1
