"""Shares of a space that cannot be counted: stratified draws, with a confidence interval."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.costed_candidates import CostedCandidate, evaluate_costs
from scalesearch.space import ParamValues, Space
from scalesearch.space.parameters.constraints import Constraint
from scalesearch.space.syntax.parameters import Parameter, format_constant

N_STRATA = 8
Z_95 = 1.959963984540054


@dataclass(frozen=True)
class Estimate:
    """``share`` of draws that fit (each parameter uniform), with a 95 % interval.

    Attributes:
        strata: what the draws are equally many of.
        value_shares: a row for each parameter and answer: how many ``sheets`` have it, and how many
            of them fit.
        sample: a row for each draw that can be built: its costs, whether it ``fits``, and the
            limits it has ``broken``.
    """

    share: float
    share_low: float
    share_high: float
    strata: str
    value_shares: pd.DataFrame = field(repr=False)
    sample: pd.DataFrame = field(repr=False)


def estimate_feasibility(space: Space, protocol: Protocol, budgets: tuple[Constraint, ...],
                         names: tuple[str, ...], n_samples: int, seed: int) -> Estimate:
    """``n_samples`` candidates of ``space``, as many from each stratum of its most telling parameter.

    Args:
        names: costs that a draw has, at least those that budgets and constraints name.
    """
    rng = random.Random(seed)
    parameter, strata = _strata(space)
    sheets = [_draw(space, rng, parameter, strata[n % len(strata)]) for n in range(n_samples)]
    candidates = evaluate_costs([CostedCandidate.from_param_values(sheet) for sheet in sheets],
                                protocol, names)
    limits = (*space.constraints, *budgets)
    broken = [None if one.costs is None
              else [limit.text for limit in limits if not limit.is_satisfied(one.__getitem__)]
              for one in candidates]
    fits = [one == [] for one in broken]
    shares = [(sum(fits[at :: len(strata)]), len(fits[at :: len(strata)]))
              for at in range(len(strata))]
    low, share, high = _interval(shares, [len(values) for values in strata])
    text = f"{len(strata)} strata of {parameter}" if parameter else "one stratum"
    rows = [{**(one.costs or {}), "fits": fit, "violated": " and ".join(over)}
            for one, fit, over in zip(candidates, fits, broken) if over is not None]
    sample = pd.DataFrame(rows, columns=[*names, "fits", "violated"])
    return Estimate(share, low, high, text, _by_value(sheets, fits), sample)


def _strata(space: Space) -> tuple[str, list[list[Any]]]:
    """The parameter with most to do with cost that is always asked, its values in groups of neighbors."""
    dimensions = dict(space.parameters())
    name = next((n for n in ("width", "encoder.depth", "decoder.depth") if n in dimensions), "")
    values = list(dimensions[name].values() or []) if name else []
    if len(values) < 2:
        return "", [[None]]
    size = math.ceil(len(values) / N_STRATA)
    return name, [values[i : i + size] for i in range(0, len(values), size)]


def _draw(space: Space, rng: random.Random, stratum: str, values: list[Any]) -> ParamValues:
    def ask(name: str, parameter: Parameter) -> Any:
        return rng.choice(values) if name == stratum else parameter.sample(rng)

    return space.resolve(ask)


def _interval(shares: list[tuple[int, int]], sizes: list[int]) -> tuple[float, float, float]:
    """95 % interval of a stratified share; each stratum's variance is that of (hits + 1) / (draws + 2)."""
    weights = [size / sum(sizes) for size in sizes]
    share = sum(w * hits / n for (hits, n), w in zip(shares, weights))
    middle = sum(w * (hits + 1) / (n + 2) for (hits, n), w in zip(shares, weights))
    variance = sum(w**2 * (p := (hits + 1) / (n + 2)) * (1 - p) / n
                   for (hits, n), w in zip(shares, weights))
    half = Z_95 * math.sqrt(variance)
    return max(0.0, min(share, middle - half)), share, min(1.0, max(share, middle + half))


def _by_value(sheets: Sequence[ParamValues], fits: Sequence[bool]) -> pd.DataFrame:
    """Parameter, answer (numbers by size), the draws that have it, and how many of them fit."""
    rows = [(name, format_constant(value), fit) for sheet, fit in zip(sheets, fits)
            for name, value in sheet.params.items()]
    frame = pd.DataFrame(rows, columns=["parameter", "value", "fits"])
    counts = frame.groupby(
        ["parameter", "value"], sort=False)["fits"].agg(candidates="size", feasible="sum").reset_index()
    by_size = counts.sort_values("value").sort_values(
        "value", key=lambda column: pd.to_numeric(column, errors="coerce"), kind="stable")
    return by_size.astype({"candidates": int, "feasible": int})
