"""Exact sampling of feasible candidates, without rejection."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.budget_sampler import BudgetSampler
from scalesearch.feasible.enumeration import ContinuousRangeError, TooManyCandidatesError
from scalesearch.feasible.limits import as_cost_bounds
from scalesearch.samplers.encoding import encode_params
from scalesearch.spaces import Space
from scalesearch.spaces.parameters.constraints import Constraint


class ExactFeasibleSampler:
    """Sampler of candidates that meet the budgets among ``limits``.

    Attributes:
        feasible_share: share of random candidates that meet all limits; None if some limits are not
            sums over a model.
    """

    def __init__(self, space: Space, budget_sampler: BudgetSampler,
                 limits: Sequence[Constraint]) -> None:
        self.space = space
        self.budget_sampler = budget_sampler
        self.feasible_share = budget_sampler.feasible_share if all(
            limit.costs or limit in space.constraints for limit in limits) else None

    @classmethod
    def of(cls, space: Any, protocol: Protocol,
           limits: Sequence[Any]) -> ExactFeasibleSampler | None:
        """Decompose ``space``, which takes seconds; None if that is not possible."""
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
        """Sample parameters with the distribution of rejection sampling.

        None if no candidate meets the budgets.
        """
        values = self.budget_sampler.sample(rng)
        return None if values is None else encode_params(self.space, values)[0]
