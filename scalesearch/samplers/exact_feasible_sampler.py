"""Feasible draws of a space by construction; with ``encoding`` and ``bulk``, all that samplers know of spaces."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.budget_sampler import BudgetSampler
from scalesearch.feasible.enumeration import ContinuousRangeError, TooManyCandidatesError
from scalesearch.feasible.limits import as_cost_bounds
from scalesearch.samplers.encoding import encode_params
from scalesearch.space import Space
from scalesearch.space.parameters.constraints import Constraint


class ExactFeasibleSampler:
    """Draws of ``space`` that meet the budgets among ``limits``.

    Attributes:
        feasible_share: of draws of the whole space that meet every limit; None where some limits do not add
            up over a model.
    """

    def __init__(self, space: Space, draws: BudgetSampler, limits: Sequence[Constraint]) -> None:
        self.space = space
        self.draws = draws
        self.feasible_share = draws.feasible_share if all(
            limit.costs or limit in space.constraints for limit in limits) else None

    @classmethod
    def of(cls, space: Any, protocol: Protocol,
           limits: Sequence[Any]) -> ExactFeasibleSampler | None:
        """Takes ``space`` apart, in seconds; None where that cannot be done."""
        if not isinstance(space,
                          Space) or not all(isinstance(limit, Constraint) for limit in limits):
            return None
        bounds = as_cost_bounds(limit for limit in limits if limit.costs)
        try:
            return None if bounds is None else cls(
                space, BudgetSampler(space, protocol, bounds), limits)
        except (TooManyCandidatesError, ContinuousRangeError):
            return None

    def sample(self, rng: random.Random) -> dict[str, Any] | None:
        """The parameters of a sheet, with the chances that rejection gives; None where nothing meets the budgets."""
        answers = self.draws.sample(rng)
        return None if answers is None else encode_params(self.space, answers)[0]
