"""Shares of a space that cannot be counted: stratified draws, with a confidence interval."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.candidates import Candidate, priced
from scalesearch.space import Answers, Space
from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.syntax.parameters import Parameter, say

STRATA, Z95 = 8, 1.959963984540054


@dataclass(frozen=True)
class Draw:
    """One draw: its parameters, its costs (None where it cannot be built), and the limits that it violates."""

    params: Mapping[str, Any]
    costs: Mapping[str, int] | None
    broken: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether it is a network within all budgets and constraints."""
        return self.costs is not None and not self.broken


@dataclass(frozen=True)
class Estimate:
    """``share`` of draws that fit (each parameter uniform), with a 95 % interval; ``draws`` of ``strata``."""

    share: float
    low: float
    high: float
    draws: list[Draw] = field(repr=False)
    strata: str = ""


def estimate(
    space: Space, protocol: Protocol, budgets: tuple[Constraint, ...], names: tuple[str, ...], draws: int, seed: int
) -> Estimate:
    """``draws`` candidates of ``space``, as many from each stratum of its most telling parameter.

    Args:
        names: costs that a draw has, at least those that budgets and constraints name.
    """
    rng = random.Random(seed)
    parameter, strata = _strata(space)
    sheets = [_draw(space, rng, parameter, strata[n % len(strata)]) for n in range(draws)]
    candidates = priced([Candidate.of(sheet) for sheet in sheets], protocol, names)
    limits = (*space.where, *budgets)
    drawn = [_judged(sheet, candidate, limits) for sheet, candidate in zip(sheets, candidates)]
    groups = [drawn[at :: len(strata)] for at in range(len(strata))]
    weights = [len(values) for values in strata]
    shares = [(sum(draw.fits for draw in group), len(group)) for group in groups]
    low, share, high = _interval(shares, [weight / sum(weights) for weight in weights])
    text = f"{len(strata)} strata of {parameter}" if parameter else "one stratum"
    return Estimate(share, low, high, [draw for group in groups for draw in group], text)


def _strata(space: Space) -> tuple[str, list[list[Any]]]:
    """The parameter with most to do with cost that is always asked, its values in groups of neighbours."""
    dimensions = dict(space.dimensions())
    name = next((n for n in ("width", "encoder.depth", "decoder.depth") if n in dimensions), "")
    values = list(dimensions[name].values() or []) if name else []
    if len(values) < 2:
        return "", [[None]]
    size = math.ceil(len(values) / STRATA)
    return name, [values[i : i + size] for i in range(0, len(values), size)]


def _draw(space: Space, rng: random.Random, stratum: str, values: list[Any]) -> Answers:
    def ask(name: str, parameter: Parameter) -> Any:
        return rng.choice(values) if name == stratum else parameter.draw(rng)

    return space.answer(ask)


def _judged(sheet: Answers, candidate: Candidate, limits: tuple[Constraint, ...]) -> Draw:
    if candidate.costs is None:
        return Draw(sheet.params, None, ())
    return Draw(sheet.params, candidate.costs, tuple(c.text for c in limits if not c.holds(candidate.__getitem__)))


def _interval(shares: list[tuple[int, int]], weights: list[float]) -> tuple[float, float, float]:
    """95 % interval of a stratified share; each stratum's variance is that of (hits + 1) / (draws + 2)."""
    share = sum(w * hits / n for (hits, n), w in zip(shares, weights))
    middle = sum(w * (hits + 1) / (n + 2) for (hits, n), w in zip(shares, weights))
    variance = sum(w**2 * (p := (hits + 1) / (n + 2)) * (1 - p) / n for (hits, n), w in zip(shares, weights))
    half = Z95 * math.sqrt(variance)
    return max(0.0, min(share, middle - half)), share, min(1.0, max(share, middle + half))


def by_value(draws: list[Draw]) -> dict[str, dict[str, tuple[int, int]]]:
    """For each parameter and answer: the draws that have it, and how many of them fit."""
    counts: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for draw in draws:
        for name, value in draw.params.items():
            both = counts[name][say(value)]
            both[0] += 1
            both[1] += draw.fits
    return {name: {value: (a, b) for value, (a, b) in values.items()} for name, values in counts.items()}
