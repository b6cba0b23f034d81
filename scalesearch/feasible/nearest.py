"""The nearest candidates that fit: fewest answers changed, then least changed, searched outwards from a candidate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scalesearch.blocks.sizes import is_number
from scalesearch.cost.protocol import Protocol
from scalesearch.errors import UserError
from scalesearch.feasible.costed_candidates import CostedCandidate, Costs, evaluate_costs
from scalesearch.feasible.limits import cost_names
from scalesearch.space import ParamValues, Space
from scalesearch.space.parameters.constraints import Constraint
from scalesearch.space.syntax.parameters import Parameter

BEAM_SIZE = 24
MAX_CHANGES = 4
MAX_VALUES_TRIED = 12  # candidates kept at each distance; answers changed; nearest values tried
Changes = tuple[tuple[str, Any], ...]  # parameter and new answer


@dataclass(frozen=True)
class NearbyCandidate:
    """A candidate that fits: what is changed (parameter: old answer, new one), its answers and its costs."""

    changes: Mapping[str, tuple[Any, Any]]
    param_values: ParamValues
    costs: Costs


class ProjectedCandidate:
    """The candidate of ``space`` that is nearest to ``config``, an architecture that may come from elsewhere.

    Attributes:
        answers: its sheet.
        moved: parameter to what the architecture has (None: nothing of that kind) and to the legal
            answer in its place.
    """

    def __init__(self, space: Space, config: Mapping[str, Any]) -> None:
        self.space = space
        self._replay = space.replay_values(config)
        self._given = {name: config.get(leaf.key) for leaf in space.parameter_space.nodes
                       for name, _ in space.parameter_space.domains[leaf.path].parameters()}
        self.changed_params: dict[str, tuple[Any, Any]] = {}

        def ask(name: str, parameter: Parameter) -> Any:
            answer, own = self.nearest_value(name, parameter)
            if not own:
                self.changed_params[name] = self._given.get(name), answer
            return answer

        self.param_values = space.resolve(ask)

    def nearest_value(self, name: str, parameter: Parameter) -> tuple[Any, bool]:
        """The architecture's answer, or the legal one that is nearest; and whether it is the architecture's."""
        try:
            return parameter.coerce(self._replay(name, parameter)), True
        except (UserError, ValueError, TypeError):
            return _nearest_legal_value(self._given.get(name), parameter), False


def _nearest_legal_value(wanted: Any, parameter: Parameter) -> Any:
    """The legal answer nearest to a number; the first of a parameter that is none, or where nothing is wanted."""
    values = parameter.values()
    if values is None:
        values = (parameter.low, parameter.high)  # type: ignore[union-attr]  # of a continuous range, its nearer end
    numbers = [value for value in values if is_number(value)]
    if not numbers or not is_number(wanted):
        return values[0]
    return min(numbers, key=lambda value: abs(value - wanted))


@dataclass(frozen=True)
class _BeamState:
    changed: Changes
    steps: int
    slack: float
    answers: ParamValues
    costs: Costs


def find_nearest(start: ProjectedCandidate, protocol: Protocol, budgets: tuple[Constraint, ...],
                 names: tuple[str, ...], count: int = 5) -> list[NearbyCandidate]:
    """Up to ``count`` feasible candidates with the fewest changed answers; none where none is near.

    A beam search: exact for one change, and keeps the candidates that miss the budgets by least
    beyond that. ``start`` itself is the first where it fits.
    """
    walk = _BeamSearch(start, protocol, (*start.space.constraints, *budgets), names)
    states = [*walk.evaluate_states([((), 0)]),
              _BeamState((), 0, float("inf"), start.param_values, {})][:1]
    fitting = [state for state in states if state.slack <= 0]
    for _ in range(MAX_CHANGES):
        around: dict[Any, tuple[Changes, int]] = {}
        for state in states:
            for changed, steps in walk.neighbors(state):
                around.setdefault(frozenset(changed), (changed, steps))
        states = walk.evaluate_states(around.values())
        fitting += sorted((state for state in states if state.slack <= 0),
                          key=lambda state: state.steps)
        if fitting:
            break
        states = sorted(states, key=lambda state: state.slack)[:BEAM_SIZE]
    old = start.param_values.params
    return [NearbyCandidate({name: (old.get(name), value) for name, value in state.changed}, state.answers,
                 # fmt: skip
                 {name: state.costs[name] for name in names}) for state in fitting[:count]]


class _BeamSearch:
    def __init__(self, start: ProjectedCandidate, protocol: Protocol,
                 limits: tuple[Constraint, ...], names: tuple[str, ...]) -> None:
        self.start = start
        self.protocol = protocol
        self.limits = limits
        self.names = (*names, *cost_names(limits))
        self.dimensions = dict(start.space.parameters())

    def neighbors(self, state: _BeamState) -> Iterator[tuple[Changes, int]]:
        """Every way to change one answer more."""
        changed = dict(state.changed)
        for name, value in state.answers.params.items():
            values = self.dimensions[name].values()
            if name in changed or values is None or value not in values:
                continue
            at = list(values).index(value)
            near = sorted(range(len(values)), key=lambda i: abs(i - at))[1 : MAX_VALUES_TRIED + 1]
            yield from (((*state.changed, (name, values[i])), state.steps + abs(i - at))
                        for i in near)

    def evaluate_states(self, wanted: Iterable[tuple[Changes, int]]) -> list[_BeamState]:
        """Those of the changed candidates that can be built."""
        known = [(changed, steps, self._answers(dict(changed))) for changed, steps in wanted]
        candidates = evaluate_costs([CostedCandidate.from_param_values(answers)
                                     for *_, answers in known], self.protocol, self.names)
        return [_BeamState(changed, steps, one.max_violation(self.limits), answers, one.costs)
                # fmt: skip
                for (changed, steps, answers), one in zip(known, candidates) if one.costs is not None]

    def _answers(self, new: Mapping[str, Any]) -> ParamValues:
        return self.start.space.resolve(lambda name, parameter: new[name] if name in new else
                                       self.start.nearest_value(name, parameter)[0])
