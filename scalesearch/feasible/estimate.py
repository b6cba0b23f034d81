"""Estimated feasible share of a space, by stratified and weighted sampling.

Samples are uniform per parameter. A configuration of a branch with few configurations is then
sampled more often than one of a branch with many. Each sample has the weight 1 / probability, so
that the estimates are shares of configurations, as exact counts are.

Notation: w is the weight of a sample, f is 1 if it is feasible and 0 otherwise, and the share is
Σ w f / Σ w. The interval is Wilson's for (Σ w)² / Σ w² samples (Kish 1965).
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from scalesearch.cost.protocol import Protocol
from scalesearch.feasible.costed_candidates import CostedCandidate, SampledCandidate, evaluate_costs
from scalesearch.feasible.limits import join_limits
from scalesearch.spaces import ParamValues, Space
from scalesearch.spaces.parameters.constraints import Constraint
from scalesearch.spaces.parameters.count import UncountableSpaceError, count_configurations
from scalesearch.spaces.syntax.parameters import IntRange, Parameter, format_constant

N_STRATA = 8
Z_95 = 1.959963984540054
MAX_LOG_SIZE = 700.0  # the exponential of larger numbers is not a float


@dataclass(frozen=True)
class Estimate:
    """Estimated share of feasible configurations.

    Attributes:
        share, share_low, share_high: the share and its 95 % interval.
        size: estimated number of configurations, without bias (Knuth 1975).
        strata: description of the strata.
        n_samples: number of samples.
        value_shares: a row per parameter and value, with the weights of all ``candidates``, of
            ``valid`` and of ``feasible`` ones; the mean weight of a sample is 1.
        sample: a row per sample that can be built, with its costs, whether it ``fits``, and the
            limits that are ``violated``, and its ``weight``.
        feasible: the feasible samples.
    """

    share: float
    share_low: float
    share_high: float
    size: float
    strata: str
    n_samples: int
    value_shares: pd.DataFrame = field(repr=False)
    sample: pd.DataFrame = field(repr=False)
    feasible: list[SampledCandidate] = field(repr=False)


def estimate_feasibility(space: Space, protocol: Protocol, budgets: tuple[Constraint, ...],
                         names: tuple[str, ...], n_samples: int, seed: int) -> Estimate:
    """Estimate the feasible share from equally many samples of each stratum.

    A space with at most ``n_samples`` configurations is not sampled: each is evaluated once.

    Args:
        names: costs of each sample, at least those in the budgets and constraints.
    """
    n_configurations = None
    with suppress(UncountableSpaceError):
        n_configurations = count_configurations(space.parameter_space, n_samples)
    if n_configurations is not None and n_configurations <= n_samples:
        description = "every configuration once"
        samples = list(space.enumerate())
        log_weights = [0.0] * len(samples)
    else:
        rng = random.Random(seed)
        parameter, strata = _strata(space)
        description = f"{len(strata)} strata of {parameter}" if parameter else "one stratum"
        samples = []
        log_weights = []
        for n in range(n_samples):
            stratum = n % len(strata)
            values, log_weight = _sample(space, rng, parameter, strata[stratum])
            samples.append(values)
            log_weights.append(log_weight - math.log(len(range(stratum, n_samples, len(strata)))))
    weights = np.exp(np.array(log_weights) - max(log_weights))
    log_size = max(log_weights) + math.log(weights.sum())
    weights /= weights.mean()
    candidates = evaluate_costs([CostedCandidate.from_param_values(values) for values in samples],
                                protocol, names)
    constraints = [[limit.label for limit in space.constraints
                    if not limit.is_satisfied(candidate.__getitem__)] if candidate.costs else None
                   for candidate in candidates]
    violated = [None if texts is None
                else [*texts, *(limit.label for limit in budgets
                                if not limit.is_satisfied(candidate.__getitem__))]
                for candidate, texts in zip(candidates, constraints)]
    is_valid = np.array([texts == [] for texts in constraints])
    fits = np.array([texts == [] for texts in violated])
    share = float((weights * fits).mean())
    low, high = wilson_interval(share, float(weights.sum() ** 2 / (weights**2).sum()))
    rows = [{**(candidate.costs or {}), "fits": fit, "violated": join_limits(texts),
             "weight": weight}
            for candidate, fit, texts, weight in zip(candidates, fits.tolist(), violated,
                                                     weights.tolist()) if texts is not None]
    frame = pd.DataFrame(rows, columns=[*names, "fits", "violated", "weight"])
    # Sums of weights by parameter and value: of candidates, valid and feasible ones.
    columns = ["candidates", "valid", "feasible"]
    value_rows = [(name, format_constant(value), *sample_weights)
                  for values, *sample_weights in zip(samples, weights.tolist(),
                                                     (weights * is_valid).tolist(),
                                                     (weights * fits).tolist())
                  for name, value in values.params.items()]
    sums = pd.DataFrame(value_rows, columns=["parameter", "value", *columns]).groupby(
        ["parameter", "value"], sort=False)[columns].sum().reset_index()
    by_value = sums.sort_values("value").sort_values(
        "value", key=lambda column: pd.to_numeric(column, errors="coerce"), kind="stable")
    size = math.exp(min(log_size, MAX_LOG_SIZE))
    feasible = [SampledCandidate(values, dict(candidate.costs or {}))
                for values, candidate, fit in zip(samples, candidates, fits) if fit]
    return Estimate(share, low, high, size, description, len(samples), by_value, frame, feasible)


def _strata(space: Space) -> tuple[str, list[Sequence[Any]]]:
    """The parameter that affects costs most, and its values in groups of neighbors."""
    parameters = dict(space.parameters())
    name = next((n for n in ("width", "encoder.depth", "decoder.depth") if n in parameters), "")
    if not name or not 2 <= (parameters[name].count() or 0) <= sys.maxsize:
        return "", [[None]]
    values = parameters[name].values() or ()
    size = math.ceil(len(values) / N_STRATA)
    return name, [values[i : i + size] for i in range(0, len(values), size)]


def _sample(space: Space, rng: random.Random, stratified: str,
            values: Sequence[Any]) -> tuple[ParamValues, float]:
    """Sample a candidate; the parameter ``stratified`` has one of ``values``.

    Returns:
        the candidate, and the logarithm of its weight within the stratum.
    """
    log_weight = 0.0

    def suggest(name: str, parameter: Parameter) -> Any:
        nonlocal log_weight
        if name == stratified:
            log_weight += math.log(len(values))
            return rng.choice(values)
        value = parameter.sample(rng)
        log_weight -= log_probability(parameter, value)
        return value

    return space.resolve(suggest), log_weight


def log_probability(parameter: Parameter, value: Any) -> float:
    """Logarithm of the probability of a sampled value; 0 for continuous ranges."""
    if isinstance(parameter, IntRange) and parameter.log:
        width = math.log(parameter.high + 0.5) - math.log(parameter.low - 0.5)
        return math.log((math.log(value + 0.5) - math.log(value - 0.5)) / width)
    return -math.log(parameter.count() or 1)


def wilson_interval(share: float, n_samples: float) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927)."""
    scale = 1 + Z_95**2 / n_samples
    center = (share + Z_95**2 / (2 * n_samples)) / scale
    half_width = Z_95 / scale * math.sqrt(
        share * (1 - share) / n_samples + (Z_95 / (2 * n_samples)) ** 2)
    return max(0.0, min(share, center - half_width)), min(1.0, max(share, center + half_width))
