"""The part of a space that constraints allow: draws from it, and ways into it. Everything is found when it is needed.

Where much of a space is feasible, rejection is the cheapest way to draw from it. Where little is, exact draws (see
:mod:`~scalesearch.samplers.region.exact_draws`) take the space apart once, in seconds, then draw nothing in vain.
Both have
the same chances. A space that cannot be taken apart is drawn from by walking from a random sheet into the region.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any, Protocol

from scalesearch.samplers.known import Knowledge, Knows
from scalesearch.samplers.region.repair import Repairer
from scalesearch.samplers.sheet import Define, Sheet, change, fill, sample

PROBES, FEW = 200, 5  # a region is sparse where fewer than FEW of PROBES draws are in it
MAX_REJECTED = 1000  # draws of a region that is not sparse: one in 40 at least is in it
MAX_EXACT = 50  # exact draws, of which constraints that do not add up may reject some
MAX_WALKS = 5


class Exact(Protocol):
    """Draws by construction, of what meets the constraints that add up."""

    share: float | None

    def sample(self, rng: random.Random) -> Mapping[str, Any] | None:
        """The parameters of a sheet; None where nothing meets them."""


class FeasibleRegion:
    """The sheets of ``define`` of which ``known`` says that they are feasible.

    Args:
        exact: makes exact draws of the region; gives None where the space cannot be taken apart.
    """

    def __init__(self, define: Define, known: Knows, exact: Callable[[], Exact | None] = lambda: None) -> None:
        self.define, self.known, self._exact = define, Knowledge.of(known), exact
        self._repairer = Repairer(define, self.known)

    def is_feasible(self, params: Mapping[str, Any]) -> bool:
        """Whether a sheet meets every constraint."""
        return self.known(params).feasible

    def sample_feasible(self, rng: random.Random) -> Sheet | None:
        """A random feasible sheet; None where none was found."""
        if not self.is_sparse:
            return self._rejecting(rng)
        if self.exact is not None:
            drawn = (self.exact.sample(rng) for _ in range(MAX_EXACT))
            params = next((one for one in drawn if one is not None and self.is_feasible(one)), None)
            return None if params is None else self._sheet(params)
        starts = (sample(self.define, rng) for _ in range(MAX_WALKS))
        return next((found for start in starts if (found := self._repairer.repair(start, rng))), None)

    def repair(self, params: Mapping[str, Any], rng: random.Random, taken: Collection[str] = ()) -> Sheet | None:
        """A feasible sheet near ``params`` whose identity is not ``taken``; None where none was found."""
        return self._repairer.repair(change(self.define, params, rng), rng, taken)

    @cached_property
    def is_sparse(self) -> bool:
        """Whether so little of the space is feasible that rejection is no way to draw."""
        rng, found = random.Random(0), 0
        for _ in range(PROBES):
            found += self.is_feasible(sample(self.define, rng).params)
            if found >= FEW:
                return False
        return True

    @cached_property
    def exact(self) -> Exact | None:
        """The space taken apart, or None where that cannot be done."""
        return self._exact()

    @property
    def share(self) -> float | None:
        """The chance that a draw of the whole space is feasible, exactly; None where that is not known."""
        return self.exact.share if self.exact else None

    def _rejecting(self, rng: random.Random) -> Sheet | None:
        sheets = (sample(self.define, rng) for _ in range(MAX_REJECTED))
        return next((sheet for sheet in sheets if self.is_feasible(sheet.params)), None)

    def _sheet(self, params: Mapping[str, Any]) -> Sheet:
        return fill(self.define, lambda name, distribution: params[name])
