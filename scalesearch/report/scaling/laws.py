"""How a score grows with size: power laws with bands, predictions for the next size, and which rule to follow.

    score(N) = a - b N^-c,  b ≥ 0, c > 0        (a + b N^-c for a score of which less is better, such as loss)

N is a size (parameters, MACs), a the score that the law tends to, c its exponent. The fit is least
squares over all trainings, several seeds of one size each for itself. Its uncertainty is a
bootstrap over them: residuals are scaled for the three degrees of freedom that the fit took, drawn
anew with replacement, put on the fitted curve, and the law is fitted again. Each draw's residuals
are further scaled by √(df / χ²), as the variance itself is known from few trainings only; without
that, intervals from a handful of them are too narrow. Of 200 made-up studies each of 4 sizes (1 or
3 seeds) and of 6 (2 seeds), intervals of 90 % held the law, the next size and a new training in 88
to 92 %. What lies beyond the law's form, such as data that runs out, no interval holds:
:func:`check_largest_size` checks a fit against sizes that it has not seen.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.errors import UserError
from scalesearch.pareto.noise import CONFIDENCE

FloatArray = NDArray[np.float64]
# neighbors differ by 1 %; near either end data cannot tell the law
EXPONENT_GRID: FloatArray = np.geomspace(0.01, 5, 600)
# exponents that are not at an end
EXPONENT_LIMITS = (1.02 * EXPONENT_GRID[0], EXPONENT_GRID[-1] / 1.02)
N_LAW_PARAMETERS = 3
N_RESAMPLES = 1000


@dataclass(frozen=True)
class PowerLaw:
    """a - sign · b · (N / unit)^-c; also of several draws at once, where a, b and c are columns.

    ``sign`` is 1 where more is better, -1 where less is; ``unit_size`` is a size.
    """

    a: Any
    b: Any
    c: Any
    sign: int
    unit_size: float

    def __call__(self, sizes: Any) -> FloatArray:
        """The score at each size."""
        return np.asarray(self.a
                          - self.sign * self.b
                          * (np.asarray(sizes, dtype=float) / self.unit_size) ** -self.c)

    @property
    def is_identified(self) -> bool:
        """Whether the data determine it: it rises, and by an exponent that is not at an end of those tried.

        Else scores grow like a logarithm (small c), level off at once (large c), or do not grow.
        """
        return bool(self.b > 0 and EXPONENT_LIMITS[0] < self.c < EXPONENT_LIMITS[1])

    def to_json(self) -> dict[str, float]:
        """``a``, ``b`` per unit size (N = 1), ``c``."""
        return {"a": self.a, "b": self.b * self.unit_size**self.c, "c": self.c}


@dataclass(frozen=True)
class LawPrediction:
    """At one size: the law's ``score``, its interval, and that of the mean of ``n_seeds`` new trainings."""

    size: float
    score: float
    low: float
    high: float
    n_seeds: int
    training_low: float
    training_high: float


@dataclass(frozen=True)
class LawFit:
    """A law and its uncertainty.

    Attributes:
        sizes, scores: (n,), a training each. sd: of a training around the law, with ``df`` degrees
            of freedom.
        bootstrap_samples: (draws, 4): a, b, c and sd of each bootstrap draw.
    """

    law: PowerLaw
    sizes: FloatArray
    scores: FloatArray
    sd: float
    df: int
    bootstrap_samples: FloatArray
    confidence: float

    def predict_bootstrap(self, sizes: Any) -> FloatArray:
        """(draws, k) scores at ``sizes`` by every draw."""
        a, b, c = (self.bootstrap_samples[:, i, None] for i in range(N_LAW_PARAMETERS))
        return PowerLaw(a, b, c, self.law.sign, self.law.unit_size)(sizes)

    def interval_at(self, sizes: Any) -> FloatArray:
        """(2, k): the interval of the law at each of ``sizes``."""
        return self._within(self.predict_bootstrap(sizes))

    @cached_property
    def exponent_interval(self) -> tuple[float, float]:
        """The interval of c."""
        low, high = self._within(self.bootstrap_samples[:, 2]).tolist()
        return low, high

    @property
    def is_identified(self) -> bool:
        """Whether the law is, and the interval of its exponent reaches no end of those tried."""
        low, high = self.exponent_interval
        return self.law.is_identified and bool(
            EXPONENT_LIMITS[0] < low and high < EXPONENT_LIMITS[1])

    def predict(self, size: float, seeds: int = 1) -> LawPrediction:
        """What to expect at ``size``, of the law and of the mean of ``seeds`` trainings."""
        curve = self.predict_bootstrap([size])[:, 0]
        noise = np.random.default_rng(len(self.bootstrap_samples)).standard_normal(
            len(self.bootstrap_samples)) * self.bootstrap_samples[:, 3]
        low, high = self._within(curve).tolist()
        below, above = self._within(curve + noise / math.sqrt(seeds)).tolist()
        return LawPrediction(size, float(self.law(size)), low, high, seeds, below, above)

    def _within(self, values: FloatArray) -> FloatArray:
        return np.quantile(values, [0.5 - self.confidence / 2, 0.5 + self.confidence / 2], axis=0)


def fit_power_law(sizes: Sequence[float], scores: Sequence[float], direction: str = "max",
                  confidence: float = CONFIDENCE, n_resamples: int = N_RESAMPLES,
                  seed: int = 1) -> LawFit:
    """Power law through trainings of ``sizes`` with ``scores``; equal arguments give equal fits.

    Args:
        sizes: > 0, a training each; several of one size are its seeds.
        n_resamples: of the bootstrap, with ``seed``.

    Raises:
        UserError: fewer than three sizes or four trainings, or a number that is none.
    """
    n = np.asarray(sizes, dtype=float)
    y = np.asarray(scores, dtype=float)
    _check(n, y)
    sign = 1 if direction == "max" else -1
    unit = float(np.exp(np.log(n).mean()))
    law = PowerLaw(*_refine(n / unit, y, sign, _refit(n / unit, y[None], sign)[0]), sign, unit)
    residuals = y - law(n)
    df = len(y) - N_LAW_PARAMETERS
    sd = math.sqrt(float(residuals @ residuals) / df)
    rng = np.random.default_rng(seed)
    widths = np.sqrt(df / rng.chisquare(df, n_resamples))
    errors = rng.choice(residuals * math.sqrt(len(y) / df), (n_resamples, len(y))) * widths[:, None]
    again = _refit(n / unit, law(n) + errors, sign)
    return LawFit(law, n, y, sd, df, np.column_stack([again, sd * widths]), confidence)


def describe_shortage(sizes: Sequence[float]) -> str:
    """How many trainings of how many sizes there are, where these are too few for a law; else empty."""
    different = len(set(sizes))
    if different >= N_LAW_PARAMETERS and len(sizes) > N_LAW_PARAMETERS:
        return ""
    words = [f"{count} {word}{'s' * (count != 1)}"
             for count, word in ((len(sizes), "training"), (different, "size"))]
    return f"{words[0]} of {words[1]}"


def _check(sizes: FloatArray, scores: FloatArray) -> None:
    if len(sizes) != len(scores):
        raise ValueError(f"{len(sizes)} sizes and {len(scores)} scores")
    if not (np.isfinite(sizes).all() and np.isfinite(scores).all() and (sizes > 0).all()):
        raise UserError("scaling: sizes must be above zero, and sizes and scores finite numbers",
                        code="bad-measurements")
    if few := describe_shortage(sizes.tolist()):
        raise UserError(f"scaling: {few}, a power law needs at least 4 of 3. Train more sizes, or "
                        "more seeds of each", code="too-few-measurements")


def _refit(x: FloatArray, scores: FloatArray, sign: int) -> FloatArray:
    """(draws, 3): a, b and c that fit ``scores`` (draws, n) at ``x`` (n,) best, of all exponents in EXPONENTS.

    For a given c the law is linear in a and b, so that all draws and exponents are one matrix
    product.
    """
    z = -sign * x[None] ** -EXPONENT_GRID[:, None]  # (exponents, n); score = a + b z
    z_mean = z.mean(1)
    y_mean = scores.mean(1)
    z_free = z - z_mean[:, None]
    y_free = scores - y_mean[:, None]
    power = (z_free**2).sum(1)
    together = y_free @ z_free.T
    b = np.maximum(together / power, 0)  # (draws, exponents)
    best = (b**2 * power - 2 * b * together).argmin(1)
    slope = b[np.arange(len(b)), best]
    return np.column_stack([y_mean - slope * z_mean[best], slope, EXPONENT_GRID[best]])


def _refine(
        x: FloatArray, y: FloatArray, sign: int, start: FloatArray) -> tuple[float, float, float]:
    """``start``, improved between the exponents that were tried."""
    # a third of a second, for which only studies with a law have to wait
    from scipy.optimize import curve_fit

    a, b, c = start.tolist()
    bounds = ([-np.inf, 0, EXPONENT_GRID[0]], [np.inf, np.inf, EXPONENT_GRID[-1]])
    if b > 0:
        # no convergence: what was tried is within 1 % of the best exponent
        with suppress(RuntimeError):
            (a, b, c), _ = curve_fit(lambda x, a, b, c: a - sign * b * x**-c, x, y, p0=(a, b, c),
                                     bounds=bounds)
    return float(a), float(b), float(c)


@dataclass(frozen=True)
class HoldoutCheck:
    """A size that the fit had not seen: what it predicted, and the mean ``measured_score`` that was measured."""

    prediction: LawPrediction
    measured_score: float

    @property
    def error(self) -> float:
        """Measured less predicted."""
        return self.measured_score - self.prediction.score

    @property
    def is_inside_interval(self) -> bool:
        """Whether the score lies in the interval for the mean of as many trainings."""
        return self.prediction.training_low <= self.measured_score <= self.prediction.training_high


def check_largest_size(sizes: Sequence[float], scores: Sequence[float],
                       **fit_options: Any) -> HoldoutCheck:
    """Check of a fit without the trainings of the largest size; ``how``: as for :func:`fit_power_law`.

    Raises:
        UserError: too little is left.
    """
    n = np.asarray(sizes, dtype=float)
    y = np.asarray(scores, dtype=float)
    there = n == n.max()
    found = fit_power_law(n[~there].tolist(), y[~there].tolist(), **fit_options)
    return HoldoutCheck(found.predict(float(n.max()), int(there.sum())), float(y[there].mean()))


@dataclass(frozen=True)
class RankedRule:
    """A rule at a size: its forecast, and the share of draws in which it is the best of all rules."""

    rule: str
    prediction: LawPrediction
    best_share: float


def rank_rules(rules: Mapping[str, LawFit], size: float) -> list[RankedRule]:
    """The rules (deeper, wider, …) at one size, the best first.

    Rules were trained apart, so their draws are put together at random. No rule whose ``best`` is
    not near 1 can be called the one to follow.
    """
    rng = np.random.default_rng(1)
    sign = next(iter(rules.values())).law.sign
    draws = min(len(fitted.bootstrap_samples) for fitted in rules.values())
    drawn = np.column_stack([rng.permutation(fitted.predict_bootstrap([size])[:, 0])[:draws]
                             for fitted in rules.values()])
    shares = np.bincount((sign * drawn).argmax(1), minlength=len(rules)) / draws
    found = [RankedRule(rule, fitted.predict(size), float(share))
             for (rule, fitted), share in zip(rules.items(), shares)]
    return sorted(found, key=lambda choice: -sign * choice.prediction.score)
