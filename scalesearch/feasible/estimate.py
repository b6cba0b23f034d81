"""Estimated feasible share of a space, by stratified sampling."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.costed_candidates import CostedCandidate, evaluate_costs
from scalesearch.spaces import ParamValues, Space
from scalesearch.spaces.parameters.constraints import Constraint
from scalesearch.spaces.syntax.parameters import Parameter, format_constant

N_STRATA = 8
Z_95 = 1.959963984540054


@dataclass(frozen=True)
class Estimate:
    """Estimated share of feasible candidates, if each parameter is uniform.

    Attributes:
        share, share_low, share_high: the share and its 95 % interval.
        strata: description of the strata.
        value_shares: a row per parameter and value, with the numbers of ``candidates`` and of
            ``feasible`` candidates among the samples.
        sample: a row per sample that can be built, with its costs, whether it ``fits``, and the
            limits that are ``violated``.
    """

    share: float
    share_low: float
    share_high: float
    strata: str
    value_shares: pd.DataFrame = field(repr=False)
    sample: pd.DataFrame = field(repr=False)


def estimate_feasibility(space: Space, protocol: Protocol, budgets: tuple[Constraint, ...],
                         names: tuple[str, ...], n_samples: int, seed: int) -> Estimate:
    """Estimate the feasible share from equally many samples of each stratum.

    Args:
        names: costs of each sample, at least those in the budgets and constraints.
    """
    rng = random.Random(seed)
    parameter, strata = _strata(space)
    samples = [_sample(space, rng, parameter, strata[n % len(strata)]) for n in range(n_samples)]
    candidates = evaluate_costs([CostedCandidate.from_param_values(values) for values in samples],
                                protocol, names)
    limits = (*space.constraints, *budgets)
    violated = [None if candidate.costs is None
                else [limit.text for limit in limits
                      if not limit.is_satisfied(candidate.__getitem__)]
                for candidate in candidates]
    fits = [texts == [] for texts in violated]
    fits_by_stratum = [fits[stratum :: len(strata)] for stratum in range(len(strata))]
    low, share, high = _interval([(sum(hits), len(hits)) for hits in fits_by_stratum],
                                 [len(values) for values in strata])
    description = f"{len(strata)} strata of {parameter}" if parameter else "one stratum"
    rows = [{**(candidate.costs or {}), "fits": fit, "violated": " and ".join(texts)}
            for candidate, fit, texts in zip(candidates, fits, violated) if texts is not None]
    frame = pd.DataFrame(rows, columns=[*names, "fits", "violated"])
    return Estimate(share, low, high, description, _by_value(samples, fits), frame)


def _strata(space: Space) -> tuple[str, list[list[Any]]]:
    """The parameter that affects costs most, and its values in groups of neighbors."""
    parameters = dict(space.parameters())
    name = next((n for n in ("width", "encoder.depth", "decoder.depth") if n in parameters), "")
    values = list(parameters[name].values() or []) if name else []
    if len(values) < 2:
        return "", [[None]]
    size = math.ceil(len(values) / N_STRATA)
    return name, [values[i : i + size] for i in range(0, len(values), size)]


def _sample(space: Space, rng: random.Random, stratified: str, values: list[Any]) -> ParamValues:
    """Sample a candidate; the parameter ``stratified`` has one of ``values``."""
    def suggest(name: str, parameter: Parameter) -> Any:
        return rng.choice(values) if name == stratified else parameter.sample(rng)

    return space.resolve(suggest)


def _interval(counts: list[tuple[int, int]], sizes: list[int]) -> tuple[float, float, float]:
    """Stratified share with its 95 % interval, as (low, share, high).

    The variance of a stratum uses the smoothed share (hits + 1) / (samples + 2).

    Args:
        counts: hits and samples of each stratum.
        sizes: number of values of each stratum.
    """
    weights = [size / sum(sizes) for size in sizes]
    share = sum(weight * hits / n for (hits, n), weight in zip(counts, weights))
    smoothed = [(hits + 1) / (n + 2) for hits, n in counts]
    center = sum(weight * (hits + 1) / (n + 2) for (hits, n), weight in zip(counts, weights))
    variance = sum(weight**2 * p * (1 - p) / n
                   for (_, n), p, weight in zip(counts, smoothed, weights))
    half_width = Z_95 * math.sqrt(variance)
    return (max(0.0, min(share, center - half_width)), share,
            min(1.0, max(share, center + half_width)))


def _by_value(samples: Sequence[ParamValues], fits: Sequence[bool]) -> pd.DataFrame:
    """Numbers of samples and of feasible samples by parameter and value."""
    rows = [(name, format_constant(value), fit) for values, fit in zip(samples, fits)
            for name, value in values.params.items()]
    frame = pd.DataFrame(rows, columns=["parameter", "value", "fits"])
    groups = frame.groupby(["parameter", "value"], sort=False)["fits"]
    counts = groups.agg(candidates="size", feasible="sum").reset_index()
    by_size = counts.sort_values("value").sort_values(
        "value", key=lambda column: pd.to_numeric(column, errors="coerce"), kind="stable")
    return by_size.astype({"candidates": int, "feasible": int})
