"""From a candidate that misses a limit to one near by that meets them all, by small changes of single answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from scalesearch.errors import UserError
from scalesearch.samplers.base import Askable
from scalesearch.space.syntax.parameters import Choice, Question

MOST = 300  # candidates judged on one way, at one to two milliseconds each
REACH = 0.3  # of a list of numbers: the standard deviation of a step along it
OTHERS = 3  # words tried in the place of one


class Judged(Protocol):
    """What a bill says of a sheet."""

    @property
    def slacks(self) -> Mapping[str, float]: ...

    @property
    def architecture(self) -> Any: ...


Judge = Callable[[Mapping[str, Any]], Judged]
Miss = tuple[bool, float, bool]


@dataclass(frozen=True)
class Mended:
    """A sheet, and by how much it misses: nothing can be built, the sum of what is missed, or it is known already."""

    params: dict[str, Any]
    miss: Miss

    @property
    def sound(self) -> bool:
        """Whether it meets every limit and is new."""
        return not any(self.miss)


class Mender:
    """Walks sheets of ``space`` towards what ``judge`` finds feasible."""

    def __init__(self, space: Askable, judge: Judge) -> None:
        self.space, self.judge = space, judge

    def mended(self, params: Mapping[str, Any], rng: random.Random, known: Collection[str] = (), most: int = MOST
               ) -> dict[str, Any] | None:
        """A feasible sheet on the way from ``params`` whose network is not among ``known``; None where none was found.

        Question after question, in an order that ``rng`` decides, takes the first change that misses by less. A
        round in which small changes do not help is followed by one of changes to either end; if that does not help
        either, the walk ends.
        """
        now = self._mended(dict(params), known)
        budget = iter(range(most))
        wide = False
        while not now.sound:
            before = now.miss
            for name in rng.sample(sorted(now.params), len(now.params)):
                now = self._better(now, name, wide, rng, known, budget)
                if now.sound:
                    return now.params
            if now.miss == before and (wide or next(budget, None) is None):
                return None
            wide = now.miss == before
        return now.params

    def _better(self, now: Mended, name: str, wide: bool, rng: random.Random, known: Collection[str],
                budget: Iterator[int]) -> Mended:
        """``now``, or the first change of ``name`` that is better."""
        if name not in now.params:  # an earlier change has taken the question away
            return now
        for value in self._others(now, name, wide, rng):
            if next(budget, None) is None:
                return now
            found = self._mended(self._changed(now.params, name, value, rng), known)
            if found.miss < now.miss:
                return found
        return now

    def _others(self, now: Mended, name: str, wide: bool, rng: random.Random) -> list[Any]:
        question: list[Question] = []

        def ask(path: str, one: Question) -> Any:
            if path == name:
                question.append(one)
            return now.params[path]

        self.space.answer(ask)
        return others(question[0], now.params[name], wide, rng) if question else []

    def _changed(self, params: Mapping[str, Any], name: str, value: Any, rng: random.Random) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def ask(path: str, question: Question) -> Any:
            try:
                found[path] = question.settle(value if path == name else params[path])
            except (KeyError, UserError, ValueError, TypeError):
                found[path] = question.draw(rng)  # the change has brought the question up, or made the answer illegal
            return found[path]

        self.space.answer(ask)
        return found

    def _mended(self, params: dict[str, Any], known: Collection[str]) -> Mended:
        judged = self.judge(params)
        missed = sum(slack for slack in judged.slacks.values() if slack > 0)
        network = judged.architecture
        return Mended(params, (network is None, missed, not missed and network is not None and network.id in known))


def others(question: Question, value: Any, wide: bool, rng: random.Random) -> list[Any]:
    """Other answers to try: of numbers one below and one above, near or (``wide``) the ends; of words some others."""
    values = question.values()
    if values is None:
        return [question.draw(rng), question.draw(rng)]
    if isinstance(question, Choice) and not all(_number(option) for option in values):
        rest = [option for option in values if option != value]
        return rng.sample(rest, len(rest) if wide else min(OTHERS, len(rest)))
    ordered = sorted(values) if isinstance(question, Choice) else values
    at, last = ordered.index(value), len(ordered) - 1
    step = last if wide else max(1, round(abs(rng.gauss(0, REACH)) * last))
    places = {max(0, at - step), min(last, at + step)} - {at}
    return [ordered[place] for place in sorted(places)]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
