"""How far a score depends on the training seed, and which differences are larger than that.

One variance is taken to hold for all candidates, since two or three seeds of one tell little of its
own: the squared deviations from each candidate's own mean, summed over all candidates, over their
degrees of freedom. Intervals are Student's, so that a variance of few degrees of freedom gives wide
ones.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

CONFIDENCE = 0.9  # of intervals, unless a study says another


@dataclass(frozen=True)
class Noise:
    """The spread of one score between trainings that differ in nothing but their seed.

    Attributes:
        sd: the pooled standard deviation, in the score's unit; 0 before it is ``is_known``.
        df: degrees of freedom, one less than seeds for each candidate with several.
        n_candidates: that have several seeds.
    """

    sd: float = 0.0
    df: int = 0
    n_candidates: int = 0

    @property
    def is_known(self) -> bool:
        """Whether anything was trained with a second seed."""
        return self.df > 0

    def interval_half_width(self, confidence: float, *seeds: int) -> float:
        """Half the interval of a mean over so many seeds, or for two numbers, of a difference of means.

        Infinite where the noise is unknown.
        """
        return t_quantile(confidence,
                          self.df) * self.standard_error(*seeds) if self.is_known else math.inf

    def standard_error(self, *seeds: int) -> float:
        """Standard error of a mean over so many seeds, or of a difference of two means."""
        return self.sd * math.sqrt(sum(1 / count for count in seeds))


def pool_noise(samples: Iterable[Sequence[float]]) -> Noise:
    """The noise in ``samples``, one sequence of scores a candidate; those of a single score say nothing of it."""
    several = [np.asarray(sample, dtype=float) for sample in samples if len(sample) > 1]
    df = sum(len(sample) - 1 for sample in several)
    if not df:
        return Noise()
    squares = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in several)
    return Noise(math.sqrt(squares / df), df, len(several))


@lru_cache(maxsize=1024)
def t_quantile(confidence: float, df: int) -> float:
    """Student's t that ``confidence`` of its distribution lies within, on both sides of 0."""
    # a tenth of a second, for which only replicated candidates have to wait
    from scipy.special import stdtrit

    return float(stdtrit(df, 0.5 + confidence / 2))


def format_percent(confidence: float) -> str:
    """``90 %``, ``97.5 %``."""
    return f"{100 * confidence:.4g} %"


def sample_std(sample: Sequence[float]) -> float | None:
    """The sample standard deviation; None of a single score."""
    return float(np.std(sample, ddof=1)) if len(sample) > 1 else None


def decimals_for_interval(half_width: float) -> int:
    """Decimals to print a number with an interval of ``half_width``: 0.4 needs one, 0.14 two (0.1 is too coarse)."""
    if not 0 < half_width < np.inf:
        return 2
    exponent = int(np.floor(np.log10(half_width)))
    return max(0, -exponent + (half_width < 3.5 * 10.0**exponent))
