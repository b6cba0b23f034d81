"""Judges a proposal by its bill before anything is trained: what it costs, and by how much it misses a limit."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from scalesearch.cost import Cost, cost
from scalesearch.cost import Protocol as CostProtocol
from scalesearch.errors import UserError
from scalesearch.samplers.feasible_region import Region
from scalesearch.samplers.grid import key_of
from scalesearch.space.assembly.architecture import Architecture
from scalesearch.space.schema.cost_names import COST_NAMES

BUILDABLE = "buildable"
KEPT = 2000  # judged candidates that are remembered, some ten kilobytes each
MOST = 50.0  # a slack is a logarithm of a ratio; nothing real is e^50 times a budget, and Optuna wants finite numbers


class Limit(Protocol):
    """What a space's Constraint is to a study."""

    @property
    def text(self) -> str:
        """The limit in words; its name."""

    def slack(self, lookup: Any) -> float:
        """Zero or less where the constraint holds; log(cost / budget) for a budget."""


@dataclass(frozen=True)
class Candidate:
    """One proposal, judged.

    Attributes:
        params: question (by name) to the value the proposer gave.
        architecture: what the answers describe, or None where nothing can be built from them.
        cost: its bill under the study's protocol.
        slacks: name of each limit, always the same ones in the same order, to how far it is missed (<= 0: met).
        reason: why it is infeasible, in words; empty for a feasible one.
        answers: its canonical answers, constants included, also where nothing can be built from them.
    """

    params: Mapping[str, Any]
    architecture: Architecture | None
    cost: Cost | None
    slacks: Mapping[str, float]
    reason: str = ""
    answers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def feasible(self) -> bool:
        """Whether it may be trained."""
        return all(slack <= 0 for slack in self.slacks.values())


class Bill:
    """Judges answers of ``space`` by ``limits`` under ``protocol``; takes about a millisecond a candidate."""

    def __init__(self, space: Any, protocol: CostProtocol, limits: tuple[Limit, ...]) -> None:
        self.space, self.protocol, self.limits = space, protocol, limits
        self.names = (BUILDABLE, *dict.fromkeys(limit.text for limit in limits))
        self._judged: dict[tuple[tuple[str, str], ...], Candidate] = {}  # the latest: proposers look at some again

    @cached_property
    def region(self) -> Region:
        """The part of the space that the limits allow."""
        return Region(self)

    def judge(self, params: Mapping[str, Any]) -> Candidate:
        """The candidate that the space makes of ``params``.

        Raises:
            KeyError: a question of the space is not among ``params``.
        """
        key = key_of(params)
        if key not in self._judged:
            if len(self._judged) >= KEPT:
                del self._judged[next(iter(self._judged))]
            self._judged[key] = self._judge(params)
        return replace(self._judged[key], params=params)

    def _judge(self, params: Mapping[str, Any]) -> Candidate:
        answers = self.space.answer(lambda path, question: params[path])
        try:
            architecture = self.space.architecture(answers)
        except UserError as error:  # Unbuildable, with the key and the reason
            slacks = {name: float(name == BUILDABLE) for name in self.names}
            return Candidate(params, None, None, slacks, str(error), answers)
        return self.judge_architecture(architecture, params)

    def judge_architecture(self, architecture: Architecture, params: Mapping[str, Any]) -> Candidate:
        """The candidate that ``architecture`` is, whether or not the space could have proposed it."""
        price = cost(architecture.block, self.protocol)

        def lookup(name: str) -> Any:
            return price[name] if name in COST_NAMES else architecture.answers[name]

        slacks = {BUILDABLE: 0.0} | {
            limit.text: max(-MOST, min(MOST, limit.slack(lookup))) for limit in self.limits
        }
        broken = [_miss(text, slack) for text, slack in slacks.items() if slack > 0]
        return Candidate(params, architecture, price, slacks, "; ".join(broken), architecture.answers)


def _miss(text: str, slack: float) -> str:
    """In words; how far is said of costs alone, whose slack is the logarithm of a ratio."""
    far = f" (by {math.expm1(slack):.1%})" if any(name in text for name in COST_NAMES) else ""
    return f"not {text}{far}"
