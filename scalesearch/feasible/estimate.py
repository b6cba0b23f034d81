"""Shares of a space that cannot be counted: stratified draws, with a confidence interval."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scalesearch.cost import cost
from scalesearch.cost.protocol import Protocol
from scalesearch.space import Space, Unbuildable
from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.syntax.parameters import Question, say

STRATA, Z95 = 8, 1.959963984540054


@dataclass(frozen=True)
class Draw:
    """One draw: what was asked and answered, its costs (None where it cannot be built), and what it violates."""

    params: Mapping[str, Any]
    costs: Mapping[str, int] | None
    broken: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether it is a network within all budgets and constraints."""
        return self.costs is not None and not self.broken


@dataclass(frozen=True)
class Estimate:
    """``share`` of draws that fit (each question uniform), with a 95 % interval; ``draws`` of ``strata``."""

    share: float
    low: float
    high: float
    draws: list[Draw] = field(repr=False)
    strata: str = ""


def estimate(
    space: Space, protocol: Protocol, budgets: tuple[Constraint, ...], names: tuple[str, ...], draws: int, seed: int,
    tell: Callable[[int], None] = lambda done: None,
) -> Estimate:
    """``draws`` candidates of ``space``, as many from each stratum of its most telling question."""
    rng = random.Random(seed)
    question, strata = _strata(space)
    found: list[list[Draw]] = [[] for _ in strata]
    for n in range(draws):
        at = n % len(strata)
        found[at].append(_draw(space, protocol, budgets, names, rng, question, strata[at]))
        tell(n + 1)
    shares = [(sum(draw.fits for draw in group), len(group)) for group in found]
    weights = [len(values) for values in strata]
    low, share, high = _interval(shares, [weight / sum(weights) for weight in weights])
    text = f"{len(strata)} strata of {question}" if question else "one stratum"
    return Estimate(share, low, high, [draw for group in found for draw in group], text)


def _strata(space: Space) -> tuple[str, list[list[Any]]]:
    """The question with most to do with cost that is always asked, its values in groups of neighbours."""
    dimensions = dict(space.dimensions())
    name = next((n for n in ("width", "encoder.depth", "decoder.depth") if n in dimensions), "")
    values = list(dimensions[name].values() or []) if name else []
    if len(values) < 2:
        return "", [[None]]
    size = math.ceil(len(values) / STRATA)
    return name, [values[i : i + size] for i in range(0, len(values), size)]


def _draw(space: Space, protocol: Protocol, budgets: tuple[Constraint, ...], names: tuple[str, ...], rng: random.Random,
          stratum: str, values: list[Any]) -> Draw:
    def ask(name: str, question: Question) -> Any:
        return rng.choice(values) if name == stratum else question.draw(rng)

    answers = space.answer(ask)
    try:
        architecture = space.architecture(answers)
    except Unbuildable:
        return Draw(answers.params, None, ())
    bill = cost(architecture.block, protocol)

    def lookup(name: str) -> Any:
        return answers[name] if name in answers else bill[name]

    broken = [constraint.text for constraint in (*space.where, *budgets) if not constraint.holds(lookup)]
    return Draw(answers.params, {name: int(bill[name]) for name in names}, tuple(broken))


def _interval(shares: list[tuple[int, int]], weights: list[float]) -> tuple[float, float, float]:
    """95 % interval of a stratified share; each stratum's variance is that of (hits + 1) / (draws + 2)."""
    share = sum(w * hits / n for (hits, n), w in zip(shares, weights))
    middle = sum(w * (hits + 1) / (n + 2) for (hits, n), w in zip(shares, weights))
    variance = sum(w**2 * (p := (hits + 1) / (n + 2)) * (1 - p) / n for (hits, n), w in zip(shares, weights))
    half = Z95 * math.sqrt(variance)
    return max(0.0, min(share, middle - half)), share, min(1.0, max(share, middle + half))


def by_value(draws: list[Draw]) -> dict[str, dict[str, tuple[int, int]]]:
    """For each question and answer: the draws that have it, and how many of them fit."""
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for draw in draws:
        for name, value in draw.params.items():
            both = found[name][say(value)]
            both[0] += 1
            both[1] += draw.fits
    return {name: {value: (a, b) for value, (a, b) in values.items()} for name, values in found.items()}
