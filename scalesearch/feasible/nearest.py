"""Nearest feasible candidates: a beam search from a given candidate.

Candidates with fewer changed parameters are nearer. For equal numbers of changes, the distance is
the total number of steps along the lists of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from scalesearch.blocks.sizes import is_number
from scalesearch.cost.protocol import Protocol
from scalesearch.errors import UserError
from scalesearch.feasible.costed_candidates import CostedCandidate, Costs, evaluate_costs
from scalesearch.feasible.limits import cost_names
from scalesearch.spaces import ParamValues, Space
from scalesearch.spaces.parameters.constraints import Constraint
from scalesearch.spaces.schema.bound_tree import build_index
from scalesearch.spaces.syntax.expressions import ABSENT, evaluate
from scalesearch.spaces.syntax.parameters import IntRange, Parameter

BEAM_SIZE = 24  # candidates kept for each number of changes
MAX_CHANGES = 4
MAX_RESULTS = 5
MAX_VALUES_TRIED = 12  # nearest values that are tried for each parameter
Changes = tuple[tuple[str, Any], ...]  # parameters with their new values


@dataclass(frozen=True)
class NearbyCandidate:
    """A feasible candidate near another one.

    Attributes:
        changes: parameter to the value of the architecture (None if it has none) and of the
            candidate.
        param_values: values of all keys.
    """

    changes: Mapping[str, tuple[Any, Any]]
    param_values: ParamValues
    costs: Costs


class ProjectedCandidate:
    """The candidate of a space that is nearest to an architecture.

    Args:
        config: values of the architecture, which may be outside the space.

    Attributes:
        param_values: values of the candidate.
        changed_params: parameter to the value of the architecture (None if it has no such
            parameter) and to the legal value that replaces it.
        other_keys: further keys that differ, because the space fixes or computes them.
    """

    def __init__(self, space: Space, config: Mapping[str, Any]) -> None:
        self.space = space
        self._replay = space.replay_values(config)
        index = build_index(space.schema)
        self._config = {}
        for node in space.parameter_space.nodes:
            for name, _ in space.parameter_space.domains[node.path].parameters():
                layer = index.reference(name)
                value = evaluate(layer, config.__getitem__) if layer else config.get(node.key)
                self._config[name] = None if value is ABSENT else value
        self.changed_params: dict[str, tuple[Any, Any]] = {}

        def suggest(name: str, parameter: Parameter) -> Any:
            value, is_legal = self.nearest_value(name, parameter)
            if not is_legal:
                self.changed_params[name] = self._config.get(name), value
            return value

        self.param_values = space.resolve(suggest)
        self.other_keys: list[str] = []
        with suppress(UserError):  # the candidate may not be buildable
            built = space.architecture(self.param_values).config
            self.other_keys = [key for key, value in built.items()
                               if config.get(key) != value and key not in self.changed_params]

    def nearest_value(self, name: str, parameter: Parameter) -> tuple[Any, bool]:
        """The nearest legal value, and whether it is that of the architecture.

        Without any, this is the legal number nearest to the architecture's, or the first value.
        """
        with suppress(UserError, ValueError, TypeError):
            return parameter.coerce(self._replay(name, parameter)), True
        with suppress(UserError, ValueError, TypeError):  # a layer of a list that does not fit
            return parameter.coerce(self._config[name]), True
        target = self._config[name]
        values = parameter.values()
        if values is None:  # a continuous range: its nearer end
            values = (parameter.low, parameter.high)  # type: ignore[union-attr]
        if isinstance(parameter, IntRange) and is_number(target):  # may be too long to list
            below = int((target - parameter.low) // parameter.step)
            values = [parameter.low + parameter.step * min(max(index, 0), parameter.count() - 1)
                      for index in (below, below + 1)]
        numbers = [value for value in values if is_number(value)]
        if not numbers or not is_number(target):
            return values[0], False
        return min(numbers, key=lambda value: abs(value - target)), False


@dataclass(frozen=True)
class _BeamState:
    """A candidate of the beam; ``violation`` is at most 0 if it is feasible."""

    changes: Changes
    steps: int
    violation: float
    param_values: ParamValues
    costs: Costs


def find_nearest(start: ProjectedCandidate, protocol: Protocol, budgets: tuple[Constraint, ...],
                 names: tuple[str, ...]) -> list[NearbyCandidate]:
    """Find up to ``MAX_RESULTS`` feasible candidates with the fewest changed parameters.

    The search is exact for one change. For more changes, it continues from the candidates with the
    smallest violations. If ``start`` is feasible, it is the first result.

    Args:
        names: costs of the results.

    Returns:
        the candidates; empty if none is found within ``MAX_CHANGES`` changes.
    """
    search = _BeamSearch(start, protocol, (*start.space.constraints, *budgets), names)
    unbuildable = _BeamState((), 0, float("inf"), start.param_values, {})
    states = [*search.evaluate_states([((), 0)]), unbuildable][:1]
    feasible = [state for state in states if state.violation <= 0]
    for _ in range(MAX_CHANGES):
        neighbors: dict[Any, tuple[Changes, int]] = {}
        for state in states:
            for changes, steps in search.neighbors(state):
                neighbors.setdefault(frozenset(changes), (changes, steps))
        states = search.evaluate_states(neighbors.values())
        feasible += sorted((state for state in states if state.violation <= 0),
                           key=lambda state: state.steps)
        if feasible:
            break
        states = sorted(states, key=lambda state: state.violation)[:BEAM_SIZE]
    return [NearbyCandidate(_changed_values(start, state), state.param_values,
                            {name: state.costs[name] for name in names})
            for state in feasible[:MAX_RESULTS]]


def _changed_values(start: ProjectedCandidate, state: _BeamState) -> dict[str, tuple[Any, Any]]:
    """Values of the architecture and the candidate: changed parameters, then those that follow."""
    old = start.param_values.params | {name: value
                                       for name, (value, _) in start.changed_params.items()}
    new = state.param_values
    changes = {}
    for name in dict.fromkeys((*dict(state.changes), *new.params, *old)):
        value = new.params[name] if name in new.params else new.get(name, old[name])
        if old.get(name) != value:
            changes[name] = old.get(name), value
    return changes


class _BeamSearch:
    def __init__(self, start: ProjectedCandidate, protocol: Protocol,
                 limits: tuple[Constraint, ...], names: tuple[str, ...]) -> None:
        self.start = start
        self.protocol = protocol
        self.limits = limits
        self.names = (*names, *cost_names(limits))
        self.parameters = dict(start.space.parameters())

    def neighbors(self, state: _BeamState) -> Iterator[tuple[Changes, int]]:
        """Yield the changes and steps of all candidates with one more changed parameter."""
        changed = dict(state.changes)
        for name, value in state.param_values.params.items():
            values = self.parameters[name].values()
            if name in changed or values is None or value not in values:
                continue
            current = values.index(value)
            nearby = range(max(0, current - MAX_VALUES_TRIED),
                           min(self.parameters[name].count(), current + MAX_VALUES_TRIED + 1))
            by_distance = sorted(nearby, key=lambda index: abs(index - current))
            for index in by_distance[1 : MAX_VALUES_TRIED + 1]:
                yield (*state.changes, (name, values[index])), state.steps + abs(index - current)

    def evaluate_states(self, states: Iterable[tuple[Changes, int]]) -> list[_BeamState]:
        """Evaluate changed candidates, and return those that can be built."""
        states = list(states)

        def suggest(changes: Mapping[str, Any], name: str, parameter: Parameter) -> Any:
            if name in changes:
                return changes[name]
            return self.start.nearest_value(name, parameter)[0]

        resolved = [self.start.space.resolve(partial(suggest, dict(changes)))
                    for changes, _ in states]
        candidates = evaluate_costs([CostedCandidate.from_param_values(values)
                                     for values in resolved], self.protocol, self.names)
        return [_BeamState(changes, steps, candidate.max_violation(self.limits), values,
                           candidate.costs)
                for (changes, steps), values, candidate in zip(states, resolved, candidates)
                if candidate.costs is not None]
