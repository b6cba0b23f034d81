"""The nearest candidates that fit: fewest answers changed, then least changed, searched outwards from a candidate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scalesearch.blocks.sizes import is_number
from scalesearch.cost.protocol import Protocol
from scalesearch.errors import UserError
from scalesearch.feasible.candidates import Candidate, Costs, priced
from scalesearch.feasible.limits import costs_of
from scalesearch.space import ParamValues, Space
from scalesearch.space.parameters.constraints import Constraint
from scalesearch.space.syntax.parameters import Parameter

BEAM, MOST_CHANGES, VALUES = 24, 4, 12  # candidates kept at each distance; answers changed; nearest values tried
Changes = tuple[tuple[str, Any], ...]  # parameter and new answer


@dataclass(frozen=True)
class Near:
    """A candidate that fits: what is changed (parameter: old answer, new one), its answers and its costs."""

    changes: Mapping[str, tuple[Any, Any]]
    answers: ParamValues
    costs: Costs


class Start:
    """The candidate of ``space`` that is nearest to ``given``, an architecture that may come from elsewhere.

    Attributes:
        answers: its sheet.
        moved: parameter to what the architecture has (None: nothing of that kind) and to the legal answer in its place.
    """

    def __init__(self, space: Space, given: Mapping[str, Any]) -> None:
        self.space, self._replay = space, space.replay_values(given)
        self._given = {name: given.get(leaf.key) for leaf in space.parameter_space.nodes
                       for name, _ in space.parameter_space.domains[leaf.path].parameters()}
        self.moved: dict[str, tuple[Any, Any]] = {}

        def ask(name: str, parameter: Parameter) -> Any:
            answer, own = self.answer(name, parameter)
            if not own:
                self.moved[name] = self._given.get(name), answer
            return answer

        self.answers = space.resolve(ask)

    def answer(self, name: str, parameter: Parameter) -> tuple[Any, bool]:
        """The architecture's answer, or the legal one that is nearest; and whether it is the architecture's."""
        try:
            return parameter.coerce(self._replay(name, parameter)), True
        except (UserError, ValueError, TypeError):
            return _nearest(self._given.get(name), parameter), False


def _nearest(wanted: Any, parameter: Parameter) -> Any:
    """The legal answer nearest to a number; the first of a parameter that is none, or where nothing is wanted."""
    values = parameter.values()
    if values is None:
        values = (parameter.low, parameter.high)  # type: ignore[union-attr]  # of a continuous range, its nearer end
    numbers = [value for value in values if is_number(value)]
    if not numbers or not is_number(wanted):
        return values[0]
    return min(numbers, key=lambda value: abs(value - wanted))


@dataclass(frozen=True)
class _State:
    changed: Changes
    steps: int
    slack: float
    answers: ParamValues
    costs: Costs


def nearest(start: Start, protocol: Protocol, budgets: tuple[Constraint, ...], names: tuple[str, ...],
            count: int = 5) -> list[Near]:
    """Up to ``count`` feasible candidates with the fewest changed answers; none where none is near.

    A beam search: exact for one change, and keeps the candidates that miss the budgets by least beyond that. ``start``
    itself is the first where it fits.
    """
    walk = _Walk(start, protocol, (*start.space.constraints, *budgets), names)
    states = [*walk.states([((), 0)]), _State((), 0, float("inf"), start.answers, {})][:1]
    fitting = [state for state in states if state.slack <= 0]
    for _ in range(MOST_CHANGES):
        around: dict[Any, tuple[Changes, int]] = {}
        for state in states:
            for changed, steps in walk.around(state):
                around.setdefault(frozenset(changed), (changed, steps))
        states = walk.states(around.values())
        fitting += sorted((state for state in states if state.slack <= 0), key=lambda state: state.steps)
        if fitting:
            break
        states = sorted(states, key=lambda state: state.slack)[:BEAM]
    old = start.answers.params
    return [Near({name: (old.get(name), value) for name, value in state.changed}, state.answers,
                 {name: state.costs[name] for name in names}) for state in fitting[:count]]  # fmt: skip


class _Walk:
    def __init__(self, start: Start, protocol: Protocol, limits: tuple[Constraint, ...], names: tuple[str, ...]
                 ) -> None:
        self.start, self.protocol, self.limits, self.names = start, protocol, limits, (*names, *costs_of(limits))
        self.dimensions = dict(start.space.parameters())

    def around(self, state: _State) -> Iterator[tuple[Changes, int]]:
        """Every way to change one answer more."""
        changed = dict(state.changed)
        for name, value in state.answers.params.items():
            values = self.dimensions[name].values()
            if name in changed or values is None or value not in values:
                continue
            at = list(values).index(value)
            near = sorted(range(len(values)), key=lambda i: abs(i - at))[1 : VALUES + 1]
            yield from (((*state.changed, (name, values[i])), state.steps + abs(i - at)) for i in near)

    def states(self, wanted: Iterable[tuple[Changes, int]]) -> list[_State]:
        """Those of the changed candidates that can be built."""
        known = [(changed, steps, self._answers(dict(changed))) for changed, steps in wanted]
        candidates = priced([Candidate.of(answers) for *_, answers in known], self.protocol, self.names)
        return [_State(changed, steps, one.miss(self.limits), answers, one.costs)
                for (changed, steps, answers), one in zip(known, candidates) if one.costs is not None]  # fmt: skip

    def _answers(self, new: Mapping[str, Any]) -> ParamValues:
        return self.start.space.resolve(lambda name, parameter: new[name] if name in new else
                                       self.start.answer(name, parameter)[0])
