"""The nearest that fits: fewest answers changed, then least changed, found outwards from a candidate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scalesearch.cost import cost
from scalesearch.cost.protocol import Protocol
from scalesearch.errors import UserError
from scalesearch.space import Answers, Space, Unbuildable
from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.syntax.parameters import Question

BEAM, MOST_CHANGES, VALUES = 24, 4, 12  # candidates kept at each distance; answers changed; nearest values tried


@dataclass(frozen=True)
class Near:
    """A candidate that fits: what is changed (question: old answer, new one), its answers and its costs."""

    changes: Mapping[str, tuple[Any, Any]]
    answers: Answers
    costs: Mapping[str, int]


@dataclass(frozen=True)
class _State:
    changed: tuple[tuple[str, Any], ...]
    slack: float
    steps: int
    answers: Answers
    costs: Mapping[str, int]


def nearest(
    space: Space,
    start: Answers,
    protocol: Protocol,
    budgets: tuple[Constraint, ...],
    names: tuple[str, ...],
    count: int = 5,
) -> list[Near]:
    """Up to ``count`` feasible candidates with the fewest changed answers; none where none is found near.

    A beam search: exact for one change, and keeps the candidates that miss the budgets by least beyond that.

    Raises:
        UserError: ``start`` has answers that are not in the space.
    """
    walk = _Walk(space, start, protocol, budgets, names)
    states = [walk.start()]
    for _ in range(MOST_CHANGES):
        seen: dict[Any, _State] = {}
        for state in states:
            for fresh in walk.around(state):
                seen.setdefault(frozenset(fresh.changed), fresh)
        fitting = sorted((s for s in seen.values() if s.slack <= 0), key=lambda s: s.steps)
        if fitting:
            return [walk.near(state) for state in fitting[:count]]
        states = sorted(seen.values(), key=lambda s: s.slack)[:BEAM]
    return []


class _Walk:
    def __init__(self, space: Space, start: Answers, protocol: Protocol, budgets: tuple[Constraint, ...],
                 names: tuple[str, ...]) -> None:
        self.space, self.protocol, self.budgets, self.names = space, protocol, (*space.where, *budgets), names
        self.replay = space.replay(start)
        self.dimensions = dict(space.dimensions())

    def start(self) -> _State:
        state = self._state((), 0)
        if state is None:
            raise UserError("the candidate to start from is no network of this space")
        self.params = dict(state.answers.params)
        return state

    def around(self, state: _State) -> Iterator[_State]:
        """Every candidate with one answer more changed."""
        changed = dict(state.changed)
        for name, value in state.answers.params.items():
            values = self.dimensions[name].values()
            if name in changed or values is None or value not in values:
                continue
            at = list(values).index(value)
            near = sorted(range(len(values)), key=lambda i: abs(i - at))[1 : VALUES + 1]
            for i in near:
                fresh = self._state((*state.changed, (name, values[i])), state.steps + abs(i - at))
                if fresh is not None:
                    yield fresh

    def _state(self, changed: tuple[tuple[str, Any], ...], steps: int) -> _State | None:
        new = dict(changed)

        def ask(name: str, question: Question) -> Any:
            try:
                return new[name] if name in new else self.replay(name, question)
            except UserError:
                if not new:
                    raise
                return (question.values() or [None])[0]  # a question that only the change has brought up

        try:
            answers = self.space.answer(ask)
            bill = cost(self.space.architecture(answers).block, self.protocol)
        except Unbuildable:
            return None
        slacks = (c.slack(lambda key: answers[key] if key in answers else bill[key]) for c in self.budgets)
        slack = max(slacks, default=0)
        return _State(changed, slack, steps, answers, {name: int(bill[name]) for name in self.names})

    def near(self, state: _State) -> Near:
        changes = {name: (self.params.get(name), value) for name, value in state.changed}
        return Near(changes, state.answers, state.costs)
