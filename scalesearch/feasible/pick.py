"""One candidate of a space: random, smallest or largest by number of parameters."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from scalesearch.cost import Protocol, evaluate_cost
from scalesearch.errors import UserError
from scalesearch.feasible.costed_candidates import CostedCandidate, evaluate_costs
from scalesearch.feasible.counter import FeasibleCounter
from scalesearch.feasible.decomposition import Decomposition
from scalesearch.feasible.enumeration import ContinuousRangeError, TooManyCandidatesError
from scalesearch.feasible.extremes import Extremes, NoExtremeError
from scalesearch.feasible.limits import as_cost_bounds, cost_names
from scalesearch.spaces import ParamValues, Space, UnbuildableError

N_SAMPLES = 2_000
MAX_LISTED = 3_000_000  # candidates of a section, about ten seconds
SIZE_COST = "params.total"


def pick_candidate(space: Space, criterion: str, seed: int,
                   protocol: Protocol) -> tuple[ParamValues, str]:
    """Pick a candidate that can be built and meets the space's constraints.

    Args:
        criterion: ``random``, or ``smallest`` or ``largest`` by ``params.total``.
        seed: random seed.

    Returns:
        the candidate, and a text on how it was found.

    Raises:
        UserError: no random candidate is valid.
    """
    if criterion != "random" and (exact := _find_exact(space, criterion, protocol)):
        return exact, f"the {criterion} of the space by {SIZE_COST}"
    valid = _sample_valid(space, protocol, random.Random(seed))
    candidates = list(islice(valid, 1) if criterion == "random" else valid)
    if not candidates:
        raise UserError(f"none of {N_SAMPLES:,} random candidates is valid (can be built, and "
                        "meets the constraints of the space)"
                        + _describe_first(space, protocol, seed), code="no-valid-candidate",
                        help="`scalesearch check` prints the share of candidates that meet each "
                        "constraint")
    if criterion == "random":
        return candidates[0][1], f"random, seed {seed}"
    select = min if criterion == "smallest" else max
    _, values = select(candidates, key=lambda candidate: candidate[0])
    return (values, f"the {criterion} of {N_SAMPLES:,} random candidates by {SIZE_COST}; the space "
            "is too large for an exact search")


def _describe_first(space: Space, protocol: Protocol, seed: int) -> str:
    """Why the first random candidate cannot be built; empty if it can."""
    values = space.sample(random.Random(seed))
    try:
        evaluate_cost(space.architecture(values).block, protocol.for_candidates(values))
    except UnbuildableError as error:
        return f"; the first one cannot be built: {error}"
    return ""


def _sample_valid(space: Space, protocol: Protocol,
                  rng: random.Random) -> Iterator[tuple[int, ParamValues]]:
    """Yield size and values of the candidates that are valid, among random ones."""
    names = (SIZE_COST, *cost_names(space.constraints))
    for count in (16, N_SAMPLES - 16):  # a small batch first, in case one candidate is enough
        samples = [space.sample(rng) for _ in range(count)]
        candidates = evaluate_costs([CostedCandidate.from_param_values(values)
                                     for values in samples], protocol, names)
        for values, candidate in zip(samples, candidates):
            if candidate.satisfies(space.constraints):
                yield candidate[SIZE_COST], values


def _find_exact(space: Space, criterion: str, protocol: Protocol) -> ParamValues | None:
    """The smallest or largest candidate; None if the space is too large to decompose."""
    bounds = as_cost_bounds(constraint for constraint in space.constraints if constraint.costs)
    if bounds is None:
        return None
    names = tuple(dict.fromkeys([SIZE_COST, *(bound.name for bound in bounds)]))
    try:
        search = Extremes(FeasibleCounter(Decomposition(space, protocol, names, MAX_LISTED),
                                          bounds), bounds)
        find = search.cheapest if criterion == "smallest" else search.most_expensive
        candidate = find(SIZE_COST)
    except (TooManyCandidatesError, ContinuousRangeError, NoExtremeError):
        return None
    return candidate.param_values if candidate else None
