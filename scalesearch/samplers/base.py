"""What a proposer is: a function of what was seen, of its seed and of the number of the proposal, and of nothing else.

So a study that was interrupted proposes what it would have proposed, whichever process asks.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from scalesearch.samplers.history import Goal, History, Seen
from scalesearch.space.syntax.parameters import Question

Judge = Callable[[int, Mapping[str, Any]], Seen]


class Askable(Protocol):
    """What a space is to a proposer."""

    def dimensions(self) -> list[tuple[str, Question]]: ...

    def answer(self, ask: Any) -> Any: ...

    def enumerate(self) -> Any: ...


class Feasible(Protocol):
    """What is known of the feasible part of a space; see :class:`scalesearch.samplers.feasible_region.Region`."""

    def drawn(self, rng: random.Random) -> dict[str, Any] | None: ...

    def mended(self, params: Mapping[str, Any], rng: random.Random, known: Collection[str] = ...
               ) -> dict[str, Any] | None: ...

    def fits(self, params: Mapping[str, Any]) -> bool: ...


@dataclass(frozen=True)
class Settings:
    """Who proposes.

    Attributes:
        startup: random proposals before a model or a front is trusted; None: as many as suit the proposer.
        population: NSGA's.
    """

    kind: str = "bayes"
    seed: int = 1
    startup: int | None = None
    population: int = 20


class Proposer:
    """Answers a space's questions.

    Args:
        space: asks the questions.
        limits: names of all limits, in the order in which every candidate has them.
        goals: of the study.
        region: the feasible part of the space; without it, draws are of the whole of it.
    """

    name: ClassVar[str]
    startup: ClassVar[int] = 10  # Optuna's number
    opens: ClassVar[bool] = False  # whether its first candidates are to be spread over the costs
    lists: ClassVar[bool] = False  # whether it goes through a list, and so comes to an end of itself
    heeds: ClassVar[bool] = False  # whether it learns from what misses a limit

    def __init__(self, space: Askable, limits: Sequence[str], goals: Sequence[Goal], settings: Settings,
                 region: Feasible | None = None) -> None:
        self.space, self.limits, self.goals, self.settings = space, tuple(limits), tuple(goals), settings
        self.region = region
        self.first = type(self).startup if settings.startup is None else settings.startup
        self.judge: Judge | None = None  # number and answers to a candidate with its costs; the strategy's

    def ask(self, number: int, history: History) -> Mapping[str, Any] | None:
        """Proposal ``number``: question to answer; None where it has nothing to propose.

        The same number and history give the same proposal.
        """
        raise NotImplementedError

    def seed(self, number: int) -> int:
        """A seed of 32 bits for proposal ``number``."""
        digest = hashlib.sha256(f"{self.settings.seed}:{number}".encode()).digest()
        return int.from_bytes(digest[:4], "big")

    def drawn(self, rng: random.Random) -> dict[str, Any]:
        """A random sheet: each question uniform, log-uniform for log ranges; a feasible one, where the region is known.
        """
        found = self.region.drawn(rng) if self.region else None
        return self.filled(lambda name, question: question.draw(rng)) if found is None else found

    def filled(self, ask: Any) -> dict[str, Any]:
        """The answers that ``ask(name, question)`` gives to what the space asks."""
        params: dict[str, Any] = {}

        def answer(name: str, question: Question) -> Any:
            params[name] = ask(name, question)
            return params[name]

        self.space.answer(answer)
        return params
