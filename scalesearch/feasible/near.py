"""The nearest candidates that fit: fewest answers changed, then least changed, searched outwards from a candidate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scalesearch.cost.protocol import Protocol
from scalesearch.errors import UserError
from scalesearch.feasible.candidates import Candidate, Costs, priced
from scalesearch.feasible.limits import costs_of
from scalesearch.space import Answers, Space
from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.syntax.parameters import Parameter

BEAM, MOST_CHANGES, VALUES = 24, 4, 12  # candidates kept at each distance; answers changed; nearest values tried
Changes = tuple[tuple[str, Any], ...]  # parameter and new answer


@dataclass(frozen=True)
class Near:
    """A candidate that fits: what is changed (parameter: old answer, new one), its answers and its costs."""

    changes: Mapping[str, tuple[Any, Any]]
    answers: Answers
    costs: Costs


@dataclass(frozen=True)
class _State:
    changed: Changes
    steps: int
    slack: float
    answers: Answers
    costs: Costs


def nearest(
    space: Space,
    start: Answers,
    protocol: Protocol,
    budgets: tuple[Constraint, ...],
    names: tuple[str, ...],
    count: int = 5,
) -> list[Near]:
    """Up to ``count`` feasible candidates with the fewest changed answers; none where none is near.

    A beam search: exact for one change, and keeps the candidates that miss the budgets by least beyond that.

    Raises:
        UserError: ``start`` has answers that are not in the space.
    """
    walk = _Walk(space, start, protocol, (*space.where, *budgets), names)
    states = walk.states([((), 0)])
    if not states:
        raise UserError("the candidate to start from is no network of this space", code="not-of-this-space")
    params = states[0].answers.params
    for _ in range(MOST_CHANGES):
        around: dict[Any, tuple[Changes, int]] = {}
        for state in states:
            for changed, steps in walk.around(state):
                around.setdefault(frozenset(changed), (changed, steps))
        states = walk.states(around.values())
        if fitting := sorted((state for state in states if state.slack <= 0), key=lambda state: state.steps):
            return [Near({name: (params.get(name), value) for name, value in state.changed}, state.answers,
                         {name: state.costs[name] for name in names}) for state in fitting[:count]]  # fmt: skip
        states = sorted(states, key=lambda state: state.slack)[:BEAM]
    return []


class _Walk:
    def __init__(self, space: Space, start: Answers, protocol: Protocol, limits: tuple[Constraint, ...],
                 names: tuple[str, ...]) -> None:
        self.space, self.protocol, self.limits, self.names = space, protocol, limits, (*names, *costs_of(limits))
        self.replay = space.replay(start)
        self.dimensions = dict(space.dimensions())

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
        return [_State(changed, steps, self._slack(one), answers, one.costs)
                for (changed, steps, answers), one in zip(known, candidates) if one.costs is not None]  # fmt: skip

    def _slack(self, candidate: Candidate) -> float:
        return max((limit.slack(candidate.__getitem__) for limit in self.limits), default=0)

    def _answers(self, new: Mapping[str, Any]) -> Answers:
        def ask(name: str, parameter: Parameter) -> Any:
            try:
                return new[name] if name in new else self.replay(name, parameter)
            except UserError:
                if not new:
                    raise
                return (parameter.values() or [None])[0]  # a parameter that only the change has brought up

        return self.space.answer(ask)
