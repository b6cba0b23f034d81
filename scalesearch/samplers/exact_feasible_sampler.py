"""Feasible draws of a space by construction; with ``encoding`` and ``bulk``, all that samplers know of spaces."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.draw import Draws
from scalesearch.feasible.grid import Endless, TooMany
from scalesearch.feasible.limits import bounds_of
from scalesearch.samplers.encoding import encode_params
from scalesearch.space import Space
from scalesearch.space.parameters.constraints import Constraint


class ExactFeasibleSampler:
    """Draws of ``space`` that meet the budgets among ``limits``.

    Attributes:
        share: of draws of the whole space that meet every limit; None where some limits do not add up over a model.
    """

    def __init__(self, space: Space, draws: Draws, limits: Sequence[Constraint]) -> None:
        self.space, self.draws = space, draws
        self.share = draws.share if all(limit.costs or limit in space.constraints for limit in limits) else None

    @classmethod
    def of(cls, space: Any, protocol: Protocol, limits: Sequence[Any]) -> ExactFeasibleSampler | None:
        """Takes ``space`` apart, in seconds; None where that cannot be done."""
        if not isinstance(space, Space) or not all(isinstance(limit, Constraint) for limit in limits):
            return None
        bounds = bounds_of(limit for limit in limits if limit.costs)
        try:
            return None if bounds is None else cls(space, Draws(space, protocol, bounds), limits)
        except (TooMany, Endless):
            return None

    def sample(self, rng: random.Random) -> dict[str, Any] | None:
        """The parameters of a sheet, with the chances that rejection gives; None where nothing meets the budgets."""
        answers = self.draws.draw(rng)
        return None if answers is None else encode_params(self.space, answers)[0]
