"""One candidate of a space: a random one, or the one with the fewest or the most weights."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from scalesearch.cost import Protocol
from scalesearch.errors import UserError
from scalesearch.feasible.candidates import Candidate, priced
from scalesearch.feasible.count import Counter
from scalesearch.feasible.extremes import Extremes, NotFound
from scalesearch.feasible.grid import Endless, TooMany
from scalesearch.feasible.limits import bounds_of, costs_of
from scalesearch.feasible.sections import Decomposition
from scalesearch.space import ParamValues, Space

DRAWS = 2_000
MOST_LISTED = 3_000_000  # rows of a section: some ten seconds
SIZE = "params.total"


def pick(space: Space, way: str, seed: int, protocol: Protocol) -> tuple[ParamValues, str]:
    """A candidate that can be built and meets the space's constraints, and how it was found.

    Args:
        way: ``random``, ``smallest`` or ``largest`` (by params.total, then).
        seed: of the random draws.

    Raises:
        UserError: none of many random candidates is one.
    """
    if way != "random" and (exact := _exact(space, way, protocol)):
        return exact, f"the {way} of the space by {SIZE}"
    sound = _sound(space, protocol, random.Random(seed))
    if way == "random":
        sound = islice(sound, 1)
    if not (found := list(sound)):
        raise UserError(f"none of {DRAWS:,} random candidates can be built and meets the space's constraints; "
                        "see what `scalesearch check` says", code="nothing-sound")
    if way == "random":
        return found[0][1], f"random, seed {seed}"
    _, sheet = (min if way == "smallest" else max)(found, key=lambda one: one[0])
    return sheet, f"the {way} of {DRAWS:,} random candidates by {SIZE}: the space is too large to be sure"


def _sound(space: Space, protocol: Protocol, rng: random.Random) -> Iterator[tuple[int, ParamValues]]:
    """Size and answers of those of ``DRAWS`` random candidates that can be built and meet the constraints."""
    for most in (16, DRAWS - 16):  # the first few are enough where one is wanted
        sheets = [space.sample(rng) for _ in range(most)]
        candidates = priced([Candidate.of(sheet) for sheet in sheets], protocol, (SIZE, *costs_of(space.constraints)))
        yield from ((one[SIZE], sheet) for sheet, one in zip(sheets, candidates) if one.meets(space.constraints))


def _exact(space: Space, way: str, protocol: Protocol) -> ParamValues | None:
    """The smallest or the largest candidate; None where the space cannot be taken apart in some seconds."""
    bounds = bounds_of(constraint for constraint in space.constraints if constraint.costs)
    if bounds is None:
        return None
    names = tuple(dict.fromkeys([SIZE, *(bound.name for bound in bounds)]))
    try:
        search = Extremes(Counter(Decomposition(space, protocol, names, MOST_LISTED), bounds), bounds)
        point = search.cheapest(SIZE) if way == "smallest" else search.dearest(SIZE)
    except (TooMany, Endless, NotFound):
        return None
    return point and point.answers
