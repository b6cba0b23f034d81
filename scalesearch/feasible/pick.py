"""One candidate of a space: a random one, or the one with the fewest or the most weights."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from scalesearch.cost import Protocol
from scalesearch.errors import UserError
from scalesearch.feasible.costed_candidates import CostedCandidate, evaluate_costs
from scalesearch.feasible.counter import FeasibleCounter
from scalesearch.feasible.decomposition import Decomposition
from scalesearch.feasible.enumeration import ContinuousRangeError, TooManyCandidatesError
from scalesearch.feasible.extremes import Extremes, NoExtremeError
from scalesearch.feasible.limits import as_cost_bounds, cost_names
from scalesearch.space import ParamValues, Space

N_SAMPLES = 2_000
MAX_LISTED = 3_000_000  # rows of a section: some ten seconds
SIZE_COST = "params.total"


def pick_candidate(space: Space, criterion: str, seed: int,
                   protocol: Protocol) -> tuple[ParamValues, str]:
    """A candidate that can be built and meets the space's constraints, and how it was found.

    Args:
        criterion: ``random``, ``smallest`` or ``largest`` (by params.total, then).
        seed: of the random draws.

    Raises:
        UserError: none of many random candidates is one.
    """
    if criterion != "random" and (exact := _find_exact(space, criterion, protocol)):
        return exact, f"the {criterion} of the space by {SIZE_COST}"
    sound = _sample_valid(space, protocol, random.Random(seed))
    if criterion == "random":
        sound = islice(sound, 1)
    if not (found := list(sound)):
        raise UserError(f"none of {N_SAMPLES:,} random candidates can be built and meets the "
                        "space's constraints; see what `scalesearch check` says",
                        code="no-valid-candidate")
    if criterion == "random":
        return found[0][1], f"random, seed {seed}"
    _, sheet = (min if criterion == "smallest" else max)(found, key=lambda one: one[0])
    return (sheet,
            f"the {criterion} of {N_SAMPLES:,} random candidates by {SIZE_COST}: the space is too "
            "large to be sure")


def _sample_valid(space: Space, protocol: Protocol,
                  rng: random.Random) -> Iterator[tuple[int, ParamValues]]:
    """Size and answers of those of ``DRAWS`` random candidates that can be built and meet the constraints."""
    for most in (16, N_SAMPLES - 16):  # the first few are enough where one is wanted
        sheets = [space.sample(rng) for _ in range(most)]
        candidates = evaluate_costs([CostedCandidate.from_param_values(sheet) for sheet in sheets],
                                    protocol, (SIZE_COST, *cost_names(space.constraints)))
        yield from ((one[SIZE_COST], sheet)
                    for sheet, one in zip(sheets, candidates) if one.satisfies(space.constraints))


def _find_exact(space: Space, way: str, protocol: Protocol) -> ParamValues | None:
    """The smallest or the largest candidate; None where the space cannot be taken apart in some seconds."""
    bounds = as_cost_bounds(constraint for constraint in space.constraints if constraint.costs)
    if bounds is None:
        return None
    names = tuple(dict.fromkeys([SIZE_COST, *(bound.name for bound in bounds)]))
    try:
        search = Extremes(FeasibleCounter(Decomposition(space, protocol, names, MAX_LISTED),
                                          bounds), bounds)
        point = search.cheapest(SIZE_COST) if way == "smallest" else search.most_expensive(
            SIZE_COST)
    except (TooManyCandidatesError, ContinuousRangeError, NoExtremeError):
        return None
    return point and point.param_values
