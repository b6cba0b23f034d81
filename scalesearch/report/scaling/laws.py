"""How a score grows with size: power laws with bands, predictions for the next size, and which rule to follow.

    score(N) = a - b N^-c,  b ≥ 0, c > 0        (a + b N^-c for a score of which less is better, such as loss)

N is a size (parameters, MACs), a the score that the law tends to, c its exponent. The fit is least squares over all
trainings, several seeds of one size each for itself. Its uncertainty is a bootstrap over them: residuals are scaled for
the three degrees of freedom that the fit took, drawn anew with replacement, put on the fitted curve, and the law is
fitted again. Each draw's residuals are further scaled by √(df / χ²), as the variance itself is known from few trainings
only; without that, intervals from a handful of them are too narrow. Of 200 made-up studies each of 4 sizes (1 or 3
seeds) and of 6 (2 seeds), intervals of 90 % held the law, the next size and a new training in 88 to 92 %. What lies
beyond the law's form, such as data that runs out, no interval holds: :func:`held_out` checks a fit against sizes that
it has not seen.
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

Floats = NDArray[np.float64]
EXPONENTS: Floats = np.geomspace(0.01, 5, 600)  # neighbours differ by 1 %; near either end data cannot tell the law
WITHIN = (1.02 * EXPONENTS[0], EXPONENTS[-1] / 1.02)  # exponents that are not at an end
PARAMETERS, DRAWS = 3, 1000


@dataclass(frozen=True)
class PowerLaw:
    """a - sign · b · (N / unit)^-c; also of several draws at once, where a, b and c are columns.

    ``sign`` is 1 where more is better, -1 where less is; ``unit`` is a size.
    """

    a: Any
    b: Any
    c: Any
    sign: int
    unit: float

    def __call__(self, sizes: Any) -> Floats:
        """The score at each size."""
        return np.asarray(self.a - self.sign * self.b * (np.asarray(sizes, dtype=float) / self.unit) ** -self.c)

    @property
    def identified(self) -> bool:
        """Whether the data determine it: it rises, and by an exponent that is not at an end of those tried.

        Else scores grow like a logarithm (small c), level off at once (large c), or do not grow.
        """
        return bool(self.b > 0 and WITHIN[0] < self.c < WITHIN[1])

    def to_json(self) -> dict[str, float]:
        """``a``, ``b`` per unit size (N = 1), ``c``."""
        return {"a": self.a, "b": self.b * self.unit**self.c, "c": self.c}


@dataclass(frozen=True)
class Forecast:
    """At one size: the law's ``score``, its interval, and that of the mean of ``seeds`` new trainings."""

    size: float
    score: float
    low: float
    high: float
    seeds: int
    training_low: float
    training_high: float


@dataclass(frozen=True)
class Fit:
    """A law and its uncertainty.

    Attributes:
        sizes, scores: (n,), a training each. sd: of a training around the law, with ``df`` degrees of freedom.
        draws: (draws, 4): a, b, c and sd of each bootstrap draw.
    """

    law: PowerLaw
    sizes: Floats
    scores: Floats
    sd: float
    df: int
    draws: Floats
    confidence: float

    def curves(self, sizes: Any) -> Floats:
        """(draws, k) scores at ``sizes`` by every draw."""
        a, b, c = (self.draws[:, i, None] for i in range(PARAMETERS))
        return PowerLaw(a, b, c, self.law.sign, self.law.unit)(sizes)

    def band(self, sizes: Any) -> Floats:
        """(2, k): the interval of the law at each of ``sizes``."""
        return self._within(self.curves(sizes))

    @cached_property
    def exponent(self) -> tuple[float, float]:
        """The interval of c."""
        low, high = self._within(self.draws[:, 2]).tolist()
        return low, high

    @property
    def identified(self) -> bool:
        """Whether the law is, and the interval of its exponent reaches no end of those tried."""
        low, high = self.exponent
        return self.law.identified and bool(WITHIN[0] < low and high < WITHIN[1])

    def forecast(self, size: float, seeds: int = 1) -> Forecast:
        """What to expect at ``size``, of the law and of the mean of ``seeds`` trainings."""
        curve = self.curves([size])[:, 0]
        noise = np.random.default_rng(len(self.draws)).standard_normal(len(self.draws)) * self.draws[:, 3]
        low, high = self._within(curve).tolist()
        below, above = self._within(curve + noise / math.sqrt(seeds)).tolist()
        return Forecast(size, float(self.law(size)), low, high, seeds, below, above)

    def _within(self, values: Floats) -> Floats:
        return np.quantile(values, [0.5 - self.confidence / 2, 0.5 + self.confidence / 2], axis=0)


def fit(sizes: Sequence[float], scores: Sequence[float], direction: str = "max", confidence: float = CONFIDENCE,
        draws: int = DRAWS, seed: int = 1) -> Fit:
    """Power law through trainings of ``sizes`` with ``scores``; equal arguments give equal fits.

    Args:
        sizes: > 0, a training each; several of one size are its seeds.
        draws: of the bootstrap, with ``seed``.

    Raises:
        UserError: fewer than three sizes or four trainings, or a number that is none.
    """
    n, y = np.asarray(sizes, dtype=float), np.asarray(scores, dtype=float)
    _check(n, y)
    sign, unit = (1 if direction == "max" else -1), float(np.exp(np.log(n).mean()))
    law = PowerLaw(*_polished(n / unit, y, sign, _refit(n / unit, y[None], sign)[0]), sign, unit)
    residuals, df = y - law(n), len(y) - PARAMETERS
    sd = math.sqrt(float(residuals @ residuals) / df)
    rng = np.random.default_rng(seed)
    widths = np.sqrt(df / rng.chisquare(df, draws))
    errors = rng.choice(residuals * math.sqrt(len(y) / df), (draws, len(y))) * widths[:, None]
    again = _refit(n / unit, law(n) + errors, sign)
    return Fit(law, n, y, sd, df, np.column_stack([again, sd * widths]), confidence)


def too_few(sizes: Sequence[float]) -> str:
    """How many trainings of how many sizes there are, where these are too few for a law; else empty."""
    different = len(set(sizes))
    if different >= PARAMETERS and len(sizes) > PARAMETERS:
        return ""
    words = [f"{count} {word}{'s' * (count != 1)}" for count, word in ((len(sizes), "training"), (different, "size"))]
    return f"{words[0]} of {words[1]}"


def _check(sizes: Floats, scores: Floats) -> None:
    if len(sizes) != len(scores):
        raise ValueError(f"{len(sizes)} sizes and {len(scores)} scores")
    if not (np.isfinite(sizes).all() and np.isfinite(scores).all() and (sizes > 0).all()):
        raise UserError("scaling: sizes must be above zero, and sizes and scores finite numbers",
                        code="bad-measurements")
    if few := too_few(sizes.tolist()):
        raise UserError(f"scaling: {few}, a power law needs at least 4 of 3. Train more sizes, or more seeds of each",
                        code="too-few-measurements")


def _refit(x: Floats, scores: Floats, sign: int) -> Floats:
    """(draws, 3): a, b and c that fit ``scores`` (draws, n) at ``x`` (n,) best, of all exponents in EXPONENTS.

    For a given c the law is linear in a and b, so that all draws and exponents are one matrix product.
    """
    z = -sign * x[None] ** -EXPONENTS[:, None]  # (exponents, n); score = a + b z
    z_mean, y_mean = z.mean(1), scores.mean(1)
    z_free, y_free = z - z_mean[:, None], scores - y_mean[:, None]
    power = (z_free**2).sum(1)
    together = y_free @ z_free.T
    b = np.maximum(together / power, 0)  # (draws, exponents)
    best = (b**2 * power - 2 * b * together).argmin(1)
    slope = b[np.arange(len(b)), best]
    return np.column_stack([y_mean - slope * z_mean[best], slope, EXPONENTS[best]])


def _polished(x: Floats, y: Floats, sign: int, start: Floats) -> tuple[float, float, float]:
    """``start``, improved between the exponents that were tried."""
    from scipy.optimize import curve_fit  # a third of a second, for which only studies with a law have to wait

    a, b, c = start.tolist()
    bounds = ([-np.inf, 0, EXPONENTS[0]], [np.inf, np.inf, EXPONENTS[-1]])
    if b > 0:
        with suppress(RuntimeError):  # no convergence: what was tried is within 1 % of the best exponent
            (a, b, c), _ = curve_fit(lambda x, a, b, c: a - sign * b * x**-c, x, y, p0=(a, b, c), bounds=bounds)
    return float(a), float(b), float(c)


@dataclass(frozen=True)
class HeldOut:
    """A size that the fit had not seen: what it predicted, and the mean ``score`` that was measured."""

    forecast: Forecast
    score: float

    @property
    def error(self) -> float:
        """Measured less predicted."""
        return self.score - self.forecast.score

    @property
    def inside(self) -> bool:
        """Whether the score lies in the interval for the mean of as many trainings."""
        return self.forecast.training_low <= self.score <= self.forecast.training_high


def held_out(sizes: Sequence[float], scores: Sequence[float], **how: Any) -> HeldOut:
    """Check of a fit without the trainings of the largest size; ``how``: as for :func:`fit`.

    Raises:
        UserError: too little is left.
    """
    n, y = np.asarray(sizes, dtype=float), np.asarray(scores, dtype=float)
    there = n == n.max()
    found = fit(n[~there].tolist(), y[~there].tolist(), **how)
    return HeldOut(found.forecast(float(n.max()), int(there.sum())), float(y[there].mean()))


@dataclass(frozen=True)
class Choice:
    """A rule at a size: its forecast, and the share of draws in which it is the best of all rules."""

    rule: str
    forecast: Forecast
    best: float


def rank(rules: Mapping[str, Fit], size: float) -> list[Choice]:
    """The rules (deeper, wider, …) at one size, the best first.

    Rules were trained apart, so their draws are put together at random. No rule whose ``best`` is not near 1 can be
    called the one to follow.
    """
    rng = np.random.default_rng(1)
    sign = next(iter(rules.values())).law.sign
    draws = min(len(fitted.draws) for fitted in rules.values())
    drawn = np.column_stack([rng.permutation(fitted.curves([size])[:, 0])[:draws] for fitted in rules.values()])
    shares = np.bincount((sign * drawn).argmax(1), minlength=len(rules)) / draws
    found = [Choice(rule, fitted.forecast(size), float(share)) for (rule, fitted), share in zip(rules.items(), shares)]
    return sorted(found, key=lambda choice: -sign * choice.forecast.score)
