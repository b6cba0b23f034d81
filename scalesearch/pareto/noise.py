"""Noise of scores between training seeds, and intervals of means and differences.

The variance is pooled over all candidates, because two or three seeds of one candidate give a poor
estimate: the squared deviations from the mean of each candidate, summed over all candidates,
divided by the degrees of freedom. Intervals use Student's t distribution, so that few degrees of
freedom give wide intervals.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

CONFIDENCE = 0.9  # default confidence level of intervals


@dataclass(frozen=True)
class Noise:
    """Standard deviation of a score between runs that differ only in their seed.

    Attributes:
        sd: the pooled standard deviation, in the unit of the score; 0 if it is unknown.
        df: degrees of freedom: number of seeds - 1, summed over candidates with several seeds.
        n_candidates: number of candidates with several seeds.
    """

    sd: float = 0.0
    df: int = 0
    n_candidates: int = 0

    @property
    def is_known(self) -> bool:
        """Whether any candidate was trained with a second seed."""
        return self.df > 0

    def interval_half_width(self, confidence: float, *seeds: int) -> float:
        """Return the half-width of the confidence interval of a mean or a difference.

        Args:
            confidence: confidence level.
            seeds: number of seeds of the mean; two numbers for a difference.

        Returns:
            The half-width; infinite if the noise is unknown.
        """
        if not self.is_known:
            return math.inf
        return t_quantile(confidence, self.df) * self.standard_error(*seeds)

    def standard_error(self, *seeds: int) -> float:
        """Return the standard error of a mean over ``seeds`` seeds, or of a difference."""
        return self.sd * math.sqrt(sum(1 / count for count in seeds))


def pool_noise(samples: Iterable[Sequence[float]]) -> Noise:
    """Return the noise in ``samples``, the scores of all seeds per candidate.

    Candidates with a single seed have no effect.
    """
    repeated = [np.asarray(sample, dtype=float) for sample in samples if len(sample) > 1]
    df = sum(len(sample) - 1 for sample in repeated)
    if not df:
        return Noise()
    squares = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in repeated)
    return Noise(math.sqrt(squares / df), df, len(repeated))


@lru_cache(maxsize=1024)
def t_quantile(confidence: float, df: int) -> float:
    """Return t such that Student's distribution has the share ``confidence`` in ±t."""
    # the import takes 0.1 s, and only replicated candidates need it
    from scipy.special import stdtrit

    return float(stdtrit(df, 0.5 + confidence / 2))


def format_percent(confidence: float) -> str:
    """Return a confidence level as text, such as ``90 %`` or ``97.5 %``."""
    return f"{100 * confidence:.4g} %"


def sample_std(sample: Sequence[float]) -> float | None:
    """Return the sample standard deviation; None for a single score."""
    return float(np.std(sample, ddof=1)) if len(sample) > 1 else None


def decimals_for_interval(half_width: float) -> int:
    """Return the decimals to print a number whose interval has this half-width.

    0.4 needs one decimal, 0.14 two, because 0.1 is too coarse.
    """
    if not 0 < half_width < np.inf:
        return 2
    exponent = int(np.floor(np.log10(half_width)))
    return max(0, -exponent + (half_width < 3.5 * 10.0**exponent))
