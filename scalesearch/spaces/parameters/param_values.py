"""Values of all keys of a space, by define-by-run.

Only the parameters that are needed are requested.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from scalesearch.errors import UserError
from scalesearch.spaces.schema.bound_tree import ParameterNode
from scalesearch.spaces.schema.types import SchemaField
from scalesearch.spaces.syntax.diagnostics import format_alternatives
from scalesearch.spaces.syntax.domains import (
    AbsentValueError,
    Domain,
    InfeasibleValueError,
    LayerReference,
    Schedule,
    ScheduleCall,
    iter_expressions,
)
from scalesearch.spaces.syntax.expressions import ABSENT, keys_of
from scalesearch.spaces.syntax.parameters import FloatRange, Parameter
from scalesearch.spaces.syntax.parser import parse_schedule
from scalesearch.terminal import format_count

T = TypeVar("T")
MAX_OPEN_RUNS = 200
SCHEDULE_PREFIXES = ("share.encoder.", "share.decoder.")
SuggestFunction = Callable[[str, Parameter], Any]


class ParamValues(Mapping[str, Any]):
    """The values of all keys, constants included, in schema order.

    Values are those of JSON; a sharing schedule is a :class:`Schedule`, which is also a text.

    Attributes:
        params: the values of the requested parameters, by name.
        infeasible_values: (key, reason) of values that no network can have; empty for a
            feasible candidate.
    """

    def __init__(self, values: dict[str, Any], params: dict[str, Any],
                 infeasible_values: tuple[tuple[str, str], ...]) -> None:
        self._values = values
        self.params: Mapping[str, Any] = dict(params)
        self.infeasible_values = infeasible_values

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
        return f"ParamValues({self._values})"


def parse_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with parsed schedules; those of JSON are texts."""
    return {key: parse_schedule(value) if key.startswith(SCHEDULE_PREFIXES) else value
            for key, value in config.items()}


def plain_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as JSON: with the canonical texts of schedules."""
    return {key: str(value) if isinstance(value, Schedule) else value
            for key, value in config.items()}


class ParameterSpace:
    """The parameter nodes of a space, in schema order."""

    def __init__(self, nodes: list[ParameterNode]) -> None:
        self.nodes = nodes
        self.domains: dict[str, Domain] = {
            node.path: node.domain.with_parameter_name(node.path) for node in self.nodes}
        self.nodes_by_key: dict[str, list[ParameterNode]] = {}
        for node in self.nodes:
            self.nodes_by_key.setdefault(node.key, []).append(node)

    def parameters(self) -> list[tuple[str, Parameter]]:
        """Every parameter that may be requested, with its name, in schema order."""
        return [parameter for domain in self.domains.values() for parameter in domain.parameters()]

    def open_parameters(self) -> dict[str, Parameter]:
        """The parameters with several values that some configuration requests, by name.

        For each key, at most ``MAX_OPEN_RUNS`` combinations of the values that it depends on are
        tried: parameters that exist in others only are left out.
        """
        requested: set[str] = set()

        def request(suggest: SuggestFunction, node: ParameterNode) -> None:
            def first_of_continuous(name: str, parameter: Parameter) -> Any:
                requested.add(name)
                if isinstance(parameter, FloatRange) and parameter.step is None:
                    return parameter.low
                return suggest(name, parameter)

            assignment = ParamAssignment(self, first_of_continuous)
            if assignment.is_active(node):
                assignment.resolve(node)

        for node in self.nodes:
            runs = enumerate_runs(partial(request, node=node))
            deque(islice(runs, MAX_OPEN_RUNS), maxlen=0)
        return {name: parameter for name, parameter in self.parameters()
                if name in requested and parameter.count() != 1}

    def resolve(self, suggest: SuggestFunction) -> ParamValues:
        """The values of all keys.

        ``suggest(name, parameter)`` returns the value of a parameter.
        """
        assignment = ParamAssignment(self, suggest)
        for node in self.active_nodes(assignment):
            assignment.resolve(node)
        infeasible_values = tuple(self.find_infeasible(assignment))
        return ParamValues(assignment.values, assignment.params, infeasible_values)

    def active_nodes(self, assignment: "ParamAssignment") -> Iterator[ParameterNode]:
        """The nodes of keys that exist under the selected variants."""
        return filter(assignment.is_active, self.nodes)

    def find_infeasible(self, assignment: "ParamAssignment") -> Iterator[tuple[str, str]]:
        """Yield (key, reason) of infeasible values and schedules.

        A schedule is infeasible if it does not fit its depth.
        """
        yield from assignment.infeasible.items()
        for node in self.nodes:
            schedule = assignment.values.get(node.key)
            depth = assignment.value_of(node.field.depth_key or "")
            if not isinstance(schedule, Schedule) or not isinstance(depth, int):
                continue
            other_depth = None
            if isinstance(schedule.form, LayerReference):
                target = self.referenced_schedule(node, schedule.form.path)
                if target and target.field.depth_key:
                    other_depth = assignment.value_of(target.field.depth_key)
            reason = validate_schedule(schedule, node.field, depth,
                                       other_depth if isinstance(other_depth, int) else None)
            if reason:
                yield node.key, f"{schedule} does not fit: {reason}"

    def referenced_schedule(self, node: ParameterNode, path: str) -> ParameterNode | None:
        """The schedule that the reference ``path`` inside ``node`` points to."""
        scope = node.path.rpartition(".")[0]
        while True:
            nodes = self.nodes_by_key.get(f"{scope}.{path}" if scope else path)
            if nodes or not scope:
                return nodes[0] if nodes else None
            scope = scope.rpartition(".")[0]


class ParamAssignment:
    """Values of one candidate while they are determined.

    Attributes:
        params: the values of the requested parameters so far.
        values: the values of keys so far.
        infeasible: key to the reason why its value cannot exist.
    """

    def __init__(self, parameter_space: ParameterSpace, suggest: SuggestFunction) -> None:
        self.parameter_space = parameter_space
        self.suggest = suggest
        self.params: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        self.infeasible: dict[str, str] = {}

    def request(self, name: str, parameter: Parameter) -> Any:
        """The value that ``suggest`` returns for a parameter.

        Raises UserError if it is not legal.
        """
        value = self.suggest(name, parameter)
        try:
            self.params[name] = parameter.coerce(value)
        except (UserError, ValueError, TypeError):
            raise UserError(f"{name}: {value!r} is not a legal value; expected {parameter}",
                            code="illegal-value") from None
        return self.params[name]

    def resolve(self, node: ParameterNode) -> Any:
        """The value of an active node; its parameters are requested at most once."""
        if node.key not in self.values:
            domain = self.parameter_space.domains[node.path]
            try:
                self.values[node.key] = domain.resolve(self)
            except InfeasibleValueError as error:
                self.values[node.key] = None
                causes = self._missing_keys(domain) if isinstance(error, AbsentValueError) else ()
                self.infeasible[node.key] = ": ".join([str(error), *causes])
        return self.values[node.key]

    def _missing_keys(self, domain: Domain) -> Iterator[str]:
        """Why keys that ``domain`` refers to do not exist: they belong to another variant."""
        keys = set().union(*map(keys_of, iter_expressions(domain)))
        for key in sorted(keys):
            nodes = self.parameter_space.nodes_by_key.get(key, ())
            if nodes and not any(map(self.is_active, nodes)):
                variants = [" and ".join(f"{group}: {variant}" for group, variant in node.guards)
                            for node in nodes]
                yield f"{key} exists only with {format_alternatives(variants)}"

    def is_active(self, node: ParameterNode) -> bool:
        """Whether the key of ``node`` exists under the selected variants."""
        return all(self.value_of(group) == variant for group, variant in node.guards)

    def value_of(self, key: str) -> Any:
        """The value of ``key``; ABSENT if it does not exist or has no legal value."""
        if key not in self.values:
            nodes = self.parameter_space.nodes_by_key.get(key, ())
            node = next(filter(self.is_active, nodes), None)
            if node is None:
                return ABSENT
            self.resolve(node)
        value = self.values[key]
        return ABSENT if value is None else value


def validate_schedule(schedule: Schedule, field: SchemaField, depth: int,
                      other_depth: int | None) -> str | None:
    """The reason why ``schedule`` does not fit ``depth`` layers, or None.

    Args:
        other_depth: for a LayerReference, the depth of the stack that it points to, if known.
    """
    form = schedule.form
    if isinstance(form, ScheduleCall):
        return field.calls[form.name].validate(form.arguments, depth)
    if isinstance(form, tuple):
        return None if len(form) == depth else (
            f"the list names {format_count(len(form), 'layer')}, and the stack has {depth}")
    for layer in range(depth):
        index = form.layer_index(layer)
        if index is None:
            return f"layer {layer} has no whole number as its index"
        if index < 0 or (other_depth is not None and index >= other_depth):
            layers = f"0 to {other_depth - 1}" if other_depth is not None else "from 0"
            return (f"layer {layer} points to layer {index} of {form.path}, which has layers "
                    f"{layers}")
    return None


class InfiniteSpaceError(Exception):
    """Raised if a continuous parameter is requested during an enumeration."""


def enumerate_runs(evaluate: Callable[[SuggestFunction], T]) -> Iterator[T]:
    """Yield ``evaluate(suggest)`` for every combination of requested values.

    The requested parameters may depend on the values of earlier ones.

    Raises:
        InfiniteSpaceError: a continuous range is requested.
    """
    script: list[int] = []  # index of the value of the first, second, ... parameter
    while True:
        sizes: list[int] = []

        def suggest(name: str, parameter: Parameter, script: list[int] = script,
                    sizes: list[int] = sizes) -> Any:
            values = parameter.values()
            if values is None:
                raise InfiniteSpaceError(name)
            if len(sizes) == len(script):
                script.append(0)
            sizes.append(parameter.count() or 0)
            return values[script[len(sizes) - 1]]

        yield evaluate(suggest)
        while script and script[-1] + 1 == sizes[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1
