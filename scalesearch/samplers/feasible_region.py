"""The part of a space that the limits allow: draws from it, and ways into it. Everything is found when it is needed.

Where much of a space is feasible, rejection is the cheapest way to draw from it: a bill takes a millisecond or two.
Where little is, the space is taken apart once (seconds) and then nothing is drawn in vain. Both have the same chances.
A space that cannot be taken apart is drawn from by walking from a random sheet into the region.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.grid import Endless, TooMany
from scalesearch.feasible.limits import bounds_of
from scalesearch.samplers.repair import Mender
from scalesearch.space import Space
from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.questionnaire.enumerate import Endless as NoEnd

PROBES, FEW = 200, 5  # a region is thin where fewer than FEW of PROBES draws are in it
TRIES = 1000  # draws of a region that is not thin: one in 40 at least is in it
AGAIN = 50  # draws from a space taken apart, where limits that do not add up may reject some
WALKS = 5


class Region:
    """What ``bill`` (a :class:`scalesearch.study.trials.evaluator.Bill`) allows of its space."""

    def __init__(self, bill: Any) -> None:
        self.bill = bill
        self.space: Space = bill.space
        self.protocol: Protocol = bill.protocol
        self._mender = Mender(bill.space, bill.judge)

    def fits(self, params: Mapping[str, Any]) -> bool:
        """Whether a sheet meets every limit."""
        return bool(self.bill.judge(params).feasible)

    def drawn(self, rng: random.Random) -> dict[str, Any] | None:
        """A random feasible sheet; None where none was found."""
        if not self.thin:
            return self._rejecting(rng, TRIES)
        if self.draws is not None:
            found = (self.draws.draw(rng) for _ in range(AGAIN))
            return next((params for params in found if params is not None and self.fits(params)), None)
        starts = (self._sheet(rng) for _ in range(WALKS))
        return next((found for start in starts if (found := self.mended(start, rng))), None)

    def mended(self, params: Mapping[str, Any], rng: random.Random, known: Collection[str] = ()
               ) -> dict[str, Any] | None:
        """A feasible sheet near ``params`` whose network is not among ``known``; None where none was found."""
        return self._mender.mended(params, rng, known)

    @cached_property
    def thin(self) -> bool:
        """Whether so little of the space is feasible that rejection is no way to draw."""
        rng, found = random.Random(0), 0
        for _ in range(PROBES):
            found += self.fits(self._sheet(rng))
            if found >= FEW:
                return False
        return True

    @cached_property
    def draws(self) -> Any:
        """The space taken apart, or None where that cannot be done."""
        from scalesearch.feasible.draw import Draws

        if not isinstance(self.space, Space) or not all(isinstance(limit, Constraint) for limit in self.bill.limits):
            return None
        bounds = bounds_of(limit for limit in self.bill.limits if limit.costs)
        try:
            return None if bounds is None else Draws(self.space, self.protocol, bounds)
        except (TooMany, Endless, NoEnd):
            return None

    @property
    def share(self) -> float | None:
        """The chance that a draw of the whole space is feasible, exactly; None where that is not known."""
        whole = self.draws is not None and all(limit.costs or limit in self.space.where for limit in self.bill.limits)
        return float(self.draws.share) if whole else None

    def _rejecting(self, rng: random.Random, tries: int) -> dict[str, Any] | None:
        sheets = (self._sheet(rng) for _ in range(tries))
        return next((params for params in sheets if self.fits(params)), None)

    def _sheet(self, rng: random.Random) -> dict[str, Any]:
        params: dict[str, Any] = {}

        def ask(name: str, question: Any) -> Any:
            params[name] = question.draw(rng)
            return params[name]

        self.space.answer(ask)
        return params
